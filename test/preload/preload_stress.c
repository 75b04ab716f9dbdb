/*
 * Programs with threads, contexts, streams, events, graphs, captures and host functions do random things on the
 * simulated GPU, while the test changes limits and policy, stops and ends them, and removes the segment. None may
 * hang, each sum that they compute must be right, the bills must add up and be about what the GPU did. It runs with
 * the preload.
 *
 *   preload_stress [--seconds N] [--seed S]
 */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "test/preload/preload_stress.h"

#include "test/sim/device/model.h"

struct stress stress;

static struct t_dir arb, sim;
static char uuid[48];

/* A round, with the dangers that it has. */
struct round {
	const char *name;
	bool limits, stops, kills, removes;
};

static const struct round rounds[] = {
	{"no limits", false, false, false, false},
	{"limits and policies that change", true, false, false, false},
	{"programs that are stopped, and a segment that is taken away", true, true, false, true},
	{"programs that are killed", true, true, true, false},
};

static void change(const char *account, const char *key, const char *value)
{
	struct gpuarb_change what = {account, key, value};
	struct gpuarb_error err = {0};

	T_CHECK(!gpuarb_control_change(arb.path, uuid, &what, 1, &err), "%s", err.text);
}

static void set_something(struct t_random *r)
{
	static const char *const policy[] = {"concurrent", "exclusive", "auto", "fair", "memory"};
	static const char *const core[] = {"100", "70", "30", "10", "100", "50"};
	static const char *const window[] = {"20", "100", "300"};
	char account[16];

	snprintf(account, sizeof(account), "stress%u", t_below(r, PROCESSES));
	switch (t_below(r, 8)) {
	case 0:
		change(NULL, "policy", policy[t_below(r, 5)]);
		break;
	case 1:
		change(NULL, "window_ms", window[t_below(r, 3)]);
		break;
	default:
		change(account, "core", core[t_below(r, 6)]);
	}
}

static void set_free(void)
{
	char account[16];

	change(NULL, "policy", "concurrent");
	for (unsigned i = 0; i < PROCESSES; i++) {
		snprintf(account, sizeof(account), "stress%u", i);
		change(account, "core", "100");
	}
}

static pid_t start(unsigned i, struct t_random *r)
{
	struct program p = {.index = i, .seed = t_next(r)};

	return t_spawn(stress_program, &p, stress.seconds + 30);
}

/* Checks that a program that ended by itself ended well. */
static void must_be_well(pid_t pid, bool killed)
{
	int status = t_wait(pid);

	if (status == -SIGALRM)
		fprintf(stderr, "preload_stress: a program hung (seed %llu)\n",
			(unsigned long long)stress.seed);
	T_CHECK(status == 0 || (killed && (status == -SIGKILL || status == -SIGTERM)), "status %d", status);
}

static void take_away_segment(void)
{
	char path[256];

	snprintf(path, sizeof(path), "%s/state/%s", arb.path, uuid);
	T_CHECK(!unlink(path) || errno == ENOENT, "%s", path);
}

static void disturb(const struct round *round, pid_t *pid, struct t_random *r)
{
	unsigned victim = t_below(r, PROCESSES);

	if (round->limits)
		set_something(r);
	if (round->stops && !t_below(r, 10)) {
		kill(pid[victim], SIGSTOP);
		/* From time to time it is stopped for longer than the grace. */
		t_sleep_us(t_below(r, 4) ? 20000 : 700000);
		kill(pid[victim], SIGCONT);
	}
	if (round->kills && !t_below(r, 10)) {
		kill(pid[victim], t_below(r, 2) ? SIGKILL : SIGTERM);
		must_be_well(pid[victim], true);
		pid[victim] = start(victim, r);
	}
	if (round->removes && !t_below(r, 40))
		take_away_segment();
}

