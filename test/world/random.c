/*
 * Programs on a GPU, as many and as odd as the seed says, with the preload, under limits, killed and stopped and
 * changed: whatever they do, the law holds, nobody is billed for what the GPU did not do for it, nobody gets more
 * than its limit, and at the end nothing is left.
 */
#include "random.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../sim/model.h"
#include "faults.h"
#include "gpu.h"
#include "gpuarb/control.h"
#include "judge.h"
#include "program.h"

#define PROGRAMS 250

#define PICK(...)                                                                                            \
	world_chance_pick(&world.programs, (const uint64_t[]){__VA_ARGS__},                                  \
		sizeof((uint64_t[]){__VA_ARGS__}) / sizeof(uint64_t))

static struct {
	struct program programs[PROGRAMS];
	unsigned n;
	uint64_t end_ns;
	bool robbed, slices, concurrent;
	char settings[2 * PROGRAMS][24];
	unsigned nsettings;
	unsigned account_pct[8];
	uint64_t account_mem_mb[8]; /* 0: no quota */
	double longest_kernel_ms;
} plan;

static bool maybe(unsigned in)
{
	return world_chance_once_in(&world.programs, in);
}

/* One line, as somebody might type it. */
static void draw_line(char *line, size_t size, double seconds)
{
	static const char *const patterns[] = {"back", "back", "sync", "burst", "random"};
	static const char *const waits[] = {"sync", "event", "callback", "none"};
	static const char *const variants[] = {"plain", "ex", "coop", "ptsz"};
	/* Each drawn by itself: the order in which a call's arguments are evaluated is the compiler's. */
	unsigned work = (unsigned)PICK(1, 5, 20), pause = (unsigned)PICK(1, 4, 20);
	unsigned copy = (unsigned)PICK(4096, 1 << 20), copy_every = (unsigned)PICK(1, 8);
	unsigned graph = (unsigned)PICK(3, 20), us = (unsigned)PICK(5, 20, 100, 300, 1000, 5000, 20000);
	const char *pattern = patterns[world_chance_below(&world.programs, 5)];
	int n = snprintf(line, size, "--kernel-us=%u --duration=%.3f --pattern=%s", us, seconds, pattern);

	/* What it queues ends some time. */
	n += snprintf(line + n, size - (size_t)n, " --launches=%u", us < 1000 ? 0 : 1000000 / us);
	n += snprintf(line + n, size - (size_t)n, " --wait=%s",
		waits[world_chance_below(&world.programs, 4)]);
	if (maybe(2))
		n += snprintf(line + n, size - (size_t)n, " --every=%u", (unsigned)PICK(1, 2, 4, 16));
	if (!strcmp(pattern, "burst"))
		n += snprintf(line + n, size - (size_t)n, " --burst=%u:%u", work, pause);
	if (maybe(3))
		n += snprintf(line + n, size - (size_t)n, " --streams=%u", (unsigned)PICK(2, 3, 8));
	if (maybe(4))
		n += snprintf(line + n, size - (size_t)n, " --threads=%u", (unsigned)PICK(2, 3));
	if (maybe(6) && us <= 1000) {
		n += snprintf(line + n, size - (size_t)n, " --graph=%u", graph);
		us *= graph;
	}
	else if (maybe(3))
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
}

static void draw_plan(unsigned programs)
{
	static const char *const policies[] = {"concurrent", "concurrent", "exclusive", "auto", "fair"};
	const char *policy = policies[world_chance_below(&world.programs, 5)];
	unsigned window_ms = (unsigned)PICK(20, 50, 100, 100);
	double seconds = 0.4;

	memset(&plan, 0, sizeof(plan));
	draw_weather();
	plan.n = programs ? programs : (unsigned)PICK(1, 1, 2, 2, 3, 4);
	if (plan.n > PROGRAMS)
		plan.n = PROGRAMS;
	plan.slices = maybe(2);
	plan.concurrent = !strcmp(policy, "concurrent");
	for (unsigned i = 0; i < 8; i++) {
		plan.account_pct[i] = (unsigned)PICK(0, 0, 10, 25, 50, 80);
		plan.account_mem_mb[i] = PICK(0, 0, 50, 150, 2000);
	}
	plan.end_ns = world.now_ns + (uint64_t)((seconds + 0.4) * 1e9);
	for (unsigned i = 0; i < plan.n; i++) {
		char line[256], account[32];
		unsigned a = (unsigned)world_chance_below(&world.programs, 8);

		draw_line(line, sizeof(line), seconds);
		snprintf(account, sizeof(account), "account%u", a);
		program_prepare(&plan.programs[i], account, plan.account_pct[a], line);
		program_set(&plan.programs[i], "GPUARB_POLICY", policy);
		setting(&plan.programs[i], "GPUARB_WINDOW_MS", window_ms, "");
		if (plan.account_mem_mb[a])
			setting(&plan.programs[i], "GPUARB_MEM_LIMIT", plan.account_mem_mb[a], "Mi");
	}
	faults_draw(false);
	world_terms = (struct world_terms){
		.garbage = faults.garbles, .quotas_fixed = !faults.changes && !faults.replaces, .every = plan.n > 8 ? 1024 : 64};
}

