/*
 * What a process knows about its work on one GPU. Everything here is behind `lock`, which only the long way
 * of a call, the hooks of streams and contexts, and the tracker take; no call that can block for the GPU is
 * made under it.
 */
#ifndef PRELOAD_TRACK_H
#define PRELOAD_TRACK_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "act.h"
#include "cuda_abi.h"
#include "device.h"
#include "weight.h"

#define US 1000ull
#define MS 1000000ull

enum track_phase {
	TRACK_OUT,   /* not in the running set: whoever has work enters first */
	TRACK_IN,    /* running */
	TRACK_DRAIN, /* the quota is used up; what is queued is still billed */
};

/* A limited client's queue, in time: long enough that the GPU does not wait for us, short for the window. */
#define TRACK_BOUND_NS        (2 * MS)
#define TRACK_BOUND_MOST_NS   (10 * MS)
#define TRACK_BOUND_BESIDE_NS (5 * MS)

#define TRACK_MARKERS  64
#define TRACK_CONTEXTS 16
#define TRACK_HANDLES  64

/* An event behind a launch. The ring's places keep their events. */
struct track_marker {
	CUevent event;
	CUcontext ctx;
	CUstream stream;
	uint64_t begun_ns;    /* when the first launch that it covers was let through */
	uint64_t busy_ns;     /* when it was last seen unfinished */
	uint64_t expected_ns; /* of GPU time */
	uint64_t off_ns;      /* by so much it may be something else */
	uint64_t own_ns;      /* of it, as far as it is its own */
	uint64_t handle;      /* if it covers just one launch: of what */
	uint32_t launches;
	bool parked; /* overdue: perhaps it waits for what is launched behind it */
};

enum track_bell { BELL_NONE, BELL_SET, BELL_RANG };

/* What a bell hangs on. */
struct track_rope {
	CUcontext ctx;   /* NULL: free */
	CUstream stream; /* NULL: none yet */
	bool broken;
};

struct track_stream {
	CUstream stream;
	CUcontext ctx;
	uint32_t capturing; /* begun and not ended: threads have default streams of one name */
};

/* The GPU's clock: an event, and when it was on ours. Events of two contexts cannot be compared. */
struct track_clock {
	CUcontext ctx; /* NULL: free */
	CUevent base;
	uint64_t base_ns, next_ns, since_ns;
	bool good;     /* recorded in an idle stream, at a known time */
	CUevent spare; /* the next one */
};

/* Whether an event before a launch takes place when the GPU comes to it. */
struct track_probe {
	enum {
		PROBE_OFF,  /* it seems to */
		PROBE_ON,   /* only behind work of our own */
		PROBE_OVER, /* nor then: there is no such moment */
	} state;
	CUdeviceptr byte;
	CUcontext ctx;
	uint32_t doubts; /* stays in a row that it did not seem to */
	bool asked;      /* for the byte */
	bool begun;      /* this stay has it */
	bool useful;     /* some have been shorter for it */
};

struct track {
	pthread_mutex_t lock;
	struct arb_device *device; /* NULL: not joined */
	uint32_t phase;            /* read without the lock by unlimited clients */
	uint32_t limited;          /* by a quota or by turns: its queue is bounded */
	uint32_t watched;          /* limited, or others run beside it: the ends of its work are dated */
	bool turns;
	uint32_t open;    /* calls with credit may pass */
	uint32_t broken;  /* the segment cannot be used any more: run free */
	uint32_t waiters; /* threads at the gate */
	uint32_t passing; /* threads that it has let through and that are in the driver */

