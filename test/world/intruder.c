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
#define HOUR      (3600ull * 1000000000u * ARB_TICKS_PER_NS)
/* Percentage points by which a share may be off. Without an attack the shares are within half a point. */
#define ERROR_MOST 3.0

static struct program programs[PROGRAMS];
static const unsigned limits[PROGRAMS] = {30, 40, 20};

/* What is written to: the victim's slot and account. */
struct target {
	struct arb_segment *seg;
	struct arb_slot *slot;
	struct arb_account *entry;
	struct arb_account_record *account; /* the account's record that its head names */
	struct arb_record *record; /* the running set's record that the head names; NULL: there is none */
};

static void add(arb_u64 *word, uint64_t by)
{
	word->v += by;
}

static void bill(struct target *t)
{
	add(&t->slot->acc, HOUR);
	add(&t->slot->total, HOUR);
}

static void credit(struct target *t)
{
	add(&t->slot->acc, 0 - HOUR);
	add(&t->slot->total, 0 - HOUR);
}

static void base(struct target *t)
{
	add(&t->slot->base, 0 - HOUR);
}

static void weight(struct target *t)
{
	t->slot->weight.v = 1;
}

static void asked(struct target *t)
{
	t->slot->asked_ppm.v = 10000;
	t->seg->header->epoch.v++;
}

static void asked_nothing(struct target *t)
{
	t->slot->asked_ppm.v = 0;
	t->seg->header->epoch.v++;
}

static void folded(struct target *t)
{
	add(&t->account->folded, HOUR);
}

static void cap_lowered(struct target *t)
{
	add(&t->account->cap, 0 - HOUR);
	add(&t->account->hard, 0 - HOUR);
}

static void cap_raised(struct target *t)
{
	add(&t->account->cap, HOUR);
	add(&t->account->hard, HOUR);
}

static void quota(struct target *t)
{
	t->account->quota.v = 10000 | 10000ull << 32;
	t->entry->limit_ppm.v = 10000;
}

static void detach(struct target *t)
{
	memset(t->account->attached, 0, sizeof(t->account->attached));
}

static void memory(struct target *t)
{
	t->account->mem_used.v = 1ull << 40;
	t->slot->asked_mem.v = 4096;
	t->slot->mem_now.v = 1ull << 40;
}

static void account_zeroed(struct target *t)
{
	memset(t->entry->home, 0, sizeof(t->entry->home));
	memset(t->slot->account_record, 0, sizeof(t->slot->account_record));
	t->entry->head.v = 0;
}

static void slots_zeroed(struct target *t)
{
	memset(t->seg->slots, 0, t->seg->nslots * sizeof(struct arb_slot));
}

static void emptied(struct target *t)
{
	if (!t->record)
		return;
	memset(t->record->running, 0, sizeof(t->record->running));
	t->record->shape.v &= ~((1ull << ARB_SHAPE_WEIGHT_BITS) - 1);
}

static void crowd(struct target *t)
{
	if (!t->record)
		return;
	for (uint32_t i = 0; i < 64 && i < t->seg->nslots; i++)
		if (t->seg->slots[i].state.v == ARB_SLOT_FREE) {
			t->seg->slots[i].weight.v = ARB_WEIGHT_ONE;
			t->seg->slots[i].heartbeat_ns.v = world.now_ns;
			if (!(t->record->running[0].v >> i & 1))
				t->record->shape.v += ARB_WEIGHT_ONE;
			t->record->running[0].v |= 1ull << i;
		}
}

static void jump(struct target *t)
{
	if (t->record)
		add(&t->record->v, HOUR / ARB_WEIGHT_ONE);
}

static void ahead(struct target *t)
{
	if (!t->record)
		return;
	add(&t->record->t, 50ull * 1000000000u * ARB_TICKS_PER_NS);
	add(&t->record->win_start, 50ull * 1000000000u * ARB_TICKS_PER_NS);
}

static void window(struct target *t)
{
	if (t->record)
		t->record->shape.v =
			(t->record->shape.v & 0xff000000ffffffff) | 3600000ull << ARB_SHAPE_WIN_SHIFT;
}

static void freed(struct target *t)
{
	t->slot->state.v = ARB_SLOT_FREE;
	t->slot->generation.v++;
	t->slot->account.v = 7;
}

