/*
 * Kills a client at every instruction boundary of every operation, and checks whether the survivors can go on. There
 * are two techniques: real kills, where the kernel drops the victim's locks, at every boundary (--all) or at evenly
 * spread ones; and recovery of a copy of the segment as it is at each boundary.
 */
#include "test/crash/crash.h"

#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "test/crash/stepper.h"

#define RUN_SECONDS 60
/* In a loop of thousands of turns it takes many stops to reach a boundary. Boundaries that cost more than this are
 * sampled. */
#define COST_MAX 300

static struct options {
	bool all;
	bool pause; /* the victim is not killed but held up, and goes on after others have done something */
	unsigned kills;  /* of each operation, unless all */
	unsigned states; /* states to be recovered of each operation, unless all */
	unsigned seed;
	unsigned jobs;
	const char *only;
} options = {.kills = 60, .states = 250, .jobs = 2};

static struct world world;
static struct stepper_path path;
static pid_t victim;
/* The first runs in a world take other paths than later ones, so they are neither recorded nor counted. */
static enum { WARMING_UP, RECORDING, KILLING } phase;

static volatile sig_atomic_t interrupted;

static void interrupt(int number)
{
	interrupted = number;
}

static void too_late(int number)
{
	static const char text[] = "crash: a run did not end in time\n";

	(void)number;
	if (write(2, text, sizeof(text) - 1) < 0)
		_exit(2);
	fprintf(stderr, "crash: it was %s, after %zu instructions\n", world.op->name, world.step);
	_exit(1);
}

/* Called at each boundary of the recorded run. */
static void look(void *argument, size_t n)
{
	struct world *w = argument;

	w->step = n;
	w->address = path.rip[n];
	if (!options.all && n % 16)
		return;
	alarm(RUN_SECONDS);
	if (options.pause || w->op->creates || w->op->real || w->broken)
		return;
	if (options.all || w->tally->states < options.states)
		world_recover_copy(w);
	if (w->op->each)
		w->op->each(w);
}

/* Strikes while the survivors sleep, or between two of their calls, so they see nothing of it. */
static void strike(struct world *w)
{
	int r;

	if (phase == WARMING_UP) {
		w->step = 0;
	} else if (w->op->asleep) {
		struct timespec ts = {0, 100000 * (1 + rand() % 30)};

		stepper_release(victim);
		nanosleep(&ts, NULL);
	} else if (phase == RECORDING) {
		r = stepper_record(victim, &path, options.all, look, w);
		if (r < 0)
			world_wrong(w, "the victim went away while it was stepped: %s", strerror(-r));
		w->tally->boundaries = path.length + 1;
		w->step = path.length;
	} else {
		w->address = stepper_go(victim, &path, w->step);
		w->tally->drifted += w->address != path.rip[w->step];
	}
	if (phase == KILLING && options.pause) {
		world_disturb(w);
		if (!stepper_finish(victim))
			goto counted;
	}
	if (!stepper_kill(victim))
		world_wrong(w, "the victim did not live to be killed");
counted:
	w->tally->kills += phase != WARMING_UP;
}

static void run_once(struct world *w)
{
	alarm(RUN_SECONDS);
	w->runs++;
	world_align(w);
	if (w->op->arrange)
		w->op->arrange(w);
	world_bury(w);
	victim = stepper_spawn(world_child, w);
	if (victim < 0) {
		world_wrong(w, "the victim did not get to the beginning");
	} else {
		if (w->op->before)
			w->op->before(w);
		if (w->op->waits)
			world_wait(w, strike);
		else
			strike(w);
		world_recover(w);
	}
	if (w->broken || w->op->creates) {
		world_close(w);
		world_open(w);
	}
}

static bool worth_it(size_t n)
{
	uint32_t stride = 1;

	if (path.cost[n] <= COST_MAX)
		return true;
	while (stride < path.cost[n] / 4)
		stride *= 2;
	return n % stride == 0;
}

/* Chooses the boundaries to be tried and returns how many they are. */
static size_t choose(size_t *chosen)
{
	size_t count = 0, kept = 0, stride, first;

	for (size_t n = 0; n < path.length; n++)
		if (worth_it(n))
			chosen[count++] = n;
	if (options.all)
		return count;
	stride = count / options.kills + 1;
	first = (size_t)rand() % stride;
	for (size_t i = first; i < count; i += stride)
		chosen[kept++] = chosen[i];
	return kept;
}

static void run_op(unsigned number, const char *dir, struct crash_tally *tally)
{
	struct world *w = &world;
	size_t *chosen, count;

	srand(options.seed + number);
	w->op = &crash_ops[number];
	w->tally = tally;
	snprintf(w->dir, sizeof(w->dir), "%s/%u", dir, number);
	if (!w->op->real)
		world_clock_start();
	world_open(w);
	for (int i = 0; i < 2; i++)
		run_once(w);
	phase = w->op->asleep ? KILLING : RECORDING;
	for (unsigned i = 0; w->op->asleep && i < (options.all ? 500 : 20); i++)
		run_once(w);
	if (phase == RECORDING) {
		run_once(w);
		phase = KILLING;
		chosen = calloc(path.length + 1, sizeof(*chosen));
		count = chosen ? choose(chosen) : 0;
		for (size_t i = 0; i < count; i++) {
			w->step = chosen[i];
			run_once(w);
		}
		free(chosen);
	}
	world_close(w);
	stepper_free(&path);
	tally->done = true;
}

