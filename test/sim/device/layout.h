/*
 * The shared file: one in each simulation directory, mapped by every process.
 *
 * Rules:
 * - All fields are written under the file's lock, except those marked "owner": the process to which the ring or
 *   slot belongs writes them without the lock.
 * - Fields marked "derived" can be computed from the others. After a process has died with the lock, the next
 *   holder computes them anew (sim_engine_rebuild), so that no half-made step stays.
 * - A sum is never stored beside its parts: the device's busy time is the sum over its processes.
 */
#ifndef SIM_LAYOUT_H
#define SIM_LAYOUT_H

#include "test/sim/device/model.h"

#define SIM_MAGIC      0x314d495355504700ULL
#define SIM_MAX_RINGS  2048u
#define SIM_RING_OPS   2048u /* ops a ring can hold, a power of two */
#define SIM_MAX_QUEUED 1024u /* unfinished launches of a stream with which the next launch blocks */
#define SIM_ENGINES    2     /* copy engines: to the device, from the device */
#define SIM_NONE       0xffffffffu

/* Device work is counted in 1/1024 ns, so that a share of 1/n loses nothing that could be measured. */
#define SIM_UNIT 1024u

enum sim_op_kind {
	SIM_OP_NOP,    /* ends as soon as it is the oldest: event records, markers */
	SIM_OP_KERNEL, /* runs on the compute engine */
	SIM_OP_H2D,    /* runs on copy engine 0 */
	SIM_OP_D2H,    /* runs on copy engine 1 */
	SIM_OP_WAIT,   /* ends when another ring has completed wait.seq ops */
	SIM_OP_HOST,   /* ends when the owner says so */
};

enum sim_op_flags {
	SIM_OP_LAUNCH = 1, /* counts as a kernel launch */
	SIM_OP_MEMSET = 2,
	SIM_OP_COPY = 4,     /* counts as a copy although it runs on the compute engine */
	SIM_OP_GRAPH = 8,    /* first op of a graph launch */
	SIM_OP_MIGRATE = 16, /* moves the owner's managed pages in the direction of the copy */
	SIM_OP_MEET = 32,    /* a kernel whose work begins when all ranks of its group have started theirs */
	SIM_OP_VALUE = 64,   /* a kernel whose work begins when the owner has seen a value in memory */
};

struct sim_op {
	uint64_t submit_ns; /* owner */
	uint64_t work;      /* owner: exclusive engine time in SIM_UNITs */
	uint64_t cum_work;  /* owner: sum of work of this ring up to and including this op */
	uint64_t end_ns;    /* exact model time of completion */
	uint64_t done_seq;  /* order of completion over all rings */
	union {             /* owner */
		struct {
			uint64_t seq;
			uint32_t ring;
			uint32_t gen;
		} wait;
		uint64_t bytes;
		struct {
			uint64_t group;
			uint16_t rank, ranks;
			uint32_t round; /* number among its rank's kernels, set on arrival */
		} meet;
	};
	uint32_t kind;      /* owner: enum sim_op_kind */
	uint16_t occupancy; /* owner: part of the device that the kernel fills, in 1/1000 */
	uint16_t flags;     /* owner */
};
_Static_assert(sizeof(struct sim_op) == 64, "an op is one cache line");

enum sim_ring_state {
	SIM_RING_IDLE,     /* nothing queued */
	SIM_RING_ARRIVING, /* the oldest op was submitted at a time that the model has not reached */
	SIM_RING_BLOCKED,  /* the oldest op is a wait or a host function */
	SIM_RING_RUNNING,  /* the oldest op is on the compute engine */
	SIM_RING_COPYING,  /* the oldest op is on (or queued for) a copy engine */
	SIM_RING_SLICE,    /* the oldest op waits for the slice of its process */
	SIM_RING_BEHIND,   /* the oldest op waits behind those of other rings in its hardware queue */
};

/* Whether the kernel of a ring waits on the device: no; has not arrived yet; has arrived (held.c). */
enum sim_held { SIM_HELD_NOT, SIM_HELD_START, SIM_HELD_ARRIVED };

