/* gpuarb-run as a user runs it: memory that is promised before a program starts, and the GPU that the program gets.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "test/harness.h"

static struct t_dir dir, sim;

static void begin(void)
{
	t_dir_make(&dir, NULL);
	t_dir_make(&sim, NULL);
	setenv("GPUARB_DIR", dir.path, 1);
	setenv("GPUARB_CONF", dir.conf, 1);
	setenv("GPUSIM_DIR", sim.path, 1);
	setenv("GPUSIM_DEVICES", "2", 1);
	setenv("GPUSIM_UUID",
		"GPU-00000000-0000-0000-0000-00000000000a,GPU-00000000-0000-0000-0000-00000000000b", 1);
	unsetenv("CUDA_VISIBLE_DEVICES");
}

static void end(void)
{
	t_dir_remove(&dir);
	t_dir_remove(&sim);
}

TestSuite(place, .init = begin, .fini = end);

static FILE *start(const char *arguments)
{
	char command[1024];
	FILE *pipe;

	snprintf(command, sizeof(command), "exec %s/gpuarb-run --sim %s 2>&1", t_build(), arguments);
	pipe = popen(command, "r");
	cr_assert(pipe);
	return pipe;
}

/* Reads its first line; then it has its place. */
static void first_line(FILE *pipe, char line[512])
{
	cr_assert(fgets(line, 512, pipe), "it says nothing");
}

static void expect(const char *arguments, int status, const char *sentence)
{
	char out[4096];

	cr_assert_eq(t_shell(out, sizeof(out), "exec %s/gpuarb-run --sim %s", t_build(), arguments), status,
		"%s: %s", arguments, out);
	cr_assert(strstr(out, sentence), "%s: %s", arguments, out);
}

static void let_go(void)
{
	char path[256];

	snprintf(path, sizeof(path), "%s/stop", dir.path);
	fclose(fopen(path, "w"));
}

/* Starts a program that prints its GPU and runs until it is let go. */
static FILE *start_stays(const char *arguments)
{
	char all[1024];

	snprintf(all, sizeof(all),
		"%s sh -c 'echo $CUDA_VISIBLE_DEVICES; while [ -d %s ] && [ ! -e %s/stop ]; do sleep 0.05; "
		"done'",
		arguments, dir.path, dir.path);
	return start(all);
}

static FILE *stays(const char *arguments, char line[512])
{
	FILE *pipe = start_stays(arguments);

	first_line(pipe, line);
	return pipe;
}

static void expect_load(const char *arguments, int status, const char *sentence)
{
	char out[4096];

	cr_assert_eq(
		t_shell(out, sizeof(out),
			"LD_LIBRARY_PATH=%s/sim LD_PRELOAD=%s/libgpuarb-preload.so CUDA_VISIBLE_DEVICES=0 %s "
			"%s/simload --kernel-us=10 --launches=10",
			t_build(), t_build(), arguments, t_build()),
		status, "%s: %s", arguments, out);
	cr_assert(strstr(out, sentence), "%s: %s", arguments, out);
}

/* Programs that others started by setting the environment: a container engine, Slurm, a shell. */
Test(place, programs_that_gpuarb_run_did_not_start_are_bound_as_well)
{
	char line[512], out[4096];
	FILE *first = stays("--gpu 0 --mem 10Gi --account training", line);

	expect_load("GPUARB_ACCOUNT=web GPUARB_MEM_LIMIT=7Gi", 1,
		" (device 0): cannot promise 7Gi to web: 10Gi of 16Gi is promised (training has 10Gi): the GPU is "
		"refused");
	expect_load("GPUARB_ACCOUNT=web GPUARB_MEM_LIMIT=6Gi", 0, "");
	expect_load("GPUARB_ACCOUNT=training GPUARB_MEM_LIMIT=10Gi", 0, "");
	expect_load("GPUARB_ACCOUNT=web", 0, "");
	cr_assert_eq(t_shell(out, sizeof(out),
			     "LD_LIBRARY_PATH=%s/sim %s/gpuarb-set "
			     "--gpu GPU-00000000-0000-0000-0000-00000000000a --account training mem=17Gi",
			     t_build(), t_build()),
		1, "%s", out);
	cr_assert(strstr(out, " (GPU 0) cannot promise 17Gi to training: that is more than the 16Gi"), "%s",
		out);
	let_go();
	pclose(first);
	expect_load("GPUARB_ACCOUNT=web GPUARB_MEM_LIMIT=16Gi", 0, "");
}

