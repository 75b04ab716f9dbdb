/*
 * Where this process's work can be: contexts and streams, and which streams capture. The driver must not be asked about a
 * stream that captures, and a context that is destroyed takes its streams and events with it. So the hooks of both note it
 * under the lock and then wait until the questions that have begun are answered (ask.c).
 */
#include "preload/track/track.h"

#include <errno.h>
#include <stdlib.h>

#include "preload/hooks/hooks.h"
#include "shm/base/word.h"

static struct track_stream *find(const struct track *t, CUstream stream)
{
	return (struct track_stream *)known_find(&t->streams_known, (uintptr_t)stream);
}

static struct track_context *find_context(const struct track *t, CUcontext ctx)
{
	return (struct track_context *)known_find(&t->contexts_known, (uintptr_t)ctx);
}

CUcontext streams_context_of(CUstream stream)
{
	const struct track_stream *s = NULL;
	CUcontext ctx = NULL;

	if (streams_is_default(stream) || !known_read())
		return NULL;
	for (unsigned i = 0; i < tracks_high() && !s; i++)
		s = find(&arb_own.tracks[i], stream);
	if (s)
		ctx = s->ctx;
	known_read_end();
	return ctx;
}

bool streams_knows(struct track *t, CUcontext ctx)
{
	bool knows;

	if (!known_read())
		return false;
	knows = find_context(t, ctx) != NULL;
	known_read_end();
	return knows;
}

bool streams_is_known(const struct track *t, CUstream stream)
{
	return find(t, stream) != NULL;
}

void streams_context(struct track *t, CUcontext ctx)
{
	struct track_context *c;

	/* The table is full: of further contexts the fences are looked at, but not the default streams. */
	if (!ctx || t->ncontexts == TRACK_CONTEXTS || find_context(t, ctx))
		return;
	c = malloc(sizeof(*c));
	if (!c)
		return;
	c->ctx = ctx;
	c->made = false;
	known_add(&t->contexts_known, &c->known, (uintptr_t)ctx);
	t->contexts[t->ncontexts++] = c;
	t->listed++;
}

static void mark_as_made(struct track *t, CUcontext ctx)
{
	struct track_context *c = find_context(t, ctx);

	if (c)
		c->made = true;
}

/* What a thread forgot before the driver destroys it: a stream, or, if `stream` is NULL, a context. */
struct stream_forgotten {
	struct track *t;
	CUstream stream;
	CUcontext ctx;
	uint32_t capturing;
	bool made;
};

static void remember(const struct stream_forgotten *what)
{
	if (arb_mine.forgotten.n == arb_mine.forgotten.room) {
		unsigned room = arb_mine.forgotten.room ? 2 * arb_mine.forgotten.room : 16;
		void *more = realloc(arb_mine.forgotten.list, room * sizeof(*arb_mine.forgotten.list));

		if (!more)
			return;
		arb_mine.forgotten.list = more;
		arb_mine.forgotten.room = room;
	}
	arb_mine.forgotten.list[arb_mine.forgotten.n++] = *what;
}

static void drop(struct track *t, unsigned i)
{
	struct track_stream *s = t->streams[i];

	remember(&(struct stream_forgotten){t, s->stream, s->ctx, s->capturing, false});
	arb_word_sub(&arb_own.captures, s->capturing);
	t->streams[i] = t->streams[--t->nstreams];
	t->listed++;
	known_remove(&s->known);
}

void streams_forget(struct track *t, CUcontext ctx)
{
	for (unsigned i = t->nstreams; i-- > 0;)
		if (t->streams[i]->ctx == ctx)
			drop(t, i);
	for (unsigned i = t->ncontexts; i-- > 0;) {
		struct track_context *c = t->contexts[i];

		if (c->ctx != ctx)
			continue;
		remember(&(struct stream_forgotten){.t = t, .ctx = ctx, .made = c->made});
		t->contexts[i] = t->contexts[--t->ncontexts];
		t->listed++;
		known_remove(&c->known);
	}
}

static struct track_stream *add(struct track *t, CUstream stream, CUcontext ctx)
{
	struct track_stream *s = find(t, stream);

