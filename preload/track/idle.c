/* Finds out whether all streams are idle, by asking the driver about each, where no fence can tell. */
#include "preload/track/track.h"

#include "preload/hooks/hooks.h"
#include "shm/base/word.h"

/* Whether a stream captures, asked in its own context. Then it must not be queried: that would break the capture. */
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

/* Finds the first stream of a context from the i-th on, and whether the program was seen to begin a capture in it. Takes the
 * lock. The caller is within a question in that context, so it cannot be destroyed meanwhile. */
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

/* Whether the default stream must not be asked. It waits for blocking streams, so it cannot be asked while one of them
 * captures, in a capture of its own or because it has joined another one. */
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

/* Whether a stream may be queried. The driver is asked whether it captures, because a capture may have begun without a call
 * that was seen. What was seen counts too, because the driver does not know of a capture that is just about to begin. */
static bool may_be_asked(struct track *t, CUstream stream, CUcontext ctx, bool capturing)
{
	if (stream || !arb_word_load(&arb_own.captures))
		return !capturing && !captures(stream);
	return !is_bound(t, ctx);
}

/* Whether a stream has work. Called with the lock held, which is released while the driver is asked. */
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

	/* Usually the same stream is busy again. */
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
