/*
 * Random worlds of programs with the preload on a GPU. The seed draws how many there are, what they do, their limits,
 * and which are killed or stopped. Whatever they do, the law must hold, no account may be billed for more than the GPU
 * did for it or get more than its limit, and at the end nothing may be left behind.
 */
#include "test/world/random.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "preload/process/device.h"
#include "shm/client/client_state.h"
#include "test/sim/device/model.h"
#include "test/world/faults.h"
#include "test/world/gpu.h"
#include "gpuarb/control.h"
#include "test/world/judge.h"
#include "test/world/program.h"
#include "test/world/smaller.h"

#define PROGRAMS 250
/* Twice the work that the gate lets a program queue while it is contended. */
#define QUEUED_NS (10 * WORLD_MS)

/*
 * By how much bills may be above the GPU's own books where nothing goes wrong. 1 percent of the work: ends that are
 * dated by the return of a wait. 4 ms: the first and the last stretch of work of each program. 2 percent of the run:
 * pauses between unfenced launches, which are told from work by the average length of launches.
 *
 * 2/5 of the run where two programs pause between short kernels and neither knows of the other's pauses. A program that
 * notices the end of its work late, at its next launch, can date it no sooner than the last transition of any client,
 * because the weighted clock cannot go back. So it is billed until another client last came or went. To notice the end
 * sooner, the tracker would have to look after each kernel, which its CPU budget does not allow. With pauses of half a
 * millisecond a third of the run is billed too much (seed 73 of --programs).
 */
#define OVER_RATIO  1.01
#define OVER_NS     4e6
#define OVER_OF_RUN (1 / 50.0)
#define OVER_BESIDE (2 / 5.0)
#define SHORT_US    100

/* Steps between two checks of the memory of accounts; and how long a client may take to report its memory to another
 * segment. */
#define MEMORY_STEPS 64
#define MOVED_NS     (5 * WORLD_MS)

#define PICK(...)                                                                                            \
	world_chance_pick(&world.programs, (const uint64_t[]){__VA_ARGS__},                                  \
		sizeof((uint64_t[]){__VA_ARGS__}) / sizeof(uint64_t))

static struct {
	struct program programs[PROGRAMS];
	unsigned n;
	uint64_t end_ns;
	bool robbed, slices, concurrent;
	const char *policy;
	unsigned window_ms;
	char settings[2 * PROGRAMS][24];
	unsigned nsettings;
	unsigned account_pct[8];
	uint64_t account_mem_mb[8]; /* 0: no quota */
	double longest_kernel_ms;
	uint64_t steps;
	struct {
		/* Memory of the account's members in one segment; a hash of these members; since when they are the
		 * members. */
		uint64_t bytes, who, since_ns;
	} memory[8];
} plan;

static bool maybe(unsigned in)
{
	return world_chance_once_in(&world.programs, in);
}

