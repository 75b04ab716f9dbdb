/*
 * The track of a process on one GPU: the book, and what the executors need to tell it events and carry out its actions.
 * `lock` protects everything here except what is published. Only launches without credit, the hooks of streams and contexts,
 * and the tracker take the lock. The driver is never called with the lock held (ask.c).
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

/* The driver's event behind a fence of the book, at the same place of the table. A place keeps its event for its next fence. */
struct track_event {
	CUevent event;
	CUevent start; /* an event before a copy in another GPU's stream; NULL: there is none */
	struct peers_copy copy;
	CUcontext ctx; /* NULL: destroyed, and the events with it */
	uint64_t
		number; /* of the fence; unique, because the driver may answer when the place is used again */
	uint64_t recorded_ns; /* when the event was recorded; UINT64_MAX: it is being recorded */
	uint64_t record_ns;   /* how long that took */
};

/* Whether the driver may be asked to call back. It is found out at the first request. */
enum track_callbacks { CALLBACKS_UNKNOWN, CALLBACKS_MAY, CALLBACKS_NEVER };

/* The callback stream of a context, which is gpuarb's own: callback.c. */
struct track_callback {
	CUcontext ctx;   /* NULL: free */
	CUstream stream; /* NULL: not made yet */
	bool broken;     /* a request failed: none is made any more */
	bool asking;     /* a request is under way */
};

/* Entries of tables that launching threads read without the lock (known.h). Fields do not change after an entry was made,
 * except `known`, and those marked "under the lock", which nothing else may read. */
struct track_stream {
	struct known known; /* by its handle */
	CUstream stream;
	CUcontext ctx;
	uint32_t
		capturing; /* under the lock: captures begun and not ended; several, if it is the threads' default streams */
};

struct track_context {
	struct known known; /* by its handle */
	CUcontext ctx;
	bool made; /* under the lock: made by cuCtxCreate, so it is not the primary context */
};

/* The GPU's clock as one context sees it: events of two contexts cannot be compared. */
struct track_clock {
	CUcontext ctx;                  /* NULL: free */
	CUevent base;                   /* an event that has taken place; GPU times are counted from it */
	uint64_t base_gpu_ns, since_ns; /* the GPU time of `base`; since when it is the base */
	struct gputime time;
	CUevent start;                      /* recorded before a launch into an idle stream */
	bool starting;                      /* it is being recorded */
	bool started;                       /* it was recorded, and has not been dated yet */
	uint64_t start_ns, start_record_ns; /* when it was recorded; how long that took */
};

/* A question to the driver while the lock is not held, on the stack of the thread that asks: ask.c. */
struct track_ask {
	struct track_ask *next;
	CUcontext ctx;   /* whose streams and events are used; NULL: only those of the call at hand */
	uint64_t places; /* places of the table of fences whose events are used: a bit for each */
	uint64_t number; /* questions are numbered as they begin */
	bool gone;       /* the context is about to be destroyed: the answer is to be ignored */
};
_Static_assert(BOOK_FENCES <= 64, "a bit for each place");

struct trace;

struct track {
	pthread_mutex_t lock;
	struct arb_device *device; /* NULL: not joined */
	struct book book;
	struct trace *trace; /* trace.c; NULL: decisions are neither recorded nor logged */

	/* Published after each event, and read without the lock. */
	uint32_t in;       /* in the running set */
	uint32_t watched;  /* limited or contended: the ends of its work must be exact */
	uint32_t open;     /* the gate is open: calls with credit may pass */
	uint32_t broken;   /* the segment cannot be used any more: everything passes */
	uint32_t waiters;  /* threads that sleep at the gate */
	uint32_t quick;    /* the interval began right after the last one */
	uint32_t piece;    /* launches between two fences of an unwatched client */
	uint64_t interval; /* the number of the interval; no other GPU has the same one */
	uint64_t again_ns; /* when to look at the streams again; 0: not */

	/* Counted without the lock. */
	uint32_t uncovered; /* of an unwatched client: calls since the last fence, without those on credit */
	uint64_t settle_ns; /* of an unwatched client: before this time its waits are not looked at */

	/* ask.c. A thread that waits until questions have ended sleeps on ask_ended. */
	struct track_ask *asks;
	uint64_t ask_number;
	uint32_t ask_ended, ask_waiters;
	uint64_t changes; /* counts events by which work may have come, ended or been let through: track.c */

	struct track_event events[BOOK_FENCES];
	uint64_t fenced; /* the number of the last fence */
	struct track_clock clocks[TRACK_CONTEXTS];
	uint32_t
		in_vain; /* so many more calls do not wait for the event behind them, because one call did so in vain */

	enum track_callbacks may_call;
	uint32_t called; /* the driver has called back, and the tracker has not looked yet */
	uint32_t asked,
		answered; /* callbacks asked for and received; the driver's thread writes the second */
	struct track_callback callbacks[TRACK_CONTEXTS];
	CUcontext callback_ctx; /* the context in which the last callback was asked for */

