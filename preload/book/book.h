/*
 * The book: what a process knows about its work on one GPU, and every decision that follows from it. It is pure: it is told
 * events and answers with actions; it has no clock, driver, lock or futex. The executors (gate.c in the program's
 * threads, tracker.c in the tracker's thread) tell it events and carry out its actions, under the track's lock; track.c has
 * what both share.
 *
 * book_tell() is the only way in, so every decision can be tested by events (test/unit/unit_book.c) and replayed.
 */
#ifndef PRELOAD_TRACK_BOOK_H
#define PRELOAD_TRACK_BOOK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "preload/book/durations.h"

/*
 * The state of the process on this GPU. It is in the running set in the states RUNNING and DRAINING.
 *
 *   OUT       has no work                            -> WAITING (refused), RUNNING (entered)
 *   WAITING   a launch waits for quota or turn       -> RUNNING (entered), OUT (the segment failed)
 *   RUNNING   has work, launches pass                -> DRAINING (quota or turn over), KEPT or OUT (work ended)
 *   DRAINING  has work, launches wait                -> RUNNING (quota or turn back), OUT (work ended)
 *   KEPT      has no work; others wait, but its place in the turn is kept -> RUNNING (entered), OUT (that time is over)
 */
enum book_state { BOOK_OUT, BOOK_WAITING, BOOK_RUNNING, BOOK_DRAINING, BOOK_KEPT, BOOK_STATES };

enum book_event_kind {
	EVENT_ASKED,      /* a call that brings work stands at the gate */
	EVENT_LET,        /* the call goes on to the driver */
	EVENT_RETURNED,   /* the call is back from the driver */
	EVENT_ABANDONED,  /* the call will not come back: its thread has ended */
	EVENT_FENCED,     /* the answer to ACT_FENCE: a fence was recorded, or could not be */
	EVENT_PASSED,     /* a fence has passed */
	EVENT_UNFINISHED, /* a fence or a stream was seen unfinished */
	EVENT_STARTED,    /* an event recorded before a launch into an idle stream has passed */
	EVENT_WAITED,     /* the program has waited for work */
	EVENT_SETTLE,     /* the executor asks to leave the running set if all work has ended */
	EVENT_IDLE,       /* the answer to ACT_STREAMS: no stream has work */
	EVENT_ENTERED,    /* the answer to ACT_ENTER or ACT_RESUME */
	EVENT_LEFT,       /* the answer to ACT_LEAVE */
	EVENT_STATUS,     /* the answer to ACT_CHECK: quota, turn, others, limits */
	EVENT_TIMER,      /* the tracker looks */
	EVENT_CALLBACK,   /* the answer to ACT_CALLBACK: the driver was asked for a callback, or cannot be */
	EVENT_FORGOTTEN,  /* a context is destroyed, and its fences with it */
	EVENT_HELD, /* covers 1: the interval must not end while a context with work is destroyed; 0: it may end again */
	EVENT_LOST,   /* the segment cannot be used any more; another one was joined, or none */
	EVENT_FROZEN, /* the process is frozen by a checkpoint: all work has ended, and none begins; at_ns: when it was last known not to be */
	EVENT_KINDS
};

enum book_action_kind {
	ACT_NONE,
	ACT_PASS,     /* let the call go on to the driver */
	ACT_WAIT,     /* let the call sleep for ns (0: yield the processor) and ask again */
	ACT_ENTER,    /* enter the running set, and wait for quota or turn if need be */
	ACT_RESUME,   /* go back into the running set, whatever the quota: work is on the GPU */
	ACT_LEAVE,    /* leave the running set as of at_ns; keep the place in the turn for ns */
	ACT_GIVE_WAY, /* give up the kept place */
	ACT_CHECK,    /* ask the segment about quota, turn and others, as of at_ns */
	ACT_FENCES,   /* ask the driver which fences have passed */
	ACT_STREAMS,  /* ask the driver whether all streams are idle */
	ACT_FENCE,    /* record a fence behind the last n launches of this thread */
	ACT_CREDIT,   /* give the thread credit for n launches */
	ACT_CALLBACK, /* ask the driver to call back when the work has ended */
	ACT_LOOK,     /* let the tracker sleep for ns; 0: until there is work */
	ACT_GIVE_UP,  /* stop using this segment */
	ACT_KINDS
};

