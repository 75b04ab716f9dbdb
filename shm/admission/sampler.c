#include "shm/admission/sampler.h"

#include <errno.h>

#include "units.h"

#include "shm/admission/admission.h"
#include "shm/base/atomic.h"
#include "shm/base/os.h"
#include "shm/segment/running.h"
#include "shm/segment/silence.h"
#include "shm/segment/slot.h"

/* A part of a window that is shorter than this says little. */
#define BUSY_LEAST_NS (20 * MS)
/* A byte that another process holds is not tried more often than this. */
#define CLAIM_NS       (20 * MS)
#define WATCHDOG_SHIFT 24

void arb_sampler_wake_waiters(struct arb_segment *seg)
{
	for (uint32_t i = arb_admission_next(seg, seg->header->adm_waiting, 0); i != ARB_NONE;
		i = arb_admission_next(seg, seg->header->adm_waiting, i + 1))
		arb_os_wake(&seg->slots[i].wake);
}

void arb_sampler_stop(struct arb_sampler *s)
{
	arb_os_unmap(s->page, 0);
	s->page = NULL;
}

/* Has the watchdog sampled within this time? */
static bool watchdog_samples(const struct arb_segment *seg, uint64_t now_ns, uint64_t within_ns)
{
	uint32_t then = arb_load32(&seg->header->adm_watchdog), now = (uint32_t)(now_ns >> WATCHDOG_SHIFT);

	/* A stamp from the future is garbage, unless it is ahead by one unit only. */
	return then && now - then + 1 <= (uint32_t)(within_ns >> WATCHDOG_SHIFT) + 1;
}

/* How long after a sample others conclude that the sampler is gone. Together with the time until the next look this
 * is well below two periods. */
static uint64_t patience(const struct arb_usage_rules *rules)
{
	return rules->sample_ns + rules->sample_ns / 4;
}

bool arb_sampler_due(struct arb_sampler *s, struct arb_segment *seg, const struct arb_usage_rules *rules,
	uint64_t now_ns, uint64_t *next_ns)
{
	struct arb_usage u = arb_usage_read(seg, rules, now_ns);
	uint64_t age = u.sampled ? u.age_ns : UINT64_MAX, after = patience(rules);

	if (s->for_node) {
		arb_store32(&seg->header->adm_watchdog,
			(uint32_t)(now_ns >> WATCHDOG_SHIFT) | !(now_ns >> WATCHDOG_SHIFT));
		after = 0;
	} else if (watchdog_samples(seg, now_ns, rules->sample_ns)) {
		arb_sampler_stop(s);
	}
	if (!s->page && age >= after && now_ns - s->claimed_ns >= CLAIM_NS &&
		(s->for_node || !watchdog_samples(seg, now_ns, rules->sample_ns))) {
		s->claimed_ns = now_ns;
		s->fresh = arb_slot_hold(seg, ARB_BYTE_SAMPLER, &s->page) == 0;
		/* The sampler's byte is held by a process that is stopped. The word is changed by a CAS, so any
		 * client may take a sample in its place. */
		if (!s->page && u.sampled && !u.fresh)
			s->fresh = true;
	}
	if (s->fresh || (s->page && age >= rules->sample_ns)) {
		*next_ns = 0;
		return true;
	}
	if (s->page)
		*next_ns = rules->sample_ns - age;
	else if (age < after)
		*next_ns = after - age;
	else
		*next_ns = s->for_node ? CLAIM_NS : rules->sample_ns / 8;
	return false;
}

bool arb_sampler_put(struct arb_sampler *s, struct arb_segment *seg, const struct arb_usage_rules *rules,
	uint32_t win_ms, int hundredths, uint64_t now_ns)
{
	unsigned source = ARB_SAMPLE_NVML;
	struct arb_snap snap;
	int busy = -1;

	if (arb_running_read(seg, &snap) == 0) {
		arb_silence_advance(seg, &snap, now_ns, win_ms);
		/* An old base would give the mean over all that time, but the usage of now is asked for. */
		if (snap.t - s->busy.at > 2 * rules->sample_ns * ARB_TICKS_PER_NS)
			s->busy.at = 0;
		busy = arb_usage_busy(&snap, &s->busy, BUSY_LEAST_NS, true);
	}
	if (hundredths < 0) {
		source = ARB_SAMPLE_BUSY;
		hundredths = busy;
	}
	if (hundredths < 0)
		return false;
	s->fresh = false;
	if (arb_usage_publish(seg, rules, (unsigned)hundredths, source, now_ns))
		arb_sampler_wake_waiters(seg);
	return true;
}

void arb_sampler_tick(struct arb_sampler *s, struct arb_segment *seg, const struct arb_usage_rules *rules,
	uint32_t win_ms, uint64_t now_ns)
{
	struct arb_usage u = arb_usage_read(seg, rules, now_ns);
	struct arb_lock lock;

	/* Clients with a thread for sampling come first. */
	if (s->page || (u.sampled && u.age_ns < patience(rules) + rules->sample_ns / 4) ||
		now_ns - s->claimed_ns < CLAIM_NS)
		return;
	s->claimed_ns = now_ns;
	if (arb_slot_lock(seg, ARB_BYTE_SAMPLER, &lock) < 0)
		return;
	arb_sampler_put(s, seg, rules, win_ms, -1, now_ns);
	arb_slot_unlock(&lock);
}