/* Checks that the bills add up to the busy time, and that this is about what the GPU did. */
static void check_bills(const struct round *round, uint64_t began)
{
	static struct gpuarb_picture picture;
	struct sim_device_state state;
	struct gpuarb_error err = {0};
	struct gpuarb_view *view;
	uint64_t copied;

	/* With GPUARB_DISABLE=1 the programs run without the preload's action, for comparison. */
	if (getenv("GPUARB_DISABLE"))
		return;
	gpuarb_control_reap(arb.path, uuid, NULL, NULL, NULL);
	T_CHECK(gpuarb_control_check(arb.path, uuid, t_say, NULL, &err) == 0, "%s", err.text);
	T_CHECK(!gpuarb_view_open(arb.path, uuid, &view, &err), "%s", err.text);
	T_CHECK(!gpuarb_view_read(view, &picture), "no picture");
	gpuarb_view_close(view);
	T_CHECK(!sim_device_state(0, &state), "no simulation");
	copied = state.copy_ns[0] + state.copy_ns[1];
	printf("preload_stress: %s: %.0f ms billed, the GPU worked %.0f ms and copied %.0f\n", round->name,
		(double)picture.billed_ns / 1e6, (double)state.busy_ns / 1e6, (double)copied / 1e6);
	T_CHECK(picture.billed_ns == picture.busy_ns, "%llu billed, %llu busy",
		(unsigned long long)picture.billed_ns, (unsigned long long)picture.busy_ns);
	T_CHECK(picture.nrunning == 0 && picture.nwaiting == 0, "somebody is still there");
	if (!round->removes)
		T_CHECK(picture.billed_ns <= t_now_ns() - began, "more than there was");
	if (!round->stops && !round->removes)
		T_CHECK(picture.billed_ns >= state.busy_ns / 2, "less than half of it");
}

static void run(const struct round *round, struct t_random *r)
{
	uint64_t began = t_now_ns(), end = began + stress.seconds * 1000000000ull / 4;
	struct sim_device_info info;
	pid_t pid[PROCESSES];

	t_dir_make(&sim, NULL);
	t_dir_make(&arb, NULL);
	setenv("GPUSIM_DIR", sim.path, 1);
	setenv("GPUARB_DIR", arb.path, 1);
	setenv("GPUARB_CONF", arb.conf, 1);
	T_CHECK(!sim_open() && !sim_device_info(0, &info), "no simulation");
	snprintf(uuid, sizeof(uuid), "%s", info.uuid);
	*stress.stop = 0;
	for (unsigned i = 0; i < PROCESSES; i++)
		pid[i] = start(i, r);
	t_sleep_us(200000);
	while (t_now_ns() < end) {
		disturb(round, pid, r);
		t_sleep_us(5000 + t_below(r, 40000));
	}
	if (round->limits)
		set_free();
	__atomic_store_n(stress.stop, 1, __ATOMIC_RELEASE);
	for (unsigned i = 0; i < PROCESSES; i++)
		must_be_well(pid[i], false);
	check_bills(round, began);
	sim_close();
	t_dir_remove(&arb);
	t_dir_remove(&sim);
}

int main(int argc, char **argv)
{
	const struct t_number numbers[] = {{"--seconds", &stress.seconds}, {0}};
	struct t_random r;

	stress.seconds = 12;
	stress.seed = t_numbers(argc, argv, numbers);
	stress.stop = t_shared(sizeof(*stress.stop));
	setenv("GPUSIM_COST", "0", 1);
	setenv("GPUSIM_CTX_MB", "0", 1);
	setenv("GPUSIM_DEVICES", "2", 1);
	unsetenv("CUDA_VISIBLE_DEVICES");
	unsetenv("GPUARB_CORE_LIMIT");
	r = t_seeded(stress.seed);
	for (unsigned i = 0; i < sizeof(rounds) / sizeof(*rounds); i++)
		run(&rounds[i], &r);
	printf("preload_stress: nobody hung, every sum was right, every bill added up\n");
	return 0;
}