/* Facts that the executor adds to events. */
enum book_fact {
	FACT_HOST_WORK =
		1 << 0, /* the program has put host functions, memory operations or semaphores into streams */
	FACT_CAPTURES = 1 << 1, /* a stream captures */
	FACT_NO_CALLBACK =
		1
		<< 2, /* a thread waits for work, or our callback might wait for a function of the program */
	FACT_CLOSED = 1 << 3,   /* a client of a higher priority has closed this client's gate */
	FACT_UNCALLED = 1 << 4, /* a callback that was asked for has not come yet */
	FACT_FAILED = 1 << 5,   /* the call, the query or the record failed */
};

/* Facts about the call that an event is about. */
enum book_call {
	CALL_INSIDE = 1 << 0,     /* it may wait in the driver until its work has ended */
	CALL_WAITS = 1 << 1,      /* it certainly does */
	CALL_SLEPT = 1 << 2,      /* it has waited at the gate */
	CALL_HELD = 1 << 3,       /* it has waited at the gate for nothing but room in the queue */
	CALL_ENTERED = 1 << 4,    /* it has entered the running set */
	CALL_PER_THREAD = 1 << 5, /* its stream is the thread's own default stream */
	CALL_DEPENDENT =
		1
		<< 6, /* a programmatic dependent launch: no fence may be between it and the launch before */
	CALL_FIRST = 1 << 7,   /* the interval begins with it */
	CALL_EARLIER = 1 << 8, /* the event is about launches before it, or before the interval */
	CALL_AWAKE = 1 << 9,   /* it has just slept for room in the queue */
	CALL_RANG = 1 << 10,   /* TIMER: the driver has called back */
	CALL_PEER = 1 << 11,   /* a copy in a stream of another GPU: that GPU's work may come before it */
	CALL_LATE =
		1 << 12, /* it is behind a host function in its stream, and begins when that has returned */
	CALL_LONG = 1 << 13, /* it was in the driver for longer than a launch that is not held up */
	/* Steps: what was carried out since the event was first told. */
	STEP_LOOKED = 1 << 16,   /* the fences were looked at */
	STEP_SETTLED = 1 << 17,  /* the streams were looked at, or the set was left */
	STEP_CHECKED = 1 << 18,  /* the segment was asked */
	STEP_CALLBACK = 1 << 19, /* the driver was asked to call back */
	STEP_RESUMED = 1 << 20,  /* the set was entered again */
	STEP_AGAIN = 1 << 21, /* the fences were looked at once more, because the tracker was held up since */
};

/* What the segment says (struct gpuarb_client_status). */
struct book_status {
	int32_t verdict; /* 0: may go on; -EDQUOT: quota used up; -EAGAIN: another's turn */
	int32_t tail_pct;
	uint32_t core_pct;
	uint32_t others; /* STATUS: other clients in the running set. ENTERED, LEFT: their weights then */
	bool turns, running, gated, above_present, request_present;
	bool shares; /* core_pct is not a limit but a share by requests and weights, which is in force */
	uint64_t window_ns, window_end_ns, left_ns, look_ns;
	uint64_t turn_left_ns; /* until its turn ends; UINT64_MAX: nobody waits for a turn */
};

struct book_event {
	uint8_t kind;    /* enum book_event_kind */
	uint8_t fence;   /* PASSED, UNFINISHED, FENCED: its place in the table */
	uint16_t facts;  /* enum book_fact */
	uint32_t call;   /* enum book_call */
	uint32_t covers; /* launches of this thread that have no fence yet, this call included */
	int32_t result;  /* what the segment answered */
	uint64_t now_ns;
	uint64_t calls;             /* calls that brought work, of all threads, ever */
	uint64_t unfenced;          /* those in this interval that have no fence */
	uint64_t look_ns;           /* pause between two looks of the tracker, by what they cost it */
	int64_t budget_ns;          /* CPU time that the tracker may spend now */
	uint64_t work, stream, ctx; /* key of kernel and grid (durations.h); where it runs */
	/* PASSED: the end on the host's clock. RETURNED, FENCED: when the call was let through. UNFINISHED: when
	 * the driver was asked. WAITED: until when. HELD: the end of the work. */
	uint64_t at_ns;
	/* FENCED: of the record call. PASSED: of the copy or launch alone; 0: not measured. STARTED: how late the event
	 * was. WAITED: how long. ASKED: how late its sleep ended. */
	uint64_t took_ns;
	struct book_status status;
};

