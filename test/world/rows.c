#include "test/world/rows.h"

#include <fnmatch.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/device_rows.h"
#include "test/sim/device/model.h"
#include "test/world/faults.h"
#include "test/world/gpu.h"
#include "test/world/judge.h"
#include "test/world/program.h"
#include "test/world/world.h"

#define WARM_NS WORLD_S
/* A program that should end by itself is given up after this many times its duration. */
#define PATIENCE 20

/* What a client wanted and got, in the unit of its row, and its device time and bill. */
struct outcome {
	double target, got, device_s, billed_s;
};

struct row_run {
	const struct device_row *row;
	struct device_environment before; /* its names are those of the row's settings */
	unsigned n;
	struct program programs[CLIENTS];
	struct outcome of[CLIENTS];
	double elapsed_s;
};

static void start(struct row_run *r, unsigned i, bool with_preload, double seconds)
{
	const struct client *c = &r->row->clients[i];
	struct program *p = &r->programs[i];
	char line[200], account[32];

	snprintf(line, sizeof(line), "--kernel-us=%g --duration=%g %s", c->kernel_us, seconds,
		c->more ? c->more : "");
	snprintf(account, sizeof(account), "client%u", i);
	program_prepare(p, account, c->limit, line);
	for (unsigned k = 0; k < r->before.n; k++)
		program_set(p, r->before.name[k], getenv(r->before.name[k]));
	if (!with_preload)
		program_set(p, "WORLD_WITHOUT_PRELOAD", "1");
	program_start(p, world.now_ns + i * WORLD_MS);
}

static bool ended(const struct program *p)
{
	for (unsigned k = 0; k < p->load.processes; k++)
		if (p->process[k]->alive)
			return false;
	return true;
}

/* Returns the kernels of one rank, or of all processes of a program without ranks. */
static double kernels(const struct program *p)
{
	return (double)program_kernels(p) / (p->load.ranks ? p->load.ranks : 1);
}

static double used_s(const struct program *p)
{
	uint64_t ns = 0;

	judge_used(p->account, &ns);
	return (double)ns / 1e9;
}

/* Runs clients [first, first + n) and fills in what they got. */
static void run(
	struct row_run *r, unsigned first, unsigned n, bool with_preload, const struct case_options *o)
{
	bool ends = r->row->goal == GOAL_SECONDS;
	double before[CLIENTS] = {0};
	uint64_t from;

	case_begin(o);
	for (unsigned i = first; i < first + n; i++)
		start(r, i, with_preload, ends ? 3600 : o->seconds + 5);
	if (!with_preload)
		program_metronome(&r->programs[first]);
	from = world.now_ns;
	if (!ends) {
		world_run(world.now_ns + WARM_NS, judge_step);
		sim_reset();
		for (unsigned i = first; i < first + n; i++)
			before[i] = used_s(&r->programs[i]);
		from = world.now_ns;
		world_run(world.now_ns + (uint64_t)(o->seconds * 1e9), judge_step);
	} else {
		while (!world.failed && !ended(&r->programs[first]) &&
			world.now_ns < from + (uint64_t)(PATIENCE * o->seconds * 1e9))
			world_run(world.now_ns + WORLD_S / 10, judge_step);
	}
	r->elapsed_s = (double)(world.now_ns - from) / 1e9;
	for (unsigned i = first; i < first + n; i++) {
		const struct result *result = r->programs[i].result;
		struct outcome *of = &r->of[i];

		of->device_s = (double)program_device_ns(&r->programs[i]) / 1e9;
		of->billed_s = used_s(&r->programs[i]) - before[i];
		of->got = 100 * of->device_s / r->elapsed_s;
		if (r->row->goal == GOAL_RATE)
			of->got = kernels(&r->programs[i]) / r->elapsed_s;
		if (ends)
			of->got = result->end_s > 0 ? result->end_s - result->start_s : r->elapsed_s;
	}
	if (world.failed)
		world_tell();
	judge_end();
	world_end();
}

static bool judge_row(struct row_run *r, const struct case_options *o)
{
	const struct device_row *row = r->row;
	bool ends = row->goal == GOAL_SECONDS, bad = world.failed;
	json_t *clients = json_array();

	for (unsigned i = 0; i < r->n; i++) {
		const struct outcome *of = &r->of[i];
		double device = of->device_s, billed = of->billed_s;

		if (!ends) {
			device *= 100 / r->elapsed_s;
			billed *= 100 / r->elapsed_s;
		}
		bad |= device_row_missed(row, of->target, of->got, device, billed);
		json_array_append_new(
			clients, json_pack("{s:f,s:f,s:f,s:f}", "target", of->target, "attained", of->got,
					 "device", device, "billed", billed));
		if (o->json || o->brief)
			continue;
		if (ends)
			printf("#   %-28s client %u: target %6.2f s, attained %6.2f s; device time %.3f s, "
			       "billed %.3f s\n",
				row->name, i, of->target, of->got, of->device_s, of->billed_s);
		else if (row->goal == GOAL_RATE)
			printf("#   %-28s client %u: target %6.1f kernels a second, attained %6.1f; device time "
			       "%6.2f, billed %6.2f\n",
				row->name, i, of->target, of->got, device, billed);
		else
			printf("#   %-28s client %u: target %6.2f, attained %6.2f, billed %6.2f\n", row->name,
				i, of->target, of->got, billed);
	}
	if (o->json)
		json_array_append_new(o->json,
			json_pack("{s:s,s:b,s:o}", "case", row->name, "failed", bad, "clients", clients));
	else {
		json_decref(clients);
		printf("%-30s %s (%s)\n", row->name, bad ? "FAILED" : "ok", row->says);
	}
	fflush(stdout);
	return bad;
}

static bool run_row(const struct device_row *row, const struct case_options *o)
{
	static struct row_run r;
	double target[CLIENTS];
	bool bad;

	memset(&r, 0, sizeof(r));
	r.row = row;
	device_settings_apply(&r.before, row->settings);
	setenv("GPUSIM_UUID", WORLD_GPU, 1);
	for (r.n = 0; r.n < CLIENTS && row->clients[r.n].kernel_us > 0; r.n++) {
		target[r.n] = row->clients[r.n].target;
		if (target[r.n] == AS_ALONE) {
			run(&r, r.n, 1, false, o);
			target[r.n] = r.of[r.n].got;
		}
	}
	run(&r, 0, r.n, true, o);
	for (unsigned i = 0; i < r.n; i++)
		r.of[i].target = target[i];
	bad = judge_row(&r, o);
	device_settings_restore(&r.before);
	return bad;
}

int device_rows_run(const struct case_options *o, int *n)
{
	int bad = 0;

	*n = 0;
	for (size_t i = 0; i < sizeof(device_rows) / sizeof(device_rows[0]); i++)
		if (!fnmatch(o->pattern, device_rows[i].name, 0)) {
			(*n)++;
			bad += run_row(&device_rows[i], o);
		}
	return bad;
}
