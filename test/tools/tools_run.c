/* gpuarb-run as a user runs it: what it sets, what it refuses, what it becomes. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gpuarb/client.h"

#include "test/harness.h"

/* Runs it after `before` (variables); returns the exit status and the output, both streams together. */
static int run(const char *before, const char *arguments, char *output, size_t size)
{
	return t_shell(output, size, "%s %s/gpuarb-run %s", before, t_build(), arguments);
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
	expect("P=$(mktemp -d); trap 'rm -r $P' EXIT; echo x >$P/no-program; PATH=$P:$PATH", "no-program",
		126, "Permission denied");
	/* A directory that cannot be searched; root can search all. */
	expect("P=$(mktemp -d); trap 'rm -r $P' EXIT; chmod 0 $P; PATH=$P:$PATH", "no-such-program-here", 127,
		"No such file");
}

Test(run, what_was_preloaded_stays)
{
	char out[8192];

	expect("LD_PRELOAD=libdl.so.2", "--dry-run true", 0, "/libgpuarb-preload.so:libdl.so.2\n");
	cr_assert_eq(run("", "--dry-run --core 5 true", out, sizeof(out)), 0);
	cr_assert(strncmp(out, "GPUARB_CORE_LIMIT=5\n", 20) == 0, "%s", out);
	expect("", "--dry-run --sim true", 0, "/sim");
}

Test(run, a_user_who_asks_for_another_limit_than_the_account_has_is_told)
{
	char place[] = "/dev/shm/gpuarb-run-XXXXXX", command[512];
	struct gpuarb_options options = {.gpu = T_GPU, .dir = place, .account = "job", .core_pct = 30};
	struct gpuarb_client *client;
	char out[8192];

	cr_assert(mkdtemp(place));
	cr_assert_eq(gpuarb_client_open(&options, &client, NULL), 0);
	snprintf(command, sizeof(command), "--dir %s --account job --core 50 -- true", place);
	expect("", command, 0,
		"account job: a program that runs already asked for 30 percent, this one asks for 50 "
		"percent: the "
		"stricter limit counts for both, 30 percent\n");
	snprintf(command, sizeof(command), "--dir %s --account job --core 20 -- true", place);
	expect("", command, 0, "counts for both, 20 percent\n");
	snprintf(command, sizeof(command), "--dir %s --account job --core 30 -- true", place);
	cr_assert_eq(run("", command, out, sizeof(out)), 0);
	cr_assert_str_empty(out);
	gpuarb_client_close(client);
	snprintf(command, sizeof(command), "--dir %s --account job --core 50 -- true", place);
	cr_assert_eq(run("", command, out, sizeof(out)), 0);
	cr_assert_str_empty(out, "nobody of the account is there any more");
	t_shell(out, sizeof(out), "rm -r %s", place);
}

/* Flags for the command line of docker or podman: all of them, or none. */
Test(run, a_container_gets_flags)
{
	char place[] = "/dev/shm/gpuarb-run-XXXXXX", command[512], out[8192], expected[512];

	cr_assert(mkdtemp(place));
	snprintf(command, sizeof(command), "--print-container-flags --core 40 --dir %s", place);
	cr_assert_eq(run("", command, out, sizeof(out)), 1);
	cr_assert(strstr(out, "/state: No such file or directory; gpuarb-node makes the directories"), "%s",
		out);
	cr_assert_null(strstr(out, "-e "), "nothing else is printed: %s", out);
	snprintf(command, sizeof(command), "mkdir %s/state %s/control", place, place);
	cr_assert_eq(system(command), 0);
	snprintf(command, sizeof(command),
		"--print-container-flags --core 40 --mem 1Gi --policy fair --dir %s", place);
	cr_assert_eq(run("", command, out, sizeof(out)), 0, "%s", out);
	snprintf(expected, sizeof(expected),
		"-v %s/state:/dev/shm/gpuarb/state:rw\n-v %s/control:/dev/shm/gpuarb/control:ro\n", place,
		place);
	cr_assert(strstr(out, expected), "%s", out);
	cr_assert(strstr(out, "-e GPUARB_CORE_LIMIT=40\n-e GPUARB_MEM_LIMIT=1Gi\n"), "%s", out);
	cr_assert(strstr(out, "-e GPUARB_POLICY=fair\n-e GPUARB_ACCOUNT=@container\n"), "%s", out);
	cr_assert(strstr(out, "libgpuarb-preload.so:/usr/lib/gpuarb/libgpuarb-preload.so:ro\n"), "%s", out);
	cr_assert(strstr(out, "-e LD_PRELOAD=/usr/lib/gpuarb/libgpuarb-preload.so\n"), "%s", out);
	snprintf(command, sizeof(command), "--print-container-flags --account 'a*' --dir %s", place);
	cr_assert_eq(run("", command, out, sizeof(out)), 1);
	cr_assert(strstr(out, "GPUARB_ACCOUNT=a* cannot be written as a flag"), "%s", out);
	expect("", "--print-container-flags true", 2, "runs nothing");
	expect("", "--print-container-flags --sim", 2, "runs nothing");
	snprintf(command, sizeof(command), "rm -r %s", place);
	cr_assert_eq(system(command), 0);
}

