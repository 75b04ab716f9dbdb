/*
 * Unmodified programs that end, as real processes and by real kills. They are killed beside programs that run, sleep
 * throttled, wait for a turn or do nothing; killed while their first context is made, with leases alone, or while
 * their watcher is stopped; killed alone and found later; or end by themselves with memory still allocated. How long
 * it took until the slot was free is printed, not judged.
 *
 *   gone_programs BUILD-DIRECTORY
 */
#include "test/harness.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "gpuarb.h"
#include "gpuarb/control.h"

#define PATIENCE_NS 20000000000ull
#define MEMORY      (100ull << 20)
/* A dead client is billed for no more than this beyond its last heartbeat (ARB_DEATH_NS). */
#define LAST_NS 4000000

static char place[] = "/dev/shm/gpuarb-gone-XXXXXX";
static const char *build;
static struct gpuarb_picture picture;
static struct gpuarb_view *view;
static char gpu[1][ARB_UUID_BYTES];
static const char *const idle[] = {"-k", "100", "-p", "burst", "-b", "5:100000", "-d", "50", NULL};

static pid_t start(const char *account, const char *core, const char *const *arguments)
{
	char library[PATH_MAX], driver[PATH_MAX], program[PATH_MAX];
	char *argv[16] = {program, "-m", "100"};
	pid_t pid;

	snprintf(library, sizeof(library), "%s/libgpuarb-preload.so", build);
	snprintf(driver, sizeof(driver), "%s/sim", build);
	snprintf(program, sizeof(program), "%s/simload", build);
	for (int i = 0; arguments[i]; i++)
		argv[i + 3] = (char *)arguments[i];
	fflush(NULL);
	pid = fork();
	if (pid == 0) {
		alarm(60);
		setenv("GPUARB_ACCOUNT", account, 1);
		setenv("GPUARB_CORE_LIMIT", core, 1);
		setenv("LD_LIBRARY_PATH", driver, 1);
		setenv("LD_PRELOAD", library, 1);
		if (!freopen("/dev/null", "w", stdout))
			_exit(1);
		execv(program, argv);
		_exit(127);
	}
	T_CHECK(pid > 0, "fork");
	return pid;
}

static bool look(void)
{
	struct gpuarb_error err;

	if (!view && (gpuarb_control_list(NULL, gpu, 1, &err) < 1 ||
			     gpuarb_view_open(NULL, gpu[0], &view, &err) < 0))
		return false;
	return gpuarb_view_read(view, &picture) == 0;
}

static const struct gpuarb_view_account *account_of(const char *name)
{
	for (unsigned i = 0; look() && i < picture.naccounts; i++)
		if (strcmp(picture.accounts[i].name, name) == 0)
			return &picture.accounts[i];
	return NULL;
}

/* Returns the working process of that account, once it has used the GPU. */
static pid_t client_of(const char *name)
{
	for (uint64_t began = t_now_ns();; t_sleep_us(1000)) {
		const struct gpuarb_view_account *a = account_of(name);

		for (unsigned i = 0; a && i < picture.nclients; i++)
			if (picture.clients[i].account == (unsigned)(a - picture.accounts) &&
				picture.clients[i].used_ns && !picture.clients[i].dead)
				return (pid_t)picture.clients[i].pid;
		T_CHECK(t_now_ns() - began < PATIENCE_NS, "%s does not work", name);
	}
}

/* Ends a program: first its workers, which the segment's picture names. */
static void stop(pid_t pid, const char *name)
{
	const struct gpuarb_view_account *a = account_of(name);

	for (unsigned i = 0; a && i < picture.nclients; i++)
		if (picture.clients[i].account == (unsigned)(a - picture.accounts))
			kill((pid_t)picture.clients[i].pid, SIGKILL);
	t_wait(pid);
}

/* Kills a client, waits until another process has cleaned its slot, and returns how long that took. */
static uint64_t kill_client(pid_t victim, pid_t program)
{
	uint64_t before, began;

	T_CHECK(look(), "a picture");
	before = picture.reclaimed;
	began = t_now_ns();
	kill(victim, SIGKILL);
	for (; !look() || picture.reclaimed == before; t_sleep_us(200))
		T_CHECK(t_now_ns() - began < PATIENCE_NS, "nobody cleaned up behind it");
	began = t_now_ns() - began;
	t_wait(program);
	for (unsigned i = 0; look() && i < picture.nclients; i++)
		T_CHECK((pid_t)picture.clients[i].pid != victim, "it is still there");
	return began;
}