static void print(const struct crash_op *op, const struct crash_tally *t)
{
	printf("%-32s %9llu %9llu %9llu %9llu %10llu%s\n", op->name, (unsigned long long)t->boundaries,
		(unsigned long long)t->kills, (unsigned long long)t->drifted, (unsigned long long)t->states,
		(unsigned long long)t->violations, t->done ? "" : "  did not finish");
	fflush(stdout);
}

static bool is_wanted(const struct crash_op *op)
{
	/* While a segment is created there are no survivors to disturb the creator. With the real clock nobody knows
	 * when to. */
	if (options.pause && (op->creates || op->real))
		return false;
	if (options.only)
		return strstr(op->name, options.only) != NULL;
	return options.all || !(op->is_long || (op->has_many && options.pause));
}

static int run_all(const char *dir, struct crash_tally *tally)
{
	pid_t *pid = calloc(crash_nops, sizeof(*pid));
	unsigned next = 0, running = 0;
	struct crash_tally sum = {0};

	printf("%-32s %9s %9s %9s %9s %10s\n", "operation", "points", options.pause ? "paused" : "killed",
		"drifted", "copies", "violations");
	fflush(stdout);
	while (!interrupted && (next < crash_nops || running)) {
		while (next < crash_nops && running < options.jobs) {
			const struct crash_op *op = &crash_ops[next];

			if (is_wanted(op)) {
				pid[next] = fork();
				if (pid[next] == 0) {
					/* When it ends, its children are killed. */
					prctl(PR_SET_PDEATHSIG, SIGKILL);
					signal(SIGINT, SIG_DFL);
					signal(SIGTERM, SIG_DFL);
					signal(SIGALRM, too_late);
					run_op(next, dir, &tally[next]);
					_exit(0);
				}
				running++;
			}
			next++;
		}
		if (running) {
			pid_t ended = wait(NULL);

			for (unsigned i = 0; i < next; i++)
				if (pid[i] == ended && ended > 0)
					print(&crash_ops[i], &tally[i]);
			running -= ended > 0;
		}
	}
	for (unsigned i = 0; interrupted && i < next; i++)
		if (pid[i] > 0 && !tally[i].done)
			kill(pid[i], SIGKILL);
	while (wait(NULL) > 0)
		continue;
	for (unsigned i = 0; i < crash_nops; i++)
		if (pid[i]) {
			sum.kills += tally[i].kills;
			sum.states += tally[i].states;
			sum.violations += tally[i].violations + !tally[i].done;
		}
	free(pid);
	printf("crash: %llu copies of a segment recovered\ncrash: %llu %s points, %llu violations\n",
		(unsigned long long)sum.states, (unsigned long long)sum.kills,
		options.pause ? "pause" : "kill", (unsigned long long)sum.violations);
	return sum.violations || interrupted ? 1 : 0;
}

int main(int argc, char **argv)
{
	static const struct option longs[] = {{"all", no_argument, NULL, 'a'},
		{"pause", no_argument, NULL, 'p'}, {"kills", required_argument, NULL, 'k'},
		{"states", required_argument, NULL, 's'}, {"seed", required_argument, NULL, 'r'},
		{"jobs", required_argument, NULL, 'j'}, {"only", required_argument, NULL, 'o'},
		{NULL, 0, NULL, 0}};
	struct sigaction on_signal = {.sa_handler = interrupt};
	const char *base = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : getenv("TMPDIR");
	struct crash_tally *tally;
	char dir[200];
	int option, r;

	options.seed = (unsigned)time(NULL);
	while ((option = getopt_long(argc, argv, "", longs, NULL)) != -1)
		switch (option) {
		case 'a':
			options.all = true;
			break;
		case 'p':
			options.pause = crash_pausing = true;
			break;
		case 'k':
			options.kills = (unsigned)strtoul(optarg, NULL, 10);
			break;
		case 's':
			options.states = (unsigned)strtoul(optarg, NULL, 10);
			break;
		case 'r':
			options.seed = (unsigned)strtoul(optarg, NULL, 10);
			break;
		case 'j':
			options.jobs = (unsigned)strtoul(optarg, NULL, 10);
			break;
		case 'o':
			options.only = optarg;
			break;
		default:
			fprintf(stderr,
				"usage: crash_kill [--all] [--pause] [--kills N] [--states N] [--seed N] "
				"[--jobs N] [--only NAME]\n");
			return 2;
		}
	if (!options.kills || !options.jobs)
		return 2;
	snprintf(dir, sizeof(dir), "%.150s/gpuarb-crash-XXXXXX", base ? base : "/tmp");
	/* Settings in the caller's environment must not change what is tested. */
	clearenv();
	if (!stepper_possible()) {
		printf("crash: skipped, processes may not be traced here\n");
		return 77;
	}
	tally = mmap(
		NULL, crash_nops * sizeof(*tally), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (tally == MAP_FAILED || !mkdtemp(dir)) {
		fprintf(stderr, "crash: cannot begin: %s\n", strerror(errno));
		return 1;
	}
	/* The signals do not restart system calls, so that wait() returns. */
	sigaction(SIGINT, &on_signal, NULL);
	sigaction(SIGTERM, &on_signal, NULL);
	printf("crash: seed %u\n", options.seed);
	r = run_all(dir, tally);
	world_remove(dir);
	return r;
}
