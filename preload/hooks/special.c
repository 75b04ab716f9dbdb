/* The wrappers of the driver's own look-up functions. */
#include <errno.h>
#include <string.h>

#include "preload/process/act.h"
#include "preload/hooks/hooks.h"
#include "preload/hooks/wrappers.h"

/* In a version newer than this, a name may mean a function with a signature that we do not know. */
#define NEWEST_KNOWN CUDA_ABI_NEWEST

/* Calls cuGetProcAddress in one of its two forms. */
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

/* Returns the row whose real function this is, whatever its name: cuGraphInstantiate may give cuGraphInstantiateWithFlags. */
static const struct hook *by_address(const void *found)
{
	for (unsigned i = 0; i < HOOK_CUDA_COUNT; i++)
		if (arb_real_get((enum hook_id)i) == found)
			return &arb_hooks[i];
	return NULL;
}

/* Names for which a driver may give the function of another name. It does so if the look-up of that other name gives the same
 * address. */
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

/* Chooses a row by version and flags, by the driver's own rule: the newest function up to that version, or its per-thread
 * variant if the flags ask for it. */
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
	/* cuMemcpy2D_v2_ptds is a variant of cuMemcpy2D_v2, but not of cuMemcpy2D, though it begins with both names. */
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
 * Returns the row of the function that the driver has given. The address tells the row for certain, unless the driver
 * gives addresses that it does not export; then by_rule() decides. For a version newer than NEWEST_KNOWN the signature
 * may be unknown, unless the driver gives the same function for NEWEST_KNOWN.
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
	/* Some drivers also answer for full names, with a suffix. */
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

	/* A driver that looks up its own functions by name may have found ours. */
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

/* The functions in these tables have no names and no known signatures, so they are not replaced. The call is counted. */
CUresult wrap_cuGetExportTable(const void **ppExportTable, const CUuuid *pExportTableId)
{
	__typeof__(cuGetExportTable) *real = arb_real(cuGetExportTable);

	if (!real)
		return CUDA_ERROR_NOT_FOUND;
	act_count(CAT_RESOLVER);
	act_note(NOTE_EXPORT_TABLE);
	return real(ppExportTable, pExportTableId);
}
