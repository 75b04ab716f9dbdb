/* What gpuarb-top knows: the last picture of each GPU, and the numbers over the last minutes. Pure: pictures and
 * events go in, numbers come out; no clock, no files, no terminal. */
#ifndef TOOLS_TOP_MODEL_H
#define TOOLS_TOP_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gpuarb/control.h"

#include "tools/common/nonclients.h"

#define TOP_GPUS    64
#define TOP_SAMPLES 640 /* at most one per 100 ms: more than a minute */
#define TOP_SPANS   3
#define TOP_BUCKETS 512 /* seconds of a GPU's history */
#define TOP_SPARK   64  /* seconds of an account's history */
#define TOP_EVENTS  4096
/* NVML's figure is in whole percents over periods of its own. It is worth a warning if it exceeds the bills for this
 * long and by this much. */
#define TOP_UNBILLED_S     10
#define TOP_UNBILLED_LEAST 0.10

extern const unsigned top_span_s[TOP_SPANS]; /* 1, 10, 60 */

enum top_state {
	TOP_GONE, /* no living process is attached */
	TOP_IDLE,
	TOP_RUNNING,
	TOP_THROTTLED, /* held up because its quota is used up */
	TOP_WAITING,   /* for its turn */
	TOP_MEMORY,    /* for memory */
	TOP_PRESSURE,  /* for the GPU's utilisation to fall */
	TOP_EVICTED,
	TOP_FROZEN, /* by a checkpoint */
	TOP_STATES
};

/* A share of the GPU's time, known if it was watched for long enough. */
struct top_share {
	bool known;
	double value;
};

/* Shares of a second each, in thousandths, the newest last. */
struct top_history {
	unsigned count;
	uint16_t permille[TOP_BUCKETS];
};

struct top_account {
	struct gpuarb_view_account now; /* as in the last picture that had it */
	bool present;
	bool open;                  /* its processes are shown */
	uint64_t used[TOP_SAMPLES]; /* indexed by the number of the sample */
	uint64_t since;             /* the number of the first sample that has it */
	uint64_t seen_ns;           /* when it was last in a picture */
	uint64_t bucket_used;
	struct top_share share[TOP_SPANS];
	unsigned spark_count;
	uint16_t spark[TOP_SPARK];

	/* For all of its processes together. */
	enum top_state state;
	unsigned processes, running, waiting;
	unsigned queue_place; /* of the first in the queue; 0: none waits */
	unsigned priority;
	uint64_t throttled_ns, waited_ns, in_set_ns, estimated_ns;
	uint64_t wait_since_ns; /* of the longest wait; 0: none */
	unsigned admission_waiting;
	const char *command, *container; /* if all processes have the same; otherwise NULL */
};

struct top_event {
	struct gpuarb_event e;
	char account[ARB_NAME_BYTES];
};

struct top_gpu {
	const struct gpuarb_picture *picture; /* the last one; NULL before the first */
	char name[96];                        /* of the model; empty: not known */
	char index[24];                       /* its number, as the driver counts; empty: not known */
	struct nonclients others;    /* what NVML says of the device, and programs that are no clients */
	uint64_t real_minus_mono_ns; /* makes a time of day of the clients' clock */

	uint64_t samples; /* how many there have been */
	uint64_t at_ns[TOP_SAMPLES];
	uint64_t busy[TOP_SAMPLES];
	struct top_share share[TOP_SPANS];
	struct top_history history;
	uint64_t bucket_ns, bucket_busy;

	/* Sums of NVML's utilisation, and since when it has been known without a gap; 0: it is not known. */
	uint64_t device[TOP_SAMPLES];
	uint64_t device_since_ns;
	/* What NVML saw over the last TOP_UNBILLED_S and no client was billed for. */
	struct top_share unbilled;

	struct top_account **accounts;
	unsigned naccounts, room;
	/* Where an account was last; an entry counts only if the name is the same. */
	struct top_account *by_index[2 * ARB_SLOTS_MAX];
	/* For each client in the picture. */
	struct top_share client_share[ARB_SLOTS_MAX];
	enum top_state client_state[ARB_SLOTS_MAX];

	/* For each slot: whose numbers these are, and when its wait for quota began (0: it does not wait). */
	struct {
		unsigned generation;
		uint64_t used_ns, at_ns, throttled_since_ns;
		unsigned host_pid; /* its pid where we are; 0: not known */
		uint64_t pid_again_ns;
	} slot[ARB_SLOTS_MAX];

	struct top_event events[TOP_EVENTS]; /* by number */
	uint64_t nevents;                    /* how many there have been */
};

const char *top_state_name(enum top_state state);

/* Writes the UUID, with the driver's number behind it if that is known: "GPU-465b... (GPU 0)". Returns `to`. */
char *top_gpu_text(const struct top_gpu *gpu, char *to, size_t size);

/* Takes in an event; called before the picture that was read after it. */
void top_gpu_event(struct top_gpu *gpu, const struct gpuarb_event *event, const char *account);
/* Takes in a picture, which must stay where it is until the next one. Returns false if memory is short. */
bool top_gpu_update(struct top_gpu *gpu, const struct gpuarb_picture *picture);
void top_gpu_clear(struct top_gpu *gpu);

struct top_account *top_gpu_account(const struct top_gpu *gpu, const char *name);
/* Returns the account of a client in the picture, or NULL. */
struct top_account *top_gpu_owner(const struct top_gpu *gpu, const struct gpuarb_view_client *client);

/* Returns since when a client waits for its turn, for memory or for a lease; 0: it does not. */
uint64_t top_client_wait_since_ns(const struct gpuarb_view_client *client);
/* How long a client has been refused for quota, with what is still going on. */
/* Percent of a bill that was measured by the GPU's events; -1: there is none yet. */
double top_measured_percent(uint64_t in_set_ns, uint64_t estimated_ns);
uint64_t top_client_throttled_ns(const struct top_gpu *gpu, const struct gpuarb_view_client *client);
/* Returns the sum of the limits of the active accounts that have one. */
uint64_t top_gpu_limits_ppm(const struct top_gpu *gpu);

#endif
