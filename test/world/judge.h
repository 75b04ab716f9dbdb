/* What must hold after every step, and what at the end. */
#ifndef WORLD_JUDGE_H
#define WORLD_JUDGE_H

#include "test/world/world.h"

#include "shm/segment/segment.h"

#define WORLD_DIR        "/world"
#define WORLD_GPU        "GPU-00000000-0000-0000-0000-000000000001"
#define WORLD_STATE      WORLD_DIR "/state/" WORLD_GPU
#define WORLD_LOCKS_FILE WORLD_DIR "/state/." WORLD_GPU ".locks"

/* What this world promises, so that it can be held to it. */
struct world_terms {
	bool exclusive;    /* never two in the set */
	bool quotas_fixed; /* no account is ever above its memory quota */
	bool quiet;        /* nobody is killed, stopped or writes garbage: what is late was lost */
	bool polite;       /* all waiters enter when they may, and leave when told to */
	bool prompt;       /* and nobody is stopped, or held up for long */
	bool garbage;      /* an intruder writes it: what is read may be anything, for a while */
	uint64_t
		work_ns; /* no thread is held up, and a piece of work takes at most this long; 0: not known */
	uint64_t
		over_ns; /* limits are judged over every window, and this much work may be under way; 0: they are not */
	unsigned every; /* steps between two looks at everything */
};
extern struct world_terms world_terms;

void judge_begin(void);
void judge_step(void);
/* Of the segment that is there now; NULL if there is none. */
struct arb_segment *judge_segment(void);
/* What an account has used, as bills have it; false: there is none of that name. */
bool judge_used(const char *account, uint64_t *used_ns);
/* Called when all should have ended: checks that they have, cleans up after the dead, and sends a newcomer. */
void judge_aftermath(const char *const *environment);
/* The law, the invariants, and that accounts have been billed all of the busy time. */
void judge_rest(void);
void judge_end(void);

#endif
