/*
 * Memory on a simulated GPU of 16 GiB: programs that fit run as they would without gpuarb, programs that do not fit
 * take turns instead of thrashing, a quota holds to the byte whatever is done, and what allocating costs
 * (bench_memory_path).
 */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/report.h"

#define CLIENTS 4
#define MOST    10 /* clients of any case */
/* Thrashing is given up after this many times what taking turns took. */
#define PATIENCE 3.5

/* What the simulated GPU says about a run. */
struct truth {
	double launches;
	double busy_s; /* time spent working or moving memory */
	double paging_s;
};

static char directory[] = "/dev/shm/gpuarb-memory-XXXXXX", build[4000];

struct job {
	unsigned clients;
	unsigned memory_mib;
	bool managed; /* managed memory; otherwise plain device memory */
	double kernel_us;
	unsigned launches;
	bool arbitrated;
	const char *settings; /* NAME=VALUE, separated by blanks */
};

static void die(const char *what)
{
	fprintf(stderr, "bench_memory: %s: %s\n", what, strerror(errno));
	exit(1);
}

static void environment(const struct job *job, unsigned index)
{
	char text[4100], *copy, *rest, *word;

	snprintf(text, sizeof(text), "client%u", index);
	setenv("GPUARB_ACCOUNT", text, 1);
	if (!job->arbitrated)
		return;
	snprintf(text, sizeof(text), "%s/libgpuarb-preload.so", build);
	setenv("LD_PRELOAD", text, 1);
	copy = strdup(job->settings ? job->settings : "");
	for (word = strtok_r(copy, " ", &rest); word; word = strtok_r(NULL, " ", &rest))
		putenv(word);
}

static pid_t start(const struct job *job, unsigned index)
{
	char program[4100], memory[32], kernel[32], launches[32], out[128];
	char *argv[] = {program, memory, kernel, launches, (char *)"--duration=3600",
		(char *)"--pattern=sync", (char *)"--every=10", job->managed ? (char *)"--managed" : NULL,
		NULL};
	pid_t pid = fork();
	int fd;

	if (pid < 0)
		die("fork");
	if (pid)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	environment(job, index);
	snprintf(out, sizeof(out), "%s/out.%u", directory, index);
	fd = open(out, O_WRONLY | O_CREAT | O_TRUNC, 0600);
	if (fd < 0 || dup2(fd, STDOUT_FILENO) < 0)
		die(out);
	snprintf(program, sizeof(program), "%s/simload", build);
	snprintf(memory, sizeof(memory), "--memory=%u", job->memory_mib);
	snprintf(kernel, sizeof(kernel), "--kernel-us=%g", job->kernel_us);
	snprintf(launches, sizeof(launches), "--launches=%u", job->launches);
	execv(program, argv);
	die(program);
	return 0;
}

static void completed(unsigned clients, unsigned launches)
{
	for (unsigned i = 0; i < clients; i++) {
		char path[128];
		json_error_t error;
		json_t *out;

		snprintf(path, sizeof(path), "%s/out.%u", directory, i);
		out = json_load_file(path, 0, &error);
		if (json_integer_value(json_object_get(out, "completed")) != launches) {
			fprintf(stderr, "bench_memory: client %u did not do its work\n", i);
			exit(1);
		}
		json_decref(out);
	}
}

static struct truth report(void)
{
	char command[4200];
	struct truth t = {0};
	FILE *pipe;
	json_t *root, *device;

	snprintf(command, sizeof(command), "%s/sim/gpusim-report --json", build);
	pipe = popen(command, "r");
	root = pipe ? json_loadf(pipe, 0, NULL) : NULL;
	device = json_array_get(json_object_get(root, "devices"), 0);
	t.launches = json_number_value(json_object_get(device, "launches"));
	t.busy_s = json_number_value(json_object_get(device, "busy_ns")) / 1e9;
	t.paging_s = json_number_value(json_object_get(device, "paging_ns")) / 1e9;
	json_decref(root);
	if (pipe)
		pclose(pipe);
	return t;
}

/* Returns the seconds from the start of the first client to the end of the last, on a GPU of their own; at most
 * `most`. */
