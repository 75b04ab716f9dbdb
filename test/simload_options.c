/* The options of the load, as one line says them. */
#include "simload.h"

#include <argp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OPT_DEFAULT_STREAM = 256, OPT_MANAGED, OPT_COPY_EVERY, OPT_LIBRARY, OPT_SEED, OPT_KERNEL, OPT_FUNCTIONS, OPT_HOST_US };

static const struct argp_option options[] = {
	{"kernel-us", 'k', "US", 0, "length of each kernel (default 100)", 0},
	{"kernel", OPT_KERNEL, "NAME", 0, "launch this kernel instead of the timed one", 0},
	{"functions", OPT_FUNCTIONS, "N", 0,
		"launch N different functions in turn; each once, unless --launches or --duration says more", 0},
	{"host-us", OPT_HOST_US, "US", 0, "spend so much CPU time before each launch: a launch-bound program", 0},
	{"pattern", 'p', "back|sync|burst|random", 0,
		"back to back; wait after every K launches; so much work, then a pause; random pauses", 0},
	{"every", 'K', "K", 0, "launches between two waits (default 1)", 0},
	{"burst", 'b', "WORK:PAUSE", 0, "ms of work and of pause (default 10:10); their sum is kept to by the clock", 0},
	{"random-us", 'r', "US", 0, "longest pause of the random pattern (default 1000)", 0},
	{"wait", 'w', "sync|event|poll|callback|none", 0, "how a wait is done", 0},
	{"variant", 'V', "plain|ex|coop|ptsz", 0, "which launch call", 0},
	{"streams", 's', "N", 0, "streams per thread", 0},
	{"default-stream", OPT_DEFAULT_STREAM, NULL, 0, "use the default stream", 0},
	{"threads", 't', "N", 0, "threads per process", 0},
	{"processes", 'P', "N", 0, "processes", 0},
	{"graph", 'g', "N", 0, "launch graphs of N kernels", 0},
	{"copy", 'c', "BYTES", 0, "with pinned copies of so many bytes in both directions", 0},
	{"copy-every", OPT_COPY_EVERY, "K", 0, "after every K launches (default 1)", 0},
	{"memory", 'm', "MIB", 0, "allocate so much first", 0},
	{"managed", OPT_MANAGED, NULL, 0, "as managed memory", 0},
	{"duration", 'd', "S", 0, "seconds to run (default 1)", 0},
	{"launches", 'n', "N", 0, "stop after N launches per thread", 0},
	{"device", 'D', "N", 0, "device number", 0},
	{"library", OPT_LIBRARY, "PATH", 0, "the driver to load (default libcuda.so.1)", 0},
	{"seed", OPT_SEED, "N", 0, "for the random pattern", 0},
	{0},
};

static unsigned choose(struct argp_state *state, const char *arg, const char *const *names)
{
	for (unsigned i = 0; names[i]; i++)
		if (!strcmp(arg, names[i]))
			return i;
	argp_error(state, "unknown value '%s'", arg);
	return 0;
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct load *load = state->input;
	static const char *const patterns[] = {"back", "sync", "burst", "random", NULL};
	static const char *const variants[] = {"plain", "ex", "coop", "ptsz", NULL};
	static const char *const waits[] = {"sync", "event", "poll", "callback", "none", NULL};

	switch (key) {
	case 'k':
		load->kernel_us = atof(arg);
		break;
	case OPT_KERNEL:
		load->kernel = arg;
		break;
	case OPT_FUNCTIONS:
		load->functions = (unsigned)atoi(arg);
		if (load->functions < 1 || load->functions > 10000)
			argp_error(state, "--functions is within 1..10000");
		break;
	case OPT_HOST_US:
		load->host_us = atof(arg);
		if (!(load->host_us >= 0 && load->host_us <= 1e6))
			argp_error(state, "--host-us is within 0..1e6");
		break;
	case 'p':
		load->pattern = (enum pattern)choose(state, arg, patterns);
		break;
	case 'K':
		load->every = (unsigned)atoi(arg);
		break;
	case 'b':
		if (sscanf(arg, "%lf:%lf", &load->work_ms, &load->pause_ms) != 2)
			argp_error(state, "WORK:PAUSE in ms is wanted");
		break;
	case 'r':
		load->max_pause_us = atof(arg);
		break;
	case 'w':
		load->wait = (enum wait)choose(state, arg, waits);
		break;
	case 'V':
		load->variant = (enum variant)choose(state, arg, variants);
		break;
	case 's':
		load->streams = (unsigned)atoi(arg);
		break;
	case OPT_DEFAULT_STREAM:
		load->default_stream = true;
		break;
	case 't':
		load->threads = (unsigned)atoi(arg);
		break;
	case 'P':
		load->processes = (unsigned)atoi(arg);
		break;
	case 'g':
		load->graph = (unsigned)atoi(arg);
		break;
	case 'c':
		load->copy_bytes = strtoull(arg, NULL, 0);
		break;
	case OPT_COPY_EVERY:
		load->copy_every = (unsigned)atoi(arg);
		break;
	case 'm':
		load->memory_bytes = strtoull(arg, NULL, 0) << 20;
		break;
	case OPT_MANAGED:
		load->managed = true;
		break;
	case 'd':
		load->seconds = atof(arg);
		break;
	case 'n':
		load->launches = strtoull(arg, NULL, 0);
		break;
	case 'D':
		load->device = atoi(arg);
		break;
	case OPT_LIBRARY:
		load->library = arg;
		break;
	case OPT_SEED:
		load->seed = strtoull(arg, NULL, 0);
		break;
	case ARGP_KEY_END:
		if (!load->every || !load->streams || !load->threads || !load->processes || !load->copy_every ||
			load->streams > 64 || load->threads > 64 || load->processes > 256)
			argp_error(state, "a count is out of range");
		if (load->graph && load->functions)
			argp_error(state, "--graph and --functions exclude each other");
		/* Each function once, however long that takes. */
		if (load->functions && !load->launches && load->seconds < 0) {
			load->launches = load->functions;
			load->seconds = 3600;
		}
		if (load->seconds < 0)
			load->seconds = 1;
		break;
	default:
		return ARGP_ERR_UNKNOWN;
	}
	return 0;
}

void simload_parse(struct load *load, int argc, char **argv)
{
	static const struct argp argp = {options, parse, NULL,
		"Load a GPU through the driver interface and say what was completed.", NULL, NULL, NULL};

	*load = (struct load){
		.kernel_us = 100,
		.pattern = PATTERN_BACK,
		.every = 1,
		.work_ms = 10,
		.pause_ms = 10,
		.max_pause_us = 1000,
		.streams = 1,
		.threads = 1,
		.processes = 1,
		.copy_every = 1,
		.seconds = -1,
		.library = "libcuda.so.1",
	};
	argp_parse(&argp, argc, argv, 0, NULL, load);
}