	/* Work. */
	struct track_marker ring[TRACK_MARKERS];
	unsigned first, count;
	uint64_t forgotten; /* how many contexts have gone */
	uint64_t outstanding_ns, outstanding_off_ns, outstanding_own_ns;
	uint32_t outstanding;  /* launches, as far as they are covered by markers */
	uint32_t singles;      /* how many, one after the other, had nothing before them in the queue */
	uint32_t window;       /* how many may be */
	uint32_t soon_in_vain; /* calls that do not wait for the event behind them, because one did in vain */
	uint32_t unwaited;     /* launches since the program last waited for any */
	uint32_t parked;       /* launches that are no longer waited for */
	uint32_t needed;       /* how many were queued when the last one was let past those */
	uint64_t noted_ns;     /* when that was */
	CUstream needed_stream; /* and where it went */
	uint64_t needed_ns;     /* if they end before, they have waited for it */
	uint64_t stalled_ns;    /* when nothing had ended for too long */
	uint64_t stall_ns;      /* for how long */
	uint64_t chance_ns;     /* the last of those after which it went on at once */
	uint32_t chances;       /* how often, one after the other */
	uint32_t least;         /* so many may be queued, because one has waited for the other */
	uint64_t pace_ns;       /* without quota, when the next one may be let past them */
	unsigned core_pct;      /* the limit */
	uint32_t back;          /* how many have come back since that was changed */
	uint64_t bound_ns;      /* and how much time they may take */
	uint64_t launch_ns;     /* a launch takes, on average */
	uint64_t launch_off_ns; /* and differs from that, on average */
	uint64_t launch_own_ns; /* and takes if nobody comes in between */
	bool loose;             /* some may not be covered since the set was entered */
	uint64_t last_end_ns;   /* the latest measured end */
	uint64_t busy_ns;       /* when it was last seen busy */
	uint64_t progress_ns;   /* when a marker was last seen finished, or work begun */
	uint64_t seen;          /* calls by all threads, at the last look */
	uint64_t called_ns;     /* when the last call came by */
	uint64_t sparse_ns;     /* from one to the next, on average, 4 * SPARSE_NS at most */
	bool quiet;             /* there were none since the look before */
	uint32_t blind;         /* calls before anything was known of how long they take */
	uint32_t uncovered; /* of one without a limit, calls since the last marker, but for those on credit */
	struct {
		uint64_t handle, ns, off_ns, own_ns;
	} known[TRACK_HANDLES]; /* by handle: the same three */

	/* The driver says when the work has ended. */
	uint32_t bell;      /* enum track_bell; written by the driver's thread too */
	unsigned bell_vain; /* how many rang before the end, in which stay */
	uint64_t bell_vain_stay;
	uint32_t bells_set, bells_rung; /* ever; the second is the driver's thread's */
	struct track_rope ropes[TRACK_CONTEXTS];
	CUcontext bell_ctx;             /* in which the last one was set */
	uint64_t bell_stay;             /* and in which stay */
	uint64_t bell_ns, bell_next_ns; /* when that was, and when it may be set again */

	struct track_clock clocks[TRACK_CONTEXTS];

	/* Before the first launch of a stay, and from there to its end. */
	CUevent start;
	CUcontext start_ctx;
	bool started;
	uint64_t timed_ns; /* 0: not known */
	struct track_probe probe;

	/* Quota. */
	uint64_t begin_ns;                    /* of this stay in the set */
	uint64_t lead_ns;                     /* from there to its first launch, as far as it is believed */
	uint64_t lead_least_ns, lead_most_ns; /* to the driver, and back from there */
	uint64_t usual_lead_ns;
	uint64_t stay;                   /* which one it is */
	bool first_launch;               /* is yet to come */
	uint64_t stay_seen, stay_handle; /* calls by all threads when it began, and what it began with */
	bool stay_waits;                 /* which is a call that waits for its work */
	uint32_t inside; /* how many had, one after the other, whose work had ended when they came back */
	bool quick; /* it began right after the last one: the program sees the ends of its work by itself */
	bool hurry; /* the tracker can afford to look when something may happen, not just now and then */
	uint64_t waited_ns;            /* somebody has just waited for its work, until then */
	uint64_t settle_ns;            /* when that is next looked at, if nobody else cares */
	int64_t apart_ns;              /* from the beginning of one to that of the next, on average */
	uint64_t left_ns;              /* when the last one ended */
	uint64_t gap_ns;               /* until the next one begins, on average; 0: not known */
	bool gap_open;                 /* it is yet to begin */
	uint64_t kept_ns;              /* its place in the set is kept until then; 0: it is not */
	bool keeps;                    /* the last time it was: others wait for it */
	uint64_t again_ns, again_seen; /* when to look whether it had; calls by then */
	uint64_t calls;                /* that the last one was of */
	bool regular;                  /* and the one before it */
	uint64_t call_ns;              /* how long the last ones took for each of their calls, on average */
	bool owed;                     /* it began when another look at the last one was due */
	bool held;                     /* somebody had more work than could be queued */
	struct weight weight;
	uint32_t stay_weight; /* that this stay is billed by; 0: the full one */
	uint64_t company_ns;  /* when others were last seen in the set */
	uint64_t check_ns;    /* when to look next */
	uint64_t drain_ns;    /* since when it drains */
	int tail_pct;         /* how much of that is billed; -1: all */

