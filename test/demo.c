/*
 * The demo: three unmodified programs share one GPU, a simulated one. A limit is changed while they run, one
 * is killed, and at the end what each of them got, by the GPU's own books, is compared with its limit.
 *
 *   demo BUILD-DIRECTORY
 */
#include <errno.h>
#include <jansson.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "gpuarb/control.h"

#define MS 1000000ull

static char directory[] = "/dev/shm/gpuarb-demo-XXXXXX";
static const char *build;
static char gpu[1][ARB_UUID_BYTES];

/* One who takes part, and what is expected of it. */
struct player {
	const char *name;
	unsigned limit, new_limit;
	pid_t pid, was;
	uint64_t from_ns, from_got, to_ns,
		to_got; /* the GPU's books when it began to count, and at the end */
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

__attribute__((noreturn)) static void fail(const char *what, const char *why)
{
	fprintf(stderr, "demo: %s: %s\n", what, why);
	for (int i = 0; i < PLAYERS; i++)
		if (players[i].pid > 0)
			kill(players[i].pid, SIGKILL);
	exit(1);
}

/* Launches kernels of 200 us for as long as it is let, and knows of nothing. */
static void play(const struct player *p)
{
	char tool[PATH_MAX], load[PATH_MAX], core[16];

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	snprintf(tool, sizeof(tool), "%s/gpuarb-run", build);
	snprintf(load, sizeof(load), "%s/simload", build);
	snprintf(core, sizeof(core), "%u", p->limit);
	if (!freopen("/dev/null", "w", stdout))
		_exit(1);
	execl(tool, tool, "--sim", "--account", p->name, "--core", core, "--", load, "--kernel-us=200",
		"--duration=60", (char *)NULL);
	_exit(1);
}

/* The GPU's own books: what it gave to a process, and its clock. */
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
		fail("gpusim-report", "no answer");
	*now = (uint64_t)json_integer_value(json_object_get(device, "now_ns"));
	*got = 0;
	json_array_foreach(json_object_get(device, "processes"), i,
		process) if (json_integer_value(json_object_get(process, "pid")) == pid) *got =
		(uint64_t)json_integer_value(json_object_get(process, "device_ns"));
	json_decref(root);
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
		fail("the view", strerror(-r));
}

static void mark(struct player *p, bool end)
{
	ask_gpu(p->was, end ? &p->to_ns : &p->from_ns, end ? &p->to_got : &p->from_got);
}

/* The last second of everybody, as a row. */
static void show(struct gpuarb_view *view, int second)
{
	static uint64_t before[PLAYERS], before_ns, before_busy;

	look(view);
	if (second == 0) {
		printf("%4s %12s", "time", "GPU busy");
		for (int i = 0; i < PLAYERS; i++)
			printf(" %10s", players[i].name);
		printf("\n");
	} else {
		double elapsed = (double)(picture.now_ns - before_ns);

		printf("%3ds %10.1f %%", second, 100 * (double)(picture.busy_ns - before_busy) / elapsed);
		for (int i = 0; i < PLAYERS; i++) {
			const struct gpuarb_view_account *a = account(players[i].name);

			if (a)
				printf(" %8.1f %%", 100 * (double)(a->used_ns - before[i]) / elapsed);
			else
				printf(" %10s", "-");
		}
		printf("\n");
	}
	for (int i = 0; i < PLAYERS; i++) {
		const struct gpuarb_view_account *a = account(players[i].name);

		before[i] = a ? a->used_ns : 0;
	}
	before_ns = picture.now_ns;
	before_busy = picture.busy_ns;
	fflush(stdout);
}

static void change_limit(void)
{
	struct player *p = &players[WEB];
	char value[16];
	struct gpuarb_change change = {.account = p->name, .key = "core", .value = value};
	struct gpuarb_error err;

	snprintf(value, sizeof(value), "%u", p->new_limit);
	if (gpuarb_control_change(NULL, gpu[0], &change, 1, &err) < 0)
		fail("the new limit", err.text);
	printf("     %s: limit %u -> %u, while it runs\n", p->name, p->limit, p->new_limit);
	snprintf(p->story, sizeof(p->story), "limit changed from %u to %u while it ran", p->limit,
		p->new_limit);
	p->limit = p->new_limit;
	mark(p, false);
}