/* Whether the GPU was seen to serve its clients one after the other: all clients are told. */
enum book_alternates {
	ALTERNATES_UNSEEN,
	ALTERNATES_SEEN,
	ALTERNATES_TRIAL, /* it cannot be seen until this client's work was measured alone */
};

struct book_action {
	uint8_t what;  /* enum book_action_kind */
	bool wake;     /* also wake the tracker */
	bool soon;     /* CREDIT: the call has waited for its work, so its fence passes at any moment */
	bool callback; /* CREDIT: also ask the driver to call back; if that cannot be, wake the tracker */
	bool carry;    /* CREDIT: the next fence has to cover this launch as well */
	uint8_t alternates; /* enum book_alternates */
	uint32_t n;
	uint32_t step; /* to be added to `call` when this event is told again */
	uint64_t at_ns, ns;
};

#define BOOK_FENCES   64
#define BOOK_NO_FENCE 255
/* The default streams of all threads: they have one handle (CU_STREAM_PER_THREAD), so they cannot be told apart. */
#define BOOK_PER_THREAD 2ull

/* A fence behind one launch or several. */
struct book_fence {
	uint64_t ctx, stream;
	uint64_t begun_ns;    /* when the first launch that it covers was submitted */
	uint64_t recorded_ns; /* when the fence was recorded */
	uint64_t busy_ns;     /* when it was last seen unfinished */
	uint64_t expected_ns,
		unsure_ns; /* what the launches should take on the GPU, and by how much that may be wrong */
	uint64_t work;     /* key of the launch, if it covers just one; else 0 */
	uint32_t launches; /* how many it covers; 0: this place is free */
	uint64_t calls;    /* calls of all threads until it was recorded */
	uint64_t unfenced; /* launches of other threads that had no fence then */
	bool parked;       /* overdue and not waited for: it may wait for a later launch */
	bool held;         /* the launch had waited for room in the queue */
	bool peer;         /* it is behind a copy in a stream of another GPU */
	bool crowded; /* launches of the last interval, which was left for its gaps, may have run before it */
	bool inside;  /* its call may have waited in the driver for the work */
	bool waits;   /* it certainly has */
	bool is_long; /* its call was in the driver for long */
};

/* The work that is queued: fences.c, queue.c. */
struct book_queue {
	struct book_fence fence[BOOK_FENCES];
	uint8_t order[BOOK_FENCES]; /* oldest first */
	uint32_t count;
	uint32_t mixed; /* neighbours in that order that are of different streams; 0: all are of one stream */
	uint32_t launches;      /* launches with a fence that are waited for */
	uint64_t ns, unsure_ns; /* what those should take, and by how much that may be wrong */
	uint32_t window;        /* how many launches may be queued; it is learned as a network's window is */
	uint32_t back;          /* how many have ended since `window` was changed */
	uint64_t bound_ns;      /* how much work may be queued, of a limited client that is alone */
	uint32_t parked;        /* launches that are not waited for any longer */
	uint32_t least;  /* this many launches may always be queued: one of them has waited for another */
	uint32_t needed; /* how many were queued when the last one was let past the parked ones */
	uint64_t needed_stream,
		needed_ns; /* the stream of that one; parked work that ends until then has waited for it */
	uint64_t noted_ns; /* when it was let past */
	uint64_t stalled_ns,
		stall_ns;     /* when the queue was last found to be stuck, and for how long it had been */
	uint64_t chance_ns;   /* the last such time behind which work ended at once */
	uint32_t chances;     /* how many such times there were in a row */
	uint64_t pace_ns;     /* without quota: when the next launch may be let past the parked ones */
	uint64_t last_end_ns; /* the latest measured end */
	uint64_t busy_ns;     /* when work was last seen unfinished */
	uint64_t progress_ns; /* when a fence was last seen to have passed, or work began */
	bool prompt;          /* the last fence passed right behind its launch: nothing else was queued */
};

