/*
 * Whether this process is frozen by a checkpoint (cuCheckpointProcess*). The driver holds up all calls of a frozen process,
 * also those of the tracker, which then cannot take it out of the running set. So there is one more thread, which calls
 * nothing but cuCheckpointProcessGetState, and asks about its own process alone. A driver answers a process about itself in any
 * state; a question about another process is answered by a thread of that process, which may be stopped.
 *
 * The thread sleeps until another process wants to know: a neighbour that has not heard of this client for too long, or a
 * process of its account that would be refused memory (shm/segment/frozen.h). While this process has work, the thread also
 * looks once a second, without asking the driver, whether a question or a launch has been in the driver for that long; only
 * then it asks. It asks once more when the work has ended. In a process without work it never wakes up by itself: the tracker
 * wakes it when there is work again.
 */
#include "preload/track/track.h"

#include <sys/prctl.h>
#include <unistd.h>

#include "gpuarb/client.h"

#include "preload/hooks/hooks.h"
#include "preload/process/threads.h"
#include "shm/base/os.h"
#include "shm/base/word.h"

/* How long the thread sleeps between its own looks while the process has work: one wake-up a second. So a frozen process that
 * nobody asks about is in the running set for two seconds at most; a neighbour that wants the GPU asks after 10 ms. */
#define LOOK_NS (1000 * MS)
/* The shortest time between two questions to the driver. An answer counts for this long (ARB_FROZEN_FRESH_NS), so an earlier
 * question would tell nothing new. */
#define ASK_LEAST_NS MS
/* While the process is frozen nothing wakes the thread when it goes on, so it asks by itself: soon at first, because a
 * checkpoint that fails lasts for some ms, then once a second, because a frozen process may be frozen for days. */
#define ASK_FROZEN_NS (50 * MS)
#define ASK_MOST_NS   (1000 * MS)
/* Other processes can ask by way of this many GPUs, as many as a machine has; the thread looks at further ones by itself. */
#define GPUS 16

struct frozen_look {
	uint64_t question; /* the one in the driver at the last look; 0: none */
};

/* Whether a question of this GPU has been in the driver since the last look, or a launch for LOOK_NS. */
static bool is_held_up(struct track *t, struct frozen_look *look)
{
	uint64_t question = 0;
	bool held;

	track_lock(t);
	for (const struct track_ask *ask = t->asks; ask; ask = ask->next)
		question = ask->number;
	held = question && question == look->question;
	held |= t->book.in_driver && track_now() - t->book.passed_ns > LOOK_NS;
	track_unlock(t);
	look->question = question;
	return held;
}

/* False: the driver cannot say. */
static bool ask_driver(unsigned *state)
{
	__typeof__(cuCheckpointProcessGetState) *ask = arb_real(cuCheckpointProcessGetState);
	CUprocessState said = CU_PROCESS_STATE_RUNNING;
	CUresult r = CUDA_ERROR_NOT_SUPPORTED;

	arb_word_store_full(&arb_own.frozen.asking, 1);
	/* A thread that ends the program either sees `asking` and waits, or has set `exiting` before it is read here. */
	arb_word_fence_full();
	if (!arb_word_load_full(&arb_own.exiting)) {
		arb_mine.locks++;
		r = ask(getpid(), &said);
		arb_mine.locks--;
	}
	arb_word_store_full(&arb_own.frozen.asking, 0);
	*state = said == CU_PROCESS_STATE_RUNNING || said == CU_PROCESS_STATE_FAILED ? ARB_FROZEN_NOT
		 : said == CU_PROCESS_STATE_CHECKPOINTED                             ? ARB_FROZEN_CHECKPOINTED
										     : ARB_FROZEN_LOCKED;
	return r == CUDA_SUCCESS;
}

/* Takes a frozen process out of the running set. The driver lets all queued work end before it locks the process, so no work
 * is left, whatever the fences say. */
static void take_out(struct track *t, uint64_t running_ns)
{
	struct book_event e = {.kind = EVENT_FROZEN, .at_ns = running_ns};

	track_lock(t);
	track_carry_out(t, track_tell(t, &e), NULL);
	track_unlock(t);
}

static unsigned joined(struct gpuarb_client **clients, uint32_t *asked)
{
	unsigned n = 0;

	for (unsigned i = 0; i < tracks_high() && n < GPUS; i++)
		if (arb_word_load_acquire(&arb_own.tracks[i].device)) {
			clients[n] = arb_own.tracks[i].device->client;
			asked[n] = gpuarb_client_asked_frozen(clients[n]);
			n++;
		}
	return n;
}

static void say(struct gpuarb_client *const *clients, unsigned n, unsigned state, uint64_t running_ns)
{
	bool frozen = state == ARB_FROZEN_LOCKED || state == ARB_FROZEN_CHECKPOINTED;

	arb_word_store(&arb_own.frozen.state, frozen);
	for (unsigned i = 0; frozen && i < tracks_high(); i++)
		if (arb_word_load_acquire(&arb_own.tracks[i].device))
			take_out(&arb_own.tracks[i], running_ns);
	for (unsigned i = 0; i < n; i++)
		gpuarb_client_say_frozen(clients[i], state);
}

