/* What clients get of the GPU under their limits, by the simulated GPU's own books: programs that know nothing of
 * gpuarb, with the preload, each in an account of its own. It also checks that the bills add up. */
#include <jansson.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "gpuarb/control.h"

#include "bench/clients.h"
#include "bench/devices.h"
#include "bench/limits_cases.h"
#include "bench/report.h"
#include "bench/share_cases.h"

#define WARM_S 1.0
/* How far gpuarb's busy time may be from the GPU's own, in percent. */
#define LAW_PERCENT 1.0

/* A case that is running. */
struct run {
	const struct limits_case *what;
	char name[64];
	struct clients clients;
	struct device_environment environment;
	double elapsed_s, busy_s, got[CLIENTS];
	double tracker_s; /* CPU time of the first client's tracker */
};

static double seconds = 20;

static void say(void *argument, const char *sentence)
{
	(void)argument;
	fprintf(stderr, "bench_limits: %s\n", sentence);
}

static void set_limit(struct run *r, unsigned percent)
{
	char text[16];
	struct gpuarb_change change = {"client0", "core", text};
	struct gpuarb_error err = {0};

	snprintf(text, sizeof(text), "%u", percent);
	if (gpuarb_control_change(r->clients.arb, r->clients.uuid, &change, 1, &err) < 0) {
		fprintf(stderr, "bench_limits: %s\n", err.text);
		exit(1);
	}
}

/* Waits for as long as the case is measured; if its limit changes, that is an even number of seconds. */
static void pass_time(struct run *r)
{
	const struct limits_case *c = r->what;

	if (!c->other) {
		usleep((useconds_t)(seconds * 1e6));
		return;
	}
	for (unsigned s = 0; s < 2 * (unsigned)(seconds / 2 + 0.5); s++) {
		set_limit(r, s % 2 ? c->clients[0].limit : c->other);
		usleep(1000000);
	}
}

static void finish(struct run *r, const json_t *report)
{
	const json_t *device = json_array_get(json_object_get(report, "devices"), 0);

	r->elapsed_s = clients_number(device, "elapsed_ns") / 1e9;
	r->busy_s = clients_number(device, "busy_ns") / 1e9;
	for (unsigned i = 0; i < r->clients.n; i++) {
		r->got[i] = 100 * clients_sum(&r->clients, i, report, "device_ns", 1) / 1e9 / r->elapsed_s;
		/* A client that sleeps for an hour does not end by itself. */
		if (r->what->clients[i].target == 0)
			kill(r->clients.pid[i], SIGKILL);
	}
	clients_stop(&r->clients, false);
}

static void prepare(struct run *r, const struct device *device)
{
	clients_prepare(&r->clients, r->name);
	device_settings_apply(&r->environment, device->settings);
	if (r->what->policy)
		setenv("GPUARB_POLICY", r->what->policy, 1);
	else
		unsetenv("GPUARB_POLICY");
}

static void find_device(struct run *r, json_t *report)
{
	clients_device(&r->clients, report);
	json_decref(report);
}

static void measure(struct run *r, bool arbitrated)
{
	const struct limits_case *c = r->what;
	struct clients *clients = &r->clients;
	json_t *root;

	for (unsigned i = 0; i < CLIENTS && c->clients[i].kernel_us > 0; i++)
		clients_start(clients, &c->clients[i], seconds + WARM_S + 1, arbitrated);
	usleep((useconds_t)(WARM_S * 1e6));
	clients_find(clients);
	find_device(r, clients_report("--reset"));
	if (arbitrated)
		clients_look(clients, &clients->before);
	r->tracker_s = -bench_tracker_s(clients->pid[0]);
	pass_time(r);
	r->tracker_s += bench_tracker_s(clients->pid[0]);
	root = clients_report("");
	if (arbitrated)
		clients_look(clients, &clients->after);
	finish(r, root);
	json_decref(root);
	device_settings_restore(&r->environment);
}

static void part(char *text, size_t size, const struct run *r, const char *what)
{
	snprintf(text, size, "%s/%s", r->name, what);
}

static void judge(struct bench *b, const struct run *r, const struct device *device)
{
	const struct limits_case *c = r->what;
	double utilisation = 100 * r->busy_s / r->elapsed_s, worst = 0, apart = 0;
	double law = 100 * ((double)(r->clients.after.busy_now_ns - r->clients.before.busy_now_ns) / 1e9 /
					   r->busy_s -
				   1);
	char text[80];

	for (unsigned i = 0; i < r->clients.n; i++) {
		double target = c->clients[i].target, error = fabs(r->got[i] - target);
		double bill = fabs(r->got[i] - clients_billed(&r->clients, i));

		if (target != WHATEVER && !(error <= worst))
			worst = isnan(error) ? 100 : error;
		if (!(bill <= apart))
			apart = isnan(bill) ? 100 : bill;
		if (!b->json)
			printf("#   %-22s client %u: target %6.2f, attained %6.2f, billed %6.2f\n", r->name,
				i, target, r->got[i], clients_billed(&r->clients, i));
	}
	if (!b->json)
		printf("#   %-22s utilisation %6.2f, gpuarb's busy time %+.2f %%\n", r->name, utilisation,
			law);
	bench_ratio(b, r->name, worst, "points", 1, device->allowance * c->allowed);
	part(text, sizeof(text), r, "law");
	bench_ratio(b, text, fabs(law), "%", LAW_PERCENT, device->allowance);
	part(text, sizeof(text), r, "tracker");
	bench_ratio(b, text, 100 * r->tracker_s / r->elapsed_s, "% CPU", 1, 1);
	if (c->utilisation > 0) {
		part(text, sizeof(text), r, "idle");
		bench_ratio(b, text, 100 - utilisation, "%", 100 - c->utilisation, device->allowance);
	}
	if (c->bill > 0) {
		part(text, sizeof(text), r, "bill");
		bench_ratio(b, text, apart, "points", c->bill, device->allowance);
	}
	if (gpuarb_control_check(r->clients.arb, r->clients.uuid, say, NULL, NULL) != 0 ||
		r->clients.after.billed_ns != r->clients.after.busy_ns) {
		fprintf(stderr, "bench_limits: %s: the bills do not add up\n", r->name);
		b->failed++;
	}
}

