/*
 * The demo: three unmodified programs share one GPU, which is simulated unless a real one is named. gpuarb-top shows
 * them. A limit is changed while they run, one program is killed, and at the end the share that each got is compared
 * with its limit.
 *
 *   demo BUILD-DIRECTORY [GPU]
 */
#include <dlfcn.h>
#include <errno.h>
#include <jansson.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "gpuarb/control.h"
#include "units.h"

#define PHASE  4 /* seconds of each of the three scenes */
#define SETTLE 1 /* time after a change that is not measured */

static char directory[] = "/dev/shm/gpuarb-demo-XXXXXX";
static const char *build;
static const char *real; /* the real GPU; NULL: the simulated one */
static char gpu[1][ARB_UUID_BYTES];
static bool terminal;
static pid_t viewer; /* gpuarb-top, while it has the screen */
static volatile sig_atomic_t stopped;

/* A program of the demo, and what is expected of it. */
struct player {
	const char *name;
	unsigned limit, new_limit;
	pid_t pid, was;
	uint64_t from_ns, from_got, to_ns, to_got; /* the books when it began to count, and at the end */
	char story[96];
};

static struct player players[] = {{.name = "web", .limit = 30, .new_limit = 50},
	{.name = "batch", .limit = 20}, {.name = "doomed", .limit = 25}};
enum { WEB, BATCH, DOOMED, PLAYERS };

static struct gpuarb_picture picture;

static uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

/* Ends and removes all that the demo has started and made, however the demo ends. */
static void clear_up(void)
{
	char command[64];

	if (viewer > 0) {
		kill(viewer, SIGTERM);
		waitpid(viewer, NULL, 0);
	}
	for (int i = 0; i < PLAYERS; i++)
		if (players[i].pid > 0) {
			kill(players[i].pid, SIGKILL);
			waitpid(players[i].pid, NULL, 0);
		}
	snprintf(command, sizeof(command), "rm -rf %s", directory);
	if (system(command) != 0)
		fprintf(stderr, "demo: %s was not removed\n", directory);
}

__attribute__((noreturn, format(printf, 1, 2))) static void fail(const char *format, ...)
{
	va_list ap;

	clear_up();
	fprintf(stderr, "demo: ");
	va_start(ap, format);
	vfprintf(stderr, format, ap);
	va_end(ap);
	fputc('\n', stderr);
	exit(1);
}

static void on_signal(int signal)
{
	(void)signal;
	stopped = 1;
}

static void pause_s(double s)
{
	uint64_t until = now_ns() + (uint64_t)(s * 1e9);

	while (now_ns() < until && !stopped)
		usleep(20000);
	if (stopped)
		fail("interrupted; everything that it started has been ended");
}

/* Says what is being done. On a terminal, where gpuarb-top has the screen, it is said at the end. */
static char told[1024];

__attribute__((format(printf, 1, 2))) static void say(const char *format, ...)
{
	size_t used = strlen(told);
	va_list ap;

	/* The user may have closed gpuarb-top. */
	if (viewer > 0 && waitpid(viewer, NULL, WNOHANG) != 0)
		viewer = 0;
	va_start(ap, format);
	if (viewer)
		vsnprintf(told + used, sizeof(told) - used, format, ap);
	else
		vprintf(format, ap);
	va_end(ap);
	fflush(stdout);
}

/* Launches kernels of 200 us for as long as it may, and knows nothing of limits. */
static void play(const struct player *p)
{
	char tool[PATH_MAX], load[PATH_MAX], core[16];

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	signal(SIGINT, SIG_IGN); /* from the terminal: we end it */
	snprintf(tool, sizeof(tool), "%s/gpuarb-run", build);
	snprintf(load, sizeof(load), "%s/simload", build);
	snprintf(core, sizeof(core), "%u", p->limit);
	if (!freopen("/dev/null", "w", stdout))
		_exit(1);
	if (real)
		execl(tool, tool, "--gpu", real, "--account", p->name, "--core", core, "--", load,
			"--kernel-us=200", "--duration=60", (char *)NULL);
	else
		execl(tool, tool, "--sim", "--account", p->name, "--core", core, "--", load,
			"--kernel-us=200", "--duration=60", (char *)NULL);
	_exit(1);
}

static const struct gpuarb_view_account *account(const char *name)
{
	for (unsigned i = 0; i < picture.naccounts; i++)
		if (strcmp(picture.accounts[i].name, name) == 0)
			return &picture.accounts[i];
	return NULL;
}

static void look(struct gpuarb_view *view)
{
	int r = gpuarb_view_read(view, &picture);

	if (r < 0)
		fail("the segment cannot be read: %s", strerror(-r));
}

