/* gpuarb-top as a user runs it, without a terminal: every option, every sentence. */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "gpuarb/control.h"

#include "test/stress/garble.h"
#include "test/multi/multi.h"

static struct t_dir dir;

static void make_dir(void)
{
	t_dir_make(&dir, NULL);
	setenv("TZ", "UTC", 1);
	setenv("LC_ALL", "C.UTF-8", 1);
	unsetenv("COLUMNS");
}

static void remove_dir(void)
{
	t_dir_remove(&dir);
}

TestSuite(top, .init = make_dir, .fini = remove_dir);

static char out[1 << 20];

/* Runs it; returns the exit status, and its output, both streams together, in `out`. */
static int run_to(const char *arguments, const char *where)
{
	return t_shell(out, sizeof(out), "%s/gpuarb-top --dir %s %s </dev/null %s", t_build(), dir.path,
		arguments, where);
}

static int run(const char *arguments)
{
	return run_to(arguments, "");
}

static void expect(const char *arguments, int status, const char *sentence)
{
	int got = run(arguments);

	cr_assert_eq(got, status, "%s: %d: %s", arguments, got, out);
	cr_assert(strstr(out, sentence), "%s: %s", arguments, out);
}

/* Opens a client with a limit that has used some of the GPU and is throttled. */
static struct gpuarb_client *throttled(const char *account, unsigned core)
{
	struct gpuarb_options o = t_options(&dir, account);
	struct gpuarb_client *c;
	struct gpuarb_error err = {0};

	o.core_pct = core;
	o.mem_bytes = 1 << 30;
	cr_assert_eq(gpuarb_client_open(&o, &c, &err), 0, "%s", err.text);
	cr_assert_eq(gpuarb_client_mem_reserve(c, 300 << 20), 0);
	cr_assert_eq(gpuarb_client_mem_reserve(c, 1 << 30), -ENOMEM);
	cr_assert_eq(gpuarb_client_enter(c, NULL), 0);
	t_sleep_us(250000);
	cr_assert_eq(gpuarb_client_leave(c, 0), 0);
	cr_assert_eq(gpuarb_client_enter(c, NULL), -EAGAIN);
	return c;
}

static unsigned lines_with(const char *text)
{
	unsigned n = 0;

	for (const char *at = out; (at = strstr(at, text)) != NULL; at++)
		n++;
	return n;
}

Test(top, before_anybody_uses_a_gpu)
{
	json_t *root;

	expect("--once -i 100", 1,
		"gpuarb-top: nobody uses a GPU through gpuarb yet; start a program with gpuarb-run");
	expect("--history", 1, "nobody uses a GPU through gpuarb yet");
	expect("--explain web", 1, "nobody uses a GPU through gpuarb yet");
	expect("--batch -i 100 --count 2", 0,
		"nobody uses a GPU through gpuarb now\nnobody uses a GPU through gpuarb now\n");
	expect("--prom", 0, "# TYPE gpuarb_gpu_busy_seconds_total counter");
	expect("--json", 0, "");
	root = json_loads(out, 0, NULL);
	cr_assert_eq(json_array_size(json_object_get(root, "gpus")), 0, "%s", out);
	json_decref(root);
}

Test(top, tables)
{
	struct gpuarb_client *a = throttled("web", 10), *b = must_open(&dir, "\xe6\x95\xb0\xe6\x8d\xae");
	char pid[48];

	expect("--once --interval 1000 --width 100", 0, "\nweb            10    10 [");
	cr_assert(strstr(out, " 300M/1.0G throttled\n"), "%s", out);
	cr_assert(strstr(out, "\n\xe6\x95\xb0\xe6\x8d\xae         none "), "%s", out);
	cr_assert_eq(lines_with("ACCOUNT"), 1);
	snprintf(pid, sizeof(pid), "\u2514 %d boxfort-worker", (int)getpid());
	expect("--once -i 100 --processes", 0, pid);
	expect("--once -i 100 --ascii", 0, "\n??");
	for (const char *c = out; *c; c++)
		cr_assert((unsigned char)*c < 0x80, "%s", out);
	expect("--once -i 100 --sort name", 0, "web");
	cr_assert(strstr(out, "web") < strstr(out, "\n\xe6\x95\xb0"), "%s", out);
	expect("--once -i 100 --sort limit", 0, "web");
	cr_assert(strstr(out, "\nweb") > strstr(out, "\n\xe6\x95\xb0"), "%s", out);
	expect("--once -i 100 --filter THROTTLED", 0, "\nweb");
	cr_assert_eq(lines_with("\n\xe6\x95\xb0"), 0, "%s", out);
	expect("--once -i 100 --filter zzz", 0, "no account matches 'zzz'");
	expect("--batch -i 100 --count 3 --mono", 0, "web");
	cr_assert_eq(lines_with("ACCOUNT"), 3);
	gpuarb_client_close(b);
	gpuarb_client_close(a);
	expect("--once -i 100 -g GPU-", 0, "0 processes");
}

