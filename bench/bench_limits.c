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

#include "limits_cases.h"
#include "report.h"

#define WARM_S 1.0
/* gpuarb's busy time may be so far from the GPU's own. */
#define LAW_PERCENT 1.0

struct mode {
	const char *suffix, *mode, *slice_us;
	double allowance;
};

static const struct mode modes[] = {
	{"", "share", "2000", 1},
	{"-slices", "timeslice", "2000", 3},
	{"-slices1930", "timeslice", "1930", 3},
};

/* One case under way. */
struct run {
	const struct limits_case *what;
	char name[64], sim[128], arb[128], uuid[64];
	unsigned n;
	pid_t pid[CLIENTS];
	double elapsed_s, busy_s, got[CLIENTS];
	double tracker_s; /* of the first client */
	struct gpuarb_picture before, after;
};

static char directory[] = "/dev/shm/gpuarb-limits-XXXXXX", build[4096];
static double seconds = 20;

static void die(const char *what)
{
	fprintf(stderr, "bench_limits: %s: %s\n", what, strerror(errno));
	exit(1);
}

static void out_path(char *path, size_t size, unsigned index)
{
	snprintf(path, size, "%s/out.%u", directory, index);
}

static pid_t start(const struct client *c, unsigned index, bool arbitrated)
{
	char *argv[24], kernel[64], duration[64], account[32], limit[16], path[256], program[4200],
		preload[4200];
	char more[256] = "", *rest;
	pid_t pid;
	int argc = 0, fd;

	out_path(path, sizeof(path), index);
	unlink(path);
	pid = fork();
	if (pid < 0)
		die("fork");
	if (pid)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
	if (fd < 0 || dup2(fd, STDOUT_FILENO) < 0)
		die(path);
	snprintf(account, sizeof(account), "client%u", index);
	snprintf(limit, sizeof(limit), "%u", c->limit ? c->limit : 100);
	snprintf(preload, sizeof(preload), "%s/libgpuarb-preload.so", build);
	setenv("GPUARB_ACCOUNT", account, 1);
	setenv("GPUARB_CORE_LIMIT", limit, 1);
	if (arbitrated)
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

static double device_share(const json_t *device, double pid)
{
	json_t *process;
	size_t i;

	json_array_foreach(json_object_get(device, "processes"), i, process)
	{
		if (number(process, "pid") == pid)
			return 100 * number(process, "device_ns") / number(device, "elapsed_ns");
	}
	return NAN;
}

/* The processes of a client are known by what it printed at its end; one that had to be killed was alone. */
static double attained(const json_t *device, unsigned index, pid_t killed)
{
	char path[256];
	json_error_t error;
	json_t *out, *process;
	double got = 0;
	size_t i;

	if (killed)
		return device_share(device, killed);
	out_path(path, sizeof(path), index);
	out = json_load_file(path, 0, &error);
	if (!out)
		return NAN;
	json_array_foreach(json_object_get(out, "processes"), i, process)
	{
		got += device_share(device, number(process, "pid"));
	}
	json_decref(out);
	return got;
}

static void say(void *argument, const char *sentence)
{
	(void)argument;
	fprintf(stderr, "bench_limits: %s\n", sentence);
}

static void look(struct run *r, struct gpuarb_picture *picture)
{
	struct gpuarb_error err = {0};
	struct gpuarb_view *view;

	if (gpuarb_view_open(r->arb, r->uuid, &view, &err) < 0) {
		fprintf(stderr, "bench_limits: %s\n", err.text);
		exit(1);
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
	if (gpuarb_control_change(r->arb, r->uuid, &change, 1, &err) < 0) {
		fprintf(stderr, "bench_limits: %s\n", err.text);
		exit(1);
	}
}

/* So long as the case is measured; an even number of seconds for one that changes. */
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

static void finish(struct run *r, const json_t *device)
{
	const struct limits_case *c = r->what;

	for (unsigned i = 0; i < r->n; i++) {
		pid_t killed = c->clients[i].target == 0 ? r->pid[i] : 0;

		if (killed)
			kill(killed, SIGKILL);
		waitpid(r->pid[i], NULL, 0);
		r->got[i] = attained(device, i, killed);
	}
	r->elapsed_s = number(device, "elapsed_ns") / 1e9;
	r->busy_s = number(device, "busy_ns") / 1e9;
}

static void prepare(struct run *r, const struct mode *mode)
{
	snprintf(r->sim, sizeof(r->sim), "%s/sim.%s", directory, r->name);
	snprintf(r->arb, sizeof(r->arb), "%s/arb.%s", directory, r->name);
	setenv("GPUSIM_DIR", r->sim, 1);
	setenv("GPUARB_DIR", r->arb, 1);
	setenv("GPUSIM_MODE", mode->mode, 1);
	setenv("GPUSIM_SLICE_US", mode->slice_us, 1);
	mkdir(r->sim, 0700);
	mkdir(r->arb, 0700);
	if (r->what->policy)
		setenv("GPUARB_POLICY", r->what->policy, 1);
	else
		unsetenv("GPUARB_POLICY");
}

static void find_device(struct run *r, json_t *root)
{
	const json_t *device = json_array_get(json_object_get(root, "devices"), 0);

	snprintf(r->uuid, sizeof(r->uuid), "%s", json_string_value(json_object_get(device, "uuid")));
	json_decref(root);
}

static void measure(struct run *r, bool arbitrated)
{
	const struct limits_case *c = r->what;
	json_t *root;

	for (r->n = 0; r->n < CLIENTS && c->clients[r->n].kernel_us > 0; r->n++)
		r->pid[r->n] = start(&c->clients[r->n], r->n, arbitrated);
	usleep((useconds_t)(WARM_S * 1e6));
	find_device(r, device_report("--reset"));
	if (arbitrated)
		look(r, &r->before);
	r->tracker_s = -bench_tracker_s(r->pid[0]);
	pass_time(r);
	r->tracker_s += bench_tracker_s(r->pid[0]);
	root = device_report("");
	if (arbitrated)
		look(r, &r->after);
	finish(r, json_array_get(json_object_get(root, "devices"), 0));
	json_decref(root);
}

static void part(char *text, size_t size, const struct run *r, const char *what)
{
	snprintf(text, size, "%s/%s", r->name, what);
}

static void judge(struct bench *b, const struct run *r, const struct mode *mode)
{
	const struct limits_case *c = r->what;
	double utilisation = 100 * r->busy_s / r->elapsed_s, worst = 0, apart = 0;
	double law = 100 * ((double)(r->after.busy_now_ns - r->before.busy_now_ns) / 1e9 / r->busy_s - 1);
	char text[80];

	for (unsigned i = 0; i < r->n; i++) {
		double target = c->clients[i].target, error = fabs(r->got[i] - target);
		double bill = fabs(r->got[i] - billed(r, i));

		if (target != WHATEVER && !(error <= worst))
			worst = isnan(error) ? 100 : error;
		if (!(bill <= apart))
			apart = isnan(bill) ? 100 : bill;
		if (!b->json)
			printf("#   %-22s client %u: target %6.2f, attained %6.2f, billed %6.2f\n", r->name,
				i, target, r->got[i], billed(r, i));
	}
	if (!b->json)
		printf("#   %-22s utilisation %6.2f, gpuarb's busy time %+.2f %%\n", r->name, utilisation,
			law);
	bench_ratio(b, r->name, worst, "points", 1, mode->allowance * c->allowed);
	part(text, sizeof(text), r, "law");
	bench_ratio(b, text, fabs(law), "%", LAW_PERCENT, mode->allowance);
	part(text, sizeof(text), r, "tracker");
	bench_ratio(b, text, 100 * r->tracker_s / r->elapsed_s, "% CPU", 1, 1);
	if (c->utilisation > 0) {
		part(text, sizeof(text), r, "idle");
		bench_ratio(b, text, 100 - utilisation, "%", 100 - c->utilisation, mode->allowance);
	}
	if (c->bill > 0) {
		part(text, sizeof(text), r, "bill");
		bench_ratio(b, text, apart, "points", c->bill, mode->allowance);
	}
	if (gpuarb_control_check(r->arb, r->uuid, say, NULL, NULL) != 0 ||
		r->after.billed_ns != r->after.busy_ns) {
		fprintf(stderr, "bench_limits: %s: the bills do not add up\n", r->name);
		b->failed++;
	}
}

static void run_case(struct bench *b, const struct limits_case *c, const struct mode *mode)
{
	static struct run r;

	memset(&r, 0, sizeof(r));
	r.what = c;
	snprintf(r.name, sizeof(r.name), "%s%s", c->name, mode->suffix);
	if (!bench_wants(b, r.name))
		return;
	prepare(&r, mode);
	measure(&r, true);
	judge(b, &r, mode);
}

/* One without a limit, and nobody beside it: what it loses by being arbitrated. */
static void run_unlimited(struct bench *b, const struct mode *mode)
{
	static const struct limits_case alone = {"unlimited", 0, 0, {{0, 20, NULL, 100}}, NULL, 0, 0};
	static struct run r;
	double busy[2];

	for (int arbitrated = 0; arbitrated < 2; arbitrated++) {
		memset(&r, 0, sizeof(r));
		r.what = &alone;
		snprintf(r.name, sizeof(r.name), "unlimited%s", mode->suffix);
		if (!bench_wants(b, r.name))
			return;
		prepare(&r, mode);
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

/* From gpuarb-set's return to the first work of a client that was asleep, throttled at 1 percent. */
static void run_latency(struct bench *b, const struct mode *mode)
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
	snprintf(r.name, sizeof(r.name), "change-latency%s", mode->suffix);
	if (!bench_wants(b, r.name))
		return;
	prepare(&r, mode);
	r.pid[0] = start(&asleep.clients[0], 0, true);
	usleep((useconds_t)(WARM_S * 1e6));
	find_device(&r, device_report(""));
	if (gpuarb_view_open(r.arb, r.uuid, &view, &err) < 0) {
		fprintf(stderr, "bench_limits: %s\n", err.text);
		exit(1);
	}
	for (unsigned i = 0; i < n; i++) {
		uint64_t began;

		set_limit(&r, 1);
		usleep(350000 + i % 7 * 13000);
		gpuarb_view_read(view, &r.before);
		set_limit(&r, 100);
		began = bench_now_ns();
		/* Without spinning: the one that is woken would have to wait for this processor. */
		do {
			usleep(100);
			gpuarb_view_read(view, &r.after);
		} while (account_ns(&r.after, 0) == account_ns(&r.before, 0) &&
			 bench_now_ns() - began < 1000000000);
		took[i] = (double)(bench_now_ns() - began) / 1e6;
	}
	gpuarb_view_close(view);
	kill(r.pid[0], SIGKILL);
	waitpid(r.pid[0], NULL, 0);
	qsort(took, n, sizeof(took[0]), by_size);
	/* Nine of ten: now and then the machine itself takes longer to wake anybody. */
	bench_ratio(b, r.name, took[n * 9 / 10 - 1], "ms", 5, 1);
	part(text, sizeof(text), &r, "median");
	bench_show(b, text, took[n / 2], "ms", 5);
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
		"Cases: alone-10-20us and the like, and with -slices (2.0 ms) and -slices1930 (1.93 ms) "
		"where\n"
		"the GPU gives time slices. The value is the error of the client that is furthest from its\n"
		"target, in points; NAME/law is how far gpuarb's busy time is from the GPU's, in percent;\n"
		"NAME/tracker is what the preload's thread in the first client costs.",
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
	for (size_t m = 0; m < sizeof(modes) / sizeof(modes[0]); m++) {
		for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
			run_case(&b, &cases[i], &modes[m]);
		run_unlimited(&b, &modes[m]);
		run_latency(&b, &modes[m]);
	}
	snprintf(command, sizeof(command), "rm -rf %s", directory);
	if (system(command) != 0)
		fprintf(stderr, "bench_limits: %s was not removed\n", directory);
	return bench_end(&b);
}
