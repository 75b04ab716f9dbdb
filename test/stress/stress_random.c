/*
 * Many processes do random things to one segment while the test stops, kills and changes settings at random. An
 * observer checks the invariants all the time. In the end all are killed and reclaimed, and nothing may be left. Then
 * all this is done again under `exclusive`, where each holder checks that it is alone.
 *
 *   stress_random [--seconds N] [--seed S] [--processes P]
 */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "units.h"

#include "test/stress/workers.h"

#include "shm/segment/account.h"
#include "shm/base/atomic.h"
#include "shm/segment/check.h"
#include "shm/client/reclaim.h"
#include "shm/segment/running.h"

static int idle(void *argument)
{
	(void)argument;
	while (pause() < 0)
		;
	return 0;
}

static unsigned next_serial;

static pid_t start(int (*fn)(void *), unsigned index, pid_t group)
{
	struct worker w = {.index = index, .serial = next_serial++ % SERIALS};
	pid_t pid;

	w.random = t_seeded(stress.seed + 1000003ull * w.serial);
	pid = t_spawn(fn, &w, stress.seconds + 60);
	setpgid(pid, group);
	return pid;
}

/* Checks that a child that ended by itself ended well. Killed ones are expected. */
static void reap(pid_t *pid, unsigned *serial, int (*fn)(void *), pid_t group)
{
	int status;
	pid_t dead;

	while ((dead = waitpid(-1, &status, WNOHANG)) > 0) {
		if (WIFSIGNALED(status) && WTERMSIG(status) != SIGKILL)
			stress_fail("a process died by signal %d (%s)", WTERMSIG(status),
				strsignal(WTERMSIG(status)));
		else if (WIFEXITED(status) && WEXITSTATUS(status) != 0)
			stress_fail("a process ended with %d", WEXITSTATUS(status));
		for (unsigned i = 0; i < stress.processes; i++)
			if (pid[i] == dead) {
				serial[i] = next_serial % SERIALS;
				pid[i] = start(fn, i, group);
			}
	}
}

static void phase(int (*fn)(void *), unsigned ms, bool may_stop, bool with_admin)
{
	struct t_random random = t_seeded(stress.seed ^ (uint64_t)(uintptr_t)ms);
	pid_t pid[WORKERS_MAX], group = t_spawn(idle, NULL, stress.seconds + 60);
	unsigned serial[WORKERS_MAX];
	uint64_t end = t_now_ns() + ms * MS;

	setpgid(group, group);
	arb_store32(&stress.board->stop, 0);
	for (unsigned i = 0; i < stress.processes; i++) {
		serial[i] = next_serial % SERIALS;
		pid[i] = start(fn, i, group);
	}
	setpgid(t_spawn(observer, NULL, stress.seconds + 60), group);
	if (with_admin)
		setpgid(t_spawn(administrator, NULL, stress.seconds + 60), group);
	while (t_now_ns() < end && !arb_load32(&stress.board->stop)) {
		unsigned i = t_below(&random, stress.processes);

		if (may_stop && t_below(&random, 3) == 0) {
			arb_add32_full(&stress.board->stops[i], 1);
			kill(pid[i], SIGSTOP);
			t_sleep_us(t_below(&random, 4) ? t_below(&random, 20000) : t_below(&random, 300000));
			arb_add32_full(&stress.board->stops[i], 1);
			kill(pid[i], SIGCONT);
		} else {
			arb_store32(&stress.board->doomed[serial[i]], 1);
			kill(pid[i], SIGKILL);
		}
		t_sleep_us(t_below(&random, 15000));
		reap(pid, serial, fn, group);
	}
	arb_store32(&stress.board->stop, 1);
	/* Half of them are killed in the middle of whatever they do. */
	t_sleep_us(t_below(&random, 30000));
	kill(-group, SIGKILL);
	while (waitpid(-1, NULL, 0) > 0 || errno == EINTR)
		;
}

static void reclaim_all(struct arb_segment *seg)
{
	int64_t value[ARB_KEY_COUNT];
	struct arb_rules rules;
	struct arb_reclaimed what;

	for (int key = 0; key < ARB_KEY_COUNT; key++)
		value[key] = gpuarb_keys[key].initial;
	arb_settings_rules(value, &rules);
	for (uint32_t i = 0; i < seg->nslots; i++) {
		int r = arb_reclaim_slot(seg, i, &rules, &what);

		T_CHECK(r >= 0, "reclaiming slot %u: %d", i, r);
	}
}

