/* Clients whose process is frozen by a checkpoint: who asks whom, what is believed, and what does not count meanwhile. */
#include "test/unit/unit_clients.h"

#include "shm/client/reclaim.h"
#include "shm/segment/frozen.h"

/* Whoever sleeps for an answer lets the other one give it. */
static struct gpuarb_client *answers;
static unsigned answer, slept;

static void sleep_ns(uint64_t ns)
{
	slept++;
	u_clock_ns += ns;
	if (answers)
		gpuarb_client_say_frozen(answers, answer);
}

static void begin(void)
{
	static const struct arb_os_hooks hooks = {.now_ns = u_now,
		.futex_wait = u_futex_wait,
		.futex_wake = u_futex_wake,
		.sleep_ns = sleep_ns};

	u_begin("policy = memory\nphysical_memory_mb = 16384\ngrace_ms = 600000\nswitch_idle_ms = 200\n"
		"reserve_per_client_mb = 3000\n");
	arb_os_hooks = &hooks;
	answers = NULL;
	slept = 0;
}

TestSuite(frozen, .init = begin, .fini = u_end);

static uint32_t asked(const struct gpuarb_client *c)
{
	return arb_load32(&c->seg.slots[c->me.slot].ask_frozen);
}

Test(frozen, what_a_checkpointed_member_holds_is_gone)
{
	struct gpuarb_client *a = u_client("web", 0), *b = u_client("web", 0), *c = u_client("other", 0);

	u_limit("web", "mem", "1000");
	cr_assert_eq(gpuarb_client_mem_reserve(b, 700), 0);
	cr_assert_eq(gpuarb_client_mem_reserve(c, 700), 0);
	cr_assert_eq(gpuarb_client_mem_gone(a), 0);
	cr_assert_eq(asked(b), 0, "nobody answers there");
	cr_assert_eq(slept, 0);

	gpuarb_client_asked_frozen(b);
	gpuarb_client_asked_frozen(c);
	u_clock_ns += MS;
	answers = b;
	answer = ARB_FROZEN_LOCKED;
	cr_assert_eq(gpuarb_client_mem_gone(a), 0, "a locked one has its memory");
	cr_assert_eq(asked(b), 1);
	cr_assert_eq(slept, 1);
	answer = ARB_FROZEN_CHECKPOINTED;
	cr_assert_eq(gpuarb_client_mem_gone(a), 0, "the answer is fresh");
	u_clock_ns += MS;
	cr_assert_eq(gpuarb_client_mem_gone(a), 700);
	cr_assert_eq(gpuarb_client_mem_try_gone(a, 1000, false, 700), 0);
	cr_assert_eq(asked(c), 0, "another account's memory is not its concern");
	u_clock_ns += MS;
	answer = ARB_FROZEN_NOT;
	cr_assert_eq(gpuarb_client_mem_gone(a), 0);
	gpuarb_client_close(a);
	gpuarb_client_close(b);
	gpuarb_client_close(c);
}

Test(frozen, one_that_does_not_answer_is_taken_at_its_last_word)
{
	struct gpuarb_client *a = u_client("web", 0), *b = u_client("web", 0);
	uint64_t begun;

	cr_assert_eq(gpuarb_client_mem_reserve(b, 700), 0);
	gpuarb_client_say_frozen(b, ARB_FROZEN_CHECKPOINTED);
	u_clock_ns += 1000 * MS;
	begun = u_clock_ns;
	cr_assert_eq(gpuarb_client_mem_gone(a), 700);
	cr_assert_leq(u_clock_ns - begun, 11 * MS, "nobody waits for long");
	cr_assert_geq(u_clock_ns - begun, 9 * MS);
	/* And not again at once. */
	begun = u_clock_ns;
	cr_assert_eq(gpuarb_client_mem_gone(a), 700);
	cr_assert_eq(u_clock_ns, begun);
	gpuarb_client_close(a);
	gpuarb_client_close(b);
}

Test(frozen, one_that_has_answered_since_is_waited_for_again)
{
	struct gpuarb_client *a = u_client("web", 0), *b = u_client("web", 0);

	cr_assert_eq(gpuarb_client_mem_reserve(b, 700), 0);
	gpuarb_client_say_frozen(b, ARB_FROZEN_NOT);
	u_clock_ns += 1000 * MS;
	cr_assert_eq(gpuarb_client_mem_gone(a), 0, "it is stopped, and asked in vain");
	gpuarb_client_say_frozen(b, ARB_FROZEN_NOT);
	u_clock_ns += 2 * MS;
	answers = b;
	answer = ARB_FROZEN_CHECKPOINTED;
	cr_assert_eq(gpuarb_client_mem_gone(a), 700, "it goes on, and was checkpointed");
	gpuarb_client_close(a);
	gpuarb_client_close(b);
}

Test(frozen, garbage_is_no_answer)
{
	struct gpuarb_client *c = u_client("web", 0);
	struct arb_slot *s = &c->seg.slots[c->me.slot];
	uint64_t said;

	arb_store64(&s->frozen, (u_clock_ns + MS) << ARB_FROZEN_STATE_BITS | ARB_FROZEN_CHECKPOINTED);
	cr_assert_eq(arb_frozen_read(s, u_clock_ns, &said), ARB_FROZEN_NOT);
	cr_assert_eq(said, 0);
	cr_assert_not(arb_frozen_ask(s, 0, u_clock_ns));
	arb_frozen_say(s, ARB_FROZEN_NOBODY, u_clock_ns);
	cr_assert_eq(arb_frozen_read(s, u_clock_ns, &said), ARB_FROZEN_NOT);
	cr_assert_eq(said, 0);
	gpuarb_client_close(c);
}

