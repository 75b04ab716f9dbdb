/*
 * The layout of the two shared-memory segments of a GPU: of the state here, of its events in abi_events.h, of the
 * settings in abi_control.h. Nothing but layout is there: every field with its writer, its readers and what becomes of
 * it when its writer is killed. The orderings named below (SNAPSHOT_PUBLISH, ACCOUNT_PUBLISH, SLOT_PUBLISH, WAKE,
 * CONTROL_PUBLISH, EVENT_PUBLISH) are explained in shm/README.md.
 *
 * The "holder of byte i" is the process that has the kernel's OFD write lock on byte i of the file of the segment's
 * locks: the client that joined as slot i or, after its death, the one process that cleans up after it.
 */
#ifndef GPUARB_ABI_H
#define GPUARB_ABI_H

#include "gpuarb/abi_control.h"
#include "gpuarb/abi_events.h"
#include "gpuarb/abi_words.h"

#define ARB_STATE_MAGIC   0x6174732d62726167ull /* "garb-sta" */
#define ARB_CONTROL_MAGIC 0x7274632d62726167ull /* "garb-ctr" */
#define ARB_ABI_VERSION   3u

/* Bytes of the file of the locks: what each of them means. */
#define ARB_BYTE_SLOT(i)            ((uint64_t)(i))
#define ARB_BYTE_EVICT(nslots, i)   ((uint64_t)(nslots) + (i))
#define ARB_BYTE_DIRECTORY(nslots)  (2 * (uint64_t)(nslots))
#define ARB_BYTE_PROMISES(nslots)   (2 * (uint64_t)(nslots) + 1) /* held while promises are added up and made */
#define ARB_BYTE_PROMISE(nslots, i) (2 * (uint64_t)(nslots) + 2 + (i))
#define ARB_BYTE_SAMPLER            (1ull << 32) /* far beyond the bytes that count slots */
#define ARB_BYTE_CONTROL_WRITER     0            /* of the control file */

/*
 * One snapshot of everything that scheduling depends on. Written by the holder of byte i into slot i's
 * buffer that is not the head, published by a CAS of the head (SNAPSHOT_PUBLISH), constant while it is
 * the head. A writer that dies leaves a buffer that nobody looks at.
 *
 *   W = sum of weight over running          W == 0  <=>  running is empty
 *   running & evicted == 0                  running & waiting == 0
 *   sum of usage over all slots == busy     (usage: see struct arb_slot)
 *   t, v, busy never decrease; t grows by exactly W * (growth of v) while W > 0
 */
struct arb_record {
	arb_u64 t;     /* ticks: the time up to which v and busy are counted */
	arb_u64 v;     /* the weighted clock: runs at 1/W */
	arb_u64 busy;  /* ticks during which W > 0 */
	arb_u64 shape; /* ARB_SHAPE_*: W, words in use, which parts below count, the window's length, top */
	arb_u64 win_number;
	arb_u64 win_start; /* ticks */
	arb_u64 win_v;     /* v at win_start */
	arb_u64 win_busy;  /* busy at win_start */
	arb_u64 running[ARB_WORDS];
	/* Each counts only if its flag is set: most transitions need not copy them. */
	arb_u64 reserved;       /* slot + 1 | its generation << 32 */
	arb_u64 reserved_until; /* ns; after this any client may pass it */
	arb_u64 waiting[ARB_WORDS];
	arb_u64 evicted[ARB_WORDS];
} __attribute__((aligned(ARB_LINE)));

#define ARB_SHAPE_WEIGHT_BITS 20
#define ARB_SHAPE_WORDS_SHIFT 20 /* 5 bits */
#define ARB_SHAPE_RESERVED    (1u << 25)
#define ARB_SHAPE_WAITING     (1u << 26)
#define ARB_SHAPE_EVICTED     (1u << 27)
#define ARB_SHAPE_WIN_SHIFT   32 /* milliseconds, 24 bits */
#define ARB_SHAPE_WIN_BITS    24
#define ARB_SHAPE_TOP_SHIFT   56 /* the highest level of a member; 0: no member has one */

/*
 * A slot's level: twice its priority, and 1 more while its account has not used its request in this window. A client
 * with an even level stops while one with a higher level runs; a client with an odd level does not stop. 0: no client
 * of this GPU has asked for a priority, a request or a weight (`ranks` of the header).
 */
