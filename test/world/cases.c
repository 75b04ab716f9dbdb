#include "test/world/cases.h"

#include <errno.h>
#include <fnmatch.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "bench/devices.h"
#include "bench/limits_cases.h"
#include "bench/share_cases.h"
#include "test/sim/device/model.h"
#include "test/world/ends.h"
#include "test/world/faults.h"
#include "test/world/gpu.h"
#include "gpuarb/control.h"
#include "test/world/jobs.h"
#include "test/world/judge.h"
#include "test/world/latency.h"
#include "test/world/intruder.h"
#include "test/world/lending.h"
#include "test/world/program.h"
#include "test/world/rows.h"
#include "test/world/turns.h"

#define WARM_NS WORLD_S
/* Percent by which gpuarb's busy time may differ from the GPU's: gpuarb's includes switches, which it cannot see. */
#define LAW_PERCENT 1.0
/* Twice the work that the gate lets a client queue while it is contended. */
#define QUEUED_NS (10 * WORLD_MS)
/* How far a thread may run ahead of other processes: less than a wake-up takes. In random worlds programs never run
 * ahead. */
#define AHEAD_NS (20 * WORLD_US)

static bool wanted(const char *pattern, const char *name, const struct device *device)
{
	if (!strcmp(pattern, "all"))
		return !device->by_name;
	if (!strcmp(pattern, "shared"))
		return !device->by_name && !device->suffix[0];
	return !fnmatch(pattern, name, 0) && (!device->by_name || strstr(pattern, device->suffix));
}

struct run {
	const struct limits_case *what;
	char name[64], uuid[64];
	unsigned n;
	struct program programs[CLIENTS];
	struct gpuarb_picture before, after;
	double got[CLIENTS], busy_s, elapsed_s;
	double least[CLIENTS]; /* the least percent of any second that each client with a request got */
};

static double worst_error;
static char worst_case[64];

void world_quiet(void)
{
	world.weather = (struct world_weather){.late_ns = 30 * WORLD_US,
		.very_late_in = 0,
		.clock_ns = 25,
		.call_ns = 300,
		.ahead_ns = AHEAD_NS};
}

/* The weather of a virtual machine whose host takes processor time away: wake-ups are late, some by 5 ms, and any
 * thread may pause anywhere. */
