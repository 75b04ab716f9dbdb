/* Starts a program under limits: sets up its environment and becomes it. */
#include <argp.h>
#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"
#include "config.h"
#include "run_place.h"

#define LIBRARY "libgpuarb-preload.so"

struct options {
	const char *gpu, *core, *mem, *account, *priority, *dir;
	double wait_s; /* for memory; < 0: do not */
	bool sim, dry_run;
	char **program;
};

/* The directory of this program, without a slash at its end. */
static void own_directory(char *path, size_t size)
{
	ssize_t n = readlink("/proc/self/exe", path, size - 1);

	path[n > 0 ? n : 0] = '\0';
	if (strrchr(path, '/'))
		*strrchr(path, '/') = '\0';
}

/* Beside this program, as in a build directory, or where `make install` puts it. */
static void find_library(char *path, size_t size)
{
	static const char *const places[] = {"", "/../lib/gpuarb", "/../lib"};
	char own[PATH_MAX - 64];

	own_directory(own, sizeof(own));
	for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
		snprintf(path, size, "%s%s/" LIBRARY, own, places[i]);
		if (access(path, R_OK) == 0)
			return;
	}
	die("there is no " LIBRARY " beside %s or in its ../lib/gpuarb", own);
}

static void set(const struct options *o, const char *name, const char *value)
{
	if (o->dry_run)
		printf("%s=%s\n", name, value);
	else if (setenv(name, value, 1) != 0)
		die("cannot set %s: %s", name, strerror(errno));
}

/* In front of what is there already: the program's owner may preload things too. */
static void prepend(const struct options *o, const char *name, const char *value, char separator)
{
	const char *old = getenv(name);
	char *text = NULL;

	if (!old || !*old) {
		set(o, name, value);
		return;
	}
	if (asprintf(&text, "%s%c%s", value, separator, old) < 0)
		die("out of memory");
	set(o, name, text);
	free(text);
}

/* A limit is checked here, where somebody reads what is wrong with it, and not only in the program. */
static void limit(const struct options *o, enum arb_key key, const char *option, const char *value)
{
	struct gpuarb_error err;
	int64_t parsed;

	if (!value)
		return;
	if (arb_config_parse(key, value, option, &parsed, &err) < 0) {
		fprintf(stderr, "%s: %s\n", program_invocation_short_name, err.text);
		exit(2);
	}
	set(o, arb_keys[key].env, value);
}

/* Everything that this call starts is one account, unless it is told otherwise. */
static const char *account(const struct options *o)
{
	const char *base = strrchr(o->program[0], '/') ? strrchr(o->program[0], '/') + 1 : o->program[0];
	const char *name = o->account ? o->account : getenv("GPUARB_ACCOUNT");
	static char own[ARB_NAME_BYTES];

	if (!name || !*name) {
		snprintf(own, sizeof(own), "%.40s-%ld", base, (long)getpid());
		for (char *p = own; *p; p++)
			if ((unsigned char)*p <= ' ' || *p == 0x7f)
				*p = '_';
		name = own;
	}
	if (!arb_config_name_ok(name)) {
		fprintf(stderr, "%s: '%.70s' cannot be an account's name: 1 to %d characters, no spaces\n",
			program_invocation_short_name, name, ARB_NAME_BYTES - 1);
		exit(2);
	}
	set(o, "GPUARB_ACCOUNT", name);
	return name;
}

static void simulate(const struct options *o)
{
	char own[PATH_MAX - 64], path[PATH_MAX], driver[PATH_MAX + 16];

	own_directory(own, sizeof(own));
	snprintf(path, sizeof(path), "%s/sim", own);
	snprintf(driver, sizeof(driver), "%s/libcuda.so.1", path);
	if (access(driver, R_OK) != 0)
		die("there is no simulated driver in %s", path);
	prepend(o, "LD_LIBRARY_PATH", path, ':');
}

