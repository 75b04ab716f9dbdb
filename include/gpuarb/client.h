/*
 * A process as a client of one GPU's segment: join, run, be billed, wait, hold memory, leave.
 *
 * Functions return 0 or a negative errno, print nothing and leave errno alone. They may be called from
 * several threads; gpuarb_client_wait sleeps without holding up the others. After fork() the child's
 * first call joins anew, as a client of its own in the same account.
 */
#ifndef GPUARB_CLIENT_H
#define GPUARB_CLIENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define GPUARB_API __attribute__((visibility("default")))

struct gpuarb_client;
struct gpuarb_request; /* of gpuarb.h, as the next */
struct gpuarb_lease;

/* What went wrong, in one sentence that says what it was, where, and what is allowed. */
struct gpuarb_error {
	int code; /* negative errno */
	char text[512];
};

/* A field that is zero or NULL is taken from the environment, else from arbiter.conf, else it has its default. */
struct gpuarb_options {
	const char *gpu;  /* UUID, the name of the segment; required */
	const char *dir;  /* GPUARB_DIR, /dev/shm/gpuarb */
	const char *conf; /* GPUARB_CONF, /etc/gpuarb/arbiter.conf */
	/* GPUARB_ACCOUNT, else an account of this process's own; "@container": one for all processes of the
	 * container that it is in, named after it */
	const char *account;
	unsigned core_pct;  /* 1..100 */
	uint64_t mem_bytes; /* quota of the account */
	unsigned priority;  /* 1..100, higher goes first */
	bool ignore_env;    /* for programs with raised privileges */
	bool threads; /* several threads use the client all the time, so the lock prefers none of them */
	int *lock_fd; /* where to put a descriptor that holds the client's place as well, also after exec() */
	const char *limits_file; /* GPUARB_LIMITS_FILE; see gpuarb_client_follow */
	uint64_t
		physical; /* bytes of the GPU as the driver says, what quotas are promised of; 0: not known */
	unsigned request_pct; /* 0..100: of the GPU's time, whenever the account has work */
	unsigned weight;      /* 1..10000: how the time that nobody has requested is divided */
};

/* Joins the GPU's segment, or makes it. -EDQUOT: the quota does not fit into what the GPU may promise
 * (oversub_ratio); the sentence lists the promises. */
GPUARB_API int gpuarb_client_open(
	const struct gpuarb_options *options, struct gpuarb_client **client, struct gpuarb_error *err);
GPUARB_API void gpuarb_client_close(struct gpuarb_client *client);

/*
 * Does what on_error says where the GPU's segment cannot be had. 0: here is a client with its own limits in memory of
 * its own, as if it were alone on the GPU; -ENOENT: it has no limits, let it run; -ECONNREFUSED: on_error = closed. A
 * setting that is bad or cannot be read counts as not set here.
 */
GPUARB_API int gpuarb_client_open_alone(
	const struct gpuarb_options *options, struct gpuarb_client **client, struct gpuarb_error *err);

/*
 * After -ESTALE: joins the segment that is there now, or makes it, and takes along the memory that is counted for
 * this process. With `alone` it goes on as after gpuarb_client_open_alone, with the limits that were in force, if
 * there were any, until it may return. The client is outside the running set afterwards.
 */
GPUARB_API int gpuarb_client_rejoin(struct gpuarb_client *client, bool alone, struct gpuarb_error *err);
/* For a client that cannot rejoin: stays in the segment that is mapped, with all others that stay there.
 * -ECONNREFUSED as above. */
GPUARB_API int gpuarb_client_remain(struct gpuarb_client *client, struct gpuarb_error *err);
GPUARB_API bool gpuarb_client_is_alone(const struct gpuarb_client *client);
/*
 * Is the client alone, and can the segment be used again? Then the caller calls gpuarb_client_rejoin and, if that
 * fails, gpuarb_client_rejoin with `alone`. Opens the segment to find out: at most once a second, and once in ten
 * seconds after rejoining has failed.
 */
GPUARB_API bool gpuarb_client_may_return(struct gpuarb_client *client);

/* Returns the one client that this process has of that GPU, which the first caller opens and nobody closes; a forked
 * child gets a client of its own. tracked: the caller enters and leaves the running set as work comes and goes. */
GPUARB_API int gpuarb_client_shared(const struct gpuarb_options *options, bool tracked,
	struct gpuarb_client **client, struct gpuarb_error *err);

