/*
 * The files of a GPU: made complete or not at all, checked before they are believed, never overwritten. Next to the
 * state segment is an empty file whose bytes are locked. Only users who may write the segment may open it, so that
 * users who may only look hold no lock.
 */
#ifndef ARB_SEGMENT_H
#define ARB_SEGMENT_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "gpuarb/abi.h"
#include "gpuarb/client.h"

struct arb_ledger;

/* How a file is made if it is not there yet. */
struct arb_create {
	uint32_t nslots;
	mode_t mode;
	gid_t gid; /* (gid_t)-1: the creator's */
};

struct arb_file {
	void *base;
	size_t size;
	dev_t dev;
	ino_t ino;
	mode_t mode; /* the file's rights, and its owner, when it was opened */
	uid_t uid;
	gid_t gid;
	uint32_t guard; /* of fault.h; 0: none */
	char path[PATH_MAX];
};

/*
 * A mapped state segment. The numbers are copies that were checked once: the header in shared memory is
 * never believed again.
 */
struct arb_segment {
	struct arb_state_header *header;
	struct arb_slot *slots;
	struct arb_account *accounts;
	struct arb_event *events;
	struct arb_promise *promises; /* nslots of them */
	uint32_t nslots;
	uint32_t naccounts;
	uint32_t nevents;
	uint32_t nwords; /* of bitmaps over nslots */
	uint64_t beyond; /* bits of the last word that belong to no slot */
	bool writable;
	uint64_t fingerprint; /* of the layout, computed once */
	bool alone;           /* memory of this process: no file, no locks, one client */
	bool stranded; /* its path does not lead here any more: it cannot be asked which clients live */
	uint32_t own_slot, own_account; /* of the client that has joined through this mapping, */
	struct arb_ledger *own;         /* and what it knows of these; NULL: none has joined (ledger.h) */
	struct arb_file file;           /* last: its path is long, and rarely looked at */
	struct arb_file locks; /* only mapped to hold a lock; ino 0: the file that the path leads to */
};

struct arb_control_map {
	struct arb_control *control;
	bool writable;
	struct arb_file file;
};

/* Has the GPU a state segment? Returns true also where that cannot be seen: opening it says why. */
bool arb_segment_exists(const char *dir, const char *gpu);

/* Attaches to the state segment; with `create` it is made if it does not exist. Read-only if !writable. */
int arb_segment_open(struct arb_segment *seg, const char *dir, const char *gpu, bool writable,
	const struct arb_create *create, struct gpuarb_error *err);
void arb_segment_close(struct arb_segment *seg);
/* Restores the first part of the header, which no process writes after the file was made. True: it had been
 * changed. */
bool arb_segment_restore_header(struct arb_segment *seg);
/* Makes a segment in memory that no other process sees; a forked child has a copy of its own. */
int arb_segment_alone(struct arb_segment *seg, const char *gpu, struct gpuarb_error *err);

/* Maps the control segment. `first` is what a new control segment holds; it is not used if there is one already. */
int arb_control_map_open(struct arb_control_map *map, const char *dir, const char *gpu, bool writable,
	const struct arb_create *create, const struct arb_control_copy *first, struct gpuarb_error *err);
void arb_control_map_close(struct arb_control_map *map);
int arb_control_map_alone(struct arb_control_map *map, const char *gpu, const struct arb_control_copy *first,
	struct gpuarb_error *err);

/* Opens the file anew: a descriptor, or -ESTALE if the path no longer leads to this file. */
int arb_file_open(const struct arb_file *file, int flags);
/* Opens the file of the state segment's locks anew: returns a descriptor, or -ESTALE if one of the two was removed or
 * replaced. -EACCES: the user may only look. */
int arb_segment_locks(const struct arb_segment *seg, int flags);
/* Gives the rights of the file of a segment's locks, by those of the segment: users who may not write the segment may
 * not open it. */
static inline mode_t arb_segment_lock_mode(mode_t state)
{
	return (state & 0222) | (state & 0222) << 1;
}

/* Returns the bytes of a state segment with these numbers. */
size_t arb_segment_size(uint32_t nslots, uint32_t naccounts, uint32_t nevents);
uint32_t arb_segment_accounts_for(uint32_t nslots);
uint64_t arb_segment_fingerprint(void);
uint64_t arb_control_fingerprint(void);

/* Every index out of shared memory goes through these: NULL if it is out of range. */
static inline struct arb_slot *arb_segment_slot(const struct arb_segment *seg, uint32_t i)
{
	return i < seg->nslots ? &seg->slots[i] : NULL;
}

static inline struct arb_account *arb_segment_account(const struct arb_segment *seg, uint32_t i)
{
	return i < seg->naccounts ? &seg->accounts[i] : NULL;
}

#endif
