/*
 * The driver's names as a program finds them: dlopen, dlsym for every name, and cuGetProcAddress with
 * every version boundary and both default streams. The expected function comes from a plain search of
 * the table and dlsym, so that the test shares no code with the library.
 */
#include <criterion/criterion.h>
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "test/alarm.h"
#include "cuda_abi.h"

struct row {
	const char *symbol, *base;
	int version, per_thread;
};

#define DRIVER_CALL(symbol, base, version)          {#symbol, #base, version, 0},
#define DRIVER_CALL_PT(symbol, base, version, kind) {#symbol, #base, version, 1},

static const struct row core[] = {
#include "test/sim/driver/driver.def"
};

static const struct row interop[] = {
#include "test/sim/driver/sim_interop.def"
};

#define CORE    (sizeof(core) / sizeof(*core))
#define INTEROP (sizeof(interop) / sizeof(*interop))

static void *lib;
static __typeof__(&cuGetProcAddress_v2) get_v2;
static __typeof__(&cuGetProcAddress) get_v1;

static void load(void)
{
	lib = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
	cr_assert(lib, "%s", dlerror());
	get_v2 = (__typeof__(get_v2))dlsym(lib, "cuGetProcAddress_v2");
	get_v1 = (__typeof__(get_v1))dlsym(lib, "cuGetProcAddress");
	cr_assert(get_v1 && get_v2);
}

TestSuite(surface, .init = load);

static const struct row *row_at(size_t i)
{
	return i < CORE ? &core[i] : &interop[i - CORE];
}

Test(surface, has_the_634_names_of_cuda_13_0_and_47_newer_ones)
{
	size_t newer = 0;

	for (size_t i = 0; i < CORE; i++)
		newer += core[i].version > 13000;
	cr_assert_eq(newer, 47);
	cr_assert_eq(CORE, 634 + newer);
	for (size_t i = 0; i < CORE + INTEROP; i++)
		cr_expect(dlsym(lib, row_at(i)->symbol), "%s is missing", row_at(i)->symbol);
}

Test(surface, each_call_of_the_header_is_in_the_table)
{
	static const char *const calls[] = {
#define CU_CALL(name, params, args) #name,
#include "cuda_abi/calls.def"
#include "cuda_abi/interop.def"
#include "cuda_abi/newer.def"
#undef CU_CALL
	};

	cr_assert_eq(sizeof(calls) / sizeof(*calls), CORE + INTEROP);
	for (size_t c = 0; c < sizeof(calls) / sizeof(*calls); c++) {
		int found = 0;

		for (size_t i = 0; i < CORE + INTEROP; i++)
			found += !strcmp(row_at(i)->symbol, calls[c]);
		cr_expect_eq(found, 1, "%s is %d times in the table", calls[c], found);
	}
}

/* Returns what the manual says: the newest variant that is not newer than `version`, per-thread if wanted and there is
 * one. */
static void *expected(const char *base, int version, int per_thread)
{
	const struct row *best = NULL;
	char name[128];

	for (size_t i = 0; i < CORE + INTEROP; i++) {
		const struct row *r = row_at(i);

		if (!strcmp(r->base, base) && !r->per_thread && r->version <= version &&
			(!best || r->version > best->version))
			best = r;
	}
	if (!best)
		return NULL;
	for (size_t i = 0; per_thread && i < CORE + INTEROP; i++) {
		const struct row *r = row_at(i);

		if (!r->per_thread || r->version > version)
			continue;
		snprintf(name, sizeof(name), "%s_ptsz", best->symbol);
		if (!strcmp(r->symbol, name))
			return dlsym(lib, name);
		snprintf(name, sizeof(name), "%s_ptds", best->symbol);
		if (!strcmp(r->symbol, name))
			return dlsym(lib, name);
	}
	return dlsym(lib, best->symbol);
}

