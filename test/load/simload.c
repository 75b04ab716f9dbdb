/* simload: its processes and the JSON result. */
#include "test/load/simload.h"

#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static struct load load;

/* How long the threads of this process could have run and did not, because the machine had no CPU for them. */
static double starved_s(void)
{
	DIR *tasks = opendir("/proc/self/task");
	unsigned long long ns, sum = 0;
	struct dirent *e;

	while (tasks && (e = readdir(tasks))) {
		char path[300];
		FILE *f;

		snprintf(path, sizeof(path), "/proc/self/task/%s/schedstat", e->d_name);
		f = e->d_name[0] == '.' ? NULL : fopen(path, "r");
		if (f && fscanf(f, "%*u %llu", &ns) == 1)
			sum += ns;
		if (f)
			fclose(f);
	}
	if (tasks)
		closedir(tasks);
	return (double)sum / 1e9;
}

static void run(unsigned index, struct result *r)
{
	simload_run(&load, index, r);
	r->starved_s = starved_s();
}

static void print_one(const struct result *r)
{
	printf("{\"pid\":%d,\"error\":%d,\"where\":\"%s\",\"launched\":%lu,\"completed\":%lu,\"waits\":%lu,"
	       "\"copies\":%lu,\"copied_bytes\":%lu,\"seconds\":%.6f,\"starved_seconds\":%.6f,"
	       "\"launch_ns_mean\":%.1f,\"kernel_seconds\":%.6f}",
		r->pid, r->error, r->where, r->launched, r->completed, r->waits, r->copies, r->copied_bytes,
		r->end_s - r->start_s, r->starved_s,
		r->launched ? r->launch_s * 1e9 / (double)r->launched : 0,
		(double)r->completed * load.kernel_us / 1e6);
}

static void print_requests(const uint32_t *latency)
{
	printf(",\"requests\":%lu,\"latency_us\":{\"p50\":%.1f,\"p90\":%.1f,\"p99\":%.1f,\"p999\":%.1f,\"max\":%.1f}",
		simload_requests(latency), simload_latency_us(latency, 0.5), simload_latency_us(latency, 0.9),
		simload_latency_us(latency, 0.99), simload_latency_us(latency, 0.999),
		simload_latency_us(latency, 1));
}

static int print(const struct result *list)
{
	struct result sum = {.start_s = 1e18};
	int bad = 0;

	printf("{\"processes\":[");
	for (unsigned i = 0; i < load.processes; i++) {
		const struct result *r = &list[i];

		if (i)
			putchar(',');
		print_one(r);
		sum.launched += r->launched;
		sum.completed += r->completed;
		sum.start_s = r->start_s < sum.start_s ? r->start_s : sum.start_s;
		sum.end_s = r->end_s > sum.end_s ? r->end_s : sum.end_s;
		bad |= r->error != 0 || !r->end_s;
	}
	putchar(']');
	/* The latencies of other processes are not visible here. */
	if (load.processes == 1 && list->latency)
		print_requests(list->latency);
	printf(",\"kernel_us\":%g,\"launched\":%lu,\"completed\":%lu,\"seconds\":%.6f}\n", load.kernel_us,
		sum.launched, sum.completed, sum.end_s > sum.start_s ? sum.end_s - sum.start_s : 0);
	return bad;
}

int main(int argc, char **argv)
{
	struct result *results;

	simload_parse(&load, argc, argv);
	if (!load.group)
		load.group = (uint64_t)getpid() << 32 ^ (uint64_t)(simload_now() * 1e9);
	results = mmap(NULL, (load.processes + 1) * sizeof(*results), PROT_READ | PROT_WRITE,
		MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (results == MAP_FAILED) {
		perror("simload: mmap");
		return 1;
	}
	load.pace = (uint64_t *)&results[load.processes];
	if (load.processes == 1) {
		run(0, results);
		return print(results);
	}
	fflush(stdout);
	for (unsigned i = 0; i < load.processes; i++) {
		pid_t pid = fork();

		if (pid == 0) {
			run(i, &results[i]);
			/* The process ends by exit(), so that the end of the driver is part of the test. */
			exit(results[i].error != 0);
		}
		if (pid < 0)
			perror("simload: fork");
	}
	while (wait(NULL) > 0)
		;
	return print(results);
}
