/*
 * A bell behind the work: where its end cannot be foreseen, the driver is asked to say when it comes. A
 * stream of our own waits for the last marker of each of the program's, and then the driver calls back.
 * Nothing is put into the program's streams, and nobody waits inside the driver: a context can be destroyed,
 * and a program end, while a bell is set.
 */
#include "track.h"

#include "hooks.h"
#include "threads.h"

/* In more streams than this, to ask for all of them would cost more than it saves. */
#define STREAMS_MOST 16
/*
 * Beyond what any device has, so that it is the highest. Streams may share the GPU's queues, in which one
 * that waits holds others up; not with those of another priority.
 */
#define PRIORITY (-1000)
/* A bell that rang before the end was for nothing. The more of those in a stay, the later it is set again. */
#define VAIN_FREE 3
#define VAIN_NS   (200 * US)
#define VAIN_MOST 12
/* If so many have not rung, the driver's thread is held up, perhaps by a function of the program's: to queue
 * ever more would in the end wait for it, with the lock. */
#define BELLS_MOST 8
/* The end of work that may be so much earlier or later than expected cannot be foreseen. */
#define OFF_NS        (300 * US)
#define OFF_BESIDE_NS (100 * US)
/* Who has launched so many and waited for none will not wait for this one. */
#define UNWAITED_LEAST 8

/* The driver's thread. Everything that it touches is there for as long as the process. */
static void ring(void *argument)
{
	struct track *t = argument;

	act_thread_is_drivers();
	__atomic_fetch_add(&t->bells_rung, 1, __ATOMIC_RELAXED);
	__atomic_store_n(&t->bell, BELL_RANG, __ATOMIC_RELEASE);
	/* Who stands at the gate has more work. */
	if (!__atomic_load_n(&t->waiters, __ATOMIC_RELAXED))
		tracker_ring();
}

/* Of those that are still to come, is there a later one in the same stream? Threads' own streams have one
 * name. */
static bool is_last(const struct track *t, unsigned i)
{
	const struct track_marker *m = &t->ring[(t->first + i) % TRACK_MARKERS];

	for (unsigned k = i + 1; k < t->count; k++) {
		const struct track_marker *later = &t->ring[(t->first + k) % TRACK_MARKERS];

		if (later->launches && later->stream == m->stream && later->ctx == m->ctx &&
			m->stream != CU_STREAM_PER_THREAD)
			return false;
	}
	return true;
}

/* The markers to wait for: none if they are too many. */
static unsigned choose(const struct track *t, const struct track_marker *last[STREAMS_MOST])
{
	unsigned n = 0;

	for (unsigned i = 0; i < t->count; i++) {
		const struct track_marker *m = &t->ring[(t->first + i) % TRACK_MARKERS];

		if (!m->launches || !is_last(t, i))
			continue;
		if (n == STREAMS_MOST)
			return 0;
		last[n++] = m;
	}
	return n;
}

static bool hang(struct track *t, const struct track_marker *const *last, unsigned n)
{
	__typeof__(cuStreamCreateWithPriority) *create = arb_real(cuStreamCreateWithPriority);
	__typeof__(cuStreamWaitEvent) *wait = arb_real(cuStreamWaitEvent);
	__typeof__(cuLaunchHostFunc) *call = arb_real(cuLaunchHostFunc);

	if (!create || !wait || !call)
		return false;
	if (!t->bell_stream && create(&t->bell_stream, CU_STREAM_NON_BLOCKING, PRIORITY) != CUDA_SUCCESS) {
		t->bell_stream = NULL;
		return false;
	}
	for (unsigned i = 0; i < n; i++)
		if (wait(t->bell_stream, last[i]->event, 0) != CUDA_SUCCESS)
			return false;
	/* It may ring before the call returns. */
	__atomic_store_n(&t->bell, BELL_SET, __ATOMIC_RELAXED);
	if (call(t->bell_stream, ring, t) == CUDA_SUCCESS) {
		t->bells_set++;
		return true;
	}
	__atomic_store_n(&t->bell, BELL_NONE, __ATOMIC_RELAXED);
	return false;
}