	if (s)
		return s;
	if (t->nstreams == t->room) {
		unsigned room = t->room ? 2 * t->room : 32;
		struct track_stream **more = realloc(t->streams, room * sizeof(*more));

		if (!more)
			return NULL;
		t->streams = more;
		t->room = room;
	}
	s = malloc(sizeof(*s));
	if (!s)
		return NULL;
	s->stream = stream;
	s->ctx = ctx;
	s->capturing = 0;
	known_add(&t->streams_known, &s->known, (uintptr_t)stream);
	t->streams[t->nstreams++] = s;
	t->listed++;
	return s;
}

static CUresult ask_capture(const struct act_call *call, CUstreamCaptureStatus *status)
{
	__typeof__(cuStreamIsCapturing) *ask = arb_hooks[call->id].variant == VARIANT_LEGACY
						       ? arb_real(cuStreamIsCapturing)
						       : arb_real(cuStreamIsCapturing_ptsz);

	*status = CU_STREAM_CAPTURE_STATUS_NONE;
	return ask ? ask(call->stream, status) : CUDA_SUCCESS;
}

bool streams_capturing(const struct act_call *call)
{
	CUstreamCaptureStatus status;

	/* The legacy default stream gives an error while another stream captures. Nothing of ours may be put into it then. */
	return ask_capture(call, &status) != CUDA_SUCCESS || status != CU_STREAM_CAPTURE_STATUS_NONE;
}

/* Whether the capture has ended, with a graph or without one. In a broken context no capture goes on. */
static bool capture_is_over(const struct act_call *call, CUresult result)
{
	CUstreamCaptureStatus status;

	return result == CUDA_SUCCESS || result == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED ||
	       result == CUDA_ERROR_STREAM_CAPTURE_UNJOINED || ask_capture(call, &status) != CUDA_SUCCESS ||
	       status == CU_STREAM_CAPTURE_STATUS_NONE;
}

static struct track *here(CUcontext *ctx)
{
	__typeof__(cuCtxGetCurrent) *current = arb_real(cuCtxGetCurrent);
	struct arb_device *device = arb_device_current();

	if (!device || !current || current(ctx) != CUDA_SUCCESS || !*ctx)
		return NULL;
	return tracker_get(device);
}

static void everywhere(void (*act)(struct track *t, uint64_t argument), uint64_t argument)
{
	for (unsigned i = 0; i < tracks_high(); i++) {
		struct track *t = &arb_own.tracks[i];

		if (!arb_word_load_acquire(&t->device))
			continue;
		track_lock(t);
		act(t, argument);
		track_unlock(t);
	}
}

static void forget_stream(struct track *t, uint64_t handle)
{
	for (unsigned i = t->nstreams; i-- > 0;) {
		CUcontext ctx = t->streams[i]->ctx;

		if ((uintptr_t)t->streams[i]->stream != handle)
			continue;
		drop(t, i);
		ask_wait(t, ctx);
		return;
	}
}

static bool has_work(const struct track *t, CUcontext ctx)
{
	for (unsigned i = 0; i < BOOK_FENCES; i++)
		if (t->book.queue.fence[i].launches && t->events[i].ctx == ctx)
			return true;
	return t->book.interval.unfenced && find_context(t, ctx);
}

/*
 * Keeps the process in the running set until the call that destroys the context comes back: from now on the driver cannot
 * be asked when the context's work ends. The time of the destruction itself is billed too, because nothing tells it from the
 * time of the work.
 */
static void keep_in(struct track *t, CUcontext ctx)
{
	struct book_event e = {.kind = EVENT_HELD, .covers = 1};

	if (arb_mine.going || !book_is_in(&t->book) || !has_work(t, ctx) || track_settle(t))
		return;
	track_tell(t, &e);
	arb_mine.going = t;
}

/* The call has come back, so the work of the context is over: the opposite of keep_in. */
static void gone(void)
{
	struct track *t = arb_mine.going;
	struct book_event e = {.kind = EVENT_HELD, .at_ns = track_now()};
	CUstreamCaptureMode mode;
	int saved = errno;

	if (!t)
		return;
	arb_mine.going = NULL;
	mode = track_relax();
	track_lock(t);
	track_tell(t, &e);
	track_settle(t);
	track_unlock(t);
	track_unrelax(mode);
	errno = saved;
}

