/*
 * Bare clients of the segment: no program and no GPU, only the protocol, at the highest rate. There are two kinds of
 * worlds. In a wild world a client does anything at any time, and the invariants must hold. In a polite world a client
 * waits for its turn, works, looks at its bill and leaves when told to: no client may starve, and limits must hold.
 */
#include "test/world/world_segment.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "shm/client/client_state.h"
#include "shm/base/os.h"
#include "test/world/faults.h"
#include "gpuarb/client.h"
#include "gpuarb/control.h"
#include "test/world/judge.h"
#include "test/world/records.h"
#include "test/world/smaller.h"

#define ACCOUNTS 4
#define CLIENTS  1024

struct client {
	struct world_process *process;
	struct world_chance chance;
	unsigned account; /* ACCOUNTS: the client has an account of its own */
	unsigned core_pct, priority, turn_us, think_us;
	uint64_t mem_bytes;
	uint64_t held;
	const struct gpuarb_client
		*in; /* the client that holds `held`; NULL: there is none, or it is joining another segment */
	uint64_t entered, waited_most_ns;
	bool stale; /* its segment was removed */
	bool child; /* a forked child, which inherited this client from its parent */
	struct gpuarb_client *inherited;
};

static struct {
	bool borrow, polite, strict, lone; /* lone: one limited client that always wants more */
	uint64_t end_ns;
	unsigned nclients, slots, window_ms;
	struct client clients[CLIENTS];
	char text[16][24];
	const char *environment[48];
	unsigned n;
	unsigned account_pct[ACCOUNTS];
	uint64_t account_mem[ACCOUNTS];
	uint64_t moved; /* how often a client has brought its memory into another segment */
} plan;

static const char *const limits_files[ACCOUNTS] = {
	WORLD_LIMITS "account0", WORLD_LIMITS "account1", WORLD_LIMITS "account2", WORLD_LIMITS "account3"};

static void set(const char *name, const char *value)
{
	plan.environment[plan.n++] = name;
	plan.environment[plan.n++] = value;
	plan.environment[plan.n] = NULL;
}

static void set_number(const char *name, uint64_t value)
{
	char *text = plan.text[plan.n / 2];

	snprintf(text, sizeof(plan.text[0]), "%llu", (unsigned long long)value);
	set(name, text);
}

static uint64_t below(struct client *c, uint64_t n)
{
	return world_chance_below(&c->chance, n);
}

/* Fails if the result `r` is not one of those in `may`. */
static int expect(const char *what, int r, const int *may)
{
	static const int joining[] = {-EUSERS, -ENOSPC, -EBUSY, -ESTALE, -EBADMSG, 0};

	if (r >= 0 || faults.garbles)
		return r;
	for (; may && *may; may++)
		if (r == *may)
			return r;
	for (const int *j = joining; *j; j++)
		if (r == *j && (r > -100 || r == -EUSERS || faults.replaces))
			return r;
	world_fail("%s answered %d (%s)", what, r, strerror(-r));
	return r;
}
#define MAY(...) ((const int[]){__VA_ARGS__, 0})

static struct gpuarb_client *open_client(struct client *c)
{
	struct gpuarb_options o = {.gpu = WORLD_GPU, .dir = WORLD_DIR, .conf = "/dev/null"};
	struct gpuarb_client *client = NULL;
	struct gpuarb_error err = {0};
	char account[16];
	int r;

	snprintf(account, sizeof(account), "account%u", c->account);
	if (c->account < ACCOUNTS)
		o.account = account;
	o.core_pct = c->core_pct;
	o.mem_bytes = c->mem_bytes;
	o.priority = c->priority;
	if (faults.swaps && c->account < ACCOUNTS)
		o.limits_file = limits_files[c->account];
	world_does("opens", c->account, c->core_pct);
	r = gpuarb_client_open(&o, &client, &err);
	if (r < 0 && r != -EUSERS && r != -EBUSY && r != -ENOSPC && !(r == -ESTALE && faults.replaces) &&
		!faults.garbles)
		world_fail("open answered %d: %s", r, err.text);
	c->held = 0;
	c->in = r < 0 ? NULL : client;
	return r < 0 ? NULL : client;
}