Test(top, tables_are_as_wide_as_there_is_room)
{
	struct gpuarb_client *a = throttled("web", 10);
	static const int widths[] = {40, 60, 80, 120, 250};

	for (unsigned i = 0; i < 5; i++) {
		char arguments[64];

		snprintf(arguments, sizeof(arguments), "--once -i 100 --ascii --width %d", widths[i]);
		expect(arguments, 0, "web");
		for (const char *line = out; *line; line = strchr(line, '\n') + 1)
			cr_assert_leq((int)strcspn(line, "\n"), widths[i], "%d: %s", widths[i], out);
		cr_assert_eq(lines_with("CONTAINER"), widths[i] == 250);
	}
	setenv("COLUMNS", "60", 1);
	expect("--once -i 100 --ascii", 0, "web");
	cr_assert_leq(strcspn(out, "\n"), 60);
	gpuarb_client_close(a);
}

Test(top, json)
{
	struct gpuarb_client *a = throttled("web", 10);
	json_t *root, *gpu, *account;
	char *line = out, *end;

	expect("--json", 0, "");
	root = json_loads(out, 0, NULL);
	cr_assert(root, "%s", out);
	gpu = json_array_get(json_object_get(root, "gpus"), 0);
	account = json_array_get(json_object_get(gpu, "accounts"), 0);
	cr_assert_str_eq(json_string_value(json_object_get(gpu, "uuid")), T_GPU);
	cr_assert_str_eq(json_string_value(json_object_get(account, "name")), "web");
	cr_assert_str_eq(json_string_value(json_object_get(account, "state")), "throttled");
	cr_assert(json_is_null(json_object_get(account, "share_1s_percent")), "it did not watch");
	cr_assert_eq(json_integer_value(json_object_get(gpu, "busy_ns")),
		json_integer_value(json_object_get(gpu, "billed_ns")));
	cr_assert_geq(json_integer_value(json_object_get(account, "used_ns")), 250000000);
	json_decref(root);
	expect("--json --interval 1000", 0, "");
	root = json_loads(out, 0, NULL);
	gpu = json_array_get(json_object_get(root, "gpus"), 0);
	cr_assert(json_is_real(json_object_get(gpu, "busy_1s_percent")), "it watched for a second");
	json_decref(root);
	/* Each picture is one line. */
	expect("--json --batch -i 100 --count 3", 0, "");
	for (int i = 0; i < 3; i++, line = end + 1) {
		end = strchr(line, '\n');
		cr_assert(end, "%s", out);
		root = json_loadb(line, (size_t)(end - line), 0, NULL);
		cr_assert(root, "line %d", i);
		json_decref(root);
	}
	cr_assert_eq(*line, '\0');
	expect("--json --history", 0, "\"kind\": \"joined\"");
	gpuarb_client_close(a);
}

Test(top, metrics)
{
	struct gpuarb_client *a = throttled("web", 10);
	char command[512];

	expect("--prom", 0, "\ngpuarb_account_limit_ratio{gpu=\"GPU-test\",account=\"web\"} 0.100000\n");
	cr_assert(strstr(out, "\ngpuarb_gpu_conservation_error_seconds{gpu=\"GPU-test\"} 0\n"), "%s", out);
	if (system("command -v promtool >/dev/null 2>&1") == 0) {
		snprintf(command, sizeof(command), "%s/gpuarb-top --dir %s --prom | promtool check metrics",
			t_build(), dir.path);
		cr_assert_eq(system(command), 0);
	} else {
		printf("skipped: promtool check metrics: there is no promtool (package prometheus)\n");
	}
	gpuarb_client_close(a);
}

