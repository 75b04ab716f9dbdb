/* How a client answers whether its process is frozen by a checkpoint, and how it asks other clients
 * (segment/frozen.h). */
#include "gpuarb/client.h"
#include "units.h"

#include "shm/base/atomic.h"
#include "shm/client/client_state.h"
#include "shm/segment/frozen.h"

/* How long an allocation that would be refused waits for answers. An answer takes two wake-ups and a question to a driver,
 * some 0.1 ms in all on an idle machine, and a hundred times that on a busy one. A process that needs longer is stopped, or
 * its driver is moving memory, which takes seconds. */
#define ANSWER_NS (10 * MS)
/* How often the caller looks whether all have answered: about as long as one answer takes. */
#define LOOK_NS (100 * US)
/* A process that did not answer, and has not answered since, is not waited for again within this time. So a program whose
 * allocations are refused waits for a tenth of its time at most. */
#define IN_VAIN_NS (100 * MS)
/* A kernel before 5.16 lets a thread sleep on one word only. The thread then looks at the others this often; a client that
 * asks is then not answered in time, and its memory counts as if that process were not frozen. */
#define ALONE_NS (10 * SECOND)

void gpuarb_client_say_frozen(struct gpuarb_client *c, unsigned state)
{
	arb_lock_take(&c->guard->lock);
	if (arb_load32(&c->guard->joined)) {
		struct arb_slot *s = arb_client_slot(c);

		/* A client whose memory is off the GPU need not keep its turn at that memory. */
		if (state == ARB_FROZEN_CHECKPOINTED && !c->running && arb_hint64(&s->turn_hold_ns))
			arb_store64(&s->turn_hold_ns, 0);
		arb_frozen_say(s, state, arb_os_now_ns());
	}
	arb_lock_give(&c->guard->lock);
}

uint32_t gpuarb_client_asked_frozen(struct gpuarb_client *c)
{
	uint32_t asked = 0;

	arb_lock_take(&c->guard->lock);
	if (arb_load32(&c->guard->joined)) {
		struct arb_slot *s = arb_client_slot(c);

		asked = arb_load32(&s->ask_frozen);
		if (!arb_hint64(&s->frozen))
			arb_frozen_say(s, ARB_FROZEN_NOT, arb_os_now_ns());
	}
	arb_lock_give(&c->guard->lock);
	return asked;
}

void gpuarb_client_ask_frozen(struct gpuarb_client *c)
{
	arb_lock_take(&c->guard->lock);
	if (arb_load32(&c->guard->joined))
		arb_os_wake(&arb_client_slot(c)->ask_frozen);
	arb_lock_give(&c->guard->lock);
}

/*
 * The words are not touched without the lock: another thread may move the client to another segment meanwhile. Then the
 * kernel wakes nobody who sleeps on the old words, so the caller has to be woken by its own word.
 */
void gpuarb_client_await_frozen(struct gpuarb_client *const *clients, const uint32_t *asked, unsigned n,
	uint32_t *own, uint32_t value, uint64_t ns)
{
	struct arb_os_word words[ARB_OS_WORDS] = {{own, value, false}};
	unsigned nwords = 1;
	uint64_t most = ns && ns < ALONE_NS ? ns : ALONE_NS;

	for (unsigned i = 0; i < n && nwords < ARB_OS_WORDS; i++) {
		arb_lock_take(&clients[i]->guard->lock);
		if (arb_load32(&clients[i]->guard->joined))
			words[nwords++] = (struct arb_os_word){
				&arb_client_slot(clients[i])->ask_frozen.v, asked[i], true};
		arb_lock_give(&clients[i]->guard->lock);
	}
	if (arb_os_park_any(words, nwords, ns) >= 0)
		return;
	if (nwords == 1)
		arb_os_park(own, value, most);
	else
		arb_os_futex_wait((arb_u32 *)(void *)words[1].word, words[1].value, most);
}

struct sum {
	uint64_t gone;    /* bytes that are off the GPU */
	bool asked, owed; /* members were asked; some of those have not answered yet */
};

/* Adds up the members that are checkpointed. The lock is held. `asked_ns` 0: asks those whose answer is old.
 * Otherwise finds out which members have answered since then. */
static void add_up(struct gpuarb_client *c, uint64_t asked_ns, struct sum *sum)
{
	struct arb_account_snap acct;
	uint64_t now = arb_os_now_ns(), left;

	*sum = (struct sum){0};
	if (!arb_load32(&c->guard->joined) || arb_account_read(&c->seg, c->account, &acct) != 0)
		return;
	left = acct.mem_used > c->mem.held ? acct.mem_used - c->mem.held : 0;
	for (uint32_t i = arb_bits_next(acct.attached, c->seg.nwords, 0); i != ARB_NONE && i < c->seg.nslots;
		i = arb_bits_next(acct.attached, c->seg.nwords, i + 1)) {
		struct arb_slot *s = &c->seg.slots[i];
		uint64_t bytes = arb_load64(&s->mem_now), said;

		if (i == c->me.slot || !bytes)
			continue;
		if (!asked_ns)
			sum->asked |= arb_frozen_ask(s, ARB_FROZEN_FRESH_NS, now);
		/* These words are written by other clients, so their sum is bounded by what the account holds. */
		bytes = bytes < left ? bytes : left;
		if (arb_frozen_read(s, now, &said) == ARB_FROZEN_CHECKPOINTED) {
			sum->gone += bytes;
			left -= bytes;
		}
		sum->owed |= said && said + ARB_FROZEN_FRESH_NS < asked_ns;
	}
}

uint64_t gpuarb_client_mem_gone(struct gpuarb_client *c)
{
	uint64_t begun = arb_os_now_ns();
	struct sum sum, since = {0};

	arb_lock_take(&c->guard->lock);
	add_up(c, 0, &sum);
	if (sum.asked && begun - c->mem.unanswered_ns < IN_VAIN_NS)
		add_up(c, c->mem.unanswered_ns, &since);
	if (!sum.asked || since.owed) {
		arb_lock_give(&c->guard->lock);
		return sum.gone;
	}
	do {
		arb_lock_give(&c->guard->lock);
		arb_os_sleep_ns(LOOK_NS);
		arb_lock_take(&c->guard->lock);
		add_up(c, begun, &sum);
	} while (sum.owed && arb_os_now_ns() - begun < ANSWER_NS);
	if (sum.owed)
		c->mem.unanswered_ns = begun;
	arb_lock_give(&c->guard->lock);
	return sum.gone;
}
