#include "tools/run_class.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "gpuarb.h"
#include "gpuarb/control.h"

#include "tools/common/cli.h"
#include "tools/common/cli_gpu.h"

/* Scripts that open descriptors themselves count from 3; this one is far above. */
#define DESCRIPTOR 200

static struct {
	const char *name;
	int64_t max_wait_ms;
	bool skip;
	const char *fallback;
	char **environment; /* the environment as it was, because the fallback has no limits */
} wanted;

static const struct argp_option option_table[] = {
	{NULL, 0, NULL, 0, "As a task that asks for the GPU first:", 0},
	{CLI_OPTION(CLASS), "NAME", 0, "Wait for a lease on the GPU as a task of this class, and hold it", 0},
	{CLI_OPTION(MAX_WAIT), "TIME", 0,
		"Wait for the lease no longer than this, such as 200ms or 5s; 0: not at all (default: as the class "
		"says)",
		0},
	{CLI_OPTION(OR), "skip|fallback CMD", 0,
		"Without a lease: exit quietly with status 80, or run CMD with the shell instead", 0},
	{0},
};

static int64_t milliseconds(const char *text)
{
	char *end;
	long value;

	errno = 0;
	value = strtol(text, &end, 10);
	if (errno == 0 && end != text && value >= 0 && value <= 3600000) {
		if (strcmp(end, "s") == 0 && value <= 3600)
			value *= 1000;
		else if (*end && strcmp(end, "ms") != 0)
			value = -1;
		/* In the library's request, 0 means the time of the class. */
		if (value >= 0)
			return value ? value : GPUARB_NO_WAIT;
	}
	die_usage("--max-wait: '%.40s' is not a time; allowed: 0 to 3600000 ms, such as 200ms or 5s", text);
}

/* Copies the list of variables, which changes when a variable is set; the strings themselves do not. */
static char **copy_environment(void)
{
	size_t n = 0;
	char **copy;

	while (environ[n])
		n++;
	copy = malloc((n + 1) * sizeof(*copy));
	if (!copy)
		die("out of memory");
	memcpy(copy, environ, (n + 1) * sizeof(*copy));
	return copy;
}

static error_t on_option(int key, char *value, struct argp_state *state)
{
	switch (key) {
	case OPT_CLASS:
		wanted.name = value;
		return 0;
	case OPT_MAX_WAIT:
		wanted.max_wait_ms = milliseconds(value);
		return 0;
	case OPT_OR:
		wanted.environment = copy_environment();
		wanted.skip = strcmp(value, "skip") == 0;
		if (!wanted.skip && strcmp(value, "fallback") != 0)
			argp_error(state, "--or %s: allowed are skip, and fallback with a command", value);
		if (!wanted.skip && (state->next >= state->argc || !strcmp(state->argv[state->next], "--")))
			argp_error(state, "--or fallback: which command?");
		if (!wanted.skip)
			wanted.fallback = state->argv[state->next++];
		return 0;
	case ARGP_KEY_END:
		if (!wanted.name && (wanted.environment || wanted.max_wait_ms))
			argp_error(state, "--max-wait and --or belong to --class");
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

const struct argp run_class_options = {option_table, on_option, NULL, NULL, NULL, NULL, NULL};

/* NULL: what GPUs have a segment cannot be seen, `err` says why, and the driver alone does not tell which one is meant. */
static const char *which_gpu(const struct run_options *o, struct gpuarb_error *err)
{
	char names[1][ARB_UUID_BYTES];
	int listed = gpuarb_control_list(o->dir, names, 1, err), count;
	const char *uuid;

	if (o->gpu && (listed >= 0 || gpuarb_gpu_is_uuid(o->gpu)))
		return listed >= 0 ? cli_gpu(o->dir, o->gpu) : o->gpu;
	if (o->gpu)
		return cli_gpu_known(o->gpu, &count);
	/* The first program on a machine with one GPU need not name the GPU. */
	if (listed <= 0 && (uuid = cli_gpu_known("0", &count)) && count == 1)
		return uuid;
	return listed >= 0 ? cli_gpu(o->dir, NULL) : NULL;
}

/* Returns if the program may run without a lease. */
static void go_without_segment(const struct gpuarb_error *err)
{
	if (!run_without_segment(err, "the program runs without a lease"))
		die("%s", err->text);
}

/* Ends, or runs the fallback, because there is no lease. */
static void do_without(int result, const struct gpuarb_lease *lease)
{
	static const struct {
		int status;
		const char *text;
	} why[] = {{RUN_USAGE_HIGH, "GPU_USAGE_HIGH: the GPU is under pressure"},
		{RUN_USAGE_HIGH, "GPU_USAGE_HIGH: the GPU is under pressure"},
		{RUN_QUEUE, "QUEUE: others go first"}, {RUN_MEMORY, "MEMORY: its memory does not fit"},
		{RUN_QUOTA, "QUOTA: its account has used up its share"}};
	size_t reason = lease->reason < sizeof(why) / sizeof(why[0]) ? lease->reason : 0;

	if (wanted.fallback) {
		environ = wanted.environment;
		execl("/bin/sh", "sh", "-c", wanted.fallback, (char *)NULL);
		die("cannot run /bin/sh: %s", strerror(errno));
	}
	if (wanted.skip)
		exit(RUN_NOT_ADMITTED);
	fprintf(stderr, "%s: class %s: %s (%s)\n", program_invocation_short_name, wanted.name,
		result == GPUARB_SKIP ? "SKIP" : "TIMEOUT", why[reason].text);
	exit(result == GPUARB_SKIP ? RUN_NOT_ADMITTED : why[reason].status);
}

/* Moves the descriptor of the lease, so that all processes that inherit it hold the place. */
static void bequeath(int fd)
{
	int high = fcntl(fd, F_DUPFD, DESCRIPTOR);

	/* If fewer descriptors are allowed than that, it stays where it is. */
	if (high >= 0)
		close(fd);
	else if (fcntl(fd, F_SETFD, 0) != 0)
		die("cannot pass on the lease: %s", strerror(errno));
}

void run_class(const struct run_options *o)
{
	struct gpuarb_request request = {.task_class = wanted.name, .max_wait_ms = wanted.max_wait_ms};
	struct gpuarb_lease lease = GPUARB_LEASE_INIT;
	struct gpuarb_options options = {.dir = o->dir};
	struct gpuarb_client *c;
	struct gpuarb_error err = {0};
	int fd = -1, r;

	if (!wanted.name)
		return;
	options.gpu = which_gpu(o, &err);
	if (!options.gpu) {
		go_without_segment(&err);
		return;
	}
	options.lock_fd = &fd;
	run_set(o, "GPUARB_GPU", options.gpu);
	if (o->dry_run)
		return;
	/* Frees leases of processes that died and that nobody has looked for since. It is no error if there is no
	 * segment yet. */
	gpuarb_control_reap(o->dir, options.gpu, NULL, NULL, NULL);
	if (gpuarb_client_open(&options, &c, &err) < 0) {
		go_without_segment(&err);
		return;
	}
	r = gpuarb_client_acquire_for(c, o->program, &request, &lease);
	if (r != GPUARB_OK)
		gpuarb_client_close(c);
	if (r == -ENOENT)
		die("there is no task class '%.60s'; see [class NAME] in arbiter.conf, and gpuarb-set "
		    "--class",
			wanted.name);
	if (r < 0)
		die("cannot wait for a lease on %s: %s", options.gpu, strerror(-r));
	if (r == GPUARB_OK) {
		bequeath(fd);
		return;
	}
	close(fd);
	do_without(r, &lease);
}