/* The queue of a stream. Counts only grow; an op's place is its count modulo SIM_RING_OPS. */
struct sim_ring {
	/* the cache line that the owner writes */
	uint64_t tail;        /* owner: ops submitted */
	uint64_t pushed_work; /* owner: sum of their work */
	uint64_t host_done;   /* owner: count of the host op that has returned, plus one */
	uint64_t host_done_ns;
	uint64_t pad0[4];
	/* the cache line that the model writes */
	uint64_t head;          /* ops completed */
	uint64_t launches_done; /* completed ops with SIM_OP_LAUNCH */
	uint64_t done_work;
	uint64_t rem;     /* work left of the oldest op once it has started */
	uint64_t waited;  /* lowest count that a process sleeps for, 0 if none does */
	uint32_t wake;    /* futex word of those sleepers */
	uint32_t started; /* rem is valid */
	uint32_t state;   /* derived: enum sim_ring_state */
	uint32_t
		listed; /* derived: is in active[]; the owner reads it to know whether to announce the ring */
	uint64_t turn_ns; /* since when the oldest op, a host function, is due; 0 before */
	/* identity */
	uint32_t owner; /* slot + 1, 0 when free */
	uint32_t
		gen; /* grows with each use of the place, so that a wait for an earlier ring is known to be over */
	uint32_t device;
	uint32_t closing; /* freed once it is empty */
	uint32_t granted; /* fifo: its kernel is on the engine and stays there until it ends */
	uint32_t held;    /* enum sim_held */
	uint32_t queue;   /* owner: hardware queue that it shares with other rings of its process; 0: none */
	int32_t priority; /* owner: priority of its kernels; a lower number goes first */
	uint64_t pad3[4];
};
_Static_assert(sizeof(struct sim_ring) == 192, "a ring is three cache lines");

/* What one process did and holds on one device. */
struct sim_account {
	uint64_t device_units; /* attained compute time */
	uint64_t width_units;  /* device_units times the part of the device that its kernels filled */
	uint64_t copy_units[SIM_ENGINES];
	uint64_t paging_units; /* part of device_units */
	uint64_t launches;
	uint64_t graph_launches;
	uint64_t copies;
	uint64_t copied_bytes;
	uint64_t memsets;
	uint64_t memory_bytes;   /* everything but managed memory */
	uint64_t managed_bytes;  /* managed memory that belongs on this device */
	uint64_t resident_bytes; /* the part of it that is on the device */
	uint64_t peak_bytes;
	uint64_t saved_bytes;  /* memory_bytes before it was checkpointed */
	uint64_t last_run_ns;  /* when it last had the compute engine; the oldest is evicted first */
	uint64_t page_rem;     /* work left of the page-in that its kernels wait for */
	uint64_t sample_units; /* device_units at the end of the last sample period */
	uint64_t sample_copy_units;
	uint32_t util_pct;
	uint32_t copy_util_pct;
	uint32_t contexts;
	uint32_t saved_contexts; /* contexts before it was checkpointed */
	uint32_t running;        /* derived: rings in SIM_RING_RUNNING */
	uint32_t occupancy;      /* derived: sum of the occupancies of their kernels */
	uint32_t waiting;        /* derived: rings in SIM_RING_SLICE */
	uint32_t queued;         /* derived: is in runq */
	uint32_t check;          /* a kernel started or the device came back: residency must be checked */
};

/* What another process has done to a process (checkpoint.c). */
enum sim_frozen { SIM_NOT_FROZEN, SIM_LOCKED, SIM_CHECKPOINTED };

enum sim_proc_state { SIM_PROC_FREE, SIM_PROC_LIVE, SIM_PROC_DEAD };

/* A process. Whether it lives is not stored here: a live process holds a lock on its slot's byte of the file. */
struct sim_proc {
	uint32_t state; /* a dead one keeps its accounts until the slot is needed or the report is reset */
	uint32_t gen;
	uint64_t serial;
	int32_t pid;
	char command[16];
	uint32_t frozen;      /* enum sim_frozen; while it is frozen its calls sleep */
	uint32_t frozen_wake; /* futex word of those calls */
	uint32_t width; /* the most of a device that its kernels fill, in 1/1000; 0: all; only in spatial */
	uint32_t host_wake; /* futex word of the helper thread that runs host functions */
	uint64_t started_ns;
	uint64_t ended_ns;
	struct sim_account dev[SIM_MAX_DEVICES];
};