/* Kills a program that is idle and holds memory. */
static uint64_t kill_idle(void)
{
	pid_t program = start("victim", "100", idle), victim = client_of("victim");

	t_sleep_us(300000); /* by now its tracker sleeps, and that of an idle neighbour as well */
	T_CHECK(account_of("victim")->mem_used == MEMORY, "it holds its memory");
	return kill_client(victim, program);
}

/* Waits until there are `n` clients. */
static void wait_for_clients(unsigned n)
{
	for (uint64_t began = t_now_ns(); !look() || picture.nclients != n; t_sleep_us(1000))
		T_CHECK(t_now_ns() - began < PATIENCE_NS, "%u clients, not %u", picture.nclients, n);
}

/* The driver takes a while to make the first context; the program is killed meanwhile. */
static void in_the_making(void)
{
	pid_t program = start("neighbour", "100", idle), victim;

	client_of("neighbour");
	t_sleep_us(300000);
	setenv("GPUSIM_COST_CTX_NS", "30000000000", 1);
	victim = start("victim", "100", idle);
	unsetenv("GPUSIM_COST_CTX_NS");
	wait_for_clients(2);
	t_sleep_us(100000);
	printf("gone: killed while its first context was made: cleaned up behind after %.1f ms\n",
		(double)kill_client(victim, victim) / 1e6);
	stop(program, "neighbour");
}

/* Starts a program that asks for leases and has no preload. */
static pid_t start_lease(void)
{
	struct gpuarb_lease lease = {0};
	pid_t pid;

	fflush(NULL);
	pid = fork();
	if (pid == 0) {
		alarm(60);
		setenv("GPUARB_ACCOUNT", "victim", 1);
		if (gpuarb_acquire(gpu[0], NULL, &lease) != GPUARB_OK || gpuarb_release(&lease) != 0)
			_exit(1);
		for (;;)
			pause();
	}
	T_CHECK(pid > 0, "fork");
	return pid;
}

static void with_leases_alone(void)
{
	pid_t program = start("neighbour", "100", idle), victim;

	client_of("neighbour");
	victim = start_lease();
	wait_for_clients(2);
	t_sleep_us(300000);
	printf("gone: killed with leases alone: cleaned up behind after %.1f ms\n",
		(double)kill_client(victim, victim) / 1e6);
	stop(program, "neighbour");
}

/* Its first watcher is stopped, the watcher before that is not. */
static void behind_a_stopped_one(void)
{
	pid_t first = start("first", "100", idle), second, watcher;
	uint64_t took;

	client_of("first");
	second = start("second", "100", idle);
	watcher = client_of("second");
	t_sleep_us(300000);
	kill(watcher, SIGSTOP);
	took = kill_idle();
	kill(watcher, SIGCONT);
	stop(second, "second");
	stop(first, "first");
	printf("gone: killed behind one that is stopped: cleaned up behind after %.1f ms\n",
		(double)took / 1e6);
}

#define THREADS 64

struct sleeps {
	struct {
		int tid;
		char name[32];
		unsigned long n; /* how often the thread went to sleep */
	} threads[THREADS];
	unsigned n;
};

static void sleeps_of(pid_t pid, struct sleeps *s)
{
	char path[PATH_MAX], line[256];
	struct dirent *e;
	DIR *tasks;

	*s = (struct sleeps){0};
	snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
	tasks = opendir(path);
	T_CHECK(tasks, "%s", path);
	while (s->n < THREADS && (e = readdir(tasks))) {
		FILE *status;

		snprintf(path, sizeof(path), "/proc/%d/task/%.20s/status", (int)pid, e->d_name);
		status = *e->d_name == '.' ? NULL : fopen(path, "re");
		if (!status)
			continue;
		s->threads[s->n].tid = atoi(e->d_name);
		while (fgets(line, sizeof(line), status))
			if (sscanf(line, "Name: %31[^\n]", s->threads[s->n].name) != 1)
				sscanf(line, "voluntary_ctxt_switches: %lu", &s->threads[s->n].n);
		fclose(status);
		s->n++;
	}
	closedir(tasks);
}

/* Checks that an idle program wakes up only for a death: it does not look around from time to time, not even once in
 * some seconds. */
