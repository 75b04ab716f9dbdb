/*
 * The tools' view: change settings and limits, look at everything, clean up behind the dead, check.
 * `dir` NULL means GPUARB_DIR, else /dev/shm/gpuarb. All return 0 (or a count) or a negative errno.
 */
#ifndef GPUARB_CONTROL_H
#define GPUARB_CONTROL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gpuarb/abi.h"
#include "gpuarb/client.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Returns the directory that is meant: `dir`, else that of GPUARB_DIR, else the default. */
GPUARB_API const char *gpuarb_control_dir(const char *dir);
/* Can this be the name of a GPU, and so of its files? */
GPUARB_API bool gpuarb_gpu_name_ok(const char *gpu);
/* Is it a whole UUID, as the driver writes it: GPU- or MIG-, then 8-4-4-4-12 hexadecimal digits? */
GPUARB_API bool gpuarb_gpu_is_uuid(const char *gpu);

struct gpuarb_config; /* of gpuarb/config.h */

/* Bytes of shared memory that the two segments of a GPU take. */
GPUARB_API uint64_t gpuarb_control_bytes(unsigned slots);
/* Gives the rights of the file of a segment's locks (DIR/state/.GPU.locks), by those of the state segment: a user who
 * may only read the segment may not open the file of its locks. */
GPUARB_API unsigned gpuarb_control_lock_mode(unsigned state);
/* Makes the directories of the segments where they are missing, with modes that fit those of `config`. */
GPUARB_API int gpuarb_control_directories(
	const char *dir, const struct gpuarb_config *config, struct gpuarb_error *err);
/* Makes the segments of a GPU where they are missing. *slots: how many the state segment has. */
GPUARB_API int gpuarb_control_create(const char *dir, const char *gpu, const struct gpuarb_config *config,
	unsigned *slots, struct gpuarb_error *err);
/* Has the GPU a state segment? Returns true also where that cannot be seen: opening it says why. */
GPUARB_API bool gpuarb_control_exists(const char *dir, const char *gpu);
/* May this process use the state segment as clients do? Changes nothing. -ENOENT: there is none. */
GPUARB_API int gpuarb_control_try_state(
	const char *dir, const char *gpu, unsigned *slots, struct gpuarb_error *err);
/* May this process read the settings? -ENOENT: there is no control segment. */
GPUARB_API int gpuarb_control_try_settings(const char *dir, const char *gpu, struct gpuarb_error *err);
/*
 * Reads everything that is set for a GPU: settings, limits of accounts, classes (the first is the default class; a
 * place without a name is free). After an error `config` holds the defaults. gpuarb_config_free frees it in both
 * cases.
 */
GPUARB_API int gpuarb_control_read(
	const char *dir, const char *gpu, struct gpuarb_config *config, struct gpuarb_error *err);

/* One setting to change. account NULL: a setting of the GPU. value NULL: the setting of an account is taken back, as
 * if it had never been set. */
struct gpuarb_change {
	const char *account;
	const char *key;
	const char *value;
};

/* Makes all of the changes or none: they are checked first, then published together, and every client is woken. Makes
 * the control segment if there is none. -EACCES: only users who may write it may change limits. */
GPUARB_API int gpuarb_control_change(const char *dir, const char *gpu, const struct gpuarb_change *changes,
	size_t count, struct gpuarb_error *err);

/* One setting of a task class to change; a class that is not there is made. value NULL: back to the default; key
 * NULL: the class is removed. */
struct gpuarb_class_change {
	const char *task_class;
	const char *key;
	const char *value;
};

/* Changes task classes: all of the changes or none, as gpuarb_control_change. */
GPUARB_API int gpuarb_control_change_classes(const char *dir, const char *gpu,
	const struct gpuarb_class_change *changes, size_t count, struct gpuarb_error *err);

/* Gives the value of a setting as text; account NULL: a setting of the GPU. -ENOENT: it is not set for this account;
 * -EINVAL: there is no such setting, or accounts do not have it, or only accounts have it. */
GPUARB_API int gpuarb_control_get(const char *dir, const char *gpu, const char *account, const char *key,
	char *text, size_t size, struct gpuarb_error *err);

/* Gives a setting of a class as text. -ENOENT: there is no such class. */
GPUARB_API int gpuarb_control_class(const char *dir, const char *gpu, const char *task_class, const char *key,
	char *text, size_t size, struct gpuarb_error *err);

/* Lists the names of the GPUs that have a segment; `names` is filled up to `most`. Returns how many there are. */
GPUARB_API int gpuarb_control_list(
	const char *dir, char names[][ARB_UUID_BYTES], size_t most, struct gpuarb_error *err);

struct gpuarb_reclaimed {
	unsigned slot;
	unsigned pid;
	uint64_t pid_ns;
	char command[ARB_COMMAND_BYTES];
	char account[ARB_NAME_BYTES];
	uint64_t used_ns;
	uint64_t freed_bytes;
	bool was_running;
};

