/*
 * How much of a process's work may be queued on the GPU, and what if that does not end: it may wait for what
 * stands at the gate.
 */
#include "track.h"

#include "hooks.h"
#include "log.h"
#include "threads.h"

/* Beside others a queue may take so many times as long as if it were alone. */
#define BESIDE_MOST 8
/* So many one by one, then two at once. */
#define SINGLES 8
/* Work that waits for work which is not let through would wait for ever. */
#define STUCK_NS (2000 * MS)
/* How long one takes that has waited is only a guess, which grows with each time that it has. */
#define STUCK_MOST_NS (4000 * MS)
/* The same in a program that has put something into its streams that waits, and in one that was seen to. */
#define STUCK_SOON_NS  (100 * MS)
#define STUCK_KNOWN_NS (4 * MS)

/* Beside others the same for all: where the GPU takes what was queued first, that is how it is shared. */
uint64_t queue_bound(const struct track *t)
{
	return stay_in_company(t) ? TRACK_BOUND_BESIDE_NS : t->bound_ns;
}

/* Has it nothing of its own before it? Threads' default streams have one name. */
static bool is_first(const struct track *t, const struct act_call *call, CUcontext ctx)
{
	CUstream stream = track_per_thread(call) ? CU_STREAM_PER_THREAD : call->stream;

	for (unsigned i = 0; i < t->count; i++) {
		const struct track_marker *m = &t->ring[(t->first + i) % TRACK_MARKERS];

		if (m->launches && m->stream == stream && m->ctx == ctx)
			return false;
	}
	return true;
}

bool queue_has_room(const struct track *t, const struct act_call *call, CUcontext ctx, uint32_t covers)
{
	uint32_t queued = t->outstanding + covers;

	/* One without a limit beside others, too: in a common queue it would come before all of them. */
	if ((!t->limited && !stay_in_company(t)) || !t->outstanding)
		return true;
	if (t->count == TRACK_MARKERS)
		return false;
	/* Of what waits for something behind it, as much again each time. */
	if (queued <= t->least || queued <= t->parked)
		return true;
	/* Without a limit its streams do not wait for each other: one may be there for what is urgent. */
	if (!t->limited && is_first(t, call, ctx))
		return true;
	/* How long one takes is only seen, beside others, if another is right behind it. */
	if (queued == 2 && t->singles >= SINGLES && stay_in_company(t))
		return true;
	/* Of kernels of many lengths the shortest say what one takes. */
	if (stay_in_company(t) &&
		t->outstanding_ns + marker_expect(t, call->handle, 1) > BESIDE_MOST * TRACK_BOUND_BESIDE_NS)
		return false;
	return queued <= t->window &&
	       t->outstanding_own_ns + marker_own(t, call->handle, 1) <= queue_bound(t);
}

/* The oldest that is waited for. */
static const struct track_marker *oldest(const struct track *t)
{
	for (unsigned i = 0; i < t->count; i++) {
		const struct track_marker *m = &t->ring[(t->first + i) % TRACK_MARKERS];

		if (m->launches && !m->parked)
			return m;
	}
	return NULL;
}

/* How long to sleep before asking again whether it has finished. */
uint64_t queue_patience(const struct track *t, uint64_t now)
{
	const struct track_marker *m = oldest(t);
	uint64_t due = t->progress_ns, ns, most = MS / 2;

	if (m)
		due = (m->begun_ns > t->last_end_ns ? m->begun_ns : t->last_end_ns) + m->expected_ns;
	ns = due > now ? (due - now) / 2 : (now - due) / 8;
	if (now > due + 100 * MS)
		most = 2 * MS;
	return ns < 30 * US ? 30 * US : ns > most ? most : ns;
}

bool queue_may_wait(void)
{
	uint64_t seen[CAT_COUNT];

	act_thread_sum(seen);
	return seen[CAT_HOSTFN] + seen[CAT_MEMOP] + seen[CAT_INTEROP] > 0;
}

static bool stuck(const struct track *t, uint64_t now)
{
	uint64_t longest = t->least ? STUCK_KNOWN_NS : STUCK_SOON_NS;

	if (now <= t->progress_ns + longest)
		return false;
	if (!t->least && !queue_may_wait())
		longest = STUCK_NS;
	/* One without a limit is held up for the others' sake only, not for as long as it takes. Nor is what
	 * passed on credit, most of which is over, waited for as if it were all to come. */
	for (unsigned i = 0; t->limited && i < t->count; i++) {
		const struct track_marker *m = &t->ring[(t->first + i) % TRACK_MARKERS];

		if (m->launches == 1 && !m->parked && 8 * m->expected_ns > longest)
			longest = 8 * m->expected_ns;
	}
	if (longest > STUCK_MOST_NS)
		longest = STUCK_MOST_NS;
	return now > t->progress_ns + longest;
}

/*
 * Nothing that is queued has ended for long. It may be a long kernel; or it waits for what comes behind it,
 * which would wait for it here. So it is no longer waited for. Where the quota is used up, and cannot come
 * back because what is queued is billed, what comes behind goes as fast as the limit allows.
 */
bool queue_let_past(struct track *t, const struct act_call *call, uint64_t now)
{
	uint64_t expected = marker_expect(t, call->handle, 1);
	bool late = stuck(t, now);

	if (late && t->outstanding) {
		arb_log(ARB_LOG_INFO, "%s: not waited for, because nothing queued has ended for %u ms",
			t->device->uuid, (unsigned)((now - t->progress_ns) / MS));
		marker_park(t);
		t->stalled_ns = now;
		t->stall_ns = now - t->progress_ns;
		t->progress_ns = now;
	}
	if (t->phase != TRACK_DRAIN || t->outstanding || !(t->parked || late) || now < t->pace_ns)
		return false;
	if (expected < 100 * US)
		expected = 100 * US;
	t->pace_ns = now + expected * 100 / (t->core_pct ? t->core_pct : 1);
	t->loose = true;
	return true;
}

/*
 * If what is parked ends right after this one, it has waited for it. How soon is that? If one is let past
 * every now and then, a kernel that is just long ends behind one of them as well: by half the time between
 * them.
 */
void queue_note_need(struct track *t, const struct act_call *call, uint32_t covers)
{
	uint64_t now = track_now(), soon = (now - t->noted_ns) / 2,
		 span = 2 * marker_expect(t, call->handle, 1);

	if (soon > 50 * MS)
		soon = 50 * MS;
	if (soon < span)
		soon = span;
	t->needed = t->parked + t->outstanding + covers;
	if (t->needed_ns < now + soon)
		t->needed_ns = now + soon;
	t->noted_ns = now;
	t->needed_stream = track_per_thread(call) ? CU_STREAM_PER_THREAD : call->stream;
}