Test(top, words)
{
	struct gpuarb_client *a = throttled("web", 10);
	struct gpuarb_change set = {"web", "core", "20"}, later = {"later", "core", "20"};
	struct gpuarb_error err;

	expect("--explain web -i 100", 0, "web on GPU-test: it is throttled: it has used what it may.\n");
	cr_assert(strstr(out, "  Limit: 10 percent of the GPU's time, as its program asked"), "%s", out);
	cr_assert(strstr(out, "it owes 2"), "%s", out);
	cr_assert(strstr(out, "It may go on in 2."), "24 windows or so: %s", out);
	cr_assert(
		strstr(out,
			" ago it was refused 1.0G of memory: its quota is 1.0G, of which 300M were in use."),
		"%s", out);
	cr_assert(strstr(out, "seen: none of its calls yet"), "this one does not call CUDA: %s", out);
	cr_assert_eq(gpuarb_control_change(dir.path, T_GPU, &set, 1, &err), 0, "%s", err.text);
	cr_assert_eq(gpuarb_control_change(dir.path, T_GPU, &later, 1, &err), 0, "%s", err.text);
	gpuarb_client_tick(a);
	expect("--explain web -i 100", 0, "Limit: 20 percent of the GPU's time, set by an administrator");
	expect("--explain later -i 100", 0, "Limits set by an administrator wait for it");
	expect("--explain nobody -i 100", 1, "no account 'nobody' is known on any GPU here");
	gpuarb_client_close(a);
	/* For an account that has gone it says what happened last. */
	expect("--explain web -i 100", 0, "web on GPU-test: none of its processes is there now.");
	cr_assert(strstr(out, " left; it had used 2"), "%s", out);
}

Test(top, history_outlives_everybody)
{
	struct gpuarb_client *a = throttled("web", 10), *b = must_open(&dir, "other");

	gpuarb_client_close(b);
	gpuarb_client_close(a);
	expect("--history", 0, " web joined: pid ");
	cr_assert(strstr(out, " web throttled: its quota is used up until "), "%s", out);
	cr_assert(strstr(out,
			  " web was refused 1.0G of memory: its quota is 1.0G, of which 300M were in use\n"),
		"%s", out);
	cr_assert(strstr(out, " other left; it had used 0 and freed 0B\n"), "%s", out);
	expect("--history --filter WEB", 0, " web left; it had used 2");
	cr_assert_null(strstr(out, "other"), "%s", out);
}

Test(top, history_of_one_account_since_a_moment)
{
	time_t began = time(NULL);
	struct gpuarb_client *a = throttled("web", 10), *b = must_open(&dir, "web-2");
	char day[64];
	json_t *root, *events;
	int year, month, mday;

	for (int i = 0; i < 20; i++)
		cr_assert_eq(gpuarb_client_mem_reserve(a, 1 << 30), -ENOMEM);
	gpuarb_client_close(b);
	gpuarb_client_close(a);
	expect("--history --account web", 0, " web left; it had used 2");
	cr_assert_null(strstr(out, "web-2"), "%s", out);
	cr_assert_eq(
		sscanf(out, "20%2d-%2d-%2d ", &year, &month, &mday), 3, "each line has its date: %s", out);
	cr_assert(strstr(out, "300M were in use (21 times in "), "repeats are one line: %s", out);
	cr_assert_eq(lines_with("was refused"), 1, "%s", out);
	expect("--history --account web --each", 0, "300M were in use (20 times)\n");
	cr_assert_eq(lines_with("was refused"), 2, "%s", out);
	expect("--history --since 1h", 0, " web joined: pid ");
	strftime(day, sizeof(day), "--history --since '%Y-%m-%d'", gmtime(&began));
	expect(day, 0, " web joined: pid ");
	expect("--history --since 0s", 0, "nothing has happened\n");
	expect("--history --account nobody", 1, "no account 'nobody' is known on any GPU here");
	expect("--history --since lately", 2,
		"--since cannot be 'lately'; allowed: how long ago, such as 500ms, 10s, 5m, 2h or 3d");
	expect("--history --since 2099-01-01", 2, "--since cannot be '2099-01-01'");
	expect("--history --account ''", 2, "--account");
	expect("--once --account web", 2, "--account, --since and --each go with --history");
	expect("--json --since 5m", 2, "--account, --since and --each go with --history");
	cr_assert_eq(run("--json --history --account web --since 5m"), 0);
	root = json_loads(out, 0, NULL);
	events = json_object_get(json_array_get(json_object_get(root, "gpus"), 0), "events");
	cr_assert_gt(json_array_size(events), 3, "%s", out);
	for (size_t i = 0; i < json_array_size(events); i++)
		cr_assert_str_eq(
			json_string_value(json_object_get(json_array_get(events, i), "account")), "web");
	json_decref(root);
	cr_assert_eq(run("--json --history --since 0s"), 0);
	root = json_loads(out, 0, NULL);
	events = json_object_get(json_array_get(json_object_get(root, "gpus"), 0), "events");
	cr_assert_eq(json_array_size(events), 0, "%s", out);
	json_decref(root);
}