/* Memory is promised before the program starts; with --gpu auto on the GPU that has most room. */
static void find_place(struct options *o, const char *name)
{
	static struct run_place place;
	char own[PATH_MAX - 64], libraries[PATH_MAX];

	own_directory(own, sizeof(own));
	snprintf(libraries, sizeof(libraries), "%s/sim", own);
	place = (struct run_place){.gpu = o->gpu,
		.libraries = o->sim ? libraries : NULL,
		.dir = o->dir,
		.account = name,
		.mem = o->mem,
		.core = o->core,
		.wait_s = o->wait_s,
		.only_look = o->dry_run};
	run_place(&place);
	if (place.chosen[0])
		o->gpu = place.chosen;
}

static const struct argp_option option_table[] = {
	{"core", 'c', "PERCENT", 0, "Share of the GPU's time, 1 to 100", 0},
	{"mem", 'm', "SIZE", 0, "GPU memory, such as 512Mi or 4Gi", 0},
	{"priority", 'p', "N", 0, "Who goes first among those who wait, 1 to 100", 0},
	{"account", 'a', "NAME", 0, "Share the budget of this account (default: one of its own)", 0},
	{"gpu", 'g', "GPU", 0,
		"Let the program see this GPU alone, by number or UUID; auto: the one with the most room", 0},
	{"wait", 'w', "SECONDS", OPTION_ARG_OPTIONAL,
		"Wait until --mem can be promised (default: refuse; without SECONDS: for ever)", 0},
	{"dir", 'd', "DIR", 0, "Directory of the segments (default: GPUARB_DIR, else /dev/shm/gpuarb)", 0},
	{"sim", 's', NULL, 0, "On the simulated GPU that is built beside this program", 0},
	{"dry-run", 'n', NULL, 0, "Print what would be set in the environment, and run nothing", 0},
	{0},
};

static error_t on_option(int key, char *text, struct argp_state *state)
{
	struct options *o = state->input;

	switch (key) {
	case 'c':
		o->core = text;
		return 0;
	case 'm':
		o->mem = text;
		return 0;
	case 'p':
		o->priority = text;
		return 0;
	case 'a':
		o->account = text;
		return 0;
	case 'g':
		o->gpu = text;
		return 0;
	case 'w':
		o->wait_s = text ? (double)cli_number("--wait", text, 0, 31536000) : 1e9;
		return 0;
	case 'd':
		o->dir = text;
		return 0;
	case 's':
		o->sim = true;
		return 0;
	case 'n':
		o->dry_run = true;
		return 0;
	case ARGP_KEY_ARG:
		/* The program and everything behind it is not ours. */
		o->program = &state->argv[state->next - 1];
		state->next = state->argc;
		return 0;
	case ARGP_KEY_NO_ARGS:
		argp_error(state, "no program to run");
		return EINVAL;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

int main(int argc, char **argv)
{
	static const struct argp parser = {option_table, on_option, "[--] PROGRAM [ARGUMENT...]",
		"Starts a program under limits on a shared GPU.\v"
		"  gpuarb-run --core 40 --mem 4Gi -- python train.py\n\n"
		"It becomes the program: no process of its own remains, and the exit status is the "
		"program's. "
		"Before that: 2 usage, 126 or 127 if the program cannot be run, 1 anything else.",
		NULL, NULL, NULL};
	char library[PATH_MAX];
	struct options o = {.wait_s = -1};

	cli_parse(&parser, argc, argv, ARGP_IN_ORDER, &o);
	find_library(library, sizeof(library));
	limit(&o, ARB_KEY_CORE, "--core", o.core);
	limit(&o, ARB_KEY_MEM, "--mem", o.mem);
	limit(&o, ARB_KEY_PRIORITY, "--priority", o.priority);
	find_place(&o, account(&o));
	if (o.dir)
		set(&o, "GPUARB_DIR", o.dir);
	if (o.gpu)
		set(&o, "CUDA_VISIBLE_DEVICES", o.gpu);
	if (o.sim)
		simulate(&o);
	prepend(&o, "LD_PRELOAD", library, ':');
	if (o.dry_run)
		return 0;
	execvp(o.program[0], o.program);
	fprintf(stderr, "%s: cannot run %s: %s\n", program_invocation_short_name, o.program[0],
		strerror(errno));
	return errno == ENOENT ? 127 : 126;
}
