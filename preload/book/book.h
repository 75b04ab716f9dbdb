/*
 * The book: what a process knows about its work on one GPU, and every decision that follows from it. Pure: it is told
 * events and answers with actions; it has no clock, driver, lock or futex. The executors (gate.c in the program's
 * threads, tracker.c in ours) carry events in and actions out, under the track's lock; track.c has what both share.
 *
 * book_tell() is the only way in. So every decision can be tested from events (test/unit/unit_book.c).
 */
#ifndef PRELOAD_TRACK_BOOK_H
#define PRELOAD_TRACK_BOOK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "preload/book/durations.h"

/*
 * Where the process stands. In the running set means RUNNING or DRAINING.
 *
 *   OUT       no work                            -> WAITING (refused), RUNNING (entered)
 *   WAITING   a launch waits for quota or turn   -> RUNNING (entered), OUT (asked and refused no more)
 *   RUNNING   work; launches pass                -> DRAINING (quota or turn over), KEPT or OUT (work ended)
 *   DRAINING  work; launches wait                -> RUNNING (quota or turn back), OUT (work ended)
 *   KEPT      no work; others wait, but its place in the turn is kept -> RUNNING (entered), OUT (time is up)
 */
enum book_state { BOOK_OUT, BOOK_WAITING, BOOK_RUNNING, BOOK_DRAINING, BOOK_KEPT, BOOK_STATES };

enum book_event_kind {
	EVENT_ASKED,      /* a call that brings work stands at the gate */
	EVENT_LET,        /* it goes on to the driver */
	EVENT_RETURNED,   /* it is back from there */
	EVENT_ABANDONED,  /* it will not come back: its thread has ended */
	EVENT_FENCED,     /* the answer to ACT_FENCE, or to a fence behind a returned call */
	EVENT_PASSED,     /* a fence has passed */
	EVENT_UNFINISHED, /* a fence or a stream was seen unfinished */
	EVENT_STARTED,    /* an event before a launch into an idle stream has passed */
	EVENT_WAITED,     /* the program has waited for work */
	EVENT_SETTLE,     /* has all work ended? */
	EVENT_IDLE,       /* the answer to ACT_STREAMS: none of them has work */
	EVENT_ENTERED,    /* the answer to ACT_ENTER or ACT_RESUME */
	EVENT_LEFT,       /* the answer to ACT_LEAVE */
	EVENT_STATUS,     /* the answer to ACT_CHECK: quota, turn, others, limits */
	EVENT_TIMER,      /* the tracker looks */
	EVENT_CALLBACK,   /* the answer to ACT_CALLBACK, or of the driver: it has called */
	EVENT_FORGOTTEN,  /* a context goes, and its fences with it */
	EVENT_HELD, /* covers 1: the interval must not end, a context goes with work in it; 0: it may again */
	EVENT_LOST, /* the segment cannot be used; another one is, or none */
	EVENT_KINDS
};

enum book_action_kind {
	ACT_NONE,
	ACT_PASS,     /* the call may go on to the driver */
	ACT_WAIT,     /* it sleeps for ns, 0: spins, and asks again */
	ACT_ENTER,    /* the running set, waiting for quota or turn */
	ACT_RESUME,   /* back into the set, whatever the quota: work is on the GPU */
	ACT_LEAVE,    /* the set as of at_ns; its place is kept for ns */
	ACT_GIVE_WAY, /* the kept place is no longer needed */
	ACT_CHECK,    /* the segment's answer is due */
	ACT_FENCES,   /* which fences have passed? */
	ACT_STREAMS,  /* are all streams idle? */
	ACT_FENCE,    /* behind the last n launches of this thread */
	ACT_CREDIT,   /* so many launches may pass without a fence */
	ACT_CALLBACK, /* the driver is asked to say when the work has ended */
	ACT_LOOK,     /* the tracker sleeps for ns; 0: until there is work */
	ACT_GIVE_UP,  /* the segment cannot be used any more */
	ACT_KINDS
};

