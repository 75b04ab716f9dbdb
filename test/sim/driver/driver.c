/* cuInit, what happens at a fork and an exit, and what calls cost. */
#include "test/sim/driver/driver.h"

#include <errno.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

struct driver drv = {.lock = PTHREAD_MUTEX_INITIALIZER,
	.loading = PTHREAD_MUTEX_INITIALIZER,
	.why = CUDA_ERROR_NOT_INITIALIZED};

static const struct {
	const char *name;
	double otherwise_ns;
} costs[COST_COUNT] = {
	[COST_LAUNCH] = {"GPUSIM_COST_LAUNCH_NS", 2000},
	[COST_EVENT] = {"GPUSIM_COST_EVENT_NS", 1000},
	[COST_COPY] = {"GPUSIM_COST_COPY_NS", 2000},
	[COST_ALLOC] = {"GPUSIM_COST_ALLOC_NS", 4000},
	[COST_SYNC] = {"GPUSIM_COST_SYNC_NS", 1000},
	[COST_CTX] = {"GPUSIM_COST_CTX_NS", 100e6},
	[COST_MODULE] = {"GPUSIM_COST_MODULE_NS", 200e3},
	[COST_GRAPH] = {"GPUSIM_COST_GRAPH_NS", 5000},
	[COST_QUERY] = {"GPUSIM_COST_QUERY_NS", 0},
};

/* How long the first launch of a function or a graph takes to load it: 1 to 50 ms on real drivers. */
#define LAZY_NS 1e6

/* Lets the time of a call pass. Spins if it is short, because a sleep would take longer. Weak, so that no compiler
 * inlines it: the world (test/world) replaces it. */
