#include "tools/top/top_source.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tools/top/top_names.h"
#include "tools/top/top_words.h"

#define LIST_EVERY_NS 2000000000ull
#define BATCH         256
/* Once NVML has answered, it is quick. What it said is shown only for a few looks. */
#define NVML_AGAIN_MS 200
#define NVML_OLD_NS   5000000000ull

static uint64_t clock_ns(clockid_t id)
{
	struct timespec ts;

	clock_gettime(id, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

__attribute__((format(printf, 3, 4))) static void say(
	struct gpuarb_error *err, int code, const char *format, ...)
{
	va_list ap;

	err->code = code;
	va_start(ap, format);
	vsnprintf(err->text, sizeof(err->text), format, ap);
	va_end(ap);
}

static void drop(struct top_source *s, unsigned i)
{
	gpuarb_view_close(s->views[i]);
	top_gpu_clear(s->gpus[i]);
	free(s->gpus[i]);
	free(s->pictures[i]);
	s->ngpus--;
	memmove(&s->views[i], &s->views[i + 1], (s->ngpus - i) * sizeof(s->views[0]));
	memmove(&s->gpus[i], &s->gpus[i + 1], (s->ngpus - i) * sizeof(s->gpus[0]));
	memmove(&s->pictures[i], &s->pictures[i + 1], (s->ngpus - i) * sizeof(s->pictures[0]));
	memmove(&s->positions[i], &s->positions[i + 1], (s->ngpus - i) * sizeof(s->positions[0]));
	memmove(&s->uuids[i], &s->uuids[i + 1], (s->ngpus - i) * sizeof(s->uuids[0]));
}

static void add(struct top_source *s, const char *uuid, struct gpuarb_error *err)
{
	unsigned i = s->ngpus;
	struct gpuarb_view *view;

	for (unsigned k = 0; k < s->ngpus; k++)
		if (strcmp(s->uuids[k], uuid) == 0)
			return;
	if (i == TOP_GPUS || gpuarb_view_open(s->dir, uuid, &view, err) < 0)
		return;
	s->gpus[i] = calloc(1, sizeof(*s->gpus[i]));
	s->pictures[i] = calloc(2, sizeof(*s->pictures[i]));
	if (!s->gpus[i] || !s->pictures[i]) {
		free(s->gpus[i]);
		free(s->pictures[i]);
		gpuarb_view_close(view);
		say(err, -ENOMEM, "out of memory");
		return;
	}
	s->views[i] = view;
	s->positions[i] = 0;
	memcpy(s->uuids[i], uuid, ARB_UUID_BYTES); /* a row of the list */
	s->ngpus++;
}

static int place_of(const struct nvml_answer *said, const char *uuid)
{
	int i = 0;

	while (said && i < said->count && strcmp(said->gpus[i].uuid, uuid) != 0)
		i++;
	return i;
}

/* In the order of the driver's numbers; those that it does not know are last. */
static int by_place(const void *a, const void *b, void *said)
{
	int left = place_of(said, a), right = place_of(said, b);

	return left != right ? left - right : strcmp(a, b);
}

/* Lists all GPUs, or the GPU that was asked for by its UUID or the beginning of it. */
static void list(struct top_source *s, struct gpuarb_error *err)
{
	static char names[TOP_GPUS][ARB_UUID_BYTES];
	int n = gpuarb_control_list(s->dir, names, TOP_GPUS, err), found = 0, exact = -1;

	if (n < 0)
		return;
	if (n > TOP_GPUS)
		n = TOP_GPUS;
	qsort_r(names, (size_t)n, sizeof(names[0]), by_place, (void *)s->said);
	for (int i = 0; i < n && s->gpu; i++)
		if (strcmp(names[i], s->gpu) == 0)
			exact = i;
	for (int i = 0; i < n; i++)
		if (!s->gpu || (exact < 0 && strncmp(names[i], s->gpu, strlen(s->gpu)) == 0) || i == exact) {
			add(s, names[i], err);
			found++;
		}
	if (!found && s->gpu)
		say(err, -ENOENT, "no GPU whose UUID begins with '%.80s' has a segment", s->gpu);
	else if (!found)
		say(err, -ENOENT, "%s",
			"nobody uses a GPU through gpuarb yet; start a program with gpuarb-run");
}

static void read_events(struct top_source *s, unsigned i)
{
	struct gpuarb_event events[BATCH];
	char name[ARB_NAME_BYTES];
	int n;

	do {
		n = gpuarb_view_events(s->views[i], &s->positions[i], events, BATCH);
		for (int k = 0; k < n; k++) {
			if (!gpuarb_view_account_name(s->views[i], events[k].account, name))
				name[0] = '\0';
			top_gpu_event(s->gpus[i], &events[k], name);
		}
	} while (n == BATCH);
}

static void ask_nvml(struct top_source *s, uint64_t now_ns)
{
	const struct nvml_answer *said;

	if (!s->nvml_ms)
		return;
	if (!s->nvml)
		s->nvml = nvml_child_begin();
	said = nvml_child_ask(s->nvml, s->nvml_ms);
	if (s->nvml_ms > NVML_AGAIN_MS)
		s->nvml_ms = NVML_AGAIN_MS;
	if (said) {
		s->said = said;
		s->said_ns = now_ns;
	}
	/* There is no NVML. */
	if (said && !said->count)
		s->nvml_ms = 0;
}

/* Fills in what the machine knows of this GPU: its name stays, what is in use gets old. */
static void describe(const struct top_source *s, unsigned i, uint64_t now_ns)
{
	const struct nvml_use *use = NULL;

	for (int k = 0; s->said && k < s->said->count; k++)
		if (strcmp(s->said->gpus[k].uuid, s->uuids[i]) == 0) {
			memcpy(s->gpus[i]->name, s->said->gpus[k].name, sizeof(s->gpus[i]->name));
			memcpy(s->gpus[i]->index, s->said->gpus[k].index, sizeof(s->gpus[i]->index));
			if (now_ns - s->said_ns < NVML_OLD_NS)
				use = &s->said->uses[k];
		}
	nonclients_find(s->gpus[i]->picture, use, &s->gpus[i]->others);
}

/* Reads a GPU. Returns 0, or a negative error if it cannot be read now. */
static int look_at(struct top_source *s, unsigned i, struct gpuarb_error *err)
{
	struct gpuarb_picture *next = &s->pictures[i][s->gpus[i]->picture == s->pictures[i] ? 1 : 0];
	int r = 0;

	read_events(s, i);
	/* A segment that changed while it was read is read again, because mixed numbers help nobody. */
	for (int tries = 0; tries < 10; tries++) {
		r = gpuarb_view_read(s->views[i], next);
		if (r < 0 || next->consistent)
			break;
	}
	if (r == -EBADMSG)
		say(err, r, "the segment of %.80s holds garbage; gpuarb-watchdog --once repairs it",
			s->uuids[i]);
	else if (r == -EBUSY)
		say(err, r, "the segment of %.80s changed all the time", s->uuids[i]);
	else if (r < 0)
		say(err, r, "the segment of %.80s was removed or replaced", s->uuids[i]);
	if (r < 0)
		return r;
	s->gpus[i]->real_minus_mono_ns = clock_ns(CLOCK_REALTIME) - next->now_ns;
	if (top_gpu_update(s->gpus[i], next)) {
		top_names_pids(s->gpus[i]);
		return 0;
	}
	say(err, -ENOMEM, "out of memory");
	return -ENOMEM;
}

unsigned top_source_look(struct top_source *s, struct gpuarb_error *err)
{
	uint64_t now = clock_ns(CLOCK_MONOTONIC);
	unsigned good = 0;

	err->text[0] = '\0';
	err->code = 0;
	ask_nvml(s, now);
	if (!s->listed_ns || !s->ngpus || now - s->listed_ns >= LIST_EVERY_NS) {
		list(s, err);
		s->listed_ns = now;
	}
	for (unsigned i = 0; i < s->ngpus;) {
		int r = look_at(s, i, err);

		good += r == 0;
		if (r == 0)
			describe(s, i, now);
		if (r == 0 || r == -EBUSY || r == -EBADMSG || r == -ENOMEM) {
			i++;
			continue;
		}
		/* Another GPU's segment may be there under the same name. */
		drop(s, i);
		s->listed_ns = 0;
	}
	return good;
}

void top_source_close(struct top_source *s)
{
	while (s->ngpus)
		drop(s, s->ngpus - 1);
	nvml_child_end(s->nvml);
	s->nvml = NULL;
	s->said = NULL;
}

static bool is_set(const struct top_source *s, const char *uuid, const char *account, const char *key)
{
	struct gpuarb_error err;
	char text[64];

	return gpuarb_control_get(s->dir, uuid, account, key, text, sizeof(text), &err) == 0;
}

void top_source_origin(
	const struct top_source *s, const char *uuid, const char *account, struct top_origin *origin)
{
	*origin = (struct top_origin){
		.core_set = is_set(s, uuid, account, "core"),
		.mem_set = is_set(s, uuid, account, "mem"),
		.priority_set = is_set(s, uuid, account, "priority"),
		.request_set = is_set(s, uuid, account, "request"),
		.weight_set = is_set(s, uuid, account, "weight"),
	};
}