#define ARB_LEVEL_IN_REQUEST 1u
#define ARB_LEVEL_MOST       201u
#define ARB_PRIORITY_MOST    100u

/*
 * One snapshot of an account. Written into the buffer of an attached slot by the holder of its byte, or
 * into the account's home buffer by the holder of the directory byte; published by a CAS of the
 * account's head (ACCOUNT_PUBLISH). Attaching and detaching always publish from home, so a slot that has
 * been detached is nobody's head.
 *
 *   mem_used = sum over attached slots of their valid mem word
 *   usage    = folded + sum over attached slots of (usage - base)
 */
struct arb_account_record {
	arb_u64 folded;      /* ticks used by slots that have left */
	arb_u64 wall_folded; /* ticks of the busy clock, used by slots that have left */
	arb_u64 cap;         /* usage may grow up to here in this window (effective quota) */
	arb_u64 hard;        /* the cap by the limit alone, before scaling */
	arb_u64 window;      /* the window that cap and hard belong to */
	arb_u64 quota;       /* parts per million in force: effective | limit << 32 */
	arb_u64 start;       /* usage when the window began */
	arb_u64 wall;        /* 1: cap, hard and start are on the busy clock (billing = full) */
	arb_u64 borrowed;    /* ticks ever used beyond the effective quota that are no debt */
	arb_u64 mem_used;    /* bytes */
	arb_u64 mem_peak;    /* bytes */
	arb_u64 attached[ARB_WORDS];
	arb_u64 parity[ARB_WORDS]; /* which of the two mem words of an attached slot is valid */
	arb_u64 owed; /* ticks of debt that an extension of cap set aside; the next roll takes it out of cap again */
} __attribute__((aligned(ARB_LINE)));

enum arb_slot_state {
	ARB_SLOT_FREE = 0,    /* clean: in no bitmap, attached to no account */
	ARB_SLOT_JOINING = 1, /* being filled in, or being cleaned */
	ARB_SLOT_LIVE = 2,
};

/* Why a client does not run just now. */
enum arb_reason {
	ARB_REASON_NONE = 0,
	ARB_REASON_QUOTA,    /* its account has used what it may in this window */
	ARB_REASON_QUEUE,    /* another client holds the GPU, or is next */
	ARB_REASON_MEMORY,   /* its memory does not fit together with the memory of those that run */
	ARB_REASON_PRESSURE, /* the GPU's utilisation is above the water line */
	ARB_REASON_ABOVE,    /* a client of higher priority, or one that has not had its request, has work */
	ARB_REASON_COUNT
};

/* A slot's flags. */
#define ARB_SLOT_CLASSED 1u /* waits for a lease: ordered by its class alone */
#define ARB_SLOT_OUTLASTS                                                                                    \
	2u /* its work outlasts its turn: others need not wait for it. A stale one lets one more in */
#define ARB_SLOT_STALLS                                                                                      \
	4u /* its work waits for something: its account does not owe for it. A stale one costs exactness */
#define ARB_SLOT_TREE                                                                                        \
	8u /* held by a process tree with a descriptor: its end is no death. A wrong one changes what people read */

#define ARB_COUNTERS      16
#define ARB_UNKNOWN_WORDS 16 /* two or three names; the rest is only counted */
#define ARB_UNKNOWN_BYTES (8 * ARB_UNKNOWN_WORDS)

/* A slot's adm_want. */
#define ARB_WANT_CLASS_BITS     8          /* index of the class + 1 */
#define ARB_WANT_PRIORITY_SHIFT 8          /* 7 bits */
#define ARB_WANT_PASS           (1u << 16) /* goes under pressure too */
#define ARB_WANT_BLOCKED        (1u << 17) /* by its own quota or memory: in nobody's way */

/* A slot's `frozen`: a state, and above it the time at which the driver said so, ns. */
#define ARB_FROZEN_STATE_BITS   2
#define ARB_FROZEN_NOT          0u
#define ARB_FROZEN_LOCKED       1u /* its calls wait; what it has on the device is still there */
#define ARB_FROZEN_CHECKPOINTED 2u /* what it had on the device is not there any more */
#define ARB_FROZEN_NOBODY       3u /* nobody answers here, as if the whole word were 0 */

