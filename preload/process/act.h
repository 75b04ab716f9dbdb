/*
 * The seam between the layer that sees every call (wrappers, look-ups) and the layer that acts (gate,
 * tracker, memory). The wrappers call what is declared here and know nothing of segments, quotas or time.
 *
 * GATED calls (work for the GPU) ask act_open() first. While it says yes, nothing else happens: the call
 * is counted in the thread's own cache lines and goes on to the driver by a jump. It says no if the gate
 * is closed, if the thread is new, or if its credit is used up; then the call takes the same way as a
 * WATCHED one: act_before, the driver, act_after.
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
 * One call, as far as it matters to anybody. Which facts a row of hooks.def gives depends on the call; what
 * it does not give is zero. Pointers are the program's own and may be NULL or wrong: only `out` and `out2`
 * may be read, after the driver has succeeded; `desc` may be read if it is not NULL.
 */
struct act_call {
	enum hook_id id;
	unsigned count;  /* elements of a batch, devices of a launch, levels of a mipmap */
	CUstream stream; /* where the work goes; NULL: the default stream of the row's variant */
	uint64_t handle; /* what it is about: function, graph, pointer, pool, event, context */
	uint64_t bytes;  /* how much is moved or asked for */
	void *out;       /* where the driver puts what it made: CUdeviceptr *, CUcontext *, size_t * ... */
	void *out2;      /* the second of two: pitch, total */
	const void
		*desc; /* the description that the call was given: copy, properties, launch configuration */
	CUdevice device;
	uint64_t aux;      /* flags, attribute, height of a pitched allocation, second handle */
	uint64_t to, from; /* of a copy: addresses of device memory, or of arrays of `count` of them */
	uint64_t grid;     /* blocks of a kernel */
	uint64_t work;     /* what it is, in the table of durations: the gate's own */
	uint64_t token;    /* from act_before to act_after, for whoever acts */
};

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

/* Whether this executable graph has memory, or copies between GPUs: then it goes the long way. */
bool act_graph_is_seen(uint64_t exec);

/*
 * Before a call that is not let through at once. False: the call is refused, the program gets *result and
 * act_after is not called. Counts the call.
 */
bool act_before(struct act_call *call, CUresult *result);
/* After it: the driver's result, and what the program gets. Driver errors pass through unchanged. */
CUresult act_after(struct act_call *call, CUresult result);

/* Counts a call of a category that has wrappers of its own. */
void act_count(enum hook_category category);
/* What the device has, to be turned into what the account may see of it. True: it was. */
bool act_nvml_memory(nvmlDevice_t device, uint64_t *total, uint64_t *free, uint64_t *used);

void act_note(enum act_note note);
/* A program has got hold of a function of the driver that is in no table: counts it, and remembers its name. */
void act_unknown(const char *name);

/*
 * What was seen so far: CAT_COUNT counts by category, then NOTE_COUNT of what went past; at most n are
 * written. Gives how many there are.
 */
__attribute__((visibility("default"))) unsigned gpuarb_preload_seen(uint64_t *counts, unsigned n);

#endif