Test(place, what_goes_beyond_the_gpu_is_refused_as_long_as_the_other_runs)
{
	char line[512];
	FILE *first = stays("--gpu 0 --mem 10Gi --account training", line);

	expect("--gpu 0 --mem 7Gi --account web true", 1,
		"cannot promise 7Gi to web: 10Gi of 16Gi is promised (training has 10Gi)");
	expect("--gpu 0 --mem 6Gi --account web true", 0, "");
	expect("--gpu 1 --mem 16Gi --account web true", 0, "");
	expect("--gpu 0 --mem 20Gi true", 1, "more than the 16Gi it may promise");
	let_go();
	pclose(first);
	expect("--gpu 0 --mem 16Gi --account web true", 0, "");
}

Test(place, a_waiting_program_starts_when_the_other_ends)
{
	char line[512];
	FILE *first = stays("--gpu 0 --mem 10Gi --account a", line), *second;

	expect("--gpu 0 --mem 8Gi --wait=0 --account b true", 1, "waited 0 s in vain: ");
	second = start("--gpu 0 --mem 8Gi --wait --account b echo there");
	first_line(second, line);
	cr_assert(strstr(line, "waiting: ") && strstr(line, "a has 10Gi"), "%s", line);
	/* There would be room, but another program waits for it already. */
	expect("--gpu 0 --mem 1Gi --account c true", 1, "b waits for 8Gi");
	let_go();
	first_line(second, line);
	cr_assert_str_eq(line, "there\n");
	pclose(second);
	pclose(first);
}

/* Nobody uses the account that an administrator has set a request for. */
Test(place, what_was_set_is_promised_before_its_program_comes)
{
	char out[1024];

	expect("--gpu 0 --request 50 --account web true", 0, "");
	cr_assert_eq(
		t_shell(out, sizeof(out),
			"%s/gpuarb-set --gpu GPU-00000000-0000-0000-0000-00000000000a --account training request=60",
			t_build()),
		0, "%s", out);
	expect("--gpu 0 --request 50 --account web true", 1,
		"cannot promise 50 percent of its time to web: 60 of 100 are promised (training has 60)");
	expect("--gpu 0 --request 40 --account web true", 0, "");
	expect("--gpu auto --request 50 --account web sh -c 'echo $CUDA_VISIBLE_DEVICES'", 0, "0000b");
	expect("--gpu 0 --request 70 --account training true", 0, "");
}

Test(place, auto_takes_the_gpu_with_the_most_room_and_two_do_not_take_the_same)
{
	char a[512], b[512], c[512];
	FILE *first = start_stays("--gpu auto --mem 9Gi"), *second = start_stays("--gpu auto --mem 9Gi"),
	     *third;

	first_line(first, a);
	first_line(second, b);
	cr_assert_str_neq(a, b, "both on %s", a);
	cr_assert(strstr(a, "GPU-00000000") && strstr(b, "GPU-00000000"), "%s %s", a, b);
	expect("--gpu auto --mem 9Gi true", 1, "cannot promise 9Gi");
	third = stays("--gpu auto --mem 5Gi", c);
	expect("--gpu auto --mem 7Gi sh -c 'echo $CUDA_VISIBLE_DEVICES'", 0,
		strstr(c, "0a") ? "0000b" : "0000a");
	let_go();
	pclose(third);
	pclose(first);
	pclose(second);
}

Test(place, without_quotas_auto_goes_by_the_shares)
{
	char a[512], b[512];
	FILE *first = stays("--gpu auto --core 30", a), *second;

	second = stays("--gpu auto --core 20", b);
	cr_assert_str_neq(a, b, "both on %s", a);
	/* 30 percent are asked for on one GPU, 20 on the other. */
	expect("--gpu auto --core 50 sh -c 'echo $CUDA_VISIBLE_DEVICES'", 0, b);
	expect("--gpu auto --dry-run true", 0, b);
	let_go();
	pclose(first);
	pclose(second);
}

Test(place, a_mistake_gets_a_sentence)
{
	expect("--gpu 0 --mem 1Gi --wait=soon true", 2, "--wait cannot be 'soon'");
}
