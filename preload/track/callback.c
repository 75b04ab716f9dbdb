/*
 * Completion callbacks: if the end of work cannot be foreseen, the driver is asked to call back when it comes. A callback
 * stream of our own waits for the last fence of each of the program's streams, and then the driver calls a function. Nothing
 * is put into the program's streams, and no thread waits inside the driver: meanwhile a context can be destroyed and the
 * program can end.
 */
#include "preload/track/track.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "preload/hooks/hooks.h"
#include "preload/process/threads.h"
#include "shm/base/word.h"

/* With work in more streams than this, a request for all of them would cost more than it saves. */
#define STREAMS_MOST 16
/*
 * Higher than any device has, so the driver takes the highest. Streams of one priority may share a queue of the GPU, in which
 * a stream that waits holds up the others.
 */
#define PRIORITY (-1000)
/* If this many callbacks have not come, the driver's thread is held up, perhaps by a function of the program. A full callback
 * stream would make the next request wait for it. */
#define OWED_MOST 8
/*
 * With fewer hardware queues than this, our stream may share one with a stream of the program and hold it up. Drivers use 8
 * unless CUDA_DEVICE_MAX_CONNECTIONS says otherwise.
 */
#define QUEUES_LEAST 8

/* Runs in the driver's thread. Everything that it touches exists as long as the process. */
static void called(void *argument)
{
	struct track *t = argument;

	act_thread_is_drivers();
	arb_word_add(&t->answered, 1);
	arb_word_store_release(&t->called, 1);
	/* A thread that waits at the gate looks itself. */
	if (!arb_word_load(&t->waiters))
		tracker_ring();
}

/* Whether one of the later fences is in the same stream. */
static bool is_before(const struct book_fence *f, const struct book_fence *const *later, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		if (later[i]->stream == f->stream && f->stream != BOOK_PER_THREAD)
			return true;
	return false;
}

/* A request to be called behind the last fences of one context. If other work ends later, that is seen at the callback. */
struct request {
	CUcontext ctx;
	uint64_t places; /* of the fences in the table: a bit for each */
	unsigned n, nstreams;
	CUevent last[STREAMS_MOST];
	CUstream streams[STREAMS_MOST]; /* those of their streams that are known to exist */
};

static void choose(const struct track *t, struct request *r)
{
	const struct book_queue *q = &t->book.queue;
	const struct book_fence *chosen[STREAMS_MOST];

	for (unsigned i = q->count; i-- && r->n < STREAMS_MOST;) {
		unsigned at = q->order[i];
		const struct book_fence *f = &q->fence[at];
		CUstream stream = (CUstream)(uintptr_t)f->stream;

		if ((r->n && f->ctx != chosen[0]->ctx) || is_before(f, chosen, r->n))
			continue;
		r->ctx = t->events[at].ctx;
		r->places |= 1ull << at;
		r->last[r->n] = t->events[at].event;
		chosen[r->n++] = f;
		if (streams_is_default(stream) || streams_is_known(t, stream))
			r->streams[r->nstreams++] = stream;
		/* Where all are of one stream, the others are before it. */
		if (!q->mixed && f->stream != BOOK_PER_THREAD)
			return;
	}
}

/*
 * Returns the callback stream of a context, or NULL if there are more contexts than places. Each context has its own: a stream
 * that waited for work of another context would hold up threads that wait for its own context, or destroy it.
 */
static struct track_callback *callback_of(struct track *t, CUcontext ctx)
{
	struct track_callback *free = NULL;

	for (unsigned i = 0; ctx && i < TRACK_CONTEXTS; i++) {
		if (t->callbacks[i].ctx == ctx)
			return &t->callbacks[i];
		if (!t->callbacks[i].ctx && !free)
			free = &t->callbacks[i];
	}
	if (free)
		*free = (struct track_callback){.ctx = ctx};
	return free;
}

/* Whether callbacks are switched off, or the number of hardware queues forbids them. */
static bool is_forbidden(struct track *t)
{
	if (t->may_call == CALLBACKS_UNKNOWN) {
		const char *word = secure_getenv("GPUARB_CALLBACK"),
			   *queues = getenv("CUDA_DEVICE_MAX_CONNECTIONS");
		int n = queues ? atoi(queues) : 0;

		t->may_call = (word && !strcmp(word, "off")) || (n > 0 && n < QUEUES_LEAST) ? CALLBACKS_NEVER
											    : CALLBACKS_MAY;
	}
	return t->may_call == CALLBACKS_NEVER;
}

/* Whether a stream of the program has the priority of our stream. Then they may share a queue. */
static bool shares_priority(CUstream ours, const CUstream *theirs, unsigned n)
{
	__typeof__(cuStreamGetPriority) *get = (__typeof__(get))arb_driver_symbol("cuStreamGetPriority");
	int highest = 0, of = 0;

	/* The device has one priority for all streams, so ours cannot have another. */
	if (!get || get(ours, &highest) != CUDA_SUCCESS || highest >= 0)
		return false;
	for (unsigned i = 0; i < n; i++)
		if (get(theirs[i], &of) == CUDA_SUCCESS && of <= highest)
			return true;
	return false;
}

enum outcome { ASKED, FAILED, NEVER };

/* Carries a request out, in its context and without the lock. *stream: the callback stream, made if there is none yet. */
static enum outcome ask(struct track *t, const struct request *r, CUstream *stream)
{
	__typeof__(cuStreamCreateWithPriority) *create = arb_real(cuStreamCreateWithPriority);
	__typeof__(cuStreamWaitEvent) *wait = arb_real(cuStreamWaitEvent);
	__typeof__(cuLaunchHostFunc) *call = arb_real(cuLaunchHostFunc);