/* What the executor knows anyway, with each event. */
enum book_fact {
	FACT_HOST_WORK =
		1 << 0, /* the program has put host functions, memory operations or semaphores into streams */
	FACT_CAPTURES = 1 << 1, /* some stream captures */
	FACT_NO_CALLBACK =
		1 << 2,         /* a thread waits for work, or a callback might wait for others' functions */
	FACT_CLOSED = 1 << 3,   /* somebody above has closed this client's gate */
	FACT_UNCALLED = 1 << 4, /* a callback that was asked for has not come yet */
	FACT_FAILED = 1 << 5,   /* the call, the query or the record failed */
};

/* About a call at the gate, or back from the driver. */
enum book_call {
	CALL_INSIDE = 1 << 0,     /* it may return only when its work has ended */
	CALL_WAITS = 1 << 1,      /* it does so */
	CALL_SLEPT = 1 << 2,      /* it has waited at the gate */
	CALL_HELD = 1 << 3,       /* and for nothing but room in the queue */
	CALL_ENTERED = 1 << 4,    /* it has entered the set */
	CALL_PER_THREAD = 1 << 5, /* into the thread's own default stream */
	CALL_DEPENDENT = 1 << 6, /* a programmatic dependent launch: no fence between it and the one before */
	CALL_FIRST = 1 << 7,     /* the interval begins with it */
	CALL_EARLIER = 1 << 8,   /* FENCED: behind launches before the one that stands at the gate */
	CALL_AWAKE = 1 << 9,     /* it slept just before, for room */
	CALL_RANG = 1 << 10,     /* TIMER: the driver has called */
	CALL_PEER = 1 << 11,     /* a copy in a stream of another GPU, behind work of that one perhaps */
	/* Steps of a round: what was carried out since the event was first told. */
	STEP_LOOKED = 1 << 16,   /* at the fences */
	STEP_SETTLED = 1 << 17,  /* at the streams, or left */
	STEP_CHECKED = 1 << 18,  /* the segment was asked */
	STEP_CALLBACK = 1 << 19, /* the driver was asked to call */
	STEP_RESUMED = 1 << 20,
	STEP_AGAIN = 1 << 21, /* at the fences once more, because the tracker was held up since */
};

/* What the segment says (gpuarb_client_status). */
struct book_status {
	int32_t verdict; /* of the tick: 0, -EDQUOT, -EAGAIN */
	int32_t tail_pct;
	uint32_t core_pct, others;
	bool turns, running, gated, above_present, request_present;
	bool shares; /* core_pct is its share by requests and weights, which binds */
	uint64_t window_ns, window_end_ns, left_ns, look_ns;
	uint64_t turn_left_ns; /* while others wait for theirs; UINT64_MAX: nobody does */
};

struct book_event {
	uint8_t kind;    /* enum book_event_kind */
	uint8_t fence;   /* PASSED, UNFINISHED: which; FENCED: where it is */
	uint16_t facts;  /* enum book_fact */
	uint32_t call;   /* enum book_call */
	uint32_t covers; /* launches of this thread that have no fence yet, this one included */
	int32_t result;  /* of what was asked of the segment */
	uint64_t now_ns;
	uint64_t calls;             /* by all threads, ever */
	uint64_t unfenced;          /* of them, without a fence in this interval */
	uint64_t look_ns;           /* how often the tracker looks, by what that costs it */
	int64_t budget_ns;          /* CPU time that it may spend now */
	uint64_t work, stream, ctx; /* kernel and grid; where it goes */
	uint64_t
		at_ns; /* PASSED: the end on our clock; RETURNED, FENCED: when it was let through; UNFINISHED: asked */
	uint64_t
		took_ns; /* FENCED: the record call; PASSED: the copy itself, 0: not measured; STARTED: how late the event was; WAITED: how long; ASKED: how late its sleep was */
	struct book_status status;
};

struct book_action {
	uint8_t what;       /* enum book_action_kind */
	bool wake;          /* the tracker has something to look after */
	bool soon;          /* CREDIT: the call has waited for its work, whose fence passes at any moment */
	bool callback;      /* CREDIT: ask the driver to call; if that cannot be, wake the tracker */
	bool carry;         /* CREDIT: the next fence covers this launch, too */
	uint8_t alternates; /* the GPU was measured to serve its clients one after the other: tell them */
	uint32_t n;
	uint32_t step; /* to be told along when the same event is told again */
	uint64_t at_ns, ns;
};