/* Draws the options of a program, as a user might type them. */
static void draw_line(char *line, size_t size, double seconds)
{
	static const char *const patterns[] = {"back", "back", "sync", "burst", "random", "open"};
	static const char *const waits[] = {"sync", "event", "callback", "none"};
	static const char *const variants[] = {"plain", "ex", "coop", "ptsz"};
	/* One draw in each statement: the compiler chooses the order in which the arguments of a call are evaluated. */
	unsigned work = (unsigned)PICK(1, 5, 20), pause = (unsigned)PICK(1, 4, 20);
	unsigned copy = (unsigned)PICK(4096, 1 << 20), copy_every = (unsigned)PICK(1, 8);
	unsigned graph = (unsigned)PICK(3, 20), us = (unsigned)PICK(5, 20, 100, 300, 1000, 5000, 20000);
	const char *pattern = patterns[world_chance_below(&world.programs, 6)];
	int n = snprintf(line, size, "--kernel-us=%u --duration=%.3f --pattern=%s", us, seconds, pattern);

	/* Bounds what is queued, so that the program ends in time. */
	n += snprintf(line + n, size - (size_t)n, " --launches=%u", us < 1000 ? 0 : 1000000 / us);
	n += snprintf(
		line + n, size - (size_t)n, " --wait=%s", waits[world_chance_below(&world.programs, 4)]);
	if (maybe(2))
		n += snprintf(line + n, size - (size_t)n, " --every=%u", (unsigned)PICK(1, 2, 4, 16));
	if (!strcmp(pattern, "burst"))
		n += snprintf(line + n, size - (size_t)n, " --burst=%u:%u", work, pause);
	if (!strcmp(pattern, "open"))
		n += snprintf(
			line + n, size - (size_t)n, " --rate=%u", work * 200000 / (us < 100 ? 100 : us));
	if (maybe(3))
		n += snprintf(line + n, size - (size_t)n, " --streams=%u", (unsigned)PICK(2, 3, 8));
	if (maybe(4))
		n += snprintf(line + n, size - (size_t)n, " --threads=%u", (unsigned)PICK(2, 3));
	if (maybe(6) && us <= 1000) {
		n += snprintf(line + n, size - (size_t)n, " --graph=%u", graph);
		us *= graph;
	} else if (maybe(3))
		n += snprintf(line + n, size - (size_t)n, " --variant=%s",
			variants[world_chance_below(&world.programs, 4)]);
	if (maybe(6))
		n += snprintf(line + n, size - (size_t)n, " --copy=%u --copy-every=%u", copy, copy_every);
	if (maybe(4))
		n += snprintf(line + n, size - (size_t)n, " --memory=%u", (unsigned)PICK(10, 100, 1000));
	if (maybe(6))
		snprintf(line + n, size - (size_t)n, " --default-stream");
	if (us / 1e3 > plan.longest_kernel_ms)
		plan.longest_kernel_ms = us / 1e3;
}

static void setting(struct program *p, const char *name, uint64_t value, const char *unit)
{
	char *text = plan.settings[plan.nsettings % (2 * PROGRAMS)];

	snprintf(text, sizeof(plan.settings[0]), "%llu%s", (unsigned long long)value, unit);
	program_set(p, name, text);
	plan.nsettings++;
}

static void draw_weather(void)
{
	plan.robbed = maybe(2);
	if (plan.robbed) {
		world_robbed();
		world.weather.point_mean = (uint32_t)PICK(100, 1000, 10000);
	} else {
		world_quiet();
		world.weather.point_mean = (uint32_t)PICK(20, 100, 1000);
		world.weather.interrupt_ns = 200;
	}
	world.weather.ahead_ns = 0;
	smaller_weather();
}

/* Draws which programs follow a limits file, and which end without waiting for their work. */
static void draw_ends(void)
{
	static const char *const files[] = {WORLD_LIMITS "account0", WORLD_LIMITS "account1",
		WORLD_LIMITS "account2", WORLD_LIMITS "account3"};

	for (unsigned i = 0; faults.swaps && i < 4; i++)
		world_text(files[i], "50");
	for (unsigned i = 0; i < plan.n; i++) {
		unsigned a = (unsigned)(plan.programs[i].account[7] - '0');

		if (faults.swaps && a < 4)
			program_set(&plan.programs[i], "GPUARB_LIMITS_FILE", files[a]);
		plan.programs[i].load.abandon = maybe((unsigned)faults.abandons);
	}
}

static unsigned most_threads(void)
{
	unsigned most = 1;

	for (unsigned i = 0; i < plan.n; i++)
		if (plan.programs[i].load.threads > most)
			most = plan.programs[i].load.threads;
	return most;
}

