/*
 * Limits on devices that behave like hardware: the rows of device_rows.h, and limit cases on every kind of device, in
 * the world (virtual time) and in real time. Each line has the target beside what was attained and billed. What fails
 * is shown as failing.
 */
#include <fnmatch.h>
#include <jansson.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/clients.h"
#include "bench/device_rows.h"
#include "bench/report.h"

#define WARM_S 1.0
/* A program that ends by itself is given up after this many seconds. */
#define PATIENCE_S 60.0

static const char *const limit_cases[] = {
	"alone-50-20us", "sync-25", "30+60", "50+60", "25+unlimited", "10+20+30+40"};

/* What a client wanted and got, in the unit of its row; device time and bill in percent, or in seconds if the client
 * ends by itself. */
struct outcome {
	double target, got, device, billed;
};

struct result {
	bool there, failed;
	unsigned n;
	struct outcome of[CLIENTS];
};

static struct {
	double seconds;
	bool world, real;
	unsigned rows, failed_world, failed_real;
	json_t *list; /* --json */
} opt = {.seconds = 5, .world = true, .real = true};

static unsigned clients_of(const struct device_row *row)
{
	unsigned n = 0;

	while (n < CLIENTS && row->clients[n].kernel_us > 0)
		n++;
	return n;
}

static void in_world(const struct device_row *row, struct result *r)
{
	char command[4400];
	json_error_t error;
	json_t *root, *client;
	const json_t *found;
	FILE *pipe;
	size_t i;

	snprintf(command, sizeof(command), "%s/world --json --seconds %g --case '%s'", clients_build(),
		opt.seconds, row->name);
	pipe = popen(command, "re");
	root = pipe ? json_loadf(pipe, 0, &error) : NULL;
	if (pipe)
		pclose(pipe);
	found = json_array_get(root, 0);
	if (!found) {
		fprintf(stderr, "bench_device: %s printed nothing\n", command);
		return;
	}
	r->there = true;
	r->failed = json_is_true(json_object_get(found, "failed"));
	json_array_foreach(json_object_get(found, "clients"), i, client)
	{
		if (r->n == CLIENTS)
			break;
		r->of[r->n++] =
			(struct outcome){clients_number(client, "target"), clients_number(client, "attained"),
				json_object_get(client, "device") ? clients_number(client, "device")
								  : clients_number(client, "attained"),
				clients_number(client, "billed")};
	}
	json_decref(root);
}

/* Waits until the first client has ended; returns NULL if it does not end. */
static json_t *until_ended(struct clients *c)
{
	for (double s = 0; s < PATIENCE_S; s += 0.01) {
		if (waitpid(c->pid[0], NULL, WNOHANG) == c->pid[0])
			return clients_output(0);
		usleep(10000);
	}
	return NULL;
}

static void figures(struct clients *c, const struct device_row *row, bool arbitrated, json_t *report,
	double took_s, struct outcome *of)
{
	const json_t *device = json_array_get(json_object_get(report, "devices"), 0);
	unsigned ndevices = (unsigned)json_array_size(json_object_get(report, "devices"));
	double elapsed_s = clients_number(device, "elapsed_ns") / 1e9;

	for (unsigned i = 0; i < c->n; i++) {
		double device_s = clients_sum(c, i, report, "device_ns", 1) / 1e9;
		const char *ranks = row->clients[i].more ? strstr(row->clients[i].more, "--ranks=") : NULL;

		if (row->goal == GOAL_SECONDS) {
			of[i].got = took_s;
			of[i].device = device_s;
			of[i].billed = arbitrated ? clients_account_ns(&c->after, i) / 1e9 : 0;
			continue;
		}
		of[i].device = 100 * device_s / elapsed_s;
		of[i].billed = arbitrated ? clients_billed(c, i) : 0;
		of[i].got = of[i].device;
		if (row->goal == GOAL_RATE)
			of[i].got = clients_sum(c, i, report, "launches", ndevices) / elapsed_s /
				    (ranks ? atof(ranks + 8) : 1);
	}
}

