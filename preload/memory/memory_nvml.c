/*
 * Asks NVML how much of a GPU's memory this process has. NVML can hang, so a thread of its own asks it. The caller waits
 * for that thread for a limited time; if NVML has not answered by then it is never asked again. The thread shuts NVML
 * down again.
 */
#include "preload/memory/memory.h"

#include "gpuarb/nvml_load.h"

#include "preload/hooks/compat.h"
#include "preload/hooks/symbols.h"
#include "preload/process/device.h"
#include "preload/track/track.h"
#include "shm/base/os.h"
#include "shm/base/word.h"

#include <dlfcn.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

COMPAT_WEAK(pthread_create)

/* The most that this may delay a context, which takes 100 ms and more to make. NVML needs 10 to 50 ms to begin. */
#define PATIENCE_NS (200 * MS)
#define NAP_NS      (MS / 2)
/* If more processes than this use the GPU, the figure counts as not known. */
#define PROCESSES 128

/* The caller writes it until it sets ASKED, then the thread until it sets ANSWERED. It is static, because the thread may
 * outlive the call. */
static struct {
	char uuid[sizeof(((struct arb_device *)0)->uuid)];
	uint64_t bytes;
	enum { IDLE, ASKED, ANSWERED } state;
} question;
static pthread_mutex_t asking = PTHREAD_MUTEX_INITIALIZER;

typedef int running_fn(nvmlDevice_t device, unsigned *count, struct nvml_process_info *list);

/* NVML names a process by its pid on the host. In another PID namespace NVML's list does not have our pid, and the figure
 * is not known. */
static uint64_t figure(running_fn *running, nvmlDevice_t device)
{
	struct nvml_process_info list[PROCESSES];
	unsigned n = PROCESSES;

	if (running(device, &n, list) != NVML_SUCCESS || n > PROCESSES)
		return 0;
	for (unsigned i = 0; i < n; i++)
		if (list[i].pid == (unsigned)getpid())
			return list[i].bytes == NVML_VALUE_NOT_AVAILABLE ? 0 : list[i].bytes;
	return 0;
}

static uint64_t ask_nvml(const char *uuid)
{
	int (*end)(void), (*by_uuid)(const char *name, nvmlDevice_t *found);
	running_fn *running, *running_old;
	const struct gpuarb_nvml_call calls[] = {
		{"nvmlShutdown", &end, false},
		{"nvmlDeviceGetHandleByUUID", &by_uuid, false},
		{"nvmlDeviceGetComputeRunningProcesses_v3", &running, true},
		{"nvmlDeviceGetComputeRunningProcesses_v2", &running_old, true},
	};
	arb_dlopen_fn *open = arb_libc_dlopen();
	arb_dlsym_fn *find = arb_libc_dlsym();
	void *library = open && find ? open(NVML_LIBRARY, RTLD_LAZY | RTLD_LOCAL) : NULL;
	nvmlDevice_t device = NULL;
	uint64_t bytes = 0;

	if (!library || gpuarb_nvml_begin(library, find, calls, sizeof(calls) / sizeof(calls[0])))
		return 0;
	if (!running)
		running = running_old;
	if (running && by_uuid(uuid, &device) == NVML_SUCCESS)
		bytes = figure(running, device);
	end();
	return bytes;
}

static void *answer(void *argument)
{
	question.bytes = ask_nvml(question.uuid);
	arb_word_store_release(&question.state, ANSWERED);
	return argument;
}

static bool start(void)
{
	sigset_t all, before;
	pthread_attr_t attr;
	pthread_t thread;
	bool started;

	if (!pthread_create || pthread_attr_init(&attr))
		return false;
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	sigfillset(&all);
	sigprocmask(SIG_BLOCK, &all, &before);
	started = pthread_create(&thread, &attr, answer, NULL) == 0;
	sigprocmask(SIG_SETMASK, &before, NULL);
	pthread_attr_destroy(&attr);
	return started;
}

uint64_t memory_by_nvml(const struct arb_device *device)
{
	uint64_t until = track_now() + PATIENCE_NS, bytes = 0;

	/* A test with a clock of its own cannot have this thread. */
	if (arb_os_hooks)
		return 0;
	pthread_mutex_lock(&asking);
	if (arb_word_load(&question.state) == IDLE) {
		memcpy(question.uuid, device->uuid, sizeof(question.uuid));
		arb_word_store_release(&question.state, ASKED);
		if (!start())
			arb_word_store(&question.state, IDLE);
		while (arb_word_load_acquire(&question.state) == ASKED && track_now() < until)
			track_nap(NAP_NS);
		if (arb_word_load_acquire(&question.state) == ANSWERED) {
			bytes = question.bytes;
			arb_word_store(&question.state, IDLE);
		}
	}
	pthread_mutex_unlock(&asking);
	return bytes;
}

/* A forked child does not have the thread. */
void memory_nvml_forget(void)
{
	pthread_mutex_init(&asking, NULL);
	arb_word_store(&question.state, IDLE);
}
