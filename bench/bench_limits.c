/*
 * What clients get of the GPU under their limits, by the simulated GPU's own books: programs that know
 * nothing of gpuarb, with the preload, each in an account of its own. Also whether the bills add up.
 */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gpuarb/control.h"

#include "report.h"

#define CLIENTS 4
#define WARM_S  1.0

struct client {
	unsigned limit; /* 0: none */
	double kernel_us;
	const char *more; /* arguments of the load, separated by blanks */
	double target;    /* percent of the GPU */
};

struct limits_case {
	const char *name;
	double allowed; /* points, where the processes share the GPU; three times as much in time slices */
	double utilisation;
	struct client clients[CLIENTS];
};

static const struct limits_case cases[] = {
	{"alone-10-20us", 0.5, 0, {{10, 20, NULL, 10}}},
	{"alone-25-20us", 0.5, 0, {{25, 20, NULL, 25}}},
	{"alone-50-20us", 0.5, 0, {{50, 20, NULL, 50}}},
	{"alone-75-20us", 0.5, 0, {{75, 20, NULL, 75}}},
	{"alone-90-20us", 0.5, 0, {{90, 20, NULL, 90}}},
	{"alone-10-1ms", 0.5, 0, {{10, 1000, NULL, 10}}},
	{"alone-25-1ms", 0.5, 0, {{25, 1000, NULL, 25}}},
	{"alone-50-1ms", 0.5, 0, {{50, 1000, NULL, 50}}},
	{"alone-75-1ms", 0.5, 0, {{75, 1000, NULL, 75}}},
	{"alone-90-1ms", 0.5, 0, {{90, 1000, NULL, 90}}},
	{"alone-25-100ms", 1.0, 0, {{25, 100000, NULL, 25}}},
	{"alone-50-100ms", 1.0, 0, {{50, 100000, NULL, 50}}},
	{"alone-75-100ms", 1.0, 0, {{75, 100000, NULL, 75}}},
	{"graphs-25", 0.5, 0, {{25, 20, "--graph=100", 25}}},
	{"ptsz-25", 0.5, 0, {{25, 20, "--variant=ptsz --default-stream", 25}}},
	{"ex-25", 0.5, 0, {{25, 20, "--variant=ex", 25}}},
	{"threads-25", 0.5, 0, {{25, 20, "--threads=4", 25}}},
	{"streams-25", 0.5, 0, {{25, 20, "--streams=8", 25}}},
	{"sync-25", 0.5, 0, {{25, 20, "--pattern=sync", 25}}},
	{"poll-25", 0.5, 0, {{25, 20, "--pattern=sync --wait=poll", 25}}},
	{"callback-25", 0.5, 0, {{25, 20, "--pattern=sync --wait=callback", 25}}},
	{"burst-25", 0.5, 0, {{25, 1000, "--pattern=burst --burst=20:80", 20}}},
	{"30+60", 0.5, 0, {{30, 20, NULL, 30}, {60, 20, NULL, 60}}},
	{"50+50", 0.5, 99, {{50, 20, NULL, 50}, {50, 20, NULL, 50}}},
	{"80+80", 0.5, 99, {{80, 20, NULL, 50}, {80, 20, NULL, 50}}},
	{"50+60", 0.5, 99, {{50, 20, NULL, 45.4545}, {60, 20, NULL, 54.5455}}},
	{"10+20+30+40", 0.5, 0,
		{{10, 20, NULL, 10}, {20, 20, NULL, 20}, {30, 20, NULL, 30}, {40, 20, NULL, 40}}},
	{"25+unlimited", 0.5, 99, {{25, 20, NULL, 25}, {0, 20, NULL, 75}}},
	{"50+50-mixed", 1.0, 0, {{50, 20, NULL, 50}, {50, 100000, NULL, 50}}},
};

static char directory[] = "/dev/shm/gpuarb-limits-XXXXXX", build[4096];
static double seconds = 20;

static void die(const char *what)
{
	fprintf(stderr, "bench_limits: %s: %s\n", what, strerror(errno));
	exit(1);
}