static void forget_context(struct track *t, uint64_t handle)
{
	CUcontext ctx = (CUcontext)(uintptr_t)handle;

	keep_in(t, ctx);
	events_forget(t, ctx);
	callback_forget(t, ctx);
	streams_forget(t, ctx);
	ask_wait(t, ctx);
}

static void forget_everywhere(void (*forget)(struct track *t, uint64_t handle), uint64_t handle)
{
	int saved = errno;
	CUstreamCaptureMode mode = track_relax();

	everywhere(forget, handle);
	track_unrelax(mode);
	errno = saved;
}

/* Returns the context behind a green context, which has a handle of its own; NULL: there is none. */
static CUcontext green_context(uint64_t green)
{
	__typeof__(cuCtxFromGreenCtx) *from = arb_real(cuCtxFromGreenCtx);
	CUcontext ctx = NULL;

	return from && from(&ctx, (CUgreenCtx)(uintptr_t)green) == CUDA_SUCCESS ? ctx : NULL;
}

static void forget_green(struct track *t, uint64_t handle)
{
	if (handle && t->primary != (CUcontext)(uintptr_t)handle)
		forget_context(t, handle);
}

/* The driver refused to destroy: puts everything back. The fences of the work are lost, so the book is told so. */
static void restore(void)
{
	for (unsigned i = 0; i < arb_mine.forgotten.n; i++) {
		const struct stream_forgotten *was = &arb_mine.forgotten.list[i];
		struct book_event e = {.kind = EVENT_ABANDONED};
		struct track_stream *s = NULL;

		track_lock(was->t);
		if (was->stream) {
			s = add(was->t, was->stream, was->ctx);
		} else {
			streams_context(was->t, was->ctx);
			if (was->made)
				mark_as_made(was->t, was->ctx);
		}
		if (s) {
			s->capturing += was->capturing;
			arb_word_add(&arb_own.captures, was->capturing);
		}
		track_tell(was->t, &e);
		track_unlock(was->t);
	}
	if (arb_mine.forgotten.primary_of)
		arb_mine.forgotten.primary_of->retained = arb_mine.forgotten.retained;
}

static void settle_forgotten(CUresult result)
{
	int saved = errno;

	if (result != CUDA_SUCCESS)
		restore();
	free(arb_mine.forgotten.list);
	arb_mine.forgotten.list = NULL;
	arb_mine.forgotten.n = arb_mine.forgotten.room = 0;
	arb_mine.forgotten.primary_of = NULL;
	errno = saved;
}

/* Finds the first context that may be the primary one. */
static bool unmade(const struct track *t, CUcontext *ctx)
{
	for (unsigned i = 0; i < t->ncontexts; i++)
		if (!t->contexts[i]->made) {
			*ctx = t->contexts[i]->ctx;
			return true;
		}
	return false;
}

/*
 * A device's primary context is reset or released. A release destroys it only if it is the last: others may have retained
 * it as well. If no retain was seen, the primary context may be any context that no hooked call made.
 */
static void forget_primary(CUdevice ordinal, bool all)
{
	struct arb_device *device = arb_device_known(ordinal);
	struct track *t = device ? tracker_get(device) : NULL;
	CUstreamCaptureMode mode;
	int saved = errno;
	CUcontext ctx;

	if (!t)
		return;
	mode = track_relax();
	track_lock(t);
	arb_mine.forgotten.primary_of = t;
	arb_mine.forgotten.retained = t->retained;
	t->retained = all || !t->retained ? 0 : t->retained - 1;
	if (!t->retained && t->primary)
		forget_context(t, (uintptr_t)t->primary);
	else
		while (!t->retained && unmade(t, &ctx))
			forget_context(t, (uintptr_t)ctx);
	track_unlock(t);
	track_unrelax(mode);
	errno = saved;
}

static void capture_begins(CUstream stream)
{
	CUcontext ctx;
	struct track *t = here(&ctx);
	struct track_stream *s;

	if (!t)
		return;
	track_lock(t);
	s = add(t, stream, ctx);
	if (s) {
		s->capturing++;
		arb_word_add(&arb_own.captures, 1);
		/* Questions that begin later leave the stream alone. */
		ask_wait(t, ctx);
	}
	track_unlock(t);
	/* On credit, calls that are captured would be counted as work. */
	gate_renew();
}

