/* Admission as viewers and the status call see it: reads only. */
#include <string.h>

#include "gpuarb/control.h"

#include "shm/admission/admission.h"
#include "shm/base/atomic.h"
#include "shm/base/os.h"
#include "shm/segment/running.h"
#include "shm/segment/settings.h"

/* A part of a window that is shorter than this says little. */
#define BUSY_LEAST_NS 10000000u

static unsigned count_waiting(const struct arb_segment *seg, struct gpuarb_view_admission *a)
{
	unsigned waiting = 0;

	for (uint32_t i = arb_admission_next(seg, seg->header->adm_waiting, 0); i != ARB_NONE;
		i = arb_admission_next(seg, seg->header->adm_waiting, i + 1)) {
		uint32_t want = arb_load32(&seg->slots[i].adm_want),
			 at = (want & ((1u << ARB_WANT_CLASS_BITS) - 1)) - 1;

		waiting++;
		if (at < ARB_CLASSES)
			a->classes[at].waiting++;
	}
	return waiting;
}

void arb_admission_picture(const struct arb_segment *seg, const struct arb_control *control,
	const struct arb_rules *rules, const struct arb_snap *ahead, uint64_t now_ns,
	struct gpuarb_view_admission *a)
{
	struct arb_usage u = arb_usage_read(seg, &rules->usage, now_ns);
	struct gpuarb_class_rules classes[ARB_CLASSES] = {0};
	struct arb_busy base = {0, 0};
	unsigned kept = 0;
	int busy;

	/* The clock is read anew: a sample that was taken after our caller read it would seem to come from the
	 * future. */
	if (!u.fresh)
		u = arb_usage_read(seg, &rules->usage, arb_os_now_ns());
	memset(a, 0, sizeof(*a));
	a->sampled = u.sampled;
	a->sample_age_ns = u.age_ns;
	a->high_water = u.lines.high / 100;
	a->low_water = u.lines.low / 100;
	a->boost_until_ns = u.boost_until_ns;
	if (u.fresh) {
		a->usage_known = true;
		a->usage_hundredths = u.hundredths;
		a->source = u.source;
		a->high_pressure = u.high;
	} else {
		busy = arb_admission_idle(ahead) ? 0 : arb_usage_busy(ahead, &base, BUSY_LEAST_NS, false);
		a->usage_known = busy >= 0;
		a->usage_hundredths = busy > 0 ? (unsigned)busy : 0;
		a->high_pressure = busy < 0 || arb_usage_pressure(u.high, a->usage_hundredths, u.lines);
	}
	if (control)
		arb_settings_classes(control, classes);
	arb_admission_have_default(classes);
	for (uint32_t i = 0; i < ARB_CLASSES; i++) {
		struct gpuarb_view_class *c = &a->classes[i];

		memcpy(c->name, classes[i].name, sizeof(c->name));
		c->priority = classes[i].priority;
		c->skip = classes[i].skip;
		c->pass = classes[i].pass;
		c->max_wait_ms = classes[i].max_wait_ms;
		c->queue_limit = classes[i].queue_limit;
		c->index = i;
	}
	a->queue_len = count_waiting(seg, a);
	for (uint32_t i = arb_admission_next(seg, seg->header->adm_leased, 0); i != ARB_NONE;
		i = arb_admission_next(seg, seg->header->adm_leased, i + 1))
		a->leases++;
	/* Places without a class are the control segment's business. */
	for (uint32_t i = 0; i < ARB_CLASSES; i++)
		if (a->classes[i].name[0])
			a->classes[kept++] = a->classes[i];
	a->nclasses = kept;
}