Test(run, a_gpu_is_known_by_number_or_uuid_or_not_at_all)
{
	char place[] = "/dev/shm/gpuarb-run-XXXXXX", before[128], command[128], out[8192], *uuid, *end;

	cr_assert(mkdtemp(place));
	snprintf(before, sizeof(before), "GPUSIM_DIR=%s", place);
	cr_assert_eq(run(before, "--sim --gpu 0 --dry-run true", out, sizeof(out)), 0, "%s", out);
	uuid = strstr(out, "CUDA_VISIBLE_DEVICES=GPU-");
	cr_assert(uuid, "by number, as nvidia-smi counts, is not by number as CUDA does: %s", out);
	uuid += strlen("CUDA_VISIBLE_DEVICES=");
	end = strchr(uuid, '\n');
	uuid[10] = *end = '\0';
	snprintf(command, sizeof(command), "--sim --gpu %s --dry-run true", uuid);
	expect(before, command, 0, uuid);
	expect(before, "--sim --gpu 7 true", 1, "there is no GPU 7; the driver knows 1");
	expect(before, "--sim --gpu GPU-ffffffff true", 1, "there is no GPU GPU-ffffffff");
	snprintf(command, sizeof(command), "rm -r %s", place);
	cr_assert_eq(system(command), 0);
}

Test(run, a_policy_is_for_the_first_on_a_gpu)
{
	char place[] = "/dev/shm/gpuarb-run-XXXXXX", before[128], command[512];

	cr_assert(mkdtemp(place));
	snprintf(before, sizeof(before), "GPUARB_CONF=/dev/null GPUARB_DIR=%s GPUSIM_DIR=%s", place, place);
	expect(before, "--policy Fair --dry-run true", 0, "GPUARB_POLICY=Fair");
	snprintf(command, sizeof(command), "--sim --policy fair -- %s/simload -n 10", t_build());
	expect(before, command, 0, "");
	expect(before, "--policy FAIR true", 0, "");
	expect(before, "--policy exclusive true", 1,
		"is fair already; for everybody on it, 'gpuarb-set --gpu GPU-");
	expect(before, "--sim --gpu 0 --policy exclusive true", 1, "policy=exclusive' changes it");
	snprintf(command, sizeof(command), "rm -r %s", place);
	cr_assert_eq(system(command), 0);
}

/* Runs commands with $d, a directory of segments that is full, read-only, may not be made or not even be looked for, on
 * a file system of its own, and without capabilities that would override this. */