static void draw_plan(unsigned programs)
{
	static const char *const policies[] = {"concurrent", "concurrent", "exclusive", "auto", "fair"};
	const char *policy = policies[world_chance_below(&world.programs, 5)];
	unsigned window_ms = (unsigned)PICK(20, 50, 100, 100);
	double seconds = 0.4 * (smaller.percent ? smaller.percent : 100) / 100;

	memset(&plan, 0, sizeof(plan));
	draw_weather();
	plan.n = programs ? programs : (unsigned)PICK(1, 1, 2, 2, 3, 4);
	if (plan.n > PROGRAMS)
		plan.n = PROGRAMS;
	plan.slices = maybe(2);
	plan.concurrent = !strcmp(policy, "concurrent");
	plan.policy = policy;
	plan.window_ms = window_ms;
	for (unsigned i = 0; i < 8; i++) {
		plan.account_pct[i] = (unsigned)PICK(0, 0, 10, 25, 50, 80);
		plan.account_mem_mb[i] = PICK(0, 0, 50, 150, 2000);
	}
	plan.end_ns = world.now_ns + (uint64_t)((seconds + 0.4) * 1e9);
	for (unsigned i = 0; i < plan.n; i++) {
		char line[256], account[32];
		unsigned a = (unsigned)world_chance_below(&world.programs, 8);

		draw_line(line, sizeof(line), seconds);
		smaller_line(line);
		snprintf(account, sizeof(account), "account%u", a);
		program_prepare(&plan.programs[i], account, plan.account_pct[a], line);
		program_set(&plan.programs[i], "GPUARB_POLICY", policy);
		/* Not drawn: an additional draw would change the worlds of all seeds. */
		program_set(&plan.programs[i], "GPUARB_BILLING", world.seed % 8 == 3 ? "full" : "weighted");
		setting(&plan.programs[i], "GPUARB_WINDOW_MS", window_ms, "");
		if (plan.account_mem_mb[a])
			setting(&plan.programs[i], "GPUARB_MEM_LIMIT", plan.account_mem_mb[a], "Mi");
	}
	faults_draw(false);
	plan.n = smaller_clients(plan.n);
	draw_ends();
	world_terms = (struct world_terms){.garbage = faults.garbles,
		.quotas_fixed = !faults.changes && !faults.replaces,
		.every = plan.n > 8 ? 1024 : 64};
	/* A kernel takes longer by as much as other programs share the GPU. Threads that find nothing queued may all launch
	 * at once, each with quota in hand. */
	if (!plan.robbed && !faults.stops && !faults.fails && !faults.holds && !faults_limits_move())
		world_terms.work_ns = (uint64_t)(plan.longest_kernel_ms * 1e6) * plan.n * most_threads();
	/* What all programs may have queued when a quota is used up. */
	if (!plan.robbed && !faults.kills && !faults.stops && !faults.fails && !faults.holds &&
		!faults.replaces && !faults.garbles && !faults.abandons && !faults_limits_move())
		world_terms.over_ns = (QUEUED_NS + (uint64_t)(plan.longest_kernel_ms * 4e6)) * plan.n;
}

static void respawn(struct world_process *dead)
{
	(void)dead;
}

/* Returns the most memory that a process had, without its context. */
static uint64_t most_memory(uint64_t most, uint64_t peak)
{
	const uint64_t context = 300ull << 20;

	peak = peak > context ? peak - context : 0;
	return peak > most ? peak : most;
}

/*
 * Checks by the GPU's own books that an account has no more memory than its quota. Where segments are replaced, its
 * members may be in two segments for a while, and bring along what they have. Then the memory of the members in one
 * segment may be above the quota, but must not grow once they have been there for MOVED_NS.
 */
