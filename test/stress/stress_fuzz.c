/*
 * A hostile process writes garbage all over the state segment while clients use it, an observer reads
 * it and the tools look after it. Nobody may crash, hang or write elsewhere: each operation answers with 0 or
 * one of the documented errors, in time. When the garbage stops, the segment must become usable again by
 * itself.
 *
 *   stress_fuzz [--seconds N] [--seed S]
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gpuarb/control.h"
#include "units.h"

#include "test/stress/garble.h"
#include "test/harness.h"

#include "shm/admission/admission.h"
#include "shm/base/atomic.h"
#include "shm/segment/check.h"
#include "shm/client/client_state.h"
#include "shm/segment/events.h"
#include "shm/base/os.h"
#include "shm/segment/running.h"

#define CLIENTS    8
#define DEADLINE_S 20 /* for one operation, on a busy machine */

struct board {
	arb_u32 stop_fuzz, stop;
	arb_u32 failures;
	arb_u64 writes, operations, errors, opens, refused, looks;
};

static struct board *board;
static struct t_dir dir;
static uint64_t seed;

static bool documented(int r)
{
	switch (r) {
	case 0:
	case -EAGAIN:
	case -ETIMEDOUT:
	case -EDQUOT:
	case -ENOMEM:
	case -EBADMSG:
	case -EBUSY:
	case -EUSERS:
	case -EPERM: /* garbage says that every account that it asks for is somebody else's */
	case -ENOSPC:
	case -EINVAL:
	case -EPROTO:
		return true;
	}
	return false;
}

static void answer(const char *what, int r)
{
	arb_add64_full(&board->operations, 1);
	if (r < 0)
		arb_add64_full(&board->errors, 1);
	if (documented(r))
		return;
	fprintf(stderr, "stress_fuzz: %s answered %d (%s)\n", what, r, strerror(-r));
	arb_add32_full(&board->failures, 1);
}

/* Nothing is mapped right before and right after the segment: a process that runs over its ends is killed. */
static void *guards[2];

static void guard_ends(const struct arb_file *file)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	char *ends[2] = {(char *)file->base - page, (char *)file->base + file->size};

	for (int i = 0; i < 2; i++) {
		guards[i] = mmap(
			ends[i], page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
		if (guards[i] != ends[i] && guards[i] != MAP_FAILED) {
			munmap(guards[i], page);
			guards[i] = MAP_FAILED;
		}
	}
}

static void unguard_ends(void)
{
	for (int i = 0; i < 2; i++)
		if (guards[i] != MAP_FAILED)
			munmap(guards[i], (size_t)sysconf(_SC_PAGESIZE));
}

/* Asks for a lease: refused or not, there is an answer. A lease that was given is given back. */
static void lease(struct gpuarb_client *c, struct t_random *random)
{
	struct gpuarb_request request = {
		.max_wait_ms = 1 + t_below(random, 4), .hint = {.input_ms = t_below(random, 16000)}};
	struct gpuarb_lease l = GPUARB_LEASE_INIT;
	int r = arb_admission_acquire(c, &request, &l);

	T_CHECK(r <= GPUARB_SKIP && l.reason <= GPUARB_QUOTA, "acquire answered %d, reason %u", r, l.reason);
	answer("acquire", r < 0 ? r : 0);
	if (r == GPUARB_OK)
		answer("gpuarb_release", arb_admission_release(c, &l));
}