static void respawn(struct world_process *dead)
{
	(void)dead;
}

/* What a process had at most, but for its context. */
static uint64_t most_memory(uint64_t most, uint64_t peak)
{
	const uint64_t context = 300ull << 20;

	peak = peak > context ? peak - context : 0;
	return peak > most ? peak : most;
}

/* Attained by the GPU's books and billed, by account; both in ns. */
static void check_books(void)
{
	static struct sim_process_state list[SIM_MAX_PROCS];
	static struct gpuarb_picture picture;
	struct sim_device_state state;
	struct gpuarb_error err = {0};
	struct gpuarb_view *view;
	double elapsed, slack, busy, copying;
	uint64_t end = world.start_ns;
	bool limited = true;
	int n;

	if (world.failed || faults.garbles || faults.replaces || gpuarb_view_open(WORLD_DIR, WORLD_GPU, &view, &err) < 0)
		return;
	gpuarb_view_read(view, &picture);
	gpuarb_view_close(view);
	n = sim_snapshot(0, &state, true, list, SIM_MAX_PROCS);
	for (unsigned i = 0; i < world.nprocesses; i++)
		if (world.processes[i]->script && world.processes[i]->ended_ns > end)
			end = world.processes[i]->ended_ns;
	elapsed = (double)(end - world.start_ns);
	/* A window's quota, what was queued when it was over, and the kernel that was longest. */
	slack = 0.12e9 + plan.longest_kernel_ms * 4e6;
	busy = (double)picture.busy_ns;
	/* Copies are work of the GPU, too, but not the compute engine's. */
	copying = (double)(state.copy_ns[0] + state.copy_ns[1]);
	/* What a killed process had on the GPU is billed until somebody notices. One without a limit and alone,
	 * or that takes turns, may be billed for its pauses; of kernels of a few us that nobody waits for, one
	 * point of the GPU may be the pauses between them. */
	for (unsigned i = 0; i < plan.n; i++)
		limited &= plan.programs[i].core_pct && plan.concurrent;
	if (!faults.kills && !faults.stops && !faults.fails && !plan.robbed &&
		(busy < (double)state.busy_ns * 0.98 - 3e6 ||
			(limited && busy > (double)state.busy_ns * 1.015 + copying + 2e6 + elapsed / 80)))
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
					if (p->process[k] && list[j].pid == (int)(1000 + p->process[k]->number)) {
						got += (double)list[j].device_ns;
						mem = most_memory(mem, list[j].memory_peak_bytes);
					}
		}
		if (plan.account_mem_mb[a] && !faults.changes && mem > plan.account_mem_mb[a] << 20)
			world_fail("a process of account%u had %llu bytes, its quota is %llu MiB", a,
				(unsigned long long)mem, (unsigned long long)plan.account_mem_mb[a]);
		if (pct && !faults.changes && got > pct / 100.0 * elapsed + slack)
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
			else if (!p->result[k].error && !p->result[k].completed)
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
	for (unsigned i = 0; i < plan.n; i++) {
		program_start(&plan.programs[i],
			world.now_ns + world_chance_below(&world.programs, 100 * WORLD_MS));
		if (say)
			printf("program %u, %s, limit %u%s%s: simload %s\n", i, plan.programs[i].account,
				plan.programs[i].core_pct, plan.robbed ? ", robbed" : "",
				plan.slices ? ", slices" : "", plan.programs[i].line);
	}
	faults_start(plan.end_ns, respawn);
	world_run(plan.end_ns + 60 * WORLD_S, judge_step);
	for (unsigned i = 0; say && i < plan.n; i++)
		printf("program %u launched %llu, completed %llu, error %d %s\n", i,
			(unsigned long long)plan.programs[i].result[0].launched,
			(unsigned long long)plan.programs[i].result[0].completed,
			plan.programs[i].result[0].error, plan.programs[i].result[0].where);
	check_programs();
	check_books();
	judge_aftermath(plan.programs[0].environment);
	judge_end();
}
