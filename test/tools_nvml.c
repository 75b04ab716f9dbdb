/* What the tools say, and still do, when NVML fails them. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "gpuarb/control.h"
#include "multi.h"

#define FIRST  "GPU-00000001-0000-0000-0000-000000000000"
#define SECOND "GPU-00000002-0000-0000-0000-000000000000"

static struct t_dir dir;
static char out[1 << 16];

static void begin(void)
{
	t_dir_make(&dir, NULL);
	setenv("GPUARB_DIR", dir.path, 1);
	setenv("GPUARB_CONF", dir.conf, 1);
	setenv("LC_ALL", "C.UTF-8", 1);
}

static void end(void)
{
	t_dir_remove(&dir);
}

TestSuite(nvml, .init = begin, .fini = end, .timeout = 60);

static void expect_with(
	const char *library, const char *fails, const char *command, int status, const char *sentence)
{
	int got = t_shell(out, sizeof(out), "LD_LIBRARY_PATH=%s FAILING_NVML=%s exec %s/%s", library, fails,
		t_build(), command);

	cr_assert_eq(got, status, "%s, %s: %d: %s", command, fails, got, out);
	cr_assert(strstr(out, sentence), "%s, %s: %s", command, fails, out);
}

static void expect(const char *fails, const char *command, int status, const char *sentence)
{
	char library[PATH_MAX];

	snprintf(library, sizeof(library), "%s/test/nvml", t_build());
	expect_with(library, fails, command, status, sentence);
}

Test(nvml, each_way_to_fail_has_a_sentence)
{
	char path[PATH_MAX];
	FILE *file;

	expect("nowhere", "gpuarb-node --list", 0,
		"0\t" FIRST "\t1048576\tFailing GPU\n1\t" SECOND "\t1048576\tFailing GPU\n");
	expect("init", "gpuarb-node --list", 1, "gpuarb-node: libnvidia-ml.so.1 finds no working driver\n");
	expect("count", "gpuarb-node --list", 1, "gpuarb-node: libnvidia-ml.so.1 cannot count the GPUs\n");
	expect("none", "gpuarb-node --list", 1, "gpuarb-node: NVML finds no GPU\n");
	expect("none", "gpuarb-node", 1, "gpuarb-node: NVML finds no GPU\n");
	expect("none", "gpuarb-cdi", 1, "gpuarb-cdi: NVML finds no GPU\n");
	expect("init", "gpuarb-cdi", 1, "finds no working driver; name the GPUs with --gpu\n");
	snprintf(path, sizeof(path), "%s/test/preload/hang", t_build());
	expect_with(path, "", "gpuarb-node --list", 1,
		"gpuarb-node: libnvidia-ml.so.1 is too old: it cannot list GPUs\n");
	/* One that cannot be loaded hides a real one. */
	snprintf(path, sizeof(path), "%s/libnvidia-ml.so.1", dir.path);
	file = fopen(path, "w");
	cr_assert(file && fputs("nonsense", file) >= 0 && fclose(file) == 0);
	expect_with(dir.path, "", "gpuarb-node --list", 1,
		"gpuarb-node: there is no libnvidia-ml.so.1: NVIDIA's driver is not installed here\n");
}

/* One GPU that has fallen off the bus does not hide the other; numbers stay the driver's. */
Test(nvml, what_fails_for_one_gpu_is_left_out)
{
	expect("first", "gpuarb-node --list", 0, "1\t" SECOND "\t1048576\tFailing GPU\n");
	cr_assert_null(strstr(out, FIRST), "%s", out);
	expect("uuid", "gpuarb-node --list", 0, "1\t" SECOND "\t1048576\tFailing GPU\n");
	cr_assert_null(strstr(out, FIRST), "%s", out);
	expect("name", "gpuarb-node --list", 0, "0\t" FIRST "\t1048576\t\n");
	expect("memory", "gpuarb-node --list", 0, "0\t" FIRST "\t0\tFailing GPU\n");
}

static void nothing_is_made(const char *after)
{
	char command[PATH_MAX + 64];

	snprintf(command, sizeof(command), "find %s -type f ! -name '*.conf'", dir.path);
	cr_assert_eq(t_shell(out, sizeof(out), "%s", command), 0);
	cr_assert_str_empty(out, "%s: %s", after, out);
}