static void must_sleep(pid_t pid)
{
	uint64_t began = t_now_ns();
	struct sleeps before, after;

	sleeps_of(pid, &after);
	do {
		if (t_now_ns() - began > PATIENCE_NS) {
			for (unsigned i = 0; i < after.n; i++)
				fprintf(stderr, "thread %d of %d, %s: slept %lu times, %lu a moment before\n",
					after.threads[i].tid, (int)pid, after.threads[i].name,
					after.threads[i].n, i < before.n ? before.threads[i].n : 0);
			T_CHECK(false, "one that idles wakes up all the time");
		}
		before = after;
		t_sleep_us(3000000);
		sleeps_of(pid, &after);
	} while (memcmp(&before, &after, sizeof(after)) != 0);
}

static void beside(const char *how, const char *core, const char *const *arguments)
{
	pid_t program = start("neighbour", core, arguments), neighbour = client_of("neighbour");
	uint64_t longest = 0;

	if (arguments == idle)
		must_sleep(neighbour);
	for (int i = 0; i < 3; i++) {
		uint64_t took = kill_idle();

		longest = took > longest ? took : longest;
	}
	stop(program, "neighbour");
	printf("gone: killed beside one that %s: cleaned up behind after at most %.1f ms\n", how,
		(double)longest / 1e6);
}

static void set_policy(const char *policy)
{
	struct gpuarb_change change = {NULL, "policy", policy};
	struct gpuarb_error err;

	T_CHECK(gpuarb_control_change(NULL, gpu[0], &change, 1, &err) == 0, "%s", err.text);
}

/* One of the two that take turns runs, and the other waits. */
static void beside_those_that_take_turns(void)
{
	static const char *const slow[] = {"-k", "200000", "-d", "50", NULL};
	pid_t first, second;
	uint64_t longest = 0;

	set_policy("exclusive");
	first = start("first", "100", slow);
	client_of("first");
	second = start("second", "100", slow);
	client_of("second");
	for (int i = 0; i < 3; i++) {
		uint64_t took = kill_idle();

		longest = took > longest ? took : longest;
	}
	stop(second, "second");
	stop(first, "first");
	set_policy("concurrent");
	printf("gone: killed beside two that take turns: cleaned up behind after at most %.1f ms\n",
		(double)longest / 1e6);
}

/* One that runs looks for dead ones every second, and wakes nobody who idles. */
static void sleeps_beside_a_busy_one(void)
{
	static const char *const busy[] = {"-k", "200", "-d", "50", NULL};
	pid_t working = start("neighbour", "100", busy), idling;

	client_of("neighbour");
	idling = start("idle", "100", idle);
	must_sleep(client_of("idle"));
	stop(idling, "idle");
	stop(working, "neighbour");
	printf("gone: one that idles sleeps on beside one that works\n");
}

/* A program is killed while it has work and no other program is there: the time until somebody looks must not be
 * billed. A limited program has work for a part of each window. */
static void alone(void)
{
	static const char *const busy[] = {"-k", "1000", "-d", "50", NULL};
	static const char *const short_run[] = {"-k", "1000", "-n", "10", NULL};
	uint64_t before = look() ? picture.busy_now_ns : 0, busy_ns, began = t_now_ns(), lived;
	pid_t program = start("alone", "30", busy), victim = client_of("alone");

	t_sleep_us(500000);
	while (!look() || !picture.nrunning)
		T_CHECK(t_now_ns() - began < PATIENCE_NS, "it never runs");
	kill(victim, SIGKILL);
	lived = t_now_ns() - began;
	t_wait(program);
	t_sleep_us(50000); /* it is silent by now */
	T_CHECK(account_of("alone"), "it has just been there");
	busy_ns = picture.busy_now_ns;
	T_CHECK(busy_ns - before < lived + LAST_NS, "it lived for %.3f ms and was billed for %.3f",
		(double)lived / 1e6, (double)(busy_ns - before) / 1e6);
	t_sleep_us(1000000);
	T_CHECK(look() && picture.busy_now_ns == busy_ns, "the GPU was busy for %.3f ms more",
		(double)(picture.busy_now_ns - busy_ns) / 1e6);
	/* The next client does not find it either: nothing but the time in which that client lives is billed. */
	began = t_now_ns();
	program = start("alone", "30", short_run);
	T_CHECK(t_wait(program) == 0, "the next program of the account");
	T_CHECK(look() && picture.busy_ns == picture.billed_ns, "the law");
	lived = t_now_ns() - began;
	T_CHECK(picture.busy_ns - busy_ns < lived, "the next one lived for %.3f ms, and %.3f were billed",
		(double)lived / 1e6, (double)(picture.busy_ns - busy_ns) / 1e6);
	printf("gone: killed alone: a second later the GPU has not been busy any more\n");
}

