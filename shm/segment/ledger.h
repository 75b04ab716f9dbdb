/*
 * What a client knows of itself without the segment: the words that only it writes, as it wrote them last; the record
 * of its account as it was last published; and the clocks of the running set as it last saw them. A process that may
 * write the segment can write over all of these there. So the client reads its own words here and restores what
 * differs (shm/client/restore.c). Words of others are not here. Under the process's lock.
 */
#ifndef ARB_LEDGER_H
#define ARB_LEDGER_H

#include <stdbool.h>
#include <stdint.h>

#include "shm/base/atomic.h"
#include "shm/segment/account.h"
#include "shm/segment/running.h"
#include "shm/segment/segment.h"

/* The clocks of a published record. */
struct arb_clocks {
	uint64_t t, v, busy;
	uint32_t weight; /* W */
	uint32_t win_ms;
	uint64_t win_number, win_start, win_v, win_busy;
};

struct arb_ledger {
	/* The slot's words of these names. */
	uint64_t acc, total, weight, base;
	uint64_t wall_acc, wall_total, wall_base;
	uint64_t asked_mem;
	uint32_t asked_ppm, asked_share;
	uint32_t generation;
	uint64_t owner; /* of its account; 0: it is a guest there */
	uint64_t mem;   /* the word of the two that counts */

	bool inside;            /* it has entered the running set, and has not left it */
	struct arb_clocks seen; /* by its last look at the set; with `inside`, since it entered */
	struct arb_clocks sure; /* the last of these whose time had come when the clock was read after it */
	bool looked;            /* there has been such a look */
	/* The largest W that a look found since most_weight_t, and in the same number of windows before that. */
	uint32_t most_weight, most_weight_before;
	uint64_t most_weight_t;
	bool impossible;    /* no client can have published what the last look found: it is to be replaced */
	bool astray;        /* and its clocks cannot be right */
	uint64_t refused_t; /* the time of the record by which it was last refused */
	uint32_t found;     /* ARB_RESTORED_*: put right, and not yet told */

	/* Its last sign of life, ns. After a silence in which another process may have evicted it, `doubt` is how often the
	 * head must still change before an eviction can no longer be because of that silence. */
	uint64_t beat_ns;
	unsigned doubt;
	uint64_t head; /* the last one with which it was seen in the set */

	bool has_record;
	struct arb_account_snap record; /* the account's, by its head */

	/* The last sign of life of each slot that this client has seen, ns. No sign of life is older than an earlier one. */
	uint64_t heard[ARB_SLOTS_MAX];
};

/* The ledger of slot `i`: NULL unless it is this client's own. */
static inline struct arb_ledger *arb_ledger_of(const struct arb_segment *seg, uint32_t i)
{
	return i == seg->own_slot ? seg->own : NULL;
}

/* The ledger of the client that has joined with account `a`. */
static inline struct arb_ledger *arb_ledger_in(const struct arb_segment *seg, uint32_t a)
{
	return a == seg->own_account ? seg->own : NULL;
}

/* Returns when slot `i` was last heard of, if `beat` stands there and it is `now_ns`. A time that has not come yet does
 * not count. */
static inline uint64_t arb_ledger_heard(
	const struct arb_segment *seg, uint32_t i, uint64_t beat, uint64_t now_ns)
{
	struct arb_ledger *own = seg->own;

	beat = beat <= now_ns ? beat : 0;
	if (!own)
		return beat;
	if (__builtin_expect(beat < own->heard[i], 0))
		return own->heard[i];
	own->heard[i] = beat;
	return beat;
}

/* Reads a word of a slot. If this client owns the slot, the value that it knows is used, whatever stands there. */
#define ARB_LEDGER_LOAD(own, slot, word)                                                                     \
	arb_ledger_choose(arb_load64(&(slot)->word), (own) != NULL, (own) ? (own)->word : 0)
#define ARB_LEDGER_STORE(own, slot, word, value)                                                             \
	do {                                                                                                 \
		uint64_t ledger_value = (value);                                                             \
                                                                                                             \
		if (own)                                                                                     \
			(own)->word = ledger_value;                                                          \
		arb_store64(&(slot)->word, ledger_value);                                                    \
	} while (0)

static inline uint64_t arb_ledger_choose(uint64_t there, bool known, uint64_t value)
{
	return known ? value : there;
}

/* Begins with the slot that was just claimed: its bill goes on from where it stands. */
void arb_ledger_begin(struct arb_segment *seg, uint32_t slot, struct arb_ledger *own);
/* From here on this process knows no more than the segment. */
static inline void arb_ledger_end(struct arb_segment *seg)
{
	seg->own = NULL;
}

/* A silence for which no client is evicted: the shortest grace_ms is 10. */
#define ARB_LEDGER_HEARD_NS 9000000u

/* Notes a sign of life, which is stored in the slot as well. */
static inline void arb_ledger_beat(struct arb_ledger *own, uint64_t now_ns)
{
	if (__builtin_expect(now_ns - own->beat_ns >= ARB_LEDGER_HEARD_NS, 0))
		own->doubt = 2;
	own->beat_ns = now_ns;
}

/*
 * Has another process written that this client, which runs, was evicted? Only a client that has been silent for
 * grace_ms is evicted, and the evictor looks for that silence after it has read the record that its own record
 * replaces. So after the head has changed twice, no eviction can come from a silence before that.
 */
static inline bool arb_ledger_not_evicted(const struct arb_ledger *own, uint64_t now_ns)
{
	return own && own->inside && !own->doubt && now_ns - own->beat_ns < ARB_LEDGER_HEARD_NS;
}

/* Notes that the client has entered, and what was published. */
void arb_ledger_entered(struct arb_ledger *own, const struct arb_snap *s);
/* Bills a client that has entered and not left although the published record has it in neither bitmap. It is billed
 * for the time since its last look, `at` ticks, as one of those that ran then. */
void arb_ledger_lost(const struct arb_segment *seg, uint32_t slot, struct arb_ledger *own, uint64_t at);
/* Bills a client that has not been evicted, whatever the record says, in the same way; the others in the set have the
 * weight `others`. */
void arb_ledger_lost_to(
	const struct arb_segment *seg, uint32_t slot, struct arb_ledger *own, uint64_t at, uint64_t others);
/*
 * Checks the clocks of a published record against an earlier record. `now` was read after the last look. Where the
 * clocks went wrong while the client ran, its own bill is corrected.
 */
void arb_ledger_look(const struct arb_segment *seg, uint32_t slot, struct arb_ledger *own,
	const struct arb_clocks *clocks, const struct arb_snap *s, uint64_t now);

/*
 * Returns whether no client can have published this record, by which the client was refused, or the record before it;
 * `now` was read before. Then the client must look again: otherwise it would wait for the end of a forged window.
 */
bool arb_ledger_doubts(struct arb_ledger *own, const struct arb_snap *s, uint64_t now);
/* Returns the bits in word `w` of the bitmap that stand for no member: free slots, and this client's own slot if it
 * has not entered. */
uint64_t arb_ledger_nobody(const struct arb_segment *seg, const struct arb_snap *s, uint32_t w);
/* Notes that the client has published this in place of garbage. */
void arb_ledger_repaired(
	const struct arb_segment *seg, uint32_t slot, struct arb_ledger *own, const struct arb_snap *s);

/* Notes a record of the account that was published, or that has been read whole. */
void arb_ledger_note(const struct arb_segment *seg, uint32_t a, const struct arb_account_snap *s);

#endif