static void check_memory(unsigned a)
{
	const void *segment = NULL;
	uint64_t sum = 0, who = 0;

	for (unsigned i = 0; i < plan.n; i++)
		for (unsigned k = 0;
			plan.programs[i].account[7] == (char)('0' + a) && k < plan.programs[i].load.processes;
			k++) {
			const struct world_process *p = plan.programs[i].process[k];
			const struct gpuarb_client *client =
				p && p->alive && p->own ? p->own->devices[0].client : NULL;

			if (!client || (faults.replaces && segment && client->seg.header != segment))
				continue;
			segment = client->seg.header;
			who = (who ^ p->number ^ (uint64_t)(uintptr_t)segment) * 0x100000001b3ull;
			sum += world_gpu_memory(p);
		}
	if (who != plan.memory[a].who) {
		plan.memory[a].who = who;
		plan.memory[a].since_ns = world.now_ns;
	} else if (sum > plan.account_mem_mb[a] << 20 && sum > plan.memory[a].bytes &&
		   (!faults.replaces || world.now_ns > plan.memory[a].since_ns + MOVED_NS)) {
		world_fail("account%u has %llu bytes, its quota is %llu MiB", a, (unsigned long long)sum,
			(unsigned long long)plan.account_mem_mb[a]);
	}
	plan.memory[a].bytes = sum;
}

static void step(void)
{
	judge_step();
	if (plan.steps++ % MEMORY_STEPS || faults.changes || faults.garbles)
		return;
	for (unsigned a = 0; a < 8 && !world.failed; a++)
		if (plan.account_mem_mb[a])
			check_memory(a);
}

/* Returns by how many ns bills may be above the GPU's books, besides OVER_RATIO of the work. */
static double over_allowed(double elapsed_ns)
{
	unsigned pausing = 0;

	for (unsigned i = 0; i < plan.n; i++)
		pausing += plan.programs[i].load.kernel_us < SHORT_US &&
			   plan.programs[i].load.pattern != PATTERN_BACK;
	return OVER_NS + elapsed_ns * (pausing > 1 ? OVER_BESIDE : OVER_OF_RUN);
}

/* Returns whether bills are compared with the GPU's books. Not where processes are killed, for example: they are billed
 * until their death is noticed. */
static bool is_judged(void)
{
	return !faults.kills && !faults.stops && !faults.fails && !faults.holds && !faults.replaces &&
	       !faults.abandons && !plan.robbed;
}

/* Compares what each account attained, by the GPU's books, with what it was billed; both in ns. */
static void check_books(bool say)
{
	static struct sim_process_state list[SIM_MAX_PROCS];
	static struct gpuarb_picture picture;
	struct sim_device_state state;
	struct gpuarb_error err = {0};
	struct gpuarb_view *view;
	double elapsed, slack, busy, copying, over;
	uint64_t end = world.start_ns;
	int n;

	if (world.failed || faults.garbles || gpuarb_view_open(WORLD_DIR, WORLD_GPU, &view, &err) < 0)
		return;
	gpuarb_view_read(view, &picture);
	gpuarb_view_close(view);
	n = sim_snapshot(0, &state, true, list, SIM_MAX_PROCS);
	for (unsigned i = 0; i < world.nprocesses; i++)
		if (world.processes[i]->script && world.processes[i]->ended_ns > end)
			end = world.processes[i]->ended_ns;
	elapsed = (double)(end - world.start_ns);
	/* A window's quota, and what was queued when it was used up, with the longest kernel. */
	slack = 0.12e9 + plan.longest_kernel_ms * 4e6;
	busy = (double)picture.busy_ns;
	/* Copies are billed, too, though the compute engine does not make them. */
	copying = (double)(state.copy_ns[0] + state.copy_ns[1]);
	over = over_allowed(elapsed);
	if (say && is_judged())
		printf("billed for %.3f ms, the GPU was busy for %.3f ms and copied for %.3f ms of %.3f\n",
			busy / 1e6, (double)state.busy_ns / 1e6, copying / 1e6, elapsed / 1e6);
	if (is_judged() && (busy < (double)state.busy_ns * 0.98 - 3e6 ||
				   busy > (double)state.busy_ns * OVER_RATIO + copying + over))
		world_fail("billed for %.3f ms, the GPU was busy for %.3f ms", busy / 1e6,
			(double)state.busy_ns / 1e6);
	for (unsigned a = 0; a < 8 && !world.failed; a++) {
		double got = 0;
		uint64_t mem = 0;
		unsigned pct = plan.account_pct[a];

		for (unsigned i = 0; i < plan.n; i++) {
			struct program *p = &plan.programs[i];

			if (strcmp(p->account + 7, (const char[]){(char)('0' + a), 0}))
				continue;
			for (unsigned k = 0; k < p->load.processes; k++)
				for (int j = 0; j < n; j++)
					if (p->process[k] &&
						list[j].pid == (int)(1000 + p->process[k]->number)) {
						got += (double)list[j].device_ns;
						mem = most_memory(mem, list[j].memory_peak_bytes);
					}
		}
		if (plan.account_mem_mb[a] && !faults.changes && mem > plan.account_mem_mb[a] << 20)
			world_fail("a process of account%u had %llu bytes, its quota is %llu MiB", a,
				(unsigned long long)mem, (unsigned long long)plan.account_mem_mb[a]);
		if (pct && !faults_limits_move() && !faults.replaces && got > pct / 100.0 * elapsed + slack)
			world_fail("account%u got %.3f ms of the GPU in %.0f ms, its limit is %u percent", a,
				got / 1e6, elapsed / 1e6, pct);
	}
	if (state.memory_used_bytes)
		world_fail("nobody is left, and %llu bytes of the GPU are used",
			(unsigned long long)state.memory_used_bytes);
}

