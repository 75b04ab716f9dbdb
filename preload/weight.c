#include "weight.h"

/* So much of the past counts. */
#define MEMORY_NS 200000000u

static unsigned hash(uint64_t handle)
{
	return (unsigned)((handle * 0x9e3779b97f4a7c15u) >> 58);
}

/* Down at once, up slowly: a stay that was thought to be alone and was not looks longer, never shorter. */
static uint64_t follow(uint64_t old, uint64_t sample)
{
	if (!old)
		return sample;
	if (sample > 2 * old)
		sample = 2 * old;
	return sample < old ? old - (old - sample) / 4 : old + (sample - old) / 16;
}

static void learn_alone(struct weight *w, const struct weight_stay *stay)
{
	if (stay->calls == 1 && stay->handle) {
		unsigned h = hash(stay->handle);

		if (w->alone[h].handle != stay->handle) {
			w->alone[h].handle = stay->handle;
			w->alone[h].ns = 0;
		}
		w->alone[h].ns = follow(w->alone[h].ns, stay->ns);
	}
	w->call_ns = follow(w->call_ns, stay->ns / stay->calls);
}

uint64_t weight_alone(const struct weight *w, uint64_t handle)
{
	unsigned h = hash(handle);

	return handle && w->alone[h].handle == handle ? w->alone[h].ns : 0;
}

/* How long the stay would have been alone; 0: not known. */
static uint64_t work_of(const struct weight *w, const struct weight_stay *stay)
{
	uint64_t alone = stay->calls == 1 ? weight_alone(w, stay->handle) : 0;

	if (!alone && stay->calls == 1)
		alone = stay->timed_ns;
	return alone ? alone : w->call_ns * stay->calls;
}

static void start_over(struct weight *w)
{
	w->now = WEIGHT_ONE;
	w->work_ns = w->stay_ns = w->others_ns = 0;
}

void weight_learn(struct weight *w, const struct weight_stay *stay)
{
	uint64_t work, idle, ns;

	if (!stay->calls || !stay->ns || stay->ns > MEMORY_NS)
		return;
	if (stay->held) {
		start_over(w);
		return;
	}
	if (!stay->others) {
		if (stay->steady)
			learn_alone(w, stay);
		return;
	}
	work = work_of(w, stay);
	if (!work)
		return;
	w->work_ns += work < stay->ns ? work : stay->ns;
	w->stay_ns += stay->ns;
	w->others_ns += stay->ns * stay->others;
	if (w->stay_ns > MEMORY_NS) {
		w->work_ns /= 2;
		w->stay_ns /= 2;
		w->others_ns /= 2;
	}
	idle = w->stay_ns - w->work_ns;
	ns = w->others_ns / w->stay_ns * w->work_ns;
	if (ns >= idle * WEIGHT_ONE)
		w->now = WEIGHT_ONE;
	else
		w->now = ns / idle ? (uint32_t)((ns + idle / 2) / idle) : 1;
}
