/* An invented GPU as gpuarb-top would see it: pictures of any moment, the same in each run. */
#ifndef TEST_TOP_WORLD_H
#define TEST_TOP_WORLD_H

#include "tools/top/top_model.h"

#define W_SECOND 1000000000ull
#define W_START  (1000 * W_SECOND) /* the clients' clock when it begins */

/* An account that uses `share` of the GPU all the time, from one moment to another. */
struct w_account {
	const char *name;
	unsigned limit_ppm, quota_ppm;
	double share;
	double from_s, to_s; /* 0, 0: always */
	uint64_t mem_used, mem_limit;
	unsigned clients;
	const char *command, *container;
	unsigned reason;
	bool running, waiting;
	unsigned place;
	unsigned priority, request_ppm, weight; /* 0: 50, none, 100 */
};

/* Makes the picture of the moment `second` after the beginning. */
void w_picture(
	struct gpuarb_picture *picture, const struct w_account *accounts, unsigned count, double second);

/* Feeds the model with a picture every `step` seconds, from the first second to the last. */
void w_run(struct top_gpu *gpu, const struct w_account *accounts, unsigned count, double from, double to,
	double step);
void w_event(struct top_gpu *gpu, unsigned kind, const char *account, unsigned slot, double second,
	uint64_t a, uint64_t b);

/* Three limited accounts whose limits are scaled, one without a limit, one with a hostile name; some events have
 * happened. */
extern const struct w_account w_busy[];
extern const unsigned w_busy_count;
struct top_gpu *w_busy_gpu(double seconds);
/* A training job, two that have weights, and requests with a priority that stand above the job. */
extern const struct w_account w_shares[];
extern const unsigned w_shares_count;
struct top_gpu *w_shares_gpu(double seconds);
/* Adds the device as NVML sees it, and two processes on it that are no clients. */
void w_others(struct top_gpu *g);
void w_free(struct top_gpu *gpu);

#endif
