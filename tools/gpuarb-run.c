/* Starts a program with limits: sets up its environment and becomes the program. */
#include <argp.h>
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "gpuarb/config.h"

#include "tools/common/cli.h"
#include "tools/run.h"
#include "tools/run_class.h"
#include "tools/run_place.h"

/* Longer than anybody waits: --wait without seconds. */
#define WAIT_FOR_EVER 1e9

/* The output of options that run nothing: what would be set. */
static FILE *printed;
static char *text;
static size_t size;

void run_print(const char *format, ...)
{
	va_list ap;

	if (!printed && !(printed = open_memstream(&text, &size)))
		die("out of memory");
	va_start(ap, format);
	vfprintf(printed, format, ap);
	va_end(ap);
}

void run_set(const struct run_options *o, const char *name, const char *value)
{
	if (o->container_flags && strpbrk(value, RUN_SPECIAL))
		die("%s=%s cannot be written as a flag: it has a space or another sign that a shell takes "
		    "for "
		    "its own",
			name, value);
	if (o->container_flags)
		run_print("-e %s=%s\n", name, value);
	else if (o->dry_run)
		run_print("%s=%s\n", name, value);
	else if (setenv(name, value, 1) != 0)
		die("cannot set %s: %s", name, strerror(errno));
}

/* Prints all of it, or nothing if something was wrong: half of the flags would make a container without limits. */
static int print_all(void)
{
	return fclose(printed) == 0 && fputs(text, stdout) != EOF && fflush(stdout) == 0 ? 0 : 1;
}

/* Tells the program's processes which misspelt variables were named already, so that none of them names these again.
 */
static void pass_on_what_was_said(const struct run_options *o)
{
	char names[1024];

	gpuarb_environment_unknown(names, sizeof(names));
	if (names[0])
		run_set(o, "GPUARB_SAID", names);
}

/* Puts a library before those that are there already: the user may preload libraries too. */
static void prepend(const struct run_options *o, const char *name, const char *value, char separator)
{
	const char *old = getenv(name);
	char *both = NULL;

	if (!old || !*old) {
		run_set(o, name, value);
		return;
	}
	if (asprintf(&both, "%s%c%s", value, separator, old) < 0)
		die("out of memory");
	run_set(o, name, both);
	free(both);
}

/* Checks a limit here, where the user sees the message, and not only in the program. */
static void limit(const struct run_options *o, enum arb_key key, const char *option, const char *value)
{
	struct gpuarb_error err;
	int64_t parsed;

	if (!value)
		return;
	if (gpuarb_config_parse(key, value, option, &parsed, &err) < 0)
		die_usage("%s", err.text);
	run_set(o, gpuarb_keys[key].env, value);
}

/* Returns the account's name. All that this call starts is one account unless another is named; so is a container. */
static const char *account(const struct run_options *o)
{
	const char *name = o->account           ? o->account
			   : o->container_flags ? "@container"
						: getenv("GPUARB_ACCOUNT");
	static char own[ARB_NAME_BYTES];

	if (!name || !*name) {
		const char *slash = strrchr(o->program[0], '/');

		snprintf(own, sizeof(own), "%.40s-%ld", slash ? slash + 1 : o->program[0], (long)getpid());
		for (char *p = own; *p; p++)
			if ((unsigned char)*p <= ' ' || *p == 0x7f)
				*p = '_';
		name = own;
	}
	run_set(o, "GPUARB_ACCOUNT", cli_account("GPUARB_ACCOUNT", name));
	return name;
}

/* Lets the program itself say which limits hold, because only it knows when it has joined. If its log goes to a file,
 * the message does too. */
static void say_more(const struct run_options *o)
{
	const char *log = getenv("GPUARB_LOG");

	if (!log || *log != '/')
		run_set(o, "GPUARB_LOG", log && !strcmp(log, "debug") ? log : "info");
}

/* Returns where the simulated driver is: beside this program, as in a build directory, or where `make install` puts
 * it. */
static const char *simulator(void)
{
	static const char *const places[] = {"/sim", "/../lib/gpuarb/sim"};
	static char path[PATH_MAX];
	char own[PATH_MAX - 64], driver[PATH_MAX + 32];

	cli_own_directory(own, sizeof(own));
	for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
		snprintf(path, sizeof(path), "%s%s", own, places[i]);
		snprintf(driver, sizeof(driver), "%s/libcuda.so.1", path);
		if (access(driver, R_OK) == 0)
			return path;
	}
	die("there is no simulated driver in %s/sim or in %s/../lib/gpuarb/sim", own, own);
}

