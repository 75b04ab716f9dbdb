/* How long requests take beside a greedy program, and how much that program keeps, in real time on the simulated GPU:
 * alone, without gpuarb, and with it under each policy. The cases are those of build/world --cases 'latency-*'. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench/clients.h"
#include "bench/latency_cases.h"
#include "bench/report.h"

#define WARM_S 0.5

enum { REQUESTS, GREEDY, PROGRAMS };

struct outcome {
	double requests, median_us, p99_us, p999_us;
	double keeps; /* what the greedy program keeps, in percent of the time that the requests leave */
};

static double seconds = 10;

/* Writes the class of the leases. */
static void write_conf(const char *directory)
{
	char path[256];
	FILE *file;

	snprintf(path, sizeof(path), "%s/arbiter.conf", directory);
	file = fopen(path, "we");
	if (!file || fprintf(file, "[class " LATENCY_CLASS "]\npriority = " LATENCY_HIGH "\n") < 0 ||
		fclose(file))
		clients_die(path);
	setenv("GPUARB_CONF", path, 1);
}

static void start(
	struct clients *clients, unsigned i, const struct latency_case *c, const struct latency_way *way)
{
	const char *priority = c->equal      ? ""
			       : i == GREEDY ? " GPUARB_PRIORITY=" LATENCY_LOW
					     : " GPUARB_PRIORITY=" LATENCY_HIGH;
	char more[4400], lease[4300] = "";
	struct client client = {0, c->kernel_us, more, WHATEVER};

	if (i == REQUESTS && way->lease)
		snprintf(lease, sizeof(lease), " --lease=" LATENCY_CLASS " --lease-library=%s/libgpuarb.so.1",
			clients_build());
	if (i == REQUESTS)
		snprintf(more, sizeof(more), "%s --random-us=%d%s%s", c->request, LATENCY_APART_US, priority,
			lease);
	else
		snprintf(more, sizeof(more), "%s", priority);
	clients_start(clients, &client, i == REQUESTS ? seconds : seconds + 2 * WARM_S, !way->bare);
}

static struct outcome run_way(const struct latency_case *c, const struct latency_way *way)
{
	static struct clients clients;
	struct device_environment environment;
	struct outcome of = {0};
	json_t *root, *latency;
	double elapsed_s, high_s;
	char name[96];

	snprintf(name, sizeof(name), "%s.%s", c->name, way->name);
	clients_prepare(&clients, name);
	write_conf(clients.arb);
	device_settings_apply(&environment, c->settings);
	if (way->policy)
		setenv("GPUARB_POLICY", way->policy, 1);
	else
		unsetenv("GPUARB_POLICY");
	/* The requests come first in the list, so they end first. */
	for (unsigned i = 0; i < (way->alone ? 1 : PROGRAMS); i++)
		start(&clients, i, c, way);
	usleep((useconds_t)(WARM_S * 1e6));
	clients_find(&clients);
	json_decref(clients_report("--reset"));
	usleep((useconds_t)((seconds - 2 * WARM_S) * 1e6));
	root = clients_report("");
	elapsed_s = clients_number(json_array_get(json_object_get(root, "devices"), 0), "elapsed_ns") / 1e9;
	high_s = clients_sum(&clients, REQUESTS, root, "device_ns", 1) / 1e9;
	if (!way->alone)
		of.keeps = 100 * clients_sum(&clients, GREEDY, root, "device_ns", 1) / 1e9 /
			   (elapsed_s - high_s);
	json_decref(root);
	clients_stop(&clients, false);
	root = clients_output(REQUESTS);
	latency = json_object_get(root, "latency_us");
	of.requests = clients_number(root, "requests");
	of.median_us = clients_number(latency, "p50");
	of.p99_us = clients_number(latency, "p99");
	of.p999_us = clients_number(latency, "p999");
	if (!(of.requests > 0)) {
		fprintf(stderr, "bench_latency: %s: no request was answered\n", name);
		exit(1);
	}
	json_decref(root);
	device_settings_restore(&environment);
	return of;
}

static void tell(struct bench *b, const struct latency_case *c, const struct latency_way *way,
	const struct outcome *of, const struct outcome *alone)
{
	bool judged = latency_judged(c, way);
	char name[96];

	snprintf(name, sizeof(name), "%s/%s/median", c->name, way->name);
	if (judged && way->median)
		bench_ratio(b, name, of->median_us, "us", alone->median_us,
			latency_median_us(alone->median_us, c->kernel_us) / alone->median_us);
	else
		bench_show(b, name, of->median_us, "us", alone->median_us);
	snprintf(name, sizeof(name), "%s/%s/p99", c->name, way->name);
	if (judged)
		bench_ratio(b, name, of->p99_us, "us", alone->p99_us,
			latency_p99_us(c, way, alone->p99_us) / alone->p99_us);
	else
		bench_show(b, name, of->p99_us, "us", alone->p99_us);
	snprintf(name, sizeof(name), "%s/%s/p99.9", c->name, way->name);
	bench_show(b, name, of->p999_us, "us", alone->p999_us);
	if (way->alone)
		return;
	snprintf(name, sizeof(name), "%s/%s/lost", c->name, way->name);
	if (judged && way->median)
		bench_ratio(b, name, 100 - of->keeps, "%", 100 - LATENCY_KEEPS, 1);
	else
		bench_show(b, name, 100 - of->keeps, "%", 100 - LATENCY_KEEPS);
}

static void run_case(struct bench *b, const struct latency_case *c)
{
	struct outcome alone = {0}, of;

	if (!bench_wants(b, c->name))
		return;
	for (size_t i = 0; i < LATENCY_WAYS; i++) {
		if (c->equal && latency_ways[i].lease)
			continue;
		of = run_way(c, &latency_ways[i]);
		if (latency_ways[i].alone)
			alone = of;
		tell(b, c, &latency_ways[i], &of, &alone);
	}
}

int main(int argc, char **argv)
{
	const char *value = bench_option(&argc, argv, "--seconds");
	struct bench b;

	if (value)
		seconds = atof(value);
	if (seconds < 4 * WARM_S)
		seconds = 4 * WARM_S;
	bench_begin(&b, "latency",
		"[--seconds N]: so long each way (10).\n"
		"Requests of 0.5 ms (one) and of 20 kernels of 50 us (many) that arrive at random every 10 ms, beside\n"
		"a greedy program with kernels of 20 us or 1 ms: alone, bare (without gpuarb), and with gpuarb by\n"
		"policy, with a lease for each request, and among equal priorities. Each figure stands beside that of\n"
		"the requests alone; NAME/lost is what the greedy one loses of the time that the requests leave.",
		argc, argv);
	clients_begin("latency");
	for (size_t i = 0; i < LATENCY_CASES; i++)
		run_case(&b, &latency_cases[i]);
	clients_end();
	return bench_end(&b);
}