static pid_t start(const struct client *c, unsigned index)
{
	char *argv[24], kernel[64], duration[64], account[32], limit[16], path[256], program[4200],
		preload[4200];
	char more[256] = "", *rest;
	pid_t pid = fork();
	int argc = 0, fd;

	if (pid < 0)
		die("fork");
	if (pid)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	snprintf(path, sizeof(path), "%s/out.%u", directory, index);
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
	if (fd < 0 || dup2(fd, STDOUT_FILENO) < 0)
		die(path);
	snprintf(account, sizeof(account), "client%u", index);
	snprintf(limit, sizeof(limit), "%u", c->limit ? c->limit : 100);
	snprintf(preload, sizeof(preload), "%s/libgpuarb-preload.so", build);
	setenv("GPUARB_ACCOUNT", account, 1);
	setenv("GPUARB_CORE_LIMIT", limit, 1);
	setenv("LD_PRELOAD", preload, 1);
	snprintf(program, sizeof(program), "%s/simload", build);
	snprintf(kernel, sizeof(kernel), "--kernel-us=%g", c->kernel_us);
	snprintf(duration, sizeof(duration), "--duration=%g", seconds + WARM_S + 1);
	argv[argc++] = program;
	argv[argc++] = kernel;
	argv[argc++] = duration;
	if (c->more)
		snprintf(more, sizeof(more), "%s", c->more);
	for (char *word = strtok_r(more, " ", &rest); word && argc < 23; word = strtok_r(NULL, " ", &rest))
		argv[argc++] = word;
	argv[argc] = NULL;
	execv(program, argv);
	die(program);
	return 0;
}

static json_t *device_report(const char *option)
{
	char command[8192];
	json_error_t error;
	json_t *root;
	FILE *pipe;

	snprintf(command, sizeof(command), "%s/sim/gpusim-report --json %s", build, option);
	pipe = popen(command, "re");
	root = pipe ? json_loadf(pipe, 0, &error) : NULL;
	if (!pipe || pclose(pipe) != 0 || !root)
		die(command);
	return root;
}

static double number(const json_t *object, const char *key)
{
	return json_number_value(json_object_get(object, key));
}

/* The process of a client is known by what it printed at its end. */
static double attained(const json_t *device, unsigned index)
{
	char path[256];
	json_error_t error;
	json_t *out, *process;
	double pid, got = NAN;
	size_t i;

	snprintf(path, sizeof(path), "%s/out.%u", directory, index);
	out = json_load_file(path, 0, &error);
	if (!out)
		return NAN;
	pid = number(json_array_get(json_object_get(out, "processes"), 0), "pid");
	json_array_foreach(
		json_object_get(device, "processes"), i, process) if (number(process, "pid") == pid) got =
		100 * number(process, "device_ns") / number(device, "elapsed_ns");
	json_decref(out);
	return got;
}

static void say(void *argument, const char *sentence)
{
	(void)argument;
	fprintf(stderr, "bench_limits: %s\n", sentence);
}

static void look(const char *dir, const char *gpu, struct gpuarb_picture *picture)
{
	struct gpuarb_error err = {0};
	struct gpuarb_view *view;

	if (gpuarb_view_open(dir, gpu, &view, &err) < 0) {
		fprintf(stderr, "bench_limits: %s\n", err.text);
		exit(1);
	}
	gpuarb_view_read(view, picture);
	gpuarb_view_close(view);
}

static double billed(const struct gpuarb_picture *p, unsigned index)
{
	char name[32];

	snprintf(name, sizeof(name), "client%u", index);
	for (unsigned i = 0; i < p->naccounts; i++)
		if (!strcmp(p->accounts[i].name, name))
			return (double)p->accounts[i].used_ns;
	return 0;
}