static void simulate(const struct run_options *o)
{
	const char *path = simulator();
	char driver[PATH_MAX + 32];

	/* The simulated NVML, not a real one, must answer questions about GPUs. */
	snprintf(driver, sizeof(driver), "%s/libnvidia-ml.so.1", path);
	dlopen(driver, RTLD_NOW | RTLD_GLOBAL);
	prepend(o, "LD_LIBRARY_PATH", path, ':');
}

/* Has memory promised before the program starts; with --gpu auto on the GPU that has the most room. */
static void find_place(struct run_options *o, const char *name)
{
	static struct run_place place;
	/* A promise lives as long as the program that it is for; a container's promise would end with this process.
	 */
	place = (struct run_place){.gpu = o->gpu,
		.libraries = o->sim ? simulator() : NULL,
		.dir = o->dir,
		.account = name,
		.mem = o->mem,
		.core = o->core,
		.request = o->request,
		.wait_s = o->wait_s,
		.only_look = o->dry_run || o->container_flags};
	run_place(&place);
	if (place.name[0] && o->verbose)
		fprintf(stderr, "%s: --gpu auto: %s has the most room\n", program_invocation_short_name,
			place.name);
	if (place.chosen[0])
		o->gpu = place.chosen;
}

static const struct argp_option option_table[] = {
	{NULL, 0, NULL, 0, "What the program may use:", 1},
	{CLI_OPTION(CORE), "PERCENT", 0, "Limit of the GPU's time, 1 to 100 percent; 100 is no limit", 1},
	{CLI_OPTION(MEM), "SIZE", 0, "Quota of GPU memory, such as 512Mi or 4Gi", 1},
	{CLI_OPTION(PRIORITY), "N", 0,
		"Which program goes first among those that wait, 1 to 100; higher goes first", 1},
	{CLI_OPTION(REQUEST), "PERCENT", 0,
		"Share of the GPU's time that the account gets whenever it has work, 0 to 100; all requests of a "
		"GPU add up to at most 100",
		1},
	{CLI_OPTION(WEIGHT), "N", 0,
		"How much the account counts when the rest of the time is divided among accounts that want more, "
		"1 to 10000 (default: 100)",
		1},
	{CLI_OPTION(ACCOUNT), "NAME", 0, "Share the budget of this account (default: an account of its own)",
		1},
	{NULL, 0, NULL, 0, "Where and when:", 2},
	{CLI_OPTION(GPU), "GPU", 0,
		"Let the program see this GPU alone: its number (as nvidia-smi counts) or UUID; auto: the GPU "
		"with the most room",
		2},
	{CLI_OPTION(WAIT), "SECONDS", OPTION_ARG_OPTIONAL,
		"Wait until --mem and --request can be promised (default: refuse; without SECONDS: for ever)",
		2},
	{CLI_OPTION(POLICY), "NAME", 0,
		"Which programs may run together on the GPU (concurrent, exclusive, auto, fair, memory), if this "
		"is the first program on it",
		2},
	CLI_OPTION_DIR(2),
	{CLI_OPTION(SIM), NULL, 0,
		"Use the simulated GPU: neither a driver nor a GPU is needed; kernels take time and compute "
		"nothing",
		2},
	{NULL, 0, NULL, 0, "What is said about it:", 4},
	{CLI_OPTION(VERBOSE), NULL, 0,
		"Print which limits are in force, in one line, when the program begins to use a GPU", 4},
	{CLI_OPTION(RECORD), "FILE", 0,
		"Record what is decided about the program's work, for gpuarb-replay (GPUARB_TRACE)", 4},
	{CLI_OPTION(DRY_RUN), NULL, 0, "Print what would be set in the environment, and run nothing", 4},
	{CLI_OPTION(PRINT_CONTAINER_FLAGS), NULL, 0,
		"Print flags for docker run or podman run that make a container a client, and run nothing",
		4},
	{0},
};

