/* gpusim-report: the ground truth of the simulation, exact at the moment of the call. */
#include "test/sim/device/model.h"

#include <argp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct {
	bool json;
	bool reset;
} opt;

static error_t parse(int key, char *arg, struct argp_state *state)
{
	(void)arg;
	(void)state;
	switch (key) {
	case 'j':
		opt.json = true;
		return 0;
	case 'r':
		opt.reset = true;
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static void print_quoted(const char *s)
{
	putchar('"');
	for (; *s; s++) {
		if (*s == '"' || *s == '\\')
			printf("\\%c", *s);
		else if ((unsigned char)*s < 0x20)
			printf("\\u%04x", *s);
		else
			putchar(*s);
	}
	putchar('"');
}

static void json_process(const struct sim_process_state *p)
{
	printf("{\"serial\":%lu,\"pid\":%d,\"command\":", p->serial, p->pid);
	print_quoted(p->command);
	printf(",\"alive\":%s,\"device_ns\":%lu,\"width_ns\":%lu,\"copy_ns\":%lu,\"paging_ns\":%lu,\"launches\":%lu,"
	       "\"graph_launches\":%lu,\"copies\":%lu,\"copied_bytes\":%lu,\"memsets\":%lu,"
	       "\"memory_bytes\":%lu,\"memory_peak_bytes\":%lu}",
		p->alive ? "true" : "false", p->device_ns, p->width_ns, p->copy_ns, p->paging_ns, p->launches,
		p->graph_launches, p->copies, p->copied_bytes, p->memsets, p->memory_bytes,
		p->memory_peak_bytes);
}

static void json_device(int i, const struct sim_device_info *info, const struct sim_device_state *s,
	const struct sim_process_state *list, int n)
{
	printf("%s{\"index\":%d,\"name\":", i ? "," : "", i);
	print_quoted(info->name);
	printf(",\"uuid\":\"%s\",\"now_ns\":%lu,\"elapsed_ns\":%lu,\"busy_ns\":%lu,\"width_ns\":%lu,\"copy_ns\":[%lu,%lu],"
	       "\"paging_ns\":%lu,\"switch_ns\":%lu,\"switches\":%lu,"
	       "\"launches\":%lu,\"copies\":%lu,\"copied_bytes\":%lu,\"memory_total_"
	       "bytes\":%lu,"
	       "\"memory_used_bytes\":%lu,\"processes\":[",
		info->uuid, s->now_ns, s->now_ns - s->since_ns, s->busy_ns, s->width_ns, s->copy_ns[0],
		s->copy_ns[1], s->paging_ns, s->switch_ns, s->switches, s->launches, s->copies,
		s->copied_bytes, s->memory_total_bytes, s->memory_used_bytes);
	for (int k = 0; k < n; k++) {
		if (k)
			putchar(',');
		json_process(&list[k]);
	}
	printf("]}");
}

static void text_device(int i, const struct sim_device_info *info, const struct sim_device_state *s,
	const struct sim_process_state *list, int n)
{
	double elapsed = (double)(s->now_ns - s->since_ns) / 1e9;

	printf("device %d  %s  %s\n", i, info->name, info->uuid);
	printf("  elapsed %.6f s  busy %.6f s (%.2f %%)  copy in %.6f s  out %.6f s  paging %.6f s  memory "
	       "%lu of %lu MiB\n",
		elapsed, (double)s->busy_ns / 1e9, elapsed > 0 ? (double)s->busy_ns / 1e7 / elapsed : 0,
		(double)s->copy_ns[0] / 1e9, (double)s->copy_ns[1] / 1e9, (double)s->paging_ns / 1e9,
		s->memory_used_bytes >> 20, s->memory_total_bytes >> 20);
	if (s->switches)
		printf("  %lu switches between processes took %.6f s (%.2f %%), which belong to nobody\n",
			s->switches, (double)s->switch_ns / 1e9,
			elapsed > 0 ? (double)s->switch_ns / 1e7 / elapsed : 0);
	printf("  %7s %-15s %5s %12s %8s %8s %12s %10s %8s %12s %9s %9s\n", "pid", "command", "alive",
		"device s", "share %", "width %", "copy s", "launches", "copies", "bytes", "mem MiB",
		"peak MiB");
	for (int k = 0; k < n; k++) {
		const struct sim_process_state *p = &list[k];

		printf("  %7d %-15s %5s %12.6f %8.3f %8.3f %12.6f %10lu %8lu %12lu %9lu %9lu\n", p->pid,
			p->command, p->alive ? "yes" : "no", (double)p->device_ns / 1e9,
			elapsed > 0 ? (double)p->device_ns / 1e7 / elapsed : 0,
			elapsed > 0 ? (double)p->width_ns / 1e7 / elapsed : 0, (double)p->copy_ns / 1e9,
			p->launches, p->copies, p->copied_bytes, p->memory_bytes >> 20,
			p->memory_peak_bytes >> 20);
	}
}

int main(int argc, char **argv)
{
	static const struct argp_option options[] = {
		{"json", 'j', NULL, 0, "print one JSON object", 0},
		{"reset", 'r', NULL, 0, "afterwards start again from zero and forget dead processes", 0},
		{0},
	};
	static const struct argp argp = {options, parse, NULL,
		"Print what each process got from each simulated GPU.", NULL, NULL, NULL};
	static struct sim_process_state list[SIM_MAX_PROCS];
	int rc;

	argp_parse(&argp, argc, argv, 0, NULL, NULL);
	rc = sim_open();
	if (rc < 0) {
		fprintf(stderr, "gpusim-report: cannot open the simulation: %s\n", strerror(-rc));
		return 1;
	}
	if (opt.json)
		printf("{\"devices\":[");
	for (int i = 0; i < sim_device_count(); i++) {
		struct sim_device_info info;
		struct sim_device_state state;
		int n = sim_snapshot(i, &state, true, list, SIM_MAX_PROCS);

		if (n < 0 || sim_device_info(i, &info) < 0)
			return 1;
		n = n > SIM_MAX_PROCS ? SIM_MAX_PROCS : n;
		(opt.json ? json_device : text_device)(i, &info, &state, list, n);
	}
	if (opt.json)
		printf("]}\n");
	if (opt.reset)
		sim_reset();
	sim_close();
	return 0;
}
