#include "tools/common/gpus.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tools/common/nvml.h"

/* Real drivers take up to a second for each GPU that nobody uses. */
#define PATIENCE_MS 30000

static void *load(const char *libraries, const char *name)
{
	char path[PATH_MAX];
	void *library = NULL;

	if (libraries) {
		snprintf(path, sizeof(path), "%s/%s", libraries, name);
		library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	}
	return library ? library : dlopen(name, RTLD_NOW | RTLD_LOCAL);
}

static void name(char *text, size_t size, const char *kind, const unsigned char b[16])
{
	snprintf(text, size, "%s-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", kind,
		b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13], b[14],
		b[15]);
}

static int ask_driver(const char *libraries, struct gpu *list)
{
	void *cuda = load(libraries, "libcuda.so.1");
	int (*init)(unsigned) = cuda ? (int (*)(unsigned))dlsym(cuda, "cuInit") : NULL;
	int (*count)(int *) = cuda ? (int (*)(int *))dlsym(cuda, "cuDeviceGetCount") : NULL;
	int (*get)(int *, int) = cuda ? (int (*)(int *, int))dlsym(cuda, "cuDeviceGet") : NULL;
	int (*plain)(void *, int) = cuda ? (int (*)(void *, int))dlsym(cuda, "cuDeviceGetUuid") : NULL;
	int (*newer)(void *, int) = cuda ? (int (*)(void *, int))dlsym(cuda, "cuDeviceGetUuid_v2") : NULL;
	int (*total)(size_t *, int) =
		cuda ? (int (*)(size_t *, int))dlsym(cuda, "cuDeviceTotalMem_v2") : NULL;
	int (*called)(char *, int, int) =
		cuda ? (int (*)(char *, int, int))dlsym(cuda, "cuDeviceGetName") : NULL;
	int n = 0;

	if (!init || !count || !get || !plain || init(0) || count(&n))
		return 0;
	if (n > GPUS_MOST)
		n = GPUS_MOST;
	for (int i = 0; i < n; i++) {
		unsigned char id[16], whole[16];
		char model[256] = "";
		size_t bytes = 0;
		int device;

		if (get(&device, i) || plain(whole, device))
			return 0;
		memcpy(id, whole, sizeof(id));
		/* An instance has a UUID of its own, which the older call does not return. */
		if (newer && newer(id, device))
			memcpy(id, whole, sizeof(id));
		/* Since CUDA 13 the older call may return it as well; then the name of the model tells what it is. */
		if (called && called(model, sizeof(model), device))
			model[0] = '\0';
		name(list[i].uuid, sizeof(list[i].uuid),
			memcmp(id, whole, sizeof(id)) || strstr(model, " MIG ") ? "MIG" : "GPU", id);
		list[i].bytes = total && !total(&bytes, device) ? bytes : 0;
	}
	return n;
}

/* NVML knows nothing of CUDA_VISIBLE_DEVICES, but must do where the driver cannot be loaded. */
static int ask_nvml(struct gpu *list)
{
	static struct nvml_gpu gpus[NVML_GPUS_MOST];
	const char *why;
	int n = nvml_list(gpus, &why);

	if (n > GPUS_MOST)
		n = GPUS_MOST;
	for (int i = 0; i < n; i++) {
		snprintf(list[i].uuid, sizeof(list[i].uuid), "%.*s", (int)sizeof(list[i].uuid) - 1,
			gpus[i].uuid);
		list[i].bytes = gpus[i].memory_bytes;
	}
	return n > 0 ? n : 0;
}

static void child(int out, const char *libraries, const char *visible)
{
	static struct gpu list[GPUS_MOST];
	const char *from = (const char *)list;
	size_t left;
	int n;

	/* This tool may itself run under limits; it wants the driver's own answers. */
	setenv("GPUARB_DISABLE", "1", 1);
	if (visible)
		setenv("CUDA_VISIBLE_DEVICES", visible, 1);
	n = ask_driver(libraries, list);
	if (!n)
		n = ask_nvml(list);
	for (left = (size_t)n * sizeof(list[0]); left;) {
		ssize_t done = write(out, from, left);

		if (done <= 0)
			break;
		from += done;
		left -= (size_t)done;
	}
	_exit(0);
}

static long now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

/* Reads whole entries only. */
static int collect(int in, struct gpu *list)
{
	struct pollfd wait = {.fd = in, .events = POLLIN};
	long until = now_ms() + PATIENCE_MS;
	size_t have = 0;

	while (have < GPUS_MOST * sizeof(list[0])) {
		long left = until - now_ms();
		ssize_t n;

		if (left <= 0 || (poll(&wait, 1, (int)left) < 0 && errno != EINTR))
			break;
		if (!wait.revents)
			continue;
		n = read(in, (char *)list + have, GPUS_MOST * sizeof(list[0]) - have);
		if (n <= 0)
			break;
		have += (size_t)n;
	}
	return (int)(have / sizeof(list[0]));
}

int gpus_visible(const char *libraries, const char *visible, struct gpu list[GPUS_MOST])
{
	int ends[2], n;
	pid_t pid;

	if (pipe(ends) != 0)
		return 0;
	fflush(NULL);
	pid = fork();
	if (pid == 0) {
		close(ends[0]);
		child(ends[1], libraries, visible);
	}
	close(ends[1]);
	n = pid > 0 ? collect(ends[0], list) : 0;
	close(ends[0]);
	if (pid > 0) {
		kill(pid, SIGKILL);
		waitpid(pid, NULL, 0);
	}
	for (int i = 0; i < n; i++)
		list[i].uuid[sizeof(list[i].uuid) - 1] = '\0';
	return n;
}
