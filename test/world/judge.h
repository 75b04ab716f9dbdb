/* What must hold after every step, and what at the end. */
#ifndef WORLD_JUDGE_H
#define WORLD_JUDGE_H

#include "test/world/world.h"

#include "shm/segment/segment.h"

#define WORLD_DIR        "/world"
#define WORLD_GPU        "GPU-00000000-0000-0000-0000-000000000001"
#define WORLD_STATE      WORLD_DIR "/state/" WORLD_GPU
#define WORLD_LOCKS_FILE WORLD_DIR "/state/." WORLD_GPU ".locks"

/* What must hold in this world. */
struct world_terms {
	bool exclusive;    /* never two members in the running set */
	bool quotas_fixed; /* no account is ever above its memory quota */
	bool quiet; /* nobody is killed or stopped or writes garbage: so a wake-up that comes late was lost */
	bool polite;      /* all waiters enter when they may, and leave when told to */
	bool prompt;      /* no client is stopped, or held up for long */
	bool garbage;     /* an intruder writes it: for a while the segment may contain anything */
	uint64_t work_ns; /* the longest time of a piece of work where no thread is held up; 0: not known */
	/* How much work may be under way when a quota is used up, to judge limits over every window; 0: limits are not
	 * judged over windows. */
	uint64_t over_ns;
	unsigned every; /* steps between two checks of the whole segment */
};
extern struct world_terms world_terms;

void judge_begin(void);
void judge_step(void);
/* Returns the segment that exists now; NULL if there is none. */
struct arb_segment *judge_segment(void);
/* Reads what an account has been billed. Returns false if no account has that name. */
bool judge_used(const char *account, uint64_t *used_ns);
/* Called when all programs should have ended: checks that they have, cleans up after the dead, and lets a newcomer
 * join. */
void judge_aftermath(const char *const *environment);
/* Checks the law and the invariants, and that the accounts were billed the whole busy time. */
void judge_rest(void);
void judge_end(void);

#endif