static bool any_has_work(void)
{
	bool any = false;

	for (unsigned i = 0; i < tracks_high(); i++)
		any |= arb_word_load(&arb_own.tracks[i].in);
	return any;
}

/* Sleeps until somebody asks, for ns at most. Without work (idle) it sleeps on: the tracker wakes it when work comes. */
static void sleep_until_asked(struct gpuarb_client *const *clients, const uint32_t *asked, unsigned n,
	uint32_t heard, uint64_t ns, bool idle)
{
	arb_word_store_full(&arb_own.frozen.dormant, idle);
	/* A tracker that sees work either sees this word, or the thread sees that work here. */
	arb_word_fence_full();
	if (arb_word_load_full(&arb_own.frozen.end))
		return;
	gpuarb_client_await_frozen(
		clients, asked, n, &arb_own.frozen.rung, heard, idle && !any_has_work() ? 0 : ns);
	arb_word_store_full(&arb_own.frozen.dormant, 0);
}

static void ring(void)
{
	arb_word_add_full(&arb_own.frozen.rung, 1);
	arb_os_unpark(&arb_own.frozen.rung);
}

static void *keep(void *argument)
{
	struct gpuarb_client *clients[GPUS];
	struct frozen_look looks[ARB_DEVICES] = {0};
	uint32_t asked[GPUS], before = 0, now;
	unsigned state = ARB_FROZEN_NOT, n;
	uint64_t running_ns = track_now(), asked_ns = 0, pause_ns = ASK_FROZEN_NS, begun_ns;
	bool first = true, can = true, worked = true, settled = false, idle;

	prctl(PR_SET_NAME, "gpuarb");
	act_thread_is_tracker();
	track_relax();
	while (can && !arb_word_load_full(&arb_own.exiting) && !arb_word_load_full(&arb_own.frozen.end)) {
		/* Read first: a thread that rings has changed before what is read here. */
		uint32_t heard = arb_word_load_full(&arb_own.frozen.rung);
		bool wanted = state != ARB_FROZEN_NOT;

		n = joined(clients, asked);
		now = 0;
		for (unsigned i = 0; i < n; i++)
			now += asked[i];
		wanted |= !first && now != before;
		before = now;
		for (unsigned i = 0; i < tracks_high(); i++)
			if (arb_word_load_acquire(&arb_own.tracks[i].device))
				wanted |= is_held_up(&arb_own.tracks[i], &looks[i]);
		/* It may have been frozen at the end of its work, and then nobody else may ask. */
		wanted |= !worked && !settled;
		settled = !worked;
		begun_ns = track_now();
		if (wanted && begun_ns - asked_ns < ASK_LEAST_NS) {
			arb_os_sleep_ns(ASK_LEAST_NS - (begun_ns - asked_ns));
			begun_ns = track_now();
		}
		if (wanted)
			can = ask_driver(&state);
		if (wanted && state == ARB_FROZEN_NOT)
			running_ns = begun_ns;
		asked_ns = wanted ? track_now() : asked_ns;
		if (wanted)
			say(clients, n, can ? state : ARB_FROZEN_NOBODY, running_ns);
		first = false;
		pause_ns = state == ARB_FROZEN_NOT      ? ASK_FROZEN_NS
			   : pause_ns < ASK_MOST_NS / 2 ? 2 * pause_ns
							: ASK_MOST_NS;
		/* Work that has ended just now may be followed by more: the thread is not woken for each interval. */
		idle = !worked && state == ARB_FROZEN_NOT;
		sleep_until_asked(
			clients, asked, n, heard, state == ARB_FROZEN_NOT ? LOOK_NS : pause_ns, idle);
		/* A thread that was only asked goes on sleeping. */
		worked = (idle && heard != arb_word_load_full(&arb_own.frozen.rung)) || any_has_work();
	}
	arb_word_store_release(&arb_own.frozen.running, 0);
	return argument;
}

void frozen_begin(void)
{
	__typeof__(cuCheckpointProcessGetState) *ask = arb_real(cuCheckpointProcessGetState);

	if (!ask || arb_own.frozen.running)
		return;
	arb_own.frozen.running = 1;
	if (!act_thread_start(keep, NULL))
		arb_own.frozen.running = 0;
}

void frozen_wake(void)
{
	if (__builtin_expect(arb_word_load(&arb_own.frozen.dormant), 0) && any_has_work() &&
		arb_word_exchange_acq_rel(&arb_own.frozen.dormant, 0))
		ring();
}

void frozen_look(void)
{
	if (__builtin_expect(!arb_word_load(&arb_own.frozen.state), 1))
		return;
	for (unsigned i = 0; i < tracks_high(); i++)
		if (arb_word_load_acquire(&arb_own.tracks[i].device)) {
			gpuarb_client_ask_frozen(arb_own.tracks[i].device->client);
			return;
		}
}

void frozen_moved(void)
{
	if (arb_word_load_acquire(&arb_own.frozen.running))
		ring();
}

void frozen_end(void)
{
	arb_word_store_full(&arb_own.frozen.end, 1);
	ring();
	/* On a kernel before 5.16 the thread sleeps on this word of a client, and not on its own. */
	for (unsigned i = 0; i < tracks_high(); i++)
		if (arb_word_load_acquire(&arb_own.tracks[i].device))
			gpuarb_client_ask_frozen(arb_own.tracks[i].device->client);
}