Test(top, several_gpus)
{
	struct gpuarb_options o = t_options(&dir, "second");
	struct gpuarb_client *a = throttled("web", 10), *b;
	struct gpuarb_error err;
	json_t *root;

	o.gpu = "GPU-zzz";
	cr_assert_eq(gpuarb_client_open(&o, &b, &err), 0, "%s", err.text);
	expect("--once -i 100", 0, "\nGPU-zzz ");
	cr_assert(strncmp(out, "GPU-test ", 9) == 0, "%s", out);
	cr_assert_eq(lines_with("ACCOUNT"), 2);
	expect("--once -i 100 --gpu GPU-z", 0, "GPU-zzz");
	cr_assert_null(strstr(out, "GPU-test"), "%s", out);
	expect("--json", 0, "");
	root = json_loads(out, 0, NULL);
	cr_assert_eq(json_array_size(json_object_get(root, "gpus")), 2);
	json_decref(root);
	expect("--history", 0, "GPU-zzz\n");
	expect("--explain second -i 100", 0, "second on GPU-zzz: ");
	expect("--once -i 100 --gpu GPU-", 1, "GPU-");
	gpuarb_client_close(b);
	gpuarb_client_close(a);
}

/* Hostile or broken clients can write anything into a segment; a viewer must survive that. */
Test(top, garbage_does_not_bring_it_down)
{
	static const char *const modes[] = {"--json --history", "--once -i 100 --processes", "--prom",
		"--explain web -i 100", "--history"};
	uint64_t seed = t_seed_of_today();
	struct t_random random = t_seeded(seed);
	struct gpuarb_client *a = throttled("web", 10), *b = must_open(&dir, "other");
	struct arb_segment seg;

	printf("top: garbage from seed %llu\n", (unsigned long long)seed);
	cr_assert_eq(arb_segment_open(&seg, dir.path, T_GPU, true, NULL, NULL), 0);
	for (unsigned i = 0; i < 60; i++) {
		int status;

		for (unsigned k = 0; k < 30; k++)
			garble(&seg, &random);
		status = run(modes[i % 5]);
		cr_assert(status == 0 || status == 1, "%s: %d, seed %llu, round %u", modes[i % 5], status,
			(unsigned long long)seed, i);
		for (const char *c = out; *c; c++)
			cr_assert((unsigned char)*c >= ' ' || *c == '\n', "a control character, seed %llu",
				(unsigned long long)seed);
		if (status == 0 && i % 5 == 0) {
			json_t *root = json_loads(out, 0, NULL);

			cr_assert(root, "no JSON, seed %llu, round %u: %s", (unsigned long long)seed, i, out);
			json_decref(root);
		}
	}
	arb_segment_close(&seg);
	gpuarb_client_close(b);
	gpuarb_client_close(a);
}

/* Runs in a PID namespace of its own, says so, and waits. */
static int in_a_container(void *argument)
{
	int *ready = argument;
	struct gpuarb_client *c;

	if (t_open(&dir, "boxed", &c) != 0)
		return 1;
	if (write(ready[1], "x", 1) != 1)
		return 1;
	pause();
	return 0;
}

static int container(void *argument)
{
	int *ready = argument;
	pid_t inside;

	if (unshare(CLONE_NEWPID) != 0)
		return T_SKIP;
	inside = fork();
	if (inside == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		alarm(60);
		_exit(in_a_container(argument));
	}
	if (write(ready[3], &inside, sizeof(inside)) != sizeof(inside))
		return 1;
	t_wait(inside);
	return 0;
}

