#include "preload/book/durations.h"

#include <stddef.h>

#include "preload/book/thresholds.h"

#define PROBES 8

uint64_t durations_key(uint64_t handle, uint64_t grid)
{
	uint64_t key = handle ^ (grid * 0x9e3779b97f4a7c15ull);

	return handle && !key ? 1 : handle ? key : 0;
}

static unsigned place(uint64_t work, unsigned probe)
{
	return (unsigned)((work * 0x9e3779b97f4a7c15ull) >> 40) + probe;
}

const struct duration *durations_find(const struct durations *d, uint64_t work)
{
	for (unsigned i = 0; work && i < PROBES; i++) {
		const struct duration *found = &d->of[place(work, i) % DURATIONS];

		if (found->work == work)
			return found;
	}
	return NULL;
}

/* Returns the place of this key. If it has none, the key learned from the longest ago gives up its place. */
static struct duration *claim(struct durations *d, uint64_t work)
{
	struct duration *oldest = NULL;

	for (unsigned i = 0; i < PROBES; i++) {
		struct duration *found = &d->of[place(work, i) % DURATIONS];

		if (found->work == work)
			return found;
		if (!oldest || (oldest->work && (!found->work || (int32_t)(found->seen - oldest->seen) < 0)))
			oldest = found;
	}
	*oldest = (struct duration){.work = work, .seen = d->lessons};
	return oldest;
}

uint64_t durations_expect(const struct durations *d, uint64_t work, uint32_t launches)
{
	const struct duration *known = launches == 1 ? durations_find(d, work) : NULL;

	return known && known->mean_ns ? known->mean_ns : d->mean_ns * launches;
}

uint64_t durations_unsure(const struct durations *d, uint64_t work, uint32_t launches)
{
	const struct duration *known = launches == 1 ? durations_find(d, work) : NULL;

	if (launches > 1 || !work)
		return d->off_ns;
	/* Nothing is known about this key. Half of the mean of all says how much lengths differ in this program. */
	return known && known->mean_ns ? known->off_ns : d->mean_ns / 2;
}

static uint64_t difference(uint64_t a, uint64_t b)
{
	return a > b ? a - b : b - a;
}

/*
 * A mean over about sixteen launches, because the error of a sum of many launches is many times the error of this. The first
 * sixteen count equally: the end of the very first one is only known by when it was noticed, which may be much too late.
 */
static void follow_each(struct durations *d, uint64_t each)
{
	/* `lessons` may have wrapped to zero. */
	int64_t over = d->lessons && d->lessons < 16 ? (int64_t)d->lessons : 16;

	d->each_ns = (uint64_t)((int64_t)d->each_ns + ((int64_t)each - (int64_t)d->each_ns) / over);
}

void durations_learn(struct durations *d, uint64_t work, uint32_t launches, uint64_t took_ns, bool alone)
{
	uint64_t each = took_ns / launches;

	d->lessons++;
	if (launches == 1 && work) {
		struct duration *known = claim(d, work);

		if (!known->mean_ns) {
			known->mean_ns = each;
			known->off_ns = 0;
		}
		known->seen = d->lessons;
		durations_follow(&known->off_ns, difference(each, known->mean_ns));
		durations_follow(&known->mean_ns, each);
		if (alone && !known->alone_ns)
			known->alone_ns = each;
		else if (alone)
			durations_follow(&known->alone_ns, each);
	}
	if (!d->mean_ns)
		d->mean_ns = d->each_ns = each;
	durations_follow(&d->off_ns, difference(each, d->mean_ns));
	durations_follow(&d->mean_ns, each);
	follow_each(d, each);
	if (d->mean_ns < SHORTEST_NS)
		d->mean_ns = SHORTEST_NS;
	if (d->each_ns < SHORTEST_NS)
		d->each_ns = SHORTEST_NS;
}

void durations_bound(struct durations *d, uint32_t launches, uint64_t took_ns)
{
	if (d->mean_ns > took_ns / launches)
		durations_follow(&d->mean_ns, took_ns / launches);
	if (d->mean_ns < SHORTEST_NS)
		d->mean_ns = SHORTEST_NS;
}

void durations_raise(struct durations *d, uint64_t work, uint64_t ns)
{
	struct duration *known = work ? claim(d, work) : NULL;

	if (known && known->mean_ns < ns)
		known->mean_ns = ns;
	if (d->mean_ns < ns)
		d->mean_ns = ns;
}

bool durations_may_be_wait(const struct durations *d, uint64_t work)
{
	const struct duration *known = durations_find(d, work);

	return known && known->mean_ns && !known->alone_ns && !known->behind;
}

/*
 * If a client comes to a GPU that alternates while another client has it, each kernel that is alone in the queue waits for
 * the other's slice, and that wait is measured as its length. The first kernel that stands behind another kernel of this
 * client shows how long it really takes.
 */
void durations_behind(struct durations *d, uint64_t work, uint64_t took_ns)
{
	struct duration *known = work ? claim(d, work) : NULL;

	if (!known || known->behind)
		return;
	if (!known->alone_ns && known->mean_ns > took_ns + WAITED_MORE_NS) {
		known->mean_ns = took_ns;
		known->off_ns = 0;
		if (d->mean_ns > took_ns)
			d->mean_ns = took_ns;
	}
	known->behind = true;
}

void durations_mark_primary(struct durations *d, uint64_t work)
{
	if (work)
		claim(d, work)->primary = true;
}