static void run(struct bench *b, const struct limits_case *c, bool slices)
{
	static struct gpuarb_picture before, after;
	char name[64], path[128], arb[128], uuid[64];
	double worst = 0, utilisation, elapsed, busy, got[CLIENTS];
	pid_t pid[CLIENTS];
	json_t *root, *device;
	unsigned n = 0;

	snprintf(name, sizeof(name), "%s%s", c->name, slices ? "-slices" : "");
	if (!bench_wants(b, name))
		return;
	snprintf(path, sizeof(path), "%s/sim.%s", directory, name);
	snprintf(arb, sizeof(arb), "%s/arb.%s", directory, name);
	setenv("GPUSIM_DIR", path, 1);
	setenv("GPUARB_DIR", arb, 1);
	setenv("GPUSIM_MODE", slices ? "timeslice" : "share", 1);
	mkdir(path, 0700);
	mkdir(arb, 0700);
	for (; n < CLIENTS && c->clients[n].kernel_us > 0; n++)
		pid[n] = start(&c->clients[n], n);
	usleep((useconds_t)(WARM_S * 1e6));
	root = device_report("--reset");
	device = json_array_get(json_object_get(root, "devices"), 0);
	snprintf(uuid, sizeof(uuid), "%s", json_string_value(json_object_get(device, "uuid")));
	look(arb, uuid, &before);
	json_decref(root);
	usleep((useconds_t)(seconds * 1e6));
	root = device_report("");
	look(arb, uuid, &after);
	device = json_array_get(json_object_get(root, "devices"), 0);
	elapsed = number(device, "elapsed_ns");
	busy = number(device, "busy_ns");
	utilisation = 100 * busy / elapsed;
	for (unsigned i = 0; i < n; i++)
		waitpid(pid[i], NULL, 0);
	for (unsigned i = 0; i < n; i++) {
		double error;

		got[i] = attained(device, i);
		error = fabs(got[i] - c->clients[i].target);
		if (!(error <= worst))
			worst = isnan(error) ? 100 : error;
		if (!b->json)
			printf("#   %-22s client %u: target %6.2f, attained %6.2f, billed %6.2f\n", name, i,
				c->clients[i].target, got[i],
				100 * (billed(&after, i) - billed(&before, i)) /
					(double)(after.now_ns - before.now_ns));
	}
	if (!b->json)
		printf("#   %-22s utilisation %6.2f, gpuarb's busy time %+.2f %%\n", name, utilisation,
			100 * ((double)(after.busy_ns - before.busy_ns) / busy - 1));
	bench_ratio(b, name, worst, "points", 1, slices ? 3 * c->allowed : c->allowed);
	if (c->utilisation > 0) {
		char text[80];

		snprintf(text, sizeof(text), "%s/idle", name);
		bench_ratio(b, text, 100 - utilisation, "%", 100 - c->utilisation, 1);
	}
	if (gpuarb_control_check(arb, uuid, say, NULL, NULL) != 0 || after.billed_ns != after.busy_ns) {
		fprintf(stderr, "bench_limits: %s: the bills do not add up\n", name);
		b->failed++;
	}
	json_decref(root);
}

int main(int argc, char **argv)
{
	char command[64], libraries[4200], *slash;
	struct bench b;
	ssize_t length;

	for (int i = 1; i + 1 < argc; i++)
		if (!strcmp(argv[i], "--seconds")) {
			seconds = atof(argv[i + 1]);
			memmove(&argv[i], &argv[i + 2], sizeof(*argv) * (size_t)(argc - i - 1));
			argc -= 2;
			break;
		}
	bench_begin(&b, "limits",
		"[--seconds N]: so long each (20).\n"
		"Cases: alone-10-20us and the like, and with -slices where the GPU gives time slices. The\n"
		"value is the error of the client that is furthest from its target, in points.",
		argc, argv);
	length = readlink("/proc/self/exe", build, sizeof(build) - 1);
	if (length < 0)
		die("/proc/self/exe");
	build[length] = 0;
	if ((slash = strrchr(build, '/')))
		*slash = 0;
	setenv("GPUARB_CONF", "/dev/null", 1);
	if (!mkdtemp(directory))
		die("/dev/shm");
	snprintf(libraries, sizeof(libraries), "%s/sim", build);
	setenv("LD_LIBRARY_PATH", libraries, 1);
	for (int slices = 0; slices < 2; slices++)
		for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
			run(&b, &cases[i], slices);
	snprintf(command, sizeof(command), "rm -rf %s", directory);
	if (system(command) != 0)
		fprintf(stderr, "bench_limits: %s was not removed\n", directory);
	return bench_end(&b);
}