/*
 * gpuarb_acquire with this client, for a program that the process is about to become: the program's own client enters
 * the running set, this one only holds the lease. With GPUARB_OK viewers see the program's command in this slot.
 */
GPUARB_API int gpuarb_client_acquire_for(struct gpuarb_client *client, char *const *program,
	const struct gpuarb_request *request, struct gpuarb_lease *lease);

/* Says a sentence for each environment variable GPUARB_... that gpuarb does not know; returns how many there are. */
GPUARB_API int gpuarb_client_environment(void (*say)(void *argument, const char *sentence), void *argument);
/* Writes the names of those variables, for GPUARB_SAID: as many as there is room for. */
GPUARB_API void gpuarb_environment_unknown(char *names, size_t size);

/* GPU work that is about to begin. Zero means the default. */
struct gpuarb_work {
	uint64_t begin_ns;       /* when it began (CLOCK_MONOTONIC); 0: now */
	uint64_t outstanding_ns; /* work already queued, counted against the quota */
	unsigned weight;         /* 1..256; 0: 256, a client that keeps the device backlogged */
};

/*
 * Joins the running set if policy and quota allow it now. 0: running (also if it was already), -EAGAIN:
 * not now, gpuarb_client_status says why and for how long; -EBADMSG: the segment holds garbage;
 * -ESTALE: the segment's file was removed or replaced.
 */
GPUARB_API int gpuarb_client_enter(struct gpuarb_client *client, const struct gpuarb_work *work);

/* Enters the running set as gpuarb_client_enter does, and waits up to max_wait_ns for its turn or for quota: -ETIMEDOUT
 * after that. */
GPUARB_API int gpuarb_client_wait(
	struct gpuarb_client *client, const struct gpuarb_work *work, uint64_t max_wait_ns);

/* Puts the client back into the running set if it was taken out while its work ran on, whatever quota and policy
 * say. */
GPUARB_API int gpuarb_client_resume(struct gpuarb_client *client);

/* Leaves the running set as of end_ns (0: now) and hands over to the next client. Returns 0 also if the client did
 * not run. */
GPUARB_API int gpuarb_client_leave(struct gpuarb_client *client, uint64_t end_ns);

/*
 * Leaves the running set for a client that will be back soon. Where clients take turns, others wait and its turn is not
 * over, its place is kept for keep_ns, at most to the end of its turn, and the turn goes on when it enters again: returns
 * 1. If it does not come back, gpuarb_client_leave gives the place to the next client.
 */
GPUARB_API int gpuarb_client_pause(struct gpuarb_client *client, uint64_t end_ns, uint64_t keep_ns);

/*
 * At the program's end: gives back its place, its memory and its slot. What is left of the program may go on
 * using the client: it does not join again, and nothing is counted or refused any more.
 */
GPUARB_API void gpuarb_client_part(struct gpuarb_client *client);

/*
 * At the program's end: may the client be used? It may not if this thread was interrupted while it was using the
 * client. Then the next client that looks cleans up.
 */
GPUARB_API bool gpuarb_client_free(const struct gpuarb_client *client);

/* Returns the weights of the others that were in the running set when this thread entered or left it: 256 for each. */
GPUARB_API uint32_t gpuarb_client_beside(const struct gpuarb_client *client);

/*
 * This client has measured that the GPU serves its processes one after the other (time slices, one queue): it had
 * work on an idle stream, and others ran before it. Where the policy lets clients run together they take turns
 * from now on, for a minute (setting `alternation`). `trial`: it has not, but it cannot find out without being alone for a
 * moment; they take turns for 0.3 s.
 */
GPUARB_API void gpuarb_client_alternates(struct gpuarb_client *client, bool trial);

/*
 * Where turns are taken: the work that this client has on the GPU outlasts its turn, and none of it has ended for a
 * long time. A long kernel is one reason; another is a kernel that waits for a partner on another GPU, which may wait
 * for its own turn. So others need not wait for this client any longer, and its own turn does not end, until it says
 * that work has ended again.
 */
GPUARB_API void gpuarb_client_outlasts(struct gpuarb_client *client, bool outlasts);

/*
 * The oldest work of this client has taken far longer than it usually does, while the client may not launch: it waits
 * for a partner, perhaps on another GPU, perhaps for one without quota. While that lasts its account does not run into
 * debt: two ranks that each pay for the time in which they waited for the other would wait ever longer.
 */