/* Cleans up behind every dead client; returns how many there were. */
GPUARB_API int gpuarb_control_reap(const char *dir, const char *gpu,
	void (*each)(void *argument, const struct gpuarb_reclaimed *what), void *argument,
	struct gpuarb_error *err);

/*
 * Replaces records that break their own invariants by records that keep them, as the next client would. Calls `say`
 * with a sentence for each; returns their number.
 */
GPUARB_API int gpuarb_control_repair(const char *dir, const char *gpu,
	void (*say)(void *argument, const char *sentence), void *argument, struct gpuarb_error *err);

/* What a watchdog has seen of a GPU's accounts; it passes this to each gpuarb_control_audit. */
struct gpuarb_books;
GPUARB_API struct gpuarb_books *gpuarb_control_books(void);
GPUARB_API void gpuarb_control_books_free(struct gpuarb_books *books);
/*
 * Restores accounts without members that another process has written over, as far as their words can be known (by
 * `books`, which it brings up to date, and by the event ring), and corrects bills that do not add up. Calls `say`
 * with a sentence for each; returns their number.
 */
GPUARB_API int gpuarb_control_audit(const char *dir, const char *gpu, struct gpuarb_books *books,
	void (*say)(void *argument, const char *sentence), void *argument, struct gpuarb_error *err);

/* Calls `say` with a sentence for each violated invariant; returns their number. */
GPUARB_API int gpuarb_control_check(const char *dir, const char *gpu,
	void (*say)(void *argument, const char *sentence), void *argument, struct gpuarb_error *err);

/* Lets this process sample the utilisation of that GPU from now on, in a thread of its own (NULL: of all GPUs that
 * have a segment, or get one later); clients leave the sampling to it. It ends with the process. */
GPUARB_API int gpuarb_control_sample(const char *dir, const char *gpu, struct gpuarb_error *err);

/* Tells what NVML says of a GPU's memory, for clients that take turns at it: bytes in use, and those of processes
 * that are no clients; NULL: they cannot be told apart, so what exceeds the clients' memory counts as theirs. */
GPUARB_API int gpuarb_control_foreign(
	const char *dir, const char *gpu, uint64_t used, const uint64_t *foreign, struct gpuarb_error *err);

/* An observer. Maps both segments read-only; any number of observers costs the clients nothing. */
struct gpuarb_view;

struct gpuarb_view_client {
	unsigned slot, generation;
	unsigned pid, uid;
	uint64_t pid_ns, start_time;
	char command[ARB_COMMAND_BYTES];
	char container[ARB_NAME_BYTES];
	unsigned account; /* index into accounts[], or ARB_NONE */
	unsigned priority, reason;
	bool running, waiting, evicted;
	unsigned frozen;  /* ARB_FROZEN_* */
	bool dead;        /* it has died and its slot is not cleaned up yet; its account does not count it */
	uint64_t used_ns; /* billed since it joined */
	uint64_t throttled_ns, waited_ns, wait_since_ns;
	uint64_t mem_bytes;
	uint64_t turn_since_ns; /* its turn at the GPU's memory; 0: it has none, or there are no turns */
	uint64_t enters, evictions;
	uint64_t restored; /* how often it found its own words written over */
	uint64_t joined_ns, heartbeat_ns;
	uint64_t counter[ARB_COUNTERS];
	char unknown[ARB_UNKNOWN_BYTES]; /* names behind ARB_COUNTER_PAST_UNKNOWN; not to be trusted */
	unsigned queue_place;            /* 1: next; 0: not waiting */
	/* Admission: whether it waits, with which class, since when; how many leases it holds, got, and was
	 * refused. */
	bool adm_waiting;
	char adm_class[ARB_CLASS_BYTES];
	uint64_t adm_since_ns;
	unsigned adm_leases;
	uint64_t adm_granted, adm_refused;
	uint64_t used_now_ns; /* used_ns counted on to this moment */
	/* How long it was in the running set, and how much of that was estimated, not measured by the GPU's events. */
	uint64_t in_set_ns, estimated_ns;
};

#define GPUARB_VIEW_STARTS 32

/* An account whose program waits for a promise, of memory or of time, to start. */
struct gpuarb_view_start {
	char account[ARB_NAME_BYTES];
	uint64_t bytes;       /* 0: its memory fits, or it asks for none */
	unsigned request_pct; /* the same of the GPU's time */
	uint64_t since_ns;
	uint64_t ticket; /* lower goes first */
};

struct gpuarb_view_account {
	unsigned index;
	char name[ARB_NAME_BYTES];
	unsigned clients;
	bool active;
	unsigned limit_ppm, quota_ppm;
	unsigned request_ppm, weight;
	uint64_t used_ns;   /* since the account exists, up to the last transition: never decreases */
	uint64_t window_ns; /* used in this window */
	uint64_t left_ns, debt_ns, borrowed_ns;
	uint64_t mem_used, mem_peak, mem_limit;
	uint64_t restored;     /* how often it was restored while nobody used it */
	uint64_t mem_promised; /* by gpuarb-run, or the quota of an account without such a promise; 0: none */
	uint64_t used_now_ns; /* used_ns counted on to this moment; a client that leaves may take some back */
};

