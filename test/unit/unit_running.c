/* The running set: bills, windows, reservations, eviction, repair, with a clock that stands still. */
#include "test/unit/unit.h"

static void open_small(void)
{
	u_open(128);
	/* The slots are in use, though by no client in particular. */
	for (uint32_t i = 0; i < 128; i++)
		arb_store32(&u_seg.slots[i].state, ARB_SLOT_JOINING);
}

TestSuite(running, .init = open_small, .fini = u_close);

Test(running, one_client_alone_pays_for_all_of_its_time)
{
	u_enter(3, ARB_WEIGHT_ONE);
	u_clock_ns += 7000000;
	cr_assert_eq(u_usage(3), 7 * U_MS);
	u_leave(3);
	u_clock_ns += 5000000;
	cr_assert_eq(u_usage(3), 7 * U_MS);
	u_check();
}

Test(running, two_share_the_bill_while_both_run)
{
	u_enter(0, ARB_WEIGHT_ONE);
	u_clock_ns += 4000000;
	u_enter(1, ARB_WEIGHT_ONE);
	u_clock_ns += 6000000;
	u_leave(0);
	u_clock_ns += 1000000;
	cr_assert_eq(u_usage(0), 7 * U_MS, "4 alone and half of 6");
	cr_assert_eq(u_usage(1), 4 * U_MS, "half of 6 and 1 alone");
	u_check();
}

Test(running, a_light_client_pays_by_its_weight)
{
	u_enter(0, ARB_WEIGHT_ONE);
	u_enter(1, ARB_WEIGHT_ONE / 4);
	u_clock_ns += 10000000;
	cr_assert_eq(u_usage(0), 8 * U_MS);
	cr_assert_eq(u_usage(1), 2 * U_MS);
	u_check();
}

Test(running, entering_twice_and_leaving_twice_change_nothing)
{
	u_enter(0, ARB_WEIGHT_ONE);
	u_enter(0, ARB_WEIGHT_ONE);
	u_clock_ns += 1000000;
	u_leave(0);
	u_leave(0);
	cr_assert_eq(u_usage(0), U_MS);
	u_check();
}

Test(running, an_end_in_the_past_is_billed_to_that_moment_but_not_before_others)
{
	struct arb_move m;
	struct arb_snap s;

	u_enter(0, ARB_WEIGHT_ONE);
	u_clock_ns += 10000000;
	m = u_move();
	m.at = u_ticks() - 4 * U_MS;
	cr_assert_eq(u_step(arb_running_leave, 0, &m, &s), 0);
	cr_assert_eq(u_usage(0), 6 * U_MS);
	u_enter(0, ARB_WEIGHT_ONE);
	u_clock_ns += 2000000;
	u_enter(1, ARB_WEIGHT_ONE); /* time is counted up to here now */
	m = u_move();
	m.at = u_ticks() - 2 * U_MS;
	cr_assert_eq(u_step(arb_running_leave, 0, &m, &s), 0);
	cr_assert_eq(u_usage(0), 8 * U_MS, "not earlier than the last transition");
	u_check();
}

Test(running, the_law_holds_through_random_transitions)
{
	struct t_random random = t_seeded(4711);
	bool in[128] = {false};

	for (int i = 0; i < 20000; i++) {
		uint32_t slot = t_below(&random, 128);

		u_clock_ns += t_below(&random, 3000);
		if (in[slot])
			u_leave(slot);
		else
			u_enter(slot, 1 + t_below(&random, ARB_WEIGHT_ONE));
		in[slot] = !in[slot];
		if (i % 100 == 0)
			u_check();
	}
	u_check();
}

Test(running, a_transition_in_a_new_window_wants_the_account_rolled_first)
{
	struct arb_actor me = {&u_seg, 0};
	struct arb_move m = u_move();
	struct arb_snap s;

	u_enter(0, ARB_WEIGHT_ONE);
	u_clock_ns += 250000000;
	m = u_move();
	cr_assert_eq(arb_running_leave(&me, &m, &s), -EXDEV);
	cr_assert_eq(arb_running_roll(&me, &m, &s), 0);
	cr_assert_eq(s.win_number, 3, "two boundaries went by");
	cr_assert_eq(s.win_v * ARB_WEIGHT_ONE, 200 * U_MS, "V at the boundary itself");
	cr_assert_eq(s.win_busy, 200 * U_MS);
	m.window = s.win_number;
	cr_assert_eq(arb_running_leave(&me, &m, &s), 0);
	cr_assert_eq(u_usage(0), 250 * U_MS);
	u_check();
}

