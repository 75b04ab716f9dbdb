/*
 * The demo: three processes share one GPU through its segment. A limit is changed while they run, one is
 * killed, and at the end the bills are compared with the limits. Exits with 1 if they do not agree.
 */
#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "gpuarb/client.h"
#include "gpuarb/control.h"

#define GPU "GPU-demo"
#define MS  1000000ull

static char directory[] = "/dev/shm/gpuarb-demo-XXXXXX";

/* One who takes part, and what is expected of it. */
struct player {
	const char *name;
	unsigned limit, new_limit;
	pid_t pid;
	uint64_t from_ns, from_used, to_ns, to_used;
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

/* Wants the GPU all the time: waits for its turn, uses it until its quota is gone, waits again. */
static void play(const struct player *p)
{
	struct gpuarb_options options = {
		.gpu = GPU, .dir = directory, .conf = "/dev/null", .account = p->name, .core_pct = p->limit};
	struct gpuarb_client *client;
	struct gpuarb_error err;
	int r;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (gpuarb_client_open(&options, &client, &err) < 0)
		fail(p->name, err.text);
	for (;;) {
		r = gpuarb_client_wait(client, NULL, 1000 * MS);
		while (r == 0) {
			usleep(500);
			r = gpuarb_client_tick(client);
		}
		if (r != -EDQUOT && r != -ETIMEDOUT)
			fail(p->name, strerror(-r));
		gpuarb_client_leave(client, 0);
	}
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
	const struct gpuarb_view_account *a = account(p->name);

	if (!a)
		fail(p->name, "is not in the segment");
	*(end ? &p->to_ns : &p->from_ns) = picture.now_ns;
	*(end ? &p->to_used : &p->from_used) = a->used_ns;
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

static void change_limit(struct gpuarb_view *view)
{
	struct player *p = &players[WEB];
	char value[16];
	struct gpuarb_change change = {.account = p->name, .key = "core", .value = value};
	struct gpuarb_error err;

	snprintf(value, sizeof(value), "%u", p->new_limit);
	if (gpuarb_control_change(directory, GPU, &change, 1, &err) < 0)
		fail("the new limit", err.text);
	printf("     %s: limit %u -> %u, while it runs\n", p->name, p->limit, p->new_limit);
	snprintf(p->story, sizeof(p->story), "limit changed from %u to %u while it ran", p->limit,
		p->new_limit);
	p->limit = p->new_limit;
	look(view);
	mark(p, false);
}

static void kill_one(struct gpuarb_view *view)
{
	struct player *p = &players[DOOMED];
	uint64_t reclaimed, began;

	look(view);
	mark(p, true);
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
		double got = 100 * (double)(p->to_used - p->from_used) / (double)(p->to_ns - p->from_ns);

		printf("%-10s %5u %9.2f %+7.2f  %s\n", p->name, p->limit, got, got - p->limit, p->story);
		/* A loose bound for busy machines; build/bench_limits is the place for exact figures. */
		bad += fabs(got - p->limit) > 5;
	}
	printf("\nlaw: bills %.3f s = busy %.3f s\n", (double)picture.billed_ns / 1e9,
		(double)picture.busy_ns / 1e9);
	return bad || picture.billed_ns != picture.busy_ns;
}

int main(void)
{
	struct gpuarb_view *view;
	struct gpuarb_error err;
	char command[64];
	int bad;

	if (!mkdtemp(directory))
		fail(directory, strerror(errno));
	printf("Three processes that each want the whole GPU: web may have 30 %%, batch 20 %%, doomed 25 "
	       "%%.\n");
	printf("The GPU's time is simulated by the clock; what is shown are the bills in its segment.\n\n");
	fflush(stdout);
	for (int i = 0; i < PLAYERS; i++)
		if ((players[i].pid = fork()) == 0)
			play(&players[i]);
	for (int tries = 0; gpuarb_view_open(directory, GPU, &view, &err) < 0; tries++) {
		if (tries == 500)
			fail("the view", err.text);
		usleep(10000);
	}
	usleep(500000);
	show(view, 0);
	mark(&players[BATCH], false);
	mark(&players[DOOMED], false);
	for (int second = 1; second <= 8; second++) {
		usleep(1000000);
		show(view, second);
		if (second == 2)
			change_limit(view);
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
		fprintf(stderr, "demo: the bills are not what the limits say; is the machine very busy?\n");
	return bad ? 1 : 0;
}
