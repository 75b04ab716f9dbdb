/* Inside a client. */
#ifndef ARB_CLIENT_H
#define ARB_CLIENT_H

#include <stdbool.h>
#include <stdint.h>

#include "account.h"
#include "gpuarb/client.h"
#include "running.h"
#include "segment.h"
#include "settings.h"

/* In a page of its own that a forked child finds full of zeros. */
struct arb_guard {
	arb_u32 lock;   /* of this process: one thread at a time acts as the slot */
	arb_u32 joined; /* 0 in a child: it must join for itself */
};

struct gpuarb_client {
	struct arb_guard *guard;
	struct arb_segment seg;
	struct arb_control_map control;
	bool have_control;
	void *lock_page; /* as long as it is mapped, the slot is ours */
	struct arb_actor me;
	uint32_t account;

	char name[ARB_NAME_BYTES];
	bool own_account;
	unsigned core_pct; /* what this client asks for; 0: nothing */
	uint64_t mem_bytes;
	unsigned priority;

	struct arb_rules rules;
	struct arb_terms terms;
	uint64_t mem_limit;
	uint64_t control_epoch;
	uint32_t epoch;
	struct arb_move move; /* the next transition's, mostly the same every time */
	uint64_t window; /* that the account has been rolled to, as far as we know */
	uint64_t active_window; /* in which the account was marked active last */
	uint64_t quota_sum;
	bool turns;

	bool running;
	uint64_t outstanding;
	uint64_t throttled_since;
	uint64_t waiting_since;
	uint64_t checked_ns;
	arb_u32 cancels;
};

#endif