GPUARB_API void gpuarb_client_stalls(struct gpuarb_client *client, bool stalls);

/* Counts `ns` of this client's time in the running set as estimated: no event of the GPU says when the work ended. */
GPUARB_API void gpuarb_client_estimated(struct gpuarb_client *client, uint64_t ns);

/* Makes a gpuarb_client_wait of another thread return -ECANCELED. */
GPUARB_API void gpuarb_client_cancel(struct gpuarb_client *client);

/*
 * To be called every few milliseconds while running: heartbeat, roll of the window, changed limits, and a
 * look whether the next member of the set is alive. -EDQUOT: the quota is used up, leave; -EAGAIN: its turn
 * is over and others wait, leave.
 */
GPUARB_API int gpuarb_client_tick(struct gpuarb_client *client);

/* Counts memory against the account's quota before it is allocated: 0, or -ENOMEM and nothing counted. */
GPUARB_API int gpuarb_client_mem_reserve(struct gpuarb_client *client, uint64_t bytes);
GPUARB_API int gpuarb_client_mem_release(struct gpuarb_client *client, uint64_t bytes);
/*
 * Reserves memory for a caller that can make room and ask again: no event is written if there is no memory. -EAGAIN:
 * calls under way, of any member of the account, may give back what is missing. `most`: the call may need less than
 * `bytes`; it counts as under way until gpuarb_client_mem_settled, and the caller gives back what it did not need
 * before that.
 */
GPUARB_API int gpuarb_client_mem_try(struct gpuarb_client *client, uint64_t bytes, bool most);
GPUARB_API void gpuarb_client_mem_settled(struct gpuarb_client *client);
/*
 * As gpuarb_client_mem_try, where `gone` bytes of the account are known not to be on the device because other members
 * are checkpointed. This call does not count them against the quota; the books stay as they are.
 */
GPUARB_API int gpuarb_client_mem_try_gone(
	struct gpuarb_client *client, uint64_t bytes, bool most, uint64_t gone);

/*
 * Returns the bytes held by other processes of the account that are checkpointed. Each is asked, and has some ms to
 * answer; if it does not answer, its last answer counts.
 */
GPUARB_API uint64_t gpuarb_client_mem_gone(struct gpuarb_client *client);

/*
 * For a thread that only asks the driver whether this process is frozen by a checkpoint, and passes the answer on. It
 * reads how often it was asked, asks the driver, says the answer (ARB_FROZEN_* of abi.h), and sleeps until another
 * client asks again, or until `own`, a futex of this process, is no longer `value`, for `ns` at most (0: for ever).
 * Once it has read that number for the first time, others take it that this process answers.
 */
GPUARB_API uint32_t gpuarb_client_asked_frozen(struct gpuarb_client *client);
GPUARB_API void gpuarb_client_say_frozen(struct gpuarb_client *client, unsigned state);
GPUARB_API void gpuarb_client_await_frozen(struct gpuarb_client *const *clients, const uint32_t *asked,
	unsigned n, uint32_t *own, uint32_t value, uint64_t ns);
/* Asks this process itself. */
GPUARB_API void gpuarb_client_ask_frozen(struct gpuarb_client *client);

/* A process of the account, and what it holds. */
struct gpuarb_holder {
	unsigned pid;   /* in its own namespace */
	bool self;      /* this process */
	bool elsewhere; /* in another PID namespace than this process */
	char command[16];
	char container[64]; /* empty: in none */
	uint64_t bytes;
};

#define GPUARB_HOLDERS 4

/* Why there was no memory, for people. */
struct gpuarb_refusal {
	unsigned why;    /* enum arb_refusal */
	uint64_t bytes;  /* bytes that were wanted; 0: not known */
	uint64_t bound;  /* the bound that they would have exceeded; 0: none */
	uint64_t used;   /* bytes of that bound that were in use before */
	uint64_t others; /* what all other accounts hold on that GPU */
	char account[64];
	unsigned nholders;                           /* how many there are in all */
	struct gpuarb_holder holder[GPUARB_HOLDERS]; /* clients that use it, the largest first */
};

/* Writes the event that the program was refused `bytes`, and fills in `what`, which may be NULL. Returns false if
 * this process is not a client now; then nothing was written. */
GPUARB_API bool gpuarb_client_mem_refused(
	struct gpuarb_client *client, uint64_t bytes, struct gpuarb_refusal *what);