Test(top, processes_in_containers_have_the_pid_that_we_see)
{
	int ready[4];
	pid_t outer, inside = 0;
	char text[64], x;

	cr_assert_eq(pipe(ready), 0);
	cr_assert_eq(pipe(ready + 2), 0);
	if (geteuid() != 0)
		t_skip_test(&dir, "processes in containers have the pid that we see: needs root");
	outer = t_spawn(container, ready, 60);
	close(ready[1]);
	close(ready[3]);
	if (read(ready[2], &inside, sizeof(inside)) != sizeof(inside)) {
		cr_assert_eq(t_wait(outer), T_SKIP);
		t_skip_test(&dir, "processes in containers have the pid that we see: no PID namespaces here");
	}
	cr_assert_eq(read(ready[0], &x, 1), 1);
	expect("--json", 0, "\"pid\": 1,");
	snprintf(text, sizeof(text), "\"host_pid\": %d,", (int)inside);
	cr_assert(strstr(out, text), "%s is not in %s", text, out);
	snprintf(text, sizeof(text), "pid %d (1 there) ", (int)inside);
	expect("--explain boxed -i 100", 0, text);
	snprintf(text, sizeof(text), " %d boxfort-worker", (int)inside);
	expect("--once --processes -i 100", 0, text);
	kill(inside, SIGKILL);
	t_wait(outer);
}

/* A program in Python uses the GPU and looks at itself on the screen, in JSON and as a metric. */
Test(top, the_command_is_what_an_interpreter_runs)
{
	char script[160];
	FILE *file;

	snprintf(script, sizeof(script), "%s/train it.py", dir.path);
	file = fopen(script, "w");
	cr_assert(file);
	fprintf(file, "import ctypes, subprocess, sys\n"
		      "cuda = ctypes.CDLL('libcuda.so.1')\n"
		      "context = ctypes.c_void_p()\n"
		      "assert cuda.cuInit(0) == 0 and cuda.cuCtxCreate_v2(ctypes.byref(context), 0, 0) == 0\n"
		      "for how in ['--once', '-i', '100', '--width', '240'], ['--json'], ['--prom']:\n"
		      "    sys.stdout.write(subprocess.check_output(['env', '-u', 'LD_PRELOAD', sys.argv[1]] "
		      "+ how).decode())\n");
	cr_assert_eq(fclose(file), 0);
	cr_assert_eq(t_shell(out, sizeof(out),
			     "GPUARB_CONF=/dev/null GPUARB_DIR=%s GPUSIM_DIR=%s GPUARB_ACCOUNT=web "
			     "LD_PRELOAD=%s/libgpuarb-"
			     "preload.so LD_LIBRARY_PATH=%s/sim python3 -u '%s' %s/gpuarb-top --token s3cret",
			     dir.path, dir.path, t_build(), t_build(), script, t_build()),
		0, "%s", out);
	cr_assert(strstr(out, " python3 train it.py"), "%s", out);
	cr_assert(strstr(out, "\"command\": \"python3 train it.py\""), "%s", out);
	cr_assert(strstr(out, "command=\"python3 train it.py\""), "%s", out);
	cr_assert_null(strstr(out, "s3cret"), "%s", out);
}

Test(top, mistakes_get_a_sentence)
{
	struct gpuarb_client *a = must_open(&dir, "web");

	expect("--sort colour", 2,
		"--sort cannot be 'colour'; allowed: share, name, limit, memory, throttled, debt, queue");
	expect("--interval 5", 2, "--interval cannot be '5'; allowed: 100 to 60000");
	expect("--count 0 --batch", 2, "--count cannot be '0'");
	expect("--count 3", 2, "--count goes with --batch");
	expect("--width 12 --once", 2, "--width cannot be '12'; allowed: 40 to 1000");
	expect("--json --prom", 2, "--json, --prom and --explain exclude each other");
	expect("--once --batch", 2, "--once and --batch exclude each other");
	expect("--batch --prom", 2, "--batch goes with tables and --json alone");
	expect("web", 2, "there is nothing to do with 'web'");
	expect("--nonsense", 2, "unrecognized option");
	expect("", 1, "there is no terminal; use --once, --batch, --json, --prom, --explain or --history");
	expect("--gpu GPU-nosuch --once -i 100", 1, "GPU-nosuch");
	/* If it is given twice, the last one counts. */
	expect("--once --dir /no/such/place", 1,
		"gpuarb-top: --dir /no/such/place: No such file or directory; allowed: a directory of "
		"segments");
	expect("--json --dir /dev/null", 1, "--dir /dev/null: Not a directory");
	expect("--dir /no/such/place", 1, "--dir /no/such/place: No such file");
	expect("--help", 0, "Say in words why the account does not get more");
	expect("--version", 0, "gpuarb-top ");
	gpuarb_client_close(a);
	cr_assert_eq(run_to("--json", ">/dev/full"), 1);
	cr_assert(strstr(out, "cannot write: No space left"), "%s", out);
}

