#include "preload/process/device.h"

#include "preload/hooks/compat.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpuarb/client.h"

#include "shm/base/granted.h"
#include "preload/hooks/hooks.h"
#include "preload/process/log.h"
#include "preload/process/own.h"
#include "preload/track/track.h"
#include "shm/base/word.h"

COMPAT_WEAK(pthread_setcancelstate)

/* DENIED: the GPU could not promise the quota; the next call that makes a context asks again. */
enum { UNKNOWN, JOINED, FAILED, DENIED };

/* How often this is said to a program that tries again and again to make a context. */
#define SAY_DENIED_NS 10000000000ull

bool arb_disabled(void)
{
	static int known;
	int state = arb_word_load(&known);

	if (__builtin_expect(!state, 0)) {
		const char *text = arb_granted_getenv("GPUARB_DISABLE");

		state = text && *text && strcmp(text, "0") ? 2 : 1;
		arb_word_store(&known, state);
	}
	return state == 2;
}

/* Runs in a forked child: the slots and the driver are the parent's. The mappings stay, because it is not known whether
 * other code still reads them. */
static void forget_devices(void)
{
	memset(arb_own.devices, 0, ARB_DEVICES * sizeof(*arb_own.devices));
	arb_own.refusals = 0;
	arb_own.strays = 0;
	pthread_mutex_init(&arb_own.joining, NULL);
}

/* Whether the name is that of a MIG instance, as "NVIDIA A100-SXM4-40GB MIG 1g.5gb". Since CUDA 13 both calls for a UUID may
 * return the UUID of the instance, so comparing the two is not enough. */
static bool named_as_instance(CUdevice ordinal)
{
	CUresult (*get)(char *name, int length, CUdevice dev) =
		(CUresult(*)(char *, int, CUdevice))arb_driver_symbol("cuDeviceGetName");
	char name[256] = "";

	return get && get(name, sizeof(name), ordinal) == CUDA_SUCCESS && strstr(name, " MIG ");
}

/* Returns the driver's result; CUDA_ERROR_NOT_FOUND if it has neither of the two calls. */
static CUresult read_uuid(CUdevice ordinal, char *text, size_t size)
{
	__typeof__(cuDeviceGetUuid) *plain = arb_real(cuDeviceGetUuid);
	__typeof__(cuDeviceGetUuid_v2) *newer = arb_real(cuDeviceGetUuid_v2);
	CUuuid id, parent;
	const unsigned char *b = (const unsigned char *)id.bytes;
	CUresult r = newer ? newer(&id, ordinal) : CUDA_ERROR_NOT_FOUND;
	bool instance = false;

	if (r == CUDA_SUCCESS)
		/* The older call does not know instances: it gives the GPU that the instance is a part of. */
		instance = (plain && plain(&parent, ordinal) == CUDA_SUCCESS &&
				   memcmp(&id, &parent, sizeof(id))) ||
			   named_as_instance(ordinal);
	else if (plain)
		r = plain(&id, ordinal);
	if (r != CUDA_SUCCESS)
		return r;
	snprintf(text, size, "%s-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x",
		instance ? "MIG" : "GPU", b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10],
		b[11], b[12], b[13], b[14], b[15]);
	return r;
}

static void refuse(struct arb_device *d, CUresult result)
{
	if (!arb_word_exchange(&d->refused, result))
		arb_word_add_release(&arb_own.refusals, 1);
}

static void refuse_no_longer(struct arb_device *d)
{
	if (arb_word_exchange(&d->refused, CUDA_SUCCESS))
		arb_word_sub_release(&arb_own.refusals, 1);
}

/* Sentences of the segment's library begin with the UUID, and so does the name of the device. */
const char *arb_device_rest(const struct arb_device *d, const char *sentence)
{
	size_t n = strlen(d->uuid);

	return n && !strncmp(sentence, d->uuid, n) && sentence[n] == ' ' ? sentence + n + 1 : sentence;
}

/* Refuses the GPU, whatever on_error says: gpuarb works, and a program that ran in spite of it would use what others were
 * promised. */