/* How the program calls the driver: credit.c. */
struct book_program {
	uint32_t unwaited;  /* launches since the program last waited for work */
	uint32_t run;       /* launches between its last two waits */
	bool sample;        /* the next launch gets a fence of its own, to measure how long launches take */
	uint64_t waited_ns; /* until when the program has just waited for its work; 0: it has not */
	uint64_t last_work, last_stream; /* of the launch before */
	uint32_t within;                 /* launches in a row that seem to have run within their calls */
	bool afterwards;                 /* a launch has run after its call had returned */
};

/* The busy interval: interval.c. */
struct book_interval {
	uint64_t number;
	uint64_t begin_ns, left_ns;
	/* The time from begin_ns until the first launch was back from the driver, and until it was let through. */
	uint64_t lead_ns, lead_least_ns;
	uint64_t
		idle_ns; /* time in which the GPU had nothing to do, or all queued work waited for another GPU */
	bool uncounted;      /* there are launches that no fence covers and that are not counted */
	bool crowded;        /* work of the last interval, which was left for its gaps, may not have ended */
	bool dry;            /* the GPU may have stood still between two launches */
	uint64_t ran;        /* how many of its calls the busy time so far accounts for */
	uint64_t guessed_ns; /* busy time that was not measured, but is what as many launches usually take */
	uint64_t asked_calls,
		busy_calls;    /* calls of all threads when the streams were asked; when one had work */
	uint64_t asked_before; /* unfenced launches of the thread that asked */
	uint64_t over_ns;      /* when the window was first seen to be over */
	uint64_t
		steady_ns; /* until then a stream had work, without a call since that was first seen; 0: not seen */
	uint64_t calls_before; /* calls of all threads when it began */
	uint64_t first_work;   /* key of its first launch */
	bool first_inside;     /* its first call waits in the driver for its work */
	bool first_to_come;    /* its first call is not back from the driver yet */
	bool unfenced;         /* some of its launches may have no fence */
	bool quick; /* it began right after the last one: the program sees the ends of its work itself */
	bool owed;  /* it began when the streams were to be looked at again for the last one */
	int64_t apart_ns; /* mean time from the beginning of an interval to that of the next */
	uint64_t calls;   /* calls of the last interval */
	bool regular;     /* the interval before that had as many */
	uint64_t call_ns; /* mean length of an interval for each of its calls */
	uint64_t
		gap_ns; /* mean time from the end of an interval to the beginning of the next; 0: not known */
	bool gap_open;  /* such a gap has begun and not ended */
	uint64_t kept_ns; /* until when its place in the turn is kept */
	bool keeps;       /* its place was kept the last time: others wait for it */
	uint64_t again_ns,
		again_calls; /* when to look at the streams again, 0: not; calls of all threads until it ended */
	uint64_t drain_ns; /* since when the state is DRAINING */
	uint64_t looked_ns,
		settled_ns; /* when the fences were last asked about; when their answer was last used */
	struct {
		uint64_t end_ns, keep_ns;
		uint32_t why;
	} leaving;             /* the last ACT_LEAVE */
	uint64_t estimated_ns; /* of all intervals: how much of the billed time was not measured by a fence */
};

