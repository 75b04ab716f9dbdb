/*
 * The state of a process (struct arb_process) and of each of its threads (struct arb_thread): every word that
 * outlives a call. Each part is written by the file that is named with it. own.h has one variable of each type;
 * nothing else of the acting layer is static, so that a test can have any number of processes.
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
	uint32_t credit; /* gated calls that may still pass before one takes the long way */
	uint32_t gate;   /* the gate's number when the credit was given */
	uint32_t owned;  /* 1 while a thread has this record; a later thread goes on counting in it */
	uint64_t seen[CAT_COUNT];      /* calls by category since the process began; only its thread writes */
	uint32_t granted;              /* the credit as it was given */
	uint64_t interval;             /* the busy interval in which the credit was given */
	uint32_t waiting;              /* 1: in a call that waits for work */
	struct urcu_bp_reader *reader; /* whether the thread reads a table now (known.h); NULL: it must not */
} __attribute__((aligned(128)));

/* Every thread reads it with every call, so it is written seldom and has cache lines of its own. */
struct act_gate {
	/* While all GPUs are open, a number: credit that was given with another number is void. If a GPU is closed, more than
	 * any such number (gate.c). */
	uint32_t open;
	uint32_t watched; /* GPUs whose ends of work are dated: calls that wait for work take the long way */
	uint32_t graphs;  /* executable graphs with memory or copies between GPUs; 0: launches do not look */
} __attribute__((aligned(128)));

/* Ways past the table that were noticed. None of them is on a path that has to be fast. */
enum act_note {
	NOTE_EXPORT_TABLE, /* cuGetExportTable: functions without a name */
	NOTE_NAMESPACE,    /* dlmopen: a namespace without the preload */
	NOTE_DEEPBIND,     /* dlopen with RTLD_DEEPBIND */
	NOTE_UNKNOWN,      /* a function of the driver that is in no table, or newer than its rows */
	NOTE_OTHER_DRIVER, /* a second driver was looked up */
	NOTE_COUNT
};

/* How many names of unknown functions are remembered, and how long a name can be. */
#define ACT_UNKNOWN_NAMES 8
#define ACT_UNKNOWN_BYTES 64

/* The CPU budget of the tracker. */
struct act_budget {
	int64_t left_ns;          /* CPU time that the tracker may spend now */
	uint64_t wall_ns, cpu_ns; /* the clocks when left_ns was last updated */
	uint64_t each_ns;         /* what a look of the tracker costs */
	uint32_t charged;         /* looks to be charged for the work of other threads */
};
/* How much budget can be saved up, for many ends of work at the same time. */
#define ACT_SAVINGS_NS 1000000

struct arb_process {
	struct act_gate gate;
	uint64_t notes[NOTE_COUNT]; /* act.c */
	struct {
		uint32_t n; /* may be more than there is room for */
		/* The last byte of each is never written, so a name ends in a NUL at any time. */
		char name[ACT_UNKNOWN_NAMES][ACT_UNKNOWN_BYTES];
	} unknown; /* act.c */

	/* threads.c. `nobody`: what a thread has before its first call; it never has credit, so no call is counted in it on
	 * the short way. `crowd`: what threads share for which there was no memory; its counts may be a little low,
	 * nothing else suffers. */
	struct act_thread nobody, crowd;
	struct act_chunk *chunks; /* a list that only grows */
	uint32_t main_left;       /* 1: the first thread has ended, others go on */
	uint32_t drivers;         /* the id of the thread in which the driver calls us back; 0: none yet */

	/* gate.c */
	uint32_t launches_block; /* whether launches wait for their kernels; 0: not looked at yet */

	/* device.c: ARB_DEVICES of them. `joining` is held while a GPU is joined, so that other threads wait and do
	 * not use it before its limits are known. */
	struct arb_device *devices;
	pthread_mutex_t joining;
	bool watching;
	uint32_t refusals;         /* how many GPUs are refused: mostly none */
	uint32_t strays;           /* place.c: 1: streams of one GPU are used while another is current */
	uint32_t peers;            /* peers.c: 1: there were copies from one GPU to another */
	uint64_t peers_ns_per_mib; /* peers_graph.c: the fastest copy between GPUs; 0: not known */

