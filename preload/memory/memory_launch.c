/*
 * Finds room for graphs with memory when they are launched. The most that a launch may take is known, and is reserved
 * before the driver is asked. Afterwards the driver says how much it really holds:
 *
 *     counted = what the driver holds for graphs + what the launches under way may still take
 *
 * The driver takes no new memory where it can use again what earlier launches had. So a launch that does not fit is
 * not refused at once. First, memory that is not in use is given back. Then, a graph that was also the last one to be
 * launched, in the same stream, is let pass alone, because it still has the memory that it needs. Last, running graphs
 * are waited for, until there is room or none is left.
 */
#include "preload/memory/memory_graph.h"

#include "preload/hooks/compat.h"
#include "preload/process/log.h"
#include "preload/memory/memory.h"
#include "preload/track/track.h"
#include "shm/base/word.h"

#include <errno.h>
#include <stdlib.h>

#define NAP_NS 30000u

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct graph_exec *list;
static unsigned flying;   /* launches and uploads that are in the driver */
static uint64_t entries;  /* how many launches and uploads there ever were */
static unsigned trimming; /* threads that give back what is not in use */
static bool alone;        /* the launch in the driver has reserved nothing, and no other may begin */
static bool mixed;        /* launches overlapped, or memory was given back meanwhile */
/* The graph launched last, if no other launch overlapped with it and nothing has been given back since; else NULL. */
static const struct graph_exec *last;
static struct memory_place last_place;

/* What the calling thread's launch has reserved. */
static __thread struct {
	uint64_t bytes[GRAPH_DEVICES];
	struct memory_place place;
	bool alone;
	bool again;    /* the missing memory may be given back at any moment */
	unsigned lack; /* index of the need that found no room */
} own;

static void release_all(const struct graph_exec *x)
{
	for (unsigned i = 0; i < x->n; i++) {
		memory_graph_done(x->need[i].ordinal, own.bytes[i]);
		own.bytes[i] = 0;
	}
}

/* Reserves all of `want`, or nothing. */
static bool reserve_all(const struct graph_exec *x, const uint64_t *want)
{
	for (unsigned i = 0; i < x->n; i++) {
		int r = memory_graph_expect(x->need[i].ordinal, want[i]);

		if (r < 0) {
			release_all(x);
			own.again = r == -EAGAIN;
			own.lack = i;
			return false;
		}
		own.bytes[i] = want[i];
	}
	return true;
}

/* The lock is held. A launch with auto_free first frees what the graph left at its last launch, so it needs that much
 * less. */
static void wanted(const struct graph_exec *x, uint64_t *want)
{
	for (unsigned i = 0; i < x->n; i++) {
		want[i] = x->need[i].bytes;
		for (size_t k = 0; k < x->nrest && x->auto_free; k++)
			if (x->rest[k].there && x->rest[k].ordinal == x->need[i].ordinal)
				want[i] -= x->rest[k].bytes < want[i] ? x->rest[k].bytes : want[i];
	}
}

static bool try_to_enter(const struct graph_exec *x)
{
	uint64_t want[GRAPH_DEVICES];

	pthread_mutex_lock(&lock);
	if (alone) {
		pthread_mutex_unlock(&lock);
		own.again = true;
		return false;
	}
	mixed |= flying || trimming;
	flying++;
	wanted(x, want);
	pthread_mutex_unlock(&lock);
	if (reserve_all(x, want)) {
		arb_word_add_acq_rel(&entries, 1);
		return true;
	}
	pthread_mutex_lock(&lock);
	flying--;
	mixed &= flying != 0;
	pthread_mutex_unlock(&lock);
	return false;
}

/* Waits while other calls have reserved more than they may need, and gives up after `until`. */
static bool enter_undisturbed(const struct graph_exec *x, uint64_t until)
{
	memory_give_back();
	while (!try_to_enter(x)) {
		if (!own.again || track_now() > until)
			return false;
		memory_nap(NAP_NS);
		memory_give_back();
	}
	return true;
}

