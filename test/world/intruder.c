#include "test/world/intruder.h"

#include <fnmatch.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/devices.h"
#include "shm/base/text.h"
#include "shm/segment/account_record.h"
#include "shm/segment/snapshot.h"
#include "test/sim/device/model.h"
#include "test/world/faults.h"
#include "test/world/gpu.h"
#include "test/world/judge.h"
#include "test/world/program.h"

enum { VICTIM, NEIGHBOUR, NEWCOMER, PROGRAMS };

/* When words are written over. WITHIN_NS later all programs must have their share again, judged over OVER_NS. */
#define BEGINS_NS (WORLD_S + 37 * WORLD_MS)
#define WITHIN_NS WORLD_S
#define OVER_NS   (2 * WORLD_S)
#define EVERY_NS  WORLD_MS
/* Percentage points by which a share may be off. Without an attack the shares are within half a point. */
#define ERROR_MOST 3.0

static struct program programs[PROGRAMS];
static const unsigned limits[PROGRAMS] = {30, 40, 20};

static bool find(struct target *t)
{
	struct arb_segment *seg = judge_segment();
	uint32_t a;

	for (a = 0; seg && a < seg->naccounts; a++)
		if (arb_text_equals(seg->accounts[a].name, ARB_NAME_WORDS, "victim"))
			break;
	if (!seg || a == seg->naccounts)
		return false;
	*t = (struct target){.seg = seg, .entry = &seg->accounts[a]};
	t->account = account_record_of(seg, a, t->entry->head.v);
	t->record = snap_record_of(seg, seg->header->head.v);
	for (uint32_t i = 0; i < seg->nslots && !t->slot; i++)
		if (seg->slots[i].account.v == a && t->account && seg->slots[i].state.v == ARB_SLOT_LIVE)
			t->slot = &seg->slots[i];
	if (!t->slot)
		t->slot = &seg->slots[0];
	if (!t->account)
		t->account = &t->entry->home[0];
	return true;
}

/* Attacks the target that was found at the beginning: later it could not be found, because a repeated attack has
 * destroyed the words that finding it needs. */
static void write_over(unsigned attack, struct target *first)
{
	struct target t = *first;

	if (!intruder_attacks[attack].write)
		return;

	t.account = account_record_of(t.seg, (uint32_t)(t.entry - t.seg->accounts), t.entry->head.v);
	t.record = snap_record_of(t.seg, t.seg->header->head.v);
	if (!t.account)
		t.account = &t.entry->home[0];
	intruder_attacks[attack].write(&t);
}

/* Time passes, half a second a step, from the beginning of the attack on. Each program is measured from WITHIN_NS after
 * that, or after it came, on. */
#define STEPS (1 + (WITHIN_NS + OVER_NS) / (WITHIN_NS / 2))

static unsigned first_step(unsigned program)
{
	return program == NEWCOMER ? 2 : 1;
}

static void pass(unsigned attack, struct target *target, uint64_t ns)
{
	for (uint64_t until = world.now_ns + ns; world.now_ns < until && !world.failed;) {
		world_run(world.now_ns + EVERY_NS, judge_step);
		if (intruder_attacks[attack].again)
			write_over(attack, target);
	}
}

static double run(unsigned attack, const struct case_options *o)
{
	static const char *const names[PROGRAMS] = {"victim", "neighbour", "newcomer"};
	uint64_t before[PROGRAMS], after[PROGRAMS];
	struct target target;
	const struct intruder_attack *a = &intruder_attacks[attack];
	double worst = 0, least = 0;

	case_begin(o);
	world_terms = (struct world_terms){.every = 1000, .garbage = true};
	memset(programs, 0, sizeof(programs));
	for (unsigned i = 0; i < PROGRAMS; i++) {
		bool asks = i == NEIGHBOUR && a->asks[0];

		program_prepare(
			&programs[i], names[i], asks ? 0 : limits[i], "--kernel-us=200 --duration=10");
		if (asks)
			program_set(&programs[i], a->asks[0], a->asks[1]);
		if (a->policy)
			program_set(&programs[i], "GPUARB_POLICY", a->policy);
		/* The newcomer starts after a single attack, or during a repeated one. */
		program_start(&programs[i], world.now_ns + (i == NEWCOMER ? BEGINS_NS + WITHIN_NS / 2 : 0));
	}
	world_run(world.now_ns + BEGINS_NS + world.seed % 100 * WORLD_MS, judge_step);
	if (find(&target))
		write_over(attack, &target);
	else
		world_fail("there is no victim");
	for (unsigned step = 0; step < STEPS; step++) {
		pass(attack, &target, WITHIN_NS / 2);
		for (unsigned i = 0; i < PROGRAMS; i++)
			if (step == first_step(i))
				before[i] = program_device_ns(&programs[i]);
			else if (step == first_step(i) + OVER_NS / (WITHIN_NS / 2))
				after[i] = program_device_ns(&programs[i]);
	}
	for (unsigned i = 0; i < PROGRAMS; i++) {
		double error = 100 * (double)(after[i] - before[i]) / (double)OVER_NS - limits[i];

		if (i == NEIGHBOUR && a->asks[0])
			continue;
		if (fabs(error) > fabs(worst))
			worst = error;
		/* No program may get less than its limit or, during a repeated attack, than an equal part of the GPU
		 * if that is less. */
		if (a->again && limits[i] > 100.0 / PROGRAMS)
			error += limits[i] - 100.0 / PROGRAMS;
		if (error < least)
			least = error;
	}
	if (world.failed)
		world_tell();
	judge_end();
	world_end();
	/* A share that is too small is reported even if another one is too large by more. */
	return least < -ERROR_MOST ? least : fabs(worst);
}

int intruder_run(const struct case_options *o, int *n)
{
	struct device_environment before;
	int bad = 0;

	if (strncmp(o->pattern, "intruder", 8))
		return 0;
	for (unsigned i = 0; i < intruder_nattacks; i++) {
		char name[64];
		double error;
		bool failed;

		snprintf(name, sizeof(name), "intruder-%s", intruder_attacks[i].name);
		if (fnmatch(o->pattern, name, 0))
			continue;
		device_settings_apply(&before, devices[0].settings);
		setenv("GPUSIM_UUID", WORLD_GPU, 1);
		error = run(i, o);
		failed = world.failed || error > ERROR_MOST + intruder_attacks[i].gives ||
			 error < -ERROR_MOST - intruder_attacks[i].takes;
		device_settings_restore(&before);
		(*n)++;
		bad += failed;
		if (o->json)
			json_array_append_new(o->json,
				json_pack("{s:s,s:f,s:b}", "case", name, "error", error, "failed", failed));
		else if (!o->brief || failed)
			printf("%-24s %+6.2f points a second after it began (at most %.0f)  %s\n", name,
				error, ERROR_MOST, failed ? "FAILED" : "ok");
	}
	return bad;
}