/* What the segment said last, and what is known about other clients: others.c. */
struct book_others {
	bool limited; /* a limit, a share or turns bind this client */
	bool watched; /* ends of its work must be exact, because others pay for errors */
	bool turns;   /* the policy lets one client run at a time */
	bool gated;   /* a client of a higher priority may close this client's gate */
	bool above;   /* a client of a higher priority has work */
	bool lent;    /* another account has a request: this client may be using its time */
	uint32_t core_pct, others;
	uint32_t beside; /* the others in the set when this client entered it, or was last told */
	int32_t tail_pct;
	uint64_t window_ns, window_end_ns;
	uint64_t check_ns;               /* when the segment is to be asked again */
	uint64_t contended_ns;           /* when others were last in the running set */
	uint32_t waits;                  /* how often work has waited for other clients */
	uint64_t waits_ns, waits_all_ns; /* since when that is counted; how long those waits took together */
	/* Since when kernels are compared with their length alone; how long they took, would have taken alone, and took without
	 * one being known; the most others at a time; when that length was last tried to find out. */
	uint64_t slow_since_ns, slow_ns, slow_alone_ns, slow_unknown_ns;
	uint32_t slow_others;
	uint64_t trial_ns;
	bool outlasts;        /* work outlasts the turn, and others need not wait for it */
	bool stalls;          /* the oldest work waits for something; that time is not the account's debt */
	uint64_t outlasts_ns; /* since when `outlasts` is set */
	uint64_t oldest_ns,
		oldest_since_ns; /* the oldest fence, by its recorded_ns; since when it is the oldest */
	uint32_t outlast_shift;  /* how often the wait of OUTLAST_NS was halved */
	/* The queue while a client of a higher priority has work: its bound; busy and lost time since that was changed; a
	 * bound that was found too small, which is not tried again before below_until_ns. */
	uint64_t below_ns, below_busy_ns, below_lost_ns, below_tried_ns, below_until_ns;
	uint64_t late_ns; /* how late sleeps usually end */
};

/* A kernel that waits for a partner on another GPU: partner.c. */
struct book_partner {
	uint64_t fence_ns;      /* its fence, by recorded_ns; 0: there is none */
	uint64_t before_ns;     /* when the work before it had ended */
	uint64_t window_end_ns; /* the end of the window in which it began to take long */
	uint64_t
		length_ns; /* how long the last one took that ended as a wait for a partner does; 0: there is none */
	uint32_t shorts; /* short kernels behind that one */
	bool believed;   /* it is taken to wait for a partner */
	bool once;       /* that was believed without enough short kernels before */
};

/* How the end of the work will be seen: observer.c. */
struct book_observer {
	uint64_t calls; /* calls of all threads at the tracker's last look */
	bool quiet;     /* there was none since the look before */
	bool hurry;     /* the tracker's budget allows a look whenever the work may have ended */
	bool set;       /* the driver was asked to call back and has not */
	uint64_t set_interval, set_ns; /* in which interval it was asked, and when */
	uint64_t next_ns;              /* when it may be asked again */
	uint32_t vain;                 /* how many callbacks came before the end of the work, */
	uint64_t vain_interval;        /* in this interval */
};

struct book {
	uint8_t state;      /* enum book_state */
	bool open;          /* the gate is open: launches with credit pass */
	bool broken;        /* there is no segment: everything passes */
	uint32_t in_driver; /* calls in the driver */
	uint32_t inside;    /* those that may wait there for their work */
	uint32_t recording; /* threads that record a fence */
	uint32_t waiters;   /* threads that sleep at the gate */
	uint64_t passed_ns; /* when the last call was let through */
	struct durations durations;
	struct book_queue queue;
	struct book_program program;
	struct book_interval interval;
	struct book_others others;
	struct book_partner partner;
	struct book_observer observer;
};

void book_init(struct book *b, bool limited);
/*
 * Tells the book an event and returns what is to be done. The executor carries the action out and answers it by the event
 * that belongs to it; then it tells the first event again, with the action's step added, until ACT_NONE is returned.
 */
struct book_action book_tell(struct book *b, const struct book_event *e);

static inline bool book_is_in(const struct book *b)
{
	return b->state == BOOK_RUNNING || b->state == BOOK_DRAINING;
}

/* Whether the driver runs kernels within the calls that launch them. */
bool book_runs_within(const struct book *b);

/* Returns how many launches of a client that is not watched may pass between two fences. */
uint32_t book_piece(const struct book *b);

/* words.c: names, and a sentence "what was told: what follows". */
const char *book_state_name(unsigned state);
const char *book_event_name(unsigned kind);
const char *book_action_name(unsigned what);
void book_words(char *to, size_t size, const struct book_event *e, const struct book_action *a);

#endif
