#include "test/world/lending.h"

#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/devices.h"
#include "test/sim/device/model.h"
#include "test/world/gpu.h"
#include "test/world/judge.h"
#include "test/world/program.h"

enum { OWNER, BORROWER, PROGRAMS };
enum what { COMES_BACK, KILLED, STOPPED };

/* By this time the owner has its share back, or the borrower has the share of the lost owner. Shares are judged over
 * the OVER_NS that follow. */
#define WITHIN_NS (20 * WORLD_MS)
#define OVER_NS   (100 * WORLD_MS)
/* How long a program is stopped. Others take a client for hung after 20 ms without a heartbeat, which may be 8 ms old
 * when the client is stopped. */
#define STOPPED_NS (2 * WORLD_S)
#define LOOK_NS    (WORLD_MS / 2)

static const struct lending {
	const char *name;
	enum what what;
	uint64_t within_ns;
	double least; /* percent of the GPU's time that the owner, or the borrower, must get */
} lendings[] = {
	{"request-back", COMES_BACK, WITHIN_NS, 50},
	{"request-killed", KILLED, WITHIN_NS, 99},
	{"request-stopped", STOPPED, WITHIN_NS + 10 * WORLD_MS, 99},
};

static struct program programs[PROGRAMS];

static void start(unsigned i, const char *line, uint64_t at_ns)
{
	program_prepare(&programs[i], i == OWNER ? "owner" : "borrower", 0, line);
	program_start(&programs[i], at_ns);
}

/* Returns the percent of the GPU's time that program i gets, measured from `after_ns` on. */
static double share(unsigned i, uint64_t after_ns)
{
	uint64_t before;

	world_run(world.now_ns + after_ns, judge_step);
	before = program_device_ns(&programs[i]);
	world_run(world.now_ns + OVER_NS, judge_step);
	return 100 * (double)(program_device_ns(&programs[i]) - before) / (double)OVER_NS;
}

static double run(enum what what, uint64_t within_ns, const struct case_options *o)
{
	double got;

	case_begin(o);
	start(BORROWER, "--kernel-us=20 --duration=10", world.now_ns);
	start(OWNER, "--kernel-us=20 --duration=10 GPUARB_REQUEST=50",
		world.now_ns + (what == COMES_BACK ? WORLD_S : WORLD_MS));
	world_run(world.now_ns + WORLD_S, judge_step);
	if (what == COMES_BACK) {
		/* Counts from the owner's first work, which began at most LOOK_NS ago. */
		while (!program_device_ns(&programs[OWNER]) && !world.failed)
			world_run(world.now_ns + LOOK_NS, judge_step);
		got = share(OWNER, within_ns - LOOK_NS);
	} else {
		if (what == KILLED)
			world_kill(programs[OWNER].process[0]);
		else
			world_stop(programs[OWNER].process[0], STOPPED_NS);
		got = share(BORROWER, within_ns);
	}
	if (world.failed)
		world_tell();
	judge_end();
	world_end();
	return got;
}

static bool run_on(const struct lending *l, const struct device *device, const struct case_options *o)
{
	struct device_environment before;
	char name[64];
	double got;
	bool failed;

	snprintf(name, sizeof(name), "%s%s", l->name, device->suffix);
	device_settings_apply(&before, device->settings);
	setenv("GPUSIM_UUID", WORLD_GPU, 1);
	got = run(l->what, l->within_ns, o);
	failed = world.failed || got < l->least;
	device_settings_restore(&before);
	if (o->json)
		json_array_append_new(o->json, json_pack("{s:s,s:f,s:f,s:b}", "case", name, "attained", got,
						       "least", l->least, "failed", failed));
	else if (!o->brief || failed)
		printf("%-24s %6.2f percent from %u ms on (at least %.0f)  %s\n", name, got,
			(unsigned)(l->within_ns / WORLD_MS), l->least, failed ? "FAILED" : "ok");
	return failed;
}

int lending_run(const struct case_options *o, int *n)
{
	int bad = 0;

	/* A pattern that is meant for the limit cases runs none of these. */
	if (strncmp(o->pattern, "request", 7))
		return 0;
	for (size_t d = 0; d < sizeof(devices) / sizeof(devices[0]); d++)
		for (size_t i = 0; i < sizeof(lendings) / sizeof(lendings[0]); i++) {
			char name[64];

			snprintf(name, sizeof(name), "%s%s", lendings[i].name, devices[d].suffix);
			if (devices[d].by_name || fnmatch(o->pattern, name, 0))
				continue;
			(*n)++;
			bad += run_on(&lendings[i], &devices[d], o);
		}
	return bad;
}