#define BOOK_FENCES   64
#define BOOK_NO_FENCE 255
/* Threads' default streams have one name (CU_STREAM_PER_THREAD), and are not known apart. */
#define BOOK_PER_THREAD 2ull

/* Behind one launch or several. */
struct book_fence {
	uint64_t ctx, stream;
	uint64_t begun_ns;               /* when the first launch that it covers was in the driver's hands */
	uint64_t recorded_ns;            /* when the fence was */
	uint64_t busy_ns;                /* when it was last seen unfinished */
	uint64_t expected_ns, unsure_ns; /* of GPU time */
	uint64_t work;                   /* if it covers just one launch: of what */
	uint32_t launches;               /* 0: free */
	bool parked;                     /* overdue: perhaps it waits for what is launched behind it */
	bool held;                       /* the launch waited for room before */
	bool peer;                       /* a copy in a stream of another GPU */
	bool crowded; /* launches of an interval that was left for its gaps may be before it */
};

/* What is queued: fences.c, queue.c. */
struct book_queue {
	struct book_fence fence[BOOK_FENCES];
	uint8_t order[BOOK_FENCES]; /* oldest first */
	uint32_t count;
	uint32_t mixed;    /* neighbours in that order that are of different streams; 0: all are of one */
	uint32_t launches; /* that are fenced and waited for */
	uint64_t ns, unsure_ns; /* what they should take */
	uint32_t window;        /* how many may be queued */
	uint32_t back;          /* how many have come back since that was changed */
	uint64_t bound_ns;      /* and how much work */
	uint32_t parked;        /* launches that are no longer waited for */
	uint32_t least;         /* so many may always be queued, because one has waited for the other */
	uint32_t needed;        /* how many were queued when the last one was let past the parked ones */
	uint64_t needed_stream, needed_ns, noted_ns;
	uint64_t stalled_ns, stall_ns; /* when nothing had ended for too long, and for how long */
	uint64_t chance_ns;            /* the last of those after which it went on at once */
	uint32_t chances;              /* how often, one after the other */
	uint64_t pace_ns;              /* without quota, when the next one may be let past them */
	uint64_t last_end_ns;          /* the latest measured end */
	uint64_t busy_ns;              /* when work was last seen unfinished */
	uint64_t progress_ns;          /* when a fence was last seen to have passed, or work began */
	bool prompt; /* the last fence passed right behind its launch: nothing else was queued */
};

/* How the program calls: credit.c. */
struct book_program {
	uint64_t called_ns, apart_ns; /* when the last call came by; from one to the next, on average */
	uint64_t calls;               /* by all threads until then */
	uint32_t unwaited;            /* launches since the program last waited for any */
	uint32_t run;                 /* how many there were between its last two waits */
	bool sample;        /* the next launch is to be fenced by itself, to know how long they take */
	uint32_t blind;     /* calls before anything was known of how long they take */
	uint64_t waited_ns; /* somebody has just waited for its work, until then */
	uint64_t last_work, last_stream; /* the launch before */
};