/* The header's adm_sample is one word, so that a reader always sees a single sample. */
#define ARB_SAMPLE_USAGE_BITS   14         /* hundredths of a percent, 0..10000 */
#define ARB_SAMPLE_SOURCE_SHIFT 14         /* 2 bits: enum arb_sample_source */
#define ARB_SAMPLE_HIGH         (1u << 16) /* the state of the machine: under pressure */
#define ARB_SAMPLE_TIME_SHIFT   20 /* in units of 2^ARB_SAMPLE_TIME_UNIT ns; 0: there is no sample yet */
#define ARB_SAMPLE_TIME_UNIT    16

/* The header's mem_foreign is one word, so that a reader always sees a single value. */
#define ARB_FOREIGN_MIB_BITS  24 /* 16 TiB */
#define ARB_FOREIGN_TIME_UNIT 20 /* above them: when it was found, in units of 2^20 ns; 0: never */

enum arb_sample_source {
	ARB_SAMPLE_NONE = 0,
	ARB_SAMPLE_NVML = 1, /* the driver's figure, which includes programs that are no clients */
	ARB_SAMPLE_BUSY = 2, /* the busy clock: clients alone */
};

/*
 * What a client has seen of its program, by class, and then what went, or may go, past the client. Counted for the
 * whole process since it began (a forked child begins anew), and shown on each GPU that it has joined: X(name, key,
 * text).
 */
#define ARB_COUNTER_LIST(X)                                                                                  \
	X(LAUNCHES, launches, "kernel launches")                                                             \
	X(GRAPHS, graphs, "graph launches")                                                                  \
	X(COPIES, copies, "copies")                                                                          \
	X(MEMSETS, memsets, "memsets")                                                                       \
	X(PREFETCHES, prefetches, "prefetches")                                                              \
	X(ORDERED, ordered, "host functions and memory operations in streams")                               \
	X(ALLOCATIONS, allocations, "allocations")                                                           \
	X(FREES, frees, "frees")                                                                             \
	X(WAITS, waits, "waits")                                                                             \
	X(TRACKED, tracked, "streams, events, captures, contexts")                                           \
	X(QUERIES, queries, "queries")                                                                       \
	X(PAST_EXPORT_TABLE, past_export_table, "export tables handed out")                                  \
	X(PAST_NAMESPACE, past_namespace, "libraries in namespaces of their own")                            \
	X(PAST_DEEPBIND, past_deepbind, "libraries that prefer their own symbols")                           \
	X(PAST_UNKNOWN, past_unknown, "look-ups of calls that are in no table")                              \
	X(PAST_OTHER_DRIVER, past_other_driver, "look-ups in a second driver")

enum arb_counter {
#define ARB_COUNTER_NAME(name, key, text) ARB_COUNTER_##name,
	ARB_COUNTER_LIST(ARB_COUNTER_NAME)
#undef ARB_COUNTER_NAME
		ARB_COUNTER_COUNT
};
/* From here on: ways around the client. */
#define ARB_COUNTER_PAST ARB_COUNTER_PAST_EXPORT_TABLE

/*
 * A slot: one process on one GPU.
 *
 * Billing. usage(i) = acc + weight * v          while bit i is in running,
 *                     acc + weight * evicted_v  while bit i is in evicted,
 *                     total                     otherwise.
 * Entering stores weight and acc = total - weight * v before every CAS attempt, leaving stores
 * total = acc + weight * v before every CAS attempt: which word counts is decided by the CAS itself, so
 * that a kill on either side of it neither loses nor doubles anything. total is never reset; a new owner
 * remembers base = total. All of it modulo 2^64. The wall_ words do the same with the busy clock and a
 * weight of one; they obey no law, they only count the time in the set.
 */
struct arb_slot {
	/* Written by the holder of byte i. Read by everybody. Kept as they are when the owner dies. */
	arb_u64 acc;
	arb_u64 total;
	arb_u64 weight;   /* 1..ARB_WEIGHT_ONE; fixed from entering to leaving */
	arb_u64 base;     /* total when the owner joined */
	arb_u64 wall_acc; /* acc, total and base of the time in the set, by the busy clock: billing = full */
	arb_u64 wall_total;
	arb_u64 wall_base;
	arb_u64 heartbeat_ns; /* a stale value makes others look at the lock: costs them a system call */

