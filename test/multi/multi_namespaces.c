/* Two clients that share nothing but the segment: each has its own PID, mount and user namespaces, as in two
 * containers. And a client whose clock is shifted. Ends with 77 where the kernel permits none of this. */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include "test/harness.h"

#include "gpuarb/control.h"
#include "units.h"

#include "shm/base/atomic.h"
#include "shm/segment/check.h"
#include "shm/client/client_state.h"
#include "shm/base/os.h"
#include "shm/segment/slot.h"

#ifndef CLONE_NEWTIME
#define CLONE_NEWTIME 0x00000080
#endif

static struct t_dir dir;

enum order { ENTER = 'e', WAIT = 'w', TRY = 't', LEAVE = 'l', END = 'q' };

/* A client in namespaces of its own that follows orders. `pid` is its number in our namespace. */
struct tenant {
	pid_t pid;
	int orders, answers;
};

static bool write_text(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	bool done = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);

	if (fd >= 0)
		close(fd);
	return done;
}

/* Runs as pid 1 of its namespace. */
static int tenant_main(int orders, int answers)
{
	struct gpuarb_client *c;
	char order;
	int r;

	/* It needs its own /proc: ours would tell it its number outside. */
	if (!t_mounts_private("/proc") || mount("proc", "/proc", "proc", 0, NULL) != 0)
		return T_SKIP;
	r = t_open(&dir, NULL, &c);
	if (write(answers, &r, sizeof(r)) != sizeof(r))
		return 1;
	while (r == 0 && read(orders, &order, 1) == 1 && order != END) {
		int answer = order == ENTER  ? gpuarb_client_enter(c, NULL)
			     : order == WAIT ? gpuarb_client_wait(c, NULL, 20000 * MS)
			     : order == TRY  ? gpuarb_client_wait(c, NULL, 50 * MS)
					     : gpuarb_client_leave(c, 0);

		if (write(answers, &answer, sizeof(answer)) != sizeof(answer))
			return 1;
	}
	if (r == 0)
		gpuarb_client_close(c);
	return r == 0 ? 0 : 1;
}

static struct tenant tenant_start(bool user)
{
	struct tenant t;
	int orders[2], answers[2];
	char map[64];

	T_CHECK(pipe(orders) == 0 && pipe(answers) == 0, "pipe");
	snprintf(map, sizeof(map), "0 %u 1", (unsigned)geteuid());
	fflush(NULL);
	t.pid = fork();
	T_CHECK(t.pid >= 0, "fork");
	if (t.pid == 0) {
		pid_t inner;
		int status = 0;

		alarm(60);
		if (unshare((user ? CLONE_NEWUSER : 0) | CLONE_NEWPID | CLONE_NEWNS) != 0)
			_exit(T_SKIP);
		if (user && !write_text("/proc/self/uid_map", map))
			_exit(T_SKIP);
		inner = fork();
		if (inner == 0) {
			alarm(60);
			close(answers[0]);
			close(orders[1]);
			_exit(tenant_main(orders[0], answers[1]));
		}
		close(answers[1]);
		close(orders[0]);
		waitpid(inner, &status, 0);
		_exit(WIFEXITED(status) ? WEXITSTATUS(status) : 1);
	}
	close(orders[0]);
	close(answers[1]);
	t.orders = orders[1];
	t.answers = answers[0];
	return t;
}

static int told(const struct tenant *t)
{
	int answer;

	return read(t->answers, &answer, sizeof(answer)) == sizeof(answer) ? answer : -ESRCH;
}

static void tell(const struct tenant *t, char order)
{
	T_CHECK(write(t->orders, &order, 1) == 1, "a tenant is gone");
}

static int ask(const struct tenant *t, char order)
{
	tell(t, order);
	return told(t);
}

/* Finds the process that a tenant's outer process forked, which is pid 1 inside. */
static pid_t inner_of(const struct tenant *t)
{
	char path[64], text[32] = "";
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/task/%d/children", (int)t->pid, (int)t->pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	T_CHECK(fd >= 0 && read(fd, text, sizeof(text) - 1) > 0, "%s", path);
	close(fd);
	return (pid_t)atoi(text);
}

