/* Attacks on a segment: what a neighbour can do that may open it, or its directory. */
#ifndef TEST_HOSTILE_H
#define TEST_HOSTILE_H

#include <stdbool.h>

#include "shm/segment/segment.h"

/* What an attack is given. */
struct target {
	const char *dir;        /* GPUARB_DIR */
	const char *state;      /* path of the state segment */
	const char *build;      /* where the programs are */
	struct arb_segment seg; /* mapped read-write; header NULL for those that may not */
	uint32_t slot;          /* the victim's */
	uint32_t account;       /* the victim's */
};

enum who {
	MEMBER,    /* another user of the group: may write the segment */
	LOOKER,    /* another user who may read it alone */
	CONTAINER, /* root, in the directory of the segments: what root of a container is */
};

struct attack {
	const char *name;
	const char *what; /* in words */
	enum who who;
	/* Once; or again and again, every millisecond, for as long as it is told to. */
	void (*once)(struct target *t);
	void (*again)(struct target *t);
	const char *conf; /* arbiter.conf; NULL: nothing */
	bool replace;     /* the administrator runs gpuarb-node --replace behind it */
	bool quick;       /* part of the short run */
	double least;     /* percent that the victim must have while it lasts; 0: as usual */
	double most;      /* and at most; 0: as usual */
};

extern const struct attack attacks[];
extern const unsigned nattacks;

#endif