static void step(struct gpuarb_client *c, struct t_random *random)
{
	struct gpuarb_client_status status;
	struct gpuarb_work work = {
		.weight = t_below(random, 257), .begin_ns = t_now_ns() - t_below(random, 1000000)};

	/* The alarm's default action ends this process: so its parent sees an operation that hangs or spins. */
	alarm(DEADLINE_S);
	switch (t_below(random, 11)) {
	case 9:
		lease(c, random);
		break;
	case 10: {
		uint64_t next_ns, now = arb_os_now_ns();

		/* Samples, as the thread of a program with leases does. */
		if (arb_sampler_due(&c->admission.sampler, &c->seg, &c->rules.usage, now, &next_ns))
			arb_sampler_put(&c->admission.sampler, &c->seg, &c->rules.usage, c->rules.win_ms,
				(int)t_below(random, 10002) - 1, now);
		break;
	}
	case 0:
		answer("enter", gpuarb_client_enter(c, &work));
		break;
	case 1:
		answer("wait", gpuarb_client_wait(c, &work, t_below(random, 5) * MS));
		break;
	case 2:
	case 3:
		answer("leave", gpuarb_client_leave(c, 0));
		break;
	case 4:
		answer("tick", gpuarb_client_tick(c));
		break;
	case 5:
		answer("reserve", gpuarb_client_mem_reserve(c, t_below(random, 100000)));
		break;
	case 6:
		answer("release", gpuarb_client_mem_release(c, t_below(random, 100000)));
		break;
	case 7:
		answer("set_limits",
			gpuarb_client_set_limits(c, t_below(random, 101), t_below(random, 2000000), 0));
		break;
	case 8:
		answer("status", gpuarb_client_status(c, &status));
		break;
	}
}

static int client(void *argument)
{
	struct t_random random = t_seeded(seed + 77 * (uintptr_t)argument);

	while (!arb_load32(&board->stop)) {
		struct gpuarb_client *c;
		struct gpuarb_error err = {0};
		struct gpuarb_options o = t_options(&dir, t_below(&random, 2) ? "together" : NULL);
		int r;

		/* With a quota, what other clients were promised is looked at, which may be garbage. */
		if (t_below(&random, 2)) {
			o.physical = 16ull << 30;
			o.mem_bytes = 1 + t_below(&random, 1 << 30);
		}
		alarm(DEADLINE_S);
		r = gpuarb_client_open(&o, &c, &err);
		answer("open", r);
		arb_add64_full(r < 0 ? &board->refused : &board->opens, 1);
		if (r < 0) {
			T_CHECK(err.code == r && strlen(err.text) > 10,
				"open failed without a sentence: %d '%s'", r, err.text);
			t_sleep_us(2000);
			continue;
		}
		guard_ends(&c->seg.file);
		for (unsigned i = t_below(&random, 500); i && !arb_load32(&board->stop); i--)
			step(c, &random);
		unguard_ends();
		alarm(DEADLINE_S);
		gpuarb_client_close(c);
	}
	return 0;
}

static int observer(void *argument)
{
	struct arb_segment seg;
	struct arb_snap snap;
	struct arb_event_copy event;
	uint64_t first, end;

	(void)argument;
	while (arb_segment_open(&seg, dir.path, T_GPU, false, NULL, NULL) < 0 && !arb_load32(&board->stop))
		t_sleep_us(1000);
	guard_ends(&seg.file);
	while (!arb_load32(&board->stop)) {
		int r;

		alarm(DEADLINE_S);
		r = arb_check(&seg, NULL, NULL);
		if (r < 0)
			answer("arb_check", r);
		answer("arb_running_read", arb_running_read(&seg, &snap));
		arb_events_range(&seg, &first, &end);
		T_CHECK(end - first <= seg.nevents, "%llu events", (unsigned long long)(end - first));
		for (uint64_t p = first; p != end; p++)
			if (arb_events_read(&seg, p, &event) == 0)
				T_CHECK(strcmp(arb_events_name(event.kind), "unknown") != 0, "event kind %d",
					event.kind);
		arb_add64_full(&board->looks, 1);
	}
	unguard_ends();
	arb_segment_close(&seg);
	return 0;
}