	/* The last summary. */
	uint64_t said_ns, said_used_ns, said_throttled_ns;

	/* Where work can be. */
	CUcontext contexts[TRACK_CONTEXTS];
	bool made[TRACK_CONTEXTS]; /* by cuCtxCreate, so that it is not the primary one */
	unsigned ncontexts;
	CUcontext primary;
	unsigned retained; /* times that it is */
	struct track_stream *streams;
	unsigned nstreams, room, last_busy;
};

/* Behind the last that is used: mostly there is one. */
static inline unsigned tracks_high(void)
{
	return __atomic_load_n(&arb_own.tracks_high, __ATOMIC_ACQUIRE);
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

/* Our own calls must not break a capture of the program's, whatever its mode: relaxed, and back. */
CUstreamCaptureMode track_relax(void);
void track_unrelax(CUstreamCaptureMode mode);

/* markers.c. All under the lock. */
/* Behind what the calling thread launched last in this stream; false if there can be none. */
bool marker_record(
	struct track *t, const struct act_call *call, CUcontext ctx, uint64_t begun_ns, uint32_t launches);
/* Before a launch into an idle stream: what the GPU's clock says now. */
void marker_calibrate(struct track *t, const struct act_call *call, CUcontext ctx);
/* The same beside others: when the GPU comes to it. */
void marker_start(struct track *t, const struct act_call *call, CUcontext ctx);
/* Nothing has ended for long: what is queued is not waited for any longer. */
void marker_park(struct track *t);
/* The last two are in different streams. */
bool marker_is_scattered(const struct track *t);
/* Takes away those that have finished. True if none is left. */
bool marker_collect(struct track *t);
uint64_t marker_expect(const struct track *t, uint64_t handle, uint32_t launches);
/* The same without what others have in between. */
uint64_t marker_own(const struct track *t, uint64_t handle, uint32_t launches);
void marker_forget(struct track *t, CUcontext ctx);

/* bell.c. All under the lock. */
/* To be told when the markers that there are have passed; anew: also where that never was. False: that cannot
 * be, now or ever. */
bool bell_set(struct track *t, uint64_t now, bool anew);
bool bell_is_set(const struct track *t);
/* When the work will end cannot be foreseen, or not be looked at then. */
bool bell_is_needed(const struct track *t);
/* It costs no more than to look. */
bool bell_is_cheap(const struct track *t);
/* By who launched the first of a stay: then the tracker need not wake for it. False: it must. */
bool bell_set_early(struct track *t, uint64_t now);
/* After a look at the work: if it rang, was that the end? */
void bell_heard(struct track *t, uint64_t now, bool idle);
void bell_forget(struct track *t, CUcontext ctx);
/* Before the program puts a function of its own into a stream. Without the lock. */
void bell_before_function(void);

/* probe.c. All under the lock but probe_give_memory. */
bool probe_wants_memory(struct track *t);
void probe_give_memory(struct track *t, CUcontext ctx);
/* Before an event that is to take place when the GPU comes to it. */
void probe_begin(struct track *t, const struct act_call *call, CUcontext ctx);
/* How long a call took beside others, by that event, and how long the stay was. */
void probe_learn(struct track *t, uint64_t stay_ns, uint64_t timed_ns);
void probe_forget(struct track *t, CUcontext ctx);

/* streams.c. The first three under the lock. */
void streams_context(struct track *t, CUcontext ctx);
bool streams_idle(struct track *t);
void streams_forget(struct track *t, CUcontext ctx);
bool streams_capturing(const struct act_call *call);
void streams_before(struct act_call *call);
void streams_after(struct act_call *call, CUresult result);

/* gate.c */
void gate_before(struct act_call *call);
void gate_after(struct act_call *call, CUresult result);
/* After a call that knows that work has ended. */
/* It is about to wait in the driver, and has waited. */
void gate_waits(void);
void gate_settle(void);
void gate_thread_ended(void);
/* Under the lock. */
void gate_set(struct track *t, bool open);
/* No credit that was given until now is good any more, whoever has it. */
void gate_renew(void);
/* Open for all who still have credit, from now on. */
void gate_free(void);
/* In a forked child, where whoever held its lock does not exist. */
void gate_forked(void);

/* queue.c. All under the lock but queue_may_wait. */
/* How much time may be queued. */
uint64_t queue_bound(const struct track *t);
/* May this one go, with those that passed on credit before it? */
bool queue_has_room(const struct track *t, const struct act_call *call, CUcontext ctx, uint32_t covers);
/* How long to sleep before asking again whether what is queued has ended. */
uint64_t queue_patience(const struct track *t, uint64_t now);
/* The program has put something into its streams that may wait for the host. */
bool queue_may_wait(void);
/* Nothing has ended for so long that this one is let past what is queued. */
bool queue_let_past(struct track *t, const struct act_call *call, uint64_t now);
/* It was, and may be what the others have waited for. */
void queue_note_need(struct track *t, const struct act_call *call, uint32_t covers);

/* stay.c. All under the lock. */
/* Into the set, waiting for it if need be, without the lock meanwhile; the caller looks again whether it is
 * in. */
void stay_enter(struct track *t, const struct act_call *call);
/* There is more work than can be queued. */
void stay_is_backlogged(struct track *t);
/* Some that passed on credit may not have reached the driver when the stay ended. If one has by now: back in.
 */
void stay_look_again(struct track *t, uint64_t now);
/* Its first launch, which was let through at let_ns, is in the driver's hands. */
void stay_launched(struct track *t, uint64_t let_ns, uint64_t now);
/* Heartbeat, limits, quota; when it is due. */
void stay_check(struct track *t, uint64_t now);
/* It did not come back while its place was kept. */
void stay_give_way(struct track *t);
/* Others were in the set just now. */
bool stay_in_company(const struct track *t);
/* When to look whether its work has ended. */
uint64_t stay_due(const struct track *t);
/* They begin so rarely that to look at each end costs no more than to look from time to time. */
bool stay_is_rare(const struct track *t);
/* How many it has been so far. */
uint64_t stay_calls(const struct track *t);
/* It has as many calls as the last two had; false also if those differ. */
bool stay_is_whole(const struct track *t);
/* Nobody has called since this was last asked. */
bool stay_is_quiet(struct track *t);
/* Out of the set if no work is left. True if it is out. */
bool stay_leave_if_idle(struct track *t);

/* limits_file.c */
/* Looks at the limits files that are due. Returns how long until the next is; 0: there are none. */
uint64_t limits_file_follow(void);
/* The same of one GPU, when it has just been joined. */
uint64_t limits_file_look(struct arb_device *device);

/* tracker.c */
/* The track of a joined device. */
struct track *tracker_get(struct arb_device *device);
/* There is something to look after. */
void tracker_wake(void);
/* And its end can be foreseen, or heard. */
void tracker_launched(void);
/* From any thread: a bell has rung. */
void tracker_ring(void);
/* One was set: the driver's thread wakes for it as well, which costs about as much as the tracker does. */
void tracker_charge(void);

#endif