/* Does what the preload does when its segment was removed: joins the segment that exists now. */
static void join_anew(struct client *c, struct gpuarb_client *client)
{
	struct gpuarb_error err = {0};

	c->stale = false;
	world_does("joins anew", 0, 0);
	gpuarb_client_leave(client, 0);
	c->in = NULL;
	if (gpuarb_client_rejoin(client, false, &err) < 0) {
		c->held = 0;
		return;
	}
	c->in = client;
	plan.moved++;
}

/* Returns whether the segment that the client is in knows of all memory that the client holds. */
static bool has_told(const struct client *c)
{
	return c->in && c->process && c->process->alive && c->in->guard->joined.v && !c->in->guard->carried;
}

/*
 * Checks the quota after a client was given memory. Where a segment was replaced, the account may be above its quota:
 * its members may be in two segments, and bring along the memory that they have. But no segment may give more than the
 * quota allows with the memory that this segment knows of.
 */
static void check_given(const struct client *c)
{
	uint64_t sum = 0;

	if (!c->in || !c->mem_bytes || faults_limits_move() || faults.garbles)
		return;
	for (unsigned i = 0; i < plan.nclients; i++) {
		const struct client *of = &plan.clients[i];

		if (of == c || (of->account == c->account && c->account < ACCOUNTS && has_told(of) &&
				       of->in->seg.header == c->in->seg.header))
			sum += of->held;
	}
	if (sum > c->mem_bytes)
		world_fail(
			"account%u was given memory in a segment in which it has %llu bytes, its quota is %llu",
			c->account, (unsigned long long)sum, (unsigned long long)c->mem_bytes);
}

static void use_memory(struct client *c, struct gpuarb_client *client)
{
	uint64_t bytes = 1 + below(c, 200000), moved = plan.moved;
	int r;

	if (c->held && below(c, 2)) {
		bytes = 1 + below(c, c->held);
		world_does("gives memory back", bytes, c->held);
		c->held -= bytes;
		r = expect("mem_release", gpuarb_client_mem_release(client, bytes),
			faults.replaces ? MAY(-EINVAL) : NULL);
		if (r < 0)
			c->held += bytes;
		return;
	}
	/* Often asks for exactly what is left of the quota, or for one byte more. */
	if (c->mem_bytes > c->held && below(c, 3) == 0)
		bytes = c->mem_bytes - c->held + below(c, 2);
	world_does("takes memory", bytes, c->held);
	r = expect("mem_reserve", gpuarb_client_mem_reserve(client, bytes), MAY(-ENOMEM));
	if (r < 0)
		return;
	c->held += bytes;
	if (moved == plan.moved)
		check_given(c);
}

/* Checks that queued work counts as used: a client with more queued work than any quota must not enter. */
static void ask_for_too_much(struct client *c, struct gpuarb_client *client)
{
	struct gpuarb_work work = {.outstanding_ns = 20 * WORLD_S};
	struct gpuarb_client_status status;

	if (!c->core_pct || c->core_pct == 100 || plan.borrow || faults_limits_move() || faults.replaces ||
		faults.garbles || gpuarb_client_status(client, &status) < 0 || status.running)
		return;
	world_does("enters with far too much", c->core_pct, 0);
	if (expect("enter", gpuarb_client_enter(client, &work), MAY(-EAGAIN)) == 0)
		world_fail("20 s of queued work are within a quota of %u percent", c->core_pct);
}

static void follow_file(struct gpuarb_client *client)
{
	struct gpuarb_error err = {0};
	uint64_t next;

	/* The result may be anything: the file may contain garbage, nothing, or a quota that cannot be promised. */
	if (faults.swaps)
		gpuarb_client_follow(client, &next, &err);
}