static uint32_t deny(struct arb_device *d, const char *why)
{
	uint64_t now = track_now();

	if (!d->denied_ns || now - d->denied_ns >= SAY_DENIED_NS) {
		arb_log(ARB_LOG_ERROR, "%s: %s: the GPU is refused", d->name, arb_device_rest(d, why));
		d->denied_ns = now;
	}
	refuse(d, CUDA_ERROR_OUT_OF_MEMORY);
	return DENIED;
}

/* Does what on_error says, because there is no segment for this GPU. `why`: the reason, for the log. */
static uint32_t do_without(struct arb_device *d, const struct gpuarb_options *options, const char *why)
{
	struct gpuarb_error err = {0};
	int r = gpuarb_client_open_alone(options, &d->client, &err);

	if (r == 0) {
		arb_log(ARB_LOG_WARN, "%s: %s: the process keeps its own limits, as if it were alone",
			d->name, why);
		return JOINED;
	}
	if (r == -ECONNREFUSED) {
		arb_log(ARB_LOG_ERROR, "%s: %s: the GPU is refused (on_error = closed)", d->name, why);
		refuse(d, CUDA_ERROR_NOT_PERMITTED);
	} else {
		arb_log(ARB_LOG_WARN, "%s: %s: it runs without limits", d->name, why);
	}
	return FAILED;
}

static void say_variable(void *argument, const char *sentence)
{
	(void)argument;
	arb_log(ARB_LOG_WARN, "%s", sentence);
}

/* Warns of wrong variables once in a process, and not again in its forked children. */
static void look_at_environment(void)
{
	static bool looked;

	if (!looked)
		gpuarb_client_environment(say_variable, NULL);
	looked = true;
}

/* Returns the size of the device's memory; 0: not known. Quotas are promised out of it, and where memory is short it decides
 * which clients may run together. */
static size_t memory_of(CUdevice ordinal)
{
	__typeof__(cuDeviceTotalMem_v2) *total = arb_real(cuDeviceTotalMem_v2);
	size_t bytes = 0;

	return total && total(&bytes, ordinal) == CUDA_SUCCESS ? bytes : 0;
}

/* Logs the limits that are in force, if such lines are wanted (gpuarb-run --verbose). */
static void say_limits(struct arb_device *d)
{
	char text[256];

	if (arb_log_wants(ARB_LOG_INFO) && gpuarb_client_terms(d->client, text, sizeof(text)) == 0)
		arb_log(ARB_LOG_INFO, "%s: joined: %s", d->name, text);
}

static void say_turned_away(struct arb_device *d)
{
	char name[64];
	const char *why = gpuarb_client_turned_away(d->client, name, sizeof(name));

	if (why)
		arb_log(ARB_LOG_WARN,
			"%s: %s: it has an account of its own, %s, with no more than those limits", d->name,
			why, name);
}

static void join(struct arb_device *d, CUdevice ordinal)
{
	/* `threads`: the client's lock is not biased to this thread. The tracker would revoke the bias at once, by a system
	 * call that a sandbox may punish. */
	struct gpuarb_options options = {.gpu = d->uuid, .threads = true};
	struct gpuarb_error err = {0};
	uint32_t state = JOINED;
	int joined;
	CUresult r = read_uuid(ordinal, d->uuid, sizeof(d->uuid));

	/* The driver is not ready, or has no such device: the program's own call will get this error from it. */
	if (r == CUDA_ERROR_NOT_INITIALIZED || r == CUDA_ERROR_DEINITIALIZED ||
		r == CUDA_ERROR_INVALID_DEVICE)
		return;
	if (!arb_own.watching) {
		pthread_atfork(NULL, NULL, forget_devices);
		arb_own.watching = true;
	}
	look_at_environment();
	d->ordinal = ordinal;
	options.physical = memory_of(ordinal);
	if (r != CUDA_SUCCESS)
		snprintf(d->uuid, sizeof(d->uuid), "device-%d", (int)ordinal);
	snprintf(d->name, sizeof(d->name), "%s (device %d)", d->uuid, (int)ordinal);
	if (r != CUDA_SUCCESS) {
		state = do_without(d, &options, "it has no UUID");
	} else {
		joined = gpuarb_client_shared(&options, true, &d->client, &err);
		if (joined == -EDQUOT)
			state = deny(d, err.text);
		else if (joined < 0)
			state = do_without(d, &options, err.text);
	}
	/* The client may have been opened before, for a lease, when the size of the memory was not known. */
	if (state == JOINED && options.physical &&
		gpuarb_client_set_physical(d->client, options.physical) == -EDQUOT)
		state = deny(d, gpuarb_client_denied(d->client));
	if (state == JOINED) {
		say_turned_away(d);
		refuse_no_longer(d);
		limits_file_look(d);
		if (!gpuarb_client_is_alone(d->client))
			say_limits(d);
	}
	arb_word_store_release(&d->state, state);
}

