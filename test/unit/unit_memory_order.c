/* Turns at the GPU's memory where several clients wait: which is next, how long a turn is, that none starves. */
#include "test/unit/unit_clients.h"
#include "units.h"

#define STEP_NS (100 * MS)
#define MOST    8

static struct player {
	struct gpuarb_client *client;
	uint64_t arrives_ns; /* relative to the beginning */
	uint64_t entered_ns, waited_ns, since_ns;
	unsigned turns;
} players[MOST];
static int nplayers;
static uint64_t began_ns;

static void begin(void)
{
	u_begin("policy = memory\nphysical_memory_mb = 16384\ngrace_ms = 600000\n");
	nplayers = 0;
	began_ns = u_clock_ns;
}

static void end(void)
{
	while (nplayers)
		gpuarb_client_close(players[--nplayers].client);
	u_end();
}

TestSuite(memory_order, .init = begin, .fini = end);

/* A client that works without a pause from its arrival on. */
static struct player *player(uint64_t bytes, unsigned priority, uint64_t arrives_ns)
{
	struct player *p = &players[nplayers];
	struct gpuarb_options o;
	char name[16];

	snprintf(name, sizeof(name), "client%d", nplayers++);
	o = t_options(&u_dir, name);
	o.priority = priority;
	*p = (struct player){.arrives_ns = arrives_ns};
	cr_assert_eq(gpuarb_client_open(&o, &p->client, NULL), 0);
	cr_assert_eq(gpuarb_client_mem_reserve(p->client, bytes), 0);
	return p;
}

/* Puts the client into the queue without letting it sleep, as gpuarb_client_wait does between two sleeps. */
static void ask(struct player *p)
{
	struct gpuarb_client *c = p->client;
	struct arb_snap snap;
	int r;

	if (!p->since_ns) {
		p->since_ns = u_clock_ns;
		c->wait.since = u_clock_ns;
		arb_store64(&arb_client_slot(c)->wait_since_ns, u_clock_ns);
	}
	gpuarb_client_tick(c);
	arb_client_move(c, 0)->queue = true;
	c->move.weight = ARB_WEIGHT_ONE;
	r = arb_running_enter(&c->me, &c->move, &snap);
	c->move.queue = false;
	cr_assert(r == 0 || r == -EAGAIN, "%d", r);
	if (r < 0)
		return;
	cr_assert_eq(gpuarb_client_enter(c, NULL), 0, "it is in the set already");
	p->turns++;
	p->entered_ns = u_clock_ns;
	if (u_clock_ns - p->since_ns > p->waited_ns)
		p->waited_ns = u_clock_ns - p->since_ns;
	p->since_ns = 0;
}

static void work(struct player *p)
{
	int r = gpuarb_client_tick(p->client);

	cr_assert(r == 0 || r == -EAGAIN, "%d", r);
	if (r == -EAGAIN)
		gpuarb_client_leave(p->client, 0);
}

static void run_for(uint64_t ns)
{
	for (uint64_t end_ns = u_clock_ns + ns; u_clock_ns < end_ns; u_clock_ns += STEP_NS)
		for (int i = 0; i < nplayers; i++) {
			struct player *p = &players[i];

			if (u_clock_ns - began_ns < p->arrives_ns)
				continue;
			if (p->client->running)
				work(p);
			else
				ask(p);
		}
}

static bool about(uint64_t ns, uint64_t expected)
{
	return ns >= expected && ns <= expected + SECOND;
}

Test(memory_order, priority_decides_who_is_next_though_a_turn_is_longer_than_max_wait)
{
	struct player *a = player(12 * GIB, 50, 0), *low = player(12 * GIB, 10, SECOND),
		      *high = player(12 * GIB, 90, 2 * SECOND);

	run_for(65 * SECOND);
	cr_assert_eq(a->turns, 1);
	cr_assert_eq(high->turns, 1, "it came later, and counts for more");
	cr_assert_eq(low->turns, 0);
	cr_assert(about(high->entered_ns - began_ns, 60 * SECOND));
}

