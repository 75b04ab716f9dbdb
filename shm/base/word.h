/*
 * Words that the threads of one process share: plain integers and pointers, with the memory order in the name of the
 * operation, as in atomic.h, which is for words that several processes see. No suffix: relaxed.
 */
#ifndef ARB_WORD_H
#define ARB_WORD_H

#define arb_word_load(p)         __atomic_load_n(p, __ATOMIC_RELAXED)
#define arb_word_load_acquire(p) __atomic_load_n(p, __ATOMIC_ACQUIRE)
#define arb_word_load_full(p)    __atomic_load_n(p, __ATOMIC_SEQ_CST)

#define arb_word_store(p, v)         __atomic_store_n(p, v, __ATOMIC_RELAXED)
#define arb_word_store_release(p, v) __atomic_store_n(p, v, __ATOMIC_RELEASE)
#define arb_word_store_full(p, v)    __atomic_store_n(p, v, __ATOMIC_SEQ_CST)

/* Returns what was there before. */
#define arb_word_add(p, n)              __atomic_fetch_add(p, n, __ATOMIC_RELAXED)
#define arb_word_add_release(p, n)      __atomic_fetch_add(p, n, __ATOMIC_RELEASE)
#define arb_word_add_acq_rel(p, n)      __atomic_fetch_add(p, n, __ATOMIC_ACQ_REL)
#define arb_word_add_full(p, n)         __atomic_fetch_add(p, n, __ATOMIC_SEQ_CST)
#define arb_word_sub(p, n)              __atomic_fetch_sub(p, n, __ATOMIC_RELAXED)
#define arb_word_sub_release(p, n)      __atomic_fetch_sub(p, n, __ATOMIC_RELEASE)
#define arb_word_exchange(p, v)         __atomic_exchange_n(p, v, __ATOMIC_RELAXED)
#define arb_word_exchange_acquire(p, v) __atomic_exchange_n(p, v, __ATOMIC_ACQUIRE)
#define arb_word_exchange_acq_rel(p, v) __atomic_exchange_n(p, v, __ATOMIC_ACQ_REL)
/* Returns what is there afterwards. */
#define arb_word_add_then_load(p, n) __atomic_add_fetch(p, n, __ATOMIC_RELAXED)

/* True if *p was *expected and is v now; otherwise *expected is what *p was. */
#define arb_word_cas(p, expected, v)                                                                         \
	__atomic_compare_exchange_n(p, expected, v, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED)
#define arb_word_cas_acquire(p, expected, v)                                                                 \
	__atomic_compare_exchange_n(p, expected, v, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)
#define arb_word_cas_release(p, expected, v)                                                                 \
	__atomic_compare_exchange_n(p, expected, v, 0, __ATOMIC_RELEASE, __ATOMIC_RELAXED)
#define arb_word_cas_acq_rel(p, expected, v)                                                                 \
	__atomic_compare_exchange_n(p, expected, v, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)

/* Orders everything before it and everything behind it, for all threads. */
#define arb_word_fence_full() __atomic_thread_fence(__ATOMIC_SEQ_CST)

#endif