Test(running, a_new_length_holds_from_the_next_window_on)
{
	struct arb_actor me = {&u_seg, 0};
	struct arb_move m = u_move();
	struct arb_snap s;

	u_clock_ns += 50000000;
	m = u_move();
	m.win_ms = 20;
	cr_assert_eq(arb_running_roll(&me, &m, &s), 0);
	cr_assert_eq(s.win_ticks, 100 * U_MS, "not in mid-window");
	u_clock_ns += 75000000;
	m = u_move();
	m.win_ms = 20;
	cr_assert_eq(arb_running_roll(&me, &m, &s), 0);
	cr_assert_eq(s.win_ticks, 20 * U_MS);
	cr_assert_eq(s.win_number, 3, "one of 100 ms and one of 20");
	u_check();
}

static uint32_t refuse_queue(void *argument, const struct arb_snap *snap, uint64_t now_ns)
{
	(void)argument;
	(void)now_ns;
	return arb_bits_count(snap->running, snap->words) ? ARB_REASON_QUEUE : 0;
}

static uint32_t choose_lowest(void *argument, const struct arb_snap *snap, uint64_t now_ns)
{
	(void)argument;
	(void)now_ns;
	return arb_bits_next(snap->waiting, snap->words, 0);
}

static struct arb_move queueing(void)
{
	struct arb_move m = u_move();

	m.queue = true;
	m.admit = refuse_queue;
	m.choose = choose_lowest;
	return m;
}

Test(running, a_leaver_reserves_the_place_for_a_waiter)
{
	struct arb_move m = queueing();
	struct arb_snap s;

	cr_assert_eq(u_step(arb_running_enter, 0, &m, &s), 0);
	m = queueing();
	cr_assert_eq(u_step(arb_running_enter, 5, &m, &s), -EAGAIN);
	cr_assert_eq(m.reason, ARB_REASON_QUEUE);
	cr_assert(arb_bit_test(s.waiting, 5));
	u_check();
	m = queueing();
	cr_assert_eq(u_step(arb_running_leave, 0, &m, &s), 0);
	cr_assert_eq(m.next, 5);
	cr_assert_eq((uint32_t)s.reserved, 6);
	u_check();
	m = queueing();
	cr_assert_eq(u_step(arb_running_enter, 5, &m, &s), 0);
	cr_assert_eq(s.reserved, 0);
	cr_assert_not(arb_bit_test(s.waiting, 5));
	u_check();
}

Test(running, a_client_that_stops_waiting_hands_its_reservation_on)
{
	struct arb_move m = queueing();
	struct arb_snap s;

	cr_assert_eq(u_step(arb_running_enter, 0, &m, &s), 0);
	for (uint32_t i = 5; i < 7; i++) {
		m = queueing();
		cr_assert_eq(u_step(arb_running_enter, i, &m, &s), -EAGAIN);
	}
	m = queueing();
	cr_assert_eq(u_step(arb_running_leave, 0, &m, &s), 0);
	cr_assert_eq(m.next, 5);
	m = queueing();
	cr_assert_eq(u_step(arb_running_unqueue, 5, &m, &s), 0);
	cr_assert_eq(m.next, 6);
	cr_assert_eq((uint32_t)s.reserved, 7);
	u_check();
}

static void evict(uint32_t victim, uint64_t stale_before_ns, int expected)
{
	struct arb_actor evictor = {&u_seg, 1};
	struct arb_move m = u_move();
	struct arb_snap s;

	cr_assert_eq(arb_running_evict(&evictor, &m, victim, arb_load32(&u_seg.slots[victim].generation),
			     stale_before_ns, &s),
		expected);
}

Test(running, a_silent_holder_is_evicted_and_pays_up_to_then)
{
	struct arb_actor owner = {&u_seg, 0};
	struct arb_snap s;

	u_enter(0, ARB_WEIGHT_ONE);
	arb_store64(&u_seg.slots[0].heartbeat_ns, u_clock_ns);
	u_clock_ns += 3000000;
	evict(0, u_clock_ns - 4000000, 0); /* not yet */
	evict(0, u_clock_ns - 1000000, 1);
	evict(0, u_clock_ns - 1000000, 0); /* not twice */
	u_clock_ns += 50000000;
	cr_assert_eq(u_usage(0), 3 * U_MS);
	u_check();
	cr_assert_eq(arb_running_settle(&owner, u_clock_ns * ARB_TICKS_PER_NS, &s), 1);
	cr_assert_eq(arb_running_settle(&owner, u_clock_ns * ARB_TICKS_PER_NS, &s), 0);
	u_check();
	u_enter(0, ARB_WEIGHT_ONE);
	u_clock_ns += 1000000;
	cr_assert_eq(u_usage(0), 4 * U_MS);
	u_check();
}

