/*
 * Decisions as arithmetic: numbers in, a decision out. Nothing here reads a clock, a file or shared
 * memory, so that every rule can be tested by a table.
 */
#ifndef ARB_POLICY_H
#define ARB_POLICY_H

#include <stdbool.h>
#include <stdint.h>

#include "gpuarb/abi.h"

enum arb_policy {
	ARB_POLICY_CONCURRENT, /* all clients at once, billed by weight */
	ARB_POLICY_EXCLUSIVE,  /* one at a time */
	ARB_POLICY_AUTO,       /* concurrent while the quotas add up to at most 100, else one at a time */
	ARB_POLICY_FAIR,       /* one at a time, short slices, next is the smallest used/quota */
	ARB_POLICY_MEMORY,     /* clients whose memory fits together */
};

/* What is known when a client wants to enter the running set. */
struct arb_policy_case {
	enum arb_policy policy;
	unsigned running;        /* how many other clients run now */
	bool reserved_for_other; /* a live reservation that is not this client's */
	uint64_t quota_sum_ppm;  /* limits of the active accounts */
};

/* May the client run? For ARB_POLICY_MEMORY residency.c decides instead. */
bool arb_policy_admit(const struct arb_policy_case *c);

/* The setting `alternation`. */
enum arb_alternation { ARB_ALTERNATION_DETECT, ARB_ALTERNATION_OFF, ARB_ALTERNATION_ON };

/*
 * Returns the policy in force. On a GPU that serves its processes one after the other, the running set does not show
 * which of them has the GPU at a moment. There clients take short turns instead of running together. `alternates`: a
 * client has seen that the GPU does so.
 */
enum arb_policy arb_policy_in_force(
	enum arb_policy policy, enum arb_alternation setting, bool alternates, uint64_t quota_sum_ppm);

/* Does this policy make clients wait for each other? */
bool arb_policy_takes_turns(enum arb_policy policy, uint64_t quota_sum_ppm);

/*
 * Scales a limit down where the limits of the active accounts add up to more than there is: to limit * what there is
 * / sum. There is 100 percent, less what is lost where clients take turns. Without this the client that takes its
 * turns last would bear all of that loss.
 */
uint32_t arb_policy_scale(uint32_t limit_ppm, uint64_t sum_ppm, uint32_t lost_ppm);

/*
 * Returns the part of the time, in parts per million, that is lost when the GPU is handed over, on average over the
 * last windows. `before_ppm` is the average so far. The last `windows` windows had `ticks`; the GPU was busy in
 * `busy` of these, and `lost` of these were counted at hand-overs. A GPU that was also idle for other reasons had
 * time to spare, which is taken off; and no more time is lost than the GPU was idle.
 */
#define ARB_LOST_WINDOWS 8 /* so that one late wake-up does not decide about a window */
uint32_t arb_policy_lost(uint32_t before_ppm, uint64_t lost, uint64_t busy, uint64_t ticks, uint64_t windows);

/* Returns the ticks that a quota grants in so many ticks of time. */
uint64_t arb_policy_grant(uint32_t ppm, uint64_t ticks);

/*
 * Returns the cap after `windows` boundaries; at the last one the account stood at `usage`. What was not used is not
 * saved. What was used beyond the cap is a debt, of which `carryover_pct` percent remain.
 */
uint64_t arb_policy_next_cap(
	uint64_t usage, uint64_t cap, uint64_t grant, unsigned carryover_pct, uint64_t windows);

/*
 * Returns the cap of an account whose client stands in the queue at the boundary: what it could not use, because
 * others had their turns, is saved, up to ARB_SAVED_WINDOWS grants.
 */
#define ARB_SAVED_WINDOWS 10
uint64_t arb_policy_saved_cap(uint64_t usage, uint64_t cap, uint64_t grant, uint64_t windows);

/* Returns how long a turn lasts when others wait for theirs; a quota that is used up ends it earlier. */
uint64_t arb_policy_turn(enum arb_policy policy, uint64_t slice, uint64_t window);

/* Returns the cap when the quota changes with `left` ticks of the window to go. */
uint64_t arb_policy_move_cap(uint64_t cap, uint32_t old_ppm, uint32_t new_ppm, uint64_t left);

/* Does a come before b? Usage and caps are cumulative and may wrap. */
static inline bool arb_policy_before(uint64_t a, uint64_t b)
{
	return (int64_t)(a - b) < 0;
}

/* May an account run, given its usage? Beyond `cap` it may as long as nobody else is short (see account.c).
 */
static inline bool arb_policy_below(uint64_t usage, uint64_t outstanding, uint64_t cap)
{
	return arb_policy_before(usage + outstanding, cap);
}

/* A client that waits for its turn. */
struct arb_candidate {
	uint32_t priority;
	uint64_t rank_ppm; /* used / quota */
	uint64_t since_ns;
	bool silent; /* silent for so long that it may be stopped: a place kept for it would stay empty */
};

/* Does a go before b? A silent client comes last. A client that has waited longer than max_wait_ns comes first; of two
 * such clients, the one with the longer wait. */
bool arb_policy_goes_first(
	const struct arb_candidate *a, const struct arb_candidate *b, uint64_t now_ns, uint64_t max_wait_ns);

#endif
