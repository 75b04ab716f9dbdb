/* gpuarb-run, from outside: what it sets, what it refuses, what it becomes. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* Runs it behind `before` (variables); returns the exit status and what was printed, both streams together.
 */
static int run(const char *before, const char *arguments, char *output, size_t size)
{
	const char *build = getenv("T_BUILD");
	char command[1024];
	size_t n;
	FILE *pipe;

	snprintf(command, sizeof(command), "%s %s/gpuarb-run %s 2>&1", before, build ? build : "build",
		arguments);
	pipe = popen(command, "r");
	cr_assert(pipe);
	n = fread(output, 1, size - 1, pipe);
	output[n] = '\0';
	return WEXITSTATUS(pclose(pipe));
}

static void expect(const char *before, const char *arguments, int status, const char *sentence)
{
	char out[8192];

	cr_assert_eq(run(before, arguments, out, sizeof(out)), status, "%s: %s", arguments, out);
	cr_assert(strstr(out, sentence), "%s: %s", arguments, out);
}

Test(run, limits_reach_the_program)
{
	expect("", "--core 40 -- sh -c 'echo $GPUARB_CORE_LIMIT'", 0, "40\n");
	expect("", "--mem 4Gi --priority 7 sh -c 'echo $GPUARB_MEM_LIMIT $GPUARB_PRIORITY'", 0, "4Gi 7\n");
	expect("", "--account web sh -c 'echo $GPUARB_ACCOUNT'", 0, "web\n");
	expect("", "--gpu 1 --dir /x sh -c 'echo $CUDA_VISIBLE_DEVICES $GPUARB_DIR'", 0, "1 /x\n");
	expect("", "sh -c 'echo $GPUARB_ACCOUNT'", 0, "sh-");
	expect("GPUARB_ACCOUNT=outer", "sh -c 'echo $GPUARB_ACCOUNT'", 0, "outer\n");
}

Test(run, it_becomes_the_program)
{
	expect("", "sh -c 'exit 7'", 7, "");
	expect("", "-- echo --core 5", 0, "--core 5\n");
	expect("", "no-such-program-here", 127, "cannot run no-such-program-here: No such file");
	expect("", "/etc/passwd", 126, "cannot run /etc/passwd: Permission denied");
}

Test(run, what_was_preloaded_stays)
{
	char out[8192];

	expect("LD_PRELOAD=libdl.so.2", "--dry-run true", 0, "/libgpuarb-preload.so:libdl.so.2\n");
	cr_assert_eq(run("", "--dry-run --core 5 true", out, sizeof(out)), 0);
	cr_assert(strncmp(out, "GPUARB_CORE_LIMIT=5\n", 20) == 0, "%s", out);
	expect("", "--dry-run --sim true", 0, "/sim");
}

Test(run, mistakes_get_a_sentence)
{
	expect("", "--core 0 true", 2, "--core: core cannot be '0'; allowed: 1 to 100 percent");
	expect("", "--mem lots true", 2,
		"--mem: mem cannot be 'lots'; allowed: a number of bytes such as 512Mi");
	expect("", "--priority 1000 true", 2, "--priority: priority cannot be '1000'");
	expect("", "--account 'two words' true", 2, "cannot be an account's name");
	expect("", "", 2, "no program to run");
	expect("", "--help", 0, "It becomes the program");
}

Test(run, without_the_library_nothing_is_started)
{
	const char *build = getenv("T_BUILD");
	char command[512], place[] = "/tmp/gpuarb-run-XXXXXX";

	cr_assert(mkdtemp(place));
	snprintf(command, sizeof(command),
		"cp %s/gpuarb-run %s && ! %s/gpuarb-run true 2>%s/said && grep -q 'there is no "
		"libgpuarb-preload.so' %s/said",
		build ? build : "build", place, place, place, place);
	cr_assert_eq(system(command), 0);
	snprintf(command, sizeof(command), "rm -r %s", place);
	cr_assert_eq(system(command), 0);
}