	/* Written by others as well. */
	arb_u32 wake;         /* futex; +1 by any process that wants the owner to look again (WAKE) */
	arb_u32 gate;         /* 1 open, 0 closed; opened by the owner, closed by the owner or an evictor */
	arb_u64 evicted_v;    /* by the holder of the eviction byte alone; counts while bit i is in evicted */
	arb_u64 evicted_busy; /* the busy clock at the eviction */
	arb_u64 evictions;    /* how often it was evicted; by the same writer */
	/* The words by which the owner is watched over (shm/client/watch.h): two entries of the robust list of its
	 * tracker's thread. When that thread dies the kernel writes FUTEX_OWNER_DIED into `life` and `life2`, and
	 * wakes a watcher at each. `life_next` and `life2_next` mean something only to the owner and its kernel. With
	 * a wrong value a death is discovered late. */
	arb_u64 life_next; /* by the owner: the address of the next entry */
	arb_u32 life; /* futex; thread id by the owner (0: not watched), FUTEX_WAITERS by the watcher before it */
	arb_u32 level; /* by the holder of byte i; counts while its bit is in running or waiting. A stale one
			    * lets the slot run, or keeps others from running, until its owner's next tick */
	arb_u64 life2_next; /* as life_next; its distance from life2 is that of life_next from life */
	arb_u32 life2;      /* as life, for a second watcher: the first may be stopped */
	arb_u32 restored;   /* by the owner: how often it found its own words written over; for people */

	/* Written by the holder of byte i. state last when joining (SLOT_PUBLISH), first when cleaning. */
	arb_u32 state;      /* enum arb_slot_state */
	arb_u32 generation; /* +1 by every new owner */
	arb_u32 account;    /* index into the accounts, checked at every use */
	arb_u32 priority;   /* 0 (lowest) .. 100 */
	arb_u64 wait_since_ns; /* 0: not waiting, though a place may be kept. A stale value costs a place in the queue */
	arb_u64 rank_ppm; /* used / quota of its account when it began to wait: the waiters are ordered by it */
	arb_u64 mem[2];   /* bytes; the account's parity bit says which one counts */
	arb_u64 mem_now; /* the valid one of `mem`, stored after the CAS for policy and viewers: a hint */
	arb_u32 reason;  /* enum arb_reason */
	arb_u32 flags;
	/* Limits that the owner asks for its account; 0: none. The strictest of all members counts, and an
	 * administrator's stands above it. They go with their owner. */
	arb_u64 asked_mem; /* bytes */
	arb_u32 asked_ppm;
	arb_u32 asked_share; /* request in percent | weight << 8; of the members' the largest counts */

	/* For people. Written by the holder of byte i. */
	arb_u64 throttled_ns; /* time spent refused at the gate */
	arb_u64 waited_ns;    /* time spent in the queue, or below others that had work */
	arb_u64 estimated_ns; /* its time in the set that no event of the GPU measured; a stale value is an old count */
	arb_u64 enters; /* how often it entered the set; several times in one turn count once */
	arb_u64 joined_ns;
	arb_u64 start_time; /* when the process started: clock ticks since boot, as in its stat file */
	arb_u64 pid_ns;     /* inode of the PID namespace */
	arb_u32 pid;        /* its pid in that namespace, and of use only together with the namespace */
	arb_u32 uid;
	arb_u64 owner; /* whose it is (arb_owner_of), stored under the directory byte; 0: nobody's yet. A wrong one
			* costs an owner a slot, or gives it one more than slots_per_user */
	arb_u64 command[ARB_COMMAND_WORDS]; /* "python train.py": see shm/base/command.h */
	arb_u64 container[ARB_NAME_WORDS];  /* id out of the cgroup path; empty outside a container */
	arb_u64 counter[ARB_COUNTERS];      /* enum arb_counter; a stale value is an old count */
	arb_u64 unknown[ARB_UNKNOWN_WORDS]; /* names behind PAST_UNKNOWN, with a blank between them */

	/* Turns at the GPU's memory, by the holder of byte i. A stale value costs others a turn's length. */
	arb_u64 turn_since_ns; /* the time since which its memory may be on the GPU; 0: it may not */
	arb_u64 turn_hold_ns;  /* until when that holds although it does not run: it may come back at once */