static void check_identities(void)
{
	struct arb_segment seg;
	uint64_t ns[2] = {0};
	uint32_t pid[2] = {0};
	int n = 0;

	T_CHECK(arb_segment_open(&seg, dir.path, T_GPU, false, NULL, NULL) == 0, "observer");
	for (uint32_t i = 0; i < seg.nslots; i++)
		if (arb_slot_alive(&seg, i) == 1 && n < 2) {
			pid[n] = arb_load32(&seg.slots[i].pid);
			ns[n++] = arb_load64(&seg.slots[i].pid_ns);
		}
	T_CHECK(n == 2, "%d clients", n);
	T_CHECK(pid[0] == 1 && pid[1] == 1, "pids %u and %u", pid[0], pid[1]);
	T_CHECK(ns[0] && ns[1] && ns[0] != ns[1], "the same namespace");
	arb_segment_close(&seg);
}

static bool two_tenants(bool user)
{
	struct tenant a = tenant_start(user), b = tenant_start(user);
	const char *what = user ? "user, PID and mount namespaces" : "PID and mount namespaces";
	struct arb_segment seg;
	int ra = told(&a), rb = told(&b);

	if (ra == -ESRCH || rb == -ESRCH) {
		printf("skipped: %s: not permitted here (ended with %d and %d)\n", what, t_wait(a.pid),
			t_wait(b.pid));
		return false;
	}
	T_CHECK(ra == 0 && rb == 0, "joining: %d, %d", ra, rb);
	check_identities();
	for (int i = 0; i < 20; i++) {
		T_CHECK(ask(&a, ENTER) == 0, "a enters");
		T_CHECK(ask(&b, ENTER) == -EAGAIN, "b must wait for a");
		T_CHECK(ask(&b, TRY) == -ETIMEDOUT, "b waits in vain");
		tell(&b, WAIT);
		t_sleep_us(2000);
		T_CHECK(ask(&a, LEAVE) == 0, "a leaves");
		T_CHECK(told(&b) == 0, "b is next");
		T_CHECK(ask(&a, ENTER) == -EAGAIN, "a must wait for b");
		T_CHECK(ask(&b, LEAVE) == 0, "b leaves");
	}
	T_CHECK(ask(&a, ENTER) == 0, "a enters again");
	tell(&b, WAIT);
	t_sleep_us(10000);
	T_CHECK(kill(inner_of(&a), SIGKILL) == 0, "killing a");
	T_CHECK(told(&b) == 0, "a's place is free after its death");
	tell(&b, END);
	T_CHECK(t_wait(a.pid) == 1 && t_wait(b.pid) == 0, "how they ended");
	T_CHECK(arb_segment_open(&seg, dir.path, T_GPU, false, NULL, NULL) == 0, "observer");
	T_CHECK(arb_check(&seg, t_say, NULL) == 0, "the invariants");
	T_CHECK(arb_load64(&seg.header->reclaimed) >= 1, "somebody was reclaimed");
	arb_segment_close(&seg);
	close(a.orders), close(a.answers), close(b.orders), close(b.answers);
	printf("%s: handed over 40 times, one killed\n", what);
	return true;
}

/* Runs inside the time namespace: a client that tells the test its time. */
static int shifted(void *argument)
{
	arb_u64 *now = argument;
	struct gpuarb_error err = {0};
	struct gpuarb_options o = t_options(&dir, NULL);
	struct gpuarb_client *c;
	int r = gpuarb_client_open(&o, &c, &err);

	if (r == -ENOTSUP) {
		printf("time namespace: refused: %s\n", err.text);
		return 2;
	}
	T_CHECK(r == 0, "joining: %s", err.text);
	arb_store64(now, arb_os_now_ns());
	T_CHECK(gpuarb_client_enter(c, NULL) == 0, "running with a shifted clock");
	T_CHECK(gpuarb_client_leave(c, 0) == 0, "leaving");
	gpuarb_client_close(c);
	return 0;
}

static int in_time_namespace(void *argument)
{
	if (unshare(CLONE_NEWTIME) != 0 || !write_text("/proc/self/timens_offsets", "monotonic 86400 5\n"))
		return T_SKIP;
	/* The process that made the time namespace is not inside, but its children are. */
	return t_run(shifted, argument, 30);
}