/* The busy interval: interval.c. */
struct book_interval {
	uint64_t number;
	uint64_t begin_ns, left_ns;
	uint64_t lead_ns,
		lead_least_ns; /* from there until its first launch had been submitted, and was let through */
	uint64_t idle_ns; /* that the GPU had nothing to do, or all which was queued waited for another GPU */
	bool uncounted; /* launches are without a fence that nobody counts: there was no room for another fence */
	bool crowded;        /* what the last one was left for may not have ended yet */
	bool dry;            /* the GPU may have stood still between two launches */
	uint64_t guessed_ns; /* how much of the rest is what so many launches usually take */
	uint64_t asked_calls,
		busy_calls;    /* by all threads when the streams were asked, and when one had work */
	uint64_t asked_before; /* launches without a fence of the thread that asked */
	uint64_t over_ns;      /* when the window was first seen to be over */
	uint64_t steady_ns;    /* until then it had, without a call since it was first seen to */
	uint64_t calls_before; /* by all threads when it began */
	uint64_t first_work;   /* what it began with */
	bool first_inside;     /* which is a call that waits for its work */
	bool first_to_come;    /* and has not been submitted yet */
	bool unfenced;         /* some launches may have no fence */
	bool quick; /* it began right after the last one: the program sees the ends of its work by itself */
	bool owed;  /* it began when another look at the last one was due */
	int64_t apart_ns; /* from the beginning of one to that of the next, on average */
	uint64_t calls;   /* that the last one was of */
	bool regular;     /* and the one before it */
	uint64_t call_ns; /* how long the last ones took for each of their calls, on average */
	uint64_t gap_ns;  /* from the end of one to the beginning of the next, on average; 0: not known */
	bool gap_open;
	uint64_t kept_ns;               /* its place is kept until then */
	bool keeps;                     /* the last time it was: others wait for it */
	uint64_t again_ns, again_calls; /* when to look at the streams again; calls by then */
	uint64_t drain_ns;              /* since when it drains */
	uint64_t looked_ns,
		settled_ns; /* when the fences were to be looked at, and when what they said was settled */
	struct {
		uint64_t end_ns, keep_ns;
		uint32_t why;
	} leaving;
	uint64_t estimated_ns; /* of all intervals: how much was not ended by a fence */
};

/* What the segment said last, and those beside us: others.c. */
struct book_others {
	bool limited, watched, turns, gated, above;
	bool lent; /* another account has a request: the time may be lent */
	uint32_t core_pct, others;
	int32_t tail_pct;
	uint64_t window_ns, window_end_ns, check_ns;
	uint64_t contended_ns; /* when others were last in the set */
	uint32_t waits;        /* how often work has waited for others' */
	uint64_t waits_ns, waits_all_ns;
	bool outlasts; /* work outlasts the turn, and others need not wait for it */
	bool stalls;   /* the oldest work waits for something, and is not owed */
	uint64_t outlasts_ns, oldest_ns, oldest_since_ns;
	uint32_t outlast_shift;
	uint64_t below_ns, below_busy_ns, below_lost_ns, below_tried_ns,
		below_until_ns; /* the queue below somebody */
	uint64_t below_late_ns; /* that sleeps are usually late by */
};

/* A kernel that waits for a partner on another GPU: partner.c. */
struct book_partner {
	uint64_t fence_ns, before_ns, window_end_ns, length_ns;
	uint32_t shorts;
	bool believed, once;
};

/* Who will see the end: observer.c. */
struct book_observer {
	uint64_t calls;                         /* at the last look */
	bool quiet;                             /* there were none since the look before */
	bool hurry;                             /* the tracker can afford to look when something may happen */
	bool set;                               /* the driver was asked to call, */
	uint64_t set_interval, set_ns, next_ns; /* in which interval, when, and when it may be asked again */
	uint32_t vain;                          /* how many calls came before the end, in which interval */
	uint64_t vain_interval;
};

struct book {
	uint8_t state; /* enum book_state */
	bool open;     /* launches with credit pass: the gate is open */
	bool broken;   /* no segment: nothing is decided any more */
	uint32_t passing, inside, recording,
		waiters;    /* threads in the driver, in calls that wait, recording, at the gate */
	uint64_t passed_ns; /* when the last one was let through */
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
 * The one way in. Most actions are carried out and answered by an event of their own; then the first event is told
 * again, with the action's step, until there is nothing more to do about it.
 */
struct book_action book_tell(struct book *b, const struct book_event *e);

static inline bool book_is_in(const struct book *b)
{
	return b->state == BOOK_RUNNING || b->state == BOOK_DRAINING;
}

/* How many calls an unwatched client makes to a fence. */
uint32_t book_piece(const struct book *b);

/* In words (words.c): names, and a sentence "what was told: what follows". */
const char *book_state_name(unsigned state);
const char *book_event_name(unsigned kind);
const char *book_action_name(unsigned what);
void book_words(char *to, size_t size, const struct book_event *e, const struct book_action *a);

#endif
