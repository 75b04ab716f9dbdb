/*
 * Says on standard error why a program gets no memory: one sentence the first time, then at most one in ten seconds.
 * The sentence is put together on the stack, because the host may be out of memory, too.
 */
#include "preload/memory/memory.h"

#include "preload/process/device.h"
#include "gpuarb/abi.h"
#include "gpuarb/client.h"
#include "preload/process/log.h"
#include "preload/track/track.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

struct text {
	char *to;
	size_t size, length; /* length < size, always */
};

__attribute__((format(printf, 2, 3))) static void add(struct text *t, const char *format, ...)
{
	va_list args;
	int n;

	va_start(args, format);
	n = vsnprintf(t->to + t->length, t->size - t->length, format, args);
	va_end(args);
	if (n > 0)
		t->length += (size_t)n < t->size - t->length ? (size_t)n : t->size - t->length - 1;
}

/* Does without floating point, because its text depends on the program's locale. */
static void add_bytes(struct text *t, uint64_t bytes)
{
	static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
	unsigned unit = 0;
	uint64_t rest = 0, tenths;

	while (bytes >= 1024 && unit + 1 < sizeof(units) / sizeof(units[0])) {
		rest = bytes & 1023;
		bytes >>= 10;
		unit++;
	}
	/* Rounds to the nearest tenth, from 100 on to the nearest whole number, as the tools do. */
	tenths = bytes * 10 + (rest * 10 + 512) / 1024;
	if (unit && tenths < 1000 && tenths % 10)
		add(t, "%u.%u %s", (unsigned)(tenths / 10), (unsigned)(tenths % 10), units[unit]);
	else
		add(t, "%u %s", (unsigned)((tenths + 5) / 10), units[unit]);
}

/* Other programs choose these names, so control characters are replaced: they could act on a terminal. */
static void add_name(struct text *t, const char *name, size_t most)
{
	for (size_t i = 0; i < most && name[i]; i++)
		add(t, "%c", (unsigned char)name[i] < ' ' || name[i] == 0x7f ? '?' : name[i]);
}

static void add_holders(struct text *t, const struct gpuarb_refusal *what)
{
	for (unsigned i = 0; i < what->nholders && i < GPUARB_HOLDERS; i++) {
		const struct gpuarb_holder *h = &what->holder[i];

		add(t, i ? ", " : " (");
		add_bytes(t, h->bytes);
		if (h->self) {
			add(t, " by this process");
			continue;
		}
		add(t, " by pid %u ", h->pid);
		add_name(t, h->command, sizeof(h->command));
		if (h->elsewhere)
			add(t, *h->container ? " in container " : " in another container");
		if (h->elsewhere)
			add_name(t, h->container, 12);
	}
	if (what->nholders > GPUARB_HOLDERS)
		add(t, ", the rest by %u more", what->nholders - GPUARB_HOLDERS);
	if (what->nholders)
		add(t, ")");
}

static void add_wanted(struct text *t, const struct gpuarb_refusal *what, const char *purpose)
{
	if (what->bytes) {
		add_bytes(t, what->bytes);
		add(t, " of memory");
	} else {
		add(t, "memory");
	}
	if (purpose)
		add(t, " for %s", purpose);
}

static void refusal(struct text *t, const struct gpuarb_refusal *what, const char *purpose)
{
	add_wanted(t, what, purpose);
	add(t, what->bytes ? " were refused to account '" : " was refused to account '");
	add_name(t, what->account, sizeof(what->account));
	switch (what->why) {
	case ARB_REFUSAL_SINGLE:
		add(t, "': one process may have ");
		add_bytes(t, what->bound);
		add(t, " of this GPU (single_oversub = off), and this one has ");
		add_bytes(t, what->used);
		return;
	case ARB_REFUSAL_SIZE:
		add(t, "': no GPU has so much");
		return;
	default:
		add(t, "': its quota is ");
		add_bytes(t, what->bound);
		add(t, ", of which ");
		add_bytes(t, what->used);
		add(t, " are in use");
		add_holders(t, what);
	}
}

/* Asks the driver how much memory the current context's GPU has left; false: not known. */
static bool ask_free(size_t *left, size_t *total)
{
	__typeof__(cuMemGetInfo_v2) *ask = arb_real(cuMemGetInfo_v2);
	CUstreamCaptureMode mode = track_relax();
	bool known = ask && ask(left, total) == CUDA_SUCCESS;

	track_unrelax(mode);
	return known;
}

static void driver_refusal(struct text *t, const struct gpuarb_refusal *what, const char *purpose)
{
	size_t left, total;

	add(t, "the driver refused ");
	add_wanted(t, what, purpose);
	add(t, " to account '");
	add_name(t, what->account, sizeof(what->account));
	add(t, what->bound ? "', although its quota is " : "', which has no quota and ");
	if (what->bound) {
		add_bytes(t, what->bound);
		add(t, ", of which only ");
	}
	add_bytes(t, what->used);
	add(t, what->bound ? " are in use: " : " in use: ");
	if (ask_free(&left, &total)) {
		add(t, "of ");
		add_bytes(t, total);
		add(t, " the GPU has ");
		add_bytes(t, left);
		add(t, " left, ");
	}
	add(t, "other accounts have ");
	add_bytes(t, what->others);
}

static void say(struct arb_device *device, const struct gpuarb_refusal *what, const char *purpose,
	struct arb_log_rate *rate, void (*words)(struct text *, const struct gpuarb_refusal *, const char *))
{
	char line[640];
	struct text t = {line, sizeof(line), 0};
	uint32_t unsaid;

	if (!arb_log_due(rate, track_now(), &unsaid))
		return;
	*line = '\0';
	words(&t, what, purpose);
	if (unsaid)
		add(&t, " (and %u times since this was last said)", unsaid);
	arb_log(ARB_LOG_WARN, "%s: %s", device->name, line);
}

bool memory_refused_for(struct arb_device *device, uint64_t bytes, const char *purpose)
{
	struct gpuarb_client *client = device ? arb_device_client(device) : NULL;
	struct gpuarb_refusal what;

	if (client && gpuarb_client_mem_refused(client, bytes, &what))
		say(device, &what, purpose, &device->refused_memory, refusal);
	return false;
}

bool memory_refused(struct arb_device *device, uint64_t bytes)
{
	return memory_refused_for(device, bytes, NULL);
}

void memory_driver_refused(struct arb_device *device, uint64_t bytes)
{
	struct gpuarb_client *client = device ? arb_device_client(device) : NULL;
	struct gpuarb_refusal what;

	/* If the account has no quota and the GPU to itself, the refusal has nothing to do with gpuarb. */
	if (client && gpuarb_client_mem_driver_refused(client, bytes, &what) && (what.bound || what.others))
		say(device, &what, NULL, &device->driver_refused_memory, driver_refusal);
}