/* Runs inside: only cleans up after the dead, as a tool does. */
static int shifted_reaper(void *argument)
{
	struct gpuarb_error err = {0};
	int r = gpuarb_control_reap(dir.path, T_GPU, NULL, NULL, &err);

	(void)argument;
	return r == -ENOTSUP ? 2 : r == 1 ? 0 : 1;
}

/* Runs inside: a child of a client that was opened outside. */
static int shifted_child(void *argument)
{
	struct gpuarb_client *c = argument;
	int r = gpuarb_client_enter(c, NULL);

	if (r == -ENOTSUP)
		return 2;
	return r == 0 && gpuarb_client_leave(c, 0) == 0 ? 0 : 1;
}

struct inside {
	int (*fn)(void *argument);
	void *argument;
};

static int run_inside(void *argument)
{
	struct inside *in = argument;

	if (unshare(CLONE_NEWTIME) != 0 || !write_text("/proc/self/timens_offsets", "monotonic 30 5\n"))
		return T_SKIP;
	return t_run(in->fn, in->argument, 30);
}

static int dies_running(void *argument)
{
	struct gpuarb_client *c;

	(void)argument;
	T_CHECK(t_open(&dir, NULL, &c) == 0, "joining");
	T_CHECK(gpuarb_client_enter(c, NULL) == 0, "running");
	_exit(0);
}

/* A process that comes to another clock without opening a client there must not take its own time for everybody's. */
static void another_clock_unawares(void)
{
	struct inside reaper = {shifted_reaper, NULL}, child = {shifted_child, NULL};
	struct gpuarb_client *c;
	struct arb_segment seg;
	int r;

	T_CHECK(t_run(dies_running, NULL, 30) == 0, "one that dies");
	r = t_run(run_inside, &reaper, 40);
	T_CHECK(r == 0 || r == 2, "the reaper with a shifted clock: %d", r);
	T_CHECK(arb_segment_open(&seg, dir.path, T_GPU, false, NULL, NULL) == 0, "observer");
	T_CHECK(arb_check(&seg, t_say, NULL) == 0, "the invariants after cleaning");
	T_CHECK(t_open(&dir, NULL, &c) == 0, "joining");
	child.argument = c;
	r = t_run(run_inside, &child, 40);
	T_CHECK(r == 0 || r == 2, "the child with a shifted clock: %d", r);
	T_CHECK(arb_check(&seg, t_say, NULL) == 0, "the invariants after the child");
	gpuarb_client_close(c);
	arb_segment_close(&seg);
}

static bool another_clock(void)
{
	arb_u64 *now = t_shared(sizeof(*now));
	uint64_t before = t_now_ns(), after;
	int r = t_run(in_time_namespace, now, 40);
	struct arb_segment seg;

	after = t_now_ns();
	if (r == T_SKIP) {
		printf("skipped: time namespace: not permitted here\n");
		return false;
	}
	T_CHECK(r == 0 || r == 2, "the client with a shifted clock: %d", r);
	if (r == 0)
		T_CHECK(arb_load64(now) >= before && arb_load64(now) <= after,
			"its clock says %llu, ours %llu to %llu", (unsigned long long)arb_load64(now),
			(unsigned long long)before, (unsigned long long)after);
	T_CHECK(arb_segment_open(&seg, dir.path, T_GPU, false, NULL, NULL) == 0, "observer");
	T_CHECK(arb_check(&seg, t_say, NULL) == 0, "the invariants");
	arb_segment_close(&seg);
	another_clock_unawares();
	printf("time namespace, a day ahead: %s\n", r == 0 ? "the clocks agree" : "refused");
	return true;
}

int main(void)
{
	struct gpuarb_client *first;
	int done;

	signal(SIGPIPE, SIG_IGN);
	t_dir_make(&dir, "policy = exclusive\ngrace_ms = 600000\nslots = 16\n");
	T_CHECK(t_open(&dir, NULL, &first) == 0, "the first client");
	gpuarb_client_close(first);
	done = two_tenants(false);
	done += two_tenants(true);
	done += another_clock();
	t_dir_remove(&dir);
	return done ? 0 : T_SKIP;
}