/* Asks the simulated GPU's own books: the time that it gave to a process, and its clock. */
static void ask_gpu(pid_t pid, uint64_t *now, uint64_t *got)
{
	char command[PATH_MAX + 64];
	json_t *root, *device, *process;
	size_t i;
	FILE *pipe;

	snprintf(command, sizeof(command), "%s/sim/gpusim-report --json", build);
	pipe = popen(command, "r");
	root = pipe ? json_loadf(pipe, 0, NULL) : NULL;
	if (pipe)
		pclose(pipe);
	device = json_array_get(json_object_get(root, "devices"), 0);
	if (!device)
		fail("gpusim-report gives no answer");
	*now = (uint64_t)json_integer_value(json_object_get(device, "now_ns"));
	*got = 0;
	json_array_foreach(json_object_get(device, "processes"), i, process)
	{
		if (json_integer_value(json_object_get(process, "pid")) == pid)
			*got = (uint64_t)json_integer_value(json_object_get(process, "device_ns"));
	}
	json_decref(root);
}

/* Notes how much a program has got so far. A real GPU keeps no such books, so there gpuarb's bills are taken. */
static void mark(struct gpuarb_view *view, struct player *p, bool end)
{
	uint64_t *now = end ? &p->to_ns : &p->from_ns, *got = end ? &p->to_got : &p->from_got;
	const struct gpuarb_view_account *a;

	if (!real) {
		ask_gpu(p->was, now, got);
		return;
	}
	look(view);
	a = account(p->name);
	*now = picture.now_ns;
	*got = a ? a->used_ns : 0;
}

/* Shows gpuarb-top for as long as the three scenes take, if there is a terminal; otherwise a table for each. */
static void open_screen(void)
{
	char tool[PATH_MAX];

	snprintf(tool, sizeof(tool), "%s/gpuarb-top", build);
	fflush(stdout);
	viewer = fork();
	if (viewer < 0)
		fail("fork: %s", strerror(errno));
	if (viewer == 0) {
		prctl(PR_SET_PDEATHSIG, SIGTERM);
		execl(tool, tool, "--interval", "500", (char *)NULL);
		_exit(127);
	}
}

static void close_screen(void)
{
	if (viewer > 0) {
		kill(viewer, SIGTERM);
		waitpid(viewer, NULL, 0);
	}
	viewer = 0;
	printf("%s", told);
}

static void scene(double seconds)
{
	char command[PATH_MAX + 64];

	if (terminal) {
		pause_s(seconds);
		return;
	}
	pause_s(seconds - 1.5);
	printf("\n");
	fflush(stdout);
	snprintf(command, sizeof(command), "%s/gpuarb-top --once --interval 1500 --width 120", build);
	if (system(command) != 0)
		fail("gpuarb-top --once failed");
}

static void change_limit(struct gpuarb_view *view)
{
	struct player *p = &players[WEB];
	char value[16];
	struct gpuarb_change change = {.account = p->name, .key = "core", .value = value};
	struct gpuarb_error err;

	say("-- %s gets %u instead of %u percent, while it runs: gpuarb-set --account %s core=%u\n", p->name,
		p->new_limit, p->limit, p->name, p->new_limit);
	snprintf(value, sizeof(value), "%u", p->new_limit);
	if (gpuarb_control_change(NULL, gpu[0], &change, 1, &err) < 0)
		fail("the new limit: %s", err.text);
	snprintf(p->story, sizeof(p->story), "limit changed from %u to %u while it ran", p->limit,
		p->new_limit);
	p->limit = p->new_limit;
	pause_s(SETTLE);
	mark(view, p, false);
}

static void kill_one(struct gpuarb_view *view)
{
	struct player *p = &players[DOOMED];
	uint64_t reclaimed, began;

	say("-- %s is killed: kill -9 %d\n", p->name, (int)p->pid);
	mark(view, p, true);
	look(view);
	reclaimed = picture.reclaimed;
	began = now_ns();
	kill(p->pid, SIGKILL);
	waitpid(p->pid, NULL, 0);
	p->pid = 0;
	do {
		if (now_ns() - began > 10000 * MS)
			fail("nobody cleaned up behind %s within 10 s", p->name);
		usleep(200);
		look(view);
	} while (picture.reclaimed == reclaimed);
	snprintf(p->story, sizeof(p->story), "killed with SIGKILL; a neighbour freed its slot after %.1f ms",
		(double)(now_ns() - began) / 1e6);
}

