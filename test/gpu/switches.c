/*
 * Which context had the GPU for how long, by CUPTI's records of context switches. The layout of a record is the one
 * that CUPTI documents. The number of its kind is not documented and comes from the header of the installed CUPTI
 * (parts.py).
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "test/gpu/work.h"

#define BUFFER  (1u << 20)
#define RECORDS (1u << 18) /* enough for four minutes with a switch each millisecond */

struct record {
	uint32_t kind;
	uint32_t context;
	uint64_t ns;
	uint32_t operation; /* begins or ends; which of the two does not matter here */
} __attribute__((packed));

static struct {
	uint64_t ns;
	uint32_t context;
} * seen;
static size_t n;
static uint32_t kind;
static int (*next_record)(uint8_t *buffer, size_t bytes, struct record **record);

static void request(uint8_t **buffer, size_t *bytes, size_t *most)
{
	*buffer = aligned_alloc(8, BUFFER);
	*bytes = *buffer ? BUFFER : 0;
	*most = 0;
}

static void complete(CUcontext ctx, uint32_t stream, uint8_t *buffer, size_t size, size_t bytes)
{
	struct record *record = NULL;

	(void)ctx, (void)stream, (void)size;
	while (bytes && next_record(buffer, bytes, &record) == 0)
		if (record->kind == kind && n < RECORDS) {
			seen[n].ns = record->ns;
			seen[n++].context = record->context;
		}
	free(buffer);
}

static int by_time(const void *a, const void *b)
{
	const __typeof__(*seen) *x = a, *y = b;

	return (x->ns > y->ns) - (x->ns < y->ns);
}

/*
 * A context is taken to have the GPU from its record until the next record of another context. Whether a record marks
 * the beginning or the end of a switch changes the result only by the length of a switch, or by time in which the GPU
 * is idle.
 */
static void say(void)
{
	qsort(seen, n, sizeof(*seen), by_time);
	printf("{\"records\": %zu}\n", n);
	for (size_t i = 0; i + 1 < n; i++)
		if (seen[i + 1].context != seen[i].context || i + 2 == n) {
			size_t from = i;

			while (from && seen[from - 1].context == seen[i].context)
				from--;
			printf("{\"context\": %u, \"ns\": %llu}\n", seen[i].context,
				(unsigned long long)(seen[i + 1].ns - seen[from].ns));
		}
}

void work_switches(void)
{
	void *library = dlopen(work_text("library", "libcupti.so"), RTLD_NOW | RTLD_LOCAL);
	int (*callbacks)(void *request, void *complete), (*enable)(uint32_t kind), (*flush)(uint32_t all);
	int error;

	if (!library)
		work_fail("%s", dlerror());
	callbacks = (__typeof__(callbacks))dlsym(library, "cuptiActivityRegisterCallbacks");
	enable = (__typeof__(enable))dlsym(library, "cuptiActivityEnable");
	flush = (__typeof__(flush))dlsym(library, "cuptiActivityFlushAll");
	next_record = (__typeof__(next_record))dlsym(library, "cuptiActivityGetNextRecord");
	seen = malloc(RECORDS * sizeof(*seen));
	if (!callbacks || !enable || !flush || !next_record || !seen)
		work_fail("this CUPTI lacks what is needed");
	kind = (uint32_t)work_option("kind", 0);
	work_begin();
	error = callbacks((void *)request, (void *)complete);
	error = error ? error : enable(kind);
	if (error) {
		printf("{\"error\": %d}\n", error);
		return;
	}
	usleep((useconds_t)(work_option("seconds", 2) * 1e6));
	flush(1);
	say();
}
