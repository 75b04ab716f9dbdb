/* The watchdog's sampling: a process that is a client of no GPU samples all GPUs of a machine. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "gpuarb/control.h"
#include "units.h"

#include "shm/client/control_segment.h"
#include "shm/base/error.h"
#include "shm/admission/sampler_nvml.h"
#include "shm/base/os.h"
#include "shm/admission/sampler.h"
#include "shm/segment/segment.h"
#include "shm/segment/settings.h"

#define GPUS_MOST   64
#define RELIST_NS   (1000 * MS)
#define PATIENCE_NS (100 * MS)
#define AGAIN_NS    (5 * MS)

struct charge {
	char gpu[ARB_UUID_BYTES]; /* empty: a free place */
	struct arb_segment seg;
	struct arb_sampler sampler;
	struct arb_rules rules;
};

struct node_sampler {
	const char *only;
	char dir[PATH_MAX];
	char name[ARB_UUID_BYTES];
	struct charge charges[GPUS_MOST];
};

static void let_go(struct charge *c)
{
	arb_sampler_stop(&c->sampler);
	arb_segment_close(&c->seg);
	memset(c, 0, sizeof(*c));
}

static void take_on(struct node_sampler *s, const char *gpu)
{
	struct charge *free_place = NULL;

	for (int i = 0; i < GPUS_MOST; i++) {
		if (strcmp(s->charges[i].gpu, gpu) == 0)
			return;
		if (!s->charges[i].gpu[0] && !free_place)
			free_place = &s->charges[i];
	}
	if (!free_place || arb_segment_open(&free_place->seg, s->dir, gpu, true, NULL, NULL) < 0)
		return;
	strncpy(free_place->gpu, gpu, sizeof(free_place->gpu) - 1);
	free_place->sampler = (struct arb_sampler){.for_node = true};
}

/* Finds the GPUs that have come and gone, and reads their settings. */
static void relist(struct node_sampler *s)
{
	static char names[GPUS_MOST][ARB_UUID_BYTES];
	int n;

	for (int i = 0; i < GPUS_MOST; i++) {
		struct charge *c = &s->charges[i];
		int fd = c->gpu[0] ? arb_segment_locks(&c->seg, O_RDONLY) : -1;

		if (fd >= 0)
			arb_os_close(fd);
		else if (c->gpu[0])
			let_go(c);
	}
	if (s->only) {
		take_on(s, s->only);
	} else {
		n = gpuarb_control_list(s->dir, names, GPUS_MOST, NULL);
		for (int i = 0; i < n && i < GPUS_MOST; i++)
			take_on(s, names[i]);
	}
	for (int i = 0; i < GPUS_MOST; i++)
		if (s->charges[i].gpu[0])
			arb_control_rules(s->dir, s->charges[i].gpu, &s->charges[i].rules);
}

static uint64_t step(struct charge *c)
{
	uint64_t next_ns;

	if (arb_sampler_due(&c->sampler, &c->seg, &c->rules.usage, arb_os_now_ns(), &next_ns) &&
		!arb_sampler_put(&c->sampler, &c->seg, &c->rules.usage, c->rules.win_ms,
			arb_nvml_usage(c->gpu, PATIENCE_NS), arb_os_now_ns()))
		return AGAIN_NS;
	/* The watchdog's stamp is renewed often enough to be believed, however long the period is. */
	if (next_ns > c->rules.usage.sample_ns / 2)
		next_ns = c->rules.usage.sample_ns / 2;
	return next_ns < MS ? MS : next_ns;
}

static void *run(void *argument)
{
	struct node_sampler *s = argument;
	uint64_t listed_ns = 0;

	for (;;) {
		uint64_t now = arb_os_now_ns(), shortest = RELIST_NS;

		if (!listed_ns || now - listed_ns >= RELIST_NS) {
			relist(s);
			listed_ns = now;
		}
		for (int i = 0; i < GPUS_MOST; i++) {
			uint64_t next_ns = s->charges[i].gpu[0] ? step(&s->charges[i]) : RELIST_NS;

			if (next_ns < shortest)
				shortest = next_ns;
		}
		arb_os_sleep_ns(shortest);
	}
	return NULL;
}

int gpuarb_control_sample(const char *dir, const char *gpu, struct gpuarb_error *err)
{
	struct node_sampler *s;
	int r = arb_os_clock_init();

	if (r < 0)
		return arb_fail(
			err, r, "this time namespace's clock cannot be compared with that of the clients");
	if (gpu && !gpuarb_gpu_name_ok(gpu))
		return arb_fail(err, -EINVAL, "'%.80s' cannot be a GPU's name", gpu);
	s = calloc(1, sizeof(*s));
	if (!s)
		return arb_fail(err, -ENOMEM, "out of memory");
	strncpy(s->dir, gpuarb_control_dir(dir), sizeof(s->dir) - 1);
	if (gpu) {
		strncpy(s->name, gpu, sizeof(s->name) - 1);
		s->only = s->name;
	}
	r = arb_nvml_thread("gpuarb-sample", run, s);
	if (r < 0) {
		free(s);
		return arb_fail(err, r, "cannot start a thread: %s", strerror(-r));
	}
	return 0;
}
