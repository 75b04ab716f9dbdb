/* Are all streams idle? The driver is asked about each of them, where no fence can tell. */
#include "preload/track/track.h"

#include "preload/hooks/hooks.h"
#include "shm/base/word.h"

/* In its own context. One that captures has no work but what it had before, and to ask would break it. */
static bool captures(CUstream stream)
{
	__typeof__(cuStreamIsCapturing) *ask = arb_real(cuStreamIsCapturing);
	CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;

	return ask && (ask(stream, &status) != CUDA_SUCCESS || status != CU_STREAM_CAPTURE_STATUS_NONE);
}

static bool is_blocking(CUstream stream)
{
	static __typeof__(cuStreamGetFlags) *found;
	__typeof__(cuStreamGetFlags) *get = arb_word_load(&found);
	unsigned flags = 0;

	if (!get) {
		get = (__typeof__(get))arb_driver_symbol("cuStreamGetFlags");
		arb_word_store(&found, get);
	}
	return !get || get(stream, &flags) != CUDA_SUCCESS || !(flags & CU_STREAM_NON_BLOCKING);
}

/* The first stream of a context from the i-th on, and whether the program was seen to begin a capture in it. Takes the
 * lock: in the midst of a question in that context, so that nobody destroys it meanwhile. */
static bool next_of(struct track *t, CUcontext ctx, unsigned *i, CUstream *stream, bool *capturing)
{
	bool found = false;

	track_lock(t);
	while (!found && *i < t->nstreams) {
		const struct track_stream *s = t->streams[(*i)++];

		found = s->ctx == ctx;
		*stream = s->stream;
		*capturing = s->capturing;
	}
	track_unlock(t);
	return found;
}

/* The default stream waits for those that block, so that it cannot be asked while one of them captures: in
 * its own capture, or because it has joined another's. */
static bool is_bound(struct track *t, CUcontext ctx)
{
	unsigned i = 0;
	CUstream stream;
	bool capturing;

	while (next_of(t, ctx, &i, &stream, &capturing))
		if (streams_is_default(stream) ? capturing
					       : (capturing || captures(stream)) && is_blocking(stream))
			return true;
	return captures(NULL);
}

/* The driver is asked as well, not only our memory of it: there are captures that no call of the program's was seen to
 * begin. And those that it is about to begin the driver does not know of. */
static bool may_be_asked(struct track *t, CUstream stream, CUcontext ctx, bool capturing)
{
	if (stream || !arb_word_load(&arb_own.captures))
		return !capturing && !captures(stream);
	return !is_bound(t, ctx);
}

/* Under the lock, and without it while it asks. */
static bool busy(struct track *t, CUstream stream, CUcontext ctx, bool capturing, uint64_t *asked_ns)
{
	__typeof__(cuStreamQuery) *query = arb_real(cuStreamQuery);
	__typeof__(cuCtxPushCurrent_v2) *push = arb_real(cuCtxPushCurrent_v2);
	__typeof__(cuCtxPopCurrent_v2) *pop = arb_real(cuCtxPopCurrent_v2);
	struct track_ask ask = {.ctx = ctx};
	CUresult r = CUDA_SUCCESS;
	CUcontext popped;

	ask_begin(t, &ask);
	*asked_ns = track_now();
	if (query && push && pop && push(ctx) == CUDA_SUCCESS) {
		if (may_be_asked(t, stream, ctx, capturing))
			r = query(stream);
		pop(&popped);
	}
	ask_end(t, &ask);
	return r == CUDA_ERROR_NOT_READY;
}

static bool is_busy(struct track *t, unsigned i, uint64_t *asked_ns)
{
	const struct track_stream *s = i < t->nstreams ? t->streams[i] : NULL;

	return s && !streams_is_default(s->stream) && busy(t, s->stream, s->ctx, s->capturing, asked_ns);
}

enum streams_state streams_ask(struct track *t, uint64_t *asked_ns)
{
	uint64_t listed = t->listed;
	unsigned last = t->last_busy;

	/* Mostly it is the same one again. */
	if (is_busy(t, last, asked_ns))
		return STREAMS_BUSY;
	for (unsigned i = 0; t->listed == listed && i < t->ncontexts; i++)
		if (busy(t, NULL, t->contexts[i]->ctx, false, asked_ns))
			return STREAMS_BUSY;
	for (unsigned i = 0; t->listed == listed && i < t->nstreams; i++)
		if (i != last && is_busy(t, i, asked_ns)) {
			t->last_busy = i;
			return STREAMS_BUSY;
		}
	return t->listed == listed ? STREAMS_IDLE : STREAMS_UNKNOWN;
}
