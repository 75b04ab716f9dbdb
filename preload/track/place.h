/*
 * Which GPU a call belongs to: that of its stream, whatever context is current. A program with several GPUs may
 * copy into, wait for, or launch a library's kernel in a stream of one while another is current.
 */
#ifndef PRELOAD_PLACE_H
#define PRELOAD_PLACE_H

#include <stdbool.h>

#include "preload/process/act.h"

/* The context that the call's stream belongs to, the current one for a default stream; NULL: it is no stream. */
CUcontext place_of(const struct act_call *call);
/* The calling thread's current context, or NULL. */
CUcontext place_current(void);

/*
 * Makes the context of the call's stream current, if the program has several GPUs and it is another one. True:
 * place_leave() has to follow.
 */
bool place_enter(const struct act_call *call);
void place_leave(void);

/* Whether the program has used a stream of one GPU while another was current: then no thread gets credit, because
 * credit is good for one GPU and the short way does not look at the stream. */
bool place_strays(void);

/*
 * The other GPUs whose memory this copy reads or writes, if they have been joined: those of its addresses, the
 * current one apart. Gives how many; 0 unless the program uses several. Of a batch the first few copies are looked at.
 */
unsigned place_peers(const struct act_call *call, struct arb_device *peers[GATE_PEERS]);
/* The GPU that this memory is of, if it has been joined; negative: none, or nobody's own (managed, pinned). */
int place_of_address(CUdeviceptr address);

#endif
