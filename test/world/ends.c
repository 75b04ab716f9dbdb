#include "test/world/ends.h"

#include <dlfcn.h>
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/tracker_cases.h"
#include "cuda_abi.h"
#include "shm/base/atomic.h"
#include "shm/segment/running.h"
#include "test/world/faults.h"
#include "test/world/gpu.h"
#include "test/world/judge.h"
#include "test/world/program.h"

#define ROUNDS  200
#define WARM    20 /* rounds at the beginning that are not counted */
#define STREAMS 64
#define SIGHTS  (1 << 16)
/* An end must be noticed within this and the time of a wake-up on this machine: the same bound as in bench_tracker. */
#define ALLOWED_US 500
/* Percent of a core that the tracker may use. Its CPU budget is 0.8, which work that cannot wait may exceed. */
#define TRACKER_PERCENT 1.0

/* A stream, and the events that measure the work in it. */
struct lane {
	CUcontext ctx;
	CUstream stream;
	CUmodule module;
	CUfunction function;
	CUevent begin, end;
	uint64_t begun_ns;
};

static struct {
	const struct way *way;
	struct world_chance chance;
	struct lane lanes[STREAMS];
	struct world_process *process;
	uint64_t end[ROUNDS], floor[ROUNDS];
	unsigned rounds;
	bool failed;
	uint64_t head, tracker_ns;
	struct {
		uint64_t ns;
		bool runs;
	} seen[SIGHTS];
	unsigned nseen;
} run;

static const char spin_ptx[] = ".version 7.0\n.target sm_50\n.visible .entry spin_ns(.param .u64 ns) {}\n";

/* A function of the driver as a program with the preload finds it. */
#define CU(name) ((__typeof__(name) *)dlsym(RTLD_DEFAULT, #name))

static bool new_function(struct lane *l)
{
	return !CU(cuModuleLoadData)(&l->module, spin_ptx) &&
	       !CU(cuModuleGetFunction)(&l->function, l->module, "spin_ns");
}

static bool set_up(const struct way *w, unsigned n)
{
	if (CU(cuInit)(0))
		return false;
	for (unsigned i = 0; i < n; i++) {
		struct lane *l = &run.lanes[i];

		if (i && !w->contexts)
			*l = run.lanes[0];
		else if (CU(cuCtxCreate_v2)(&l->ctx, 0, 0) || !new_function(l))
			return false;
		if ((w->streams && CU(cuStreamCreate)(&l->stream, CU_STREAM_NON_BLOCKING)) ||
			CU(cuEventCreate)(&l->begin, CU_EVENT_DEFAULT) ||
			CU(cuEventCreate)(&l->end, CU_EVENT_DEFAULT))
			return false;
	}
	return true;
}

static bool launch(const struct way *w, unsigned n, uint64_t *all_ns)
{
	unsigned kernels =
		w->irregular ? 1 + (unsigned)world_chance_below(&run.chance, w->kernels) : w->kernels;

	*all_ns = 0;
	for (unsigned k = 0; k < n * kernels; k++) {
		uint64_t ns = w->least_ns + world_chance_below(&run.chance, w->most_ns - w->least_ns + 1);
		struct lane *l = &run.lanes[k % n];
		void *params[] = {&ns};

		*all_ns += ns;
		if ((w->contexts && CU(cuCtxSetCurrent)(l->ctx)) || (w->anew && !new_function(l)))
			return false;
		if (k < n) {
			if (CU(cuEventRecord)(l->begin, l->stream))
				return false;
			l->begun_ns = world.now_ns;
		}
		if (CU(cuLaunchKernel)(l->function, 1, 1, 1, 32, 1, 1, 0, l->stream, params, NULL) ||
			CU(cuEventRecord)(l->end, l->stream))
			return false;
	}
	return true;
}

static void is_called(void *argument)
{
	*(bool *)argument = true;
}

static bool waits(const struct way *w, const struct lane *l)
{
	static bool called;

	called = false;
	switch (w->waits) {
	case SYNCS:
		return !CU(cuCtxSynchronize)();
	case POLLS:
		while (CU(cuEventQuery)(l->end) == CUDA_ERROR_NOT_READY)
			world_sleep(100 * US);
		return true;
	case IS_CALLED:
		if (CU(cuLaunchHostFunc)(l->stream, is_called, &called))
			return false;
		while (!called)
			world_sleep(100 * US);
		return true;
	default:
		return true;
	}
}

/* Returns when the work ended, from two events: one before it, recorded in an idle stream, and one behind it. */
static uint64_t ended(unsigned n)
{
	uint64_t last = 0;

	for (unsigned i = 0; i < n; i++) {
		uint64_t end;
		float ms;

		if (CU(cuEventElapsedTime)(&ms, run.lanes[i].begin, run.lanes[i].end))
			return 0;
		end = run.lanes[i].begun_ns + (uint64_t)((double)ms * 1e6);
		last = end > last ? end : last;
	}
	return last;
}