/* Runs clients [first, first + n) of a row in real time. */
static void run(const struct device_row *row, unsigned first, unsigned n, bool arbitrated, struct outcome *of)
{
	static struct clients c;
	bool ends = row->goal == GOAL_SECONDS;
	double took_s = PATIENCE_S;
	json_t *report, *out = NULL;
	char name[96];

	snprintf(name, sizeof(name), "%s.%u%s", row->name, first, arbitrated ? "" : ".bare");
	clients_prepare(&c, name);
	for (unsigned i = first; i < first + n; i++)
		clients_start(&c, &row->clients[i], ends ? 3600 : opt.seconds + WARM_S + 30, arbitrated);
	if (ends) {
		clients_find(&c);
		out = until_ended(&c);
		if (out)
			took_s = clients_number(out, "seconds");
		json_decref(out);
		report = clients_report("");
		clients_device(&c, report);
	} else {
		usleep((useconds_t)(WARM_S * 1e6));
		clients_find(&c);
		report = clients_report("--reset");
		clients_device(&c, report);
		json_decref(report);
		if (arbitrated)
			clients_look(&c, &c.before);
		usleep((useconds_t)(opt.seconds * 1e6));
		report = clients_report("");
	}
	if (arbitrated)
		clients_look(&c, &c.after);
	clients_stop(&c, true);
	figures(&c, row, arbitrated, report, took_s, of);
	json_decref(report);
}

static void in_real_time(const struct device_row *row, struct result *r)
{
	struct device_environment before;
	double target[CLIENTS];

	device_settings_apply(&before, row->settings);
	r->n = clients_of(row);
	for (unsigned i = 0; i < r->n; i++) {
		target[i] = row->clients[i].target;
		if (target[i] == AS_ALONE) {
			run(row, i, 1, false, &r->of[i]);
			target[i] = r->of[i].got;
		}
	}
	run(row, 0, r->n, true, r->of);
	device_settings_restore(&before);
	r->there = true;
	for (unsigned i = 0; i < r->n; i++) {
		r->of[i].target = target[i];
		r->failed |=
			device_row_missed(row, target[i], r->of[i].got, r->of[i].device, r->of[i].billed);
	}
}

static json_t *as_json(const struct result *r)
{
	json_t *clients = json_array();

	if (!r->there)
		return json_decref(clients), json_null();
	for (unsigned i = 0; i < r->n; i++)
		json_array_append_new(
			clients, json_pack("{s:f,s:f,s:f,s:f}", "target", r->of[i].target, "attained",
					 r->of[i].got, "device", r->of[i].device, "billed", r->of[i].billed));
	return json_pack("{s:b,s:o}", "failed", r->failed, "clients", clients);
}

static void print_one(const char *where, const struct device_row *row, const struct result *r)
{
	static const char *const units[] = {"percent", "kernels a second", "s"};

	if (!r->there)
		return;
	for (unsigned i = 0; i < r->n; i++) {
		const struct outcome *of = &r->of[i];

		printf("  %-9s client %u, limit %3u: ", where, i, row->clients[i].limit);
		if (of->target == WHATEVER)
			printf("target      -, ");
		else
			printf("target %6.2f, ", of->target);
		printf("attained %6.2f %s, device time %6.2f, billed %6.2f%s\n", of->got, units[row->goal],
			of->device, of->billed,
			i + 1 < r->n ? ""
			: r->failed  ? "  FAILED"
				     : "  ok");
	}
}

/* make check and make bench build the world; make alone does not. */
static void need_world(void)
{
	char path[4200];

	snprintf(path, sizeof(path), "%s/world", clients_build());
	if (!opt.world || access(path, X_OK) == 0)
		return;
	clients_end();
	fprintf(stderr, "bench_device: %s is not there: 'make build/world' builds it; or --in time\n", path);
	exit(2);
}