/* Does what the tools do: the view, the reaper and the checker through the library, and a tool as a program. */
static int tools(void *argument)
{
	static struct gpuarb_picture picture;
	char command[PATH_MAX + 128];
	struct gpuarb_event events[64];
	struct gpuarb_view *view;
	struct gpuarb_error err;

	(void)argument;
	snprintf(command, sizeof(command),
		"tool=%s/gpuarb-watchdog; test ! -x $tool || $tool --once --dir %s >/dev/null 2>&1",
		t_build(), dir.path);
	while (!arb_load32(&board->stop)) {
		uint64_t position = 0;
		int r, status;

		alarm(DEADLINE_S);
		r = gpuarb_view_open(dir.path, T_GPU, &view, &err);
		answer("gpuarb_view_open", r);
		if (r == 0) {
			answer("gpuarb_view_read", gpuarb_view_read(view, &picture));
			T_CHECK(picture.nclients <= ARB_SLOTS_MAX, "%u clients", picture.nclients);
			T_CHECK(gpuarb_view_events(view, &position, events, 64) <= 64, "too many events");
			gpuarb_view_close(view);
		}
		r = gpuarb_control_reap(dir.path, T_GPU, NULL, NULL, &err);
		answer("gpuarb_control_reap", r < 0 ? r : 0);
		r = gpuarb_control_check(dir.path, T_GPU, NULL, NULL, &err);
		answer("gpuarb_control_check", r < 0 ? r : 0);
		status = system(command);
		/* The tool may report anything, but must not crash. */
		T_CHECK(WIFEXITED(status) && (WEXITSTATUS(status) <= 3), "the watchdog ended with %d",
			status);
		arb_add64_full(&board->looks, 1);
	}
	return 0;
}

static int fuzzer(void *argument)
{
	struct t_random random = t_seeded(seed ^ 0xf022);
	struct arb_segment seg;

	(void)argument;
	T_CHECK(arb_segment_open(&seg, dir.path, T_GPU, true, NULL, NULL) == 0, "the fuzzer cannot open it");
	while (!arb_load32(&board->stop_fuzz)) {
		/* Mostly one word, sometimes a storm. */
		for (unsigned i = t_below(&random, 8) ? 1 : t_below(&random, 2000); i; i--) {
			garble(&seg, &random);
			arb_add64_full(&board->writes, 1);
		}
		if (t_below(&random, 50) == 0) {
			/* This part never changes: clients that have attached do not read it, and new ones must be
			 * told of garbage there. */
			char whole[ARB_FIXED];
			size_t at = t_below(&random, ARB_FIXED);

			memcpy(whole, seg.header, ARB_FIXED);
			((char *)seg.header)[at] ^= (char)(1 << t_below(&random, 8));
			t_sleep_us(t_below(&random, 3000));
			memcpy(seg.header, whole, ARB_FIXED);
		}
		t_sleep_us(t_below(&random, 2000));
	}
	arb_segment_close(&seg);
	return 0;
}

static void ends_well(pid_t pid, const char *who)
{
	int r = t_wait(pid);

	T_CHECK(r == 0, "%s %s (%d)", who,
		r == -SIGALRM ? "did not answer in time"
		: r < 0       ? strsignal(-r)
			      : "failed",
		r);
}

/* A lease is given by a fresh sample, and a boost made of garbage does not last. */
static void check_lease(struct gpuarb_client *c)
{
	struct gpuarb_lease l = GPUARB_LEASE_INIT;
	struct gpuarb_request request = {.max_wait_ms = 10000};
	int r;

	arb_usage_publish(&c->seg, &c->rules.usage, 1000, ARB_SAMPLE_NVML, arb_os_now_ns());
	r = arb_admission_acquire(c, &request, &l);
	T_CHECK(r == GPUARB_OK, "a lease after the storm: %d, reason %u", r, l.reason);
	T_CHECK((r = arb_admission_release(c, &l)) == 0, "its release: %d", r);
	T_CHECK(arb_usage_read(&c->seg, &c->rules.usage, arb_os_now_ns()).boost_until_ns <
			arb_os_now_ns() + 3600000 * MS,
		"a boost for ever");
}

/* After the storm a client of a new or of a garbled account joins, runs and leaves, without an administrator's help.
 */