	if (!create || !wait || !call)
		return FAILED;
	if (!*stream && create(stream, CU_STREAM_NON_BLOCKING, PRIORITY) != CUDA_SUCCESS) {
		*stream = NULL;
		return FAILED;
	}
	if (shares_priority(*stream, r->streams, r->nstreams))
		return NEVER;
	for (unsigned i = 0; i < r->n; i++)
		if (wait(*stream, r->last[i], 0) != CUDA_SUCCESS)
			return FAILED;
	return call(*stream, called, t) == CUDA_SUCCESS ? ASKED : FAILED;
}

/* Returns how many callbacks are to come. It may be negative: one whose context was destroyed may come nevertheless. */
static int32_t owed(const struct track *t)
{
	return (int32_t)(t->asked - arb_word_load(&t->answered));
}

bool callback_is_owed(const struct track *t)
{
	return owed(t) > 0;
}

/*
 * Whether a callback might make a thread wait for a host function of the program. The driver may call host functions one after
 * the other, ours among them, and they may take any time. A thread that waits for all work of a context waits for the host
 * functions in it anyway; because of our callback it would also wait for those in other contexts. Graphs may have some, too.
 */
static bool waits_for_functions(const struct track *t)
{
	uint64_t seen[CAT_COUNT];

	if (t->ncontexts == 1 && arb_word_load(&arb_own.gpus) == 1)
		return false;
	act_thread_sum(seen);
	return seen[CAT_HOSTFN] + seen[CAT_GRAPH] > 0;
}

bool callback_is_prevented(const struct track *t)
{
	/* A thread that waits for work sees its end itself, and might have to wait for our callback as well. */
	return owed(t) >= OWED_MOST || act_thread_any_waits() || waits_for_functions(t);
}

static bool request(struct track *t, bool anew)
{
	__typeof__(cuCtxPushCurrent_v2) *push = arb_real(cuCtxPushCurrent_v2);
	__typeof__(cuCtxPopCurrent_v2) *pop = arb_real(cuCtxPopCurrent_v2);
	enum outcome outcome = FAILED;
	struct request r = {.n = 0};
	struct track_ask question;
	struct track_callback *c;
	CUcontext popped;
	CUstream stream;

	if (!is_forbidden(t))
		choose(t, &r);
	c = r.n && push && pop ? callback_of(t, r.ctx) : NULL;
	if (!c || c->broken || c->asking || (!anew && !c->stream))
		return false;
	c->asking = true;
	stream = c->stream;
	t->callback_ctx = r.ctx;
	/* Counted first: the callback may come before the request returns. */
	t->asked++;
	arb_word_store(&t->called, 0);
	question = (struct track_ask){.ctx = r.ctx, .places = r.places};
	ask_begin(t, &question);
	if (push(r.ctx) == CUDA_SUCCESS) {
		outcome = ask(t, &r, &stream);
		pop(&popped);
	}
	ask_end(t, &question);
	if (outcome == NEVER)
		t->may_call = CALLBACKS_NEVER;
	/* The context was destroyed meanwhile, and its callbacks were forgotten with it. */
	if (question.gone)
		return false;
	if (outcome != ASKED)
		t->asked--;
	c->stream = stream;
	c->asking = false;
	c->broken = outcome != ASKED;
	if (outcome == ASKED)
		tracker_charge();
	return outcome == ASKED;
}

/* The first callback in a context is asked for by the tracker alone: the driver may create a thread for it, which inherits the
 * signal mask of the thread that asks. */
bool callback_ask(struct track *t, bool anew)
{
	struct book_event e = {.kind = EVENT_CALLBACK};
	uint32_t answered = arb_word_load(&t->answered);

	e.result = request(t, anew) ? 0 : -1;
	track_tell(t, &e);
	/* The driver has called already, and the tracker may have looked before the book knew of the request. */
	if (!e.result && arb_word_load(&t->answered) != answered) {
		arb_word_store_release(&t->called, 1);
		tracker_ring();
	}
	return !e.result;
}

void callback_forget(struct track *t, CUcontext ctx)
{
	for (unsigned i = 0; i < TRACK_CONTEXTS; i++)
		if (t->callbacks[i].ctx == ctx)
			t->callbacks[i] = (struct track_callback){0};
	if (t->callback_ctx != ctx)
		return;
	t->callback_ctx = NULL;
	t->asked = arb_word_load(&t->answered);
	/* The callback will not come. The tracker looks as if it had. */
	arb_word_store(&t->called, 1);
}

/*
 * A program with several contexts and without host functions may have a callback of ours pending. A host function that it puts
 * into a stream now might be called before our callback, and a thread that waits for the other context would wait for it. So
 * the program's first host function waits, for a short time, until our callbacks have come; no more are asked for then.
 */
void callback_before_function(void)
{
	uint64_t end;
	int saved = errno;

	if (arb_word_load(&arb_own.function_seen))
		return;
	end = track_now() + STUCK_SOON_NS;
	for (unsigned i = 0; i < tracks_high(); i++) {
		struct track *t = &arb_own.tracks[i];

		if (!arb_word_load_acquire(&t->device) || !waits_for_functions(t))
			continue;
		while (owed(t) > 0 && track_now() < end)
			track_nap(LOOK_NS);
		arb_word_store(&arb_own.function_seen, 1);
	}
	errno = saved;
}
