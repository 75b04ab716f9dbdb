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
	/* Three more programs, one with a handler of its own for SIGBUS, and gpuarb-top: all of them must live. What each gets
	 * is judged by the other attacks. */
	bool company;
	double least; /* percent that the victim must have while it lasts; 0: as usual */
	double most;  /* and at most; 0: as usual */
};

/* The path of the file of the locks; returns `path`. */
const char *locks_of(const struct target *t, char path[PATH_MAX]);

/* Attacks on the files. */
void attack_truncate_all(struct target *t);
void attack_truncate_half(struct target *t);
void attack_grow(struct target *t);
void attack_punch(struct target *t);
void attack_unlink_it(struct target *t);
void attack_fifo(struct target *t);
void attack_link_elsewhere(struct target *t);
void attack_directory(struct target *t);
void attack_closed(struct target *t);
void attack_unlink_locks(struct target *t);
void attack_fifo_locks(struct target *t);
void attack_closed_locks(struct target *t);

extern const struct attack attacks[];
extern const unsigned nattacks;

#endif