	/* Admission. Written by the holder of byte i; they count while its bit of adm_waiting or adm_leased
	 * is set and its state is LIVE. */
	arb_u32 adm_want;      /* ARB_WANT_*: the highest class that waits here */
	arb_u32 adm_leases;    /* leases that its process holds: for people; the bit decides */
	arb_u64 adm_since_ns;  /* since when it waits; a wrong value costs a place in the queue */
	arb_u64 adm_leased_ns; /* when it got its first lease; counts with its bit */
	arb_u64 adm_granted;   /* leases that it ever got */
	arb_u64 adm_refused;   /* timeouts and skips that it ever had */

	/* How many calls are under way that may need less than they reserved; << 32: how many have settled. Written
	 * by the holder of byte i. A wrong value makes others wait for seconds before they are refused. */
	arb_u64 mem_pending;

	/* Whether the process is frozen by a checkpoint, as its own driver says: ARB_FROZEN_*. By the holder of byte
	 * i, from a thread that does nothing else. 0: nobody answers there. Until the owner is asked again, a stale
	 * answer counts memory that is off the device, or leaves out memory that is back on it. */
	arb_u64 frozen;
	arb_u32 ask_frozen; /* futex; +1 by any process that wants a new answer (WAKE), the owner included */
	arb_u32 pad0;

	struct arb_record record[2];
	struct arb_account_record account_record[2];
} __attribute__((aligned(ARB_LINE)));

/* An account: all clients that share one compute budget and one memory quota. The name is written by the holder of
 * the directory byte, into an entry that no client is attached to. */
struct arb_account {
	arb_u64 head;          /* ACCOUNT_PUBLISH; index is an attached slot or ARB_HOME */
	arb_u64 active_window; /* last window + 1 in which a member ran, waited or was refused: a hint */
	arb_u32 limit_ppm;     /* the limit in force, for clients that add limits up: a hint */
	arb_u32 generation;    /* +1 whenever the entry gets another name */
	arb_u64 mem_limit;     /* bytes in force, 0: none: a hint for viewers */
	arb_u64 used_at;       /* ns: when a member last left; orders the entries for re-use */
	arb_u32 request_ppm;   /* the request in force, for clients that add requests up: a hint */
	arb_u32 weight;        /* the weight in force, 0: the default: a hint */
	/* The owner of the account (arb_owner_of); 0: none. Written by the holder of the directory byte. If it dies
	 * before it has stored the owner, the next client that joins does. */
	arb_u64 owner;
	arb_u64 restored; /* how often it was restored while nobody used it; for people. Under the directory byte */
	arb_u64 name[ARB_NAME_WORDS]; /* empty: never used */
	struct arb_account_record home[2];
} __attribute__((aligned(ARB_LINE)));

/*
 * A promise of memory, made by the process that starts a program. It counts while byte ARB_BYTE_PROMISE(i) is locked,
 * through a descriptor that the program and all its children inherit. Written by the holder of that byte, which also
 * holds ARB_BYTE_PROMISES. When the last process with that descriptor has died, the byte is free, and so is the
 * entry.
 */
struct arb_promise {
	arb_u64 bytes;
	arb_u64 since_ns;
	arb_u32 core_pct; /* 1..100 */
	arb_u32 waits;    /* 1: it is not promised yet, but later promises have to wait behind it */
	arb_u64 ticket;   /* the order of those that wait */
	arb_u32 pid;      /* for people */
	arb_u32 uid;
	arb_u32 request_pct; /* 0..100 */
	arb_u32 pad0;
	arb_u64 owner; /* as in a slot */
	arb_u64 pad;
	arb_u64 name[ARB_NAME_WORDS]; /* of the account */
} __attribute__((aligned(ARB_LINE)));

/* The header's first part is written before the file gets its name and never again. */
struct arb_state_header {
	uint64_t magic;
	uint32_t version;
	uint32_t nslots;
	uint64_t fingerprint; /* of this layout: two builds never misread each other */
	uint64_t size;
	uint32_t naccounts;
	uint32_t nevents;
	uint64_t created_ns; /* CLOCK_REALTIME, for people */
	char uuid[ARB_UUID_BYTES];
	uint8_t pad0[16];

	arb_u64 head __attribute__((aligned(ARB_LINE))); /* SNAPSHOT_PUBLISH */