/* Returns what the client that was cleaned up last had used. */
static uint64_t used_by_the_dead(uint64_t *position)
{
	struct gpuarb_event events[64];
	uint64_t ticks = 0;
	int n;

	while ((n = gpuarb_view_events(view, position, events, 64)) > 0)
		for (int i = 0; i < n; i++)
			if (events[i].kind == ARB_EVENT_RECLAIMED)
				ticks = events[i].a;
	return ticks / ARB_TICKS_PER_NS;
}

/* A program is killed while it has work, beside another that has work too and finds it. If the other one is stopped,
 * it finds the dead one a second later, and that second is not billed to the dead one. */
static void at_work_beside(bool stopped)
{
	static const char *const busy[] = {"-k", "1000", "-d", "50", NULL};
	pid_t program = start("neighbour", "100", busy), neighbour = client_of("neighbour"), victims, victim;
	uint64_t began = t_now_ns(), position = 0, before, lived, used;

	victims = start("victim", "50", busy);
	victim = client_of("victim");
	t_sleep_us(300000);
	used_by_the_dead(&position);
	T_CHECK(look(), "a picture");
	before = picture.reclaimed;
	if (stopped)
		kill(neighbour, SIGSTOP);
	kill(victim, SIGKILL);
	lived = t_now_ns() - began;
	if (stopped) {
		t_sleep_us(2000000);
		kill(neighbour, SIGCONT);
	}
	for (; !look() || picture.reclaimed == before; t_sleep_us(200))
		T_CHECK(t_now_ns() - began < PATIENCE_NS, "nobody cleaned up behind it");
	t_wait(victims);
	used = used_by_the_dead(&position);
	T_CHECK(used && used < lived + LAST_NS, "it lived for %.3f ms and was billed for %.3f",
		(double)lived / 1e6, (double)used / 1e6);
	T_CHECK(picture.busy_ns == picture.billed_ns, "the law");
	stop(program, "neighbour");
	printf("gone: killed at work beside one that %s: billed for no more than it lived\n",
		stopped ? "is stopped" : "works");
}

/* A program ends by itself with memory still allocated: it has left, none has died. */
static void by_itself(void)
{
	static const char *const short_run[] = {"-k", "100", "-n", "10", NULL};
	struct gpuarb_event events[64];
	uint64_t before, position = 0;
	unsigned left = 0, reclaimed = 0;
	int n;

	T_CHECK(look(), "a picture");
	before = picture.reclaimed;
	while (gpuarb_view_events(view, &position, events, 64) > 0)
		;
	T_CHECK(t_wait(start("leaver", "50", short_run)) == 0, "a short program");
	T_CHECK(look() && picture.reclaimed == before, "nobody died");
	T_CHECK(picture.nclients == 0 && picture.mem_used == 0, "%u are there, with %llu bytes",
		picture.nclients, (unsigned long long)picture.mem_used);
	while ((n = gpuarb_view_events(view, &position, events, 64)) > 0)
		for (int i = 0; i < n; i++) {
			left += events[i].kind == ARB_EVENT_LEFT;
			reclaimed += events[i].kind == ARB_EVENT_RECLAIMED;
		}
	T_CHECK(left == 1 && reclaimed == 0, "%u left and %u died", left, reclaimed);
	printf("gone: ended with memory allocated: it left, and nothing is held\n");
}

int main(int argc, char **argv)
{
	static const char *const busy[] = {"-k", "200", "-d", "50", NULL};
	static const char *const slow[] = {"-k", "5000", "-d", "50", NULL};
	char command[64];

	T_CHECK(argc == 2, "Usage: gone_programs BUILD-DIRECTORY");
	build = realpath(argv[1], NULL);
	T_CHECK(build && mkdtemp(place), "%s", argv[1]);
	setenv("GPUARB_DIR", place, 1);
	setenv("GPUARB_CONF", "/dev/null", 1);
	setenv("GPUSIM_DIR", place, 1);
	for (int i = 0; i < 3; i++)
		alone();
	by_itself();
	at_work_beside(false);
	at_work_beside(true);
	beside("runs", "100", busy);
	beside("sleeps throttled", "1", slow);
	beside("idles", "100", idle);
	sleeps_beside_a_busy_one();
	beside_those_that_take_turns();
	in_the_making();
	with_leases_alone();
	behind_a_stopped_one();
	gpuarb_view_close(view);
	snprintf(command, sizeof(command), "rm -r %s", place);
	return system(command) == 0 ? 0 : 1;
}