static void check_usable(const char *account)
{
	struct gpuarb_client *c;
	struct gpuarb_options o = t_options(&dir, account);
	struct gpuarb_error err = {0};
	struct gpuarb_client_status status;
	int r;

	alarm(60);
	r = gpuarb_client_open(&o, &c, &err);
	T_CHECK(r == 0, "joining after the storm: %s", err.text);
	r = gpuarb_client_wait(c, NULL, 10000 * MS);
	T_CHECK(gpuarb_client_status(c, &status) == 0, "status after the storm");
	/* A bill that a client could have run up is a debt like any other. */
	if (account && r == -ETIMEDOUT && status.reason == ARB_REASON_QUOTA && status.debt_ns) {
		printf("account %s owes %llu ms\n", account, (unsigned long long)(status.debt_ns / MS));
		gpuarb_client_close(c);
		return;
	}
	T_CHECK(r == 0, "running after the storm: %d, reason %u, %llu ns left", r, status.reason,
		(unsigned long long)status.left_ns);
	T_CHECK((r = gpuarb_client_status(c, &status)) == 0 && status.running, "status after the storm: %d",
		r);
	T_CHECK((r = gpuarb_client_mem_reserve(c, 1000)) == 0, "memory after the storm: %d", r);
	T_CHECK((r = gpuarb_client_mem_release(c, 1000)) == 0, "memory after the storm: %d", r);
	T_CHECK((r = gpuarb_client_leave(c, 0)) == 0, "leaving after the storm: %d", r);
	check_lease(c);
	gpuarb_client_close(c);
	alarm(0);
}

static uint64_t sum_of(const char *sub)
{
	char path[PATH_MAX];
	uint64_t sum = 0;
	int byte;
	FILE *f;

	t_path(&dir, sub, path);
	f = fopen(path, "re");
	T_CHECK(f, "%s", path);
	while ((byte = getc(f)) != EOF)
		sum = sum * 31 + (unsigned)byte;
	fclose(f);
	return sum;
}

int main(int argc, char **argv)
{
	struct gpuarb_client *first;
	struct arb_segment seg;
	unsigned seconds = 10;
	const struct t_number numbers[] = {{"--seconds", &seconds}, {0}};
	uint64_t control;
	pid_t pid[CLIENTS], watcher, tool, hostile;

	seed = t_numbers(argc, argv, numbers);
	board = t_shared(sizeof(*board));
	t_dir_make(&dir, "slots = 50\n");
	T_CHECK(t_open(&dir, NULL, &first) == 0, "the first client");
	gpuarb_client_close(first);
	/* The seed chooses the policy. */
	T_CHECK(t_set(&dir, ARB_KEY_POLICY, t_seeded(seed).state % 5) == 0, "policy");
	T_CHECK(t_set(&dir, ARB_KEY_GRACE_MS, 50) == 0, "grace");
	control = sum_of("control");
	for (uintptr_t i = 0; i < CLIENTS; i++)
		pid[i] = t_spawn(client, (void *)i, DEADLINE_S);
	watcher = t_spawn(observer, NULL, DEADLINE_S);
	tool = t_spawn(tools, NULL, DEADLINE_S);
	hostile = t_spawn(fuzzer, NULL, seconds + 30);
	for (unsigned i = 0; i < seconds * 10 && !arb_load32(&board->failures); i++) {
		siginfo_t info = {0};

		t_sleep_us(100000);
		/* A process has ended that should not have. */
		if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid)
			break;
	}
	arb_store32(&board->stop_fuzz, 1);
	ends_well(hostile, "the fuzzer");
	t_sleep_us(1000000);
	arb_store32(&board->stop, 1);
	for (int i = 0; i < CLIENTS; i++)
		ends_well(pid[i], "a client");
	ends_well(watcher, "the observer");
	ends_well(tool, "the tools' side");
	printf("%llu writes of garbage; %llu operations, %llu of them refused; joined %llu times, refused "
	       "%llu times; %llu looks\n",
		(unsigned long long)arb_load64(&board->writes),
		(unsigned long long)arb_load64(&board->operations),
		(unsigned long long)arb_load64(&board->errors), (unsigned long long)arb_load64(&board->opens),
		(unsigned long long)arb_load64(&board->refused),
		(unsigned long long)arb_load64(&board->looks));
	T_CHECK(!arb_load32(&board->failures), "see above; --seed %llu", (unsigned long long)seed);
	T_CHECK(sum_of("control") == control, "the control segment was changed");
	check_usable(NULL);
	check_usable("together");
	T_CHECK(arb_segment_open(&seg, dir.path, T_GPU, false, NULL, NULL) == 0, "looking at it");
	printf("usable again; places that the checker still finds wrong: %d\n", arb_check(&seg, NULL, NULL));
	arb_segment_close(&seg);
	t_dir_remove(&dir);
	return 0;
}
