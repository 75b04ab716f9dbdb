/* Marks a place in a stream with an event, and tells whether the GPU has come to it. */
#ifndef PRELOAD_MEMORY_MARK_H
#define PRELOAD_MEMORY_MARK_H

#include "preload/process/act.h"

/* Names a stream. Two places are equal only if work in them is ordered, as work in one stream is. */
struct memory_place {
	CUstream stream;
	CUcontext ctx;   /* for a default stream, else NULL */
	uint64_t thread; /* for a thread's own default stream, else 0 */
};

struct memory_mark {
	CUevent event; /* NULL: none yet */
	CUcontext ctx; /* the context that the event ends with */
	bool ending;   /* the context may be ending now: the event must not be asked about */
};

/* A context is about to end; has ended, and its events with it; or lives on, because the call failed or references are
 * left. */
enum memory_end { MEMORY_ENDING, MEMORY_ENDED, MEMORY_STAYS };

struct memory_place memory_place_of(const struct act_call *call);
bool memory_place_same(const struct memory_place *a, const struct memory_place *b);
/* Returns the current context if the call's stream belongs to it, else NULL. */
CUcontext memory_place_here(const struct act_call *call);

/* Tells whether the mark's event can be recorded in the call's stream; otherwise another event is needed. */
bool memory_mark_fits(const struct memory_mark *mark, const struct act_call *call);
/* Records the event behind everything that is in the call's stream by now. Returns the driver's error if it fails. */
CUresult memory_mark_set(struct memory_mark *mark, const struct act_call *call);
/* Tells whether the GPU has come to the mark. Also true if that cannot be found out, except while its context ends. */
bool memory_mark_passed(const struct memory_mark *mark);
/* Tells the mark what becomes of a context. True: the mark was of this context, which has ended, so it has passed. */
bool memory_mark_context(struct memory_mark *mark, CUcontext ctx, enum memory_end what);
void memory_mark_drop(struct memory_mark *mark);
/* Waits until the GPU has done all that is in the call's stream by now. False: it has not, and the stream is taken for
 * stuck; or the stream captures. */
bool memory_mark_wait(const struct act_call *call);

void memory_nap(uint64_t ns);
/* Sleeps longer with each call, up to 1 ms; *ns is 0 at first. */
void memory_nap_longer(uint64_t *ns);
/* Tells whether the program has ever put something into its streams that may wait for one of its threads. */
bool memory_may_wait(void);
/* Returns how long queued work may take to end before it is taken for stuck. */
uint64_t memory_patience_ns(void);

#endif