static void wild_step(struct client *c, struct gpuarb_client *client);

/*
 * Runs a forked child, which goes on with the client that it inherited and joins for itself. The child may run before
 * fork() has returned to its parent, and the parent may be killed by then: so the child itself enters its process here.
 */
static void *go_on(void *argument)
{
	struct client *c = argument;

	c->process = world.current->process;
	c->process->script = c;
	for (unsigned i = (unsigned)below(c, 60); i && world.now_ns < plan.end_ns && !world.failed; i--)
		wild_step(c, c->inherited);
	if (below(c, 2))
		gpuarb_client_close(c->inherited);
	return NULL;
}

/* Forks. The child has a copy of the client and shares its mappings, but the page by which a client notices a fork is
 * empty, as after a real fork(). */
static void fork_off(struct client *c, struct gpuarb_client *client)
{
	struct client *child = world_alloc(sizeof(*child));
	int error;

	*child = *c;
	child->child = true;
	child->held = 0;
	child->in = NULL;
	world_chance_seed(&child->chance, world_chance_next(&c->chance));
	child->inherited = world_alloc_aligned(64, sizeof(*client));
	world_does("forks", c->process->number, 0);
	memcpy(child->inherited, client, sizeof(*client));
	child->inherited->guard = arb_os_fork_page(&error);
	world_fork(c->process, "child", go_on, child);
}

static void wild_step(struct client *c, struct gpuarb_client *client)
{
	struct gpuarb_client_status status;
	uint64_t begin = world.now_ns - below(c, 3000000), max = below(c, 20) * WORLD_MS, pauses, took;
	struct gpuarb_work work = {.weight = (unsigned)below(c, 257)};
	unsigned what = (unsigned)below(c, 16);

	switch (what) {
	case 0:
	case 1:
		work.begin_ns = begin;
		world_does("enters", work.weight, 0);
		expect("enter", gpuarb_client_enter(client, &work), MAY(-EAGAIN));
		break;
	case 2:
	case 3:
		world_does("waits to enter", work.weight, max);
		work.outstanding_ns = below(c, 2) * WORLD_MS;
		begin = world.now_ns;
		pauses = c->process->pauses_ns;
		if (expect("wait", gpuarb_client_wait(client, &work, max), MAY(-ETIMEDOUT)) == -ETIMEDOUT)
			records_gave_up(client);
		took = world.now_ns - begin;
		if (took > max + 50 * WORLD_MS + c->process->pauses_ns - pauses)
			world_fail("a wait of at most %.3f ms took %.3f ms", (double)max / 1e6,
				(double)took / 1e6);
		break;
	case 4:
		world_does("pauses", 0, 0);
		if (gpuarb_client_pause(client, 0, below(c, 3000000)) > 0 && below(c, 2))
			expect("leave", gpuarb_client_leave(client, 0), NULL);
		break;
	case 5:
	case 6:
		world_does("leaves", 0, 0);
		if (expect("leave", gpuarb_client_leave(client, below(c, 2) ? begin : 0), NULL) == 0)
			records_left(client);
		break;
	case 7:
	case 8:
		world_does("ticks", 0, 0);
		c->stale = expect("tick", gpuarb_client_tick(client), MAY(-EDQUOT, -EAGAIN)) == -ESTALE;
		break;
	case 9:
		use_memory(c, client);
		break;
	case 10:
		expect("status", gpuarb_client_status(client, &status), NULL);
		break;
	case 11:
		ask_for_too_much(c, client);
		break;
	case 14:
		follow_file(client);
		break;
	case 15:
		if (faults.forks && !c->child && below(c, 8) == 0)
			fork_off(c, client);
		break;
	default:
		world_sleep(below(c, 3 * WORLD_MS));
	}
}