/* Repeats: launches a kernel, or one in each stream, and pauses until the work has ended. */
static void *program(void *argument)
{
	const struct way *w = argument;
	unsigned n = w->streams ? w->streams : 1;

	run.failed = !set_up(w, n);
	while (!run.failed && run.rounds < ROUNDS) {
		uint64_t all_ns, expected;

		run.failed = !launch(w, n, &all_ns);
		expected = world.now_ns + all_ns;
		run.failed |= !waits(w, &run.lanes[0]);
		world_sleep_until(expected);
		run.floor[run.rounds] = world.now_ns - expected;
		/* Long enough for work beside another program; drawn, so that it is in step with nothing. */
		world_sleep_until(expected + all_ns + 6 * MS + world_chance_below(&run.chance, 8 * MS));
		run.end[run.rounds] = ended(n);
		run.failed |= !run.end[run.rounds++];
	}
	world_exit();
}

/* Notes, whenever the record has changed, whether the program is in the running set. */
static void look(void)
{
	struct arb_segment *seg = judge_segment();
	struct arb_snap s;
	bool runs = false;

	judge_step();
	/* The threads of a process that has ended are gone. */
	for (const struct world_thread *t = run.process->threads; t; t = t->next)
		if (!strcmp(t->name, "tracker"))
			run.tracker_ns = t->cpu_ns;
	if (!seg || arb_load64(&seg->header->head) == run.head || arb_running_read(seg, &s) < 0)
		return;
	run.head = s.head;
	for (uint32_t i = arb_bits_next(s.running, s.words, 0); i != ARB_NONE;
		i = arb_bits_next(s.running, s.words, i + 1))
		runs |= arb_load32(&seg->slots[i].pid) == 1000 + run.process->number;
	if (run.nseen < SIGHTS && (!run.nseen || run.seen[run.nseen - 1].runs != runs)) {
		run.seen[run.nseen].runs = runs;
		run.seen[run.nseen++].ns = world.now_ns;
	}
}

static int by_value(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

static double part_us(const uint64_t *values, unsigned tenths)
{
	uint64_t sorted[ROUNDS - WARM];

	memcpy(sorted, values + WARM, sizeof(sorted));
	qsort(sorted, ROUNDS - WARM, sizeof(*sorted), by_value);
	return (double)sorted[(ROUNDS - WARM) * tenths / 10] / 1e3;
}

/* Sets for each round how long after the end of its work the program left the running set. */
static void judge_ends(uint64_t late[ROUNDS])
{
	for (unsigned i = 0, k = 0; i < ROUNDS; i++) {
		while (k + 1 < run.nseen && run.seen[k + 1].ns <= run.end[i])
			k++;
		late[i] = 0;
		for (unsigned j = k; j < run.nseen && run.seen[j].runs; j++)
			late[i] = j + 1 < run.nseen ? run.seen[j + 1].ns - run.end[i] : UINT32_MAX;
	}
}

static bool tell(const struct way *w, const struct case_options *o, uint64_t elapsed_ns)
{
	uint64_t late[ROUNDS];
	double allowed = ALLOWED_US + part_us(run.floor, 9), p90, median, tracker;
	bool bad;

	judge_ends(late);
	median = part_us(late, 5);
	p90 = part_us(late, 9);
	tracker = 100 * (double)run.tracker_ns / (double)elapsed_ns;
	bad = world.failed || run.failed || run.rounds < ROUNDS || p90 > allowed || tracker > TRACKER_PERCENT;
	if (o->json)
		json_array_append_new(o->json,
			json_pack("{s:s,s:f,s:f,s:f,s:f,s:b}", "case", w->name, "median_us", median, "p90_us",
				p90, "allowed_us", allowed, "tracker_percent", tracker, "failed", bad));
	else if (!o->brief || bad)
		printf("%-24s ends noticed after %7.1f us (median), %7.1f us (nine of ten; allowed %.0f), tracker %.2f %% "
		       "of a core, %s\n",
			w->name, median, p90, allowed, tracker, bad ? "FAILED" : "ok");
	return bad;
}

static bool run_way(const struct way *w, const struct case_options *o)
{
	static struct program self, other;
	uint64_t from;
	bool bad;

	memset(&run, 0, sizeof(run));
	run.way = w;
	setenv("GPUSIM_MODE", "share", 1);
	setenv("GPUSIM_UUID", WORLD_GPU, 1);
	world_begin(o->seed);
	world_chance_seed(&run.chance, o->seed);
	faults = (struct faults){0};
	if (o->robbed)
		world_robbed();
	else
		world_quiet();
	world.weather.wake_ns = (uint64_t)(o->wake_us * 1e3);
	world_gpu_begin();
	world_terms = (struct world_terms){.every = 1000, .quotas_fixed = true};
	judge_begin();
	from = world.now_ns;
	if (w->contended) {
		program_prepare(&other, "other", 50, "--kernel-us=500 --duration=600");
		program_start(&other, world.now_ns);
	}
	program_prepare(&self, w->name, w->limit, "");
	run.process = world_process_new(self.environment);
	run.process->script = &self;
	world_thread_new(run.process, "program", world.now_ns + WORLD_MS, program, (void *)(uintptr_t)w);
	while (run.process->alive && !world.failed && world.now_ns < from + 600 * WORLD_S)
		world_run(world.now_ns + WORLD_S / 10, look);
	if (world.failed)
		world_tell();
	bad = tell(w, o, run.process->ended_ns - from);
	judge_end();
	world_end();
	return bad;
}

int ends_run(const struct case_options *o, int *n)
{
	int bad = 0;

	for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++)
		if (!strcmp(o->pattern, "tracker") || !fnmatch(o->pattern, ways[i].name, 0)) {
			++*n;
			bad += run_way(&ways[i], o);
		}
	return bad;
}