static void run_case(struct bench *b, const struct limits_case *c, const struct device *device)
{
	static struct run r;

	memset(&r, 0, sizeof(r));
	r.what = c;
	snprintf(r.name, sizeof(r.name), "%s%s", c->name, device->suffix);
	if (!bench_wants(b, r.name))
		return;
	prepare(&r, device);
	measure(&r, true);
	judge(b, &r, device);
}

/* Runs a client without a limit alone, and measures what it loses by being arbitrated. */
static void run_unlimited(struct bench *b, const struct device *device)
{
	static const struct limits_case alone = {"unlimited", 0, 0, {{0, 20, NULL, 100}}, NULL, 0, 0};
	static struct run r;
	double busy[2];

	for (int arbitrated = 0; arbitrated < 2; arbitrated++) {
		memset(&r, 0, sizeof(r));
		r.what = &alone;
		snprintf(r.name, sizeof(r.name), "unlimited%s", device->suffix);
		if (!bench_wants(b, r.name))
			return;
		prepare(&r, device);
		measure(&r, arbitrated);
		busy[arbitrated] = 100 * r.busy_s / r.elapsed_s;
	}
	bench_ratio(b, r.name, busy[0], "%", busy[1], 1.003);
}

static int by_size(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* Measures from the return of gpuarb-set to the first work of a client that slept, throttled at 1 percent. */
static void run_latency(struct bench *b, const struct device *device)
{
	static const struct limits_case asleep = {"change-latency", 0, 0, {{1, 20, NULL, 0}}, NULL, 0, 0};
	static struct run r;
	struct gpuarb_error err = {0};
	struct gpuarb_view *view;
	char text[80];
	double took[200];
	unsigned n = 2 * (unsigned)seconds;

	if (n < 10)
		n = 10;
	if (n > 200)
		n = 200;
	memset(&r, 0, sizeof(r));
	r.what = &asleep;
	snprintf(r.name, sizeof(r.name), "change-latency%s", device->suffix);
	if (!bench_wants(b, r.name))
		return;
	prepare(&r, device);
	clients_start(&r.clients, &asleep.clients[0], seconds + WARM_S + 1, true);
	usleep((useconds_t)(WARM_S * 1e6));
	find_device(&r, clients_report(""));
	if (gpuarb_view_open(r.clients.arb, r.clients.uuid, &view, &err) < 0) {
		fprintf(stderr, "bench_limits: %s\n", err.text);
		exit(1);
	}
	for (unsigned i = 0; i < n; i++) {
		uint64_t began;

		set_limit(&r, 1);
		usleep(350000 + i % 7 * 13000);
		gpuarb_view_read(view, &r.clients.before);
		set_limit(&r, 100);
		began = bench_now_ns();
		/* It does not spin here: the woken client would have to wait for this processor. */
		do {
			usleep(100);
			gpuarb_view_read(view, &r.clients.after);
		} while (
			clients_account_ns(&r.clients.after, 0) == clients_account_ns(&r.clients.before, 0) &&
			bench_now_ns() - began < 1000000000);
		took[i] = (double)(bench_now_ns() - began) / 1e6;
	}
	gpuarb_view_close(view);
	clients_stop(&r.clients, true);
	device_settings_restore(&r.environment);
	qsort(took, n, sizeof(took[0]), by_size);
	/* The ninth of ten counts: now and then the machine itself takes longer to wake a thread. */
	bench_ratio(b, r.name, took[n * 9 / 10 - 1], "ms", 5, 1);
	part(text, sizeof(text), &r, "median");
	bench_show(b, text, took[n / 2], "ms", 5);
}

int main(int argc, char **argv)
{
	const char *value = bench_option(&argc, argv, "--seconds");
	struct bench b;

	if (value)
		seconds = atof(value);
	bench_begin(&b, "limits",
		"[--seconds N]: so long each (20).\n"
		"Cases: alone-10-20us and the like, and with -slices (2.0 ms) and -slices1930 (1.93 ms) "
		"where\n"
		"the GPU gives time slices. The value is the error of the client that is furthest from its\n"
		"target, in points; NAME/law is how far gpuarb's busy time is from the GPU's, in percent;\n"
		"NAME/tracker is what the preload's thread in the first client costs.",
		argc, argv);
	clients_begin("limits");
	for (size_t m = 0; m < sizeof(devices) / sizeof(devices[0]); m++) {
		if (devices[m].by_name)
			continue;
		for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
			run_case(&b, &cases[i], &devices[m]);
		for (size_t i = 0; i < sizeof(share_cases) / sizeof(share_cases[0]); i++)
			run_case(&b, &share_cases[i], &devices[m]);
		run_unlimited(&b, &devices[m]);
		run_latency(&b, &devices[m]);
	}
	clients_end();
	return bench_end(&b);
}
