#include "test/world/jobs.h"

#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/devices.h"
#include "shm/base/atomic.h"
#include "shm/segment/account.h"
#include "shm/segment/running.h"
#include "test/sim/device/model.h"
#include "test/world/faults.h"
#include "test/world/gpu.h"
#include "test/world/judge.h"
#include "test/world/program.h"

#define JOBS 2
/* In a span of this length each job that can go on must end one more kernel of each rank. It is ten times the time by
 * which a turn may be exceeded. */
#define SPAN_NS (3 * WORLD_S)
#define SPANS   3

static struct program programs[JOBS];

/* Prints which client waits for what, on each GPU. */
static void tell_state(void)
{
	for (int device = 0; device < sim_device_count(); device++) {
		struct sim_device_info info;
		struct arb_segment seg;
		struct arb_snap run;

		sim_device_info(device, &info);
		if (arb_segment_open(&seg, WORLD_DIR, info.uuid, false, NULL, NULL))
			continue;
		if (arb_running_read(&seg, &run) == 0)
			for (uint32_t i = 0; i < JOBS * 4 && i < seg.nslots; i++) {
				const struct arb_slot *s = &seg.slots[i];
				struct arb_account_snap a;
				uint32_t account = arb_load32(&s->account);

				if (arb_load32(&s->state) != ARB_SLOT_LIVE || account >= seg.naccounts ||
					arb_account_read(&seg, account, &a) < 0)
					continue;
				printf("#     GPU %d slot %u account %u: %s%s, reason %u, flags %u, %.1f ms "
				       "beyond its cap\n",
					device, i, account, arb_bit_test(run.running, i) ? "runs" : "is out",
					arb_bit_test(run.waiting, i) ? ", waits" : "", arb_load32(&s->reason),
					arb_load32(&s->flags),
					(double)(int64_t)(arb_account_usage(&seg, &run, &a, a.wall, false) -
							  a.cap) /
						1e6 / ARB_TICKS_PER_NS);
			}
		arb_segment_close(&seg);
	}
}

/* Returns whether each job from number `first` on makes progress in every span. */
static bool get_on(const char *name, const char *when, unsigned first)
{
	for (unsigned span = 0; span < SPANS && !world.failed; span++) {
		uint64_t before[JOBS];

		for (unsigned i = first; i < JOBS; i++)
			before[i] = program_kernels(&programs[i]);
		world_run(world.now_ns + SPAN_NS, judge_step);
		for (unsigned i = first; i < JOBS && !world.failed; i++)
			if (program_kernels(&programs[i]) < before[i] + programs[i].load.ranks) {
				printf("#   %s: job %u stood still for %llu s %s\n", name, i,
					(unsigned long long)(SPAN_NS / WORLD_S), when);
				tell_state();
				return false;
			}
	}
	return !world.failed;
}

static bool run_case(const char *name, const char *policy, unsigned ranks, unsigned limit, bool kill,
	const struct case_options *o)
{
	struct device_environment before;
	char settings[64], line[200];
	bool good;

	snprintf(settings, sizeof(settings), "GPUSIM_DEVICES=%u GPUSIM_MODE=share", ranks);
	device_settings_apply(&before, settings);
	setenv("GPUSIM_UUID", WORLD_GPU, 1);
	case_begin(o);
	for (unsigned i = 0; i < JOBS; i++) {
		char account[32];

		snprintf(account, sizeof(account), "job%u", i);
		snprintf(line, sizeof(line), "GPUARB_POLICY=%s --ranks=%u --kernel-us=1000 --duration=3600",
			policy, ranks);
		program_prepare(&programs[i], account, limit, line);
		program_start(&programs[i], world.now_ns + i * WORLD_MS);
	}
	world_run(world.now_ns + WORLD_S, judge_step);
	good = get_on(name, "", 0);
	if (good && kill) {
		/* The other ranks of its job now spin for ever. The other job must not wait for them. */
		world_kill(programs[0].process[ranks - 1]);
		good = get_on(name, "beside ranks that wait for a dead one", 1);
		for (unsigned k = 0; k + 1 < ranks; k++)
			world_kill(programs[0].process[k]);
		good = good && get_on(name, "after the other job was killed", 1);
	}
	if (!o->brief || !good)
		printf("%-30s %s\n", name, good ? "ok" : "FAILED");
	if (world.failed)
		world_tell();
	judge_end();
	world_end();
	device_settings_restore(&before);
	fflush(stdout);
	return !good;
}

int jobs_run(const struct case_options *o, int *n)
{
	static const char *const policies[] = {"concurrent", "exclusive", "fair", "auto", "memory"};
	static const unsigned limits[] = {0, 10, 30, 60};
	int bad = 0;

	for (unsigned ranks = 2; ranks <= 4; ranks += 2)
		for (unsigned p = 0; p < sizeof(policies) / sizeof(policies[0]); p++)
			for (unsigned l = 0; l < sizeof(limits) / sizeof(limits[0]); l++)
				for (unsigned kill = 0; kill < 2; kill++) {
					char name[64];

					snprintf(name, sizeof(name), "jobs-%u-%s-%u%s", ranks, policies[p],
						limits[l], kill ? "-killed" : "");
					if (fnmatch(o->pattern, name, 0))
						continue;
					++*n;
					bad += run_case(name, policies[p], ranks, limits[l], kill, o);
				}
	return bad;
}