struct sim_device {
	struct sim_device_info info;
	uint64_t slice_end_ns;
	uint64_t context;       /* serial of the process that the engine is set up for, 0 at the beginning */
	uint64_t switch_end_ns; /* until then the engine is being set up for that process and runs nothing */
	uint64_t switch_units;  /* device time that went into switches */
	uint64_t switches;
	uint64_t any_units; /* time in which any process had the engine */
	uint64_t since_ns;
	struct sim_account past; /* sums over processes whose slots were taken by others since */
	uint64_t sample_units;   /* busy time at the end of the last sample period */
	uint64_t sample_copy_units;
	uint64_t samples; /* how many samples were ever made */
	struct sim_sample sample[SIM_SAMPLES];
	uint32_t nrunq;               /* derived */
	uint32_t leaving;             /* derived: some process of runq has no kernel left */
	uint32_t nceq[SIM_ENGINES];   /* derived */
	uint16_t runq[SIM_MAX_PROCS]; /* slots with runnable kernels; the first one has the slice */
	uint16_t ceq[SIM_ENGINES][SIM_MAX_RINGS]; /* derived: rings in the order they reached the engine */
};

/* A number for the layout, so that builds with different layouts never read each other's file. */
#define SIM_LAYOUT                                                                                           \
	((uint32_t)(8u + sizeof(struct sim_file) * 31 + sizeof(struct sim_proc) * 7 +                        \
		    sizeof(struct sim_device)))

#define SIM_MAX_GROUPS 64u
#define SIM_MAX_RANKS  64u

/* A group of ranks whose kernels wait for each other: how many kernels of each rank have arrived. The group that was
 * unused for longest gives its place to a new one. */
struct sim_group {
	uint64_t id, used_ns;
	uint32_t ranks, pad;
	uint32_t arrived[SIM_MAX_RANKS];
};

enum sim_mode { SIM_TIMESLICE, SIM_SHARE, SIM_FIFO, SIM_SPATIAL };

/* Settings that the process that creates the file reads from its environment. They hold for all processes. */
struct sim_settings {
	uint32_t devices;
	uint32_t mode;
	uint64_t slice_ns;
	uint64_t switch_ns;    /* what a switch between processes costs */
	uint32_t slice_events; /* all queued work waits for the slice, not only kernels */
	uint64_t sample_ns;
	uint64_t context_bytes;
	double speed;     /* kernels take 1/speed of their nominal time */
	double pcie_gbps; /* GB/s of each copy engine */
	double mem_gbps;  /* GB/s of copies and memsets inside the device */
	double page_gbps; /* GB/s of managed pages moving in */
	uint64_t copy_latency_ns;
	uint64_t event_ns; /* resolution of the times of events */
	int64_t drift_ppb
		[SIM_MAX_DEVICES]; /* how much faster than the host's a device's clock runs, in 1e-9 */
};

struct sim_file {
	uint64_t magic;
	uint32_t layout;
	uint32_t ops_at; /* offset of the rings' ops, in pages of 4096 */
	struct sim_settings set;
	uint32_t lock __attribute__((aligned(64)));
	uint32_t pad;
	uint64_t now_ns __attribute__((aligned(64))); /* model time */
	uint64_t next_ns;      /* nothing changes before this time unless a process submits work */
	uint64_t done_seq;     /* completions so far */
	uint64_t serial;       /* processes so far */
	uint64_t checked_ns;   /* when the processes were last checked for life */
	uint64_t sample_at_ns; /* end of the current sample period */
	uint64_t recoveries;   /* times the lock was taken from a dead process */
	uint32_t holds;        /* a kernel that waits on the device was ever started */
	uint32_t queues;       /* owners: a ring ever shared a hardware queue */
	uint32_t priorities;   /* owners: a ring ever had a priority */
	uint32_t nactive;      /* derived */
	uint16_t active[SIM_MAX_RINGS];
	uint64_t announced[SIM_MAX_RINGS / 64] __attribute__((aligned(64))); /* owners: rings to be listed */
	uint32_t dirty; /* owners: a bit in announced is set */
	struct sim_group group[SIM_MAX_GROUPS];
	struct sim_device device[SIM_MAX_DEVICES];
	struct sim_proc proc[SIM_MAX_PROCS];
	struct sim_ring ring[SIM_MAX_RINGS] __attribute__((aligned(64)));
};

#endif