	/* +1 whenever limits or the set of active accounts may have changed: "add up again". */
	arb_u32 epoch __attribute__((aligned(ARB_LINE)));
	arb_u32 accounts_high; /* entries ever used: bounds the scan, checked against naccounts */
	arb_u64 reclaimed;     /* slots cleaned after a death, ever */
	arb_u64 mem_physical;  /* bytes of the GPU as the driver told a client, 0: nobody asked: a hint */
	/*
	 * ARB_FOREIGN_*: memory of processes that are no clients. Stored whole by the process that finds it out: the
	 * watchdog and gpuarb-run by NVML, clients by what the driver has free. Read by clients that take turns at
	 * the memory. A writer that dies leaves the old value or the new one; a wrong value costs turns.
	 */
	arb_u64 mem_foreign;
	arb_u64 ticket; /* the ticket of the last process that queued for a promise; under ARB_BYTE_PROMISES */

	/* What the event ring last said about the GPU as a whole. The process that changes such a word (CAS) writes
	 * the event, so that each change is written once. 0: nothing yet. A wrong value costs an event, or makes one
	 * too many. */
	arb_u32 told_window_ms;
	arb_u32 told_auto;     /* 1: all at once; 2: one at a time */
	arb_u64 told_pressure; /* ns, its lowest bit: 1 HIGH_PRESSURE, 0 NORMAL */
	/* 1 as soon as a client has a priority, a request or a weight of its own; never taken back. Written by such a
	 * client. While it is 0 no client looks at levels and shares; a wrong 1 only costs that look. */
	arb_u32 ranks;
	/* The sum of all times, in ns, in which no client ran although a client stood in the queue for its turn; it
	 * wraps. The process that publishes the record which counts such a time adds it after its CAS; if it dies in
	 * between, that time is left out. A wrong value scales limits down by
	 * ARB_LOST_PPM_MOST at most, and only as far as the GPU is idle. */
	arb_u32 lost_ns;

	/*
	 * Until when the GPU is taken to serve its processes one after the other (shm/segment/alternation.h). CAS by
	 * a client that has seen it; a writer that dies leaves the old value or the new one. A wrong value makes
	 * clients take turns, or not.
	 */
	arb_u64 alternates_until_ns;

	arb_u64 event_next __attribute__((aligned(ARB_LINE))); /* position of the next event */

	/* Futex of clients that watch over their neighbours: +1 by a client that is watched from now on, or not any
	 * more. */
	arb_u32 ring __attribute__((aligned(ARB_LINE)));

	/* Slots that look taken. A hint for clients that join: a wrong bit costs them a system call. */
	arb_u64 taken[ARB_WORDS] __attribute__((aligned(ARB_LINE)));

	/*
	 * Admission. A sample is written by the holder of the sampler's byte; its state bit alone is changed, with a
	 * CAS, by any process that finds that the water lines have moved. If the sampler dies, its last sample gets
	 * old. The boost only ever grows (CAS), up to boost_ttl_ms from now; a later time is garbage.
	 */
	arb_u64 adm_sample __attribute__((aligned(ARB_LINE))); /* ARB_SAMPLE_* */
	arb_u64 adm_boost_until_ns;                            /* the water lines are raised until then */
	arb_u32 adm_wake; /* futex of clients that may sample; +1 by a client that finds the sample too old */
	arb_u32 adm_watchdog; /* when the watchdog last sampled, in units of 2^24 ns; clients leave it to it */

	/* Bit i is changed by the holder of byte i alone (CAS of the word). It means nothing unless slot i is
	 * LIVE; cleaning a slot clears both. */
	arb_u64 adm_waiting[ARB_WORDS] __attribute__((aligned(ARB_LINE)));
	arb_u64 adm_leased[ARB_WORDS] __attribute__((aligned(ARB_LINE)));
} __attribute__((aligned(4096)));

#define ARB_PPM 1000000u /* quotas are in parts per million */
#define ARB_LOST_PPM_MOST                                                                                    \
	50000u /* of `lost_ns`: if more is lost the machine stands still, or it is garbage */
#define ARB_SHARE_WEIGHT      100u /* the weight of an account that asks for none */
#define ARB_SHARE_WEIGHT_MOST 10000u

#endif
