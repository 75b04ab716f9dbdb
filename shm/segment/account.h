/*
 * Accounts: what several slots share. Usage is cumulative; each account has a cap that a window's roll
 * raises, so nobody ever resets a counter. A snapshot per account, published like the running set
 * (ACCOUNT_PUBLISH), holds usage of departed slots, caps and memory together.
 */
#ifndef ARB_ACCOUNT_H
#define ARB_ACCOUNT_H

#include <stdbool.h>
#include <stdint.h>

#include "gpuarb/config.h"

#include "shm/segment/running.h"
#include "shm/segment/segment.h"
#include "shm/policy/share.h"

/* A private copy of an account's record. */
struct arb_account_snap {
	uint64_t head;
	uint64_t folded, wall_folded;
	uint64_t cap, hard, window;
	uint32_t quota_ppm, limit_ppm;
	uint64_t start, wall, borrowed, owed;
	uint64_t mem_used, mem_peak;
	uint64_t attached[ARB_WORDS];
	uint64_t parity[ARB_WORDS];
};

/* What an account may have, as far as the caller knows. */
struct arb_terms {
	uint32_t limit_ppm;
	uint32_t quota_ppm; /* after scaling, or by requests and weights */
	unsigned carryover_pct;
	bool wall; /* billing = full */
};

int arb_account_read(const struct arb_segment *seg, uint32_t a, struct arb_account_snap *snap);

/* The strictest limits that members ask for; 0: no member asks for one. Hints: a member that changes its own raises
 * the epoch. */
struct arb_asked {
	uint32_t ppm;
	uint64_t mem;
	uint32_t request_pct; /* of this and the weight the largest counts */
	uint32_t weight;
};
struct arb_asked arb_account_asked(const struct arb_segment *seg, uint32_t a);
/* Turns what is asked for into what is in force: what an administrator has set counts instead. No limit: ppm is
 * ARB_PPM. */
void arb_asked_settle(struct arb_asked *asked, const struct gpuarb_config_limit *set);
/* Takes the limits of one slot into account. */
void arb_asked_add(struct arb_asked *asked, const struct arb_segment *seg, uint32_t slot);

/* Returns the usage of all members up to this snapshot; at_start: up to the beginning of its window. */
uint64_t arb_account_usage(const struct arb_segment *seg, const struct arb_snap *run,
	const struct arb_account_snap *acct, bool wall, bool at_start);

/*
 * Called by the holder of the directory byte. find: returns the entry of that name, or gives an unused or lapsed
 * entry that name; ARB_NONE if all are taken.
 */
uint32_t arb_account_find(struct arb_segment *seg, const char *name, uint64_t window, unsigned carryover_pct);
/* Does the entry that `find` gave belong to this owner? An entry without an owner belongs to it from now on. */
bool arb_account_claim(
	struct arb_segment *seg, uint32_t a, uint64_t owner, uint64_t window, unsigned carryover_pct);
int arb_account_attach(struct arb_segment *seg, uint32_t a, uint32_t slot);
/* Called once the slot is in no bitmap of the running set any more. *freed: the memory that it still held. */
int arb_account_detach(struct arb_segment *seg, uint32_t a, uint32_t slot, uint64_t *freed);
/* A member died. If it was the last one, what the account owes beyond the length of one window is written off.
 * Otherwise each living member pays for what it used. */
int arb_account_bound_debt(struct arb_segment *seg, uint32_t a);
/* Recomputes what can be recomputed after garbage was found. */
int arb_account_repair(struct arb_segment *seg, uint32_t a);

/* Called by a member that knows what was published last: restores what another process has written over. Returns
 * whether it had to. */
bool arb_account_restore(const struct arb_actor *me, uint32_t a);

/*
 * Called by a member. roll: brings the caps to the window of *run, and to changed terms in proportion to what is left
 * of the window. Must come before the member's first transition in a new window. `now` in ticks.
 */
int arb_account_roll(const struct arb_actor *me, uint32_t a, const struct arb_snap *run,
	const struct arb_terms *terms, uint64_t now, struct arb_account_snap *acct);
/* How far an account may go while no other account is short of its quota. */
struct arb_extension {
	uint64_t usage; /* the account's usage now, with what is outstanding */
	uint64_t by;
	bool borrow;  /* it may go beyond the hard cap, too */
	bool in_debt; /* what it owes already is still owed at the next roll; otherwise it is forgiven */
};
/* Raises the cap: what is used beyond the quota from now on is no debt. */
int arb_account_extend(const struct arb_actor *me, uint32_t a, const struct arb_extension *more,
	struct arb_account_snap *acct);
/* Counts bytes (or gives them back). quota 0: none. -ENOMEM: nothing changed. */
int arb_account_mem(const struct arb_actor *me, uint32_t a, int64_t bytes, uint64_t quota);
/* Counts bytes of which the call may turn out to need less: they do not raise the account's peak yet. */
int arb_account_mem_most(const struct arb_actor *me, uint32_t a, uint64_t bytes, uint64_t quota);

/* Marks the account active in this window; true if it was not active before. */
bool arb_account_active(struct arb_segment *seg, uint32_t a, uint64_t window);
/* Adds up the limits of the active, limited accounts; `without` is left out (ARB_NONE: none is). */
uint64_t arb_account_sum(const struct arb_segment *seg, uint64_t window, uint32_t without);
/* Reads the request, limit and weight of an account; returns whether it is active in this window. */
bool arb_account_share(const struct arb_segment *seg, uint32_t a, uint64_t window, struct arb_share *s);
/* The requests, limits and weights of the active accounts but for `without`; returns how many. Those for whom
 * there is no room are added to the last one. */
unsigned arb_account_shares(const struct arb_segment *seg, uint64_t window, uint32_t without,
	struct arb_share *list, unsigned most);
/* The account that asks whether others are short of their quota. */
struct arb_wanting {
	uint32_t account;
	/* By requests and weights: accounts without a limit count as well, and accounts whose members are stopped do
	 * not. */
	bool shares;
	uint32_t level; /* accounts of a lower level that have had their request do not count; 0: all count */
	uint64_t now_ns;
	/* Of an account that shares: if no account has anything left of its quota, the one that owes least comes
	 * first. */
	uint64_t debt;
};
/* Returns what an account owes that has used `usage`. */
static inline uint64_t arb_account_debt(const struct arb_account_snap *s, uint64_t usage)
{
	return s->owed + ((int64_t)(usage - s->cap) > 0 ? usage - s->cap : 0);
}

/* Is another account running or waiting that has a quota and has not used it, or owes less? */
bool arb_account_others_short(
	const struct arb_segment *seg, const struct arb_snap *run, const struct arb_wanting *who);

#endif