static void kill_one(struct gpuarb_view *view)
{
	struct player *p = &players[DOOMED];
	uint64_t reclaimed, began;

	mark(p, true);
	look(view);
	reclaimed = picture.reclaimed;
	began = now_ns();
	kill(p->pid, SIGKILL);
	waitpid(p->pid, NULL, 0);
	p->pid = 0;
	do {
		if (now_ns() - began > 10000 * MS)
			fail(p->name, "nobody cleaned up behind it");
		usleep(200);
		look(view);
	} while (picture.reclaimed == reclaimed);
	snprintf(p->story, sizeof(p->story), "killed with SIGKILL; a neighbour freed its slot after %.1f ms",
		(double)(now_ns() - began) / 1e6);
	printf("     %s: killed with SIGKILL\n", p->name);
}

static int result(void)
{
	int bad = 0;

	printf("\n%-10s %5s %9s %7s  %s\n", "account", "limit", "attained", "error", "what happened");
	for (int i = 0; i < PLAYERS; i++) {
		struct player *p = &players[i];
		double got = 100 * (double)(p->to_got - p->from_got) / (double)(p->to_ns - p->from_ns);

		printf("%-10s %5u %9.2f %+7.2f  %s\n", p->name, p->limit, got, got - p->limit, p->story);
		/* How exact it is depends on how much of the machine we get; that a limit acts does not. */
		bad += got <= 0 || got > p->limit + 15;
	}
	printf("\nattained: device time by the GPU's own books.  law: bills %.3f s = busy %.3f s\n",
		(double)picture.billed_ns / 1e9, (double)picture.busy_ns / 1e9);
	return bad || picture.billed_ns != picture.busy_ns;
}

/* All three have a context, and wait for their first kernel or have run it. */
static struct gpuarb_view *all_there(void)
{
	struct gpuarb_view *view = NULL;
	struct gpuarb_error err;

	for (int tries = 0; tries < 2000; tries++, usleep(10000)) {
		if (!view && (gpuarb_control_list(NULL, gpu, 1, &err) < 1 ||
				     gpuarb_view_open(NULL, gpu[0], &view, &err) < 0))
			continue;
		look(view);
		if (picture.nclients == PLAYERS)
			return view;
	}
	fail("the programs", "have not all begun to use the GPU within 20 s");
}

int main(int argc, char **argv)
{
	struct gpuarb_view *view;
	char command[64];
	int bad;

	if (argc != 2) {
		fprintf(stderr, "Usage: demo BUILD-DIRECTORY\n");
		return 2;
	}
	build = argv[1];
	if (!mkdtemp(directory))
		fail(directory, strerror(errno));
	setenv("GPUARB_DIR", directory, 1);
	setenv("GPUARB_CONF", "/dev/null", 1);
	setenv("GPUSIM_DIR", directory, 1);
	setenv("GPUSIM_MODE", "share", 0);
	printf("Three unmodified programs that each want all of a (simulated) GPU:\n\n");
	for (int i = 0; i < PLAYERS; i++)
		printf("    gpuarb-run --account %-6s --core %u -- simload --kernel-us=200\n",
			players[i].name, players[i].limit);
	printf("\n");
	fflush(stdout);
	for (int i = 0; i < PLAYERS; i++) {
		if ((players[i].pid = fork()) == 0)
			play(&players[i]);
		players[i].was = players[i].pid;
	}
	view = all_there();
	usleep(500000);
	show(view, 0);
	mark(&players[BATCH], false);
	mark(&players[DOOMED], false);
	for (int second = 1; second <= 8; second++) {
		usleep(1000000);
		show(view, second);
		if (second == 2)
			change_limit();
		if (second == 5)
			kill_one(view);
	}
	mark(&players[WEB], true);
	mark(&players[BATCH], true);
	bad = result();
	for (int i = 0; i < PLAYERS; i++)
		if (players[i].pid > 0) {
			kill(players[i].pid, SIGKILL);
			waitpid(players[i].pid, NULL, 0);
		}
	gpuarb_view_close(view);
	snprintf(command, sizeof(command), "rm -rf %s", directory);
	if (system(command) != 0)
		fprintf(stderr, "demo: %s was not removed\n", directory);
	if (bad)
		fprintf(stderr, "demo: the limits did not act\n");
	return bad ? 1 : 0;
}