/* Lets the graph pass without a reservation if it was launched last: it still has its memory, and nobody can take the
 * memory away while `alone` is set. */
static bool enter_alone(const struct graph_exec *x)
{
	pthread_mutex_lock(&lock);
	own.alone = !flying && !trimming && last == x && memory_place_same(&last_place, &own.place);
	if (own.alone) {
		alone = true;
		flying++;
		arb_word_add_acq_rel(&entries, 1);
	}
	pthread_mutex_unlock(&lock);
	return own.alone;
}

/* Returns how many graphs are under way, in the driver or on the GPU. Frees destroyed graphs whose work has ended. */
static unsigned running(void)
{
	CUstreamCaptureMode mode = track_relax();
	unsigned n;

	pthread_mutex_lock(&lock);
	n = memory_calls_flying() + alone;
	for (struct graph_exec **at = &list, *x; (x = *at);) {
		x->busy = x->busy && !memory_mark_passed(&x->mark);
		n += x->busy;
		if (x->gone && !x->busy) {
			*at = x->next;
			graph_drop(x);
		} else {
			at = &x->next;
		}
	}
	pthread_mutex_unlock(&lock);
	track_unrelax(mode);
	return n;
}

/* Tries once more. *others is false only if no graph ran, none came and went meanwhile, and no call under way is still
 * worth waiting for: then the launch can be refused. */
static bool try_without_others(const struct graph_exec *x, uint64_t until, bool *others)
{
	uint64_t before = arb_word_load_acquire(&entries);

	*others = running() != 0;
	memory_give_back();
	if (try_to_enter(x))
		return true;
	*others |= (own.again && track_now() < until) || arb_word_load_acquire(&entries) != before;
	return false;
}

/* Waits as long as graphs end, because each that ends may give room. */
static bool wait_and_enter(const struct graph_exec *x, uint64_t until)
{
	uint64_t patience = memory_patience_ns(), since = track_now(), nap = 0;
	unsigned before = running();
	bool others = true;

	for (;;) {
		unsigned now = running();

		if (now < before || !now) {
			if (try_without_others(x, until, &others))
				return true;
			if (!others)
				return false;
		}
		if (now < before) {
			since = track_now();
			nap = 0;
		} else if (track_now() - since > patience) {
			arb_log(ARB_LOG_WARN,
				"a graph finds no room, because none of %u that run has ended for %u ms", now,
				(unsigned)(patience / MS));
			return false;
		}
		before = running();
		memory_nap_longer(&nap);
	}
}

/* Waits until kept memory that streams have freed is really freed, before the launch is refused. */
static bool wait_for_blocks(const struct graph_exec *x)
{
	uint64_t until = track_now() + memory_patience_ns();

	while (memory_ordered_any() && track_now() < until) {
		memory_nap(NAP_NS);
		memory_give_back();
		if (try_to_enter(x))
			return true;
	}
	return false;
}

void graph_enter_if_room(struct graph_exec *x)
{
	own.alone = false;
	if (try_to_enter(x))
		return;
	pthread_mutex_lock(&lock);
	flying++;
	mixed = true;
	pthread_mutex_unlock(&lock);
}

bool graph_enter(struct graph_exec *x, const struct act_call *call)
{
	uint64_t until;

	own.alone = false;
	own.place = memory_place_of(call);
	/* In a capture the driver itself refuses the launch, and says why. */
	if (streams_capturing(call)) {
		graph_enter_if_room(x);
		return true;
	}
	if (try_to_enter(x) || enter_alone(x))
		return true;
	until = track_now() + MEMORY_UNDER_WAY_NS;
	if (enter_undisturbed(x, until) || wait_and_enter(x, until) || wait_for_blocks(x))
		return true;
	/* Queued frees are waited for, as with the driver's own lack of memory. */
	if (memory_pool_owes() && memory_mark_wait(call) && enter_undisturbed(x, until))
		return true;
	return memory_refused_for(
		memory_device(x->need[own.lack].ordinal), x->need[own.lack].bytes, "a graph");
}

