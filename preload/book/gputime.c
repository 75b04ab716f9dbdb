#include "preload/book/gputime.h"

/* The clocks of GPU and host drift apart by at most 50 millionths. */
#define DRIFT_MILLIONTHS 50
/* A record call that took longer was held up, perhaps after it had submitted its event: its return says nothing. */
#define CALL_MOST_NS 20000u
/* Within this time the clocks drift apart by at most 5 us, which is as exact as ends need to be. */
#define OLD_NS 100000000u

static int64_t drifted(uint64_t since_ns, uint64_t now_ns)
{
	return now_ns > since_ns ? (int64_t)((now_ns - since_ns) / 1000000u * DRIFT_MILLIONTHS) : 0;
}

void gputime_recorded(struct gputime *t, uint64_t gpu_ns, uint64_t call_ns, uint64_t returned_ns, bool free)
{
	int64_t bound = (int64_t)(returned_ns - gpu_ns);

	if (call_ns > CALL_MOST_NS)
		return;
	/* Only an event that did not have to wait may loosen the bound by the drift. */
	if (t->least_ns && bound < t->least - (free || !t->sure ? drifted(t->least_ns, returned_ns) : 0))
		return;
	t->sure |= free;
	t->least = bound;
	t->least_ns = returned_ns;
}

void gputime_noticed(struct gputime *t, uint64_t gpu_ns, uint64_t noticed_ns)
{
	int64_t bound = (int64_t)(noticed_ns - gpu_ns);

	if (t->most_ns && bound > t->most + drifted(t->most_ns, noticed_ns))
		return;
	t->most = bound;
	t->most_ns = noticed_ns;
}

uint64_t gputime_host(const struct gputime *t, uint64_t gpu_ns, uint64_t noticed_ns)
{
	/* The lower bound is tight as soon as one event did not have to wait. Until then the upper bound is
	 * nearer to the truth. */
	int64_t offset = t->sure ? t->least : t->most;

	if (!t->sure && !t->most_ns)
		return noticed_ns;
	/* The bounds contradict each other: a record call was held up although it seemed short. */
	if (t->most_ns && offset > t->most)
		offset = t->most;
	return gpu_ns + (uint64_t)offset < noticed_ns ? gpu_ns + (uint64_t)offset : noticed_ns;
}

bool gputime_is_old(const struct gputime *t, uint64_t now_ns)
{
	return !t->sure || now_ns - t->least_ns > OLD_NS;
}