/* Waits for its turn, works, looks at its bill every millisecond, and leaves. */
static bool polite_turn(struct client *c, struct gpuarb_client *client)
{
	struct gpuarb_work work = {0};
	uint64_t began = world.now_ns, pauses = c->process->pauses_ns, end, took;
	struct gpuarb_client_status status;
	int r, told;

	world_does("waits for its turn", 0, 0);
	do {
		r = gpuarb_client_wait(client, &work, 500 * WORLD_MS);
		if (r == -ETIMEDOUT && gpuarb_client_status(client, &status) == 0 &&
			(status.core_pct == 100 || status.reason != ARB_REASON_QUOTA) &&
			world.now_ns - began - (c->process->pauses_ns - pauses) > faults_patience_ns()) {
			world_fail("starved: a polite client has waited for %.3f ms among %u",
				(double)(world.now_ns - began) / 1e6, plan.nclients);
			return false;
		}
	} while (r == -ETIMEDOUT && world.now_ns < plan.end_ns);
	if (r == -ETIMEDOUT)
		return true;
	if (expect("wait", r, NULL) < 0)
		return false;
	took = world.now_ns - began;
	if (took > c->waited_most_ns)
		c->waited_most_ns = took;
	c->entered++;
	end = world.now_ns + 1 + below(c, c->turn_us * WORLD_US);
	do {
		world_sleep(end - world.now_ns < WORLD_MS ? end - world.now_ns : WORLD_MS);
		world_does("looks at its bill", 0, 0);
		r = expect(
			"tick", gpuarb_client_tick_status(client, 0, &status, &told), MAY(-EDQUOT, -EAGAIN));
		expect("status", told, NULL);
	} while (r == 0 && world.now_ns < end);
	world_does("leaves", 0, 0);
	expect("leave", gpuarb_client_leave(client, 0), NULL);
	if (below(c, 8) == 0)
		use_memory(c, client);
	if (c->think_us)
		world_sleep(below(c, c->think_us * WORLD_US));
	return true;
}

static void *run(void *argument)
{
	struct client *c = argument;
	struct gpuarb_client *client;

	while (world.now_ns < plan.end_ns && !world.failed) {
		client = open_client(c);
		if (!client) {
			world_sleep(2 * WORLD_MS);
			continue;
		}
		if (plan.polite)
			while (world.now_ns < plan.end_ns && !world.failed && polite_turn(c, client))
				;
		else
			for (unsigned i = (unsigned)below(c, 300); i && world.now_ns < plan.end_ns; i--) {
				wild_step(c, client);
				if (c->stale)
					join_anew(c, client);
			}
		/* Some end without closing their client. */
		if (below(c, 4) == 0)
			world_process_exit();
		world_does("closes", 0, 0);
		c->in = NULL;
		gpuarb_client_close(client);
	}
	return NULL;
}

static void start(struct client *c, uint64_t at_ns)
{
	c->process = world_process_new(plan.environment);
	c->process->script = c;
	c->in = NULL;
	world_thread_new(c->process, "client", at_ns, run, c);
}

/* Starts another client in place of one that was killed or ended early. */
static void respawn(struct world_process *dead)
{
	struct client *c = dead->script;

	if (c && !c->child && c->process == dead && world.now_ns < plan.end_ns)
		start(c, world.now_ns + world_chance_below(&world.programs, 20 * WORLD_MS));
}

#define PICK(...)                                                                                            \
	world_chance_pick(&world.programs, (const uint64_t[]){__VA_ARGS__},                                  \
		sizeof((uint64_t[]){__VA_ARGS__}) / sizeof(uint64_t))

static void draw_weather(void)
{
	world.weather = (struct world_weather){
		.point_mean = (uint32_t)PICK(2, 5, 20, 100, 1000),
		.interrupt_ns = PICK(0, 100, 1000, 10000),
		.preempt_in = (uint32_t)PICK(0, 50, 500),
		.preempt_ns = PICK(100 * WORLD_US, WORLD_MS, 3 * WORLD_MS),
		.late_ns = PICK(0, 2 * WORLD_US, 30 * WORLD_US, 200 * WORLD_US),
		.very_late_in = (uint32_t)PICK(0, 0, 1000),
		.clock_ns = PICK(1, 25),
		.call_ns = PICK(0, 200, 1000),
	};
	smaller_weather();
}