bool bell_is_set(const struct track *t)
{
	/* One that was set in another stay has not rung in time, or never will. */
	return __atomic_load_n(&t->bell, __ATOMIC_RELAXED) == BELL_SET && t->bell_stay == t->stay;
}

/* Signed: one whose context has gone may ring nevertheless. */
static bool too_many(const struct track *t)
{
	return (int32_t)(t->bells_set - __atomic_load_n(&t->bells_rung, __ATOMIC_RELAXED)) >= BELLS_MOST;
}

bool bell_set(struct track *t, uint64_t now)
{
	__typeof__(cuCtxPushCurrent_v2) *push = arb_real(cuCtxPushCurrent_v2);
	__typeof__(cuCtxPopCurrent_v2) *pop = arb_real(cuCtxPopCurrent_v2);
	const struct track_marker *last[STREAMS_MOST];
	unsigned n;
	CUcontext popped;

	if (bell_is_set(t))
		return true;
	/* Who waits says when it is over, and might have to wait for our stream as well. */
	if (act_thread_any_waits())
		return false;
	if (t->bell_broken || now < t->bell_next_ns || t->loose || t->waiters ||
		__atomic_load_n(&arb_captures, __ATOMIC_RELAXED) || too_many(t) || !push || !pop)
		return false;
	n = choose(t, last);
	if (!n)
		return false;
	/* One stream of our own, in the first context that needs it: it can wait for events of others. */
	if (!t->bell_ctx)
		t->bell_ctx = last[0]->ctx;
	if (push(t->bell_ctx) != CUDA_SUCCESS)
		return false;
	t->bell_broken = !hang(t, last, n);
	t->bell_ns = now;
	t->bell_stay = t->stay;
	pop(&popped);
	if (!t->bell_broken)
		tracker_charge();
	return !t->bell_broken;
}

bool bell_is_needed(const struct track *t)
{
	return t->outstanding_off_ns > (stay_in_company(t) ? OFF_BESIDE_NS : OFF_NS);
}

/*
 * The first bell is the tracker's, because the driver may make a thread for it, which has the signal mask of
 * whoever asked. And it is the tracker who sees what passes on credit, and who says how far a long stay is.
 * Who waits for its work hears no bell: it might have to wait for that as well.
 */
bool bell_set_early(struct track *t, uint64_t now)
{
	if (!t->hurry || !t->single || t->unwaited < UNWAITED_LEAST || t->turns || !t->bell_stream ||
		!__atomic_load_n(&t->bells_rung, __ATOMIC_RELAXED))
		return false;
	return bell_is_needed(t) && stay_is_rare(t) &&
	       t->outstanding_ns < __atomic_load_n(&tracker_look_ns, __ATOMIC_RELAXED) && bell_set(t, now);
}

void bell_heard(struct track *t, uint64_t now, bool idle)
{
	if (__atomic_load_n(&t->bell, __ATOMIC_ACQUIRE) != BELL_RANG)
		return;
	__atomic_store_n(&t->bell, BELL_NONE, __ATOMIC_RELAXED);
	if (t->bell_vain_stay != t->stay)
		t->bell_vain = 0;
	t->bell_vain_stay = t->stay;
	t->bell_vain += t->bell_vain < VAIN_MOST;
	t->bell_next_ns =
		idle || t->bell_vain < VAIN_FREE ? 0 : now + (VAIN_NS << (t->bell_vain - VAIN_FREE));
}

void bell_forget(struct track *t, CUcontext ctx)
{
	if (t->bell_ctx != ctx)
		return;
	t->bell_ctx = NULL;
	t->bell_stream = NULL;
	t->bell_broken = false;
	t->bells_set = __atomic_load_n(&t->bells_rung, __ATOMIC_RELAXED);
	__atomic_store_n(&t->bell, BELL_NONE, __ATOMIC_RELAXED);
}
