#include "cases.h"

#include <errno.h>
#include <fnmatch.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "../../bench/limits_cases.h"
#include "../sim/model.h"
#include "faults.h"
#include "gpu.h"
#include "gpuarb/control.h"
#include "judge.h"
#include "program.h"

#define WARM_NS WORLD_S
/* gpuarb's busy time may be so far from the GPU's own, in percent. */
#define LAW_PERCENT 1.0

int __real_clock_gettime(clockid_t clock, struct timespec *ts);

struct mode {
	const char *suffix, *mode, *slice_us;
	double allowance;
	const char *events, *switch_us; /* only of the unkind modes, which must be asked for by name */
};

static const struct mode modes[] = {
	{"", "share", "2000", 1, NULL, NULL},
	{"-slices", "timeslice", "2000", 3, NULL, NULL},
	{"-slices1930", "timeslice", "1930", 3, NULL, NULL},
	{"-slices10", "timeslice", "10000", 3, "engine", "0"},
	{"-slices30", "timeslice", "30000", 3, "engine", "0"},
	{"-slices2-unkind", "timeslice", "2000", 3, "slice", "100"},
	{"-slices10-unkind", "timeslice", "10000", 3, "slice", "100"},
	{"-slices30-unkind", "timeslice", "30000", 3, "slice", "100"},
	{"-fifo", "fifo", "2000", 3, "engine", "0"},
};

static bool wanted(const char *pattern, const char *name, const struct mode *mode)
{
	if (!strcmp(pattern, "all"))
		return !mode->events;
	return !fnmatch(pattern, name, 0) && (!mode->events || strstr(pattern, mode->suffix));
}

struct run {
	const struct limits_case *what;
	char name[64], uuid[64];
	unsigned n;
	struct program programs[CLIENTS];
	struct gpuarb_picture before, after;
	double got[CLIENTS], busy_s, elapsed_s;
};

static double worst_error;
static char worst_case[64];

