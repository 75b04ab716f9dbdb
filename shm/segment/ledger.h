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
	bool looked;            /* there is one */
	/* The most that W was at a look since company_t, and in as many windows before that. */
	uint32_t company, company_before;
	uint64_t company_t;
	bool impossible;    /* no client can have published what the last look found: it is to be replaced */
	bool astray;        /* and its clocks cannot be believed */
	uint64_t refused_t; /* the time of the record by which it was last refused */
	uint32_t found;     /* ARB_RESTORED_*: put right, and not yet told */

	bool has_record;
	struct arb_account_snap record; /* the account's, by its head */
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

/* A word of a slot: what its owner knows of it, if that is this client, stands above what is there. */
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
/* From here on nobody here knows more than the segment. */
static inline void arb_ledger_end(struct arb_segment *seg)
{
	seg->own = NULL;
}

/* It has entered, and this was published. */
void arb_ledger_entered(struct arb_ledger *own, const struct arb_snap *s);
/* Bills a client that has entered and not left although the published record has it in neither bitmap. It is billed
 * for the time since its last look, `at` ticks, as one of those that ran then. */
void arb_ledger_lost(const struct arb_segment *seg, uint32_t slot, struct arb_ledger *own, uint64_t at);
/*
 * Looks at the clocks of a record that was published, by what must hold between it and an earlier one. `now` was read
 * after the last look. Its own bill is put right where the clocks went wrong while it ran.
 */
void arb_ledger_look(const struct arb_segment *seg, uint32_t slot, struct arb_ledger *own,
	const struct arb_clocks *clocks, const struct arb_snap *s, uint64_t now);

/*
 * Returns whether no client can have published this record, by which the client was refused, or the one before it;
 * `now` was read before. Then the client must look again: otherwise it would wait for the end of a window that
 * somebody has forged.
 */
bool arb_ledger_doubts(struct arb_ledger *own, const struct arb_snap *s, uint64_t now);
/* Members in word `w` of the bitmap that nobody is: free slots, and this client's own if it has not entered. */
uint64_t arb_ledger_nobody(const struct arb_segment *seg, const struct arb_snap *s, uint32_t w);
/* It has published this in place of garbage. */
void arb_ledger_repaired(
	const struct arb_segment *seg, uint32_t slot, struct arb_ledger *own, const struct arb_snap *s);

/* This record of the account was published, or has been read whole. */
void arb_ledger_note(const struct arb_segment *seg, uint32_t a, const struct arb_account_snap *s);

#endif
