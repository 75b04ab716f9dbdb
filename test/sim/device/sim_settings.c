/* GPUSIM_* settings of the model. The environment of the process that creates the file decides for all processes. */
#include "test/sim/device/shm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static double number(const char *name, double otherwise, double low, double high)
{
	const char *env = getenv(name);
	char *end;
	double v;

	if (!env || !*env)
		return otherwise;
	v = strtod(env, &end);
	if (end == env || v < low || v > high) {
		fprintf(stderr, "gpusim: %s=%s is not within %g..%g, using %g\n", name, env, low, high,
			otherwise);
		return otherwise;
	}
	return v;
}

/* Finds item n of a list separated by commas. The last item stands for all that would follow. */
static bool item(const char *list, unsigned n, char *out, size_t size)
{
	const char *end;

	if (!list || !*list)
		return false;
	while (n-- && strchr(list, ','))
		list = strchr(list, ',') + 1;
	end = strchrnul(list, ',');
	snprintf(out, size, "%.*s", (int)(end - list), list);
	return true;
}

static unsigned items(const char *list)
{
	unsigned n = list && *list;

	for (; list && *list; list++)
		n += *list == ',';
	return n;
}

static int hex(char c)
{
	return c >= '0' && c <= '9'   ? c - '0'
	       : c >= 'a' && c <= 'f' ? c - 'a' + 10
	       : c >= 'A' && c <= 'F' ? c - 'A' + 10
				      : -1;
}

static bool parse_uuid(const char *text, uint8_t *bytes)
{
	unsigned n = 0;

	if (!strncmp(text, "GPU-", 4))
		text += 4;
	for (; *text && n < 32; text++) {
		int v = hex(*text);

		if (*text == '-')
			continue;
		if (v < 0)
			return false;
		bytes[n / 2] = (uint8_t)(n % 2 ? bytes[n / 2] | v : v << 4);
		n++;
	}
	return n == 32 && !*text;
}

static void device_info(struct sim_device_info *info, unsigned n, uint64_t salt)
{
	char text[64];
	uint8_t *u = info->uuid_bytes;

	if (!item(getenv("GPUSIM_NAME"), n, info->name, sizeof(info->name)))
		snprintf(info->name, sizeof(info->name), "Simulated GPU");
	/* Of a list that is too short the last UUID is not repeated: no two devices may have the same. */
	if (items(getenv("GPUSIM_UUID")) <= n || !item(getenv("GPUSIM_UUID"), n, text, sizeof(text)) ||
		!parse_uuid(text, u)) {
		for (unsigned i = 0; i < 16; i++) {
			salt = salt * 6364136223846793005u + 1442695040888963407u + n;
			u[i] = (uint8_t)(salt >> 33);
		}
		u[6] = (u[6] & 0x0f) | 0x40;
		u[8] = (u[8] & 0x3f) | 0x80;
	}
	snprintf(info->uuid, sizeof(info->uuid),
		"GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", u[0], u[1], u[2],
		u[3], u[4], u[5], u[6], u[7], u[8], u[9], u[10], u[11], u[12], u[13], u[14], u[15]);
	info->pci_bus = n + 1;
	snprintf(info->pci_bus_id, sizeof(info->pci_bus_id), "%08X:%02X:%02X.0", 0, n + 1, 0);
	info->memory_bytes = (uint64_t)number("GPUSIM_MEMORY_MB", 16384, 64, 4u << 20) << 20;
	if (item(getenv("GPUSIM_MEMORY_MB"), n, text, sizeof(text)) && atoll(text) >= 64)
		info->memory_bytes = (uint64_t)atoll(text) << 20;
	info->multiprocessors = (uint32_t)number("GPUSIM_SMS", 80, 1, 1024);
	info->clock_mhz = 1500;
}

/* Returns the drift of device n, from a list in parts per million. */
static int64_t drift(unsigned n)
{
	char text[64], *end;
	double ppm;

	if (!item(getenv("GPUSIM_DRIFT_PPM"), n, text, sizeof(text)))
		return 0;
	ppm = strtod(text, &end);
	if (end == text || *end || !(ppm >= -50 && ppm <= 50)) {
		fprintf(stderr, "gpusim: GPUSIM_DRIFT_PPM=%s is not within -50..50, using 0\n", text);
		return 0;
	}
	return (int64_t)(ppm * 1000);
}

static uint32_t mode_named(const char *name)
{
	static const char *const names[] = {[SIM_TIMESLICE] = "timeslice",
		[SIM_SHARE] = "share",
		[SIM_FIFO] = "fifo",
		[SIM_SPATIAL] = "spatial"};

	for (uint32_t i = 0; name && i < sizeof(names) / sizeof(names[0]); i++)
		if (!strcmp(name, names[i]))
			return i;
	if (name)
		fprintf(stderr,
			"gpusim: GPUSIM_MODE=%s is none of timeslice, share, fifo, spatial; using timeslice\n",
			name);
	return SIM_TIMESLICE;
}

void sim_settings_read(struct sim_file *file)
{
	struct sim_settings *set = &file->set;
	const char *mode = getenv("GPUSIM_MODE"), *events = getenv("GPUSIM_EVENTS");

	set->devices = (uint32_t)number("GPUSIM_DEVICES", 1, 1, SIM_MAX_DEVICES);
	set->mode = mode_named(mode);
	set->slice_ns = (uint64_t)(number("GPUSIM_SLICE_US", 2000, 1, 1e7) * 1000);
	set->switch_ns = (uint64_t)(number("GPUSIM_SWITCH_US", 0, 0, 1e6) * 1000);
	set->slice_events = events && !strcmp(events, "slice");
	if (events && strcmp(events, "slice") && strcmp(events, "engine"))
		fprintf(stderr, "gpusim: GPUSIM_EVENTS=%s is neither engine nor slice, using engine\n",
			events);
	if (set->slice_events && set->mode != SIM_TIMESLICE) {
		fprintf(stderr, "gpusim: GPUSIM_EVENTS=slice needs GPUSIM_MODE=timeslice, using engine\n");
		set->slice_events = 0;
	}
	set->sample_ns = (uint64_t)(number("GPUSIM_SAMPLE_MS", 167, 10, 10000) * 1e6);
	set->context_bytes = (uint64_t)number("GPUSIM_CTX_MB", 300, 0, 1 << 20) << 20;
	set->speed = number("GPUSIM_SPEED", 1, 1e-3, 1e3);
	set->pcie_gbps = number("GPUSIM_PCIE_GBPS", 25, 1e-3, 1e4);
	set->mem_gbps = number("GPUSIM_MEM_GBPS", 1000, 1e-2, 1e5);
	set->page_gbps = number("GPUSIM_PAGE_GBPS", 12, 1e-3, 1e4);
	set->copy_latency_ns = (uint64_t)(number("GPUSIM_COPY_LATENCY_US", 1.5, 0, 1e6) * 1000);
	set->event_ns = (uint64_t)number("GPUSIM_EVENT_NS", 1, 1, 1e6);
	for (unsigned i = 0; i < set->devices; i++)
		set->drift_ppb[i] = drift(i);
	for (unsigned i = 0; i < set->devices; i++)
		device_info(&file->device[i].info, i, 0x6770757369ULL + i * 7919);
}