static double run(const struct job *job, double most, struct truth *truth)
{
	static unsigned n;
	char path[128];
	pid_t pid[MOST];
	uint64_t began;
	unsigned left = job->clients;
	double seconds = 0;

	snprintf(path, sizeof(path), "%s/sim.%u", directory, n);
	mkdir(path, 0700);
	setenv("GPUSIM_DIR", path, 1);
	snprintf(path, sizeof(path), "%s/arb.%u", directory, n++);
	setenv("GPUARB_DIR", path, 1);
	began = bench_now_ns();
	for (unsigned i = 0; i < job->clients; i++)
		pid[i] = start(job, i);
	while (left && seconds < most) {
		pid_t gone = waitpid(-1, NULL, WNOHANG);

		if (gone > 0)
			left--;
		else
			usleep(500);
		seconds = (double)(bench_now_ns() - began) / 1e9;
	}
	if (truth)
		*truth = report();
	for (unsigned i = 0; left && i < job->clients; i++)
		kill(pid[i], SIGKILL);
	while (left && waitpid(-1, NULL, 0) > 0)
		;
	if (!left)
		completed(job->clients, job->launches);
	return seconds;
}

/* Clients of 12 of 16 GiB each: two never fit. */
static void do_not_fit(struct bench *b)
{
	struct job job = {
		.clients = 1, .memory_mib = 12 * 1024, .managed = true, .kernel_us = 1000, .launches = 2500};
	double alone = 0, turns, thrashing;
	struct truth truth;

	for (unsigned i = 0; i < CLIENTS; i++)
		alone += run(&job, 600, NULL);
	job.clients = CLIENTS;
	job.managed = false;
	job.arbitrated = true;
	job.settings = "GPUARB_OVERSUBSCRIBE=on";
	turns = run(&job, 600, NULL);
	bench_ratio(b, "4x12/turns", turns, "s", alone, 1.15);
	/* Each client has several turns, each twice as long as moving its memory takes. */
	job.settings = "GPUARB_OVERSUBSCRIBE=on GPUARB_SWITCH_TIME=fixed GPUARB_SWITCH_FIXED_MS=2000";
	bench_show(b, "4x12/short-turns", run(&job, 600, NULL), "s", alone);
	job.settings = "GPUARB_OVERSUBSCRIBE=on GPUARB_SWITCH_TIME=fixed GPUARB_SWITCH_FIXED_MS=2000 "
		       "GPUARB_PREFETCH=on";
	bench_show(b, "4x12/prefetch", run(&job, 600, NULL), "s", alone);
	job.arbitrated = false;
	job.managed = true;
	thrashing = run(&job, PATIENCE * turns, &truth);
	/* It has ended, or was given up: then it takes at least this long. */
	bench_ratio(b, "4x12/turns-to-thrashing", turns, "s", thrashing, 1.0 / 3);
	if (truth.launches > 0 && truth.launches < (double)CLIENTS * job.launches)
		bench_show(b, "4x12/thrashing-at-this-rate",
			thrashing * CLIENTS * job.launches / truth.launches, "s", turns);
}

/* Two such clients with default settings: one runs, the other waits. */
static void two_do_not_fit(struct bench *b)
{
	struct job job = {
		.clients = 1, .memory_mib = 12 * 1024, .managed = true, .kernel_us = 1000, .launches = 2500};
	double alone = run(&job, 600, NULL) + run(&job, 600, NULL), turns;

	job.clients = 2;
	job.managed = false;
	job.arbitrated = true;
	job.settings = "GPUARB_OVERSUBSCRIBE=on";
	turns = run(&job, 600, NULL);
	bench_ratio(b, "2x12/turns", turns, "s", alone, 1.15);
	job.arbitrated = false;
	job.managed = true;
	bench_ratio(b, "2x12/turns-to-thrashing", turns, "s", run(&job, PATIENCE * turns, NULL), 1.0 / 3);
}

/* Two clients work for longer than a turn, so each has to give way to the other several times. The length of a turn
 * is chosen automatically: five times as long as moving its memory takes on this GPU. */
static void forced(struct bench *b)
{
	struct job job = {
		.clients = 1, .memory_mib = 12 * 1024, .managed = true, .kernel_us = 1000, .launches = 12000};
	double alone = 2 * run(&job, 600, NULL), seconds;
	struct truth truth;

	job.clients = 2;
	job.managed = false;
	job.arbitrated = true;
	job.settings = "GPUARB_OVERSUBSCRIBE=on GPUARB_SWITCH_MB_PER_S=11444 GPUARB_SWITCH_MIN_MS=1";
	seconds = run(&job, 600, &truth);
	bench_ratio(b, "forced/turns", seconds, "s", alone, 1.25);
	bench_show(b, "forced/moving", truth.paging_s, "s", seconds);
	bench_ratio(b, "forced/idle", seconds - truth.busy_s, "s", seconds, 0.05);
}

