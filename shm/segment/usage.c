#include "shm/segment/usage.h"

#include "shm/base/atomic.h"
#include "shm/base/os.h"
#include "shm/segment/running.h"
#include "shm/segment/segment.h"
#include "shm/segment/told.h"

#define TRIES 1000
/* Between reading the clock and reading the word, another process with a later clock may have written it. */
#define LATE_NS 1000000000u

bool arb_usage_boosted(const struct arb_usage_rules *rules, uint64_t until_ns, uint64_t now_ns)
{
	return rules->boost_ttl_ns && until_ns > now_ns && until_ns - now_ns <= rules->boost_ttl_ns + LATE_NS;
}

static unsigned line(unsigned percent)
{
	return percent < 100 ? percent * 100 : ARB_USAGE_FULL;
}

struct arb_usage_lines arb_usage_lines(const struct arb_usage_rules *rules, bool boosted)
{
	return (struct arb_usage_lines){line(rules->high_pct + (boosted ? rules->high_boost_pct : 0)),
		line(rules->low_pct + (boosted ? rules->low_boost_pct : 0))};
}

bool arb_usage_pressure(bool high, unsigned hundredths, struct arb_usage_lines lines)
{
	/* Each line has a boost of its own, so the lines may have crossed. Then the high line counts for both, or the
	 * state would swing. */
	unsigned low = lines.low < lines.high ? lines.low : lines.high;

	if (hundredths >= lines.high)
		return true;
	return high && hundredths > low;
}

uint64_t arb_usage_pack(unsigned hundredths, unsigned source, bool high, uint64_t now_ns)
{
	if (hundredths > ARB_USAGE_FULL)
		hundredths = ARB_USAGE_FULL;
	return hundredths | (uint64_t)source << ARB_SAMPLE_SOURCE_SHIFT | (high ? ARB_SAMPLE_HIGH : 0) |
	       now_ns >> ARB_SAMPLE_TIME_UNIT << ARB_SAMPLE_TIME_SHIFT;
}

struct arb_usage arb_usage_judge(
	const struct arb_usage_rules *rules, uint64_t sample, uint64_t boost_until_ns, uint64_t now_ns)
{
	bool boosted = arb_usage_boosted(rules, boost_until_ns, now_ns);
	uint64_t at = sample >> ARB_SAMPLE_TIME_SHIFT << ARB_SAMPLE_TIME_UNIT;
	struct arb_usage u = {.word = sample,
		.hundredths = (unsigned)sample & ((1u << ARB_SAMPLE_USAGE_BITS) - 1),
		.source = (unsigned)sample >> ARB_SAMPLE_SOURCE_SHIFT & 3,
		.boost_until_ns = boosted ? boost_until_ns : 0,
		.high = sample & ARB_SAMPLE_HIGH,
		.lines = arb_usage_lines(rules, boosted)};

	u.sampled = at && at <= now_ns && u.hundredths <= ARB_USAGE_FULL && u.source != ARB_SAMPLE_NONE;
	if (!u.sampled) {
		u.hundredths = u.source = 0;
		u.high = false;
		return u;
	}
	u.age_ns = now_ns - at;
	u.fresh = u.age_ns <= rules->ttl_ns;
	if (u.fresh)
		u.high = arb_usage_pressure(u.high, u.hundredths, u.lines);
	return u;
}

struct arb_usage arb_usage_read(
	const struct arb_segment *seg, const struct arb_usage_rules *rules, uint64_t now_ns)
{
	return arb_usage_judge(rules, arb_load64(&seg->header->adm_sample),
		arb_load64(&seg->header->adm_boost_until_ns), now_ns);
}

static void tell(struct arb_segment *seg, bool high, unsigned hundredths, struct arb_usage_lines lines,
	uint64_t now_ns)
{
	arb_told_pressure(seg, high, hundredths, high ? lines.high : lines.low, now_ns);
}

bool arb_usage_settle(struct arb_segment *seg, const struct arb_usage *u, uint64_t now_ns)
{
	uint64_t next = (u->word & ~(uint64_t)ARB_SAMPLE_HIGH) | (u->high ? ARB_SAMPLE_HIGH : 0);

	if (next == u->word || !u->fresh)
		return false;
	/* The CAS failed: there is a new sample, or another process has done it. */
	if (!arb_cas64_full(&seg->header->adm_sample, u->word, next))
		return false;
	tell(seg, u->high, u->hundredths, u->lines, now_ns);
	return true;
}

bool arb_usage_publish(struct arb_segment *seg, const struct arb_usage_rules *rules, unsigned hundredths,
	unsigned source, uint64_t now_ns)
{
	for (int tries = 0; tries < TRIES; tries++) {
		struct arb_usage old = arb_usage_read(seg, rules, now_ns);
		bool was = old.word & ARB_SAMPLE_HIGH;
		bool high = arb_usage_pressure(old.high, hundredths, old.lines);

		/* Another process has taken a later sample. A sampler that was stopped for a while must not overwrite
		 * it. */
		if (old.word >> ARB_SAMPLE_TIME_SHIFT > now_ns >> ARB_SAMPLE_TIME_UNIT &&
			arb_usage_read(seg, rules, arb_os_now_ns()).sampled)
			return false;
		if (arb_cas64_full(&seg->header->adm_sample, old.word,
			    arb_usage_pack(hundredths, source, high, now_ns))) {
			tell(seg, high, hundredths, old.lines, now_ns);
			return (was || !old.fresh) && !high;
		}
	}
	return false;
}

bool arb_usage_boost(struct arb_segment *seg, const struct arb_usage_rules *rules, uint64_t now_ns)
{
	uint64_t until = now_ns + rules->boost_ttl_ns;

	if (!rules->boost_ttl_ns)
		return false;
	for (int tries = 0; tries < TRIES; tries++) {
		uint64_t old = arb_load64(&seg->header->adm_boost_until_ns);

		/* The boost lasts longer already, unless it is one that no client can have given. */
		if (old >= until && arb_usage_boosted(rules, old, now_ns))
			return false;
		if (arb_cas64_full(&seg->header->adm_boost_until_ns, old, until))
			return true;
	}
	return false;
}

int arb_usage_busy(const struct arb_snap *now, struct arb_busy *base, uint64_t least_ns, bool move_on)
{
	uint64_t busy = now->busy, at = now->t;
	struct arb_busy from = *base;
	int64_t time = (int64_t)(at - from.at), used = (int64_t)(busy - from.busy);
	int usage;

	/* A clock that went back belongs to a segment that was repaired: the base begins anew. */
	if (!from.at || time < 0 || used < 0) {
		time = (int64_t)(at - now->win_start);
		used = (int64_t)(busy - now->win_busy);
	}
	if (time <= 0 || used < 0 || (uint64_t)time < least_ns * ARB_TICKS_PER_NS)
		return -1;
	usage = used >= time ? (int)ARB_USAGE_FULL : (int)((double)used * ARB_USAGE_FULL / (double)time);
	if (move_on)
		*base = (struct arb_busy){busy, at};
	return usage;
}
