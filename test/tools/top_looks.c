/* Where gpuarb-top gets its data: what it says, keeps and does next when a GPU cannot be read or memory is short. */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/top/top_out.h"
#include "tools/top/top_source.h"
#include "test/multi/multi.h"

static struct t_dir dir;
static struct gpuarb_client *client;
static struct top_source source;
static struct gpuarb_error err;

/* The view's answer instead of the real one; whether pictures mix several moments; which allocation fails. */
static struct {
	int answer;
	bool torn;
	unsigned reads;
	int fail_at; /* 0: none */
} world;

int __real_gpuarb_view_read(struct gpuarb_view *view, struct gpuarb_picture *picture);
int __wrap_gpuarb_view_read(struct gpuarb_view *view, struct gpuarb_picture *picture);
void *__real_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__real_realloc(void *old, size_t size);
void *__wrap_realloc(void *old, size_t size);

int __wrap_gpuarb_view_read(struct gpuarb_view *view, struct gpuarb_picture *picture)
{
	int r = world.answer ? world.answer : __real_gpuarb_view_read(view, picture);

	world.reads++;
	if (r == 0 && world.torn)
		picture->consistent = false;
	return r;
}

static bool fails(void)
{
	return world.fail_at && --world.fail_at == 0;
}

void *__wrap_calloc(size_t n, size_t size)
{
	return fails() ? NULL : __real_calloc(n, size);
}

void *__wrap_realloc(void *old, size_t size)
{
	return fails() ? NULL : __real_realloc(old, size);
}

static void begin(void)
{
	t_dir_make(&dir, NULL);
	client = must_open(&dir, "web");
	source.dir = dir.path;
}

static void end(void)
{
	top_source_close(&source);
	gpuarb_client_close(client);
	t_dir_remove(&dir);
}

TestSuite(source, .init = begin, .fini = end);

static void must_say(unsigned good, int code, const char *sentence)
{
	cr_assert_eq(top_source_look(&source, &err), good, "%s", err.text);
	cr_assert_eq(err.code, code, "%d: %s", err.code, err.text);
	cr_assert_str_eq(err.text, sentence);
}

/* Checks that what could not be read is asked for again, and that what was known before stays. */
static void must_stay(int answer, const char *sentence)
{
	const struct gpuarb_picture *before;

	must_say(1, 0, "");
	before = source.gpus[0]->picture;
	world.answer = answer;
	must_say(0, answer, sentence);
	cr_assert_eq(source.ngpus, 1);
	cr_assert_eq(source.gpus[0]->picture, before, "the last good one");
	world.answer = 0;
	must_say(1, 0, "");
}

Test(source, a_segment_that_changes_all_the_time)
{
	must_stay(-EBUSY, "the segment of GPU-test changed all the time");
}

Test(source, a_segment_that_holds_garbage)
{
	must_stay(-EBADMSG, "the segment of GPU-test holds garbage; gpuarb-watchdog --once repairs it");
}

Test(source, a_segment_that_is_gone_is_looked_for_again)
{
	char path[PATH_MAX];

	must_say(1, 0, "");
	t_path(&dir, "state", path);
	cr_assert_eq(unlink(path), 0);
	must_say(0, -ESTALE, "the segment of GPU-test was removed or replaced");
	cr_assert_eq(source.ngpus, 0);
	must_say(0, -ENOENT, "nobody uses a GPU through gpuarb yet; start a program with gpuarb-run");
	gpuarb_client_close(client);
	client = must_open(&dir, "web");
	must_say(1, 0, "");
}

/* Numbers of several moments are shown if there are no better ones, but never taken for a violated invariant. */
Test(source, a_picture_that_stays_torn_is_marked)
{
	char *text = NULL;
	size_t size = 0;
	FILE *to = open_memstream(&text, &size);

	world.torn = true;
	must_say(1, 0, "");
	cr_assert_eq(world.reads, 10, "%u", world.reads);
	top_out_prom(source.gpus, source.ngpus, to);
	top_out_json(source.gpus, source.ngpus, true, false, to);
	cr_assert_eq(fclose(to), 0);
	cr_assert_null(strstr(text, "gpuarb_gpu_conservation_error_seconds{"), "%s", text);
	cr_assert(strstr(text, "\"consistent\":false"), "%s", text);
	free(text);
	world.torn = false;
	world.reads = 0;
	must_say(1, 0, "");
	cr_assert_eq(world.reads, 1, "one look is enough");
}

/* Whichever allocation fails, there is a sentence, nothing is left half made, and all is well when there is memory
 * again. */
Test(source, memory_that_is_short)
{
	unsigned failed = 0;

	for (int at = 1;; at++) {
		unsigned good;

		world.fail_at = at;
		good = top_source_look(&source, &err);
		if (world.fail_at) {
			world.fail_at = 0;
			cr_assert_eq(good, 1, "%s", err.text);
			break;
		}
		failed++;
		cr_assert_eq(err.code, -ENOMEM, "allocation %d: %d %s", at, err.code, err.text);
		cr_assert(strstr(err.text, "out of memory"), "allocation %d: %s", at, err.text);
		cr_assert_eq(good, 0);
		must_say(1, 0, "");
		top_source_close(&source);
		source.listed_ns = 0;
	}
	cr_assert_geq(failed, 4, "%u", failed);
}
