/* Processes and the JSON result. */
#include "simload.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static struct load load;

static void print_one(const struct result *r)
{
	printf("{\"pid\":%d,\"error\":%d,\"where\":\"%s\",\"launched\":%lu,\"completed\":%lu,\"waits\":%lu,"
	       "\"copies\":%lu,\"copied_bytes\":%lu,\"seconds\":%.6f,\"launch_ns_mean\":%.1f,\"kernel_"
	       "seconds\":%.6f}",
		r->pid, r->error, r->where, r->launched, r->completed, r->waits, r->copies, r->copied_bytes,
		r->end_s - r->start_s, r->launched ? r->launch_s * 1e9 / (double)r->launched : 0,
		(double)r->completed * load.kernel_us / 1e6);
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
	printf("],\"kernel_us\":%g,\"launched\":%lu,\"completed\":%lu,\"seconds\":%.6f}\n", load.kernel_us,
		sum.launched, sum.completed, sum.end_s > sum.start_s ? sum.end_s - sum.start_s : 0);
	return bad;
}

int main(int argc, char **argv)
{
	struct result *results;

	simload_parse(&load, argc, argv);
	results = mmap(NULL, load.processes * sizeof(*results), PROT_READ | PROT_WRITE,
		MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (results == MAP_FAILED) {
		perror("simload: mmap");
		return 1;
	}
	if (load.processes == 1) {
		simload_run(&load, 0, results);
		return print(results);
	}
	fflush(stdout);
	for (unsigned i = 0; i < load.processes; i++) {
		pid_t pid = fork();

		if (pid == 0) {
			simload_run(&load, i, &results[i]);
			/* Through exit(), so that the driver's own end is seen too. */
			exit(results[i].error != 0);
		}
		if (pid < 0)
			perror("simload: fork");
	}
	while (wait(NULL) > 0)
		;
	return print(results);
}