/* The process that looks was stopped after it had read the clock: the sign of life is younger than that. */
Test(running, one_that_has_just_given_a_sign_of_life_is_not_evicted)
{
	struct arb_actor evictor = {&u_seg, 1};
	struct arb_move move;
	struct arb_snap s;

	u_enter(0, ARB_WEIGHT_ONE);
	arb_store64(&u_seg.slots[0].heartbeat_ns, u_clock_ns);
	u_clock_ns += 30000000;
	move = u_move();
	u_clock_ns += 30000000;
	arb_store64(&u_seg.slots[0].heartbeat_ns, u_clock_ns);
	cr_assert_eq(arb_running_evict(&evictor, &move, 0, arb_load32(&u_seg.slots[0].generation),
			     u_clock_ns - 50000000, &s),
		0);
	u_check();
}

Test(running, an_evicted_client_that_enters_again_settles_first)
{
	u_enter(0, ARB_WEIGHT_ONE);
	u_clock_ns += 3000000;
	evict(0, u_clock_ns, 1);
	u_clock_ns += 3000000;
	u_enter(0, ARB_WEIGHT_ONE / 2);
	u_clock_ns += 2000000;
	cr_assert_eq(u_usage(0), 5 * U_MS);
	u_leave(0);
	u_check();
}

Test(running, dropping_takes_a_slot_out_of_everything)
{
	struct arb_move m = queueing();
	struct arb_snap s;

	cr_assert_eq(u_step(arb_running_enter, 0, &m, &s), 0);
	m = queueing();
	cr_assert_eq(u_step(arb_running_enter, 70, &m, &s), -EAGAIN);
	u_clock_ns += 1000000;
	m = queueing();
	cr_assert_eq(u_step(arb_running_drop, 0, &m, &s), 0);
	cr_assert_eq(m.next, 70);
	m = queueing();
	cr_assert_eq(u_step(arb_running_drop, 70, &m, &s), 0);
	cr_assert_eq(s.reserved, 0);
	cr_assert_eq(arb_bits_count(s.waiting, s.words) + arb_bits_count(s.running, s.words), 0);
	cr_assert_eq(u_usage(0), U_MS);
	u_check();
}

Test(running, a_garbled_record_is_refused_and_can_be_repaired)
{
	static const struct {
		const char *what;
		size_t offset;
		uint64_t value;
	} garbage[] = {{"more weight than members can have", offsetof(struct arb_record, shape),
			       100ull << 32 | 1u << ARB_SHAPE_WORDS_SHIFT | 0xfffff},
		{"too many words", offsetof(struct arb_record, shape),
			100ull << 32 | 31u << ARB_SHAPE_WORDS_SHIFT | 256},
		{"no words", offsetof(struct arb_record, shape), 100ull << 32 | 256},
		{"a window without length", offsetof(struct arb_record, shape),
			1u << ARB_SHAPE_WORDS_SHIFT | 256},
		{"a window that begins after the time", offsetof(struct arb_record, win_start), 1ull << 62},
		{"a window that began an age ago", offsetof(struct arb_record, win_start), 1},
		{"a window that will not end", offsetof(struct arb_record, win_start),
			(1ull << 63) + 16000000000000ull},
		{"a time far ahead", offsetof(struct arb_record, t), 1ull << 62},
		{"members without weight", offsetof(struct arb_record, shape),
			100ull << 32 | 1u << ARB_SHAPE_WORDS_SHIFT}};

	for (size_t i = 0; i < sizeof(garbage) / sizeof(garbage[0]); i++) {
		struct arb_actor me = {&u_seg, 2};
		struct arb_move m;
		struct arb_snap s;
		uint64_t head;

		u_enter(0, ARB_WEIGHT_ONE);
		head = arb_load64(&u_seg.header->head);
		memcpy((char *)&u_seg.slots[head >> 1 & 2047].record[head & 1] + garbage[i].offset,
			&garbage[i].value, 8);
		m = (struct arb_move){.now = u_ticks(), .at = u_ticks(), .win_ms = 100, .weight = 256};
		cr_assert_eq(arb_running_enter(&me, &m, &s), -EBADMSG, "%s", garbage[i].what);
		cr_assert_eq(arb_running_repair(&me, u_ticks(), 100), 1, "%s", garbage[i].what);
		cr_assert_eq(arb_running_repair(&me, u_ticks(), 100), 0);
		u_check();
		u_leave(0);
		u_check();
	}
	arb_store64(&u_seg.header->head, ~0ull);
	cr_assert_eq(arb_running_read(&u_seg, &(struct arb_snap){0}), -EBADMSG, "a head that points nowhere");
	cr_assert_eq(arb_running_repair(&(struct arb_actor){&u_seg, 2}, u_ticks(), 100), 1);
	u_check();
}