static void check(const char *base, int version)
{
	for (int flags = 0; flags <= 2; flags++) {
		CUdriverProcAddressQueryResult status = 99;
		void *want = expected(base, version, flags == 2), *got = (void *)-1, *old = (void *)-1;

		cr_expect_eq(get_v2(base, &got, version, flags, &status), CUDA_SUCCESS);
		cr_expect_eq(got, want, "%s at %d, flags %d", base, version, flags);
		cr_expect_eq(status,
			want ? CU_GET_PROC_ADDRESS_SUCCESS : CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
		cr_expect_eq(get_v1(base, &old, version, flags), want ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND);
		cr_expect_eq(old, want);
	}
}

Test(surface, every_version_boundary_gives_the_right_variant)
{
	for (size_t i = 0; i < CORE + INTEROP; i++) {
		const struct row *r = row_at(i);

		check(r->base, r->version - 1);
		check(r->base, r->version);
		if (r->version < CUDA_ABI_NEWEST)
			check(r->base, r->version + 1);
		check(r->base, CUDA_ABI_NEWEST);
	}
}

Test(surface, the_well_known_answers)
{
	void *p = NULL;

	get_v2("cuMemAlloc", &p, 2000, 0, NULL);
	cr_expect_eq(p, dlsym(lib, "cuMemAlloc"));
	get_v2("cuMemAlloc", &p, 3020, 0, NULL);
	cr_expect_eq(p, dlsym(lib, "cuMemAlloc_v2"));
	get_v2("cuLaunchKernel", &p, 7000, 2, NULL);
	cr_expect_eq(p, dlsym(lib, "cuLaunchKernel_ptsz"));
	get_v2("cuLaunchKernel", &p, 4000, 2, NULL);
	cr_expect_eq(p, dlsym(lib, "cuLaunchKernel"));
	get_v2("cuCtxSynchronize", &p, 13000, 0, NULL);
	cr_expect_eq(p, dlsym(lib, "cuCtxSynchronize_v2"));
	get_v2("cuMemcpyHtoD", &p, 12000, 2, NULL);
	cr_expect_eq(p, dlsym(lib, "cuMemcpyHtoD_v2_ptds"));
	get_v2("cuGetProcAddress", &p, 12000, 0, NULL);
	cr_expect_eq(p, (void *)get_v2);
	get_v2("cuGetProcAddress", &p, 11030, 0, NULL);
	cr_expect_eq(p, (void *)get_v1);
}

Test(surface, names_that_are_not_base_names_are_not_found)
{
	static const char *const names[] = {"cuMemAlloc_v2", "cuLaunchKernel_ptsz", "cuNoSuchCall", "cuMem",
		"cuda", "zzz", "A", "cuInitX", "cuMemcpyHtoD_v2_ptds"};

	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		CUdriverProcAddressQueryResult status = 99;
		void *p = (void *)-1;

		cr_expect_eq(get_v2(names[i], &p, CUDA_ABI_NEWEST, 0, &status), CUDA_SUCCESS);
		cr_expect_null(p, "%s was found", names[i]);
		cr_expect_eq(status, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
		p = (void *)-1;
		cr_expect_eq(get_v1(names[i], &p, CUDA_ABI_NEWEST, 0), CUDA_ERROR_NOT_FOUND);
		cr_expect_null(p);
	}
}

Test(surface, bad_arguments_are_refused)
{
	CUdriverProcAddressQueryResult s = 99;
	void *p = (void *)-1;

	cr_expect_eq(get_v2(NULL, &p, 12000, 0, &s), CUDA_ERROR_INVALID_VALUE);
	cr_expect_eq(get_v2("cuInit", NULL, 12000, 0, &s), CUDA_ERROR_INVALID_VALUE);
	cr_expect_eq(get_v2("", &p, 12000, 0, &s), CUDA_ERROR_INVALID_VALUE);
	cr_expect_eq(get_v2("cuInit", &p, CUDA_ABI_NEWEST + 10, 0, &s), CUDA_ERROR_INVALID_VALUE);
	cr_expect_eq(get_v2("cuInit", &p, 0, 0, &s), CUDA_ERROR_INVALID_VALUE);
	cr_expect_eq(get_v2("cuInit", &p, 12000, 3, &s), CUDA_ERROR_INVALID_VALUE);
	cr_expect_eq(get_v1(NULL, &p, 12000, 0), CUDA_ERROR_INVALID_VALUE);
	cr_expect_eq(get_v1("cuInit", NULL, 12000, 0), CUDA_ERROR_INVALID_VALUE);
	cr_expect_eq(p, (void *)-1);
	cr_expect_eq(s, 99);
	cr_expect_eq(get_v2("cuInit", &p, 12000, 0, NULL), CUDA_SUCCESS);
}

Test(surface, what_is_not_modelled_says_so)
{
	__typeof__(&cuMulticastUnbind) unbind;

	unbind = (__typeof__(unbind))dlsym(lib, "cuMulticastUnbind");
	cr_expect_eq(unbind(0, 0, 0, 0), CUDA_ERROR_NOT_SUPPORTED);
}
