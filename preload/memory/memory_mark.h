/* A place in a stream, and whether the GPU has come to it. */
#ifndef PRELOAD_MEMORY_MARK_H
#define PRELOAD_MEMORY_MARK_H

#include "preload/process/act.h"

/* A stream, so that two of them are the same only if what is put into them comes one after the other. */
struct memory_place {
	CUstream stream;
	CUcontext ctx;   /* of a default stream */
	uint64_t thread; /* of a thread's own */
};

struct memory_mark {
	CUevent event; /* NULL: none yet */
	CUcontext ctx; /* that it ends with */
	bool ending;   /* which may be just now: not to be asked */
};

/* A context is about to end; has ended, and its events with it; or has not, after all. */
enum memory_end { MEMORY_ENDING, MEMORY_ENDED, MEMORY_STAYS };

struct memory_place memory_place_of(const struct act_call *call);
bool memory_place_same(const struct memory_place *a, const struct memory_place *b);
/* The current context, if the call's stream is one of it. */
CUcontext memory_place_here(const struct act_call *call);

/* Whether it can be set there, or another one is needed. */
bool memory_mark_fits(const struct memory_mark *mark, const struct act_call *call);
/* Behind everything that is in the call's stream by now; otherwise why not. */
CUresult memory_mark_set(struct memory_mark *mark, const struct act_call *call);
/* Also if nothing can be said of it. */
bool memory_mark_passed(const struct memory_mark *mark);
/* True: it was of this context, and is passed. */
bool memory_mark_context(struct memory_mark *mark, CUcontext ctx, enum memory_end what);
void memory_mark_drop(struct memory_mark *mark);
/* Until the GPU has come to all that is in the call's stream by now; false: it has not, and is taken for
 * stuck. */
bool memory_mark_wait(const struct act_call *call);

void memory_nap(uint64_t ns);
/* Each time longer than before; *ns is 0 at first. */
void memory_nap_longer(uint64_t *ns);
/* Whether the program has put something into its streams that waits. */
bool memory_may_wait(void);
/* How long something that is queued may take to end, before it is taken for stuck. */
uint64_t memory_patience_ns(void);

#endif