/* As gpuarb_client_mem_refused, where the quota had room and the driver had no memory; the caller releases what it had
 * reserved. */
GPUARB_API bool gpuarb_client_mem_driver_refused(
	struct gpuarb_client *client, uint64_t bytes, struct gpuarb_refusal *what);
/* Tells how much memory the GPU has, as the driver says; the setting physical_memory_mb stands above it. -EDQUOT: the
 * size was not known when the client joined, and its quota cannot be promised on a GPU of this size; it should not
 * use the GPU. */
GPUARB_API int gpuarb_client_set_physical(struct gpuarb_client *client, uint64_t bytes);
/* Returns the sentence about the last -EDQUOT, which lists the promises. */
GPUARB_API const char *gpuarb_client_denied(const struct gpuarb_client *client);
/* Names the words that were restored since the last call: "its bill, the clocks in FILE". Returns how many times that
 * was; 0: never. */
GPUARB_API uint32_t gpuarb_client_restored_words(struct gpuarb_client *client, char *text, size_t size);
/* Returns NULL, or the owner of the account that the client asked for and did not get; `name` is the account that it
 * has instead. */
GPUARB_API const char *gpuarb_client_turned_away(struct gpuarb_client *client, char *name, size_t size);
/* gpuarb_client_used tells how much of the GPU's memory is in use, by clients or others, as the driver says. From
 * this, clients that take turns at the memory know how much others have. It is due if the policy is memory, at most
 * ten times a second. */
GPUARB_API bool gpuarb_client_used_due(const struct gpuarb_client *client);
GPUARB_API void gpuarb_client_set_used(struct gpuarb_client *client, uint64_t bytes);
/* Reads what the account's living members have counted, and its quota (0: none). Cleans up behind the dead. */
GPUARB_API int gpuarb_client_mem_read(struct gpuarb_client *client, uint64_t *used, uint64_t *limit);

/*
 * Sets the limits that the client itself asks for (environment, limits file); what an administrator set stands above.
 * Zero leaves a limit as it is; core_pct 100 and GPUARB_MEM_UNLIMITED take a limit back. -EDQUOT: the quota cannot be
 * raised because the GPU may not promise more; it stays as it was, and the rest is done.
 */
#define GPUARB_MEM_UNLIMITED UINT64_MAX
GPUARB_API int gpuarb_client_set_limits(
	struct gpuarb_client *client, unsigned core_pct, uint64_t mem_bytes, unsigned priority);

/* Sets the account's request (0..100) and weight (1..10000; 0: as it is); what an administrator set stands above.
 * -EDQUOT: all requests of the GPU would add up to more than 100; nothing has changed. */
GPUARB_API int gpuarb_client_set_share(struct gpuarb_client *client, unsigned request_pct, unsigned weight);

/* Shows the first `n` of enum arb_counter to viewers. No decision depends on them. */
GPUARB_API int gpuarb_client_counters(struct gpuarb_client *client, const uint64_t *counters, unsigned n);
/* Shows the names that ARB_COUNTER_PAST_UNKNOWN counts, as far as there is room. */
GPUARB_API int gpuarb_client_unknown(struct gpuarb_client *client, const char *names);

/*
 * Follows the limits file, if there is one: lines gpuarb.dev/core-limit="40", gpuarb.dev/memory-limit="4Gi" as
 * Kubernetes' downward API writes annotations, or a bare number, the share. Ticking, waiting and reserving memory do
 * it too; this function is for a client that does none of them for a long time. `next_ns` (may be NULL): when to call
 * again, 0 if there is no file. 1: new limits; 0: nothing new; -errno, with a sentence that is given once: the file
 * is gone or makes no sense, and the last limits stay.
 */
GPUARB_API int gpuarb_client_follow(
	struct gpuarb_client *client, uint64_t *next_ns, struct gpuarb_error *err);

struct gpuarb_client_memory {
	uint64_t used, quota;  /* of the account; 0: no quota */
	uint64_t mine;         /* the part of `used` that this process holds */
	uint64_t limit, left;  /* what a program is told: in all, and left; 0: as the driver says */
	uint64_t physical;     /* 0: not known */
	uint64_t context;      /* what a context counts */
	bool context_measured; /* a context counts what it was measured to take */
	bool oversubscribe, prefetch;
};

