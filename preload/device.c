#include "device.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpuarb/client.h"

#include "hooks.h"
#include "log.h"
#include "track.h"

enum { UNKNOWN, JOINED, FAILED };

static struct arb_device devices[ARB_DEVICES];
/* Held while a GPU is joined, so that no other thread's work goes past it meanwhile. */
static pthread_mutex_t joining = PTHREAD_MUTEX_INITIALIZER;
static bool watching;

bool arb_disabled(void)
{
	static int known;
	int state = __atomic_load_n(&known, __ATOMIC_RELAXED);

	if (__builtin_expect(!state, 0)) {
		const char *text = secure_getenv("GPUARB_DISABLE");

		state = text && *text && strcmp(text, "0") ? 2 : 1;
		__atomic_store_n(&known, state, __ATOMIC_RELAXED);
	}
	return state == 2;
}

/* The parent's place is not the child's, nor is its driver. The mappings stay: nobody can tell who reads
 * them. */
static void start_anew(void)
{
	memset(devices, 0, sizeof(devices));
	pthread_mutex_init(&joining, NULL);
}

static bool read_uuid(CUdevice ordinal, char *text, size_t size)
{
	__typeof__(cuDeviceGetUuid) *plain = arb_real(cuDeviceGetUuid);
	__typeof__(cuDeviceGetUuid_v2) *newer = arb_real(cuDeviceGetUuid_v2);
	CUuuid id, parent;
	const unsigned char *b = (const unsigned char *)id.bytes;
	bool instance = false;

	if (newer && newer(&id, ordinal) == CUDA_SUCCESS)
		/* The older call does not know instances and gives the GPU that one is a part of. */
		instance =
			plain && plain(&parent, ordinal) == CUDA_SUCCESS && memcmp(&id, &parent, sizeof(id));
	else if (!plain || plain(&id, ordinal) != CUDA_SUCCESS)
		return false;
	snprintf(text, size, "%s-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x",
		instance ? "MIG" : "GPU", b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10],
		b[11], b[12], b[13], b[14], b[15]);
	return true;
}

static void join(struct arb_device *d, CUdevice ordinal)
{
	struct gpuarb_options options = {.gpu = d->uuid};
	struct gpuarb_error err = {0};
	uint32_t state = FAILED;

	if (!watching) {
		pthread_atfork(NULL, NULL, start_anew);
		watching = true;
	}
	d->ordinal = ordinal;
	if (!read_uuid(ordinal, d->uuid, sizeof(d->uuid)))
		arb_log(ARB_LOG_WARN, "device %d has no UUID: it runs without limits", (int)ordinal);
	else if (gpuarb_client_open(&options, &d->client, &err) < 0)
		arb_log(ARB_LOG_WARN, "%s: %s: it runs without limits", d->uuid, err.text);
	else
		state = JOINED;
	if (state == JOINED)
		limits_file_look(d);
	__atomic_store_n(&d->state, state, __ATOMIC_RELEASE);
}

struct arb_device *arb_device_get(CUdevice ordinal)
{
	struct arb_device *d;
	uint32_t state;
	int saved;

	if (ordinal < 0 || ordinal >= ARB_DEVICES || arb_disabled())
		return NULL;
	d = &devices[ordinal];
	state = __atomic_load_n(&d->state, __ATOMIC_ACQUIRE);
	if (__builtin_expect(state == UNKNOWN, 0)) {
		saved = errno;
		pthread_mutex_lock(&joining);
		if (d->state == UNKNOWN)
			join(d, ordinal);
		state = d->state;
		pthread_mutex_unlock(&joining);
		errno = saved;
	}
	return state == JOINED ? d : NULL;
}

struct arb_device *arb_device_known(CUdevice ordinal)
{
	if (ordinal < 0 || ordinal >= ARB_DEVICES)
		return NULL;
	return __atomic_load_n(&devices[ordinal].state, __ATOMIC_ACQUIRE) == JOINED ? &devices[ordinal]
										    : NULL;
}

struct arb_device *arb_device_current(void)
{
	__typeof__(cuCtxGetDevice) *get = arb_real(cuCtxGetDevice);
	CUdevice ordinal = -1;

	if (arb_disabled() || !get || get(&ordinal) != CUDA_SUCCESS)
		return NULL;
	return arb_device_get(ordinal);
}