static const struct {
	const char *name;
	void (*write)(struct target *t);
	bool again;   /* the attack is repeated every millisecond, until the end */
	double gives; /* points by which the victim's share may be off while such an attack lasts */
} attacks[] = {
	{"bill", bill, false, 0},
	{"bills", bill, true, 0},
	{"credit", credit, false, 0},
	{"credits", credit, true, 0},
	{"base", base, false, 0},
	{"weight", weight, true, 0},
	{"asked", asked, false, 0},
	{"asked-not", asked_nothing, false, 0},
	{"folded", folded, false, 0},
	{"cap", cap_lowered, false, 0},
	{"caps", cap_lowered, true, 0},
	{"unlimit", cap_raised, true, 0},
	{"quota", quota, true, 0},
	{"detach", detach, true, 0},
	{"memory", memory, true, 0},
	{"account", account_zeroed, false, 0},
	{"slots", slots_zeroed, false, 0},
	{"emptied", emptied, false, 0},
	/* A client that was taken out of the set is billed as one of the most members that the set had at any look in
	 * the last five to ten windows. So it pays its part at most, and less where the set has become smaller. */
	{"out", emptied, true, 5},
	/* Half of what is used may be billed to no account. These points are what that gives at the smallest limit. */
	{"crowd", crowd, true, 2},
	{"jump", jump, false, 0},
	{"ahead", ahead, false, 0},
	{"window", window, false, 0},
	{"free", freed, true, 0},
};

static uint64_t device_ns(unsigned i)
{
	static struct sim_process_state list[SIM_MAX_PROCS];
	int n = sim_snapshot(0, NULL, true, list, SIM_MAX_PROCS);

	for (int j = 0; programs[i].process[0] && j < n; j++)
		if (list[j].pid == (int)(1000 + programs[i].process[0]->number))
			return list[j].device_ns;
	return 0;
}

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

	t.account = account_record_of(t.seg, (uint32_t)(t.entry - t.seg->accounts), t.entry->head.v);
	t.record = snap_record_of(t.seg, t.seg->header->head.v);
	if (!t.account)
		t.account = &t.entry->home[0];
	attacks[attack].write(&t);
}

static double run(unsigned attack, const struct case_options *o)
{
	static const char *const names[PROGRAMS] = {"victim", "neighbour", "newcomer"};
	uint64_t before[PROGRAMS], until;
	struct target target;
	double worst = 0, least = 0;

	world_begin(o->seed);
	faults = (struct faults){0};
	if (o->robbed)
		world_robbed();
	else
		world_quiet();
	world_gpu_begin();
	world_terms = (struct world_terms){.every = 1000, .garbage = true};
	judge_begin();
	memset(programs, 0, sizeof(programs));
	for (unsigned i = 0; i < PROGRAMS; i++) {
		program_prepare(&programs[i], names[i], limits[i], "--kernel-us=200 --duration=10");
		/* The newcomer starts after a single attack, or during a repeated one. */
		program_start(&programs[i], world.now_ns + (i == NEWCOMER ? BEGINS_NS + WITHIN_NS / 2 : 0));
	}
	world_run(world.now_ns + BEGINS_NS + world.seed % 100 * WORLD_MS, judge_step);
	if (find(&target))
		write_over(attack, &target);
	else
		world_fail("there is no victim");
	for (until = world.now_ns + WITHIN_NS; world.now_ns < until && !world.failed;) {
		world_run(world.now_ns + EVERY_NS, judge_step);
		if (attacks[attack].again)
			write_over(attack, &target);
	}
	for (unsigned i = 0; i < PROGRAMS; i++)
		before[i] = device_ns(i);
	for (until = world.now_ns + OVER_NS; world.now_ns < until && !world.failed;) {
		world_run(world.now_ns + EVERY_NS, judge_step);
		if (attacks[attack].again)
			write_over(attack, &target);
	}
	for (unsigned i = 0; i < PROGRAMS; i++) {
		double error = 100 * (double)(device_ns(i) - before[i]) / (double)OVER_NS - limits[i];

		if (fabs(error) > fabs(worst))
			worst = error;
		/* No program may get less than its limit or, during a repeated attack, than an equal part of the GPU
		 * if that is less. */
		if (attacks[attack].again && limits[i] > 100.0 / PROGRAMS)
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
	for (unsigned i = 0; i < sizeof(attacks) / sizeof(attacks[0]); i++) {
		char name[64];
		double error;
		bool failed;

		snprintf(name, sizeof(name), "intruder-%s", attacks[i].name);
		if (fnmatch(o->pattern, name, 0))
			continue;
		device_settings_apply(&before, devices[0].settings);
		setenv("GPUSIM_UUID", WORLD_GPU, 1);
		error = run(i, o);
		failed = world.failed || error > ERROR_MOST + attacks[i].gives || error < -ERROR_MOST;
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
