/*
 * The seam between the layer that sees every call (wrappers, look-ups) and the layer that acts (gate,
 * tracker, memory). The wrappers call what is declared here and know nothing of segments, quotas or time.
 *
 * GATED calls (work for the GPU) ask act_open() first. While it returns true, nothing else happens: the call
 * is counted in the thread's own cache lines and goes on to the driver by a jump. It returns false if the gate
 * is closed, if the thread is new, or if its credit is used up. Then the call takes the long way, as every
 * WATCHED call does: act_before, the driver, act_after.
 */
#ifndef PRELOAD_ACT_H
#define PRELOAD_ACT_H

#include <stdbool.h>
#include <stdint.h>

#include "cuda_abi.h"
#include "preload/hooks/hooks.h"
#include "preload/process/own.h"
#include "shm/base/word.h"

/*
 * What the acting layer is told about a call. The row of hooks.def says which fields are set; the others are zero.
 * Pointers are the program's own and may be NULL or wrong. `out` and `out2` may be read only after the driver has
 * succeeded, `desc` if it is not NULL.
 */
struct act_call {
	enum hook_id id;
	unsigned count;  /* elements of a batch, devices of a launch, levels of a mipmap */
	CUstream stream; /* where the work goes; NULL: the default stream of the row's variant */
	uint64_t handle; /* the object of the call: function, graph, pointer, pool, event, context */
	uint64_t bytes;  /* how many are moved or asked for */
	void *out;       /* where the driver puts its result: CUdeviceptr *, CUcontext *, size_t * ... */
	void *out2;      /* where it puts a second result: pitch, total */
	/* The description that the program gave: copy, properties, launch configuration. */
	const void *desc;
	CUdevice device;
	uint64_t aux;      /* flags, attribute, height of a pitched allocation, second handle */
	uint64_t to, from; /* of a copy: device addresses; of a batch: arrays of `count` of them */
	uint64_t grid;     /* blocks of a kernel */
	uint64_t work;     /* its key in the table of durations; set by the gate */
	uint64_t token;    /* what act_before keeps for act_after */
};

/* Whether a call may go on to the driver at once. If so, counts it and takes one from the thread's credit. */
static inline bool act_open(enum hook_category category)
{
	struct act_thread *self = arb_mine.self;
	uint32_t credit = self->credit;

	if (__builtin_expect(arb_word_load(&arb_own.gate.open) != self->gate || !credit, 0))
		return false;
	self->credit = credit - 1;
	self->seen[category]++;
	return true;
}

/* Whether this executable graph has memory, or copies between GPUs: then its launches take the long way. */
bool act_graph_is_seen(uint64_t exec);

/*
 * Counts a call that was not let through at once, and does what comes before the driver. False: the call is
 * refused, the program gets *result, and act_after is not called.
 */
bool act_before(struct act_call *call, CUresult *result);
/* Does what comes after the driver, which returned `result`. Returns what the program gets: a driver's error unchanged. */
CUresult act_after(struct act_call *call, CUresult result);

/* Counts a call whose wrapper is written by hand (special.c, nvml_hooks.c). */
void act_count(enum hook_category category);
/* Turns the figures of the device's memory into what the account may see of it. False: they stay as they are. */
bool act_nvml_memory(nvmlDevice_t device, uint64_t *total, uint64_t *free, uint64_t *used);

/* Counts a way past the table. */
void act_note(enum act_note note);
/* Counts a function of the driver that a program got and that is in no table, and remembers its name. */
void act_unknown(const char *name);

/*
 * Writes at most n counts of what was seen so far: CAT_COUNT counts of calls by category, then NOTE_COUNT counts of
 * ways past the table. Returns how many counts there are.
 */
__attribute__((visibility("default"))) unsigned gpuarb_preload_seen(uint64_t *counts, unsigned n);

#endif