/* Who comes next into a slot is not frozen. */
Test(frozen, an_answer_goes_with_its_owner)
{
	struct gpuarb_client *a = u_client("web", 0), *b;
	uint32_t slot = a->me.slot;
	uint64_t said;

	gpuarb_client_say_frozen(a, ARB_FROZEN_CHECKPOINTED);
	u_die(a);
	cr_assert_eq(arb_reclaim_slot(&a->seg, slot, &a->rules, &(struct arb_reclaimed){0}), 1);
	b = u_client("web", 0);
	cr_assert_eq(b->me.slot, slot);
	arb_frozen_read(&b->seg.slots[slot], u_clock_ns, &said);
	cr_assert_eq(said, 0);
	gpuarb_client_close(b);
}

/* A neighbour that has not heard of a member for 10 ms asks it, as often as is of use. */
Test(frozen, a_silent_member_is_asked)
{
	struct gpuarb_client *a = u_client("silent", 0), *b = u_client("other", 0);

	gpuarb_client_asked_frozen(a);
	cr_assert_eq(gpuarb_client_enter(a, NULL), 0);
	cr_assert_eq(gpuarb_client_enter(b, NULL), 0);
	u_clock_ns += 5 * MS;
	cr_assert_eq(gpuarb_client_tick(b), 0);
	cr_assert_eq(asked(a), 0);
	u_clock_ns += 8 * MS;
	gpuarb_client_tick(b);
	gpuarb_client_leave(b, 0);
	cr_assert_geq(asked(a), 1);
	gpuarb_client_close(a);
	gpuarb_client_close(b);
}

/* One that is idle is left to sleep, unless clients take turns at the memory: then its context counts. */
Test(frozen, one_without_work_is_asked_only_where_its_context_counts)
{
	struct gpuarb_client *a = u_client("idle", 0), *b = u_client("other", 0);

	gpuarb_client_asked_frozen(a);
	u_clock_ns += 3000 * MS;
	cr_assert_eq(arb_reclaim_look(&b->seg, b->me.slot, a->me.slot, false, &b->rules), 0);
	cr_assert_eq(asked(a), 1);
	gpuarb_client_say_frozen(a, ARB_FROZEN_NOT);
	u_clock_ns += 500 * MS;
	cr_assert_eq(arb_reclaim_look(&b->seg, b->me.slot, a->me.slot, false, &b->rules), 0);
	cr_assert_eq(asked(a), 1, "another client has asked not long ago");
	u_clock_ns += 3000 * MS;
	b->rules.policy = ARB_POLICY_CONCURRENT;
	cr_assert_eq(arb_reclaim_look(&b->seg, b->me.slot, a->me.slot, false, &b->rules), 0);
	cr_assert_eq(asked(a), 1, "nobody waits for it");
	gpuarb_client_close(a);
	gpuarb_client_close(b);
}

/* Its memory may be off the GPU at once, and its context is. */
Test(frozen, others_have_its_room)
{
	static struct gpuarb_picture picture;
	struct gpuarb_client *a, *b, *c;
	struct gpuarb_error err = {0};
	struct gpuarb_view *view;

	a = u_client("large", 0);
	b = u_client("other", 0);
	c = u_client("third", 0);
	cr_assert_eq(gpuarb_client_mem_reserve(a, 6ull << 30), 0);
	cr_assert_eq(gpuarb_client_mem_reserve(b, 5ull << 30), 0);
	cr_assert_eq(gpuarb_client_mem_reserve(c, 4ull << 30), 0);
	cr_assert_eq(gpuarb_client_enter(a, NULL), 0);
	u_clock_ns += 20 * MS;
	gpuarb_client_leave(a, 0);
	/* It holds on to its turn. */
	cr_assert_eq(gpuarb_client_enter(b, NULL), -EAGAIN);
	gpuarb_client_say_frozen(a, ARB_FROZEN_LOCKED);
	cr_assert_eq(gpuarb_client_enter(b, NULL), -EAGAIN, "its memory is there still");
	gpuarb_client_say_frozen(a, ARB_FROZEN_CHECKPOINTED);
	cr_assert_eq(gpuarb_client_enter(b, NULL), 0);
	/* These two fit beside two contexts, and not beside three. */
	cr_assert_eq(gpuarb_client_enter(c, NULL), 0);
	gpuarb_client_leave(c, 0);
	gpuarb_client_leave(b, 0);
	u_clock_ns += 300 * MS;
	gpuarb_client_say_frozen(a, ARB_FROZEN_LOCKED);
	cr_assert_eq(gpuarb_client_enter(b, NULL), 0);
	cr_assert_eq(gpuarb_client_enter(c, NULL), -EAGAIN);
	gpuarb_client_say_frozen(a, ARB_FROZEN_CHECKPOINTED);
	cr_assert_eq(gpuarb_view_open(u_dir.path, T_GPU, &view, &err), 0, "%s", err.text);
	cr_assert_eq(gpuarb_view_read(view, &picture), 0);
	cr_assert_eq(picture.clients[0].frozen, ARB_FROZEN_CHECKPOINTED);
	cr_assert_eq(picture.clients[1].frozen, ARB_FROZEN_NOT);
	gpuarb_view_close(view);
	gpuarb_client_close(a);
	gpuarb_client_close(b);
	gpuarb_client_close(c);
}
