/*
 * cuGetProcAddress: finds the exported function for a base name, the CUDA version for which the program
 * was built, and the default stream that it wants. Names with a suffix are not base names.
 */
#include <stdlib.h>
#include <string.h>

#include "cuda_abi.h"

struct entry {
	const char *base;
	const char *symbol;
	int version;
	int per_thread;
	void *fn;
};

#define ROW(symbol, base, version, pt)              {#base, #symbol, version, pt, (void *)symbol},
#define DRIVER_CALL(symbol, base, version)          ROW(symbol, base, version, 0)
#define DRIVER_CALL_PT(symbol, base, version, kind) ROW(symbol, base, version, 1)

static const struct entry core[] = {
#include "test/sim/driver/driver.def"
};

static const struct entry interop[] = {
#include "test/sim/driver/sim_interop.def"
};

static const struct entry *first_of(const struct entry *t, size_t n, const char *base)
{
	size_t lo = 0, hi = n;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (strcmp(t[mid].base, base) < 0)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo < n && !strcmp(t[lo].base, base) ? &t[lo] : NULL;
}

/* Returns whether `pt` is the per-thread variant of `legacy`: its name extends the name of that version. */
static int is_variant_of(const struct entry *pt, const struct entry *legacy)
{
	size_t len = strlen(legacy->symbol);

	return !strncmp(pt->symbol, legacy->symbol, len) && !strncmp(pt->symbol + len, "_pt", 3);
}

static void *lookup(const char *base, int version, int per_thread, CUdriverProcAddressQueryResult *status)
{
	const struct entry *end = core + sizeof(core) / sizeof(*core);
	const struct entry *e = first_of(core, sizeof(core) / sizeof(*core), base);
	const struct entry *first, *best = NULL, *variant = NULL;

	if (!e) {
		end = interop + sizeof(interop) / sizeof(*interop);
		e = first_of(interop, sizeof(interop) / sizeof(*interop), base);
	}
	if (!e) {
		*status = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
		return NULL;
	}
	first = e;
	for (; e < end && !strcmp(e->base, base); e++)
		if (!e->per_thread && e->version <= version)
			best = e;
	if (!best) {
		*status = CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT;
		return NULL;
	}
	if (per_thread)
		for (e = first; e < end && !strcmp(e->base, base); e++)
			if (e->per_thread && e->version <= version && is_variant_of(e, best))
				variant = e;
	*status = CU_GET_PROC_ADDRESS_SUCCESS;
	return variant ? variant->fn : best->fn;
}

static CUresult resolve(
	const char *symbol, void **pfn, int version, cuuint64_t flags, CUdriverProcAddressQueryResult *status)
{
	if (!symbol || !*symbol || !pfn || version <= 0 || version > CUDA_ABI_NEWEST)
		return CUDA_ERROR_INVALID_VALUE;
	if (flags > CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM)
		return CUDA_ERROR_INVALID_VALUE;
	*pfn = lookup(symbol, version, flags == CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, status);
	return CUDA_SUCCESS;
}

/* This first form cannot return a status, so a missing name is an error. */
CUresult cuGetProcAddress(const char *symbol, void **pfn, int cudaVersion, cuuint64_t flags)
{
	CUdriverProcAddressQueryResult status;
	CUresult r = resolve(symbol, pfn, cudaVersion, flags, &status);

	if (r != CUDA_SUCCESS)
		return r;
	return *pfn ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

CUresult cuGetProcAddress_v2(const char *symbol, void **pfn, int cudaVersion, cuuint64_t flags,
	CUdriverProcAddressQueryResult *symbolStatus)
{
	CUdriverProcAddressQueryResult unused;

	return resolve(symbol, pfn, cudaVersion, flags, symbolStatus ? symbolStatus : &unused);
}
