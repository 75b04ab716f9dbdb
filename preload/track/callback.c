/*
 * Completion callbacks: where the end of work cannot be foreseen, the driver is asked to say when it comes. A stream of
 * our own waits for the last fence of each of the program's, and then the driver calls back. Nothing is put into the
 * program's streams, and nobody waits inside the driver: a context can be destroyed, and a program end, meanwhile.
 */
#include "preload/track/track.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "preload/hooks/hooks.h"
#include "preload/process/threads.h"
#include "shm/base/word.h"

/* In more streams than this, to ask for all of them would cost more than it saves. */
#define STREAMS_MOST 16
/*
 * Beyond what any device has, so that it is the highest. Streams may share the GPU's queues, in which one that waits holds
 * others up; not with those of another priority.
 */
#define PRIORITY (-1000)
/* If so many have not come, the driver's thread is held up, perhaps by a function of the program's: to queue ever more
 * would in the end wait for it. */
#define OWED_MOST 8
/*
 * Where streams have fewer queues of the hardware than this, ours may share one with the program's, and holds up what is
 * behind it there. Drivers have 8 unless CUDA_DEVICE_MAX_CONNECTIONS says otherwise.
 */
#define QUEUES_LEAST 8

/* In the driver's thread. Everything that it touches is there for as long as the process. */
static void called(void *argument)
{
	struct track *t = argument;

	act_thread_is_drivers();
	arb_word_add(&t->answered, 1);
	arb_word_store_release(&t->called, 1);
	/* Who stands at the gate has more work. */
	if (!arb_word_load(&t->waiters))
		tracker_ring();
}

/* Is one of those behind it in the same stream? */
static bool is_before(const struct book_fence *f, const struct book_fence *const *later, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		if (later[i]->stream == f->stream && f->stream != BOOK_PER_THREAD)
			return true;
	return false;
}

/* What to ask for: to be called behind the last fences, of one context. If it is others that end last, that is seen when
 * it has called. */
struct request {
	CUcontext ctx;
	uint64_t places; /* of the fences, a bit for each */
	unsigned n, nstreams;
	CUevent last[STREAMS_MOST];
	CUstream streams[STREAMS_MOST]; /* those of them that are known to be there still */
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
	}
}

/*
 * Each context has its own stream for it. One that waited for another context's work would hold up whoever waits for all
 * of its own context, or destroys it. NULL: there are more contexts than that.
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

/* Does the administrator, or the number of queues, forbid a stream of ours that waits? */
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

/* Does the program use the priority that our stream has? Then they may share a queue. */
static bool shares_priority(CUstream ours, const CUstream *theirs, unsigned n)
{
	__typeof__(cuStreamGetPriority) *get = (__typeof__(get))arb_driver_symbol("cuStreamGetPriority");
	int highest = 0, of = 0;

	/* Where there is one priority for all, our stream has no other to take. */
	if (!get || get(ours, &highest) != CUDA_SUCCESS || highest >= 0)
		return false;
	for (unsigned i = 0; i < n; i++)
		if (get(theirs[i], &of) == CUDA_SUCCESS && of <= highest)
			return true;
	return false;
}

enum outcome { ASKED, FAILED, NEVER };

/* In the context, without the lock. *stream: ours, made if there is none yet. */
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

/* Signed: one whose context has gone may come nevertheless. */
static int32_t owed(const struct track *t)
{
	return (int32_t)(t->asked - arb_word_load(&t->answered));
}

bool callback_is_owed(const struct track *t)
{
	return owed(t) > 0;
}

/*
 * Functions of the program's may be called one after the other with ours, and take any time. Who waits for all of a context
 * waits for those in it as well; for those of another context it would wait because of us. Graphs may have some.
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
	/* Who waits says when it is over, and might have to wait for our stream as well. */
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
	/* It may come before the call returns. */
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
	/* What is owed in a context that has gone was forgotten with it. */
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

/* The first one in a context is the tracker's to ask for, because the driver may make a thread for it, which has the
 * signal mask of whoever asked. */
bool callback_ask(struct track *t, bool anew)
{
	struct book_event e = {.kind = EVENT_CALLBACK};
	uint32_t answered = arb_word_load(&t->answered);

	e.result = request(t, anew) ? 0 : -1;
	track_tell(t, &e);
	/* It has called already, and the tracker may have looked before the book was told that it would. */
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
	/* It will not come: the tracker looks as if it had. */
	arb_word_store(&t->called, 1);
}

/*
 * Who has several contexts and no functions may have a callback pending. One that it now puts into a stream would be called
 * before that, and whoever waits for all of the other context would wait for it: so ours come first, which they do by
 * themselves, and are not asked for again. Only the first function waits, and not for long.
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
