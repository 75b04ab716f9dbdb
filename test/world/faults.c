#include "test/world/faults.h"

#include <stdio.h>
#include <string.h>

#include "gpuarb/control.h"
#include "test/world/judge.h"
#include "test/world/smaller.h"

struct faults faults;

static struct {
	uint64_t end_ns;
	void (*followed)(struct world_process *dead);
	unsigned told; /* number of the first process whose end was not reported yet */
	bool done[4096];
} plan;

void faults_draw(bool polite)
{
	faults = (struct faults){0};
	if (world_chance_below(&world.programs, 3) == 0)
		return;
	if (world_chance_below(&world.programs, 2))
		faults.kills = 1 + world_chance_below(&world.programs, 60);
	if (world_chance_below(&world.programs, 3) == 0)
		faults.stops = 5 + world_chance_below(&world.programs, 100);
	if (!polite && world_chance_below(&world.programs, 3) == 0)
		faults.changes = 1 + world_chance_below(&world.programs, 30);
	if (!polite && world_chance_below(&world.programs, 6) == 0)
		faults.replaces = 20 + world_chance_below(&world.programs, 500);
	if (!polite && world_chance_below(&world.programs, 6) == 0)
		faults.garbles = 1 + world_chance_below(&world.programs, 30);
	if (!polite && world_chance_below(&world.programs, 6) == 0)
		faults.fails = 2 + world_chance_below(&world.programs, 1000);
	if (world_chance_below(&world.programs, 6) == 0)
		faults.forks = 5 + world_chance_below(&world.programs, 60);
	if (!polite && world_chance_below(&world.programs, 6) == 0)
		faults.swaps = 2 + world_chance_below(&world.programs, 60);
	if (!polite && world_chance_below(&world.programs, 6) == 0)
		faults.abandons = 1 + world_chance_below(&world.programs, 2);
	if (!polite && world_chance_below(&world.programs, 6) == 0)
		faults.holds = 20 + world_chance_below(&world.programs, 2000);
	/* Not drawn: an additional draw would change the worlds of all seeds. */
	faults.massacres = faults.kills && world.seed % 2;
	smaller_faults();
}

bool faults_limits_move(void)
{
	return faults.changes || faults.swaps;
}

uint64_t faults_patience_ns(void)
{
	return (faults.kills || faults.stops ? 4 : 2) * WORLD_S;
}

static struct world_process *victim(void)
{
	for (int i = 0; i < 8; i++) {
		struct world_process *p =
			world.processes[world_chance_below(&world.programs, world.nprocesses)];

		if (p->alive && p->script)
			return p;
	}
	return NULL;
}

/* Kills several processes some milliseconds apart, so that one client finds several dead that were last heard of at
 * different times. */
static void kill_several(void)
{
	for (unsigned n = 2 + (unsigned)world_chance_below(&world.programs, 5); n; n--) {
		struct world_process *p = victim();

		if (world.now_ns >= plan.end_ns)
			return;
		if (p)
			world_kill(p);
		world_sleep(world_chance_below(&world.programs, 6 * WORLD_MS));
	}
}

static void *killer(void *argument)
{
	struct world_process *p;

	(void)argument;
	for (;;) {
		world_sleep(world_chance_exp(&world.programs, faults.kills * WORLD_MS));
		if (world.now_ns >= plan.end_ns)
			return NULL;
		if (faults.massacres) {
			kill_several();
			continue;
		}
		p = victim();
		if (!p)
			continue;
		/* Killed where it sleeps, or some scheduling points later. */
		if (world_chance_below(&world.programs, 4) == 0)
			world_kill(p);
		else
			world_doom(p, 1 + (uint32_t)world_chance_below(&world.programs, 60));
	}
}

static void *stopper(void *argument)
{
	struct world_process *p;

	(void)argument;
	for (;;) {
		world_sleep(world_chance_exp(&world.programs, faults.stops * WORLD_MS));
		if (world.now_ns >= plan.end_ns)
			return NULL;
		p = victim();
		if (p && !p->stopped)
			world_stop(p, world_chance_exp(&world.programs, 50 * WORLD_MS));
	}
}

/* A forked child that does nothing with the GPU and may outlive its parent. It keeps files open, and must not keep its
 * parent's locks. */
static void *bystander(void *argument)
{
	world_sleep((uint64_t)(uintptr_t)argument);
	return NULL;
}

static void *forker(void *argument)
{
	(void)argument;
	for (;;) {
		struct world_process *p;
		uint64_t life = world_chance_exp(&world.programs, 60 * WORLD_MS);

		world_sleep(world_chance_exp(&world.programs, faults.forks * WORLD_MS));
		if (world.now_ns >= plan.end_ns)
			return NULL;
		p = victim();
		if (!p || p->stopped)
			continue;
		world_does("forks", p->number, life);
		world_fork(p, "child", bystander, (void *)(uintptr_t)(life < WORLD_S ? life : WORLD_S));
	}
}

