/*
 * A day of eight tenants. Each has a limit of its own and more work than that. Their programs end and are started
 * again, or are killed; now and then two tenants exchange their limits. At the end the law must hold to the tick, and
 * each tenant must have got what its limits allowed over the day, to a tenth of a point.
 */
#include "test/world/day.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "test/sim/device/model.h"
#include "test/world/faults.h"
#include "test/world/gpu.h"
#include "gpuarb/control.h"
#include "test/world/judge.h"
#include "test/world/program.h"

#define TENANTS      8
#define CHANGE_NS    (300 * WORLD_S) /* between two changes of limits, on average */
#define KILL_NS      (400 * WORLD_S)
#define OFF_POINTS   0.1
#define LIFE_S       120 /* how long a program lives, on average */
#define AWAY_MOST_MS 200

static struct {
	struct program programs[TENANTS];
	unsigned pct[TENANTS];
	double allowed_ns[TENANTS]; /* what its limits allowed while its program was there */
	uint64_t since_ns[TENANTS]; /* up to when allowed_ns is counted; 0: its program is away */
	uint64_t end_ns;
	unsigned starts, changes;
} day;

/* Eighty percent together: with a hundred, some share would lack the time that the starts of programs take. */
static const unsigned first_pct[TENANTS] = {4, 4, 8, 8, 8, 12, 16, 20};
static const unsigned kernel_us[TENANTS] = {2000, 5000, 4000, 10000, 20000, 5000, 5000, 8000};

static void count(unsigned i)
{
	if (day.since_ns[i])
		day.allowed_ns[i] += (double)(world.now_ns - day.since_ns[i]) * day.pct[i] / 100;
	day.since_ns[i] = world.now_ns;
}

static void start(unsigned i)
{
	struct program *p = &day.programs[i];
	char line[128], account[16];
	uint64_t life = 10 + world_chance_exp(&world.programs, LIFE_S);

	/* Always wants more than its limit. What it queues ends soon, because the gate bounds it. */
	snprintf(line, sizeof(line), "--kernel-us=%u --pattern=back --duration=%llu", kernel_us[i],
		(unsigned long long)life);
	snprintf(account, sizeof(account), "tenant%u", i);
	program_prepare(p, account, day.pct[i], line);
	program_start(p, world.now_ns);
	day.starts++;
	count(i);
}

/* Starts each program again soon after it has ended. */
static void *starter(void *argument)
{
	uint64_t back[TENANTS] = {0};

	(void)argument;
	while (world.now_ns < day.end_ns) {
		for (unsigned i = 0; i < TENANTS; i++) {
			if (day.programs[i].process[0]->alive)
				continue;
			if (!back[i]) {
				count(i);
				day.since_ns[i] = 0;
				back[i] = world.now_ns +
					  world_chance_below(&world.programs, AWAY_MOST_MS * WORLD_MS);
			} else if (world.now_ns >= back[i]) {
				back[i] = 0;
				start(i);
			}
		}
		world_sleep(20 * WORLD_MS);
	}
	return NULL;
}

static void *killer(void *argument)
{
	(void)argument;
	for (;;) {
		world_sleep(world_chance_exp(&world.programs, KILL_NS));
		if (world.now_ns >= day.end_ns)
			return NULL;
		world_doom(day.programs[world_chance_below(&world.programs, TENANTS)].process[0],
			1 + (uint32_t)world_chance_below(&world.programs, 200));
	}
}

/* Exchanges the limits of two tenants now and then, so that their sum stays. */
static void *administrator(void *argument)
{
	(void)argument;
	for (;;) {
		unsigned a = (unsigned)world_chance_below(&world.programs, TENANTS),
			 b = (unsigned)world_chance_below(&world.programs, TENANTS), pct;
		char name_a[16], name_b[16], value_a[8], value_b[8];
		struct gpuarb_change change[2] = {{name_a, "core", value_a}, {name_b, "core", value_b}};
		struct gpuarb_error err = {0};

		world_sleep(world_chance_exp(&world.programs, CHANGE_NS));
		if (world.now_ns >= day.end_ns)
			return NULL;
		if (a == b)
			continue;
		for (unsigned i = 0; i < TENANTS; i++)
			if (day.since_ns[i])
				count(i);
		pct = day.pct[a];
		day.pct[a] = day.pct[b];
		day.pct[b] = pct;
		snprintf(name_a, sizeof(name_a), "tenant%u", a);
		snprintf(name_b, sizeof(name_b), "tenant%u", b);
		snprintf(value_a, sizeof(value_a), "%u", day.pct[a]);
		snprintf(value_b, sizeof(value_b), "%u", day.pct[b]);
		day.changes++;
		if (gpuarb_control_change(WORLD_DIR, WORLD_GPU, change, 2, &err) < 0)
			world_fail("limits cannot be changed: %s", err.text);
	}
}

static int judge_day(double began)
{
	double elapsed = (double)(world.now_ns - world.start_ns), billed = 0;
	struct sim_device_state state;
	int bad = 0;

	sim_snapshot(0, &state, false, NULL, 0);
	for (unsigned i = 0; i < TENANTS; i++) {
		char name[16];
		uint64_t used = 0;
		double got, allowed;

		snprintf(name, sizeof(name), "tenant%u", i);
		judge_used(name, &used);
		billed += (double)used;
		got = 100 * (double)used / elapsed;
		allowed = 100 * day.allowed_ns[i] / elapsed;
		bad += fabs(got - allowed) > OFF_POINTS;
		printf("%-8s allowed %8.4f  got %8.4f  off by %+.4f points%s\n", name, allowed, got,
			got - allowed, fabs(got - allowed) > OFF_POINTS ? "  FAILED" : "");
	}
	printf("day: %.1f h in %.0f s of processor time (x%.0f), %u starts, %llu kills, %u changes of limits; the GPU was busy for "
	       "%.3f s, bills are %.3f s\n",
		elapsed / 3.6e12, world_cpu_s() - began, elapsed / 1e9 / (world_cpu_s() - began), day.starts,
		(unsigned long long)world.kills, day.changes, (double)state.busy_ns / 1e9, billed / 1e9);
	return bad;
}

int day_run(uint64_t seed, double hours)
{
	struct world_process *others;
	double began = world_cpu_s();
	int bad = 0;

	memset(&day, 0, sizeof(day));
	memcpy(day.pct, first_pct, sizeof(day.pct));
	setenv("GPUSIM_UUID", WORLD_GPU, 1);
	setenv("GPUSIM_MODE", "share", 1);
	world_begin(seed);
	world_quiet();
	world_gpu_begin();
	judge_begin();
	world_terms = (struct world_terms){.every = 100000};
	day.end_ns = world.now_ns + (uint64_t)(hours * 3.6e12);
	for (unsigned i = 0; i < TENANTS; i++)
		start(i);
	others = world_process_new(NULL);
	world_thread_new(others, "starter", world.now_ns, starter, NULL);
	world_thread_new(others, "killer", world.now_ns, killer, NULL);
	world_thread_new(others, "administrator", world.now_ns + WORLD_S, administrator, NULL);
	world_run(day.end_ns, judge_step);
	for (unsigned i = 0; i < TENANTS; i++)
		if (day.since_ns[i])
			count(i);
	if (!world.failed)
		bad = judge_day(began);
	if (world.failed)
		world_tell();
	bad += world.failed;
	judge_end();
	world_end();
	return bad != 0;
}
