/* For unit tests of leases: three clients in one process, with task classes. */
#ifndef TEST_UNIT_ADMISSION_H
#define TEST_UNIT_ADMISSION_H

#include "test/unit/unit_clients.h"

#include "shm/admission/admission.h"

static inline void open_dir(void)
{
	u_begin("usage_sample_ms = 800\n"
		"cache_ttl_ms = 600000\n"
		"[class asr]\npriority = 90\nmax_wait_ms = 1000\n"
		"[class nmt]\npriority = 80\nmax_wait_ms = 300\nqueue_limit = 1\n"
		"[class tts]\npriority = 70\nunder_pressure = pass\n"
		"[class repair]\npriority = 10\nmode = skip\n");
}

static inline void set_class(const char *name, const char *key, const char *value)
{
	struct gpuarb_class_change change = {name, key, value};
	struct gpuarb_error err = {0};

	cr_assert_eq(gpuarb_control_change_classes(u_dir.path, T_GPU, &change, 1, &err), 0, "%s", err.text);
}

static struct gpuarb_client *a, *b, *c;
static struct gpuarb_lease la, lb, lc;

/* Publishes a sample, as the elected sampler would. */
static inline void sample(unsigned percent)
{
	if (arb_usage_publish(&a->seg, &a->rules.usage, percent * 100, ARB_SAMPLE_NVML, u_clock_ns))
		arb_sampler_wake_waiters(&a->seg);
}

static inline int acquire_for(
	struct gpuarb_client *who, const char *name, int64_t max_wait_ms, struct gpuarb_lease *lease)
{
	struct gpuarb_request r = {.task_class = name, .max_wait_ms = max_wait_ms};

	return arb_admission_acquire(who, &r, lease);
}

static inline int acquire(struct gpuarb_client *who, const char *name, struct gpuarb_lease *lease)
{
	return acquire_for(who, name, 0, lease);
}

static inline void three(void)
{
	a = u_client("a", 0);
	b = u_client("b", 0);
	c = u_client("c", 0);
}

static inline void done(void)
{
	cr_assert_eq(arb_admission_next(&a->seg, a->seg.header->adm_waiting, 0), ARB_NONE, "nobody waits");
	cr_assert_eq(arb_check(&a->seg, t_say, NULL), 0);
	gpuarb_client_close(c);
	gpuarb_client_close(b);
	cr_assert_eq(arb_admission_next(&a->seg, a->seg.header->adm_leased, 0) != ARB_NONE,
		a->guard->leases > 0, "a lease goes with its client");
	gpuarb_client_close(a);
}

static inline bool leased(const struct gpuarb_client *who)
{
	return arb_load64(&who->seg.header->adm_leased[0]) >> who->me.slot & 1;
}

static inline bool runs(struct gpuarb_client *who)
{
	struct gpuarb_client_status s;

	cr_assert_eq(gpuarb_client_status(who, &s), 0);
	return s.running;
}

#endif