/* A class of tasks and how many processes wait with it. */
struct gpuarb_view_class {
	char name[ARB_CLASS_BYTES];
	unsigned priority;
	bool skip; /* never waits */
	bool pass; /* goes under pressure too */
	unsigned max_wait_ms, queue_limit;
	unsigned waiting;
	unsigned index; /* the index by which events name it */
};

struct gpuarb_view_admission {
	bool high_pressure;        /* the state: NORMAL or HIGH_PRESSURE; unknown usage counts as pressure */
	bool usage_known;          /* known by a sample that is not too old, else by the busy clock now */
	unsigned usage_hundredths; /* of a percent, 0..10000 */
	unsigned source;           /* enum arb_sample_source; none: counted just now from the busy clock */
	bool sampled;              /* there has been a sample */
	uint64_t sample_age_ns;    /* the age of the sample */
	unsigned high_water, low_water; /* percent, in force now */
	uint64_t boost_until_ns;        /* raised until then; 0: they are not */
	unsigned leases;                /* processes that hold one */
	unsigned queue_len;             /* processes that wait */
	unsigned nclasses;
	struct gpuarb_view_class classes[ARB_CLASSES];
};

struct gpuarb_picture {
	bool consistent; /* all of it belongs to one moment */
	bool only_looks; /* the caller may not open the locks: deaths are told by process ids, promises are not shown */
	uint64_t now_ns;
	char uuid[ARB_UUID_BYTES];
	unsigned nslots, nrunning, nwaiting;
	uint64_t busy_ns;   /* the GPU, since the segment exists */
	uint64_t billed_ns; /* the sum of all bills, which must equal it */
	uint64_t window_number, window_start_ns, window_ns, window_busy_ns;
	uint64_t reclaimed;
	int reserved_slot;         /* -1: none */
	uint64_t mem_physical;     /* bytes of the GPU; 0: not known */
	uint64_t mem_foreign;      /* counted for processes that are no clients, by clients that take turns */
	uint64_t mem_used;         /* by all accounts */
	uint64_t mem_promised;     /* quotas of all accounts, also of those whose programs have not begun */
	uint64_t mem_promise_most; /* the most that quotas may add up to; 0: not known */
	unsigned requests_pct;     /* all requests together, also those of accounts without processes */
	unsigned npromises_waiting; /* gpuarb-run --wait */
	unsigned nmem_waiting; /* clients that wait because of memory: ARB_REASON_MEMORY, wait_since_ns */
	int64_t setting[ARB_KEYS_MAX]; /* by key; what is in force */
	unsigned nclients, naccounts;
	unsigned ndead; /* of the clients */
	struct gpuarb_view_client clients[ARB_SLOTS_MAX];
	struct gpuarb_view_account accounts[2 * ARB_SLOTS_MAX];
	uint64_t busy_now_ns; /* busy_ns counted on to this moment; the window's figures are as well */
	struct gpuarb_view_admission admission;
	unsigned nstarts; /* programs that wait to start, in order; in all there are npromises_waiting */
	struct gpuarb_view_start starts[GPUARB_VIEW_STARTS];
};

GPUARB_API int gpuarb_view_open(
	const char *dir, const char *gpu, struct gpuarb_view **view, struct gpuarb_error *err);
GPUARB_API void gpuarb_view_close(struct gpuarb_view *view);
/* -ESTALE: the segment was removed or replaced; open a new view. */
GPUARB_API int gpuarb_view_read(struct gpuarb_view *view, struct gpuarb_picture *picture);
/* Returns how much time the account's quota grants in one window. */
GPUARB_API uint64_t gpuarb_view_grant_ns(
	const struct gpuarb_picture *picture, const struct gpuarb_view_account *account);

struct gpuarb_event {
	uint64_t position;
	uint64_t time_ns;
	const char *name;
	unsigned kind, slot, generation;
	unsigned account; /* ARB_NONE: of the GPU as a whole */
	uint64_t a, b, c;
	unsigned why;   /* enum arb_event_kind says what these four mean */
	unsigned times; /* how often it happened, at least 1 */
};

/* Reads the events from *position on (0: the oldest there is), and moves *position on. Returns how many it read, up
 * to `most`. */
GPUARB_API int gpuarb_view_events(
	struct gpuarb_view *view, uint64_t *position, struct gpuarb_event *events, size_t most);
/* Gives the name that an account has or last had, by the index that events carry; false: there is none. */
GPUARB_API bool gpuarb_view_account_name(
	const struct gpuarb_view *view, unsigned index, char name[ARB_NAME_BYTES]);

#ifdef __cplusplus
}
#endif

#endif
