/* The victim asks for leases, publishes samples, or stands in the queue. */
#include "test/crash/crash.h"

#include <errno.h>

#include "shm/admission/admission.h"
#include "shm/base/atomic.h"
#include "shm/base/os.h"
#include "shm/admission/sampler.h"
#include "shm/segment/slot.h"
#include "gpuarb/control.h"

#define MUST(call) world_must(call, #call)

static struct gpuarb_lease held, survivors;

static void sample(struct world *w, unsigned percent)
{
	arb_usage_publish(&w->a->seg, &w->a->rules.usage, percent * 100, ARB_SAMPLE_NVML, arb_os_now_ns());
}

void lease_normal(struct world *w)
{
	sample(w, 10);
}

/* There is pressure, and a class above the one that all clients use. */
void lease_pressure(struct world *w)
{
	struct gpuarb_class_change change = {"top", "priority", "99"};

	MUST(gpuarb_control_change_classes(w->dir, w->gpu, &change, 1, NULL));
	sample(w, 99);
}

static int ask(struct gpuarb_client *c, const char *name, int64_t max_wait_ms, struct gpuarb_lease *lease)
{
	struct gpuarb_request request = {.task_class = name, .max_wait_ms = max_wait_ms};

	return arb_admission_acquire(c, &request, lease);
}

void lease_join(struct world *w)
{
	w->v = world_client(w, "victim", 0, 0);
}

void lease_join_hold(struct world *w)
{
	lease_join(w);
	MUST(ask(w->v, NULL, 0, &held));
}

void lease_acquire(struct world *w)
{
	struct gpuarb_lease lease = GPUARB_LEASE_INIT;

	MUST(ask(w->v, NULL, 0, &lease));
}

void lease_release(struct world *w)
{
	MUST(arb_admission_release(w->v, &held));
}

void lease_wait_in_vain(struct world *w)
{
	struct gpuarb_lease lease = GPUARB_LEASE_INIT;
	int r = ask(w->v, NULL, 12, &lease);

	if (r != GPUARB_TIMEOUT && !crash_pausing)
		world_must(-EPROTO, "a wait in vain");
}

/* The victim is let in when it wakes up. */
void lease_wait(struct world *w)
{
	struct gpuarb_lease lease = GPUARB_LEASE_INIT;

	MUST(ask(w->v, "default", 1000, &lease));
}

/* A survivor holds a lease until the victim waits for it. */
void lease_held(struct world *w)
{
	sample(w, 10);
	survivors = (struct gpuarb_lease)GPUARB_LEASE_INIT;
	MUST(ask(w->a, NULL, 0, &survivors));
}

void lease_let_go(struct world *w)
{
	MUST(arb_admission_release(w->a, &survivors));
}

/* A corpse stands in the queue, before all others. */
void lease_join_wait(struct world *w)
{
	struct gpuarb_lease lease = GPUARB_LEASE_INIT;

	lease_join(w);
	ask(w->v, "default", 3600000, &lease);
}

void lease_sample(struct world *w)
{
	struct gpuarb_client *c = w->v;
	uint64_t next_ns;

	/* Time has passed since the window began, which the busy clock counts. */
	if (arb_sampler_due(&c->admission.sampler, &c->seg, &c->rules.usage, arb_os_now_ns(), &next_ns))
		arb_sampler_put(&c->admission.sampler, &c->seg, &c->rules.usage, c->rules.win_ms, 4200,
			arb_os_now_ns());
}

void lease_hint(struct world *w)
{
	struct gpuarb_hint hint = {10000, 0};

	arb_admission_hint(w->v, &hint);
}

void lease_after(struct world *w)
{
	struct gpuarb_lease lease = GPUARB_LEASE_INIT;
	struct arb_usage u = arb_usage_read(&w->a->seg, &w->a->rules.usage, arb_os_now_ns());
	void *page;
	int r;

	if (arb_load64(&w->a->seg.header->adm_sample) && !u.sampled)
		world_wrong(w, "the sample is garbage: %llx", (unsigned long long)u.word);
	if (u.boost_until_ns > arb_os_now_ns() + w->a->rules.usage.boost_ttl_ns)
		world_wrong(w, "a boost for longer than any can be");
	/* The pressure is over: each survivor gets its lease, and no dead client is in the way. */
	sample(w, 10);
	r = ask(w->a, NULL, (int64_t)(LEASE_BOUND_NS / MS), &lease);
	if (r != GPUARB_OK)
		world_wrong(w, "a survivor does not get a lease: %d, reason %u", r, lease.reason);
	else
		arb_admission_release(w->a, &lease);
	r = crash_pausing ? 0 : arb_slot_hold(&w->a->seg, ARB_BYTE_SAMPLER, &page);
	if (r < 0)
		world_wrong(w, "nobody can sample any more: %d", r);
	else if (!crash_pausing)
		arb_os_unmap(page, 0);
}
