/* Memory of programs that are no clients: how much is believed, and how much clients that take turns leave free for
 * it. */
#include "test/unit/unit_clients.h"

#include "shm/segment/foreign.h"
#include "shm/policy/memory_fit.h"
#include "units.h"

static struct gpuarb_client *a, *b;

static void begin(void)
{
	u_begin("policy = memory\nphysical_memory_mb = 16384\ngrace_ms = 600000\nreserve_fixed_mb = 0\n"
		"reserve_per_client_mb = 256\n");
	a = u_client("a", 0);
	b = u_client("b", 0);
}

static void end(void)
{
	gpuarb_client_close(a);
	gpuarb_client_close(b);
	u_end();
}

TestSuite(foreign, .init = begin, .fini = end);

static uint64_t believed(void)
{
	return arb_foreign_read(&a->seg, u_clock_ns);
}

static void found(uint64_t bytes)
{
	struct gpuarb_error err = {0};

	cr_assert_eq(gpuarb_control_foreign(u_dir.path, T_GPU, 0, &bytes, &err), 0, "%s", err.text);
}

Test(foreign, room_is_what_others_leave)
{
	struct arb_memory_rules rules = {.physical = 16 * GIB, .foreign = 6 * GIB, .per_client = GIB};

	cr_assert_eq(arb_memory_room(&rules, 2), 8 * GIB);
	rules.foreign = 16 * GIB;
	cr_assert_eq(arb_memory_room(&rules, 0), 1, "nobody with memory fits");
	rules.foreign = UINT64_MAX;
	cr_assert_eq(arb_memory_room(&rules, 1), 1);
}

Test(foreign, clients_that_do_not_fit_beside_others_memory_take_turns)
{
	cr_assert_eq(gpuarb_client_mem_reserve(a, 7 * GIB), 0);
	cr_assert_eq(gpuarb_client_mem_reserve(b, 7 * GIB), 0);
	cr_assert_eq(gpuarb_client_enter(a, NULL), 0);
	cr_assert_eq(gpuarb_client_enter(b, NULL), 0, "14 of 16: both fit");
	cr_assert_eq(gpuarb_client_leave(b, 0), 0);
	u_clock_ns += SECOND;
	found(4 * GIB);
	cr_assert_eq(gpuarb_client_enter(b, NULL), -EAGAIN);
	cr_assert_eq(arb_load32(&b->seg.slots[b->me.slot].reason), ARB_REASON_MEMORY);
	/* The other program has ended: both clients fit again. */
	found(0);
	cr_assert_eq(gpuarb_client_enter(b, NULL), 0);
	/* They were let in when they fitted; since then another program has taken memory. */
	found(4 * GIB);
	cr_assert_eq(gpuarb_client_tick(a), 0);
	cr_assert_eq(gpuarb_client_tick(b), -EAGAIN, "the last to come goes");
}

Test(foreign, what_is_in_use_beyond_the_clients_belongs_to_others)
{
	cr_assert_eq(believed(), 0, "nobody has looked");
	cr_assert_eq(gpuarb_client_mem_reserve(a, 3 * GIB), 0);
	gpuarb_client_set_used(a, 10 * GIB);
	cr_assert_eq(believed(), 7 * GIB - 512 * MIB, "without the memory and the contexts of two clients");
	/* If the clients have reserved more than is in use, the use says nothing, and what was found before stands
	 * for a while. */
	cr_assert_eq(gpuarb_client_mem_reserve(b, 20 * GIB), 0);
	u_clock_ns += SECOND;
	gpuarb_client_set_used(b, 16 * GIB);
	cr_assert_eq(believed(), 7 * GIB - 512 * MIB);
	/* But others can never have more than is in use. */
	gpuarb_client_set_used(b, 2 * GIB);
	cr_assert_eq(believed(), 2 * GIB);
	u_clock_ns += ARB_FOREIGN_KEEP_NS + 2 * MS;
	cr_assert_eq(believed(), 2 * GIB, "until somebody looks again");
	gpuarb_client_set_used(b, 16 * GIB);
	cr_assert_eq(believed(), 0);
}

Test(foreign, the_driver_is_asked_only_where_there_are_turns_and_not_too_often)
{
	cr_assert(gpuarb_client_used_due(a));
	gpuarb_client_set_used(a, GIB);
	cr_assert_not(gpuarb_client_used_due(a));
	u_clock_ns += 100 * MS;
	cr_assert(gpuarb_client_used_due(a));
	u_set("policy", "concurrent");
	gpuarb_client_tick(a);
	cr_assert_not(gpuarb_client_used_due(a));
}

/* A process that may write the segment can write garbage into it. */
Test(foreign, garbage_is_not_believed_or_costs_turns)
{
	arb_u64 *word = &a->seg.header->mem_foreign;

	u_clock_ns += SECOND;
	arb_store64(word, (u_clock_ns + 5 * SECOND) >> ARB_FOREIGN_TIME_UNIT << ARB_FOREIGN_MIB_BITS | 4096);
	cr_assert_eq(believed(), 0, "its time is in the future");
	gpuarb_client_set_used(a, GIB);
	cr_assert_eq(believed(), GIB - 512 * MIB, "the garbage is replaced");
	arb_store64(word, UINT64_MAX >> 1);
	cr_assert_eq(believed(), 0);
	found(UINT64_MAX);
	cr_assert_eq(gpuarb_client_mem_reserve(a, GIB), 0);
	cr_assert_eq(gpuarb_client_enter(a, NULL), 0, "a client that is alone always runs");
}
