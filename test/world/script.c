#include "test/world/script.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "test/sim/device/model.h"
#include "test/world/faults.h"
#include "test/world/gpu.h"
#include "test/world/judge.h"
#include "test/world/program.h"

#define WARM_NS WORLD_S

static struct program programs[SCRIPT_PROGRAMS];

static void tell(unsigned n, const uint64_t *before, double elapsed_ns, double took_s)
{
	struct sim_device_state state;

	sim_snapshot(0, &state, true, NULL, 0);
	for (unsigned i = 0; i < n; i++) {
		uint64_t used = before[i];

		judge_used(programs[i].account, &used);
		printf("program %u, limit %3u: attained %6.2f, billed %6.2f percent  %s\n", i,
			programs[i].core_pct, 100 * (double)program_device_ns(&programs[i]) / elapsed_ns,
			100 * (double)(used - before[i]) / elapsed_ns, programs[i].line);
	}
	/* The shares leave out the first second; the processor time includes it. */
	printf("world: %.1f virtual seconds in %.2f s of processor time, x%.1f; the GPU was busy for %.2f percent\n",
		(elapsed_ns + WARM_NS) / 1e9, took_s, (elapsed_ns + WARM_NS) / 1e9 / took_s,
		100 * (double)state.busy_ns / elapsed_ns);
}

/* Fails if a program could not run, for example because there was no memory for its context: the world would have
 * fewer programs than the user asked for. */
static void check_results(unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		for (unsigned k = 0; k < programs[i].load.processes; k++)
			if (!programs[i].process[k]->alive && programs[i].result[k].error)
				world_fail("program %u got error %d: %s", i, programs[i].result[k].error,
					programs[i].result[k].where);
}

int script_run(const char *const *lines, unsigned n, const struct case_options *o)
{
	uint64_t before[SCRIPT_PROGRAMS] = {0}, from;
	double began = world_cpu_s();
	int bad;

	setenv("GPUSIM_UUID", WORLD_GPU, 1);
	if (!getenv("GPUSIM_MODE"))
		setenv("GPUSIM_MODE", "share", 1);
	case_begin(o);
	for (unsigned i = 0; i < n; i++) {
		char account[32], line[256], *rest;
		unsigned limit = (unsigned)strtoul(lines[i], &rest, 10);

		snprintf(account, sizeof(account), "program%u", i);
		/* The program lasts until the end of the world unless its own line has a --duration. */
		snprintf(line, sizeof(line), "--duration=%g %.200s", o->seconds + 5, rest);
		program_prepare(&programs[i], account, limit > 100 ? 100 : limit, line);
		program_start(&programs[i], world.now_ns + i * WORLD_MS);
	}
	world_run(world.now_ns + WARM_NS, judge_step);
	sim_reset();
	for (unsigned i = 0; i < n; i++)
		judge_used(programs[i].account, &before[i]);
	from = world.now_ns;
	world_run(world.now_ns + (uint64_t)(o->seconds * 1e9), judge_step);
	tell(n, before, (double)(world.now_ns - from), world_cpu_s() - began);
	check_results(n);
	if (world.failed)
		world_tell();
	bad = world.failed;
	judge_end();
	world_end();
	return bad;
}