static int in_directory(
	const char *kind, const char *on_error, const char *command, char *output, size_t size)
{
	size_t state =
		arb_segment_size(ARB_SLOTS_DEFAULT, arb_segment_accounts_for(ARB_SLOTS_DEFAULT), ARB_EVENTS);
	int r;

	/* It is not inside the other text, whose quotes it would end. */
	setenv("COMMAND", command, 1);
	r = t_shell(output, size,
		"KIND=%s TIGHT=%zu GPUARB_ON_ERROR=%s GPUARB_CONF=/dev/null B=%s unshare -rm sh -c '"
		"w=$(mktemp -d /dev/shm/gpuarb-run-XXXXXX); trap \"umount $w; rm -r $w $w-sim\" EXIT; mkdir "
		"$w-sim; "
		"[ $KIND = full ] && room=64k || room=64m; [ $KIND = tight ] && room=$TIGHT; "
		"[ $KIND = read-only ] && room=$room,ro; "
		"mount -t tmpfs -o size=$room none $w 2>/dev/null || exit 77; export d=$w/gpuarb "
		"GPUSIM_DIR=$w-sim; "
		"[ $KIND = forbidden ] && chmod 555 $w; [ $KIND = hidden ] && chmod 0 $w; "
		"setpriv --inh-caps=-all --bounding-set=-all sh -c \"$COMMAND\"'",
		kind, state + 65536, on_error, t_build());
	if (r == 77 || (r != 0 && system("unshare -rm true 2>/dev/null") != 0)) {
		printf("skipped: directories alike: file systems cannot be mounted here\n");
		cr_skip_test("file systems cannot be mounted here");
	}
	return r;
}

static const char *const kinds[] = {"full", "read-only", "forbidden", "hidden"};

/* Checks that each kind of directory gives the same result, with the kernel's own words for the reason. */
static void expect_alike(const char *on_error, const char *command, int status, const char *sentence)
{
	static const char *const reasons[] = {
		"No space left on device", "Read-only file system", "Permission denied", "Permission denied"};
	static const char *const before[] = {
		"no room in ", "Read-only file system", "Permission denied", "Permission denied"};
	char out[8192];

	for (unsigned i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		int r = in_directory(kinds[i], on_error, command, out, sizeof(out));

		cr_assert_eq(r, status, "%s, %s, %s: %d: %s", kinds[i], on_error, command, r, out);
		cr_assert(strstr(out, reasons[i]) || strstr(out, before[i]), "%s, %s: %s", kinds[i], command,
			out);
		cr_assert(strstr(out, sentence), "%s, %s, %s: %s", kinds[i], on_error, command, out);
		cr_assert_eq(strstr(out, "\"completed\":20") != NULL, status == 0, "%s, %s: %s", kinds[i],
			command, out);
	}
}

#define LOAD  "$B/simload -n 20 -k 10"
#define ALONE "the process keeps its own limits, as if it were alone\n"

Test(run, a_full_a_read_only_and_a_forbidden_directory_are_alike)
{
	expect_alike("open", "$B/gpuarb-run --sim --core 50 --dir $d -- " LOAD, 0, ALONE);
	expect_alike("closed", "$B/gpuarb-run --sim --core 50 --dir $d -- " LOAD, 1,
		"; nothing is started (on_error = closed)\n");
	expect_alike("open", "$B/gpuarb-run --sim --mem 1Gi --gpu auto --dir $d -- " LOAD, 0,
		": nothing of it is promised (on_error = open)\n");
	expect_alike("open", "$B/gpuarb-run --sim --class default --gpu 0 --dir $d -- " LOAD, 0,
		": the program runs without a lease (on_error = open)\n");
	expect_alike("open", "$B/gpuarb-run --sim --class default --dir $d -- " LOAD, 0,
		": the program runs without a lease (on_error = open)\n");
	expect_alike("closed", "$B/gpuarb-run --sim --class default --gpu 0 --dir $d -- " LOAD, 1,
		"nothing is started");
	expect_alike("open",
		"LD_PRELOAD=$B/libgpuarb-preload.so LD_LIBRARY_PATH=$B/sim GPUARB_CORE_LIMIT=50 "
		"GPUARB_DIR=$d " LOAD,
		0, ALONE);
	expect_alike("closed",
		"LD_PRELOAD=$B/libgpuarb-preload.so LD_LIBRARY_PATH=$B/sim GPUARB_CORE_LIMIT=50 "
		"GPUARB_DIR=$d " LOAD,
		1, "the GPU is refused (on_error = closed)");
}