/*
 * Returns in *bytes what all clients of the GPU have by their books, and what other processes were last found to
 * have. What the device has in use beyond that belongs to nobody yet. False: this process is no client of a segment.
 */
GPUARB_API bool gpuarb_client_mem_explained(struct gpuarb_client *client, uint64_t *bytes);

/* Are device allocations to be turned into managed memory? Costs nothing. */
GPUARB_API bool gpuarb_client_oversubscribes(const struct gpuarb_client *client);
GPUARB_API int gpuarb_client_memory(struct gpuarb_client *client, struct gpuarb_client_memory *memory);
/* Tells what a client with these options would be told, without becoming one: it takes no slot; nothing is made,
 * written or kept open. `physical`: the GPU's memory, if the segment does not say; 0: not known. */
GPUARB_API int gpuarb_client_look(
	const struct gpuarb_options *options, uint64_t physical, struct gpuarb_client_memory *memory);

/* True once for each turn at the GPU's memory: what was on the GPU before may have been pushed out. */
GPUARB_API bool gpuarb_client_turn_began(struct gpuarb_client *client);

struct gpuarb_client_status {
	unsigned slot;
	unsigned account;
	bool running;
	unsigned others;    /* how many other clients are in the running set */
	bool turns;         /* the policy makes clients wait for each other */
	int tail_pct;       /* how much of the work queued when it was stopped is billed; -1: all of it */
	uint64_t look_ns;   /* how often to look at the bill; 0: as often as a limit needs it */
	unsigned reason;    /* enum arb_reason: why it does not run */
	unsigned core_pct;  /* the limit in force */
	unsigned quota_ppm; /* effective: after scaling, or by requests and weights */
	bool shares; /* by requests and weights: the quota may be below 100 although the limit is not */
	unsigned request_pct;
	bool in_request; /* its account has not used its request in this window, so it stops for no other client */
	/* A client for which this client stops has work, so this client must not launch: its gate is closed. */
	bool below;
	/* A client of a higher priority was active in the last second: keep little work queued. */
	bool above_present;
	/* Another account that has a request was active in the last second: keep less work queued than beside
	 * accounts without one. */
	bool request_present;
	/* Others may close this client's gate: look at it before a launch (gpuarb_client_may_launch). */
	bool gated;
	/* How long its turn lasts while others wait for theirs; UINT64_MAX: no other client waits. */
	uint64_t turn_left_ns;
	uint64_t window_ns; /* length of the window */
	uint64_t window_end_ns;
	uint64_t used_ns;      /* by the account in this window */
	uint64_t left_ns;      /* until its cap; 0: used up */
	uint64_t debt_ns;      /* beyond its cap */
	uint64_t total_ns;     /* billed to the account since it exists */
	uint64_t throttled_ns; /* by this client, refused for quota */
	uint64_t waited_ns;    /* by this client, in the queue or below others that had work */
	uint64_t mem_used;     /* of the account */
	uint64_t mem_limit;    /* 0: none */
	uint32_t
		restored; /* how often it found its own words in the segment written over, and restored them */
	/* By how many times the account's bill grows slower than time, while those run that are in the set now. */
	uint32_t slower;
};

/*
 * Returns whether the client's gate is open: true while the client is in the running set and stops for no other. A
 * client of a higher level may close the gate at any moment, without a wake-up; gpuarb_client_tick says why, and
 * opens the gate again when the reason is gone. Costs one load.
 */
GPUARB_API bool gpuarb_client_may_launch(struct gpuarb_client *client);

GPUARB_API int gpuarb_client_status(struct gpuarb_client *client, struct gpuarb_client_status *status);
/*
 * Ticks and reads the status right after it, for little more than the cost of the tick. Returns what
 * gpuarb_client_tick does; *told is what gpuarb_client_status would have returned. Both are as of at_ns (0: now), the
 * time at which the caller last saw that its work had not ended: if the work ends after that, the end can still be
 * dated, even if the caller was stopped in here.
 */
GPUARB_API int gpuarb_client_tick_status(
	struct gpuarb_client *client, uint64_t at_ns, struct gpuarb_client_status *status, int *told);
/* Writes a sentence about its account and the limits in force, as the segment has them: "account web may use 30
 * percent of ...". */
GPUARB_API int gpuarb_client_terms(struct gpuarb_client *client, char *text, size_t size);

#ifdef __cplusplus
}
#endif

#endif
