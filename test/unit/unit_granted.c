/* What a container was granted counts before the environment and before what its programs ask for. */
#include "test/unit/unit_clients.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "shm/base/granted.h"

static char place[64], granted_file[96], limits[96];

static void write_file(const char *path, const char *text)
{
	FILE *file = fopen(path, "we");

	cr_assert(file && fputs(text, file) >= 0 && fclose(file) == 0, "%s", path);
}

static void begin(void)
{
	strcpy(place, "/tmp/gpuarb-granted-XXXXXX");
	cr_assert(mkdtemp(place));
	snprintf(granted_file, sizeof(granted_file), "%s/granted", place);
	snprintf(limits, sizeof(limits), "%s/annotations", place);
	arb_granted_set_file(granted_file);
	u_begin(NULL);
}

static void end(void)
{
	unlink(granted_file);
	unlink(limits);
	rmdir(place);
	t_dir_remove(&u_dir);
}

TestSuite(granted, .init = begin, .fini = end);

/* A program that does what it can to get more. */
static struct gpuarb_client *greedy(const char *limits_file)
{
	struct gpuarb_options o = t_options(&u_dir, "another");
	struct gpuarb_error err = {0};
	struct gpuarb_client *c;

	setenv("GPUARB_ACCOUNT", "mine", 1);
	setenv("GPUARB_CORE_LIMIT", "100", 1);
	setenv("GPUARB_MEM_LIMIT", "0", 1);
	setenv("GPUARB_PRIORITY", "100", 1);
	o.ignore_env = false;
	o.core_pct = 100;
	o.priority = 100;
	o.limits_file = limits_file;
	cr_assert_eq(gpuarb_client_open(&o, &c, &err), 0, "%s", err.text);
	return c;
}

static struct gpuarb_client_status status_of(struct gpuarb_client *c)
{
	struct gpuarb_client_status status;

	cr_assert_eq(gpuarb_client_status(c, &status), 0);
	return status;
}

Test(granted, without_the_file_the_environment_counts)
{
	setenv("GPUARB_ACCOUNT", "mine", 1);
	cr_assert(!arb_granted());
	cr_assert_str_eq(arb_granted_getenv("GPUARB_ACCOUNT"), "mine");
}

Test(granted, with_it_the_environment_changes_no_limit)
{
	write_file(granted_file, "GPUARB_ACCOUNT=pod-1\nGPUARB_CORE_LIMIT=35\n");
	setenv("GPUARB_ACCOUNT", "mine", 1);
	setenv("GPUARB_CORE", "99", 1);
	setenv("GPUARB_DISABLE", "1", 1);
	setenv("GPUARB_DIR", "/elsewhere", 1);
	setenv("GPUARB_LOG", "debug", 1);
	cr_assert(arb_granted());
	cr_assert_str_eq(arb_granted_getenv("GPUARB_ACCOUNT"), "pod-1");
	cr_assert_str_eq(arb_granted_getenv("GPUARB_CORE_LIMIT"), "35");
	cr_assert_null(arb_granted_getenv("GPUARB_CORE"), "the beginning of a name is not the name");
	cr_assert_null(arb_granted_getenv("GPUARB_DISABLE"));
	cr_assert_null(arb_granted_getenv("GPUARB_DIR"));
	cr_assert_str_eq(arb_granted_getenv("GPUARB_LOG"), "debug", "what is logged changes no limit");
}

Test(granted, a_program_cannot_give_itself_more)
{
	struct gpuarb_client *c;

	write_file(granted_file, "GPUARB_ACCOUNT=pod-1\nGPUARB_CORE_LIMIT=35\nGPUARB_MEM_LIMIT=4Mi");
	c = greedy(NULL);
	cr_assert_str_eq(c->opened.name, "pod-1");
	cr_assert_eq(status_of(c).core_pct, 35);
	cr_assert_eq(status_of(c).mem_limit, 4 << 20);
	cr_assert_eq(c->asked.priority, 50);
	gpuarb_client_close(c);
}

Test(granted, annotations_lower_a_limit_and_do_not_raise_it)
{
	struct gpuarb_client *c;
	uint64_t next;

	write_file(granted_file, "GPUARB_ACCOUNT=pod-1\nGPUARB_CORE_LIMIT=35\nGPUARB_MEM_LIMIT=4Mi\n");
	write_file(limits, "gpuarb.dev/core-limit=\"20\"\ngpuarb.dev/memory-limit=\"0\"");
	c = greedy(limits);
	cr_assert_eq(status_of(c).core_pct, 20);
	cr_assert_eq(status_of(c).mem_limit, 4 << 20, "no quota would be more");
	write_file(limits, "gpuarb.dev/core-limit=\"90\"\ngpuarb.dev/memory-limit=\"2Mi\"");
	u_clock_ns += 200 * MS;
	gpuarb_client_follow(c, &next, NULL);
	cr_assert_eq(status_of(c).core_pct, 35);
	cr_assert_eq(status_of(c).mem_limit, 2 << 20);
	gpuarb_client_close(c);
}

Test(granted, a_file_that_is_too_long_or_full_of_garbage_harms_nobody)
{
	FILE *file = fopen(granted_file, "we");

	for (int i = 0; i < 100000; i++)
		fputc("=\n\0G"[i % 4], file);
	fclose(file);
	cr_assert(arb_granted());
	cr_assert_null(arb_granted_getenv("GPUARB_ACCOUNT"));
}
