/* The core that all copy and memset entry points lead to. */
#ifndef SIM_COPY_H
#define SIM_COPY_H

#include "test/sim/driver/driver.h"

CUresult drv_copy(CUstream handle, const CUDA_MEMCPY3D *desc, bool sync);
CUresult drv_memset(CUstream handle, CUdeviceptr dst, size_t pitch, unsigned value, unsigned element,
	size_t width, size_t height);
bool drv_memset_normal(CUDA_MEMSET_NODE_PARAMS *p);

struct CUarray_st {
	uint32_t mark;
	struct alloc *memory; /* NULL for a level of a mipmap */
	char *bytes;
	CUDA_ARRAY3D_DESCRIPTOR desc;
	size_t pitch;
	size_t rows, slices;
};

#endif