	bool outlasts, stalls; /* what the segment was told last */
	bool within;           /* what the gate was told last: book_runs_within() */
	uint64_t estimated_ns; /* what the segment was told last */
	uint64_t said_ns, said_used_ns, said_throttled_ns; /* the last summary in the log */

	/* Where work can be: streams.c. */
	struct known_table contexts_known, streams_known;
	struct track_context *contexts[TRACK_CONTEXTS];
	unsigned ncontexts;
	CUcontext primary;
	unsigned retained; /* how often the primary context is retained */
	struct track_stream **streams;
	unsigned nstreams, room, last_busy;
	uint64_t listed; /* counts streams and contexts that come and go */
};

/* The number of tracks to look at: one more than the highest that is in use. */
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

/* Whether a call's stream is the thread's own default stream. */
static inline bool track_per_thread(const struct act_call *call)
{
	return call->stream == CU_STREAM_PER_THREAD ||
	       (!call->stream && arb_hooks[call->id].variant != VARIANT_LEGACY);
}

static inline uint64_t track_stream_key(const struct act_call *call)
{
	return track_per_thread(call) ? BOOK_PER_THREAD : (uintptr_t)call->stream;
}

/* Our own calls must not break a capture of the program, whatever its mode. The first sets the relaxed mode and returns the
 * old one, which the second sets again. */
CUstreamCaptureMode track_relax(void);
void track_unrelax(CUstreamCaptureMode mode);

/* track.c: what both executors do. All are called with the lock held. */
/* Tells the book an event, after adding the facts that the executor knows. */
struct book_action track_tell(struct track *t, struct book_event *e);
/* Carries out an action and tells its answer. `call`: the call at the gate, or NULL. */
void track_carry_out(struct track *t, struct book_action act, const struct act_call *call);
/* Tells an event again and again, with each step added, until the book has nothing more to do about it. */
void track_finish(struct track *t, struct book_event *e);
/* Leaves the running set if no work is left. Returns whether the process is out of the set. */
bool track_settle(struct track *t);
/* Whether a client of a higher priority has closed this client's gate. */
bool track_is_closed(const struct track *t);

/* ask.c. The first releases the lock, the second takes it again. Anything protected by it may have changed in between. */
void ask_begin(struct track *t, struct track_ask *ask);
void ask_end(struct track *t, struct track_ask *ask);
/* With the lock held: whether no other question is asked in the same context. */
bool ask_is_alone(const struct track *t, const struct track_ask *mine);
/* Returns the places whose events are being asked about: a bit for each. */
uint64_t ask_places(const struct track *t);
/* Marks the questions in this context as gone: their answers will be ignored. */
void ask_forget(struct track *t, CUcontext ctx);
/* Waits, with the lock released, until all questions in this context that have begun by now have ended. */
void ask_wait(struct track *t, CUcontext ctx);
/*
 * Makes the context of an event current during a question. It may not be current: in the tracker, and in threads that have
 * changed their context since. Without a context a driver need not answer, and in another one it returns errors of that one.
 * Returns true if ask_leave() has to undo it. `current` is kept from one question to the next.
 */
struct track_current {
	CUcontext ctx;
	bool known;
};
bool ask_enter(struct track_current *current, CUcontext ctx);
void ask_leave(bool entered);

/* driver_events.c: fences in the driver. All are called with the lock held, and release it while the driver is asked. */
/* Records a fence behind the calling thread's last launch in this stream, tells the book, and returns its answer. */
struct book_action events_record(
	struct track *t, const struct act_call *call, uint64_t begun_ns, uint32_t launches, uint32_t flags);
/* Records an event before a launch into an idle stream. It shows the GPU's clock, and whether another client has the GPU.
 * False: the driver was not asked, so no time has passed. */
bool events_start(struct track *t, const struct act_call *call, CUcontext ctx);
/* Without the lock: records an event before a call, which says when its work begins: that of a copy between GPUs, and that of
 * a launch behind a host function. Returns it or NULL. */
CUevent events_before(const struct act_call *call);
/* Asks which fences have passed, and tells the book. */
void events_collect(struct track *t);
void events_forget(struct track *t, CUcontext ctx);

/* callback.c: completion callbacks. All are called with the lock held, except the last; the first releases it while it asks. */
/* Asks for a callback and tells the book. `anew`: also in a context that has no callback stream yet. False: not possible. */
bool callback_ask(struct track *t, bool anew);
/* Whether a callback might make the program wait, or be made to wait by it. */
bool callback_is_prevented(const struct track *t);
/* Whether a callback that was asked for has not come. */
bool callback_is_owed(const struct track *t);
void callback_forget(struct track *t, CUcontext ctx);
/* Is called before the program puts a function of its own into a stream. */
void callback_before_function(void);