Test(memory_order, among_equals_the_longest_wait_goes_first)
{
	player(12 * GIB, 50, 0);
	struct player *first = player(12 * GIB, 50, SECOND), *second = player(12 * GIB, 50, 2 * SECOND);

	run_for(65 * SECOND);
	cr_assert_eq(first->turns, 1);
	cr_assert_eq(second->turns, 0);
}

/* Two clients of 12 GiB never stop and come again at once, and a third has a lower priority: a round is 180 s. */
Test(memory_order, a_client_of_low_priority_does_not_starve)
{
	struct player *a = player(12 * GIB, 90, 0), *b = player(12 * GIB, 90, 0),
		      *low = player(12 * GIB, 10, 0);

	run_for(3600 * SECOND);
	cr_assert_geq(low->turns, 6, "%u", low->turns);
	cr_assert_leq(low->waited_ns, (360 + 120) * SECOND);
	cr_assert_gt(low->waited_ns, 180 * SECOND, "it did not wait for longer than in a round of equals");
	cr_assert_geq(a->turns, 3 * low->turns);
	cr_assert_geq(b->turns, 3 * low->turns);
	/* The other two never wait for so long that their priority would be disregarded. */
	cr_assert_leq(a->waited_ns, 180 * SECOND);
	cr_assert_leq(b->waited_ns, 180 * SECOND);
}

Test(memory_order, among_many_priority_still_decides)
{
	struct player *low;

	for (int i = 0; i < MOST - 1; i++)
		player(12 * GIB, 90, 0);
	low = player(12 * GIB, 10, 0);
	/* 960 s are two rounds, each of eight turns of a minute. */
	run_for(960 * SECOND);
	cr_assert_eq(low->turns, 0);
	for (int i = 0; i < MOST - 1; i++)
		cr_assert_geq(players[i].turns, 2, "%d", i);
	run_for(130 * SECOND);
	cr_assert_eq(low->turns, 1);
}

Test(memory_order, a_max_wait_that_is_longer_than_two_rounds_counts)
{
	struct player *low;

	player(12 * GIB, 90, 0);
	player(12 * GIB, 90, 0);
	low = player(12 * GIB, 10, 0);
	u_set("max_wait_ms", "1000000");
	run_for(990 * SECOND);
	cr_assert_eq(low->turns, 0);
	run_for(130 * SECOND);
	cr_assert_eq(low->turns, 1);
}

Test(memory_order, a_turn_lasts_by_all_the_memory_that_has_to_move)
{
	struct player *a = player(6 * GIB, 50, 0), *b = player(6 * GIB, 50, 0),
		      *large = player(12 * GIB, 50, SECOND);

	run_for(59 * SECOND);
	cr_assert(a->client->running && b->client->running);
	run_for(2 * SECOND);
	/* 12 GiB at 1 GiB/s, five times over; not 30 s for the 6 GiB of each client. */
	cr_assert(about(large->entered_ns - began_ns, 60 * SECOND));
	cr_assert_not(a->client->running || b->client->running);
}

Test(memory_order, what_may_stay_is_not_counted)
{
	struct player *late;

	for (int i = 0; i < 3; i++)
		player(4 * GIB, 50, 0);
	late = player(4 * GIB, 50, SECOND);
	run_for(22 * SECOND);
	/* One of the three, with its 4 GiB, has to leave. */
	cr_assert(about(late->entered_ns - began_ns, 20 * SECOND));
}

/* If the first left as soon as its turn is over, the room would still be too small for the client that waits. */
Test(memory_order, no_client_leaves_before_all_that_have_to_leave_can)
{
	struct player *a = player(6 * GIB, 50, 0), *b = player(6 * GIB, 50, 40 * SECOND),
		      *large = player(12 * GIB, 50, 41 * SECOND);

	run_for(99 * SECOND);
	cr_assert(a->client->running && b->client->running);
	run_for(3 * SECOND);
	cr_assert(about(large->entered_ns - began_ns, 100 * SECOND));
	cr_assert_eq(a->turns, 1);
	cr_assert_not(a->client->running || b->client->running);
}
