/*
 * The running set: one head word publishes a whole snapshot (shm/README.md, SNAPSHOT_PUBLISH). The clock V
 * that runs at 1/W, the busy clock and the window live in the same snapshot, so that entering, leaving,
 * waiting and rolling the window are one CAS each, and a process that dies in one leaves the old snapshot
 * or the new one.
 */
#ifndef ARB_RUNNING_H
#define ARB_RUNNING_H

#include <stdbool.h>
#include <stdint.h>

#include "shm/segment/segment.h"

/* A private copy of a record, with its head. */
struct arb_snap {
	uint64_t head;
	uint64_t t, v, busy;
	uint32_t weight; /* W */
	uint32_t words;
	uint32_t top; /* the highest level of a member */
	uint64_t reserved, reserved_until;
	uint32_t win_ms;
	uint64_t win_number, win_start, win_ticks, win_v, win_busy;
	uint64_t any_waiting, any_evicted; /* all words combined by "or", as they were read */
	uint64_t running[ARB_WORDS];
	uint64_t waiting[ARB_WORDS];
	uint64_t evicted[ARB_WORDS];
};

/* The client that acts as slot `slot`. It holds the slot's byte; one thread at a time acts for it. */
struct arb_actor {
	struct arb_segment *seg;
	uint32_t slot;
};

/* Chooses the next client from snap->waiting: a slot or ARB_NONE. */
typedef uint32_t arb_choose_fn(void *argument, const struct arb_snap *snap, uint64_t now_ns);

/* May the actor join? 0, or a positive enum arb_reason. */
typedef uint32_t arb_admit_fn(void *argument, const struct arb_snap *snap, uint64_t now_ns);

/* What a transition needs to know. Times are ticks; `now` must be the clock's, `at` may be earlier. */
struct arb_move {
	uint64_t now;
	uint64_t at;
	uint32_t win_ms; /* the length of the next window */
	uint64_t window; /* number of the window that the actor's account has been rolled to */
	uint64_t asked;  /* when all silent members were last found alive; 0: never asked */
	uint32_t weight; /* entering */
	uint32_t level;  /* entering; 0: no client looks at levels */
	bool lends;      /* a client without quota stands in the queue too: it may go on when others stop */
	bool queue;      /* entering: if refused, register as waiting */
	bool more;       /* there may be room for another client in the set */
	bool in_order;   /* a dead client is taken out: not before clients whose last sign of life is older */
	uint64_t reserve_ns;   /* how long a reservation holds */
	uint64_t keep_ns;      /* leaving: how long its place is kept from waiters; 0: not at all */
	arb_admit_fn *admit;   /* NULL: always */
	arb_choose_fn *choose; /* NULL: nobody is chosen */
	void *argument;        /* of both */

	uint64_t heard, heard_until; /* all members of this head's record have been heard of, until then */
	uint32_t reason;             /* out: why it was refused */
	uint32_t others;             /* out: the weights of the others in the set that was entered or left */
	bool kept;                   /* out: it has left and keeps its place, as a waiter does */
	bool returned;               /* out: it had been evicted; for the caller to clear */
	bool rose;                   /* out: those below it in the set must stop */
	bool fell;                   /* out: some clients that wait because of others may go on */
	uint64_t busy;               /* out: the busy clock when it did so, or entered after it */
	uint32_t next;               /* out: the client that was chosen and must be woken, or ARB_NONE */
};

#define ARB_TICKS_PER_MS (1000000ull * ARB_TICKS_PER_NS)
/* A member gives a sign of life every 8 ms at most. A member that has been silent for longer than this may be dead:
 * before time is counted for it, the kernel is asked. */
#define ARB_HEARD_NS 10000000u
/* A dead member is taken to have worked until this long after its last sign of life: half of the time to the next
 * sign. */
#define ARB_DEATH_NS 4000000u
/* Twice what reserve_us may be: a reservation for longer was not made by a client. */
#define ARB_RESERVE_NS_MAX 2000000000u

/* Is there a reservation that has not lapsed? */
static inline bool arb_snap_reserved(const struct arb_snap *snap, uint64_t now_ns)
{
	return snap->reserved && now_ns < snap->reserved_until &&
	       snap->reserved_until - now_ns <= ARB_RESERVE_NS_MAX;
}

