#include "test/world/latency.h"

#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/latency_cases.h"
#include "test/sim/device/model.h"
#include "test/world/faults.h"
#include "test/world/gpu.h"
#include "gpuarb/control.h"
#include "test/world/judge.h"
#include "test/world/program.h"

#define WARM_NS WORLD_S
/* The shortest time over which leases are judged when only failures are printed. */
#define LEASE_S 20

enum { REQUESTS, GREEDY, PROGRAMS };

struct outcome {
	uint64_t requests;
	double median_us, p99_us, p999_us;
	double keeps; /* percent of the time that the requests leave over which the greedy program gets */
};

/* The seed decides also when requests arrive, and all ways of a case have the same arrivals. */
static void prepare(struct program *p, unsigned i, const struct latency_case *c,
	const struct latency_way *way, double seconds, uint64_t seed)
{
	char line[200];

	if (i == GREEDY)
		snprintf(line, sizeof(line), "--kernel-us=%g --duration=%g", c->kernel_us, seconds);
	else
		snprintf(line, sizeof(line), "%s --random-us=%d --duration=%g --seed=%llu%s", c->request,
			LATENCY_APART_US, seconds, (unsigned long long)seed - 1,
			way->lease ? " --lease=" LATENCY_CLASS : "");
	program_prepare(p, i == GREEDY ? "greedy" : "requests", 0, line);
	if (!c->equal)
		program_set(p, "GPUARB_PRIORITY", i == GREEDY ? LATENCY_LOW : LATENCY_HIGH);
	if (way->policy)
		program_set(p, "GPUARB_POLICY", way->policy);
	if (way->bare)
		program_set(p, "WORLD_WITHOUT_PRELOAD", "1");
}

static void start(struct program *p, unsigned i, const struct latency_case *c, const struct latency_way *way,
	double seconds, uint64_t seed)
{
	prepare(p, i, c, way, seconds, seed);
	program_start(p, world.now_ns + i * WORLD_MS);
}

static void make_class(void)
{
	struct gpuarb_class_change change = {LATENCY_CLASS, "priority", LATENCY_HIGH};
	struct gpuarb_error err = {0};

	if (gpuarb_control_change_classes(WORLD_DIR, WORLD_GPU, &change, 1, &err) < 0)
		world_fail("the class cannot be made: %s", err.text);
}

static struct outcome run_way(
	const struct latency_case *c, const struct latency_way *way, const struct case_options *o)
{
	static struct program programs[PROGRAMS];
	struct outcome of = {0};
	double elapsed_s, high_s;
	const uint32_t *latency;
	uint64_t from;

	case_begin(o);
	if (way->lease)
		make_class();
	for (unsigned i = 0; i < (way->alone ? 1 : PROGRAMS); i++)
		start(&programs[i], i, c, way, o->seconds + 5, o->seed);
	if (way->bare)
		program_metronome(&programs[REQUESTS]);
	world_run(world.now_ns + WARM_NS, judge_step);
	sim_reset();
	from = world.now_ns;
	if (programs[REQUESTS].result[0].latency)
		memset(programs[REQUESTS].result[0].latency, 0, SIMLOAD_BUCKETS * sizeof(uint32_t));
	world_run(world.now_ns + (uint64_t)(o->seconds * 1e9), judge_step);
	elapsed_s = (double)(world.now_ns - from) / 1e9;
	latency = programs[REQUESTS].result[0].latency;
	of.requests = simload_requests(latency);
	of.median_us = simload_latency_us(latency, 0.5);
	of.p99_us = simload_latency_us(latency, 0.99);
	of.p999_us = simload_latency_us(latency, 0.999);
	high_s = (double)program_device_ns(&programs[REQUESTS]) / 1e9;
	if (!way->alone)
		of.keeps = 100 * ((double)program_device_ns(&programs[GREEDY]) / 1e9) / (elapsed_s - high_s);
	if (!of.requests)
		world_fail("no request was answered");
	if (world.failed)
		world_tell();
	judge_end();
	world_end();
	return of;
}