static double real_s(void)
{
	struct timespec ts;

	__real_clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

void world_quiet(void)
{
	world.weather = (struct world_weather){
		.late_ns = 30 * WORLD_US, .very_late_in = 0, .clock_ns = 25, .call_ns = 300};
}

/* A virtual machine whose host takes its time away: late wake-ups, some by 5 ms, and pauses anywhere. */
void world_robbed(void)
{
	world.weather = (struct world_weather){.point_mean = 20000,
		.interrupt_ns = 3 * WORLD_US,
		.preempt_in = 100,
		.preempt_ns = WORLD_MS,
		.late_ns = 60 * WORLD_US,
		.very_late_in = 3000,
		.clock_ns = 35,
		.call_ns = 600};
}

static void look(struct run *r, struct gpuarb_picture *picture)
{
	struct gpuarb_error err = {0};
	struct gpuarb_view *view;

	if (gpuarb_view_open(WORLD_DIR, r->uuid, &view, &err) < 0) {
		world_fail("the segment cannot be looked at: %s", err.text);
		return;
	}
	gpuarb_view_read(view, picture);
	gpuarb_view_close(view);
}

static double account_ns(const struct gpuarb_picture *p, unsigned index)
{
	char name[32];

	snprintf(name, sizeof(name), "client%u", index);
	for (unsigned i = 0; i < p->naccounts; i++)
		if (!strcmp(p->accounts[i].name, name))
			return (double)p->accounts[i].used_now_ns;
	return 0;
}

static double billed(const struct run *r, unsigned index)
{
	return 100 * (account_ns(&r->after, index) - account_ns(&r->before, index)) /
	       (double)(r->after.now_ns - r->before.now_ns);
}

static void set_limit(struct run *r, unsigned percent)
{
	char text[16];
	struct gpuarb_change change = {"client0", "core", text};
	struct gpuarb_error err = {0};

	snprintf(text, sizeof(text), "%u", percent);
	if (gpuarb_control_change(WORLD_DIR, r->uuid, &change, 1, &err) < 0)
		world_fail("the limit cannot be changed: %s", err.text);
}

static void pass_time(struct run *r, double seconds)
{
	const struct limits_case *c = r->what;

	if (!c->other) {
		world_run(world.now_ns + (uint64_t)(seconds * 1e9), judge_step);
		return;
	}
	for (unsigned s = 0; s < 2 * (unsigned)(seconds / 2 + 0.5) && !world.failed; s++) {
		set_limit(r, s % 2 ? c->clients[0].limit : c->other);
		world_run(world.now_ns + WORLD_S, judge_step);
	}
}

/* By the GPU's own books. */
static void attained(struct run *r, uint64_t from_ns)
{
	static struct sim_process_state list[SIM_MAX_PROCS];
	struct sim_device_state state;
	int n = sim_snapshot(0, &state, true, list, SIM_MAX_PROCS);

	r->elapsed_s = (double)(world.now_ns - from_ns) / 1e9;
	r->busy_s = (double)state.busy_ns / 1e9;
	for (unsigned i = 0; i < r->n; i++) {
		const struct program *p = &r->programs[i];

		r->got[i] = 0;
		for (unsigned k = 0; k < p->load.processes; k++)
			for (int j = 0; j < n; j++)
				if (list[j].pid == (int)(1000 + p->process[k]->number))
					r->got[i] +=
						100 * (double)list[j].device_ns / 1e9 / r->elapsed_s;
	}
}

static void start(struct run *r, const struct case_options *o)
{
	const struct limits_case *c = r->what;

	for (r->n = 0; r->n < CLIENTS && c->clients[r->n].kernel_us > 0; r->n++) {
		const struct client *client = &c->clients[r->n];
		struct program *p = &r->programs[r->n];
		char line[200], account[32];

		snprintf(line, sizeof(line), "--kernel-us=%g --duration=%g %s", client->kernel_us,
			o->seconds + 5, client->more ? client->more : "");
		snprintf(account, sizeof(account), "client%u", r->n);
		program_prepare(p, account, client->limit, line);
		if (c->policy)
			program_set(p, "GPUARB_POLICY", c->policy);
		program_start(p, world.now_ns + r->n * WORLD_MS);
	}
}

static bool judge(struct run *r, const struct mode *mode, const struct case_options *o, double took_s)
{
	const struct limits_case *c = r->what;
	double busy = (double)(r->after.busy_now_ns - r->before.busy_now_ns) / 1e9;
	double law = r->busy_s > 0 ? 100 * (busy / r->busy_s - 1) : 0, worst = 0, apart = 0;
	double utilisation = 100 * r->busy_s / r->elapsed_s;
	json_t *clients = json_array();
	bool bad;

	for (unsigned i = 0; i < r->n; i++) {
		double target = c->clients[i].target, error = fabs(r->got[i] - target);
		double bill = fabs(r->got[i] - billed(r, i));

		if (target != WHATEVER && !(error <= worst))
			worst = error;
		if (!(bill <= apart))
			apart = bill;
		json_array_append_new(clients,
			json_pack("{s:f,s:f,s:f}", "target", target, "attained", r->got[i], "billed",
				billed(r, i)));
		if (!o->json && !o->brief)
			printf("#   %-22s client %u: target %6.2f, attained %6.2f, billed %6.2f\n", r->name,
				i, target, r->got[i], billed(r, i));
	}
	if (worst > worst_error) {
		worst_error = worst;
		snprintf(worst_case, sizeof(worst_case), "%s", r->name);
	}
	bad = world.failed || worst > mode->allowance * c->allowed ||
	      fabs(law) > mode->allowance * LAW_PERCENT ||
	      (c->utilisation > 0 && 100 - utilisation > mode->allowance * (100 - c->utilisation)) ||
	      (c->bill > 0 && apart > mode->allowance * c->bill);
	if (o->json)
		json_array_append_new(o->json,
			json_pack("{s:s,s:f,s:f,s:f,s:f,s:f,s:f,s:b,s:o}", "case", r->name, "error", worst,
				"allowed", mode->allowance * c->allowed, "law", law, "bill", apart,
				"utilisation", utilisation, "speed", r->elapsed_s / took_s, "failed", bad,
				"clients", clients));
	else if (!o->brief || bad)
		printf("%-24s error %6.3f (%.1f)  bills %6.3f  busy %+6.3f %%  used %6.2f %%  x%-6.0f %s\n",
			r->name, worst, mode->allowance * c->allowed, apart, law, utilisation,
			r->elapsed_s / took_s, bad ? "FAILED" : "ok");
	if (!o->json)
		json_decref(clients);
	fflush(stdout);
	return bad;
}

static bool run_case(const struct limits_case *c, const struct mode *mode, const struct case_options *o)
{
	static struct run r;
	struct sim_device_info info;
	uint64_t from;
	double began = real_s();
	bool bad;

	memset(&r, 0, sizeof(r));
	r.what = c;
	snprintf(r.name, sizeof(r.name), "%s%s", c->name, mode->suffix);
	setenv("GPUSIM_MODE", mode->mode, 1);
	setenv("GPUSIM_SLICE_US", mode->slice_us, 1);
	if (mode->events) {
		setenv("GPUSIM_EVENTS", mode->events, 1);
		setenv("GPUSIM_SWITCH_US", mode->switch_us, 1);
	}
	setenv("GPUSIM_UUID", WORLD_GPU, 1);
	world_begin(o->seed);
	faults = (struct faults){0};
	if (o->robbed)
		world_robbed();
	else
		world_quiet();
	world_gpu_begin();
	world_terms = (struct world_terms){.every = 1000, .quotas_fixed = true};
	judge_begin();
	sim_device_info(0, &info);
	snprintf(r.uuid, sizeof(r.uuid), "%s", info.uuid);
	start(&r, o);
	world_run(world.now_ns + WARM_NS, judge_step);
	sim_reset();
	from = world.now_ns;
	if (!world.failed)
		look(&r, &r.before);
	pass_time(&r, o->seconds);
	if (!world.failed)
		look(&r, &r.after);
	attained(&r, from);
	if (world.failed)
		world_tell();
	bad = judge(&r, mode, o, real_s() - began);
	judge_end();
	world_end();
	return bad;
}

int cases_run(const struct case_options *o)
{
	int bad = 0, n = 0;

	for (size_t m = 0; m < sizeof(modes) / sizeof(modes[0]); m++)
		for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
			char name[80];

			snprintf(name, sizeof(name), "%s%s", cases[i].name, modes[m].suffix);
			if (!wanted(o->pattern, name, &modes[m]))
				continue;
			n++;
			bad += run_case(&cases[i], &modes[m], o);
		}
	if (!o->json && n)
		printf("world: %d cases, %g virtual seconds each, %s machine: the largest error is %.3f points (%s), "
		       "%d failed\n",
			n, o->seconds, o->robbed ? "robbed" : "quiet", worst_error, worst_case, bad);
	return n ? bad : -1;
}