	uint32_t captures;      /* streams.c: captures that go on */
	uint32_t function_seen; /* callback.c: the program has put a function of its own into a stream */
	uint64_t shown_ns;      /* coverage.c: when the counts are due to be shown again */

	/* known.c: entries removed from tables; those that wait until no thread reads them; 1: a thread frees; how many were
	 * ever removed. */
	struct {
		struct known *removed, *waiting;
		uint32_t freeing, left;
	} known;

	struct memory_stripe *stripes; /* memory_table.c: MEMORY_STRIPES of them */

	/* tracker.c */
	struct track *tracks; /* ARB_DEVICES of them, beside the devices */
	pthread_mutex_t starting;
	bool prepared;
	struct arb_watch *watch; /* the tracker's; NULL: it watches over no other client */
	uint32_t running;        /* futex, 1: the tracker's thread exists */
	uint32_t rung;           /* futex: +1 by each thread that wakes the tracker */
	uint32_t asleep;         /* futex, enum sleeping */
	uint32_t exiting;        /* 1: the program ends */
	/* track_frozen.c, 1 each: its thread exists, is in the driver, is to end, sleeps until there is work; the process is
	 * frozen. And a futex, +1 to wake the thread. */
	struct {
		uint32_t running, asking, end, dormant, state;
		uint32_t rung;
	} frozen;

	uint32_t gpus;        /* how many GPUs are tracked */
	uint32_t tracks_high; /* one more than the highest place of `tracks` in use */
	uint64_t look_ns;     /* how often the tracker looks at a GPU that has work */
	struct act_budget budget;
};

/* The state at the start of a program. */
#define ARB_PROCESS_INIT(of_devices, of_tracks, of_memory, of_watch)                                         \
	{                                                                                                    \
		.gate = {.open = 1}, .devices = (of_devices), .tracks = (of_tracks), .stripes = (of_memory), \
		.watch = (of_watch), .look_ns = 4000000, .budget = {.left_ns = ACT_SAVINGS_NS},              \
		.joining = PTHREAD_MUTEX_INITIALIZER, .starting = PTHREAD_MUTEX_INITIALIZER,                 \
	}

/* What a call moves between GPUs. */
struct peers_copy {
	uint64_t bytes; /* 0: not known */
	bool mixed;     /* it does other work, too */
};

/* A thread's call on one GPU, from gate_before to gate_after. Some fields stay until the thread's next call on the long way. */
struct gate_call {
	struct track *track;
	CUcontext ctx;
	bool in_driver;
	bool inside; /* this call may return only when its work has ended */
	bool slept;  /* this call was held up */
	bool held;   /* this call was held up by nothing but a full queue */
	bool peer;   /* a copy in a stream of another GPU */
	CUevent start; /* recorded before such a copy, or behind a host function, to know when it began; NULL: unknown */
	struct peers_copy copy;
	uint64_t let_ns;   /* when this call was let through */
	uint64_t begun_ns; /* when the credit was given */
	uint32_t covers;   /* launches that the next marker stands for */
	uint64_t wait_ns;  /* when the thread began to wait in the driver */
};
/* How many other GPUs a call can work on. */
#define GATE_PEERS 2

struct arb_thread {
	struct act_thread *self; /* never NULL: a thread begins with `nobody`, which has no credit */
	/* How many tracks it has locked, or asks the driver about. If not 0, calls that the driver makes are let through. */
	unsigned locks;
	bool is_tracker;
	uint32_t number; /* trace.c: the thread's id; 0: not asked for yet */

	/* gate.c: the call on the GPU of its stream, and on other GPUs whose memory it copies. */
	struct gate_call call, peer[GATE_PEERS];
	/* gate.c: the stream (track_stream_key) of the thread's last host function, until it launches there. */
	bool function;
	uint64_t function_stream;

	/* streams.c: streams and contexts that the thread is about to destroy. They are taken out of the tables before, because
	 * the driver must not be asked about them meanwhile. If the driver refuses to destroy, they are put back. */
	struct {
		struct stream_forgotten *list;
		unsigned n, room;
		struct track *primary_of;
		unsigned retained;
	} forgotten;
	/* streams.c: the track of a context that the thread destroys while it has work. The driver waits for the work or
	 * drops it. */
	struct track *going;
};

#endif