#define NOBODY "GPU-0000000f-0000-0000-0000-000000000000"

static void refused(const char *fails, const char *tool, const char *gpu, const char *sentence)
{
	char command[128], whole[160];

	snprintf(command, sizeof(command), "%s --gpu '%s'", tool, gpu);
	snprintf(whole, sizeof(whole), sentence, gpu);
	expect(fails, command, 1, whole);
	nothing_is_made(command);
}

/* A segment for a GPU that is not there would be found by everybody who names none. */
Test(nvml, a_gpu_that_is_not_there_is_refused_and_nothing_is_made)
{
	static const char *const tools[] = {
		"gpuarb-node", "gpuarb-node --gpu 0", "gpuarb-cdi", "gpuarb-cdi --output spec.json"};
	static const char *const gpus[] = {"nope", "GPU-nope", "7", "", NOBODY};

	for (unsigned k = 0; k < sizeof(gpus) / sizeof(*gpus); k++)
		for (unsigned i = 0; i < sizeof(tools) / sizeof(*tools); i++)
			refused("", tools[i], gpus[k], "there is no GPU '%s'; the driver knows 2");
	/* Without a driver to ask only a whole UUID is believed. */
	for (unsigned k = 0; strcmp(gpus[k], NOBODY) != 0; k++) {
		refused("init", "gpuarb-node", gpus[k], "there is no GPU '%s': without a driver to ask");
		refused("init", "gpuarb-cdi", gpus[k], "there is no GPU '%s': without a driver to ask");
	}
	expect("", "gpuarb-set --gpu " NOBODY " window_ms=200", 1, "the driver knows none with this UUID");
	nothing_is_made("gpuarb-set");
	expect("init", "gpuarb-node --gpu " NOBODY, 0, NOBODY ": ready");
	/* What has a segment may be made anew, wherever its GPU is now. */
	expect("", "gpuarb-node --replace --gpu " NOBODY, 0, NOBODY ": ready");
}

Test(nvml, a_gpu_is_found_by_number_and_beginning)
{
	expect("", "gpuarb-node --gpu 1", 0, SECOND " (GPU 1): ready");
	expect("", "gpuarb-node --gpu GPU-00000001", 0, FIRST " (GPU 0): ready");
	expect("", "gpuarb-cdi --percents 50 --gpu 1", 0, "\"CUDA_VISIBLE_DEVICES=" SECOND "\"");
	cr_assert(strstr(out, "\"1-50\"") && strstr(out, "\"" SECOND "-50\""), "%s", out);
	cr_assert_null(strstr(out, FIRST), "%s", out);
}

Test(nvml, numbers_need_a_driver_that_answers)
{
	static const char *const commands[] = {"gpuarb-set --gpu 0 --show",
		"gpuarb-top --gpu 0 --once -i 100", "gpuarb-watchdog --gpu 0 --once"};

	for (unsigned i = 0; i < sizeof(commands) / sizeof(*commands); i++)
		expect("init", commands[i], 1, "GPU 0: numbers are the driver's, and there is none to ask");
	expect("", "gpuarb-top --gpu 2 --once -i 100", 1,
		"there is no GPU 2; the driver knows 2, counted from 0\n");
	expect("", "gpuarb-node", 0, SECOND " (GPU 1): ready");
	expect("", "gpuarb-set --gpu 1 --show", 0, SECOND "\n");
}

/* A viewer has other things to show than the GPU's name, and does not wait for it for long. */
Test(nvml, the_viewer_looks_without_it)
{
	static const char *const ways[] = {"init", "count", "none", "first", "name", "hangs"};

	expect("", "gpuarb-node --gpu " FIRST, 0, "ready");
	expect("", "gpuarb-top --once -i 100", 0, FIRST "  Failing GPU ");
	for (unsigned i = 0; i < sizeof(ways) / sizeof(*ways); i++) {
		expect(ways[i], "gpuarb-top --once -i 100", 0, FIRST);
		cr_assert_null(strstr(out, "Failing GPU"), "%s: %s", ways[i], out);
		cr_assert(strstr(out, "0 processes"), "%s: %s", ways[i], out);
		expect(ways[i], "gpuarb-top --json", 0, "\"name\": null");
	}
}
