/* The record of decisions: a hash of all, the last thirty in words, and on request every one in a file. */
#include "test/world/world.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LAST 30 /* decisions that a failure prints */
#define ROOM 32 /* decisions that are kept: a power of two, so that a place is found without a division */

static struct entry {
	uint64_t at_ns, step, a, b;
	unsigned thread, process;
	enum world_what what;
	const char *text, *name;
} last[ROOM];
static uint64_t count;
static FILE *trace;

bool world_hashes;

static void in_words(FILE *to, const struct entry *e)
{
	unsigned long long a = e->a, b = e->b;

	fprintf(to, "%12llu  %10.6f ms  ", (unsigned long long)e->step,
		(double)(e->at_ns - world.start_ns) / 1e6);
	if (e->thread != UINT32_MAX)
		fprintf(to, "process %u, thread %u (%s) ", e->process, e->thread, e->name);
	switch (e->what) {
	case WORLD_RUNS:
		fprintf(to, "runs\n");
		break;
	case WORLD_HELD_UP:
		fprintf(to, "is held up for %llu ns\n", a);
		break;
	case WORLD_SLEEPS:
		fprintf(to, "sleeps until %.6f ms\n", (double)(a - world.start_ns) / 1e6);
		break;
	case WORLD_WAITS:
		if (a)
			fprintf(to, "waits while a word is %llu, until %.6f ms\n", b,
				(double)(a - world.start_ns) / 1e6);
		else
			fprintf(to, "waits while a word is %llu\n", b);
		break;
	case WORLD_WAKES:
		fprintf(to, "wakes %llu\n", a);
		break;
	case WORLD_STARTS:
		fprintf(to, "starts thread %llu of process %llu\n", a, b);
		break;
	case WORLD_ENDS:
		fprintf(to, "ends\n");
		break;
	case WORLD_EXITS:
		fprintf(to, "exits\n");
		break;
	case WORLD_IS_KILLED:
		fprintf(to, "process %llu is killed\n", a);
		break;
	case WORLD_IS_STOPPED:
		fprintf(to, "process %llu is stopped for %.3f ms\n", a, (double)b / 1e6);
		break;
	case WORLD_GOES_ON:
		fprintf(to, "process %llu goes on\n", a);
		break;
	case WORLD_LOCKS:
		fprintf(to, "locks byte %llu: %s\n", a, b ? "somebody has it" : "done");
		break;
	case WORLD_UNLOCKS:
		fprintf(to, "unlocks byte %llu\n", a);
		break;
	case WORLD_DOES:
	case WORLD_FAULT:
		fprintf(to, "%s (%llu, %llu)\n", e->text, a, b);
		break;
	}
}

static uint64_t mix(uint64_t hash, uint64_t x)
{
	hash = (hash ^ x) * 0x100000001b3ull;
	return hash ^ hash >> 29;
}

static void note(enum world_what what, const char *text, uint64_t a, uint64_t b)
{
	struct world_thread *t = world.current;
	struct entry *e = &last[count++ % ROOM];

	*e = (struct entry){.at_ns = world.now_ns,
		.step = world.step,
		.a = a,
		.b = b,
		.thread = t ? t->number : UINT32_MAX,
		.process = t ? t->process->number : UINT32_MAX,
		.name = t ? t->name : "",
		.what = what,
		.text = text};
	world.hash =
		mix(mix(world.hash, e->at_ns ^ (uint64_t)what << 56), (uint64_t)e->thread << 32 ^ a ^ b << 7);
	if (__builtin_expect(trace != NULL, 0))
		in_words(trace, e);
}

void world_note(enum world_what what, uint64_t a, uint64_t b)
{
	note(what, "", a, b);
}

void world_does(const char *what, uint64_t a, uint64_t b)
{
	note(WORLD_DOES, what, a, b);
}

void world_fail(const char *format, ...)
{
	va_list ap;

	if (world.failed)
		return;
	world.failed = true;
	va_start(ap, format);
	vsnprintf(world.failure, sizeof(world.failure), format, ap);
	va_end(ap);
}

void world_trace_to(const char *path)
{
	trace = fopen(path, "we");
	if (!trace) {
		perror(path);
		exit(2);
	}
}

void world_tell(void)
{
	fprintf(stderr, "world: seed %llu failed at step %llu, %.6f ms:\n  %s\nThe last decisions:\n",
		(unsigned long long)world.seed, (unsigned long long)world.step,
		(double)(world.now_ns - world.start_ns) / 1e6, world.failure);
	for (uint64_t i = count > LAST ? count - LAST : 0; i < count; i++)
		in_words(stderr, &last[i % ROOM]);
	if (trace)
		fflush(trace);
}
