/*
 * The only file that knows how this project's memory ordering is spelled. The order is in the name of
 * the operation, so that `grep arb_store_release` finds every release. Built on libatomic_ops; the
 * thread sanitizer understands compilers' atomics alone, so its build uses those.
 */
#ifndef ARB_ATOMIC_H
#define ARB_ATOMIC_H

#include <stdint.h>

#include "gpuarb/abi.h"
#include "shm/base/self.h"

#ifdef __SANITIZE_THREAD__
#define ARB_ATOMIC_BUILTIN 1
#endif

#ifdef ARB_ATOMIC_BUILTIN

#define ARB_DEFINE(T, n)                                                                                     \
	static inline T arb_load##n(const arb_u##n *p)                                                       \
	{                                                                                                    \
		arb_self_point();                                                                            \
		return __atomic_load_n(&p->v, __ATOMIC_RELAXED);                                             \
	}                                                                                                    \
	static inline T arb_load##n##_acquire(const arb_u##n *p)                                             \
	{                                                                                                    \
		arb_self_point();                                                                            \
		return __atomic_load_n(&p->v, __ATOMIC_ACQUIRE);                                             \
	}                                                                                                    \
	static inline void arb_store##n(arb_u##n *p, T v)                                                    \
	{                                                                                                    \
		arb_self_point();                                                                            \
		__atomic_store_n(&p->v, v, __ATOMIC_RELAXED);                                                \
	}                                                                                                    \
	static inline void arb_store##n##_release(arb_u##n *p, T v)                                          \
	{                                                                                                    \
		arb_self_point();                                                                            \
		__atomic_store_n(&p->v, v, __ATOMIC_RELEASE);                                                \
	}                                                                                                    \
	static inline int arb_cas##n##_full(arb_u##n *p, T old, T new_value)                                 \
	{                                                                                                    \
		arb_self_point();                                                                            \
		return __atomic_compare_exchange_n(                                                          \
			&p->v, &old, new_value, 0, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED);                      \
	}                                                                                                    \
	static inline T arb_add##n##_full(arb_u##n *p, T by)                                                 \
	{                                                                                                    \
		arb_self_point();                                                                            \
		return __atomic_fetch_add(&p->v, by, __ATOMIC_SEQ_CST);                                      \
	}

static inline void arb_fence_compiler(void)
{
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
}
static inline void arb_fence_acquire(void)
{
}
static inline void arb_fence_release(void)
{
}

#else

#include <atomic_ops.h>

#if !defined(AO_HAVE_compare_and_swap_full) || !defined(AO_HAVE_int_compare_and_swap_full) ||                \
	!defined(AO_HAVE_fetch_and_add_full) || !defined(AO_HAVE_int_fetch_and_add_full)
#error "libatomic_ops has no compare-and-swap for this machine"
#endif
_Static_assert(sizeof(AO_t) == 8, "gpuarb needs a 64-bit machine");
_Static_assert(sizeof(unsigned) == 4, "futex words are unsigned ints");

#define ARB_DEFINE_AO(T, AT, n, pre)                                                                         \
	static inline T arb_load##n(const arb_u##n *p)                                                       \
	{                                                                                                    \
		arb_self_point();                                                                            \
		return (T)pre##_load((const volatile AT *)&p->v);                                            \
	}                                                                                                    \
	static inline T arb_load##n##_acquire(const arb_u##n *p)                                             \
	{                                                                                                    \
		arb_self_point();                                                                            \
		return (T)pre##_load_acquire((const volatile AT *)&p->v);                                    \
	}                                                                                                    \
	static inline void arb_store##n(arb_u##n *p, T v)                                                    \
	{                                                                                                    \
		arb_self_point();                                                                            \
		pre##_store((volatile AT *)&p->v, (AT)v);                                                    \
	}                                                                                                    \
	static inline void arb_store##n##_release(arb_u##n *p, T v)                                          \
	{                                                                                                    \
		arb_self_point();                                                                            \
		pre##_store_release((volatile AT *)&p->v, (AT)v);                                            \
	}                                                                                                    \
	static inline int arb_cas##n##_full(arb_u##n *p, T old, T new_value)                                 \
	{                                                                                                    \
		arb_self_point();                                                                            \
		return pre##_compare_and_swap_full((volatile AT *)&p->v, (AT)old, (AT)new_value);            \
	}                                                                                                    \
	static inline T arb_add##n##_full(arb_u##n *p, T by)                                                 \
	{                                                                                                    \
		arb_self_point();                                                                            \
		return (T)pre##_fetch_and_add_full((volatile AT *)&p->v, (AT)by);                            \
	}
#define ARB_DEFINE(T, n)    ARB_DEFINE_AO_##n(T)
#define ARB_DEFINE_AO_64(T) ARB_DEFINE_AO(T, AO_t, 64, AO)
#define ARB_DEFINE_AO_32(T) ARB_DEFINE_AO(T, unsigned, 32, AO_int)

/* Keeps the compiler alone from moving what stands before it behind it. */
static inline void arb_fence_compiler(void)
{
	AO_compiler_barrier();
}
/* x86 reorders neither loads with loads nor a load with a later store, so only the compiler must be kept from it. */
static inline void arb_fence_acquire(void)
{
#if defined(__x86_64__)
	AO_compiler_barrier();
#else
	AO_nop_full();
#endif
}
static inline void arb_fence_release(void)
{
#if defined(__x86_64__)
	AO_compiler_barrier();
#else
	AO_nop_full();
#endif
}

#endif

ARB_DEFINE(uint64_t, 64)
ARB_DEFINE(uint32_t, 32)

/* A relaxed load where a stale value costs nothing: the world does not change threads here. */
static inline uint32_t arb_hint32(const arb_u32 *p)
{
	return __atomic_load_n(&p->v, __ATOMIC_RELAXED);
}

static inline uint64_t arb_hint64(const arb_u64 *p)
{
	return __atomic_load_n(&p->v, __ATOMIC_RELAXED);
}

static inline void arb_pause(void)
{
#if defined(__x86_64__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
}

/* Set or clear a bit of a shared word that several may change at once. */
static inline void arb_bit_set(arb_u64 *p, uint64_t bit)
{
	uint64_t old;

	do
		old = arb_load64(p);
	while (!(old & bit) && !arb_cas64_full(p, old, old | bit));
}

static inline void arb_bit_clear(arb_u64 *p, uint64_t bit)
{
	uint64_t old;

	do
		old = arb_load64(p);
	while ((old & bit) && !arb_cas64_full(p, old, old & ~bit));
}

#endif