static error_t on_option(int key, char *value, struct argp_state *state)
{
	struct run_options *o = state->input;

	switch (key) {
	case OPT_CORE:
		o->core = value;
		return 0;
	case OPT_MEM:
		o->mem = value;
		return 0;
	case OPT_PRIORITY:
		o->priority = value;
		return 0;
	case OPT_REQUEST:
		o->request = value;
		return 0;
	case OPT_WEIGHT:
		o->weight = value;
		return 0;
	case OPT_POLICY:
		o->policy = value;
		return 0;
	case OPT_PRINT_CONTAINER_FLAGS:
		o->container_flags = true;
		return 0;
	case OPT_ACCOUNT:
		o->account = cli_account("--account", value);
		return 0;
	case OPT_WAIT:
		o->wait_s =
			value ? (double)cli_number("--wait", value, 0, 31536000, "seconds") : WAIT_FOR_EVER;
		return 0;
	case OPT_SIM:
		o->sim = true;
		return 0;
	case OPT_VERBOSE:
		o->verbose = true;
		return 0;
	case OPT_RECORD:
		o->record = value;
		return 0;
	case OPT_DRY_RUN:
		o->dry_run = true;
		return 0;
	case ARGP_KEY_ARG:
		/* The program, and all arguments after it, are not ours. */
		o->program = &state->argv[state->next - 1];
		state->next = state->argc;
		return 0;
	case ARGP_KEY_END:
		if (!o->program && !o->container_flags)
			argp_error(state, "no program to run");
		if (o->wait_s == WAIT_FOR_EVER && o->program &&
			!o->program[0][strspn(*o->program, "0123456789")])
			argp_error(state, "--wait takes its seconds behind an equals sign: --wait=%s",
				*o->program);
		if (o->container_flags && (o->program || o->sim || o->record || o->wait_s >= 0))
			argp_error(state, "--print-container-flags runs nothing: no program, no --sim, no "
					  "--record and no --wait");
		return 0;
	default:
		return cli_option(key, value, state, &o->dir, &o->gpu);
	}
}

/* Whether a directory of PATH contains the program. If one of the directories cannot be searched, execvp reports
 * "permission denied" even for a program that exists nowhere. */
static bool is_on_path(const char *program)
{
	const char *path = getenv("PATH");
	char file[PATH_MAX];

	if (strchr(program, '/') || !path)
		return true;
	for (size_t n; *path; path += n + (path[n] == ':')) {
		n = strcspn(path, ":");
		snprintf(file, sizeof(file), "%.*s%s%s", (int)n, path, n ? "/" : "", program);
		if (access(file, F_OK) == 0)
			return true;
	}
	return false;
}

int main(int argc, char **argv)
{
	static const struct argp_child children[] = {{&run_class_options, 0, NULL, 3}, {0}};
	static const struct argp parser = {option_table, on_option, "[--] PROGRAM [ARGUMENT...]",
		"Starts a program under limits on a shared GPU.\v"
		"  gpuarb-run --core 40 --mem 4Gi -- python train.py\n"
		"  docker run --gpus all $(gpuarb-run --core 40 --print-container-flags) IMAGE\n\n"
		"gpuarb-run becomes the program: no process of gpuarb-run remains, and the exit status is the "
		"program's. If the program is not started: 2 usage, 126 or 127 it cannot be run, 80 to 84 --class "
		"got no lease, 1 anything else.",
		children, NULL, NULL};
	struct run_options o = {.wait_s = -1};
	const char *name, *library;
	int e;

	cli_parse(&parser, argc, argv, ARGP_IN_ORDER, &o);
	limit(&o, ARB_KEY_CORE, "--core", o.core);
	limit(&o, ARB_KEY_MEM, "--mem", o.mem);
	limit(&o, ARB_KEY_PRIORITY, "--priority", o.priority);
	limit(&o, ARB_KEY_REQUEST, "--request", o.request);
	limit(&o, ARB_KEY_WEIGHT, "--weight", o.weight);
	limit(&o, ARB_KEY_POLICY, "--policy", o.policy);
	name = account(&o);
	library = cli_library("");
	if (o.verbose)
		say_more(&o);
	if (o.sim)
		simulate(&o);
	if (o.gpu)
		o.gpu = run_check_gpu(&o);
	run_check_directory(&o);
	find_place(&o, name);
	run_check_account(&o, name);
	if (o.policy)
		run_check_policy(&o);
	if (o.gpu)
		run_set(&o, "CUDA_VISIBLE_DEVICES", o.gpu);
	if (o.container_flags) {
		run_container(&o, library);
		return print_all();
	}
	if (o.dir)
		run_set(&o, "GPUARB_DIR", o.dir);
	if (o.record)
		run_record(&o);
	pass_on_what_was_said(&o);
	prepend(&o, "LD_PRELOAD", library, ':');
	run_class(&o);
	if (o.dry_run)
		return print_all();
	execvp(o.program[0], o.program);
	e = errno == EACCES && !is_on_path(o.program[0]) ? ENOENT : errno;
	fprintf(stderr, "%s: cannot run %s: %s\n", program_invocation_short_name, o.program[0], strerror(e));
	return e == ENOENT ? 127 : 126;
}