/* A control segment that there is no room for is treated like one that may not be made: the client uses its own
 * settings and shares the state segment. */
Test(run, there_may_be_no_room_for_the_control_segment)
{
	char out[8192];

	cr_assert_eq(in_directory("tight", "closed",
			     "LD_PRELOAD=$B/libgpuarb-preload.so LD_LIBRARY_PATH=$B/sim GPUARB_CORE_LIMIT=50 "
			     "GPUARB_DIR=$d " LOAD "; ls $d/state $d/control",
			     out, sizeof(out)),
		0, "%s", out);
	cr_assert(strstr(out, "/state:\nGPU-") && !strstr(out, "/control:\nGPU-"), "%s", out);
	cr_assert(!strstr(out, "preload: ") && strstr(out, "\"completed\":20"), "%s", out);
}

Test(run, mistakes_get_a_sentence)
{
	expect("", "--policy fare true", 2, "--policy: policy cannot be 'fare'; allowed: one of concurrent|");
	expect("", "--version", 0, "gpuarb-run 0.");
	expect("", "--core 0 true", 2, "--core: core cannot be '0'; allowed: 1 to 100 percent");
	expect("", "--mem lots true", 2,
		"--mem: mem cannot be 'lots'; allowed: a number of bytes such as 512Mi");
	expect("", "--priority 1000 true", 2, "--priority: priority cannot be '1000'");
	expect("", "--account 'two words' true", 2, "cannot be an account's name");
	expect("", "", 2, "no program to run");
	expect("", "--help", 0, "gpuarb-run becomes the program");
}

Test(run, what_has_taken_hold_is_said_by_the_program_itself)
{
	char place[] = "/dev/shm/gpuarb-run-XXXXXX", before[256], command[512], out[8192], *line;
	static const char sentence[] =
		" (device 0): joined: account web may use 30 percent of the GPU's time and 1Gi of its memory\n";

	cr_assert(mkdtemp(place));
	snprintf(before, sizeof(before),
		"GPUARB_CORE_LIMIT= GPUARB_MEM_LIMIT= GPUARB_CONF=/dev/null GPUARB_DIR=%s GPUSIM_DIR=%s",
		place, place);
	snprintf(command, sizeof(command),
		"--sim --account web --core 30 --mem 1Gi --verbose -- %s/simload -n 20 -k 10", t_build());
	cr_assert_eq(run(before, command, out, sizeof(out)), 0, "%s", out);
	line = strstr(out, " info preload: GPU-");
	cr_assert(line && strstr(line, sentence), "%s", out);
	cr_assert_null(strstr(line + 15, "preload: "), "one line: %s", out);
	/* The program's own output is not changed. */
	cr_assert_eq(
		t_shell(out, sizeof(out), "%s %s/gpuarb-run %s 2>/dev/null", before, t_build(), command), 0);
	cr_assert(*out == '{' && strchr(out, '\n') == out + strlen(out) - 1, "%s", out);
	/* It says what is in force, not what was asked for. */
	cr_assert_eq(
		t_shell(out, sizeof(out), "%s %s/gpuarb-set --account web core=55 mem=", before, t_build()),
		0, "%s", out);
	expect(before, command, 0,
		"joined: account web may use 55 percent of the GPU's time and 1Gi of its memory\n");
	/* It says nothing without --verbose, nor where the log is a file. */
	snprintf(command, sizeof(command), "--sim --account free -- %s/simload -n 20 -k 10", t_build());
	run(before, command, out, sizeof(out));
	cr_assert_null(strstr(out, "preload: "), "%s", out);
	snprintf(before, sizeof(before),
		"GPUARB_CORE_LIMIT= GPUARB_MEM_LIMIT= GPUARB_LOG=%s/log GPUARB_CONF=/dev/null GPUARB_DIR=%s "
		"GPUSIM_DIR=%s",
		place, place, place);
	snprintf(command, sizeof(command),
		"-v --sim --account free -- %s/simload -n 20 -k 10; cat %s/log >&2", t_build(), place);
	run(before, command, out, sizeof(out));
	cr_assert(strstr(out, "account free may use all of the GPU's time and as much of its memory as there "
			      "is\n") > strchr(out, '}'),
		"%s", out);
	snprintf(command, sizeof(command), "rm -r %s", place);
	cr_assert_eq(system(command), 0);
}