void world_robbed(void)
{
	world.weather = (struct world_weather){.point_mean = 20000,
		.interrupt_ns = 3 * WORLD_US,
		.preempt_in = 100,
		.preempt_ns = WORLD_MS,
		.late_ns = 60 * WORLD_US,
		.very_late_in = 3000,
		.clock_ns = 35,
		.call_ns = 600,
		.ahead_ns = AHEAD_NS};
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

/* Returns the percent that a client requested and must get in every second; 0: nothing. */
static double promised(const struct client *client)
{
	const char *request = client->more ? strstr(client->more, "GPUARB_REQUEST=") : NULL;
	double percent = request ? atof(request + strlen("GPUARB_REQUEST=")) : 0;

	return client->target >= percent ? percent : 0;
}

/* Reads what each client attained, by the GPU's own books. */
static void attained(struct run *r, uint64_t from_ns)
{
	struct sim_device_state state;

	sim_snapshot(0, &state, true, NULL, 0);
	r->elapsed_s = (double)(world.now_ns - from_ns) / 1e9;
	r->busy_s = (double)state.busy_ns / 1e9;
	for (unsigned i = 0; i < r->n; i++)
		r->got[i] = 100 * (double)program_device_ns(&r->programs[i]) / 1e9 / r->elapsed_s;
}

/* Lets these seconds pass, and notes the least share that each client got in any second. */
static void pass_seconds(struct run *r, double seconds)
{
	double had[CLIENTS] = {0};
	uint64_t from = world.now_ns;

	for (unsigned i = 0; i < r->n; i++)
		r->least[i] = 100;
	for (unsigned s = 1; s <= seconds && !world.failed; s++) {
		world_run(from + s * WORLD_S, judge_step);
		attained(r, from);
		for (unsigned i = 0; i < r->n; i++) {
			double got = r->got[i] * s;

			r->least[i] = fmin(r->least[i], got - had[i]);
			had[i] = got;
		}
	}
}

static bool promises(const struct limits_case *c)
{
	for (unsigned i = 0; i < CLIENTS; i++)
		if (c->clients[i].kernel_us > 0 && promised(&c->clients[i]))
			return true;
	return false;
}

static void pass_time(struct run *r, double seconds)
{
	const struct limits_case *c = r->what;

	if (promises(c)) {
		pass_seconds(r, seconds);
		return;
	}
	if (!c->other) {
		world_run(world.now_ns + (uint64_t)(seconds * 1e9), judge_step);
		return;
	}
	for (unsigned s = 0; s < 2 * (unsigned)(seconds / 2 + 0.5) && !world.failed; s++) {
		set_limit(r, s % 2 ? c->clients[0].limit : c->other);
		world_run(world.now_ns + WORLD_S, judge_step);
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

static bool judge(struct run *r, const struct device *device, const struct case_options *o, double took_s)
{
	const struct limits_case *c = r->what;
	double busy = (double)(r->after.busy_now_ns - r->before.busy_now_ns) / 1e9;
	double law = r->busy_s > 0 ? 100 * (busy / r->busy_s - 1) : 0, worst = 0, apart = 0;
	double utilisation = 100 * r->busy_s / r->elapsed_s;
	double lost = device_lost_pct(device->settings);
	double speed = (r->elapsed_s + (double)WARM_NS / 1e9) / took_s; /* took_s includes the first second */
	json_t *clients = json_array();
	bool bad, broken = false;

	for (unsigned i = 0; i < r->n; i++) {
		double target = c->clients[i].target;
		double error = device_error(device->settings, r->got[i], target);
		double bill = fabs(r->got[i] - billed(r, i));

		if (target != WHATEVER && !(error <= worst))
			worst = error;
		if (!(bill <= apart))
			apart = bill;
		json_array_append_new(clients, json_pack("{s:f,s:f,s:f}", "target", target, "attained",
						       r->got[i], "billed", billed(r, i)));
		if (!o->json && !o->brief)
			printf("#   %-22s client %u: target %6.2f, attained %6.2f, billed %6.2f\n", r->name,
				i, target, r->got[i], billed(r, i));
	}
	if (worst > worst_error) {
		worst_error = worst;
		snprintf(worst_case, sizeof(worst_case), "%s", r->name);
	}
	for (unsigned i = 0; i < r->n; i++)
		if (promised(&c->clients[i]) &&
			r->least[i] < promised(&c->clients[i]) - device->allowance * c->allowed) {
			printf("#   %s: client %u was promised %g percent, and got %.2f of one second\n",
				r->name, i, promised(&c->clients[i]), r->least[i]);
			broken = true;
		}
	bad = world.failed || broken || worst > device->allowance * c->allowed ||
	      -law > device->allowance * LAW_PERCENT || law > device->allowance * LAW_PERCENT + lost ||
	      (c->utilisation > 0 && 100 - lost - utilisation > device->allowance * (100 - c->utilisation)) ||
	      (c->bill > 0 && apart > device->allowance * c->bill);
	if (o->json)
		json_array_append_new(
			o->json, json_pack("{s:s,s:f,s:f,s:f,s:f,s:f,s:f,s:b,s:o}", "case", r->name, "error",
					 worst, "allowed", device->allowance * c->allowed, "law", law, "bill",
					 apart, "utilisation", utilisation, "speed", speed, "failed", bad,
					 "clients", clients));
	else if (!o->brief || bad)
		printf("%-24s error %6.3f (%.1f)  bills %6.3f  busy %+6.3f %%  used %6.2f %%  x%-6.0f %s\n",
			r->name, worst, device->allowance * c->allowed, apart, law, utilisation, speed,
			bad ? "FAILED" : "ok");
	if (!o->json)
		json_decref(clients);
	fflush(stdout);
	return bad;
}

/* Returns how much work may be under way when a quota is used up: several kernels, or a queue of short ones. */
static uint64_t over_ns(const struct limits_case *c)
{
	double longest_us = 0;

	for (unsigned i = 0; i < CLIENTS; i++)
		longest_us = c->clients[i].kernel_us > longest_us ? c->clients[i].kernel_us : longest_us;
	return c->other ? 0 : QUEUED_NS + (uint64_t)(3e3 * longest_us);
}

void case_begin(const struct case_options *o)
{
	world_begin(o->seed);
	faults = (struct faults){0};
	if (o->robbed)
		world_robbed();
	else
		world_quiet();
	world_gpu_begin();
	world_terms = (struct world_terms){.every = 1000, .quotas_fixed = true};
	judge_begin();
}

static bool run_case(const struct limits_case *c, const struct device *device, const struct case_options *o)
{
	static struct run r;
	struct device_environment before;
	struct sim_device_info info;
	uint64_t from;
	double began = world_cpu_s();
	bool bad;

	memset(&r, 0, sizeof(r));
	r.what = c;
	snprintf(r.name, sizeof(r.name), "%s%s", c->name, device->suffix);
	device_settings_apply(&before, device->settings);
	setenv("GPUSIM_UUID", WORLD_GPU, 1);
	case_begin(o);
	world_terms.over_ns = over_ns(c);
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
	bad = judge(&r, device, o, world_cpu_s() - began);
	judge_end();
	world_end();
	device_settings_restore(&before);
	return bad;
}

int cases_run(const struct case_options *o)
{
	const size_t ncases = sizeof(cases) / sizeof(cases[0]),
		     nshares = sizeof(share_cases) / sizeof(share_cases[0]);
	int rows = 0, bad = device_rows_run(o, &rows), n = 0;

	bad += ends_run(o, &rows);
	bad += turns_run(o, &rows);
	bad += latency_run(o, &rows);
	bad += lending_run(o, &rows);
	bad += jobs_run(o, &rows);
	bad += intruder_run(o, &rows);

	for (size_t m = 0; m < sizeof(devices) / sizeof(devices[0]); m++)
		for (size_t i = 0; i < ncases + nshares; i++) {
			const struct limits_case *c = i < ncases ? &cases[i] : &share_cases[i - ncases];
			char name[80];

			snprintf(name, sizeof(name), "%s%s", c->name, devices[m].suffix);
			/* Cases with requests and weights are run by their own names, not with the limit cases. */
			if (!wanted(o->pattern, name, &devices[m]) ||
				(i >= ncases && strncmp(o->pattern, "request", 7)))
				continue;
			n++;
			bad += run_case(c, &devices[m], o);
		}
	if (!o->json && n)
		printf("world: %d cases, %g virtual seconds each, %s machine: the largest error is %.3f points (%s), "
		       "%d failed\n",
			n, o->seconds, o->robbed ? "robbed" : "quiet", worst_error, worst_case, bad);
	return n || rows ? bad : -1;
}
