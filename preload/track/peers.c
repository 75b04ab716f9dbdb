/*
 * Copies between GPUs, by a call or by a graph (peers_graph.c). Such a copy is in a stream of one GPU and moves memory of
 * another GPU. It counts on both, from its beginning to its end. On the other GPU it goes through that GPU's gate and book, and
 * is fenced by an event in the copy's stream. preload/README.md gives the reasons.
 */
#include "preload/track/track.h"

#include <errno.h>
#include <string.h>

#include "preload/hooks/hooks.h"
#include "preload/process/threads.h"
#include "preload/track/place.h"
#include "shm/base/word.h"

/* Exchanges the call at hand with the call on another GPU: what follows acts on that GPU. A second exchange undoes it. */
static void change_places(struct gate_call *peer)
{
	struct gate_call call = arb_mine.call;

	arb_mine.call = *peer;
	*peer = call;
}

/* Waits for room, quota and turn on the other GPU, but does not enter its running set yet (let_peer does). So no call waits
 * for one GPU while it keeps another. */
static void ask_peer(struct track *t, struct act_call *call)
{
	CUstreamCaptureMode mode = track_relax();

	arb_mine.call = (struct gate_call){.track = t, .ctx = place_current(), .peer = true, .covers = 1};
	track_lock(t);
	gate_admit(t, call);
	track_unlock(t);
	track_unrelax(mode);
}

void peers_ask(struct act_call *call)
{
	struct arb_device *devices[GATE_PEERS];
	unsigned n = arb_own.exiting ? 0 : place_peers(call, devices);
	int saved = errno;

	if (!n || streams_capturing(call))
		return;
	gate_thread_ended();
	memset(arb_mine.peer, 0, sizeof(arb_mine.peer));
	gate_name_work(call);
	for (unsigned i = 0; i < n; i++) {
		struct track *t = tracker_get(devices[i]);

		if (arb_word_load(&t->broken))
			continue;
		change_places(&arb_mine.peer[i]);
		ask_peer(t, call);
		change_places(&arb_mine.peer[i]);
	}
	arb_word_store(&arb_own.peers, 1);
	errno = saved;
}

/* Enters the running set of the other GPU, because the call goes on to the driver now. Its quota there is not asked again,
 * though it may have been used up while the call waited at another gate. */
static void let_peer(struct act_call *call)
{
	struct track *t = arb_mine.call.track;
	bool inside = gate_runs_inside(call);
	struct book_event let = {.kind = EVENT_LET, .call = inside ? CALL_INSIDE : 0};
	CUstreamCaptureMode mode = track_relax();

	arb_mine.call.start = events_before(call);
	arb_mine.call.copy = peers_copy_of(call);
	track_lock(t);
	if (!t->book.broken && !book_is_in(&t->book))
		track_carry_out(t, (struct book_action){.what = ACT_RESUME}, call);
	track_tell(t, &let);
	arb_mine.call.let_ns = let.now_ns;
	track_unlock(t);
	track_unrelax(mode);
	arb_mine.call.inside = inside;
	arb_mine.call.in_driver = true;
}

void peers_let(struct act_call *call)
{
	int saved = errno;

	for (unsigned i = 0; arb_word_load(&arb_own.peers) && i < GATE_PEERS; i++) {
		if (!arb_mine.peer[i].track)
			continue;
		change_places(&arb_mine.peer[i]);
		let_peer(call);
		change_places(&arb_mine.peer[i]);
	}
	errno = saved;
}

/* Restores the thread's credit at the end: only the GPU of the stream gives credit. */
void peers_after(struct act_call *call, CUresult result)
{
	struct act_thread *self = act_thread_get();
	uint32_t credit = self->credit, granted = self->granted, gate = self->gate;
	uint64_t interval = self->interval;
	int saved = errno;

	for (unsigned i = 0; arb_word_load(&arb_own.peers) && i < GATE_PEERS; i++) {
		struct gate_call *peer = &arb_mine.peer[i];

		if (!peer->track)
			continue;
		change_places(peer);
		gate_after(call, result);
		change_places(peer);
		/* Still here: the copy failed, so no fence has taken this event over. */
		if (peer->start)
			arb_real(cuEventDestroy_v2)(peer->start);
		*peer = (struct gate_call){0};
	}
	self->credit = credit;
	self->granted = granted;
	self->gate = gate;
	self->interval = interval;
	errno = saved;
}

/* The thread ended, or left the driver by a jump: its calls on other GPUs will not come back. */
void peers_abandon(void)
{
	for (unsigned i = 0; i < GATE_PEERS; i++) {
		if (!arb_mine.peer[i].in_driver)
			continue;
		change_places(&arb_mine.peer[i]);
		gate_abandon();
		change_places(&arb_mine.peer[i]);
		arb_mine.peer[i].track = NULL;
	}
}

/* The program has waited for work of one GPU. Other GPUs may have had a part in it, so all of them are settled. */
void peers_settle(void)
{
	CUstreamCaptureMode mode = track_relax();
	int saved = errno;

	for (unsigned i = 0; i < tracks_high(); i++) {
		struct track *t = &arb_own.tracks[i];

		if (!arb_word_load_acquire(&t->device) || !arb_word_load(&t->in))
			continue;
		if (!arb_word_load(&t->watched) && track_now() < arb_word_load(&t->settle_ns))
			continue;
		track_lock(t);
		track_settle(t);
		track_unlock(t);
	}
	track_unrelax(mode);
	errno = saved;
}