static void run_row(const struct bench *b, const struct device_row *row)
{
	struct result world = {0}, real = {0};

	if (!bench_wants(b, row->name))
		return;
	opt.rows++;
	if (!b->json) {
		printf("%s: %s\n", row->name, row->says);
		fflush(stdout);
	}
	if (opt.world)
		in_world(row, &world);
	if (opt.real)
		in_real_time(row, &real);
	opt.failed_world += opt.world && (world.failed || !world.there);
	opt.failed_real += opt.real && (real.failed || !real.there);
	if (b->json) {
		json_array_append_new(
			opt.list, json_pack("{s:s,s:s,s:s,s:f,s:o,s:o}", "case", row->name, "device",
					  row->settings, "says", row->says, "allowed", row->allowed, "world",
					  as_json(&world), "real_time", as_json(&real)));
		return;
	}
	print_one("world", row, &world);
	print_one("real time", row, &real);
	fflush(stdout);
}

/* Runs a limit case on a kind of device, as a row of its own. */
static void run_case(const struct bench *b, const struct limits_case *c, const struct device *device)
{
	char name[96];
	struct device_row row = {.name = name,
		.says = device->settings,
		.settings = device->settings,
		.goal = GOAL_SHARE,
		.allowed = device->allowance * c->allowed};

	snprintf(name, sizeof(name), "%s%s", c->name, device->suffix);
	memcpy(row.clients, c->clients, sizeof(row.clients));
	run_row(b, &row);
}

static void run_all(const struct bench *b)
{
	for (size_t i = 0; i < sizeof(device_rows) / sizeof(device_rows[0]); i++)
		run_row(b, &device_rows[i]);
	for (size_t d = 0; d < sizeof(devices) / sizeof(devices[0]); d++)
		for (size_t k = 0; k < sizeof(limit_cases) / sizeof(limit_cases[0]); k++)
			for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
				if (!strcmp(cases[i].name, limit_cases[k]))
					run_case(b, &cases[i], &devices[d]);
}

static void own_options(int *argc, char **argv)
{
	const char *length = bench_option(argc, argv, "--seconds"), *in = bench_option(argc, argv, "--in");

	if (length)
		opt.seconds = atof(length);
	if (!(opt.seconds >= 0.1 && opt.seconds <= 3600)) {
		fprintf(stderr, "bench_device: --seconds is within 0.1..3600\n");
		exit(2);
	}
	if (!in)
		return;
	opt.world = !strcmp(in, "world");
	opt.real = !strcmp(in, "time");
	if (opt.world == opt.real) {
		fprintf(stderr, "bench_device: --in takes world or time, not '%s'\n", in);
		exit(2);
	}
}

int main(int argc, char **argv)
{
	struct bench b;

	own_options(&argc, argv);
	bench_begin(&b, "device",
		"[--seconds N]: so long each (5); [--in world|time]: only in virtual, or only in real time.\n"
		"Cases: device-* are what hurts on hardware (bench/device_rows.h); 30+60-fifo and the like "
		"are limit\n"
		"cases on every kind of device (bench/devices.h). Targets, what was attained and what was "
		"billed, in\n"
		"percent of the GPU's time unless said otherwise. The status is 1 if any row failed.",
		argc, argv);
	clients_begin("device");
	need_world();
	if (b.json)
		opt.list = json_array();
	run_all(&b);
	clients_end();
	if (b.json) {
		json_dumpf(opt.list, stdout, JSON_INDENT(1) | JSON_REAL_PRECISION(6));
		printf("\n");
		json_decref(opt.list);
	} else {
		printf("bench_device: %u rows", opt.rows);
		if (opt.world)
			printf(", %u failed in the world", opt.failed_world);
		if (opt.real)
			printf(", %u failed in real time", opt.failed_real);
		printf("\n");
	}
	return !opt.rows || opt.failed_world || opt.failed_real;
}