/* With less and less memory it prints a table, or a sentence. */
Test(top, too_little_memory_is_reported)
{
	struct gpuarb_client *a = must_open(&dir, "web");
	unsigned enough = 1 << 18, said = 0;
	int status = 0;

	while (enough > 1024 && status == 0) {
		enough -= enough / 8;
		status =
			t_shell(out, sizeof(out), "ulimit -v %u && exec %s/gpuarb-top --dir %s --once -i 100",
				enough, t_build(), dir.path);
	}
	/* Now there is enough for its libraries, and less than it needs in all. */
	for (unsigned kib = enough + enough / 8; kib > enough - 1024; kib -= 128) {
		status =
			t_shell(out, sizeof(out), "ulimit -v %u && exec %s/gpuarb-top --dir %s --once -i 100",
				kib, t_build(), dir.path);
		cr_assert(status == 0 || status == 1, "%u KiB: %d: %s", kib, status, out);
		if (status == 0)
			cr_assert(strstr(out, "\nweb"), "%u KiB: %s", kib, out);
		else
			said += strcmp(out, "gpuarb-top: out of memory\n") == 0;
	}
	cr_assert_gt(said, 0, "never: %s", out);
	gpuarb_client_close(a);
}

/* Each long option that --help lists is in the man page. */
Test(top, the_man_page_has_every_option)
{
	static char manual[1 << 17];
	FILE *file = fopen("tools/gpuarb-top.1", "r");
	unsigned options = 0;

	cr_assert(file);
	cr_assert_lt(fread(manual, 1, sizeof(manual) - 1, file), sizeof(manual) - 1);
	fclose(file);
	expect("--help", 0, "--once");
	for (char *at = out; (at = strstr(at, " --")) != NULL; at += 3) {
		char name[64];
		size_t length = strspn(at + 3, "abcdefghijklmnopqrstuvwxyz");

		snprintf(name, sizeof(name), "\\-\\-%.*s", (int)length, at + 3);
		if (strcmp(name, "\\-\\-help") == 0 || strcmp(name, "\\-\\-usage") == 0 ||
			strcmp(name, "\\-\\-version") == 0)
			continue;
		options++;
		cr_assert(strstr(manual, name), "%s is not in the man page", name);
	}
	cr_assert_gt(options, 15);
}

Test(top, a_file_that_is_no_segment)
{
	char path[PATH_MAX];
	int fd;

	t_path(&dir, "state", path);
	*strrchr(path, '/') = '\0';
	mkdir(path, 0755);
	t_path(&dir, "state", path);
	fd = open(path, O_CREAT | O_WRONLY, 0644);
	cr_assert_geq(fd, 0);
	cr_assert_eq(write(fd, "nonsense", 8), 8);
	close(fd);
	cr_assert_eq(run("--once -i 100"), 1);
	cr_assert(strstr(out, path), "%s", out);
}

/* Looking needs the right to read and nothing else. */
Test(top, no_rights_are_needed_but_to_read)
{
	struct gpuarb_client *a;
	char path[PATH_MAX];

	if (geteuid() != 0)
		t_skip_test(&dir, "no rights are needed but to read: needs root, to become somebody else");
	a = throttled("web", 10);
	chmod(dir.path, 0755);
	t_path(&dir, "state", path);
	chmod(path, 0664);
	cr_assert_eq(setresuid(65534, 65534, 0), 0);
	expect("--once -i 100", 0, "\nweb");
	expect("--json", 0, "\"name\": \"web\"");
	expect("--explain web -i 100", 0, "it is throttled");
	cr_assert_eq(setresuid(0, 0, 0), 0);
	chmod(path, 0600);
	cr_assert_eq(setresuid(65534, 65534, 0), 0);
	expect("--once -i 100", 1, "Permission denied");
	cr_assert_eq(setresuid(0, 0, 0), 0);
	gpuarb_client_close(a);
}
