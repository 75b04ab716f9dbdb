/* The driver's own look-up functions. */
#include <errno.h>
#include <string.h>

#include "preload/process/act.h"
#include "preload/hooks/hooks.h"
#include "preload/hooks/wrappers.h"

/* Newer than this, a name may mean a function of another signature than the newest one that we know. */
#define NEWEST_KNOWN CUDA_ABI_NEWEST

/* A look-up of the driver's, in one form or the other. */
typedef void *look_up_fn(const char *name, int version, cuuint64_t flags);

static void *look_up(const char *name, int version, cuuint64_t flags)
{
	__typeof__(cuGetProcAddress) *real = arb_real(cuGetProcAddress);
	void *found = NULL;

	return real && real(name, &found, version, flags) == CUDA_SUCCESS ? found : NULL;
}

static void *look_up_v2(const char *name, int version, cuuint64_t flags)
{
	__typeof__(cuGetProcAddress_v2) *real = arb_real(cuGetProcAddress_v2);
	void *found = NULL;

	return real && real(name, &found, version, flags, NULL) == CUDA_SUCCESS ? found : NULL;
}

/* The row whose function this is, by any name: cuGraphInstantiate is cuGraphInstantiateWithFlags by now. */
static const struct hook *by_address(const void *found)
{
	for (unsigned i = 0; i < HOOK_CUDA_COUNT; i++)
		if (arb_real_get((enum hook_id)i) == found)
			return &arb_hooks[i];
	return NULL;
}

/* Names that a driver may give for another function: it is that one if it is given for its own name, too. */
static const struct {
	const char *base, *other;
} renamed[] = {
	{"cuGraphInstantiate", "cuGraphInstantiateWithFlags"},
};

static const char *name_of(
	const char *base, const void *found, int version, cuuint64_t flags, look_up_fn *look)
{
	for (unsigned i = 0; i < sizeof(renamed) / sizeof(*renamed); i++)
		if (!strcmp(base, renamed[i].base) && look(renamed[i].other, version, flags) == found)
			return renamed[i].other;
	return base;
}

/* By version and flags, the way the driver itself chooses: the newest generation up to the version, and its
 * per-thread variant if that is wanted. */
static const struct hook *by_rule(
	const struct hook *row, const struct hook *end, int version, cuuint64_t flags)
{
	const struct hook *best = NULL, *variant = NULL;
	bool exported = false;

	for (const struct hook *h = row; h < end; h++)
		exported |= arb_real_get(arb_hook_id(h)) != NULL;
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

/*
 * The driver has answered with its function; which of our rows is it? The address says so for certain. Only a
 * driver that hands out addresses which it does not export is met by the rule. A name of a newer version may
 * mean a function of another signature than the newest one that we know: not if it is the same function.
 */
static const struct hook *which(
	const char *name, const void *found, int version, cuuint64_t flags, look_up_fn *look)
{
	const struct hook *row, *hook;
	unsigned count;

	row = arb_hook_base(name, &count);
	for (unsigned i = 0; row && i < count; i++)
		if (arb_real_get(arb_hook_id(&row[i])) == found)
			return &row[i];
	/* Some drivers know the full names as well. */
	if (!row)
		return arb_hook_find(name);
	hook = by_address(found);
	if (hook)
		return hook;
	if (version > NEWEST_KNOWN) {
		if (look(name, NEWEST_KNOWN, flags) != found) {
			act_unknown(name);
			return NULL;
		}
		version = NEWEST_KNOWN;
	}
	row = arb_hook_base(name_of(name, found, version, flags, look), &count);
	return by_rule(row, row + count, version, flags);
}

static void replace(const char *name, void **found, int version, cuuint64_t flags, look_up_fn *look)
{
	const struct hook *hook;
	int saved = errno;

	/* A driver that looks for its own functions by name may have found ours. */
	if (!name || !found || !*found || arb_is_ours(*found))
		return;
	hook = which(name, *found, version, flags, look);
	if (hook) {
		arb_real_adopt(arb_hook_id(hook), *found);
		*found = hook->wrapper;
	} else if (!arb_hook_knows(name)) {
		act_unknown(name);
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
		replace(symbol, pfn, cudaVersion, flags, look_up);
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
		replace(symbol, pfn, cudaVersion, flags, look_up_v2);
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
