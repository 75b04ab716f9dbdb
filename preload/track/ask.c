/*
 * Questions to the driver. The driver is never called with a lock of ours: it has locks of its own, may load a module for
 * seconds while it holds them, and its threads call the program. So a thread that asks notes, under the lock, which handles
 * it will use, asks without the lock, and takes the lock again for the answer. A thread that destroys a stream or a context
 * takes it out of the tables first, so that no new question uses it, and then waits here until the questions that have begun
 * have ended.
 */
#include "preload/track/track.h"

#include "preload/hooks/hooks.h"
#include "shm/base/os.h"
#include "shm/base/word.h"

/* The end of a question wakes the threads that wait for it. A thread that ends within its question wakes nobody, so they look
 * this often. */
#define WAIT_NS (100 * MS)

void ask_begin(struct track *t, struct track_ask *ask)
{
	ask->number = ++t->ask_number;
	ask->next = t->asks;
	t->asks = ask;
	track_unlock(t);
	/* Calls that the driver makes into our hooks meanwhile are parts of our own call. */
	arb_mine.locks++;
}

void ask_end(struct track *t, struct track_ask *ask)
{
	struct track_ask **at = &t->asks;

	arb_mine.locks--;
	track_lock(t);
	while (*at && *at != ask)
		at = &(*at)->next;
	if (*at)
		*at = ask->next;
	if (!t->ask_waiters)
		return;
	arb_word_add(&t->ask_ended, 1);
	arb_os_unpark(&t->ask_ended);
}

bool ask_is_alone(const struct track *t, const struct track_ask *mine)
{
	for (const struct track_ask *ask = t->asks; ask; ask = ask->next)
		if (ask != mine && ask->ctx == mine->ctx)
			return false;
	return true;
}

uint64_t ask_places(const struct track *t)
{
	uint64_t places = 0;

	for (const struct track_ask *ask = t->asks; ask; ask = ask->next)
		places |= ask->places;
	return places;
}

void ask_forget(struct track *t, CUcontext ctx)
{
	for (struct track_ask *ask = t->asks; ask; ask = ask->next)
		if (ask->ctx == ctx)
			ask->gone = true;
}

/* Whether a question in this context with a number up to `last` has not ended. */
static bool any(const struct track *t, CUcontext ctx, uint64_t last)
{
	for (const struct track_ask *ask = t->asks; ctx && ask; ask = ask->next)
		if (ask->ctx == ctx && ask->number <= last)
			return true;
	return false;
}

void ask_wait(struct track *t, CUcontext ctx)
{
	uint64_t last = t->ask_number;

	while (any(t, ctx, last)) {
		uint32_t ended = t->ask_ended;

		t->ask_waiters++;
		track_unlock(t);
		arb_os_park(&t->ask_ended, ended, WAIT_NS);
		track_lock(t);
		t->ask_waiters--;
	}
}

bool ask_enter(struct track_current *current, CUcontext ctx)
{
	__typeof__(cuCtxGetCurrent) *get = arb_real(cuCtxGetCurrent);
	__typeof__(cuCtxPushCurrent_v2) *push = arb_real(cuCtxPushCurrent_v2);

	if (!current->known && (!get || get(&current->ctx) != CUDA_SUCCESS))
		current->ctx = NULL;
	current->known = true;
	return current->ctx != ctx && push && push(ctx) == CUDA_SUCCESS;
}

void ask_leave(bool entered)
{
	__typeof__(cuCtxPopCurrent_v2) *pop = arb_real(cuCtxPopCurrent_v2);
	CUcontext popped;

	if (entered && pop)
		pop(&popped);
}
