/*
 * A bell behind the work: where its end cannot be foreseen, the driver is asked to say when it comes. A
 * stream of our own waits for the last marker of each of the program's, and then the driver calls back.
 * Nothing is put into the program's streams, and nobody waits inside the driver: a context can be destroyed,
 * and a program end, while a bell is set.
 */
#include "track.h"

#include <errno.h>

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
/* So long the first function of a program's may have to wait for a bell. */
#define RING_NS (100 * MS)
/* Who has launched so many and waited for none will not wait for this one. */
#define UNWAITED_LEAST 32

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

/* Is one of those behind it in the same stream? Threads' own streams have one name. */
static bool is_before(const struct track_marker *m, const struct track_marker *const *later, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		if (later[i]->stream == m->stream && m->stream != CU_STREAM_PER_THREAD)
			return true;
	return false;
}

/* The markers to wait for: the last ones, of one context. If it is others that end last, that is seen when it
 * has rung. */
static unsigned choose(const struct track *t, const struct track_marker *last[STREAMS_MOST])
{
	unsigned n = 0;

	for (unsigned i = t->count; i-- && n < STREAMS_MOST;) {
		const struct track_marker *m = &t->ring[(t->first + i) % TRACK_MARKERS];

		if (m->launches && (!n || m->ctx == last[0]->ctx) && !is_before(m, last, n))
			last[n++] = m;
	}
	return n;
}

/*
 * Each context has its own stream for it. One that waited for another context's work would hold up whoever
 * waits for all of its own context, or destroys it. NULL: there are more contexts than that.
 */
static struct track_rope *rope_of(struct track *t, CUcontext ctx)
{
	struct track_rope *free = NULL;

	if (!ctx)
		return NULL;
	for (unsigned i = 0; i < TRACK_CONTEXTS; i++) {
		if (t->ropes[i].ctx == ctx)
			return &t->ropes[i];
		if (!t->ropes[i].ctx && !free)
			free = &t->ropes[i];
	}
	if (free)
		*free = (struct track_rope){.ctx = ctx};
	return free;
}

