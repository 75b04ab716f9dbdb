/*
 * Which GPU a call belongs to: the GPU of its stream, whatever context is current. A program with several GPUs may use a
 * stream of one GPU while a context of another is current: it may copy, wait, or launch a kernel of a library there.
 */
#ifndef PRELOAD_PLACE_H
#define PRELOAD_PLACE_H

#include <stdbool.h>

#include "preload/process/act.h"

/* Returns the context of the call's stream: for a default stream the current one. NULL: the handle is no stream. */
CUcontext place_of(const struct act_call *call);
/* Returns the calling thread's current context, or NULL. */
CUcontext place_current(void);

/*
 * Makes the context of the call's stream current, if the program has several GPUs and another context is current. Returns
 * true if it did; then place_leave() has to follow.
 */
bool place_enter(const struct act_call *call);
void place_leave(void);

/* Whether the program has ever used a stream of one GPU while another was current. From then on no thread keeps credit:
 * credit is good for one GPU, and the short way does not look at the stream. */
bool place_strays(void);

/*
 * Finds the other GPUs, of those that have been joined, whose memory this copy (or graph launch) reads or writes. The GPU that
 * is current is left out. Returns how many; 0 unless the program uses several. Only the first copies of a batch are looked at.
 */
unsigned place_peers(const struct act_call *call, struct arb_device *peers[GATE_PEERS]);
/* Returns the GPU that has this memory. Negative: no GPU, or managed or pinned memory. */
int place_of_address(CUdeviceptr address);

#endif