bool arb_device_rejoin(struct arb_device *d, int error)
{
	const char *then = "it runs without limits";
	struct gpuarb_error err = {0};
	int r = error;

	/* The segment may be replaced again meanwhile. */
	for (int i = 0; i < 3 && r == -ESTALE; i++)
		r = gpuarb_client_rejoin(d->client, false, &err);
	if (r == 0) {
		arb_log(ARB_LOG_INFO, "%s: its segment was removed or replaced: joined the one there is now",
			d->name);
		return true;
	}
	if (!*err.text)
		snprintf(err.text, sizeof(err.text), "its segment cannot be used any more (%s)",
			r == -EBADMSG ? "it holds garbage" : strerror(-r));
	/* If the path leads nowhere, as after a change of root, the mapped segment is still the one that others use. */
	r = error == -ESTALE ? gpuarb_client_remain(d->client, NULL) : -ENOTCONN;
	if (r == 0) {
		then = "it stays in the one it has";
	} else if (r != -ECONNREFUSED) {
		r = gpuarb_client_rejoin(d->client, true, NULL);
		if (r == 0)
			then = "the process keeps its own limits, as if it were alone, until there is one again";
	}
	if (r == -ECONNREFUSED) {
		then = "the GPU is refused from now on (on_error = closed)";
		refuse(d, CUDA_ERROR_NOT_PERMITTED);
	}
	arb_log(r == -ECONNREFUSED ? ARB_LOG_ERROR : ARB_LOG_WARN, "%s: %s: %s", d->name, err.text, then);
	return r == 0;
}

int arb_device_return(struct arb_device *d)
{
	struct gpuarb_error err = {0};

	if (gpuarb_client_rejoin(d->client, false, &err) == 0) {
		arb_log(ARB_LOG_WARN, "%s: its segment can be used again: joined it again", d->name);
		return 0;
	}
	return gpuarb_client_rejoin(d->client, true, NULL) == 0 ? 1 : -ENOTCONN;
}

void arb_device_say_restored(struct arb_device *d, uint32_t times)
{
	char what[400], often[64] = "";
	uint32_t unsaid, n;

	if (times == d->restored || !arb_log_due(&d->wrote_over, track_now(), &unsaid))
		return;
	d->restored = times;
	n = gpuarb_client_restored_words(d->client, what, sizeof(what));
	if (n > 1)
		snprintf(often, sizeof(often), " (%u times)", n);
	arb_log(ARB_LOG_WARN,
		"%s: somebody else has written over %s%s: it was put right, and its limits stay in force; the kernel does not say who it was, it can be anybody who may write that file",
		d->name, what, often);
}

static void say_too_many(CUdevice ordinal)
{
	static uint32_t said;

	if (ordinal >= ARB_DEVICES && !arb_word_exchange(&said, 1))
		arb_log(ARB_LOG_WARN, "device %d: only the first %d GPUs are limited; it runs without limits",
			(int)ordinal, ARB_DEVICES);
}