/* Clients that fit run at once. They run without and with gpuarb in turns, so that what disturbs the machine disturbs
 * both. */
static void fit(struct bench *b, const char *name, struct job job, double allowed)
{
	double with = 1e9, without = 1e9;

	job.settings = "GPUARB_POLICY=memory";
	for (unsigned i = 0; i < 3; i++) {
		double s;

		job.arbitrated = false;
		s = run(&job, 600, NULL);
		without = s < without ? s : without;
		job.arbitrated = true;
		s = run(&job, 600, NULL);
		with = s < with ? s : with;
	}
	bench_ratio(b, name, with, "s", without, allowed);
}

/* Runs the race of the tests, which ends with an error if ever a byte too much was seen, or left. */
static void race(struct bench *b, const char *which)
{
	unsigned long long operations = 0, refused = 0, kills = 0, looks = 0, most = 0, quota = 1;
	char command[12400], line[512] = "", name[64];
	FILE *pipe;

	snprintf(command, sizeof(command),
		"LD_LIBRARY_PATH=%s/sim LD_PRELOAD=%s/libgpuarb-preload.so %s/test/preload/memory %s", build,
		build, build, which);
	pipe = popen(command, "r");
	if (!pipe || !fgets(line, sizeof(line), pipe) || pclose(pipe) != 0 ||
		sscanf(line,
			"memory: %llu operations, %llu refused, %llu kills, %llu looks: at most %llu of %llu",
			&operations, &refused, &kills, &looks, &most, &quota) != 6) {
		fprintf(stderr, "bench_memory: the quota did not hold, or something was left: %s\n", line);
		b->failed++;
		return;
	}
	snprintf(name, sizeof(name), "%s/most-seen-of-quota", which);
	bench_ratio(b, name, (double)most / (1 << 20), "MiB", (double)quota / (1 << 20), 1.0);
	snprintf(name, sizeof(name), "%s/operations", which);
	bench_ratio(b, name, 10000, "", (double)operations, 1.0);
	snprintf(name, sizeof(name), "%s/kills", which);
	bench_show(b, name, (double)kills, "", (double)looks);
}

static void path(struct bench *b)
{
	char command[4200];

	snprintf(command, sizeof(command), "%s/bench_memory_path%s", build, b->json ? " --json" : "");
	fflush(stdout);
	b->failed += system(command) != 0;
}

static void surroundings(void)
{
	char text[4200];
	ssize_t n = readlink("/proc/self/exe", build, sizeof(build) - 1);

	if (n < 0 || !mkdtemp(directory))
		die("no place to work in");
	build[n] = '\0';
	*strrchr(build, '/') = '\0';
	snprintf(text, sizeof(text), "%s/sim", build);
	setenv("LD_LIBRARY_PATH", text, 1);
	setenv("GPUARB_CONF", "/dev/null", 1);
	setenv("GPUSIM_MEMORY_MB", "16384", 1);
}

int main(int argc, char **argv)
{
	char command[128];
	struct bench b;

	bench_begin(&b, "memory",
		"Quotas, turns at the GPU's memory, and what they cost.\n"
		"Cases: 4x12, 2x12, forced, 3x4, 10x1, race, race-managed, path.",
		argc, argv);
	surroundings();
	if (bench_wants(&b, "4x12"))
		do_not_fit(&b);
	if (bench_wants(&b, "2x12"))
		two_do_not_fit(&b);
	if (bench_wants(&b, "forced"))
		forced(&b);
	if (bench_wants(&b, "3x4"))
		fit(&b, "3x4/all-at-once",
			(struct job){
				.clients = 3, .memory_mib = 4 * 1024, .kernel_us = 1000, .launches = 1500},
			1.01);
	if (bench_wants(&b, "10x1"))
		fit(&b, "10x1/all-at-once",
			(struct job){.clients = 10, .memory_mib = 1024, .kernel_us = 1000, .launches = 400},
			1.05);
	if (bench_wants(&b, "race"))
		race(&b, "race");
	if (bench_wants(&b, "race-managed"))
		race(&b, "race-managed");
	if (bench_wants(&b, "path"))
		path(&b);
	snprintf(command, sizeof(command), "rm -r %s", directory);
	if (system(command) != 0)
		b.failed++;
	return bench_end(&b);
}
