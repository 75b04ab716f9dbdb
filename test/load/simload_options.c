/* The options of simload. */
#include "test/load/simload.h"

#include <argp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	OPT_DEFAULT_STREAM = 256,
	OPT_MANAGED,
	OPT_COPY_EVERY,
	OPT_LIBRARY,
	OPT_SEED,
	OPT_KERNEL,
	OPT_FUNCTIONS,
	OPT_HOST_US,
	OPT_LEASE,
	OPT_CLOSED,
	OPT_LEASE_LIBRARY,
	OPT_PRIORITIES,
	OPT_WIDTH,
	OPT_RANKS,
	OPT_GROUP,
	OPT_HELD,
	OPT_RATE,
	OPT_ABANDON,
};

static const struct argp_option options[] = {
	{"kernel-us", 'k', "US", 0, "length of each kernel (default 100)", 0},
	{"kernel", OPT_KERNEL, "NAME", 0, "launch this kernel instead of the timed one", 0},
	{"functions", OPT_FUNCTIONS, "N", 0,
		"launch N different functions in turn; each once, unless --launches or --duration says more",
		0},
	{"host-us", OPT_HOST_US, "US", 0, "spend so much CPU time before each launch: a launch-bound program",
		0},
	{"width", OPT_WIDTH, "PERCENT", 0, "how much of the device each kernel fills", 0},
	{"ranks", OPT_RANKS, "N", 0,
		"N processes, one on each device in turn, whose kernels wait on the device for each other",
		0},
	{"group", OPT_GROUP, "ID", 0, "which ranks belong together (default: these)", 0},
	{"held", OPT_HELD, "host|value:US", 0,
		"each kernel waits on the device until the host, or another stream, writes a value US after its launch",
		0},
	{"pattern", 'p', "back|sync|burst|random|open|timed|request", 0,
		"back to back; wait after every K launches; so much work, then a pause; random pauses; launches that "
		"come at random times, whatever has ended; so much time, then a pause; requests of K launches that come "
		"at random",
		0},
	{"rate", OPT_RATE, "N", 0, "launches a second of the open pattern, on average (default 100)", 0},
	{"every", 'K', "K", 0, "launches between two waits (default 1)", 0},
	{"burst", 'b', "WORK:PAUSE", 0,
		"ms of work and of pause (default 10:10); their sum is kept to by the clock", 0},
	{"random-us", 'r', "US", 0,
		"longest pause of the random pattern (default 1000); mean time from one request to the next",
		0},
	{"closed", OPT_CLOSED, NULL, 0, "the next request comes so long after the answer to the last one", 0},
	{"lease", OPT_LEASE, "CLASS", 0, "each request takes a lease of this class first", 0},
	{"lease-library", OPT_LEASE_LIBRARY, "PATH", 0, "where leases come from (default libgpuarb.so.1)", 0},
	{"wait", 'w', "sync|event|poll|callback|none", 0, "how a wait is done", 0},
	{"variant", 'V', "plain|ex|coop|ptsz|dependent", 0,
		"which launch call; dependent: one that may begin before the kernel in front of it has ended",
		0},
	{"streams", 's', "N", 0, "streams per thread", 0},
	{"priorities", OPT_PRIORITIES, NULL, 0, "every other stream has a higher priority", 0},
	{"default-stream", OPT_DEFAULT_STREAM, NULL, 0, "use the default stream", 0},
	{"threads", 't', "N", 0, "threads per process", 0},
	{"processes", 'P', "N", 0, "processes", 0},
	{"graph", 'g', "N", 0, "launch graphs of N kernels", 0},
	{"copy", 'c', "BYTES", 0, "with pinned copies of so many bytes in both directions", 0},
	{"copy-every", OPT_COPY_EVERY, "K", 0, "after every K launches (default 1)", 0},
	{"memory", 'm', "MIB", 0, "allocate so much first", 0},
	{"managed", OPT_MANAGED, NULL, 0, "as managed memory", 0},
	{"abandon", OPT_ABANDON, NULL, 0,
		"at the end destroy the context with the work in it, instead of waiting", 0},
	{"duration", 'd', "S", 0, "seconds to run (default 1)", 0},
	{"launches", 'n', "N", 0, "stop after N launches per thread", 0},
	{"device", 'D', "N", 0, "device number", 0},
	{"library", OPT_LIBRARY, "PATH", 0, "the driver to load (default libcuda.so.1)", 0},
	{"seed", OPT_SEED, "N", 0, "for the patterns with chance", 0},
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
	static const char *const patterns[] = {
		"back", "sync", "burst", "random", "open", "timed", "request", NULL};
	static const char *const variants[] = {"plain", "ex", "coop", "ptsz", "dependent", NULL};
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
	case OPT_CLOSED:
		load->closed = true;
		break;
	case OPT_LEASE:
		load->lease = arg;
		break;
	case OPT_LEASE_LIBRARY:
		load->lease_library = arg;
		break;
	case OPT_HOST_US:
		load->host_us = atof(arg);
		if (!(load->host_us >= 0 && load->host_us <= 1e6))
			argp_error(state, "--host-us is within 0..1e6");
		break;
	case OPT_PRIORITIES:
		load->priorities = true;
		break;
	case OPT_WIDTH:
		load->width = (unsigned)(atof(arg) * 10 + 0.5);
		if (load->width < 1 || load->width > 1000)
			argp_error(state, "--width is within 0.1..100");
		break;
	case OPT_RANKS:
		load->ranks = (unsigned)atoi(arg);
		if (load->ranks < 1 || load->ranks > 64)
			argp_error(state, "--ranks is within 1..64");
		break;
	case OPT_GROUP:
		load->group = strtoull(arg, NULL, 0);
		break;
	case OPT_HELD:
		load->held = !strncmp(arg, "host:", 5)    ? HELD_HOST
			     : !strncmp(arg, "value:", 6) ? HELD_VALUE
							  : HELD_NOT;
		load->held_us = load->held ? atof(strchr(arg, ':') + 1) : -1;
		if (!(load->held_us >= 0 && load->held_us <= 1e6))
			argp_error(state, "--held is host:US or value:US, with 0..1e6 us");
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
	case OPT_RATE:
		load->rate = atof(arg);
		if (!(load->rate > 0 && load->rate <= 1e6))
			argp_error(state, "--rate is within 0..1e6 a second");
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
	case OPT_ABANDON:
		load->abandon = true;
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
		if (!load->every || !load->streams || !load->threads || !load->processes ||
			!load->copy_every || load->streams > 64 || load->threads > 64 ||
			load->processes > 256)
			argp_error(state, "a count is out of range");
		if (load->graph && load->functions)
			argp_error(state, "--graph and --functions exclude each other");
		if (load->ranks && load->processes > 1)
			argp_error(state, "--ranks and --processes exclude each other");
		if ((load->ranks != 0) + (load->held != 0) + (load->width != 0) + (load->kernel != NULL) +
				(load->functions != 0) >
			1)
			argp_error(state,
				"of --ranks, --held, --width, --kernel and --functions one can be used");
		if (load->ranks && (load->graph || load->threads > 1 || load->streams > 1))
			argp_error(state, "--ranks takes neither --graph nor several threads or streams");
		if (load->held && (load->graph || load->streams > 1))
			argp_error(state, "--held takes neither --graph nor several streams");
		if (load->ranks)
			load->processes = load->ranks;
		/* Launches each function once, however long that takes. */
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
		.rate = 100,
		.streams = 1,
		.threads = 1,
		.processes = 1,
		.copy_every = 1,
		.seconds = -1,
		.library = "libcuda.so.1",
	};
	argp_parse(&argp, argc, argv, 0, NULL, load);
}