/* The lock is held. An allocation that a graph has left is freed. */
static void forget_rest(CUdeviceptr at)
{
	for (struct graph_exec *x = list; x; x = x->next)
		for (size_t i = 0; i < x->nrest; i++)
			if (x->rest[i].at == at)
				x->rest[i].there = false;
}

void graph_leave(struct graph_exec *x, const struct act_call *call, bool launched)
{
	struct memory_mark mark = {0}, old = {0};
	bool behind = launched && !streams_capturing(call);

	/* Other threads may be asking about the event that the graph has, so it is replaced only if it does not fit. */
	if (behind && memory_mark_fits(&x->mark, call))
		mark = x->mark;
	behind = behind && memory_mark_set(&mark, call) == CUDA_SUCCESS;
	/* `busy` is set before `flying` goes down, so that running() never misses this launch. */
	pthread_mutex_lock(&lock);
	if (mark.event && mark.event != x->mark.event) {
		old = x->mark;
		x->mark = mark;
	}
	x->busy |= behind;
	pthread_mutex_unlock(&lock);
	release_all(x);
	pthread_mutex_lock(&lock);
	flying--;
	alone &= !own.alone;
	last = launched && !flying && !mixed && !trimming ? x : NULL;
	last_place = own.place;
	mixed &= flying != 0;
	if (launched && (call->id == HOOK_cuGraphLaunch || call->id == HOOK_cuGraphLaunch_ptsz))
		for (size_t i = 0; i < x->nrest; i++)
			x->rest[i].there = true;
	for (size_t i = 0; i < x->nfrees; i++)
		forget_rest(x->frees[i]);
	pthread_mutex_unlock(&lock);
	memory_mark_drop(&old);
}

void graph_list(struct graph_exec *x)
{
	pthread_mutex_lock(&lock);
	x->next = list;
	list = x;
	pthread_mutex_unlock(&lock);
}

void graph_unlist(struct graph_exec *x)
{
	pthread_mutex_lock(&lock);
	x->gone = true;
	last = last == x ? NULL : last;
	pthread_mutex_unlock(&lock);
	running();
}

void memory_graph_freed(CUdeviceptr at)
{
	pthread_mutex_lock(&lock);
	forget_rest(at);
	pthread_mutex_unlock(&lock);
}

/* Waits while a launch relies on memory that the graph still has. That is over in a moment, if its stream is not
 * full. */
void memory_graph_trim_begin(void)
{
	uint64_t until = track_now() + memory_patience_ns();
	bool wait;

	do {
		pthread_mutex_lock(&lock);
		wait = alone && track_now() < until;
		if (!wait) {
			trimming++;
			mixed = flying != 0;
			last = NULL;
		}
		pthread_mutex_unlock(&lock);
		if (wait)
			memory_nap(NAP_NS);
	} while (wait);
}

void memory_graph_trim_end(void)
{
	pthread_mutex_lock(&lock);
	trimming--;
	pthread_mutex_unlock(&lock);
}

void memory_graph_stream(CUstream stream)
{
	pthread_mutex_lock(&lock);
	last = last_place.stream == stream ? NULL : last;
	pthread_mutex_unlock(&lock);
}

void memory_graph_context(CUcontext ctx, enum memory_end what)
{
	pthread_mutex_lock(&lock);
	for (struct graph_exec *x = list; x; x = x->next)
		if (memory_mark_context(&x->mark, ctx, what))
			x->busy = false;
	last = NULL;
	pthread_mutex_unlock(&lock);
}

void memory_exec_forget(void)
{
	pthread_mutex_init(&lock, NULL);
	list = NULL;
	last = NULL;
	flying = trimming = 0;
	alone = mixed = false;
	arb_word_store(&arb_own.gate.graphs, 0);
}
