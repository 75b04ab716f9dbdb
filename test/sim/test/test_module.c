/* What a module says about its kernels, and where they may run. */
#include "test/sim/test/simtest.h"

#include <string.h>

TestSuite(module, .fini = sim_remove);

struct entry {
	uint16_t kind, version;
	uint32_t header;
	uint64_t payload;
	uint32_t other[3], arch;
	char rest[8];
};

/* A fat binary as nvcc makes it: machine code for one architecture and PTX for another. */
struct fat {
	uint32_t magic;
	uint16_t version, header;
	uint64_t bytes;
	struct entry code, ptx;
};

static struct fat fat_binary(void)
{
	struct fat f = {.magic = 0xba55ed50, .version = 1, .header = 16, .bytes = 2 * sizeof(struct entry)};

	f.code = (struct entry){.kind = 2, .header = sizeof(struct entry), .arch = 86};
	f.ptx = (struct entry){.kind = 1, .header = sizeof(struct entry), .arch = 75};
	return f;
}

static int ptx_version(const void *image)
{
	CUfunction f;
	CUmodule m;
	int v = 0;

	OK(cuModuleLoadData(&m, image));
	OK(cuModuleGetFunction(&f, m, "spin_us"));
	OK(cuFuncGetAttribute(&v, CU_FUNC_ATTRIBUTE_PTX_VERSION, f));
	return v;
}

Test(module, the_ptx_of_an_image_says_its_architecture)
{
	struct fat f = fat_binary();
	struct {
		int magic, version;
		const void *data;
		void *name;
	} wrapper = {0x466243b1, 1, &f, NULL};

	sim_fresh(NULL);
	sim_device();
	cr_expect_eq(ptx_version(".version 8.0\n.target sm_61\n.entry spin_us()\n{}\n"), 61);
	cr_expect_eq(ptx_version(&f), 75);
	cr_expect_eq(ptx_version(&wrapper), 75);
	cr_expect_eq(ptx_version("x"), 80);
}

Test(module, sizes_that_lead_out_of_the_image_are_not_followed)
{
	struct fat f = fat_binary();

	sim_fresh(NULL);
	sim_device();
	f.code.payload = ~0ull;
	cr_expect_eq(ptx_version(&f), 80);
	f = fat_binary();
	f.code.header = 0;
	cr_expect_eq(ptx_version(&f), 80);
	f.bytes = 3;
	cr_expect_eq(ptx_version(&f), 80);
}

Test(module, a_function_runs_only_in_the_context_of_its_module)
{
	CUcontext first, second;
	unsigned us = 1;
	void *params[] = {&us};
	CUfunction f;

	sim_fresh(NULL);
	first = sim_device();
	f = sim_kernel("spin_us");
	OK(cuCtxCreate_v2(&second, 0, 0));
	GIVES(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL), CUDA_ERROR_INVALID_HANDLE);
	OK(cuCtxSetCurrent(first));
	OK(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
	OK(cuCtxSynchronize());
}