struct arb_device *arb_device_get(CUdevice ordinal)
{
	struct arb_device *d;
	uint32_t state;
	int saved, cancel = PTHREAD_CANCEL_ENABLE;

	if (arb_disabled())
		return NULL;
	if (ordinal < 0 || ordinal >= ARB_DEVICES) {
		say_too_many(ordinal);
		return NULL;
	}
	d = &arb_own.devices[ordinal];
	state = arb_word_load_acquire(&d->state);
	if (__builtin_expect(state == UNKNOWN, 0)) {
		saved = errno;
		/* A thread that is cancelled while it joins would leave the lock held. */
		if (pthread_setcancelstate)
			pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
		pthread_mutex_lock(&arb_own.joining);
		if (d->state == UNKNOWN)
			join(d, ordinal);
		state = d->state;
		pthread_mutex_unlock(&arb_own.joining);
		if (pthread_setcancelstate)
			pthread_setcancelstate(cancel, NULL);
		errno = saved;
	}
	return state == JOINED ? d : NULL;
}

struct arb_device *arb_device_known(CUdevice ordinal)
{
	if (ordinal < 0 || ordinal >= ARB_DEVICES)
		return NULL;
	return arb_word_load_acquire(&arb_own.devices[ordinal].state) == JOINED ? &arb_own.devices[ordinal]
										: NULL;
}

bool arb_device_named(const char *uuid, struct arb_device **device)
{
	for (unsigned i = 0; i < ARB_DEVICES; i++) {
		struct arb_device *d = &arb_own.devices[i];
		uint32_t state = arb_word_load_acquire(&d->state);

		if (state != UNKNOWN && !strcmp(d->uuid, uuid)) {
			*device = state == JOINED ? d : NULL;
			return true;
		}
	}
	return false;
}

/* Whether the driver has one GPU alone. */
static bool is_only_one(void)
{
	static int count;
	CUresult (*get)(int *);
	int n = arb_word_load(&count);

	if (!n) {
		get = (CUresult(*)(int *))arb_driver_symbol("cuDeviceGetCount");
		if (!get || get(&n) != CUDA_SUCCESS)
			return false;
		arb_word_store(&count, n);
	}
	return n == 1;
}

bool arb_device_ordinal(CUdevice *ordinal)
{
	__typeof__(cuCtxGetDevice) *get = arb_real(cuCtxGetDevice);
	__typeof__(cuCtxGetCurrent) *current;
	CUcontext ctx = NULL;

	if (__builtin_expect(get != NULL, 1))
		return get(ordinal) == CUDA_SUCCESS;
	/* A driver that is not NVIDIA's may have less. Where it has one GPU every context is of that one. */
	current = arb_real(cuCtxGetCurrent);
	*ordinal = 0;
	return current && current(&ctx) == CUDA_SUCCESS && ctx && is_only_one();
}

struct arb_device *arb_device_current(void)
{
	CUdevice ordinal;

	return !arb_disabled() && arb_device_ordinal(&ordinal) ? arb_device_get(ordinal) : NULL;
}

CUresult arb_device_refuses(CUdevice ordinal)
{
	struct arb_device *d;
	uint32_t denied = DENIED;

	if (ordinal < 0 || ordinal >= ARB_DEVICES)
		return CUDA_SUCCESS;
	d = &arb_own.devices[ordinal];
	/* If its quota was denied, there may be room for it by now. */
	arb_word_cas(&d->state, &denied, UNKNOWN);
	/* Joins the GPU before the context is made: afterwards it would be too late to refuse it. */
	arb_device_get(ordinal);
	return (CUresult)arb_word_load(&d->refused);
}

CUresult arb_device_refuses_current(void)
{
	CUdevice ordinal = -1;

	if (!arb_word_load_acquire(&arb_own.refusals) || !arb_device_ordinal(&ordinal) || ordinal < 0 ||
		ordinal >= ARB_DEVICES)
		return CUDA_SUCCESS;
	return (CUresult)arb_word_load(&arb_own.devices[ordinal].refused);
}