/* Returns how much work may be under way when a quota is used up: a polite client reads its bill every millisecond. */
static uint64_t over_ns(void)
{
	uint64_t each =
		3 * WORLD_MS + 20 * world.weather.late_ns + (world.weather.very_late_in ? 50 * WORLD_MS : 0);

	if (!plan.polite || !plan.strict || faults.kills || faults.stops || faults_limits_move() ||
		faults.replaces || faults.garbles)
		return 0;
	return each * plan.nclients;
}

static void draw_plan(unsigned clients)
{
	static const char *const policies[] = {"concurrent", "exclusive", "auto", "fair", "memory"};
	const char *policy;
	unsigned carryover;
	bool limits, borrow;

	memset(&plan, 0, sizeof(plan));
	plan.lone = !clients && world_chance_once_in(&world.programs, 6);
	plan.polite = plan.lone || world_chance_below(&world.programs, 2);
	plan.nclients = clients ? clients : (unsigned)PICK(1, 2, 2, 3, 3, 4, 6, 8);
	if (plan.lone)
		plan.nclients = 1;
	if (plan.nclients > CLIENTS)
		plan.nclients = CLIENTS;
	plan.slots = plan.nclients + (unsigned)world_chance_below(&world.programs, 4);
	if (!plan.polite && world_chance_once_in(&world.programs, 4))
		plan.slots = plan.nclients / 2 + 1;
	if (plan.slots > CLIENTS)
		plan.slots = CLIENTS;
	if (plan.slots < 2)
		plan.slots = 2;
	policy = policies[world_chance_below(&world.programs, plan.polite ? 4 : 5)];
	plan.window_ms = (unsigned)PICK(10, 20, 50, 100);
	plan.end_ns = world.now_ns + smaller_ns((plan.polite ? 400 : 150) * WORLD_MS);
	limits = plan.lone || world_chance_below(&world.programs, 2);
	for (unsigned i = 0; i < ACCOUNTS; i++) {
		plan.account_pct[i] = limits ? (unsigned)PICK(10, 20, 30, 50, 80, 100) : 0;
		plan.account_mem[i] = PICK(0, 100000, 500000);
	}
	set_number("GPUARB_SLOTS", plan.slots);
	set("GPUARB_POLICY", policy);
	set_number("GPUARB_WINDOW_MS", plan.window_ms);
	set("GPUARB_BILLING", world_chance_below(&world.programs, 3) ? "weighted" : "full");
	borrow = world_chance_below(&world.programs, 3) == 0 && !plan.lone;
	plan.borrow = borrow;
	set("GPUARB_BORROW", borrow ? "idle" : "off");
	carryover = plan.lone ? 100 : (unsigned)PICK(100, 100, 50, 0);
	set_number("GPUARB_CARRYOVER_PERCENT", carryover);
	plan.strict = !borrow && carryover == 100;
	set_number("GPUARB_SLICE_MS", PICK(1, 5, 10));
	set_number("GPUARB_RESERVE_US", PICK(1000, 5000, 20000));
	set_number("GPUARB_GRACE_MS", PICK(20, 100, 500));
	set_number("GPUARB_MAX_WAIT_MS", PICK(50, 2000));
	for (unsigned i = 0; i < plan.nclients; i++) {
		struct client *c = &plan.clients[i];

		world_chance_seed(&c->chance, world_chance_next(&world.programs));
		c->account = (unsigned)world_chance_below(&world.programs, ACCOUNTS + !plan.lone);
		c->core_pct = c->account < ACCOUNTS ? plan.account_pct[c->account] : 0;
		c->mem_bytes = c->account < ACCOUNTS ? plan.account_mem[c->account] : 0;
		c->priority = (unsigned)PICK(0, 1, 50, 100);
		c->turn_us = (unsigned)PICK(100, 1000, 4000);
		c->think_us = (unsigned)PICK(0, 100, 3000);
		if (plan.lone) {
			c->turn_us = 4000;
			c->think_us = 0;
		}
	}
	faults_draw(plan.polite);
	if (plan.lone)
		faults = (struct faults){0};
	plan.nclients = smaller_clients(plan.nclients);
	for (unsigned i = 0; faults.swaps && i < ACCOUNTS; i++)
		world_text(limits_files[i], "50");
	/* A client notices within a second that its segment was removed. */
	if (faults.replaces)
		plan.end_ns += 2 * WORLD_S;
	world_terms = (struct world_terms){
		.garbage = faults.garbles,
		.polite = plan.polite,
		.prompt = plan.polite && !faults.stops && !world.weather.preempt_in,
		.exclusive = !strcmp(policy, "exclusive") && !faults.changes && !faults.replaces,
		.quotas_fixed = !faults.changes && !faults.garbles && !faults.replaces,
		.quiet = !faults.kills && !faults.stops && !faults.garbles && !faults.replaces,
		.work_ns = plan.polite && !faults.stops && !faults_limits_move() &&
					   !world.weather.preempt_in && !world.weather.very_late_in
				   ? 4 * WORLD_MS
				   : 0,
		.over_ns = over_ns(),
		.every = plan.slots > 256  ? 4096
			 : plan.slots > 16 ? 64
					   : 4,
	};
}

