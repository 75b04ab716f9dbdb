/*
 * Admission: ask before starting a task on a shared GPU, and say when it is done.
 *
 *     struct gpuarb_request request = {.task_class = "asr"};
 *     struct gpuarb_lease lease = GPUARB_LEASE_INIT;
 *
 *     if (gpuarb_acquire(NULL, &request, &lease) == GPUARB_OK) {
 *         ... the task ...
 *         gpuarb_release(&lease);
 *     }
 *
 * Works in any program, with the preloaded library (whose client it shares) and without it (then the time
 * from acquire to release is what the program is billed for). All functions may be called by several threads
 * at once; none is for signal handlers. They print nothing and leave errno alone. A forked child has no
 * leases: its copies of the parent's leases cannot be released, and its own first call makes it a client of
 * its own. The lease of a process that dies is free within milliseconds for tasks that wait for it.
 */
#ifndef GPUARB_H
#define GPUARB_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The release that this header belongs to. gpuarb_version() is that of the library which a program has loaded. */
#ifndef GPUARB_VERSION
#define GPUARB_VERSION "0.1"
#endif

#define GPUARB_PUBLIC __attribute__((visibility("default")))

/* What gpuarb_acquire returns; a negative number is an error (-errno), see gpuarb_error_text(). */
enum gpuarb_result {
	GPUARB_OK = 0,      /* go ahead; gpuarb_release afterwards */
	GPUARB_TIMEOUT = 1, /* waited as long as it may; lease.reason says what for */
	GPUARB_SKIP = 2,    /* its class does not wait, and it could not go at once; lease.reason says why */
};

enum gpuarb_why {
	GPUARB_WHY_NONE = 0,
	GPUARB_GPU_USAGE_HIGH = 1, /* the GPU is under pressure, or its usage is not known */
	GPUARB_QUEUE = 2,          /* others go first, or the queue of its class is full */
	GPUARB_MEMORY = 3,         /* its memory does not fit together with the memory of those that run */
	GPUARB_QUOTA = 4,          /* its account has used up its share of this window */
};

/* What the program knows of a task beforehand; 0: nothing. A long task raises the water lines for a while. */
struct gpuarb_hint {
	uint32_t input_ms; /* length of what is to be worked on, such as an audio */
	uint32_t hold_ms;  /* how long it is expected to use the GPU */
};

#define GPUARB_CLASS_WAIT 0    /* max_wait_ms: as long as the class says */
#define GPUARB_NO_WAIT    (-1) /* max_wait_ms: not at all */

struct gpuarb_request {
	const char *task_class; /* of arbiter.conf or gpuarb-set; NULL: "default" */
	int64_t max_wait_ms;    /* GPUARB_CLASS_WAIT, GPUARB_NO_WAIT, or a time that replaces the class's */
	struct gpuarb_hint hint;
	uint64_t reserved[2]; /* 0 */
};

/* Zeros before its first use. Belongs to the library from acquire to release; only reason and waited_ns are
 * for the program. */
struct gpuarb_lease {
	void *client;
	uint64_t birth;
	uint32_t cancelled;
	uint32_t reason; /* enum gpuarb_why */
	uint64_t waited_ns;
	uint64_t reserved;
};

#define GPUARB_LEASE_INIT                                                                                    \
	{                                                                                                    \
		0, 0, 0, 0, 0, 0                                                                             \
	}

/*
 * A lease on the GPU for one task. gpu: its UUID as in the segment's name; NULL: GPUARB_GPU in the
 * environment, else the only GPU that has a segment. request NULL: a task of the class "default". Errors:
 * -ENODEV which GPU is not known, or there is none of that name, -ENOENT there is no such class, -EALREADY
 * this lease is held, -ECANCELED, -EINVAL, and those of joining the segment.
 */
GPUARB_PUBLIC int gpuarb_acquire(
	const char *gpu, const struct gpuarb_request *request, struct gpuarb_lease *lease);

/* Gives a lease back: once for each GPUARB_OK. Returns 0 also for a lease that is not held (a failed acquire, a
 * forked child). */
GPUARB_PUBLIC int gpuarb_release(struct gpuarb_lease *lease);

/* Called by another thread: an acquire that waits with this lease, or is about to begin, returns -ECANCELED. The
 * lease has to be set to zeros before it is used again. */
GPUARB_PUBLIC void gpuarb_cancel(struct gpuarb_lease *lease);

/* Gives a hint apart from a lease: for a program that learns it before or after it asks for the lease. Returns 1 if
 * the water lines are raised. */
GPUARB_PUBLIC int gpuarb_hint(const char *gpu, const struct gpuarb_hint *hint);

enum gpuarb_admission_state { GPUARB_NORMAL = 0, GPUARB_HIGH_PRESSURE = 1 };

struct gpuarb_status {
	uint32_t state;         /* enum gpuarb_admission_state */
	int32_t usage;          /* hundredths of a percent; -1: not known, which counts as pressure */
	int64_t usage_age_ms;   /* of the sample; -1: there is none, the usage was counted just now */
	uint32_t high_water;    /* percent, in force now */
	uint32_t low_water;     /* percent at which the pressure is over, in force now */
	uint32_t boost_left_ms; /* for how long the water lines stay raised; 0: they are not raised */
	uint32_t queue_len;     /* processes that wait */
	uint32_t leases;        /* processes that hold a lease */
	uint32_t own_leases;    /* leases that this process holds */

	/* This process's own part; zeros while it is no client of the GPU. */
	uint32_t core_limit; /* of its account, percent of the GPU's time; 100: none */
	uint32_t quota;      /* what that limit comes to now, beside the others; hundredths of a percent */
	uint32_t reason;     /* enum gpuarb_why: what it waits for */
	uint64_t window_ns;  /* length of a window */
	uint64_t window_used_ns;      /* what the account has used of this one */
	uint64_t debt_ns;             /* what it owes */
	uint64_t total_ns;            /* what it has used since it exists */
	uint64_t throttled_ns;        /* how long this process was held up because the quota was used up */
	uint64_t mem_used, mem_limit; /* of the account, bytes; limit 0: none */
	uint64_t reserved[4];
};

/* Looks without becoming a client. -ENOENT: this GPU has no segment. */
GPUARB_PUBLIC int gpuarb_status(const char *gpu, struct gpuarb_status *status);

/* The sentence that belongs to this thread's last error; never NULL. */
GPUARB_PUBLIC const char *gpuarb_error_text(void);

/* The release of the loaded library, such as "0.1". */
GPUARB_PUBLIC const char *gpuarb_version(void);

#ifdef __cplusplus
}
#endif

#endif