static bool run_case(const struct latency_case *c, const struct case_options *o)
{
	struct device_environment before;
	struct outcome alone = {0};
	json_t *ways = json_array();
	bool failed = false;

	device_settings_apply(&before, c->settings);
	setenv("GPUSIM_UUID", WORLD_GPU, 1);
	for (size_t i = 0; i < LATENCY_WAYS; i++) {
		const struct latency_way *way = &latency_ways[i];
		struct outcome of;
		bool bad;

		if ((o->brief && !latency_judged(c, way) && !way->alone) || (c->equal && way->lease))
			continue;
		/* With fewer requests a difference of 2 percent in the P99 may be chance. */
		if (way->lease && o->brief && o->seconds < LEASE_S)
			continue;
		of = run_way(c, way, o);
		if (way->alone)
			alone = of;
		bad = world.failed || !latency_holds(c, way, alone.median_us, alone.p99_us, of.median_us,
					      of.p99_us, of.keeps);
		failed |= bad;
		json_array_append_new(
			ways, json_pack("{s:s,s:I,s:f,s:f,s:f,s:f,s:b}", "way", way->name, "requests",
				      (json_int_t)of.requests, "median_us", of.median_us, "p99_us", of.p99_us,
				      "p999_us", of.p999_us, "keeps", of.keeps, "failed", bad));
		if (!o->json && (!o->brief || bad))
			printf("%-26s %-10s %6llu requests: median %7.1f us (%.2f), P99 %7.1f (%.2f), P99.9 %7.1f; the greedy one "
			       "keeps %5.1f %%%s\n",
				c->name, way->name, (unsigned long long)of.requests, of.median_us,
				of.median_us / alone.median_us, of.p99_us, of.p99_us / alone.p99_us,
				of.p999_us, of.keeps,
				bad                      ? "  FAILED"
				: latency_judged(c, way) ? "  ok"
							 : "");
		fflush(stdout);
	}
	if (o->json)
		json_array_append_new(
			o->json, json_pack("{s:s,s:b,s:o}", "case", c->name, "failed", failed, "ways", ways));
	else
		json_decref(ways);
	device_settings_restore(&before);
	return failed;
}

/* Prints each request, for a picture (bench/latency.gp): the greedy program runs from 2 s to 6 s of 8 s. */
#define PLOT_S    8
#define PLOT_FROM 2
#define PLOT_TO   6
#define PLOT_MOST 4000

static void plot_way(const struct latency_case *c, const struct latency_way *way, uint64_t seed)
{
	static struct simload_sample samples[PLOT_MOST];
	static struct program programs[PROGRAMS];
	const struct result *r = &programs[REQUESTS].result[0];
	double from_s;

	world_begin(seed);
	faults = (struct faults){0};
	world_quiet();
	world_gpu_begin();
	world_terms = (struct world_terms){.every = 1000, .quotas_fixed = true};
	judge_begin();
	prepare(&programs[REQUESTS], REQUESTS, c, way, PLOT_S, seed);
	programs[REQUESTS].result[0].samples = samples;
	programs[REQUESTS].result[0].room = PLOT_MOST;
	program_start(&programs[REQUESTS], world.now_ns);
	prepare(&programs[GREEDY], GREEDY, c, way, PLOT_TO - PLOT_FROM, seed);
	program_start(&programs[GREEDY], world.now_ns + PLOT_FROM * WORLD_S);
	if (way->bare)
		program_metronome(&programs[REQUESTS]);
	from_s = (double)world.now_ns / 1e9;
	world_run(world.now_ns + PLOT_S * WORLD_S, judge_step);
	for (uint32_t i = 0; i < r->nsamples; i++)
		printf("%s %.4f %.4f\n", way->name, samples[i].came_s - from_s, samples[i].took_s * 1e3);
	judge_end();
	world_end();
}

static int plot(const struct case_options *o)
{
	const struct latency_case *c = &latency_cases[0];
	struct device_environment before;

	device_settings_apply(&before, c->settings);
	setenv("GPUSIM_UUID", WORLD_GPU, 1);
	for (size_t i = 0; i < LATENCY_WAYS; i++)
		if (!strcmp(latency_ways[i].name, "bare") || !strcmp(latency_ways[i].name, "concurrent"))
			plot_way(c, &latency_ways[i], o->seed);
	device_settings_restore(&before);
	return world.failed;
}

int latency_run(const struct case_options *o, int *n)
{
	int bad = 0;

	if (!strcmp(o->pattern, "latency-plot")) {
		(*n)++;
		return plot(o);
	}

	/* A pattern that is meant for the limit cases runs none of these. */
	if (strncmp(o->pattern, "latency", 7))
		return 0;
	for (size_t i = 0; i < LATENCY_CASES; i++)
		if (!fnmatch(o->pattern, latency_cases[i].name, 0)) {
			(*n)++;
			bad += run_case(&latency_cases[i], o);
		}
	return bad;
}
