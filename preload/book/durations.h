/*
 * How long launches take: one table for each GPU, keyed by the kernel or graph and the size of its grid. Pure.
 *
 * The table has a fixed size. A new key may stand in eight places: it takes a free one of them, or else replaces the key
 * that was learned from the longest ago.
 */
#ifndef PRELOAD_TRACK_DURATIONS_H
#define PRELOAD_TRACK_DURATIONS_H

#include <stdbool.h>
#include <stdint.h>

#define DURATIONS 512

struct duration {
	uint64_t work;            /* 0: free */
	uint64_t mean_ns, off_ns; /* mean duration; mean difference of a duration from it */
	uint64_t alone_ns;        /* mean duration with nobody else in the running set; 0: not known */
	uint32_t seen;            /* the table's count of lessons when this key was last learned from */
	bool primary;             /* a programmatic dependent launch has followed it */
	bool behind;              /* it was measured directly behind other work of this client */
};

struct durations {
	struct duration of[DURATIONS];
	uint64_t mean_ns, off_ns; /* of all launches, whatever their key */
	uint64_t each_ns;         /* a mean over more of them, for sums of many launches; 0: not known */
	uint32_t lessons;         /* how often something was learned */
};

/* Returns the key of a kernel or graph and its grid. It is 0 only if the handle is 0. */
uint64_t durations_key(uint64_t handle, uint64_t grid);

/* Returns what is known about a key, or NULL. */
const struct duration *durations_find(const struct durations *d, uint64_t work);
/* Returns how long these launches should take. For several, and for an unknown key, the mean of all launches counts. */
uint64_t durations_expect(const struct durations *d, uint64_t work, uint32_t launches);
/* Returns by how much durations_expect() may be wrong. */
uint64_t durations_unsure(const struct durations *d, uint64_t work, uint32_t launches);
/* Learns that these launches took took_ns together. `alone`: nobody else was in the running set. */
void durations_learn(struct durations *d, uint64_t work, uint32_t launches, uint64_t took_ns, bool alone);
/* Learns that these launches took at most took_ns together: a longer mean is lowered. */
void durations_bound(struct durations *d, uint32_t launches, uint64_t took_ns);
/* Raises what is known about a key, and the mean of all, to at least ns. */
void durations_raise(struct durations *d, uint64_t work, uint64_t ns);
/* Learns how long a launch took directly behind other work of this client, where no other client's slice lay between. */
void durations_behind(struct durations *d, uint64_t work, uint64_t took_ns);
/* Whether the known duration of a key may be nothing but a wait for other clients. */
bool durations_may_be_wait(const struct durations *d, uint64_t work);
/* Notes that a launch which may begin before the end of this one has followed it. */
void durations_mark_primary(struct durations *d, uint64_t work);

/* Moves an average towards the last value, by a quarter of the difference. */
static inline void durations_follow(uint64_t *average, uint64_t last)
{
	*average = (uint64_t)((int64_t)*average + ((int64_t)last - (int64_t)*average) / 4);
}

#endif