static bool hang(struct track *t, struct track_rope *rope, const struct track_marker *const *last, unsigned n)
{
	__typeof__(cuStreamCreateWithPriority) *create = arb_real(cuStreamCreateWithPriority);
	__typeof__(cuStreamWaitEvent) *wait = arb_real(cuStreamWaitEvent);
	__typeof__(cuLaunchHostFunc) *call = arb_real(cuLaunchHostFunc);

	if (!create || !wait || !call)
		return false;
	if (!rope->stream && create(&rope->stream, CU_STREAM_NON_BLOCKING, PRIORITY) != CUDA_SUCCESS) {
		rope->stream = NULL;
		return false;
	}
	for (unsigned i = 0; i < n; i++)
		if (wait(rope->stream, last[i]->event, 0) != CUDA_SUCCESS)
			return false;
	/* It may ring before the call returns. */
	__atomic_store_n(&t->bell, BELL_SET, __ATOMIC_RELAXED);
	if (call(rope->stream, ring, t) == CUDA_SUCCESS) {
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
static int32_t unrung(const struct track *t)
{
	return (int32_t)(t->bells_set - __atomic_load_n(&t->bells_rung, __ATOMIC_RELAXED));
}

/*
 * Functions of the program's may be called one after the other with ours, and take any time. Who waits for
 * all of a context waits for those in it as well; for those of another context it would wait because of us.
 * Graphs may have some.
 */
static bool waits_for_functions(const struct track *t)
{
	uint64_t seen[CAT_COUNT];

	if (t->ncontexts == 1 && __atomic_load_n(&arb_own.gpus, __ATOMIC_RELAXED) == 1)
		return false;
	act_thread_sum(seen);
	return seen[CAT_HOSTFN] + seen[CAT_GRAPH] > 0;
}

bool bell_set(struct track *t, uint64_t now, bool anew)
{
	__typeof__(cuCtxPushCurrent_v2) *push = arb_real(cuCtxPushCurrent_v2);
	__typeof__(cuCtxPopCurrent_v2) *pop = arb_real(cuCtxPopCurrent_v2);
	const struct track_marker *last[STREAMS_MOST];
	struct track_rope *rope;
	unsigned n;
	CUcontext popped;

	if (bell_is_set(t))
		return true;
	/* Who waits says when it is over, and might have to wait for our stream as well. */
	if (act_thread_any_waits() || waits_for_functions(t))
		return false;
	if (now < t->bell_next_ns || (t->loose && !(anew && t->quiet)) || t->waiters || !push || !pop ||
		unrung(t) >= BELLS_MOST || __atomic_load_n(&arb_own.captures, __ATOMIC_RELAXED))
		return false;
	n = choose(t, last);
	rope = n ? rope_of(t, last[0]->ctx) : NULL;
	if (!rope || rope->broken || (!anew && !rope->stream) || push(rope->ctx) != CUDA_SUCCESS)
		return false;
	rope->broken = !hang(t, rope, last, n);
	t->bell_ns = now;
	t->bell_stay = t->stay;
	t->bell_ctx = rope->ctx;
	pop(&popped);
	if (!rope->broken)
		tracker_charge();
	return !rope->broken;
}

/* It can be foreseen which launch is the last, so that it is set but once. */
bool bell_is_cheap(const struct track *t)
{
	return t->regular && !t->turns && t->unwaited >= UNWAITED_LEAST && stay_is_rare(t);
}

bool bell_is_needed(const struct track *t)
{
	return t->outstanding_off_ns > (stay_in_company(t) ? OFF_BESIDE_NS : OFF_NS) ||
	       (!t->hurry && bell_is_cheap(t));
}

/*
 * The first bell in a context is the tracker's, because the driver may make a thread for it, which has the
 * signal mask of whoever asked. And it is the tracker who sees what passes on credit, and who says how far a
 * long stay is. Who waits for its work hears no bell: it might have to wait for that as well, and for
 * whatever the driver's thread does if it has not called back the last time.
 */
bool bell_set_early(struct track *t, uint64_t now)
{
	return bell_is_cheap(t) && bell_is_needed(t) && stay_is_whole(t) && unrung(t) <= 0 &&
	       t->outstanding_ns < __atomic_load_n(&arb_own.look_ns, __ATOMIC_RELAXED) &&
	       bell_set(t, now, false);
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
	for (unsigned i = 0; i < TRACK_CONTEXTS; i++)
		if (t->ropes[i].ctx == ctx)
			t->ropes[i] = (struct track_rope){0};
	if (t->bell_ctx != ctx)
		return;
	t->bell_ctx = NULL;
	t->bells_set = __atomic_load_n(&t->bells_rung, __ATOMIC_RELAXED);
	__atomic_store_n(&t->bell, BELL_NONE, __ATOMIC_RELAXED);
}

/*
 * Who has several contexts and no functions may have a bell set. One that it now puts into a stream would be
 * called before that, and whoever waits for all of the other context would wait for it: so the bells ring
 * first, which they do by themselves, and are not set again. Only the first function waits, and not for long.
 */
void bell_before_function(void)
{
	uint64_t end;
	int saved = errno;

	if (__atomic_load_n(&arb_own.bell_before, __ATOMIC_RELAXED))
		return;
	end = track_now() + RING_NS;
	for (unsigned i = 0; i < tracks_high(); i++) {
		struct track *t = &arb_own.tracks[i];

		if (!__atomic_load_n(&t->device, __ATOMIC_ACQUIRE) || !waits_for_functions(t))
			continue;
		while (unrung(t) > 0 && track_now() < end)
			track_nap(50 * US);
		__atomic_store_n(&arb_own.bell_before, 1, __ATOMIC_RELAXED);
	}
	errno = saved;
}
