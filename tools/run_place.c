#include "tools/run_place.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "gpuarb/config.h"
#include "gpuarb/control.h"
#include "gpuarb/promise.h"

#include "tools/common/cli.h"
#include "tools/common/cli_gpu.h"
#include "tools/common/gpus.h"
#include "tools/common/nonclients.h"
#include "tools/common/nvml_child.h"
#include "tools/run.h"

#define POLL_MS 100
/* How often NVML is asked while the program waits, in seconds, and how long it may take. */
#define LOOK_S  1.0
#define NVML_MS 2000

struct candidate {
	struct gpu gpu;
	struct gpuarb_promiser *promiser;
	struct gpuarb_room room;
	char name[CLI_GPU_TEXT];  /* with the driver's number */
	struct nonclients others; /* what programs that are no clients use of it */
	bool moves;               /* memory that does not fit is moved to the host */
	int fd;
	struct gpuarb_error err;
};

static struct candidate all[GPUS_MOST];
static int nall;

static struct nvml_child *nvml;
static double looked_s;

static double now_s(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

static void look_at(const struct run_place *p, struct candidate *c, const struct nvml_use *use)
{
	static struct gpuarb_picture picture;
	struct gpuarb_view *view;
	struct gpuarb_error err;
	char value[16];
	int r;

	c->moves = gpuarb_control_get(
			   p->dir, c->gpu.uuid, NULL, "oversubscribe", value, sizeof(value), &err) == 0 &&
		   !strcmp(value, "on");
	memset(&c->others, 0, sizeof(c->others));
	/* If the clients were not known, their processes would all be taken for others. */
	if (gpuarb_view_open(p->dir, c->gpu.uuid, &view, &err) < 0)
		return;
	r = gpuarb_view_read(view, &picture);
	gpuarb_view_close(view);
	if (r < 0)
		return;
	nonclients_find(&picture, use, &c->others);
	if (!p->only_look)
		nonclients_tell(p->dir, c->gpu.uuid, &c->others);
}

/* Reads from NVML what is in use on each GPU. The first answer may take longer. */
static void look_at_all(const struct run_place *p)
{
	const struct nvml_answer *said;

	if (nvml && now_s() - looked_s < LOOK_S)
		return;
	if (!nvml)
		nvml = nvml_child_begin();
	said = nvml_child_ask(nvml, NVML_MS);
	looked_s = now_s();
	for (int i = 0; i < nall; i++) {
		struct candidate *c = &all[i];
		const struct nvml_use *use = NULL;

		for (int k = 0; said && k < said->count; k++)
			if (!strcmp(said->gpus[k].uuid, c->gpu.uuid)) {
				use = &said->uses[k];
				snprintf(c->name, sizeof(c->name), "%.63s (GPU %s)", c->gpu.uuid,
					said->gpus[k].index);
				gpuarb_promiser_call(c->promiser, c->name);
			}
		look_at(p, c, use);
	}
}

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
		snprintf(c->name, sizeof(c->name), "%.63s", list[i].uuid);
		if (gpuarb_promiser_open(p->dir, list[i].uuid, list[i].bytes, &c->promiser, &c->err) < 0) {
			if (!run_without_segment(&c->err, "nothing of it is promised"))
				fprintf(stderr, "%s: %s: nothing of it is promised\n",
					program_invocation_short_name, c->err.text);
			if (!*p->unpromised)
				memcpy(p->unpromised, list[i].uuid, sizeof(p->unpromised));
			continue;
		}
		nall++;
	}
	/* All processes lock GPUs in this order, so that no two wait for each other. */
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

static uint64_t minus(uint64_t a, uint64_t b)
{
	return a > b ? a - b : 0;
}

static uint64_t really_free(const struct candidate *c)
{
	return minus(minus(c->room.free, c->room.unpromised), c->others.bytes);
}

/* Whether what is promised is really free: programs that are no clients keep no promises. */
static bool has_room(const struct candidate *c)
{
	return c->room.fits && (!c->room.physical || !c->room.bytes || c->moves || !c->others.bytes ||
				       c->room.bytes <= minus(c->room.free, c->others.bytes));
}

/* Writes "14Gi of its 16Gi are taken by processes that are no clients (4711 simload)". */
static const char *taken(const struct candidate *c, char *text, size_t size)
{
	const struct nonclients *o = &c->others;
	char bytes[32], all_of_it[32], name[32];

	cli_bytes(o->bytes, bytes, sizeof(bytes));
	cli_bytes(c->room.physical, all_of_it, sizeof(all_of_it));
	if (o->nlisted)
		snprintf(text, size, "%s of its %s are taken by processes that are no clients (%u%s%s%s)",
			bytes, all_of_it, o->list[0].pid, o->list[0].command[0] ? " " : "",
			cli_safe(o->list[0].command, name, sizeof(name)), o->count > 1 ? " and others" : "");
	else
		snprintf(text, size, "about %s of its %s are taken by processes that are no clients", bytes,
			all_of_it);
	return text;
}

/* Whether `a` has more room: by memory, and then by the share of its time that is left. */
static bool better(const struct candidate *a, const struct candidate *b)
{
	if (has_room(a) != has_room(b))
		return has_room(a);
	if (really_free(a) != really_free(b))
		return really_free(a) > really_free(b);
	return a->room.core_used < b->room.core_used;
}

/* Chooses a GPU; all are locked. */
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
	/* A place in a queue is given up only for a GPU that has room now. */
	return queued && best && !has_room(best) ? queued : best;
}

