/* What loading the preload costs programs that do not use CUDA: the processor's time from start to end, measured in
 * turns. The wall clock would say more about what else the machine does. */
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/report.h"

#define TURNS   60
#define ALLOWED 1000.0 /* us */

extern char **environ;

static char preload[640];

static double run_us(char *const argv[], char *const env[])
{
	posix_spawn_file_actions_t quiet;
	struct rusage used = {0};
	int status = 1;
	pid_t pid;

	posix_spawn_file_actions_init(&quiet);
	posix_spawn_file_actions_addopen(&quiet, 1, "/dev/null", 1, 0);
	if (posix_spawnp(&pid, argv[0], &quiet, NULL, argv, env) != 0 || wait4(pid, &status, 0, &used) != pid)
		status = 1;
	posix_spawn_file_actions_destroy(&quiet);
	return status ? 0
		      : (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) * 1e6 +
				(double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec);
}

/* Returns the environment, with LD_PRELOAD in front. */
static char **with_preload(void)
{
	size_t n = 0, at = 1;
	char **env;

	while (environ[n])
		n++;
	env = calloc(n + 2, sizeof(*env));
	if (!env)
		abort();
	env[0] = preload;
	for (size_t i = 0; i < n; i++)
		if (strncmp(environ[i], "LD_PRELOAD=", 11))
			env[at++] = environ[i];
	return env;
}

static void program(struct bench *b, const char *name, char *const argv[])
{
	char **env = with_preload(), label[64];
	double with = 0, without = 0;

	if (!bench_wants(b, name))
		goto out;
	for (unsigned i = 0; i < TURNS; i++) {
		double one = run_us(argv, env), other = run_us(argv, env + 1);

		if (!one || !other) {
			fprintf(stderr, "bench_start: %s did not run: left out\n", name);
			goto out;
		}
		with = !with || one < with ? one : with;
		without = !without || other < without ? other : without;
	}
	bench_show(b, name, with, "us", without);
	snprintf(label, sizeof(label), "%s_added", name);
	bench_ratio(b, label, with > without ? with - without : 0, "us", ALLOWED, 1);
out:
	free(env);
}

int main(int argc, char **argv)
{
	char self[512];
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
	struct bench b;

	if (n <= 0)
		return 1;
	self[n] = 0;
	*strrchr(self, '/') = 0;
	snprintf(preload, sizeof(preload), "LD_PRELOAD=%s/libgpuarb-preload.so", self);
	unsetenv("LD_PRELOAD");
	bench_begin(&b, "start",
		"Cases: bash, python3, git, sleep. The fastest of many, with and without the preload; "
		"x_added: "
		"against 1 ms.",
		argc, argv);
	program(&b, "bash", (char *const[]){"bash", "-c", "true", NULL});
	program(&b, "python3", (char *const[]){"/usr/bin/python3", "-c", "pass", NULL});
	program(&b, "git", (char *const[]){"git", "--version", NULL});
	program(&b, "sleep", (char *const[]){"sleep", "0", NULL});
	return bench_end(&b);
}
