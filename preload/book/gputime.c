#include "preload/book/gputime.h"

#include "preload/book/thresholds.h"

/* A record call that took longer was held up, perhaps after it had submitted its event: its return says nothing. */
#define CALL_MOST_NS (2 * CALL_NS)
/* Ends of work need not be dated more exactly than this. */
#define EXACT_NS ((int64_t)(CALL_NS / 2))
/* Within this time the clocks drift apart by at most EXACT_NS. */
#define OLD_NS (CALL_NS / 2 * 1000000 / DRIFT_MILLIONTHS)
/* The drift is measured over this time: an event's resolution of half a microsecond is half a millionth of it. */
#define RATE_NS (1000000 * SHORTEST_NS)

static int64_t drifted(uint64_t since_ns, uint64_t now_ns)
{
	return now_ns > since_ns ? (int64_t)((now_ns - since_ns) / 1000 * DRIFT_MILLIONTHS / 1000) : 0;
}

/* Returns by how much the offset has grown between two moments, as far as the drift is known. */
static int64_t grown(const struct gputime *t, uint64_t from_ns, uint64_t to_ns)
{
	return (int64_t)(to_ns - from_ns) / 1000 * t->drift / 1000000;
}

/* An event that took place at once has this offset. */
static void learn_drift(struct gputime *t, int64_t offset, uint64_t now_ns)
{
	int64_t most = (int64_t)DRIFT_MILLIONTHS * 1000, drift;

	if (t->rate_ns && now_ns - t->rate_ns < RATE_NS)
		return;
	if (t->rate_ns) {
		drift = (offset - t->rate) * 1000000 / ((int64_t)(now_ns - t->rate_ns) / 1000);
		t->drift = (int32_t)(drift > most ? most : drift < -most ? -most : drift);
	}
	t->rate = offset;
	t->rate_ns = now_ns;
}

void gputime_recorded(
	struct gputime *t, uint64_t gpu_ns, uint64_t call_ns, uint64_t returned_ns, enum gputime_wait wait)
{
	int64_t bound = (int64_t)(returned_ns - gpu_ns);
	bool free = wait == GPUTIME_FREE;

	if (call_ns > CALL_MOST_NS)
		return;
	/* While others run, an event in an idle stream may wait for their time slices. It did not wait if its bound is
	 * within EXACT_NS of the upper bound. */
	if (wait == GPUTIME_OTHERS)
		free = t->most_ns && bound + EXACT_NS >= t->most + grown(t, t->most_ns, returned_ns);
	/* Only an event that did not have to wait may loosen the bound by the drift. */
	if (t->least_ns && bound < t->least + grown(t, t->least_ns, returned_ns) -
					   (free || !t->sure ? drifted(t->least_ns, returned_ns) : 0))
		return;
	if (free)
		learn_drift(t, bound, returned_ns);
	t->sure |= free;
	t->least = bound;
	t->least_ns = returned_ns;
}

void gputime_noticed(struct gputime *t, uint64_t gpu_ns, uint64_t noticed_ns)
{
	int64_t bound = (int64_t)(noticed_ns - gpu_ns);

	if (t->most_ns &&
		bound > t->most + grown(t, t->most_ns, noticed_ns) + drifted(t->most_ns, noticed_ns))
		return;
	t->most = bound;
	t->most_ns = noticed_ns;
}

uint64_t gputime_host(const struct gputime *t, uint64_t gpu_ns, uint64_t noticed_ns)
{
	uint64_t about = gpu_ns + (uint64_t)(t->sure ? t->least : t->most);
	int64_t most = t->most + grown(t, t->most_ns, about);
	/* The lower bound is tight as soon as one event did not have to wait. Until then the upper bound is
	 * nearer to the truth. */
	int64_t offset = t->sure ? t->least + grown(t, t->least_ns, about) : most;

	if (!t->sure && !t->most_ns)
		return noticed_ns;
	/* The bounds contradict each other: a record call was held up although it seemed short. */
	if (t->most_ns && offset > most)
		offset = most;
	return gpu_ns + (uint64_t)offset < noticed_ns ? gpu_ns + (uint64_t)offset : noticed_ns;
}

bool gputime_is_old(const struct gputime *t, uint64_t now_ns)
{
	return !t->sure || now_ns - t->least_ns > OLD_NS;
}