static int result(void)
{
	int bad = 0;

	printf("\n%-10s %5s %9s %7s  %s\n", "account", "limit", "attained", "error", "what happened");
	for (int i = 0; i < PLAYERS; i++) {
		struct player *p = &players[i];
		double got = 100 * (double)(p->to_got - p->from_got) / (double)(p->to_ns - p->from_ns);

		printf("%-10s %5u %9.2f %+7.2f  %s\n", p->name, p->limit, got, got - p->limit, p->story);
		/* How exact a limit is depends on how much of the machine we get. That a limit acts does not. */
		bad += got <= 0 || got > p->limit + 15;
	}
	printf("\nattained: percent of the GPU's time, %s.  law: bills %.3f s = busy %.3f s\n",
		real ? "as gpuarb billed it" : "by the GPU's own books", (double)picture.billed_ns / 1e9,
		(double)picture.busy_ns / 1e9);
	return bad || picture.billed_ns != picture.busy_ns;
}

/* Waits until all three programs have a context and wait for their first kernel or have run it. */
static struct gpuarb_view *all_there(void)
{
	struct gpuarb_view *view = NULL;
	struct gpuarb_error err;

	for (int tries = 0; tries < 2000; tries++, usleep(10000)) {
		for (int i = 0; i < PLAYERS; i++)
			if (waitpid(players[i].pid, NULL, WNOHANG) > 0) {
				players[i].pid = 0;
				fail("%s has ended before it began; what is wrong was said above",
					players[i].name);
			}
		if (stopped)
			fail("interrupted");
		if (!view && (gpuarb_control_list(NULL, gpu, 1, &err) < 1 ||
				     gpuarb_view_open(NULL, gpu[0], &view, &err) < 0))
			continue;
		look(view);
		if (picture.nclients == PLAYERS)
			return view;
	}
	fail("the programs have not all begun to use the GPU within 20 s");
}

static void start_all(void)
{
	printf("Three unmodified programs, each of which wants all of %s:\n\n",
		real ? "the GPU" : "a (simulated) GPU");
	for (int i = 0; i < PLAYERS; i++)
		printf("    gpuarb-run --account %-6s --core %u -- simload --kernel-us=200\n",
			players[i].name, players[i].limit);
	printf("\n");
	fflush(stdout);
	for (int i = 0; i < PLAYERS; i++) {
		players[i].pid = fork();
		if (players[i].pid == 0)
			play(&players[i]);
		if (players[i].pid < 0)
			fail("fork: %s", strerror(errno));
		players[i].was = players[i].pid;
	}
}

static void prepare(int argc, char **argv)
{
	struct sigaction action = {.sa_handler = on_signal};

	if (argc < 2 || argc > 3) {
		fprintf(stderr, "Usage: demo BUILD-DIRECTORY [GPU]\n");
		exit(2);
	}
	build = argv[1];
	real = argc == 3 && *argv[2] ? argv[2] : NULL;
	if (real && !dlopen("libcuda.so.1", RTLD_NOW)) {
		fprintf(stderr,
			"demo: GPU %s: there is no NVIDIA driver here (libcuda.so.1); without GPU= the demo "
			"takes a simulated one\n",
			real);
		exit(1);
	}
	if (!mkdtemp(directory)) {
		fprintf(stderr, "demo: cannot make %s: %s\n", directory, strerror(errno));
		exit(1);
	}
	terminal = isatty(STDOUT_FILENO) && isatty(STDIN_FILENO);
	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
	setenv("GPUARB_DIR", directory, 1);
	setenv("GPUARB_CONF", "/dev/null", 1);
	setenv("GPUSIM_DIR", directory, 1);
	setenv("GPUSIM_MODE", "share", 0);
}

int main(int argc, char **argv)
{
	struct gpuarb_view *view;
	int bad;

	prepare(argc, argv);
	start_all();
	view = all_there();
	if (terminal) {
		printf("gpuarb-top shows them for %d seconds; meanwhile a limit is changed and one is "
		       "killed.\n",
			3 * PHASE);
		pause_s(2);
		open_screen();
	}
	pause_s(SETTLE);
	mark(view, &players[BATCH], false);
	mark(view, &players[DOOMED], false);
	scene(PHASE);
	change_limit(view);
	scene(PHASE - SETTLE);
	kill_one(view);
	scene(PHASE);
	mark(view, &players[WEB], true);
	mark(view, &players[BATCH], true);
	look(view);
	if (terminal)
		close_screen();
	bad = result();
	gpuarb_view_close(view);
	clear_up();
	if (bad)
		fprintf(stderr, "demo: the limits did not act\n");
	return bad ? 1 : 0;
}