/* Replaces limits files as the kubelet does when an annotation changes, removes them, or makes them invalid. */
static void *swapper(void *argument)
{
	(void)argument;
	for (;;) {
		char path[64], text[64];
		unsigned account = (unsigned)world_chance_below(&world.programs, 4);
		unsigned kind = (unsigned)world_chance_below(&world.programs, 8);
		unsigned percent = 1 + (unsigned)world_chance_below(&world.programs, 100);

		world_sleep(world_chance_exp(&world.programs, faults.swaps * WORLD_MS));
		if (world.now_ns >= plan.end_ns)
			return NULL;
		snprintf(path, sizeof(path), FAULTS_LIMITS, account);
		/* Written like an annotation, as a bare number, or with a quote that is not closed. */
		if (kind < 4)
			snprintf(text, sizeof(text), "gpuarb.dev/core-limit=\"%u\"\n", percent);
		else
			snprintf(text, sizeof(text), "%s%u", kind < 6 ? "" : "gpuarb.dev/core-limit=\"",
				percent);
		world_does("replaces a limits file", account, kind == 7 ? 0 : percent);
		world_text(path, kind == 7 ? NULL : text);
	}
}

/* Removes the segment's file from time to time; the next client creates a new one. */
static void *remover(void *argument)
{
	(void)argument;
	for (;;) {
		world_sleep(world_chance_exp(&world.programs, faults.replaces * WORLD_MS));
		if (world.now_ns >= plan.end_ns)
			return NULL;
		world_does("removes the segment", 0, 0);
		world_unlink(WORLD_STATE);
	}
}

/* Writes garbage anywhere behind the words at the beginning of the file that say what the file is. */
static void *garbler(void *argument)
{
	(void)argument;
	for (;;) {
		size_t size = 0, at;
		char *base;

		world_sleep(world_chance_exp(&world.programs, faults.garbles * WORLD_MS));
		if (world.now_ns >= plan.end_ns)
			return NULL;
		base = world_file(WORLD_STATE, &size);
		if (!base || size < 8192)
			continue;
		at = 512 + world_chance_below(&world.programs, (size - 520) / 8) * 8;
		world_does("writes garbage", at, 0);
		for (unsigned n = 1 + (unsigned)world_chance_below(&world.programs, 4); n; n--, at += 8)
			if (at + 8 <= size) {
				uint64_t value = world_chance_next(&world.programs);

				/* Small numbers are more likely to be believed. */
				if (world_chance_below(&world.programs, 2))
					value &= 0xff;
				memcpy(base + at, &value, 8);
			}
	}
}

static void *changer(void *argument)
{
	static const char *const keys[] = {"core", "mem", "priority", "window_ms", "slice_ms", "grace_ms",
		"policy", "billing", "carryover_percent", "borrow"};
	static const char *const policies[] = {"concurrent", "exclusive", "auto", "fair"};

	(void)argument;
	for (;;) {
		char account[24], value[32];
		unsigned k = (unsigned)world_chance_below(&world.programs, 10);
		struct gpuarb_change change = {k < 3 ? account : NULL, keys[k], value};
		struct gpuarb_error err = {0};
		uint64_t n = 1 + world_chance_below(&world.programs, 100);

		world_sleep(world_chance_exp(&world.programs, faults.changes * WORLD_MS));
		if (world.now_ns >= plan.end_ns)
			return NULL;
		snprintf(account, sizeof(account), "account%u",
			(unsigned)world_chance_below(&world.programs, 4));
		snprintf(value, sizeof(value), "%llu",
			(unsigned long long)(k == 1             ? n * 20000
					     : k == 3 || k == 5 ? 10 + n
								: n));
		if (k == 6)
			snprintf(value, sizeof(value), "%s", policies[n % 4]);
		if (k == 7)
			snprintf(value, sizeof(value), "%s", n % 2 ? "weighted" : "full");
		if (k == 9)
			snprintf(value, sizeof(value), "%s", n % 2 ? "off" : "idle");
		world_does("changes a setting", k, n);
		if (gpuarb_control_change(WORLD_DIR, WORLD_GPU, &change, 1, &err) < 0 && err.code != -11 &&
			err.code != -16)
			world_fail("%s=%s cannot be set: %s", keys[k], value, err.text);
	}
}

/* Tells `followed` of each program that has ended. */
static void *follower(void *argument)
{
	(void)argument;
	while (world.now_ns < plan.end_ns) {
		for (unsigned i = 0; i < world.nprocesses && i < 4096; i++)
			if (!world.processes[i]->alive && !plan.done[i]) {
				plan.done[i] = true;
				plan.followed(world.processes[i]);
			}
		world_sleep(5 * WORLD_MS);
	}
	return NULL;
}

void faults_start(uint64_t end_ns, void (*followed)(struct world_process *dead))
{
	struct world_process *p = world_process_new(NULL);

	for (unsigned i = 0; i < 4096; i++)
		plan.done[i] = false;
	plan.end_ns = end_ns;
	plan.followed = followed;
	world_thread_new(p, "follower", world.now_ns, follower, NULL);
	if (faults.kills)
		world_thread_new(p, "killer", world.now_ns, killer, NULL);
	if (faults.stops)
		world_thread_new(p, "stopper", world.now_ns, stopper, NULL);
	if (faults.replaces)
		world_thread_new(p, "remover", world.now_ns, remover, NULL);
	if (faults.forks)
		world_thread_new(p, "forker", world.now_ns, forker, NULL);
	if (faults.swaps)
		world_thread_new(p, "swapper", world.now_ns, swapper, NULL);
	if (faults.garbles)
		world_thread_new(p, "garbler", world.now_ns, garbler, NULL);
	if (faults.changes)
		world_thread_new(p, "administrator", world.now_ns + 20 * WORLD_MS, changer, NULL);
}
