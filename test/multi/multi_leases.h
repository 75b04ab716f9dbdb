/* What tests of leases of several processes begin with: a directory with classes, its segment, and words that children
 * share with the test. */
#ifndef MULTI_LEASES_H
#define MULTI_LEASES_H

#include <criterion/criterion.h>
#include <stdlib.h>

#include "gpuarb.h"
#include "gpuarb/control.h"
#include "units.h"

#include "shm/admission/admission.h"
#include "shm/base/os.h"
#include "shm/client/client_state.h"
#include "shm/segment/slot.h"
#include "test/harness.h"

static struct t_dir dir;
static struct arb_segment seg;

static inline void set(const char *key, const char *value)
{
	struct gpuarb_change change = {NULL, key, value};
	struct gpuarb_error err = {0};

	cr_assert_eq(gpuarb_control_change(dir.path, T_GPU, &change, 1, &err), 0, "%s", err.text);
}

static inline void open_dir(void)
{
	struct gpuarb_client *c;

	t_dir_make(&dir, "usage_sample_ms = 60000\ncache_ttl_ms = 600000\n"
			 "[class asr]\npriority = 90\nmax_wait_ms = 30000\nunder_pressure = pass\n"
			 "[class nmt]\npriority = 80\nmax_wait_ms = 30000\n"
			 "[class top]\npriority = 99\n"
			 "[class repair]\npriority = 10\nmode = skip\n");
	setenv("GPUARB_DIR", dir.path, 1);
	setenv("GPUARB_CONF", dir.conf, 1);
	setenv("GPUARB_GPU", T_GPU, 1);
	cr_assert_eq(t_open(&dir, NULL, &c), 0);
	gpuarb_client_close(c);
	cr_assert_eq(arb_segment_open(&seg, dir.path, T_GPU, true, NULL, NULL), 0);
}

static inline void close_dir(void)
{
	arb_segment_close(&seg);
	t_dir_remove(&dir);
}

static inline int acquire(const char *name, struct gpuarb_lease *lease)
{
	struct gpuarb_request request = {.task_class = name};

	return gpuarb_acquire(NULL, &request, lease);
}

/* What children report to the test, in order. */
static struct {
	arb_u32 ready, go, result;
} * say;

static inline void until(arb_u32 *word)
{
	while (!arb_load32_acquire(word))
		t_sleep_us(500);
}

#endif
