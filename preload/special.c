/* The driver's own look-up functions. */
#include <errno.h>
#include <string.h>

#include "act.h"
#include "hooks.h"
#include "wrappers.h"

/* Newer than this, a name may mean a function of another signature than the newest one that we know. */
#define NEWEST_KNOWN CUDA_VERSION

/*
 * The driver has answered with its function; which of our rows is it? The address says so for certain. If
 * the driver hands out addresses that it does not export, version and flags say it, the way the driver
 * itself chooses: the newest generation up to the version, and its per-thread variant if that is wanted.
 */
static const struct hook *which(const char *base, const void *found, int version, cuuint64_t flags)
{
	const struct hook *row, *best = NULL, *variant = NULL, *end;
	bool exported = false;
	unsigned count;

	row = arb_hook_base(base, &count);
	if (!row)
		return NULL;
	end = row + count;
	for (const struct hook *h = row; h < end; h++) {
		void *real = arb_real_get(arb_hook_id(h));

		if (real == found)
			return h;
		exported |= real != NULL;
	}
	if (version > NEWEST_KNOWN) {
		act_note(NOTE_UNKNOWN);
		return NULL;
	}
	for (const struct hook *h = row; h < end; h++)
		if (h->version <= version && h->variant == VARIANT_LEGACY &&
			(!exported || arb_real_get(arb_hook_id(h))))
			best = h;
	if (!best || !(flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM))
		return best;
	/* cuMemcpy2D_v2_ptds belongs to cuMemcpy2D_v2 and not to cuMemcpy2D, whose name it begins with too.
	 */
	for (const struct hook *h = row; h < end; h++) {
		size_t n = strlen(best->symbol);

		if (h->version <= version && h->variant != VARIANT_LEGACY &&
			!strncmp(h->symbol, best->symbol, n) && h->symbol[n] == '_' &&
			h->symbol[n + 1] == 'p')
			variant = h;
	}
	return variant ? variant : best;
}

static void replace(const char *name, void **found, int version, cuuint64_t flags)
{
	const struct hook *hook;
	int saved = errno;

	if (!name || !found || !*found)
		return;
	hook = which(name, *found, version, flags);
	if (hook) {
		arb_real_adopt(arb_hook_id(hook), *found);
		*found = hook->wrapper;
	}
	errno = saved;
}

CUresult wrap_cuGetProcAddress(const char *symbol, void **pfn, int cudaVersion, cuuint64_t flags)
{
	__typeof__(cuGetProcAddress) *real = arb_real(cuGetProcAddress);
	CUresult result;

	if (!real)
		return CUDA_ERROR_NOT_FOUND;
	act_count(CAT_RESOLVER);
	result = real(symbol, pfn, cudaVersion, flags);
	if (result == CUDA_SUCCESS)
		replace(symbol, pfn, cudaVersion, flags);
	return result;
}

CUresult wrap_cuGetProcAddress_v2(const char *symbol, void **pfn, int cudaVersion, cuuint64_t flags,
	CUdriverProcAddressQueryResult *symbolStatus)
{
	__typeof__(cuGetProcAddress_v2) *real = arb_real(cuGetProcAddress_v2);
	CUresult result;

	if (!real)
		return CUDA_ERROR_NOT_FOUND;
	act_count(CAT_RESOLVER);
	result = real(symbol, pfn, cudaVersion, flags, symbolStatus);
	if (result == CUDA_SUCCESS)
		replace(symbol, pfn, cudaVersion, flags);
	return result;
}

/* What is in these tables has no name and no signature that we know: theirs, untouched, but counted. */
CUresult wrap_cuGetExportTable(const void **ppExportTable, const CUuuid *pExportTableId)
{
	__typeof__(cuGetExportTable) *real = arb_real(cuGetExportTable);

	if (!real)
		return CUDA_ERROR_NOT_FOUND;
	act_count(CAT_RESOLVER);
	act_note(NOTE_EXPORT_TABLE);
	return real(ppExportTable, pExportTableId);
}