static inline bool arb_bit_test(const uint64_t *words, uint32_t i)
{
	return words[i / 64] >> (i % 64) & 1;
}

/* The next set bit at or after `from`, or ARB_NONE. */
uint32_t arb_bits_next(const uint64_t *words, uint32_t nwords, uint32_t from);
uint32_t arb_bits_count(const uint64_t *words, uint32_t nwords);

/* A consistent, checked snapshot. -EBADMSG: garbage; -EBUSY: it changed all the time. */
int arb_running_read(const struct arb_segment *seg, struct arb_snap *snap);

/* Returns the level that is stored in a slot. */
uint32_t arb_running_level(const struct arb_segment *seg, uint32_t i);

/* Returns when slot i was last heard of, in ns; 0: never, or at a time that has not come yet. */
uint64_t arb_running_heard(const struct arb_segment *seg, uint32_t i, uint64_t now_ns);

/* Counts on to time `to`, and rolls the window if a boundary lies before that time. Pure. */
void arb_running_advance(struct arb_snap *snap, uint64_t to, uint32_t win_ms);

/* Returns what slot i has been billed, as of this snapshot. Valid only if the head is still the same afterwards. */
uint64_t arb_running_usage(const struct arb_segment *seg, const struct arb_snap *snap, uint32_t i);
/* Returns what slot i had been billed when V was `v` (not later than the snapshot, not before the slot's last
 * transition). */
uint64_t arb_running_usage_at(
	const struct arb_segment *seg, const struct arb_snap *snap, uint32_t i, uint64_t v);
/* Returns the slot's time in the set when the busy clock stood at `busy`. */
uint64_t arb_running_wall_at(
	const struct arb_segment *seg, const struct arb_snap *snap, uint32_t i, uint64_t busy);

/*
 * Transitions. All return 0 or
 *   -EXDEV   the window has rolled: roll the account first, then try again
 *   -EOWNERDEAD another member has been silent since before move->at: look after it first
 *            (arb_reclaim_silent), then try again
 *   -EBADMSG garbage in the segment
 *   -EAGAIN  (enter) refused for move->reason; with move->queue it is registered now
 *   -EBUSY   lost a million races in a row
 * and leave the snapshot they refused by in *snap; after a transition it is undefined.
 */
int arb_running_enter(const struct arb_actor *me, struct arb_move *move, struct arb_snap *snap);
int arb_running_leave(const struct arb_actor *me, struct arb_move *move, struct arb_snap *snap);
/* Stops waiting, and gives a place that is reserved for the actor to the next client. */
int arb_running_unqueue(const struct arb_actor *me, struct arb_move *move, struct arb_snap *snap);
/* Takes a client that leaves or has died out of every bitmap at once, and bills it to its last moment. */
int arb_running_drop(const struct arb_actor *me, struct arb_move *move, struct arb_snap *snap);
/* Publishes the roll of the window if a boundary has passed; else only reads. */
int arb_running_roll(const struct arb_actor *me, struct arb_move *move, struct arb_snap *snap);
/* Called after the level of the actor's slot has changed: finds the highest level anew. 0 also if the actor does not
 * run. */
int arb_running_relevel(const struct arb_actor *me, struct arb_move *move, struct arb_snap *snap);
/* Ends an eviction: the client takes over its bill, and is out of the set. 1 if it had been evicted, else 0. `at`: the
 * time, in ticks, up to which it pays if another process has forged the eviction. */
int arb_running_settle(const struct arb_actor *me, uint64_t at, struct arb_snap *snap);

/*
 * Takes `victim` out of the set although it lives: it must still be the owner `generation` and its
 * heartbeat be older than `stale_before`. The caller holds the victim's eviction byte. 1: done.
 */
int arb_running_evict(const struct arb_actor *me, struct arb_move *move, uint32_t victim, uint32_t generation,
	uint64_t stale_before_ns, struct arb_snap *snap);

/* Replaces garbage by a snapshot that keeps the invariants. 1: repaired, 0: there was nothing to repair. */
int arb_running_repair(const struct arb_actor *me, uint64_t now, uint32_t win_ms);

#endif