/* streams.c. Without the lock: returns the context of a stream of the program, or NULL if its creation was not seen. */
CUcontext streams_context_of(CUstream stream);
/* Whether this context is in the table. */
bool streams_knows(struct track *t, CUcontext ctx);
/* These three with the lock held. */
bool streams_is_known(const struct track *t, CUstream stream);
void streams_context(struct track *t, CUcontext ctx);
void streams_forget(struct track *t, CUcontext ctx);
static inline bool streams_is_default(CUstream stream)
{
	return !stream || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD;
}
/* idle.c: asks whether any stream has work. Called with the lock held, which is released while the driver is asked.
 * BUSY: a stream has work, and was asked at *asked_ns. UNKNOWN: streams came or went meanwhile. */
enum streams_state { STREAMS_IDLE, STREAMS_BUSY, STREAMS_UNKNOWN };
enum streams_state streams_ask(struct track *t, uint64_t *asked_ns);
bool streams_capturing(const struct act_call *call);
void streams_before(struct act_call *call);
void streams_after(struct act_call *call, CUresult result);

/* gate.c. Before and after the driver's call: waits until the call may go on; fences it. */
void gate_before(struct act_call *call);
void gate_after(struct act_call *call, CUresult result);
/* A call is about to wait in the driver for work; it has waited. */
void gate_waits(void);
void gate_settle(void);
/* The calling thread ends, or begins another call: the calls that it has in the driver will not come back. */
void gate_thread_ended(void);
/* As gate_thread_ended, but for the call at hand alone, not for those that copies between GPUs have on other GPUs. */
void gate_abandon(void);
/* Waits until the call may go on to the driver. Called with the lock held, which is released while it waits. */
void gate_admit(struct track *t, const struct act_call *call);
/* Sets the key of the call's work for the table of durations. */
void gate_name_work(struct act_call *call);
/* Whether this call may return only when its work has ended. */
bool gate_runs_inside(const struct act_call *call);
/* Notes whether the driver was found to run kernels within the calls that launch them. */
void gate_launches_within(bool within);
/* With the lock held: sets whether calls with credit may pass on this GPU; whether the ends of its work must be exact. */
void gate_set(struct track *t, bool open);
void gate_watch(struct track *t, bool watched);
/* Returns the number that marks credit given from now on. */
uint32_t gate_number(void);
/* There is one more GPU, whose gate is closed. Credit given before is void. */
void gate_join(void);
/* Makes all credit given until now void. */
void gate_renew(void);
/* Opens the gates of all GPUs for good, for threads that still have credit. */
void gate_free(void);
/* Resets the gate in a forked child, which has no GPU. */
void gate_forked(void);

/* peers.c: copies between GPUs. */
/* Waits at the gates of the other GPUs, before the gate of the stream's own. */
void peers_ask(struct act_call *call);
/* Tells the other GPUs' books that the call goes on to the driver, behind the gate of the stream's own GPU. */
void peers_let(struct act_call *call);
void peers_after(struct act_call *call, CUresult result);
void peers_abandon(void);
void peers_settle(void);

/* peers_graph.c */
struct peers_graph {
	uint64_t devices; /* the GPUs whose memory it copies: a bit for each */
	uint64_t bytes;
	bool mixed; /* it has other nodes that take time */
};
/* Whether this executable graph copies between GPUs. */
bool peers_graph(uint64_t exec, struct peers_graph *graph);
void peers_graph_before(const struct act_call *call);
void peers_graph_after(const struct act_call *call, CUresult result);
struct peers_copy peers_copy_of(const struct act_call *call);
/* Returns what the copies took of the time from beginning to end. Learns how fast copies are. */
uint64_t peers_copy_ns(const struct peers_copy *copy, uint64_t took_ns);

/* follow_limits.c */
/* Reads the limits files that are due. Returns how long until the next is due; 0: there are none. */
uint64_t limits_file_follow(void);
/* Reads the limits file of a GPU that has just been joined. Returns as above. */
uint64_t limits_file_look(struct arb_device *device);

/* track_frozen.c: a thread that finds out whether this process is frozen by a checkpoint. */
void frozen_begin(void);
/* A round of the tracker begins, and ends: wakes the thread if work has come; if it was frozen and is back from the driver. */
void frozen_wake(void);
void frozen_look(void);
/* A client has moved to another segment: questions come on other words. */
void frozen_moved(void);
/* The thread ends; it is not waited for. */
void frozen_end(void);

/* tracker.c */
/* Returns the track of a joined device. Starts the tracker with the first one. */
struct track *tracker_get(struct arb_device *device);
/* A busy interval begins: wakes the tracker if it sleeps without a timer. */
void tracker_wake(void);
/* The end of the work needs a timer: wakes the tracker, also if it naps. */
void tracker_launched(void);
/* The driver has called back, in any thread: wakes the tracker. */
void tracker_ring(void);
/* A callback was asked for: charges the tracker's budget, because waking the driver's thread costs about as much as waking
 * the tracker. */
void tracker_charge(void);

#endif