static int no_room(const struct candidate *c, const struct gpuarb_promise *promise, struct gpuarb_error *err)
{
	char text[256], bytes[32];

	err->code = -ENOSPC;
	snprintf(err->text, sizeof(err->text), "no GPU has room for the %s of %.30s; %s has the most: %s",
		cli_bytes(promise->bytes, bytes, sizeof(bytes)), promise->account, c->name,
		taken(c, text, sizeof(text)));
	return -ENOSPC;
}

/* Warns a user who names a GPU if the memory that is promised there may not be free. */
static void warn(const struct gpuarb_promise *promise)
{
	char text[256];

	for (int i = 0; i < nall; i++)
		if (gpuarb_promiser_room(all[i].promiser, promise, &all[i].room) == 0 && all[i].room.fits &&
			!has_room(&all[i]))
			fprintf(stderr, "%s: %s: %s; what is promised may not be there\n",
				program_invocation_short_name, all[i].name,
				taken(&all[i], text, sizeof(text)));
}

/* Returns 0, or why it does not fit now. */
static int try_auto(struct run_place *p, const struct gpuarb_promise *promise, struct gpuarb_error *err)
{
	struct candidate *best;
	int r = 0;

	lock_all();
	best = choose(promise);
	if (!best)
		die("no GPU's segment can be read");
	if (!p->only_look && best->room.fits && !has_room(best)) {
		r = no_room(best, promise, err);
	} else if (!p->only_look) {
		r = gpuarb_promiser_take(best->promiser, promise, p->wait_s >= 0, &best->fd, err);
		for (int i = 0; i < nall; i++)
			if (&all[i] != best)
				gpuarb_promiser_drop(all[i].promiser, &all[i].fd);
	}
	unlock_all();
	snprintf(p->chosen, sizeof(p->chosen), "%s", best->gpu.uuid);
	snprintf(p->name, sizeof(p->name), "%s", best->name);
	return r;
}

/* Promises memory on each GPU that the program will see, because it may use its whole quota on each. */
static int try_given(
	const struct run_place *p, const struct gpuarb_promise *promise, struct gpuarb_error *err)
{
	int r = 0;

	lock_all();
	warn(promise);
	for (int i = 0; i < nall && r == 0; i++)
		r = gpuarb_promiser_take(all[i].promiser, promise, p->wait_s >= 0, &all[i].fd, err);
	/* A place in one queue is kept, but not places in two: another program may have them in the other order. */
	for (int i = 0; i < nall && r < 0; i++)
		if (p->wait_s < 0 || nall > 1)
			gpuarb_promiser_drop(all[i].promiser, &all[i].fd);
	unlock_all();
	return r;
}

/* Reads what is asked for: from the command line, otherwise from the environment, otherwise from arbiter.conf. */
static struct gpuarb_promise wanted(const struct run_place *p)
{
	struct gpuarb_error err;
	struct gpuarb_config config;
	int64_t mem, core, request;

	if (gpuarb_config_load(&config, NULL, false, &err) < 0)
		die("%s", err.text);
	mem = config.value[ARB_KEY_MEM];
	core = config.value[ARB_KEY_CORE];
	request = config.value[ARB_KEY_REQUEST];
	gpuarb_config_free(&config);
	if ((p->mem && gpuarb_config_parse(ARB_KEY_MEM, p->mem, "--mem", &mem, &err) < 0) ||
		(p->core && gpuarb_config_parse(ARB_KEY_CORE, p->core, "--core", &core, &err) < 0) ||
		(p->request &&
			gpuarb_config_parse(ARB_KEY_REQUEST, p->request, "--request", &request, &err) < 0))
		die("%s", err.text);
	return (struct gpuarb_promise){p->account, (uint64_t)mem, (unsigned)core, (unsigned)request};
}

void run_place(struct run_place *p)
{
	struct gpuarb_promise promise = wanted(p);
	bool automatic = p->gpu && !strcmp(p->gpu, "auto"), said = false;
	struct gpuarb_error err;
	double until = now_s() + p->wait_s;
	int r;

	if (p->wait_s >= 0 && !promise.bytes && !promise.request_pct)
		die_usage(
			"--wait waits for memory or time that can be promised, and none is asked for; say how much "
			"with --mem, "
			"such as --mem 4Gi, or --request, such as --request 25");
	if (!automatic && ((!promise.bytes && !promise.request_pct) || p->only_look))
		return;
	find_all(p, automatic);
	/* No GPU's promises can be read: the first GPU is as good as any. */
	if (!nall && automatic && *p->unpromised)
		snprintf(p->chosen, sizeof(p->chosen), "%s", p->unpromised);
	else if (!nall && automatic)
		die("--gpu auto: no GPU is to be seen here");
	look_at_all(p);
	while (nall && (r = automatic ? try_auto(p, &promise, &err) : try_given(p, &promise, &err)) < 0) {
		if (r != -ENOSPC || p->wait_s < 0)
			die("%s", err.text);
		if (now_s() >= until)
			die("waited %g s in vain: %s", p->wait_s, err.text);
		if (!said)
			fprintf(stderr, "%s: waiting: %s\n", program_invocation_short_name, err.text);
		said = true;
		nanosleep(&(struct timespec){0, POLL_MS * 1000000}, NULL);
		look_at_all(p);
	}
	nvml_child_end(nvml);
	for (int i = 0; i < nall; i++)
		gpuarb_promiser_close(all[i].promiser);
}