static void check_programs(void)
{
	for (unsigned i = 0; i < plan.n && !world.failed && !faults.kills && !faults.fails; i++) {
		struct program *p = &plan.programs[i];

		for (unsigned k = 0; k < p->load.processes && !world.failed; k++) {
			if (p->result[k].error && p->result[k].error != CUDA_ERROR_OUT_OF_MEMORY)
				world_fail("program %u (%s) got error %d from %s", i, p->line,
					p->result[k].error, p->result[k].where);
			else if (!p->result[k].error && !p->result[k].completed && !p->load.abandon)
				world_fail("program %u (%s) has completed nothing", i, p->line);
		}
	}
}

void random_world(uint64_t seed, unsigned programs, bool say)
{
	setenv("GPUSIM_UUID", WORLD_GPU, 1);
	setenv("GPUSIM_SLICE_US", "2000", 1);
	setenv("GPUSIM_COST_CTX_NS", "1000000", 1);
	setenv("GPUSIM_MEMORY_MB", "400000", 1);
	world_begin(seed);
	draw_plan(programs);
	setenv("GPUSIM_MODE", plan.slices ? "timeslice" : "share", 1);
	world_gpu_begin();
	judge_begin();
	if (say)
		printf("policy %s, windows of %u ms%s%s\n", plan.policy, plan.window_ms,
			plan.robbed ? ", robbed" : "", plan.slices ? ", slices" : "");
	for (unsigned i = 0; i < plan.n; i++) {
		program_start(&plan.programs[i],
			world.now_ns + world_chance_below(&world.programs, 100 * WORLD_MS));
		if (say)
			printf("program %u, %s, limit %u: simload %s\n", i, plan.programs[i].account,
				plan.programs[i].core_pct, plan.programs[i].line);
	}
	faults_start(plan.end_ns, respawn);
	world_run(plan.end_ns + 60 * WORLD_S, step);
	for (unsigned i = 0; say && i < plan.n; i++)
		printf("program %u launched %llu, completed %llu, error %d %s\n", i,
			(unsigned long long)plan.programs[i].result[0].launched,
			(unsigned long long)plan.programs[i].result[0].completed,
			plan.programs[i].result[0].error, plan.programs[i].result[0].where);
	check_programs();
	check_books(say);
	judge_aftermath(plan.programs[0].environment);
	judge_end();
}