/*
 * Checks limits over the whole run, in a polite world where no client is killed or stopped. An account gets its limit
 * at most, and on top one window's quota, which it may take in advance, and what its members do between two looks at
 * the bill. An account that is alone and always wants more gets its limit at least.
 */
static void check_limits(void)
{
	uint64_t elapsed = plan.end_ns - world.start_ns, window = plan.window_ms * WORLD_MS, slack = 0, used;
	uint64_t looks = 0;

	if (world.failed || !plan.polite || !world_terms.quiet || !plan.strict)
		return;
	for (unsigned i = 0; i < plan.nclients; i++) {
		slack += plan.clients[i].process->pauses_ns;
		looks += 3 * WORLD_MS + 20 * world.weather.late_ns;
	}
	if (world.weather.very_late_in)
		slack += 50 * WORLD_MS;
	for (unsigned a = 0; a < ACCOUNTS && !world.failed; a++) {
		uint64_t quota = elapsed * plan.account_pct[a] / 100;
		char name[16];

		snprintf(name, sizeof(name), "account%u", a);
		if (!plan.account_pct[a] || plan.account_pct[a] == 100 || !judge_used(name, &used))
			continue;
		if (used > quota + window * plan.account_pct[a] / 100 + slack + looks)
			world_fail("%s has used %.3f ms in %.0f ms, its limit is %u percent", name,
				(double)used / 1e6, (double)elapsed / 1e6, plan.account_pct[a]);
		if (plan.nclients == 1 && !plan.clients[0].think_us && plan.clients[0].turn_us > 500 &&
			used + 2 * window * plan.account_pct[a] / 100 + 2 * slack + looks + 10 * WORLD_MS <
				quota)
			world_fail("%s has used %.3f ms in %.0f ms, alone and always wanting more; its limit "
				   "is %u percent",
				name, (double)used / 1e6, (double)elapsed / 1e6, plan.account_pct[a]);
	}
}

void segment_world(uint64_t seed, unsigned clients)
{
	world_begin(seed);
	draw_weather();
	draw_plan(clients);
	judge_begin();
	for (unsigned i = 0; i < plan.nclients; i++)
		start(&plan.clients[i], world.now_ns + world_chance_below(&world.programs, 5 * WORLD_MS));
	faults_start(plan.end_ns, respawn);
	/* All clients end by themselves; those that were stopped end some time later. */
	world_run(plan.end_ns + 20 * WORLD_S, judge_step);
	check_limits();
	judge_aftermath(plan.environment);
	judge_end();
}
