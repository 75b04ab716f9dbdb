/*
 * A CUPTI for the simulated GPU that records context switches. The simulated GPU divides itself evenly instead of
 * switching. So for each millisecond, the time that each process had by the GPU's own books is reported as one slice
 * of that process.
 */
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>

#include "test/sim/device/model.h"

#define EXPORT __attribute__((visibility("default")))
#define KIND   57
#define SLICES 4096

struct record {
	uint32_t kind, context;
	uint64_t ns;
	uint32_t operation, pad;
};

typedef void request_fn(uint8_t **buffer, size_t *bytes, size_t *most);
typedef void complete_fn(void *ctx, uint32_t stream, uint8_t *buffer, size_t size, size_t bytes);

EXPORT int cuptiActivityRegisterCallbacks(request_fn *request, complete_fn *complete);
EXPORT int cuptiActivityEnable(uint32_t kind);
EXPORT int cuptiActivityFlushAll(uint32_t all);
EXPORT int cuptiActivityGetNextRecord(uint8_t *buffer, size_t bytes, struct record **record);

static request_fn *request;
static complete_fn *complete;
static struct record slice[SLICES];
static size_t n;
static uint64_t last[SIM_MAX_PROCS], now;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void look(void)
{
	struct sim_process_state list[SIM_MAX_PROCS];
	int found = sim_processes(0, false, list, SIM_MAX_PROCS);

	pthread_mutex_lock(&lock);
	for (int i = 0; i < found && n < SLICES; i++) {
		uint64_t *before = &last[list[i].serial % SIM_MAX_PROCS];
		uint64_t had = list[i].device_ns - *before;

		if (*before && had) {
			slice[n++] =
				(struct record){.kind = KIND, .context = (uint32_t)list[i].serial, .ns = now};
			now += had;
		}
		*before = list[i].device_ns;
	}
	pthread_mutex_unlock(&lock);
}

static void *watch(void *argument)
{
	for (;;) {
		look();
		nanosleep(&(struct timespec){0, 10000000}, NULL);
	}
	return argument;
}

int cuptiActivityRegisterCallbacks(request_fn *asks, complete_fn *gets)
{
	request = asks;
	complete = gets;
	return 0;
}

int cuptiActivityEnable(uint32_t kind)
{
	pthread_t thread;

	if (kind != KIND || sim_open())
		return 1;
	look();
	return pthread_create(&thread, NULL, watch, NULL) ? 1 : 0;
}

int cuptiActivityFlushAll(uint32_t all)
{
	uint8_t *buffer = NULL;
	size_t bytes = 0, most, room;

	(void)all;
	request(&buffer, &bytes, &most);
	pthread_mutex_lock(&lock);
	room = bytes / sizeof(*slice) < n ? bytes / sizeof(*slice) : n;
	for (size_t i = 0; i < room; i++)
		((struct record *)(void *)buffer)[i] = slice[i];
	pthread_mutex_unlock(&lock);
	complete(NULL, 0, buffer, bytes, room * sizeof(*slice));
	return 0;
}

int cuptiActivityGetNextRecord(uint8_t *buffer, size_t bytes, struct record **record)
{
	struct record *next = *record ? *record + 1 : (struct record *)(void *)buffer;

	if ((uint8_t *)(next + 1) > buffer + bytes)
		return 1;
	*record = next;
	return 0;
}
