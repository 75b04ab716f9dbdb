/*
 * A process on one GPU: the book, and what the executors need to carry events into it and actions out. Everything here
 * is behind `lock`, but for what is published; only the long way of a call, the hooks of streams and contexts, and the
 * tracker take it. The driver is never called with it (ask.c).
 */
#ifndef PRELOAD_TRACK_TRACK_H
#define PRELOAD_TRACK_TRACK_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "preload/process/act.h"
#include "cuda_abi.h"
#include "preload/process/device.h"
#include "preload/process/known.h"
#include "preload/book/book.h"
#include "preload/book/gputime.h"
#include "preload/book/thresholds.h"

#define TRACK_CONTEXTS 16

/* The driver's event behind a fence of the book, at the same place. The places keep their events until they are used
 * again. */
struct track_event {
	CUevent event;
	CUevent start; /* before a copy in another GPU's stream; NULL: none */
	struct peers_copy copy;
	CUcontext ctx; /* NULL: it has gone, and they with it */
	uint64_t
		number; /* of the fence, unlike that of any other: an answer may come when the place is used again */
	uint64_t recorded_ns; /* when it was recorded, */
	uint64_t record_ns;   /* and how long that took */
};

/* Whether the driver may be asked to call back: found out when it is to be asked for the first time. */
enum track_callbacks { CALLBACKS_UNKNOWN, CALLBACKS_MAY, CALLBACKS_NEVER };

/* The stream of our own in which a context's callbacks are: callback.c. */
struct track_callback {
	CUcontext ctx;   /* NULL: free */
	CUstream stream; /* NULL: none yet */
	bool broken;
	bool asking; /* somebody asks for one now */
};

/* Entries of tables that launching threads read without the lock (known.h): all but `known` is as it was when made, but
 * for what is said to be the lock's. */
struct track_stream {
	struct known known; /* by its handle */
	CUstream stream;
	CUcontext ctx;
	uint32_t capturing; /* the lock's: begun and not ended: threads have default streams of one name */
};

struct track_context {
	struct known known; /* by its handle */
	CUcontext ctx;
	bool made; /* the lock's: by cuCtxCreate, so that it is not the primary one */
};

/* The GPU's clock in a context: events of two contexts cannot be compared. */
struct track_clock {
	CUcontext ctx; /* NULL: free */
	CUevent base;  /* has taken place; times are counted from it */
	uint64_t base_gpu_ns, since_ns;
	struct gputime time;
	CUevent start; /* recorded before a launch into an idle stream */
	bool starting; /* somebody is about to */
	bool started;  /* and not yet looked at */
	uint64_t start_ns, start_record_ns;
};

/* A question to the driver, on the stack of who asks, while the lock is not held: ask.c. */
struct track_ask {
	struct track_ask *next;
	CUcontext ctx;   /* whose streams and events it uses; NULL: none but those of the call at hand */
	uint64_t places; /* whose events it uses: a bit for each */
	uint64_t number; /* in the order in which they begin */
	bool gone;       /* the context is about to be destroyed: the answer is about nothing */
};
_Static_assert(BOOK_FENCES <= 64, "a bit for each place");

struct trace;

struct track {
	pthread_mutex_t lock;
	struct arb_device *device; /* NULL: not joined */
	struct book book;
	struct trace *trace; /* trace.c; NULL: nobody wants to know what is decided */

	/* Published after each event, and read without the lock. */
	uint32_t in;       /* in the running set */
	uint32_t watched;  /* limited, or others run beside it: the ends of its work are dated */
	uint32_t open;     /* calls with credit may pass */
	uint32_t broken;   /* the segment cannot be used any more: run free */
	uint32_t waiters;  /* threads at the gate */
	uint32_t quick;    /* intervals follow each other at once */
	uint32_t piece;    /* of an unwatched client, launches to a fence */
	uint64_t interval; /* the number of the interval, unlike that of any other GPU */
	uint64_t again_ns; /* when to look at the streams again */

	/* Counted without the lock. */
	uint32_t uncovered; /* of an unwatched client, calls since the last fence, but for those on credit */
	uint64_t settle_ns; /* when a wait of an unwatched client is next looked at */

	/* ask.c. Who waits for the end of questions sleeps on ask_ended. */
	struct track_ask *asks;
	uint64_t ask_number;
	uint32_t ask_ended, ask_waiters;
	uint64_t changes; /* +1 when work may have come, gone or been let through: track.c */

	struct track_event events[BOOK_FENCES];
	uint64_t fenced; /* the number of the last fence */
	struct track_clock clocks[TRACK_CONTEXTS];
	uint32_t in_vain; /* calls that do not wait for the event behind them, because one did in vain */

