#include "test/world/turns.h"

#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "test/sim/device/model.h"
#include "test/world/faults.h"
#include "test/world/gpu.h"
#include "test/world/judge.h"
#include "test/world/program.h"

#define MOST      10  /* the most clients of a case */
#define PATIENCE  3.5 /* a run that thrashes is stopped after this many times the time of the run with turns */
#define LONGEST_S 600

/* The jobs of bench_memory, on a GPU of 16 GiB as there. */
static const struct job {
	const char *name;
	unsigned clients, memory_mib, launches;
	bool fits; /* all fit at once: compared with a run without gpuarb; otherwise with one client after the other */
	double allowed,
		thrash; /* thrash: part of the time of a thrashing run that it may take; 0: not checked */
	const char *settings[6];
} jobs[] = {
	{"4x12", 4, 12 * 1024, 2500, false, 1.15, 1.0 / 3, {"GPUARB_OVERSUBSCRIBE", "on"}},
	{"2x12", 2, 12 * 1024, 2500, false, 1.15, 1.0 / 3, {"GPUARB_OVERSUBSCRIBE", "on"}},
	{"forced", 2, 12 * 1024, 12000, false, 1.25, 0,
		{"GPUARB_OVERSUBSCRIBE", "on", "GPUARB_SWITCH_MB_PER_S", "11444", "GPUARB_SWITCH_MIN_MS",
			"1"}},
	{"3x4", 3, 4 * 1024, 1500, true, 1.01, 0, {"GPUARB_POLICY", "memory"}},
	{"10x1", 10, 1024, 400, true, 1.05, 0, {"GPUARB_POLICY", "memory"}},
};

static struct program programs[MOST];

static bool done(unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		if (programs[i].process[0]->alive)
			return false;
	return true;
}

/* Returns the seconds from the start of the first client to the end of the last; LONGEST_S if one has not ended by
 * `most`. */
static double run(
	const struct job *job, const struct case_options *o, unsigned clients, bool with, double most)
{
	uint64_t from, last = 0;
	double seconds;

	case_begin(o);
	from = world.now_ns;
	for (unsigned i = 0; i < clients; i++) {
		char line[160], account[32];

		snprintf(account, sizeof(account), "client%u", i);
		/* With gpuarb memory that does not fit becomes managed memory by itself. */
		snprintf(line, sizeof(line),
			"--memory=%u --kernel-us=1000 --launches=%u --duration=3600 --pattern=sync --every=10%s",
			job->memory_mib, job->launches, !with && !job->fits ? " --managed" : "");
		program_prepare(&programs[i], account, 0, line);
		for (unsigned k = 0; with && k < 6 && job->settings[k]; k += 2)
			program_set(&programs[i], job->settings[k], job->settings[k + 1]);
		if (!with)
			program_set(&programs[i], "WORLD_WITHOUT_PRELOAD", "1");
		program_start(&programs[i], from);
	}
	program_metronome(&programs[0]);
	while (!done(clients) && !world.failed && (double)(world.now_ns - from) < most * 1e9)
		world_run(world.now_ns + WORLD_S / 20, judge_step);
	for (unsigned i = 0; i < clients; i++) {
		last = programs[i].process[0]->ended_ns > last ? programs[i].process[0]->ended_ns : last;
		if (done(clients) && programs[i].result[0].completed != job->launches)
			world_fail("client %u of %s did not do its work: error %d of %s", i, job->name,
				programs[i].result[0].error, programs[i].result[0].where);
	}
	seconds = done(clients) ? (double)(last - from) / 1e9 : most;
	if (world.failed)
		world_tell();
	judge_end();
	world_end();
	return seconds;
}

static bool run_job(const struct job *job, const struct case_options *o)
{
	double took, beside, thrashing = 0;
	bool bad;

	setenv("GPUSIM_MODE", "timeslice", 1);
	setenv("GPUSIM_UUID", WORLD_GPU, 1);
	setenv("GPUSIM_MEMORY_MB", "16384", 1);
	beside = job->fits ? run(job, o, job->clients, false, LONGEST_S)
			   : job->clients * run(job, o, 1, false, LONGEST_S);
	bad = world.failed;
	took = run(job, o, job->clients, true, LONGEST_S);
	bad |= world.failed || took > job->allowed * beside;
	if (job->thrash > 0) {
		thrashing = run(job, o, job->clients, false, PATIENCE * took);
		bad |= world.failed || took > job->thrash * thrashing;
	}
	unsetenv("GPUSIM_MEMORY_MB");
	if (o->json)
		json_array_append_new(o->json,
			json_pack("{s:s,s:f,s:f,s:f,s:f,s:b}", "case", job->name, "seconds", took, "beside",
				beside, "allowed", job->allowed, "thrashing", thrashing, "failed", bad));
	else if (!o->brief || bad)
		printf("%-24s %7.2f s, %s %7.2f s (%.3f, allowed %.2f), thrashing at least %.2f s, %s\n",
			job->name, took, job->fits ? "without gpuarb" : "one after the other", beside,
			took / beside, job->allowed, thrashing, bad ? "FAILED" : "ok");
	return bad;
}

int turns_run(const struct case_options *o, int *n)
{
	int bad = 0;

	for (size_t i = 0; i < sizeof(jobs) / sizeof(jobs[0]); i++)
		if (!strcmp(o->pattern, "memory") || !fnmatch(o->pattern, jobs[i].name, 0)) {
			++*n;
			bad += run_job(&jobs[i], o);
		}
	return bad;
}
