/*
 * What a process has one of, and what each of its threads has: every word that outlives a call. Each part is
 * written by the file that is named with it. Two variables are of these types (own.h), and nothing else of
 * the acting layer is static, so that a test may have as many processes as it likes.
 */
#ifndef PRELOAD_PROCESS_H
#define PRELOAD_PROCESS_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "cuda_abi.h"
#include "preload/hooks/hooks.h"

struct act_chunk;
struct arb_watch;
struct arb_device;
struct memory_stripe;
struct stream_forgotten;
struct known;
struct track;
struct urcu_bp_reader;

/* Each thread's own counts, in cache lines that no other thread writes. */
struct act_thread {
	uint32_t credit; /* gated calls until the next one that takes the long way; 0 takes it now */
	uint32_t gate;   /* the gate's number when it was given */
	uint32_t owned;  /* 1 while a thread has it; when it ends the next one goes on counting in it */
	uint64_t seen[CAT_COUNT];      /* calls by category since the process began; only its thread writes */
	uint32_t granted;              /* what the credit was when it was given */
	uint64_t interval;             /* the busy interval that it was given in */
	uint32_t waiting;              /* 1: in a call that waits for work */
	struct urcu_bp_reader *reader; /* whether it reads a table now (known.h); NULL: it cannot */
} __attribute__((aligned(128)));

/* Read by every thread with every call, hence written seldom. */
struct act_gate {
	uint32_t
		open; /* a number, by which credit that is no longer good is told, or more where it is closed */
	uint32_t
		watched; /* on so many GPUs ends of work are dated: a call that waits for its own says when that is */
	uint32_t graphs; /* executable graphs that have memory; as long as there is none, no launch looks */
} __attribute__((aligned(128)));

/* Ways past the table that were noticed; never on a path that matters. */
enum act_note {
	NOTE_EXPORT_TABLE, /* cuGetExportTable: functions without a name */
	NOTE_NAMESPACE,    /* dlmopen: a namespace that we are not in */
	NOTE_DEEPBIND,     /* dlopen with RTLD_DEEPBIND */
	NOTE_UNKNOWN,      /* a function of the driver that is in no table, or newer than its rows there */
	NOTE_OTHER_DRIVER, /* a second driver was looked up */
	NOTE_COUNT
};

/* The names of such functions that are remembered, as long as CUDA's are. */
#define ACT_UNKNOWN_NAMES 8
#define ACT_UNKNOWN_BYTES 64

/* What the tracker may spend. */
struct act_budget {
	int64_t left_ns;          /* CPU time that the thread may spend now */
	uint64_t wall_ns, cpu_ns; /* when that was last counted */
	uint64_t each_ns;         /* that a look costs */
	uint32_t charged;         /* so many more, which others had */
};
/* And how much it can save up for when many ends come at once. */
#define ACT_SAVINGS_NS 1000000

struct arb_process {
	struct act_gate gate;
	uint64_t notes[NOTE_COUNT]; /* act.c */
	struct {
		uint32_t n; /* may be more than there is room for */
		char name[ACT_UNKNOWN_NAMES]
			 [ACT_UNKNOWN_BYTES]; /* each ends in a NUL, whoever reads it when */
	} unknown;                            /* act.c */

	/* threads.c. Of every thread that has not got its own; without credit, so that nobody counts in it on
	 * the short way. And of threads for which there was no memory: their counts may be a little low,
	 * nothing else suffers. */
	struct act_thread nobody, crowd;
	struct act_chunk *chunks; /* pushed and never taken away */
	uint32_t main_left;       /* the first thread has ended, others go on */
	uint32_t drivers;         /* number of the thread in which the driver calls us back; 0: none yet */

	/* gate.c */
	uint32_t launches_block; /* CUDA_LAUNCH_BLOCKING is set: 2 yes, 1 no, 0 not looked at yet */

