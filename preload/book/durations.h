/*
 * How long things take: one table for each GPU, keyed by the kernel or graph and the size of its grid. Pure.
 *
 * The table has a fixed size. A newcomer takes a free place among eight, or that of the one seen least lately.
 */
#ifndef PRELOAD_TRACK_DURATIONS_H
#define PRELOAD_TRACK_DURATIONS_H

#include <stdbool.h>
#include <stdint.h>

#define DURATIONS 512

struct duration {
	uint64_t work;            /* 0: free */
	uint64_t mean_ns, off_ns; /* and by how much it differs from that, on average */
	uint64_t alone_ns;        /* mean while nobody else was in the running set; 0: not known */
	uint32_t seen;            /* by the table's own count of lessons */
	bool primary;             /* it was followed by a programmatic dependent launch */
	bool behind;              /* it was measured right behind other work of ours */
};

struct durations {
	struct duration of[DURATIONS];
	uint64_t mean_ns, off_ns; /* of all */
	uint64_t each_ns;         /* the same over more of them: for sums of many launches; 0: not known */
	uint32_t lessons;
};

/* What a launch of this grid is called in the table. Never 0 where there is a handle. */
uint64_t durations_key(uint64_t handle, uint64_t grid);

/* NULL: not known. */
const struct duration *durations_find(const struct durations *d, uint64_t work);
/* What so many launches should take; of several, or of one that is not known, what all take on average. */
uint64_t durations_expect(const struct durations *d, uint64_t work, uint32_t launches);
/* By how much that may be wrong. */
uint64_t durations_unsure(const struct durations *d, uint64_t work, uint32_t launches);
/* So many launches took so long. */
void durations_learn(struct durations *d, uint64_t work, uint32_t launches, uint64_t took_ns, bool alone);
/* So many launches took no longer than this: what is known to be longer is corrected. */
void durations_bound(struct durations *d, uint32_t launches, uint64_t took_ns);
/* It takes at least so long, for all that is known. */
void durations_raise(struct durations *d, uint64_t work, uint64_t ns);
/* It took so long right behind other work of ours, which had not waited for others in between. */
void durations_behind(struct durations *d, uint64_t work, uint64_t took_ns);
/* May all that is known of its length be a wait for others? */
bool durations_may_be_wait(const struct durations *d, uint64_t work);
/* It was followed by a launch that may begin before its end. */
void durations_mark_primary(struct durations *d, uint64_t work);

/* Towards the last by a quarter of the difference. */
static inline void durations_follow(uint64_t *average, uint64_t last)
{
	*average = (uint64_t)((int64_t)*average + ((int64_t)last - (int64_t)*average) / 4);
}

#endif
