#include "shm/admission/sampler_nvml.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <time.h>

#include "gpuarb/abi.h"
#include "gpuarb/nvml_load.h"

#include "shm/base/forks.h"
#include "shm/base/os.h"

#define STACK_BYTES (256u * 1024)
/* A driver that could not be loaded is tried again after this time: it may be installed meanwhile. */
#define AGAIN_NS 10000000000ull

/* The functions of NVML that are used, as its header declares them. */
static struct {
	bool loaded;
	int (*by_uuid)(const char *uuid, nvmlDevice_t *device);
	int (*utilisation)(nvmlDevice_t device, struct nvml_utilization *rates);
} nvml;

static const struct gpuarb_nvml_call calls[] = {
	{"nvmlDeviceGetHandleByUUID", &nvml.by_uuid, false},
	{"nvmlDeviceGetUtilizationRates", &nvml.utilisation, false},
};

/* One question at a time. Until it is answered, no other thread waits for NVML. */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t asked, answered;
static bool prepared, running, pending;
static int (*question)(const char *gpu);
static char about[ARB_UUID_BYTES];
static int answer;

int arb_nvml_thread(const char *name, void *(*run)(void *argument), void *argument)
{
	pthread_attr_t attributes;
	sigset_t all, before;
	pthread_t thread;
	int r;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	pthread_attr_init(&attributes);
	pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
	pthread_attr_setstacksize(&attributes, STACK_BYTES);
	r = pthread_create(&thread, &attributes, run, argument);
	if (r == 0)
		pthread_setname_np(thread, name);
	pthread_attr_destroy(&attributes);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return -r;
}

static bool load(void)
{
	static uint64_t tried_ns;
	uint64_t now = arb_os_now_ns();

	if (nvml.loaded)
		return true;
	if (tried_ns && now - tried_ns < AGAIN_NS)
		return false;
	tried_ns = now;
	nvml.loaded = !gpuarb_nvml_load(calls, sizeof(calls) / sizeof(calls[0]));
	return nvml.loaded;
}

static int usage_of(const char *gpu)
{
	struct nvml_utilization rates = {0, 0};
	nvmlDevice_t device = NULL;

	if (!load() || nvml.by_uuid(gpu, &device) != NVML_SUCCESS ||
		nvml.utilisation(device, &rates) != NVML_SUCCESS || rates.gpu > 100)
		return -1;
	return (int)rates.gpu * 100;
}

static int knows(const char *gpu)
{
	nvmlDevice_t device = NULL;
	int r;

	if (!load())
		return -1;
	r = nvml.by_uuid(gpu, &device);
	return r == NVML_SUCCESS ? 1 : r == NVML_ERROR_NOT_FOUND ? 0 : -1;
}

static void *serve(void *argument)
{
	char gpu[ARB_UUID_BYTES];
	int (*asks)(const char *gpu);

	(void)argument;
	pthread_mutex_lock(&mutex);
	for (;;) {
		int said;

		while (!pending)
			pthread_cond_wait(&asked, &mutex);
		memcpy(gpu, about, sizeof(gpu));
		asks = question;
		pthread_mutex_unlock(&mutex);
		said = asks(gpu);
		pthread_mutex_lock(&mutex);
		answer = said;
		pending = false;
		pthread_cond_broadcast(&answered);
	}
	return NULL;
}

/* A forked child has no such thread, and must not trust the state of the driver's library. */
static void forget_nvml(void)
{
	pthread_mutex_init(&mutex, NULL);
	prepared = running = pending = false;
	memset(&nvml, 0, sizeof(nvml));
}

ARB_FORKS_WATCH(arb_nvml_watch, forget_nvml)

static bool prepare(void)
{
	pthread_condattr_t clock;

	arb_nvml_watch();
	if (!prepared) {
		pthread_condattr_init(&clock);
		pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
		pthread_cond_init(&asked, &clock);
		pthread_cond_init(&answered, &clock);
		pthread_condattr_destroy(&clock);
		prepared = true;
	}
	if (!running)
		running = arb_nvml_thread("gpuarb-nvml", serve, NULL) == 0;
	return running;
}

static int ask(int (*what)(const char *gpu), const char *gpu, uint64_t patience_ns)
{
	struct timespec until;
	int saved = errno, result = -1;

	pthread_mutex_lock(&mutex);
	if (prepare() && !pending) {
		strncpy(about, gpu, sizeof(about) - 1);
		question = what;
		pending = true;
		pthread_cond_signal(&asked);
		clock_gettime(CLOCK_MONOTONIC, &until);
		until.tv_sec += (time_t)(patience_ns / 1000000000u);
		until.tv_nsec += (long)(patience_ns % 1000000000u);
		if (until.tv_nsec >= 1000000000) {
			until.tv_nsec -= 1000000000;
			until.tv_sec++;
		}
		while (pending && pthread_cond_timedwait(&answered, &mutex, &until) != ETIMEDOUT)
			;
		if (!pending)
			result = answer;
	}
	pthread_mutex_unlock(&mutex);
	errno = saved;
	return result;
}

int arb_nvml_usage(const char *gpu, uint64_t patience_ns)
{
	return ask(usage_of, gpu, patience_ns);
}

int arb_nvml_knows(const char *gpu, uint64_t patience_ns)
{
	return ask(knows, gpu, patience_ns);
}