	/* device.c: ARB_DEVICES of them. The lock is held while a GPU is joined, so that no other thread's
	 * work goes past it meanwhile. */
	struct arb_device *devices;
	pthread_mutex_t joining;
	bool watching;
	uint32_t refusals;         /* how many are refused: mostly none */
	uint32_t strays;           /* place.c: 1: streams of one GPU are used while another is current */
	uint32_t peers;            /* peers.c: 1: there were copies from one GPU to another */
	uint64_t peers_ns_per_mib; /* peers_graph.c: what the fastest of them took; 0: not known */

	uint32_t captures;      /* streams.c: streams that capture */
	uint32_t function_seen; /* callback.c: the program has put a function of its own into a stream */
	uint64_t shown_ns;      /* coverage.c */

	/* known.c: what was taken out of tables; what waits until nobody reads it; who is at it; how many, ever. */
	struct {
		struct known *removed, *waiting;
		uint32_t freeing, left;
	} known;

	struct memory_stripe *stripes; /* memory_table.c: MEMORY_STRIPES of them */

	/* tracker.c */
	struct track *tracks; /* ARB_DEVICES of them, beside the devices */
	pthread_mutex_t starting;
	bool prepared;
	struct arb_watch *watch; /* the thread's; NULL: it watches over nobody */
	uint32_t running;        /* futex, 1: the thread exists */
	uint32_t rung;           /* futex: +1 by whoever has something to say to it */
	uint32_t asleep;         /* futex, enum sleeping */
	uint32_t exiting;
	/* track_frozen.c: its thread exists, is in the driver, is to end; the process is frozen. */
	struct {
		uint32_t running, asking, end, state;
	} frozen;

	uint32_t gpus;        /* how many are tracked */
	uint32_t tracks_high; /* behind the last of those */
	uint64_t look_ns;     /* how often it looks at one that has work */
	struct act_budget budget;
};

/* At the start of a program. */
#define ARB_PROCESS_INIT(of_devices, of_tracks, of_memory, of_watch)                                         \
	{                                                                                                    \
		.gate = {.open = 1}, .devices = (of_devices), .tracks = (of_tracks), .stripes = (of_memory), \
		.watch = (of_watch), .look_ns = 4000000, .budget = {.left_ns = ACT_SAVINGS_NS},              \
		.joining = PTHREAD_MUTEX_INITIALIZER, .starting = PTHREAD_MUTEX_INITIALIZER,                 \
	}

/* What a call moves between GPUs, and whether it does other things besides. */
struct peers_copy {
	uint64_t bytes; /* 0: not known */
	bool mixed;
};

/* A call on one GPU, between gate_before and gate_after, and from one long way to the next. */
struct gate_call {
	struct track *track;
	CUcontext ctx;
	bool passing;
	bool inside;   /* this call may return only when its work has ended */
	bool slept;    /* this call was held up */
	bool held;     /* and by nothing but a full queue */
	bool peer;     /* a copy in a stream of another GPU */
	CUevent start; /* such a copy's, recorded before it: when it began; NULL: unknown */
	struct peers_copy copy;
	uint64_t let_ns;   /* when this call was let through */
	uint64_t begun_ns; /* when the credit was given */
	uint32_t covers;   /* launches that the next marker stands for */
	uint64_t wait_ns;  /* when it began to wait in the driver */
};
#define GATE_PEERS 2

struct arb_thread {
	struct act_thread *self; /* never NULL: a thread begins with nobody's, which has no credit */
	unsigned
		locks; /* tracks that it has locked, or asks the driver for: what comes by way of the driver then is let go by */
	bool is_tracker;
	uint32_t number; /* trace.c: the kernel's for it; 0: not asked for yet */

	/* gate.c: on the GPU of the call's stream, and on others whose memory a copy moves. */
	struct gate_call call, peer[GATE_PEERS];

	/* streams.c: what a thread is about to destroy is forgotten before, because nobody may ask about it
	 * meanwhile. If the driver then refuses, it is all still there. */
	struct {
		struct stream_forgotten *list;
		unsigned n, room;
		struct track *primary_of;
		unsigned retained;
	} forgotten;
	/* Of the context that it destroys, with work in it: which the driver waits for, or drops. */
	struct track *going;
};

#endif
