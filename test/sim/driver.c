/* cuInit, what a fork and an exit do, and what calls cost. */
#include "driver.h"

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
};

/* Short costs are spun, because a sleep would take longer than the cost. */
void drv_cost_slow(uint64_t ns)
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

/* One thing at a time is loaded, and whoever needs the same one waits for it. */
void drv_load(bool *loaded)
{
	pthread_mutex_lock(&drv.loading);
	if (drv_unloaded(loaded)) {
		drv_cost_slow(drv.lazy_ns);
		__atomic_store_n(loaded, true, __ATOMIC_RELEASE);
	}
	pthread_mutex_unlock(&drv.loading);
}

double drv_random(void)
{
	drv.random ^= drv.random << 13;
	drv.random ^= drv.random >> 7;
	drv.random ^= drv.random << 17;
	return ((double)(drv.random >> 12) + 0.5) / 4503599627370496.0;
}

static uint64_t delay_ns(const char *name)
{
	const char *text = getenv(name);
	char *end;
	double us;

	if (!text || !*text)
		return 0;
	us = strtod(text, &end);
	if (end == text || *end || !(us >= 0 && us <= 1e7)) {
		fprintf(stderr, "gpusim: %s=%s is not within 0..1e7 us, using 0\n", name, text);
		return 0;
	}
	return (uint64_t)(us * 1000);
}

static void read_costs(void)
{
	const char *all = getenv("GPUSIM_COST");
	double factor = all && *all ? strtod(all, NULL) : 1;

	for (int i = 0; i < COST_COUNT; i++) {
		const char *one = getenv(costs[i].name);

		drv.cost_ns[i] = (uint64_t)(one && *one ? strtod(one, NULL) : costs[i].otherwise_ns * factor);
	}
	drv.lazy_ns = delay_ns("GPUSIM_LAZY_US");
	drv.callback_ns = delay_ns("GPUSIM_CALLBACK_US");
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

/* As the real driver: the list ends at the first entry that names no device. */
static void read_visible(void)
{
	const char *env = getenv("CUDA_VISIBLE_DEVICES"), *mig = getenv("GPUSIM_MIG");
	char *list, *item, *save = NULL;

	drv.nvisible = 0;
	drv.instances = mig && !strcmp(mig, "1");
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
	*version = CUDA_VERSION;
	return CUDA_SUCCESS;
}