static void check_at_rest(void)
{
	struct arb_segment seg;
	struct arb_snap s;
	struct arb_account_snap a;

	T_CHECK(arb_segment_open(&seg, stress.dir.path, T_GPU, true, NULL, NULL) == 0,
		"the segment cannot be opened");
	reclaim_all(&seg);
	T_CHECK(arb_check(&seg, t_say, NULL) == 0, "the invariants at rest");
	T_CHECK(arb_running_read(&seg, &s) == 0, "the snapshot");
	T_CHECK(s.weight == 0 && s.reserved == 0, "W %u, reservation %llu", s.weight,
		(unsigned long long)s.reserved);
	T_CHECK(!arb_bits_count(s.running, s.words) && !arb_bits_count(s.waiting, s.words) &&
			!arb_bits_count(s.evicted, s.words),
		"somebody is still in a bitmap");
	for (uint32_t i = 0; i < seg.nslots; i++)
		T_CHECK(arb_load32(&seg.slots[i].state) == ARB_SLOT_FREE, "slot %u is not free", i);
	for (uint32_t i = 0; i < seg.naccounts; i++) {
		T_CHECK(arb_account_read(&seg, i, &a) == 0, "account %u", i);
		T_CHECK(a.mem_used == 0 && !arb_bits_count(a.attached, seg.nwords),
			"account %u has %llu bytes, %u members", i, (unsigned long long)a.mem_used,
			arb_bits_count(a.attached, seg.nwords));
	}
	arb_segment_close(&seg);
}

static void check_usable(void)
{
	for (int policy = 0; policy < 5; policy++) {
		struct gpuarb_client *c;

		T_CHECK(t_set(&stress.dir, ARB_KEY_POLICY, policy) == 0, "policy %d", policy);
		T_CHECK(t_open(&stress.dir, NULL, &c) == 0, "a new client, policy %d", policy);
		T_CHECK(gpuarb_client_enter(c, NULL) == 0, "the lease at once, policy %d", policy);
		T_CHECK(gpuarb_client_leave(c, 0) == 0, "leaving, policy %d", policy);
		gpuarb_client_close(c);
	}
}

static void report(const char *what)
{
	printf("%s: %u processes started, %llu operations, %llu waits, %llu holds, %llu checks (%llu "
	       "found "
	       "it too busy), %llu joins refused\n",
		what, next_serial, (unsigned long long)arb_load64(&stress.board->operations),
		(unsigned long long)arb_load64(&stress.board->waits),
		(unsigned long long)arb_load64(&stress.board->holds),
		(unsigned long long)arb_load64(&stress.board->checks),
		(unsigned long long)arb_load64(&stress.board->busy_checks),
		(unsigned long long)arb_load64(&stress.board->refused));
	fflush(stdout);
	if (arb_load32(&stress.board->failures)) {
		fprintf(stderr, "stress_random: failed; the segment is kept in %s; --seed %llu\n",
			stress.dir.path, (unsigned long long)stress.seed);
		exit(1);
	}
}

int main(int argc, char **argv)
{
	const struct t_number numbers[] = {
		{"--seconds", &stress.seconds}, {"--processes", &stress.processes}, {0}};
	struct gpuarb_client *first;

	stress.seed = t_numbers(argc, argv, numbers);
	T_CHECK(stress.processes > 0 && stress.processes <= WORKERS_MAX, "1 to %d processes", WORKERS_MAX);
	stress.board = t_shared(sizeof(*stress.board));
	/* Orphans become our children, so that all of them can be waited for. */
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	t_dir_make(&stress.dir, "slots = 100\n");
	T_CHECK(t_open(&stress.dir, NULL, &first) == 0, "the first client");
	gpuarb_client_close(first);
	phase(random_worker, stress.seconds * 600, true, true);
	report("random");
	check_at_rest();
	check_usable();

	t_dir_remove(&stress.dir);
	t_dir_make(&stress.dir, "slots = 100\npolicy = exclusive\ngrace_ms = 600000\n");
	T_CHECK(t_open(&stress.dir, NULL, &first) == 0, "the first client");
	gpuarb_client_close(first);
	phase(exclusive_worker, stress.seconds * 400, false, false);
	report("exclusive");
	T_CHECK(arb_load64(&stress.board->holds) > 0, "nobody ever ran");
	check_at_rest();
	check_usable();
	t_dir_remove(&stress.dir);
	return 0;
}