static bool capture_ended(struct track *t, CUstream stream)
{
	struct track_stream *s;
	bool found;

	track_lock(t);
	s = find(t, stream);
	found = s && s->capturing;
	if (found) {
		s->capturing--;
		arb_word_sub(&arb_own.captures, 1);
	}
	track_unlock(t);
	return found;
}

/* Ends one capture only. The current GPU is looked at first: a thread's default stream has the same handle on all. */
static void capture_ends(CUstream stream)
{
	CUcontext ctx;
	struct track *t = here(&ctx);

	if (t && capture_ended(t, stream))
		return;
	for (unsigned i = 0; i < tracks_high(); i++)
		if (arb_word_load_acquire(&arb_own.tracks[i].device) &&
			capture_ended(&arb_own.tracks[i], stream))
			return;
}

static bool begins_capture(enum hook_id id)
{
	return id >= HOOK_cuStreamBeginCapture && id <= HOOK_cuStreamBeginCaptureToGraph_ptsz;
}

void streams_before(struct act_call *call)
{
	switch (call->id) {
	case HOOK_cuStreamDestroy:
	case HOOK_cuStreamDestroy_v2:
		everywhere(forget_stream, (uintptr_t)call->stream);
		break;
	case HOOK_cuCtxDestroy:
	case HOOK_cuCtxDestroy_v2:
	case HOOK_cuCtxDetach:
		forget_everywhere(forget_context, call->handle);
		break;
	case HOOK_cuGreenCtxDestroy:
		forget_everywhere(forget_green, (uintptr_t)green_context(call->handle));
		break;
	case HOOK_cuDevicePrimaryCtxReset:
	case HOOK_cuDevicePrimaryCtxReset_v2:
		forget_primary(call->device, true);
		break;
	case HOOK_cuDevicePrimaryCtxRelease:
	case HOOK_cuDevicePrimaryCtxRelease_v2:
		forget_primary(call->device, false);
		break;
	default:
		if (begins_capture(call->id))
			capture_begins(call->stream);
	}
}

static void made_context(const struct act_call *call)
{
	struct arb_device *device = arb_device_get(call->device);
	struct track *t = device ? tracker_get(device) : NULL;

	if (!t || !call->out)
		return;
	track_lock(t);
	streams_context(t, *(CUcontext *)call->out);
	if (call->id == HOOK_cuDevicePrimaryCtxRetain) {
		t->primary = *(CUcontext *)call->out;
		t->retained++;
	} else {
		mark_as_made(t, *(CUcontext *)call->out);
	}
	track_unlock(t);
}

static void made_stream(const struct act_call *call)
{
	CUcontext ctx;
	struct track *t = here(&ctx);

	if (!t || !call->out)
		return;
	if (call->id == HOOK_cuGreenCtxStreamCreate)
		ctx = green_context(call->handle);
	if (!ctx)
		return;
	/* A stream with this handle is in the table still: its destruction was not seen. */
	if (streams_context_of(*(CUstream *)call->out)) {
		everywhere(forget_stream, (uintptr_t) * (CUstream *)call->out);
		settle_forgotten(CUDA_SUCCESS);
	}
	track_lock(t);
	streams_context(t, ctx);
	add(t, *(CUstream *)call->out, ctx);
	track_unlock(t);
}

void streams_after(struct act_call *call, CUresult result)
{
	if (begins_capture(call->id) && result != CUDA_SUCCESS)
		capture_ends(call->stream);
	settle_forgotten(result);
	/* While there is a tracker, it frees. */
	if (!arb_word_load(&arb_own.running))
		known_free();
	gone();
	switch (call->id) {
	case HOOK_cuStreamEndCapture:
	case HOOK_cuStreamEndCapture_ptsz:
		if (capture_is_over(call, result))
			capture_ends(call->stream);
		break;
	case HOOK_cuCtxCreate:
	case HOOK_cuCtxCreate_v2:
	case HOOK_cuCtxCreate_v3:
	case HOOK_cuCtxCreate_v4:
	case HOOK_cuDevicePrimaryCtxRetain:
		if (result == CUDA_SUCCESS)
			made_context(call);
		break;
	case HOOK_cuStreamCreate:
	case HOOK_cuStreamCreateWithPriority:
	case HOOK_cuGreenCtxStreamCreate:
		if (result == CUDA_SUCCESS)
			made_stream(call);
		break;
	default:
		break;
	}
}