/* A program that was started would print this. */
#define STARTED "-- echo it was started"

static void expect_refused(const char *before, const char *arguments, int status, const char *sentence)
{
	char out[8192];

	expect(before, arguments, status, sentence);
	run(before, arguments, out, sizeof(out));
	cr_assert_null(strstr(out, "it was started"), "%s: %s", arguments, out);
}

Test(run, an_account_s_name_is_never_cut)
{
	char name[65] = "", arguments[256], before[256];

	memset(name, 'n', 64);
	snprintf(arguments, sizeof(arguments), "--account %s " STARTED, name);
	expect_refused("", arguments, 2,
		"--account: 'nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn...' (64 bytes) cannot be an account's "
		"name; allowed: 1 to 63 bytes, no spaces or control characters");
	expect_refused("", "--account '' " STARTED, 2, "--account: '' (0 bytes) cannot be an account's name");
	snprintf(before, sizeof(before), "GPUARB_ACCOUNT=%s", name);
	expect_refused(before, STARTED, 2, "GPUARB_ACCOUNT: 'nnnn");
	name[63] = '\0';
	snprintf(before, sizeof(before), "GPUARB_ACCOUNT=%s", name);
	expect(before, STARTED, 0, "it was started");
}

Test(run, to_wait_is_to_wait_for_memory)
{
	expect_refused("GPUARB_CONF=/dev/null", "--wait " STARTED, 2,
		"--wait waits for memory or time that can be promised, and none is asked for; say how much with "
		"--mem");
	expect_refused("GPUARB_CONF=/dev/null", "--wait=5 --mem 0 " STARTED, 2, "none is asked for");
	expect("GPUARB_CONF=/dev/null GPUARB_MEM_LIMIT=1Mi", "--wait --dry-run true", 0, "GPUARB_ACCOUNT");
	expect("", "--print-container-flags --wait --mem 1Gi", 2, "runs nothing");
}

Test(run, a_request_and_a_weight_are_checked_and_set)
{
	expect("GPUARB_CONF=/dev/null", "--request 25 --weight 200 --dry-run true", 0, "GPUARB_REQUEST=25");
	expect("GPUARB_CONF=/dev/null", "--request 25 --weight 200 --dry-run true", 0, "GPUARB_WEIGHT=200");
	expect_refused("GPUARB_CONF=/dev/null", "--request 101 " STARTED, 2,
		"request cannot be '101'; allowed: 0 to 100 percent");
	expect_refused("GPUARB_CONF=/dev/null", "--weight 0 " STARTED, 2,
		"weight cannot be '0'; allowed: 1 to 10000");
}

Test(run, settings_are_in_a_file)
{
	expect_refused("GPUARB_CONF=/etc", STARTED, 1, "GPUARB_CONF=/etc is a directory");
	expect_refused("GPUARB_CONF=/no/such.conf", STARTED, 1, "cannot read /no/such.conf: No such file");
}

Test(run, without_the_library_nothing_is_started)
{
	char command[512], place[] = "/tmp/gpuarb-run-XXXXXX";

	cr_assert(mkdtemp(place));
	snprintf(command, sizeof(command),
		"cp %s/gpuarb-run %s && ! %s/gpuarb-run true 2>%s/said && grep -q 'there is no "
		"libgpuarb-preload.so' %s/said",
		t_build(), place, place, place, place);
	cr_assert_eq(system(command), 0);
	snprintf(command, sizeof(command), "rm -r %s", place);
	cr_assert_eq(system(command), 0);
}
