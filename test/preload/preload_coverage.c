/*
 * Every hooked entry point is called by every way that a program has, on the recording driver. Each call must reach
 * the right wrapper and the right real function, with the same arguments, exactly once, and the driver's result must
 * come back unchanged. It runs with the tracing preload, which tells the wrapper, and with the real preload, for its
 * short path.
 */
#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda_abi.h"

#include "preload/hooks/hooks.h"
#include "test/preload/preload_record.h"

struct call {
	const char *name;
	CUresult (*call)(void *fn);
	void *direct;
};

static char scratch[16][4096] __attribute__((aligned(4096))); /* what pointer arguments point to */
static uint64_t expected_hash;
static unsigned expected_args, failures, checks;

static void arg_fill(unsigned index, void *at, size_t size, bool pointer)
{
	void *place = scratch[index];

	if (pointer)
		memcpy(at, &place, sizeof(place));
	else
		memset(at, (int)(0x11 * (index + 1) & 0x7f), size);
}

static void arg_expect(unsigned n, const struct record_arg *args)
{
	expected_args = n;
	expected_hash = record_hash(n, args);
}

#ifdef LINKED
#define DIRECT(name) ((void *)name)
#else
#define DIRECT(name) NULL
#endif
#include "preload_calls.inc"

#define HOOK(symbol, base, version, variant, category, params, args, facts)                                  \
	{#symbol, #base, NULL, version, VARIANT_##variant, CAT_##category, LIBRARY_CUDA},
static const struct hook rows[] = {
#include "preload/hooks/hooks.def"
};
#undef HOOK

#define ROWS (sizeof(rows) / sizeof(*rows))

static struct record *record;
static unsigned (*trace_take)(const char **symbol);
static unsigned (*preload_seen)(uint64_t *counts, unsigned n);

static const struct call *call_of(const char *name)
{
	for (size_t i = 0; i < sizeof(calls) / sizeof(*calls); i++)
		if (!strcmp(calls[i].name, name))
			return &calls[i];
	fprintf(stderr, "%s is not a call of the driver\n", name);
	exit(1);
}

static void fail(const char *way, const char *name, const char *what, const char *got)
{
	if (failures++ < 40)
		fprintf(stderr, "%s by %s: %s %s\n", name, way, what, got ? got : "(nothing)");
}

static uint64_t seen(unsigned category)
{
	uint64_t counts[CAT_COUNT] = {0};

	preload_seen(counts, CAT_COUNT);
	return counts[category];
}

/* Calls `fn`, which a program got by this way for `row`. */
static void try(const struct hook *row, const char *way, void *fn, CUresult wanted)
{
	const struct call *call = call_of(row->symbol);
	unsigned calls_before = record->calls;
	const char *traced = NULL;
	uint64_t seen_before = 0;
	CUresult result;

	checks++;
	if (!fn) {
		fail(way, row->symbol, "not found", dlerror());
		return;
	}
	/* Resolvers have a test of their own; and the recording driver really looks names up when one is called. */
	if (row->category == CAT_RESOLVER && strcmp(row->symbol, "cuGetExportTable"))
		return;
	record->name = NULL;
	record->result = wanted;
	if (trace_take)
		trace_take(&traced);
	else
		seen_before = seen(row->category);
	result = call->call(fn);
	if (result != wanted)
		fail(way, row->symbol, "the result was changed", NULL);
	if (!record->name || strcmp(record->name, row->symbol))
		fail(way, row->symbol, "the real function was", record->name);
	if (record->calls != calls_before + 1)
		fail(way, row->symbol, "the driver was not called once", NULL);
	if (record->hash != expected_hash || record->args != expected_args)
		fail(way, row->symbol, "the arguments were changed", NULL);
	if (!trace_take) {
		if (seen(row->category) != seen_before + 1)
			fail(way, row->symbol, "was not counted once", NULL);
	} else if (row->category != CAT_RESOLVER) {
		unsigned n = trace_take(&traced);

		if (n != 1 || !traced || strcmp(traced, row->symbol))
			fail(way, row->symbol, "the wrapper was", traced);
	}
}

/* Finds what cuGetProcAddress means by a name: the newest generation up to the version, in its per-thread form if
 * asked. */
static const struct hook *meant(const char *base, int version, bool per_thread)
{
	const struct hook *best = NULL, *variant = NULL;

	for (size_t i = 0; i < ROWS; i++)
		if (!strcmp(rows[i].base, base) && rows[i].version <= version &&
			rows[i].variant == VARIANT_LEGACY)
			best = &rows[i];
	for (size_t i = 0; best && per_thread && i < ROWS; i++) {
		size_t n = strlen(best->symbol);

		if (!strcmp(rows[i].base, base) && rows[i].version <= version &&
			rows[i].variant != VARIANT_LEGACY && !strncmp(rows[i].symbol, best->symbol, n) &&
			!strncmp(rows[i].symbol + n, "_pt", 3))
			variant = &rows[i];
	}
	return variant ? variant : best;
}

static const int versions[] = {2000, 2010, 2020, 2030, 3000, 3020, 4000, 4010, 5000, 5050, 6000, 6050, 7000,
	8000, 9000, 9020, 10000, 10010, 10020, 11000, 11010, 11020, 11030, 11040, 11060, 11070, 12000, 12010,
	12020, 12030, 12040, 12050, 12060, 12080, 12090, 13000, 13010, 13020, 13030, 13040};

static void by_proc_address(void *first, void *second, const char *base)
{
	for (size_t v = 0; v < sizeof(versions) / sizeof(*versions); v++)
		for (cuuint64_t flags = 0; flags <= 2; flags++) {
			const struct hook *row = meant(base, versions[v], flags == 2);
			CUdriverProcAddressQueryResult status = (CUdriverProcAddressQueryResult)77;
			void *one = NULL, *two = NULL, *three = NULL;
			CUresult r1 = ((__typeof__(cuGetProcAddress) *)first)(base, &one, versions[v], flags);
			CUresult r2 = ((__typeof__(cuGetProcAddress_v2) *)second)(
				base, &two, versions[v], flags, &status);
			CUresult r3 = ((__typeof__(cuGetProcAddress_v2) *)second)(
				base, &three, versions[v], flags, NULL);

			if (!row) {
				if (r1 == CUDA_SUCCESS || one || two || status == CU_GET_PROC_ADDRESS_SUCCESS)
					fail("cuGetProcAddress", base, "found what is newer", NULL);
				continue;
			}
			if (r1 || r2 || r3 || status != CU_GET_PROC_ADDRESS_SUCCESS || one != two ||
				one != three)
				fail("cuGetProcAddress", base, "answers differ", NULL);
			try(row, "cuGetProcAddress", one, CUDA_SUCCESS);
			try(row, "cuGetProcAddress_v2", two, (CUresult)999);
		}
}

static void resolvers_fail_as_the_driver_does(void *second)
{
	__typeof__(cuGetProcAddress_v2) *find = (__typeof__(cuGetProcAddress_v2) *)second;
	CUdriverProcAddressQueryResult status;
	void *fn = scratch;

	if (find("", &fn, 0, 0, NULL) != CUDA_ERROR_INVALID_VALUE)
		fail("cuGetProcAddress_v2", "an empty name", "was accepted", NULL);
	if (find(NULL, &fn, 13000, 0, &status) != CUDA_ERROR_INVALID_VALUE)
		fail("cuGetProcAddress_v2", "no name", "was accepted", NULL);
	if (find("cuLaunchKernel", NULL, 13000, 0, &status) != CUDA_ERROR_INVALID_VALUE)
		fail("cuGetProcAddress_v2", "no place", "was accepted", NULL);
	if (find("cuNothing", &fn, 13000, 0, &status) != CUDA_SUCCESS || fn ||
		status != CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND)
		fail("cuGetProcAddress_v2", "cuNothing", "was found", NULL);
}

int main(void)
{
	void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
	void *first, *second;
	record_get_fn *get;

	if (!driver) {
		fprintf(stderr, "%s\n", dlerror());
		return 1;
	}
	get = (record_get_fn *)dlsym(driver, "record_get");
	trace_take = (unsigned (*)(const char **))dlsym(RTLD_DEFAULT, "trace_take");
	preload_seen = (unsigned (*)(uint64_t *, unsigned))dlsym(RTLD_DEFAULT, "gpuarb_preload_seen");
	if (!get || (!trace_take && !preload_seen)) {
		fprintf(stderr, "this test wants the recording driver and a preload\n");
		return 1;
	}
	record = get();
	first = dlsym(driver, "cuGetProcAddress");
	second = dlsym(driver, "cuGetProcAddress_v2");
	for (size_t i = 0; i < ROWS; i++) {
		const struct hook *row = &rows[i];

		try(row, "dlsym", dlsym(driver, row->symbol), CUDA_SUCCESS);
		try(row, "dlsym", dlsym(driver, row->symbol), CUDA_ERROR_UNKNOWN);
		try(row, "dlvsym", dlvsym(driver, row->symbol, "DRIVER_1"), CUDA_SUCCESS);
#ifdef LINKED
		try(row, "its name", call_of(row->symbol)->direct, CUDA_SUCCESS);
		try(row, "its name", call_of(row->symbol)->direct, CUDA_ERROR_UNKNOWN);
		try(row, "RTLD_DEFAULT", dlsym(RTLD_DEFAULT, row->symbol), CUDA_SUCCESS);
		try(row, "RTLD_NEXT", dlsym(RTLD_NEXT, row->symbol), CUDA_SUCCESS);
#endif
		if (!i || strcmp(row->base, rows[i - 1].base))
			by_proc_address(first, second, row->base);
	}
	resolvers_fail_as_the_driver_does(second);
	printf("preload: %zu entry points, %u calls by every way%s: %s\n", ROWS, checks,
		trace_take ? ", wrapper by wrapper" : "",
		failures ? "not as they should be" : "all as they should be");
	return failures != 0;
}