__attribute__((weak)) void drv_cost_slow(uint64_t ns)
{
	uint64_t end = sim_clock_ns() + ns;

	if (ns > 200000) {
		struct timespec ts = {(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};

		while (nanosleep(&ts, &ts) < 0 && errno == EINTR)
			;
		return;
	}
	while (sim_clock_ns() < end)
		;
}

/* Loads one thing at a time; a thread that needs the same thing waits until it is loaded. */
void drv_load(bool *loaded)
{
	pthread_mutex_lock(&drv.loading);
	if (drv_unloaded(loaded)) {
		drv_cost_slow(drv_between(drv.lazy_ns, drv.lazy_most_ns));
		__atomic_store_n(loaded, true, __ATOMIC_RELEASE);
	}
	pthread_mutex_unlock(&drv.loading);
}

uint64_t drv_between(uint64_t low, uint64_t high)
{
	return low == high ? low : low + (uint64_t)((double)(high - low) * drv_random());
}

double drv_random(void)
{
	drv.random ^= drv.random << 13;
	drv.random ^= drv.random >> 7;
	drv.random ^= drv.random << 17;
	return ((double)(drv.random >> 12) + 0.5) / 4503599627370496.0;
}

/* Reads a delay (US), or the shortest and the longest (US:US), from a variable. Returns false if it is unset or
 * invalid. */
static bool delay_ns(const char *name, uint64_t *low_ns, uint64_t *high_ns)
{
	const char *text = getenv(name);
	double low = 0, high = 0;
	int used = 0, n;

	if (!text || !*text)
		return false;
	n = sscanf(text, "%lf%n:%lf%n", &low, &used, &high, &used);
	if (n == 1)
		high = low;
	if (n < 1 || text[used] || !(low >= 0 && low <= high && high <= 1e7)) {
		fprintf(stderr, "gpusim: %s=%s is not within 0..1e7 us, using the default\n", name, text);
		return false;
	}
	*low_ns = (uint64_t)(low * 1000);
	*high_ns = (uint64_t)(high * 1000);
	return true;
}

/* Reads a part of the device in percent from a variable. Returns it in 1/1000. */
static unsigned part(const char *name)
{
	const char *text = getenv(name);
	char *end;
	double percent;

	if (!text || !*text)
		return 1000;
	percent = strtod(text, &end);
	if (end == text || *end || !(percent >= 0.1 && percent <= 100)) {
		fprintf(stderr, "gpusim: %s=%s is not within 0.1..100 percent, using 100\n", name, text);
		return 1000;
	}
	return (unsigned)(percent * 10 + 0.5);
}

/* Returns how many hardware queues the variable asks for, within the limits of real drivers. */
static unsigned connections(void)
{
	const char *text = getenv("CUDA_DEVICE_MAX_CONNECTIONS");
	char *end;
	long n;

	if (!text || !*text)
		return 0;
	n = strtol(text, &end, 10);
	if (*end || n < 1 || n > 32) {
		fprintf(stderr, "gpusim: CUDA_DEVICE_MAX_CONNECTIONS=%s is not within 1..32, not used\n",
			text);
		return 0;
	}
	return (unsigned)n;
}

static void read_costs(void)
{
	const char *all = getenv("GPUSIM_COST");
	double factor = all && *all ? strtod(all, NULL) : 1;
	uint64_t least;

	for (int i = 0; i < COST_COUNT; i++) {
		const char *one = getenv(costs[i].name);

		drv.cost_ns[i] = (uint64_t)(one && *one ? strtod(one, NULL) : costs[i].otherwise_ns * factor);
	}
	drv.lazy_ns = drv.lazy_most_ns = (uint64_t)(LAZY_NS * factor);
	delay_ns("GPUSIM_LAZY_US", &drv.lazy_ns, &drv.lazy_most_ns);
	/* Of a range only the longest counts: work that is submitted later must arrive later. */
	drv.start_ns = 0;
	delay_ns("GPUSIM_START_US", &least, &drv.start_ns);
	drv.callback_ns = drv.callback_most_ns = 0;
	delay_ns("GPUSIM_CALLBACK_US", &drv.callback_ns, &drv.callback_most_ns);
	drv.connections = connections();
	drv.width = part("GPUSIM_WIDTH");
	sim_shm.file->proc[sim_shm.slot].width = part("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE");
}

static bool same_uuid(const char *want, const struct sim_device_info *info)
{
	size_t n = strlen(want);

	if (drv.instances)
		return n > 4 && n <= strlen(info->uuid) && !strncmp(want, "MIG-", 4) &&
		       !strncasecmp(want + 4, info->uuid + 4, n - 4);
	return n > 4 && n <= strlen(info->uuid) && !strncasecmp(want, info->uuid, n);
}

static int find_visible(const char *item)
{
	struct sim_file *f = sim_shm.file;
	char *end;
	long v = strtol(item, &end, 10);

	if (end != item && !*end)
		return v >= 0 && v < (long)f->set.devices ? (int)v : -1;
	for (uint32_t i = 0; i < f->set.devices; i++)
		if (same_uuid(item, &f->device[i].info))
			return (int)i;
	return -1;
}

/* As in the real driver the list ends at the first entry that names no device. */
static void read_visible(void)
{
	const char *env = getenv("CUDA_VISIBLE_DEVICES"), *mig = getenv("GPUSIM_MIG");
	char *list, *item, *save = NULL;

	drv.nvisible = 0;
	drv.instances = mig && (!strcmp(mig, "1") || !strcmp(mig, "13"));
	drv.knows_instances = mig && !strcmp(mig, "13");
	if (!env) {
		while (drv.nvisible < sim_shm.file->set.devices) {
			drv.visible[drv.nvisible] = drv.nvisible;
			drv.nvisible++;
		}
		return;
	}
	list = strdup(env);
	for (item = strtok_r(list, ", ", &save); item; item = strtok_r(NULL, ", ", &save)) {
		int d = find_visible(item);

		if (d < 0 || drv.nvisible == SIM_MAX_DEVICES)
			break;
		for (unsigned i = 0; i < drv.nvisible; i++)
			if (drv.visible[i] == (unsigned)d)
				goto out;
		drv.visible[drv.nvisible++] = (unsigned)d;
	}
out:
	free(list);
}

/* As on a real driver, a forked child cannot use what its parent initialised, nor initialise anew. */
static void forked(void)
{
	if (!drv.ready)
		return;
	sim_shm_forget();
	memset(&drv, 0, sizeof(drv));
	pthread_mutex_init(&drv.lock, NULL);
	pthread_mutex_init(&drv.loading, NULL);
	drv.why = CUDA_ERROR_NOT_INITIALIZED;
	drv.next_id = ~0ull;
}

__attribute__((destructor)) static void unload(void)
{
	if (!drv.ready)
		return;
	drv.why = CUDA_ERROR_DEINITIALIZED;
	__atomic_store_n(&drv.ready, false, __ATOMIC_RELEASE);
	drv_ipc_unload();
	sim_shm_leave();
}

CUresult cuInit(unsigned int flags)
{
	static bool forks;
	const char *blocking;
	CUresult rc = CUDA_SUCCESS;

	if (flags)
		return CUDA_ERROR_INVALID_VALUE;
	drv_lock();
	if (drv.ready)
		goto out;
	rc = drv.why;
	if (drv.next_id == ~0ull || rc == CUDA_ERROR_DEINITIALIZED)
		goto out;
	rc = CUDA_ERROR_NO_DEVICE;
	if (sim_shm_open() < 0) {
		fprintf(stderr, "gpusim: cannot use the simulation in %s\n",
			getenv("GPUSIM_DIR") ? getenv("GPUSIM_DIR") : "the default directory");
		goto out;
	}
	read_visible();
	if (!drv.nvisible)
		goto out;
	rc = CUDA_ERROR_OUT_OF_MEMORY;
	if (!drv.primary)
		drv.primary = calloc(SIM_MAX_DEVICES, sizeof(*drv.primary));
	if (!drv.primary)
		goto out;
	rc = CUDA_ERROR_OPERATING_SYSTEM;
	if (sim_shm_join() < 0)
		goto out;
	rc = CUDA_SUCCESS;
	if (!forks)
		pthread_atfork(NULL, NULL, forked);
	forks = true;
	read_costs();
	blocking = getenv("CUDA_LAUNCH_BLOCKING");
	drv.strict = getenv("GPUSIM_STRICT") && !strcmp(getenv("GPUSIM_STRICT"), "1");
	drv.blocking = blocking && *blocking && strcmp(blocking, "0") != 0;
	drv.set = &sim_shm.file->set;
	drv.random = sim_clock_ns() * 2654435761u ^ (uint64_t)getpid() << 32 ^ 88172645463325252u;
	if (getenv("GPUSIM_SEED"))
		drv.random = strtoull(getenv("GPUSIM_SEED"), NULL, 0) * 2654435761u + 88172645463325252u;
	drv.next_id = 1;
	__atomic_store_n(&drv.ready, true, __ATOMIC_RELEASE);
out:
	drv_unlock();
	return rc;
}

CUresult cuDriverGetVersion(int *version)
{
	if (!version)
		return CUDA_ERROR_INVALID_VALUE;
	*version = CUDA_ABI_NEWEST;
	return CUDA_SUCCESS;
}
