#include "run_place.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "gpuarb/promise.h"

#include "cli.h"
#include "config.h"
#include "gpus.h"
#include "run.h"

#define POLL_MS 100

struct candidate {
	struct gpu gpu;
	struct gpuarb_promiser *promiser;
	struct gpuarb_room room;
	int fd;
	struct gpuarb_error err;
};

static struct candidate all[GPUS_MOST];
static int nall;

static int by_name(const void *a, const void *b)
{
	return strcmp(((const struct candidate *)a)->gpu.uuid, ((const struct candidate *)b)->gpu.uuid);
}

static int as_driver[GPUS_MOST]; /* all[] is in the order of names; here, in the driver's */

static void find_all(struct run_place *p, bool automatic)
{
	static struct gpu list[GPUS_MOST];
	int n = gpus_visible(p->libraries, automatic ? NULL : p->gpu, list);

	for (int i = 0; i < n; i++) {
		struct candidate *c = &all[nall];

		*c = (struct candidate){.gpu = list[i], .fd = -1};
		if (gpuarb_promiser_open(p->dir, list[i].uuid, list[i].bytes, &c->promiser, &c->err) < 0) {
			if (!run_without_segment(&c->err, "no memory of it is promised"))
				fprintf(stderr, "%s: %s: no memory of it is promised\n",
					program_invocation_short_name, c->err.text);
			if (!*p->unpromised)
				memcpy(p->unpromised, list[i].uuid, sizeof(p->unpromised));
			continue;
		}
		nall++;
	}
	/* Always locked in the same order, so that nobody waits for another who waits for him. */
	qsort(all, (size_t)nall, sizeof(all[0]), by_name);
	for (int i = 0, at = 0; i < n; i++)
		for (int k = 0; k < nall; k++)
			if (!strcmp(all[k].gpu.uuid, list[i].uuid))
				as_driver[at++] = k;
}

static void lock_all(void)
{
	struct gpuarb_error err;

	for (int i = 0; i < nall; i++)
		if (gpuarb_promiser_lock(all[i].promiser, &err) < 0)
			die("%s", err.text);
}

static void unlock_all(void)
{
	for (int i = 0; i < nall; i++)
		gpuarb_promiser_unlock(all[i].promiser);
}

static uint64_t really_free(const struct gpuarb_room *room)
{
	return room->free > room->loose ? room->free - room->loose : 0;
}

/* More room, by memory and then by the share of its time that is left. */
static bool better(const struct candidate *a, const struct candidate *b)
{
	if (a->room.fits != b->room.fits)
		return a->room.fits;
	if (really_free(&a->room) != really_free(&b->room))
		return really_free(&a->room) > really_free(&b->room);
	return a->room.core_used < b->room.core_used;
}

/* All are locked. */
static struct candidate *choose(const struct gpuarb_promise *promise)
{
	struct candidate *best = NULL, *queued = NULL;

	for (int i = 0; i < nall; i++) {
		struct candidate *c = &all[as_driver[i]];

		if (gpuarb_promiser_room(c->promiser, promise, &c->room) < 0)
			continue;
		if (c->fd >= 0)
			queued = c;
		if (!best || better(c, best))
			best = c;
	}
	/* A place in a queue is given up for room that is there, and for nothing else. */
	return queued && best && !best->room.fits ? queued : best;
}

/* 0, or why it does not fit now. */
static int try_auto(struct run_place *p, const struct gpuarb_promise *promise, struct gpuarb_error *err)
{
	struct candidate *best;
	int r = 0;

	lock_all();
	best = choose(promise);
	if (!best)
		die("no GPU's segment can be read");
	if (!p->only_look) {
		r = gpuarb_promiser_take(best->promiser, promise, p->wait_s >= 0, &best->fd, err);
		for (int i = 0; i < nall; i++)
			if (&all[i] != best)
				gpuarb_promiser_drop(all[i].promiser, &all[i].fd);
	}
	unlock_all();
	snprintf(p->chosen, sizeof(p->chosen), "%s", best->gpu.uuid);
	return r;
}

/* On every GPU that the program will see: it may use up to its quota of each. */
static int try_given(
	const struct run_place *p, const struct gpuarb_promise *promise, struct gpuarb_error *err)
{
	int r = 0;

	lock_all();
	for (int i = 0; i < nall && r == 0; i++)
		r = gpuarb_promiser_take(all[i].promiser, promise, p->wait_s >= 0, &all[i].fd, err);
	/* A place in the queue is kept, but not in two: others may have theirs the other way round. */
	for (int i = 0; i < nall && r < 0; i++)
		if (p->wait_s < 0 || nall > 1)
			gpuarb_promiser_drop(all[i].promiser, &all[i].fd);
	unlock_all();
	return r;
}

static double now_s(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

/* What is asked for: the command line, else the environment, else arbiter.conf. */
static struct gpuarb_promise wanted(const struct run_place *p)
{
	struct gpuarb_error err;
	struct arb_config config;
	int64_t mem, core;

	if (arb_config_load(&config, NULL, false, &err) < 0)
		die("%s", err.text);
	mem = config.value[ARB_KEY_MEM];
	core = config.value[ARB_KEY_CORE];
	arb_config_free(&config);
	if ((p->mem && arb_config_parse(ARB_KEY_MEM, p->mem, "--mem", &mem, &err) < 0) ||
		(p->core && arb_config_parse(ARB_KEY_CORE, p->core, "--core", &core, &err) < 0))
		die("%s", err.text);
	return (struct gpuarb_promise){p->account, (uint64_t)mem, (unsigned)core};
}

void run_place(struct run_place *p)
{
	struct gpuarb_promise promise = wanted(p);
	bool automatic = p->gpu && !strcmp(p->gpu, "auto"), said = false;
	struct gpuarb_error err;
	double until = now_s() + p->wait_s;
	int r;

	if (p->wait_s >= 0 && !promise.bytes)
		die_usage("--wait waits for memory that can be promised, and none is asked for; say how much with --mem, "
			  "such as --mem 4Gi");
	if (!automatic && (!promise.bytes || p->only_look))
		return;
	find_all(p, automatic);
	/* Nobody's promises can be read: the first one is as good as any. */
	if (!nall && automatic && *p->unpromised)
		snprintf(p->chosen, sizeof(p->chosen), "%s", p->unpromised);
	else if (!nall && automatic)
		die("--gpu auto: no GPU is to be seen here");
	while (nall && (r = automatic ? try_auto(p, &promise, &err) : try_given(p, &promise, &err)) < 0) {
		if (r != -ENOSPC || p->wait_s < 0)
			die("%s", err.text);
		if (now_s() >= until)
			die("waited %g s in vain: %s", p->wait_s, err.text);
		if (!said)
			fprintf(stderr, "%s: waiting: %s\n", program_invocation_short_name, err.text);
		said = true;
		nanosleep(&(struct timespec){0, POLL_MS * 1000000}, NULL);
	}
	for (int i = 0; i < nall; i++)
		gpuarb_promiser_close(all[i].promiser);
}