	enum track_callbacks may_call;
	uint32_t called;          /* the driver has called, and nobody has looked yet */
	uint32_t asked, answered; /* callbacks ever; the second is the driver's thread's */
	struct track_callback callbacks[TRACK_CONTEXTS];
	CUcontext callback_ctx; /* in which the last one was asked for */

	bool outlasts, stalls;                             /* as the segment was told */
	uint64_t estimated_ns;                             /* the same */
	uint64_t said_ns, said_used_ns, said_throttled_ns; /* the last summary */

	/* Where work can be: streams.c. */
	struct known_table contexts_known, streams_known;
	struct track_context *contexts[TRACK_CONTEXTS];
	unsigned ncontexts;
	CUcontext primary;
	unsigned retained; /* times that it is */
	struct track_stream **streams;
	unsigned nstreams, room, last_busy;
	uint64_t listed; /* +1 when a stream or a context comes or goes */
};

/* Behind the last that is used: mostly there is one. */
static inline unsigned tracks_high(void)
{
	return arb_word_load_acquire(&arb_own.tracks_high);
}

uint64_t track_now(void);
void track_nap(uint64_t ns);

static inline void track_lock(struct track *t)
{
	pthread_mutex_lock(&t->lock);
	arb_mine.locks++;
}

static inline void track_unlock(struct track *t)
{
	arb_mine.locks--;
	pthread_mutex_unlock(&t->lock);
}

/* Into the thread's own default stream? */
static inline bool track_per_thread(const struct act_call *call)
{
	return call->stream == CU_STREAM_PER_THREAD ||
	       (!call->stream && arb_hooks[call->id].variant != VARIANT_LEGACY);
}

static inline uint64_t track_stream_key(const struct act_call *call)
{
	return track_per_thread(call) ? BOOK_PER_THREAD : (uintptr_t)call->stream;
}

/* Our own calls must not break a capture of the program's, whatever its mode: relaxed, and back. */
CUstreamCaptureMode track_relax(void);
void track_unrelax(CUstreamCaptureMode mode);

/* track.c: what both executors do. All under the lock. */
/* Tells the book an event, with what is known anyway. */
struct book_action track_tell(struct track *t, struct book_event *e);
/* Carries out an action that is answered by an event. `call`: at the gate, or NULL. */
void track_carry_out(struct track *t, struct book_action act, const struct act_call *call);
/* Tells an event, and again with each step, until nothing is left to do about it. */
void track_finish(struct track *t, struct book_event *e);
/* Out of the set if no work is left. True if it is out. */
bool track_settle(struct track *t);
/* Somebody above has closed this client's gate. */
bool track_is_closed(const struct track *t);

/* ask.c. The first takes the lock away, the second takes it again, whatever has become of things meanwhile. */
void ask_begin(struct track *t, struct track_ask *ask);
void ask_end(struct track *t, struct track_ask *ask);
/* All under the lock: nobody else asks in its context. */
bool ask_is_alone(const struct track *t, const struct track_ask *mine);
/* Whose events somebody asks about: a bit for each place. */
uint64_t ask_places(const struct track *t);
/* What is asked in this context now is of no use any more. */
void ask_forget(struct track *t, CUcontext ctx);
/* Until all have ended who ask in this context now. Without the lock meanwhile. */
void ask_wait(struct track *t, CUcontext ctx);
/*
 * Within a question. Events are asked about in their own context, which is current in the thread that launched but not in
 * the tracker, nor in one that has gone over to another: without one a driver need not answer, and in another it answers
 * with that one's errors. True: it has to be left again. `current` is kept from one question to the next.
 */
struct track_current {
	CUcontext ctx;
	bool known;
};
bool ask_enter(struct track_current *current, CUcontext ctx);
void ask_leave(bool entered);

/* driver_events.c: fences in the driver. All under the lock, and without it while the driver is asked. */
/* Records one behind what the calling thread launched last in this stream, and tells the book. */
struct book_action events_record(
	struct track *t, const struct act_call *call, uint64_t begun_ns, uint32_t launches, uint32_t flags);
/* Before a launch into an idle stream: the GPU's clock, and whether others have the GPU. False: nothing was asked. */
bool events_start(struct track *t, const struct act_call *call, CUcontext ctx);
/* Before a copy that another GPU takes part in, without the lock: an event that says when it begins, or NULL. */
CUevent events_before_copy(const struct act_call *call);
/* Asks which have passed, and tells the book. */
void events_collect(struct track *t);
void events_forget(struct track *t, CUcontext ctx);

/* callback.c: the driver says when work has ended. All under the lock but the last; the first is without it while it
 * asks. */
/* Asks, and tells the book. anew: also in a context that never had one. False: that cannot be, now or ever. */
bool callback_ask(struct track *t, bool anew);
bool callback_is_prevented(const struct track *t);
bool callback_is_owed(const struct track *t);
void callback_forget(struct track *t, CUcontext ctx);
/* Before the program puts a function of its own into a stream. */
void callback_before_function(void);

/* streams.c. Without the lock: the context of a stream of the program's; NULL: nobody saw it made. */
CUcontext streams_context_of(CUstream stream);
/* Whether work can be in this context is known already. */
bool streams_knows(struct track *t, CUcontext ctx);
/* These three under the lock. */
bool streams_is_known(const struct track *t, CUstream stream);
void streams_context(struct track *t, CUcontext ctx);
void streams_forget(struct track *t, CUcontext ctx);
static inline bool streams_is_default(CUstream stream)
{
	return !stream || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD;
}
/* idle.c: under the lock, and without it while the driver is asked. Busy: one has work, and was asked at *asked_ns.
 * Unknown: streams came or went meanwhile. */
enum streams_state { STREAMS_IDLE, STREAMS_BUSY, STREAMS_UNKNOWN };
enum streams_state streams_ask(struct track *t, uint64_t *asked_ns);
bool streams_capturing(const struct act_call *call);
void streams_before(struct act_call *call);
void streams_after(struct act_call *call, CUresult result);

/* gate.c */
void gate_before(struct act_call *call);
void gate_after(struct act_call *call, CUresult result);
/* A call is about to wait in the driver, and has waited. */
void gate_waits(void);
void gate_settle(void);
void gate_thread_ended(void);
/* Of the call at hand only. */
void gate_abandon(void);
/* Waits until the call may go on to the driver. Under the lock, and without it meanwhile. */
void gate_admit(struct track *t, const struct act_call *call);
/* What it is, in the table of durations. */
void gate_name_work(struct act_call *call);
/* May this call return only when its work has ended? */
bool gate_runs_inside(const struct act_call *call);
/* Under the lock: calls with credit may pass on this GPU; the ends of its work are dated. */
void gate_set(struct track *t, bool open);
void gate_watch(struct track *t, bool watched);
/* What credit that is given now is marked with. */
uint32_t gate_number(void);
/* There is one more GPU, whose gate is closed; and who has credit got it before there was anything to know. */
void gate_join(void);
/* No credit that was given until now is good any more, whoever has it. */
void gate_renew(void);
/* Open for all who still have credit, from now on. */
void gate_free(void);
/* In a forked child, which has no GPU. */
void gate_forked(void);

/* peers.c: copies between GPUs */
/* Before the gate of the stream's own GPU: waits at those of the others. */
void peers_ask(struct act_call *call);
/* Behind it: the call goes on to the driver. */
void peers_let(struct act_call *call);
void peers_after(struct act_call *call, CUresult result);
void peers_abandon(void);
void peers_settle(void);

/* peers_graph.c */
struct peers_graph {
	uint64_t devices; /* whose memory it copies: a bit for each */
	uint64_t bytes;
	bool mixed; /* it does other things besides */
};
/* Whether this executable graph copies between GPUs. */
bool peers_graph(uint64_t exec, struct peers_graph *graph);
void peers_graph_before(const struct act_call *call);
void peers_graph_after(const struct act_call *call, CUresult result);
struct peers_copy peers_copy_of(const struct act_call *call);
/* Of the time from its beginning to its end, what the copies took. Learns how fast they are. */
uint64_t peers_copy_ns(const struct peers_copy *copy, uint64_t took_ns);

/* follow_limits.c */
/* Looks at the limits files that are due. Returns how long until the next is; 0: there are none. */
uint64_t limits_file_follow(void);
/* Looks at the limits file of one GPU, when the GPU has just been joined. */
uint64_t limits_file_look(struct arb_device *device);

/* tracker.c */
/* The track of a joined device. */
struct track *tracker_get(struct arb_device *device);
/* A busy interval begins: wakes a tracker that sleeps without a time to wake up. */
void tracker_wake(void);
/* A busy interval goes on: wakes a tracker that naps, if the end of the work needs a timer. */
void tracker_launched(void);
/* From any thread: the driver has called. */
void tracker_ring(void);
/* A callback was asked for: the driver's thread wakes for it as well, which costs about as much as the tracker does. */
void tracker_charge(void);

#endif
