/* Arrays and mipmaps: linear memory with a pitch, counted like any other allocation. */
#include "test/sim/driver/copy.h"

struct CUmipmappedArray_st {
	uint32_t mark;
	struct alloc *memory;
	unsigned nlevels;
	struct CUarray_st level[16];
};

static size_t element_bytes(CUarray_format format, unsigned channels)
{
	switch (format) {
	case CU_AD_FORMAT_UNSIGNED_INT8:
	case CU_AD_FORMAT_SIGNED_INT8:
	case CU_AD_FORMAT_NV12:
		return channels;
	case CU_AD_FORMAT_UNSIGNED_INT16:
	case CU_AD_FORMAT_SIGNED_INT16:
	case CU_AD_FORMAT_HALF:
		return 2 * channels;
	case CU_AD_FORMAT_UNSIGNED_INT32:
	case CU_AD_FORMAT_SIGNED_INT32:
	case CU_AD_FORMAT_FLOAT:
		return 4 * channels;
	default:
		return 4 * channels;
	}
}

static void shape(CUarray a, const CUDA_ARRAY3D_DESCRIPTOR *d)
{
	a->desc = *d;
	a->pitch = (d->Width * element_bytes(d->Format, d->NumChannels) + 511) / 512 * 512;
	a->rows = d->Height ? d->Height : 1;
	a->slices = d->Depth ? d->Depth : 1;
	a->mark = MARK_ARRAY;
}

static size_t size_of(const struct CUarray_st *a)
{
	return a->pitch * a->rows * a->slices;
}

void *drv_array_bytes(CUarray a, size_t *pitch, size_t *height)
{
	*pitch = a->pitch;
	*height = a->rows;
	return a->mark == MARK_ARRAY ? a->bytes : NULL;
}

static bool sane(const CUDA_ARRAY3D_DESCRIPTOR *d)
{
	return d && d->Width &&
	       (d->NumChannels == 1 || d->NumChannels == 2 || d->NumChannels == 3 || d->NumChannels == 4) &&
	       d->Width < 1u << 20 && d->Height < 1u << 20 && d->Depth < 1u << 16;
}

static CUresult create(CUarray *out, const CUDA_ARRAY3D_DESCRIPTOR *d)
{
	CUcontext ctx;
	CUarray a;

	TRY(drv_current(&ctx));
	if (!out || !sane(d))
		return CUDA_ERROR_INVALID_VALUE;
	drv_cost(COST_ALLOC);
	a = calloc(1, sizeof(*a));
	if (!a)
		return CUDA_ERROR_OUT_OF_MEMORY;
	shape(a, d);
	drv_lock();
	a->memory = drv_alloc_new(ALLOC_ARRAY, ctx->device, size_of(a), 512);
	if (a->memory) {
		a->memory->ctx = ctx;
		a->bytes = (char *)(uintptr_t)a->memory->addr;
	}
	drv_unlock();
	if (!a->memory) {
		free(a);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	*out = a;
	return CUDA_SUCCESS;
}

CUresult cuArray3DCreate_v2(CUarray *pHandle, const CUDA_ARRAY3D_DESCRIPTOR *pAllocateArray)
{
	return create(pHandle, pAllocateArray);
}

CUresult cuArrayCreate_v2(CUarray *pHandle, const CUDA_ARRAY_DESCRIPTOR *pAllocateArray)
{
	CUDA_ARRAY3D_DESCRIPTOR d;

	if (!pAllocateArray)
		return CUDA_ERROR_INVALID_VALUE;
	d = (CUDA_ARRAY3D_DESCRIPTOR){.Width = pAllocateArray->Width,
		.Height = pAllocateArray->Height,
		.Format = pAllocateArray->Format,
		.NumChannels = pAllocateArray->NumChannels};
	return create(pHandle, &d);
}

static CUresult check(CUarray a)
{
	if (!drv.ready)
		return drv_why();
	return a && a->mark == MARK_ARRAY ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuArrayDestroy(CUarray hArray)
{
	CUcontext ctx;

	TRY(drv_current(&ctx));
	TRY(check(hArray));
	if (!hArray->memory)
		return CUDA_ERROR_INVALID_HANDLE;
	drv_lock();
	drv_ctx_drain(ctx);
	hArray->mark = 0;
	if (drv_alloc_find((CUdeviceptr)(uintptr_t)hArray->bytes) == hArray->memory)
		drv_alloc_drop(hArray->memory);
	drv_unlock();
	return CUDA_SUCCESS;
}

CUresult cuArray3DGetDescriptor_v2(CUDA_ARRAY3D_DESCRIPTOR *pArrayDescriptor, CUarray hArray)
{
	TRY(check(hArray));
	if (!pArrayDescriptor)
		return CUDA_ERROR_INVALID_VALUE;
	*pArrayDescriptor = hArray->desc;
	return CUDA_SUCCESS;
}

CUresult cuArrayGetDescriptor_v2(CUDA_ARRAY_DESCRIPTOR *pArrayDescriptor, CUarray hArray)
{
	TRY(check(hArray));
	if (!pArrayDescriptor)
		return CUDA_ERROR_INVALID_VALUE;
	*pArrayDescriptor = (CUDA_ARRAY_DESCRIPTOR){
		hArray->desc.Width, hArray->desc.Height, hArray->desc.Format, hArray->desc.NumChannels};
	return CUDA_SUCCESS;
}

CUresult cuArrayGetMemoryRequirements(
	CUDA_ARRAY_MEMORY_REQUIREMENTS *memoryRequirements, CUarray array, CUdevice device)
{
	uint32_t physical;

	TRY(check(array));
	TRY(drv_device(device, &physical));
	if (!memoryRequirements)
		return CUDA_ERROR_INVALID_VALUE;
	*memoryRequirements = (CUDA_ARRAY_MEMORY_REQUIREMENTS){.size = size_of(array), .alignment = 512};
	return CUDA_SUCCESS;
}

CUresult cuMipmappedArrayCreate(CUmipmappedArray *pHandle, const CUDA_ARRAY3D_DESCRIPTOR *pMipmappedArrayDesc,
	unsigned int numMipmapLevels)
{
	CUDA_ARRAY3D_DESCRIPTOR d;
	CUmipmappedArray m;
	CUcontext ctx;
	size_t sum = 0;

	TRY(drv_current(&ctx));
	if (!pHandle || !sane(pMipmappedArrayDesc) || !numMipmapLevels || numMipmapLevels > 16)
		return CUDA_ERROR_INVALID_VALUE;
	m = calloc(1, sizeof(*m));
	if (!m)
		return CUDA_ERROR_OUT_OF_MEMORY;
	d = *pMipmappedArrayDesc;
	for (m->nlevels = 0; m->nlevels < numMipmapLevels; m->nlevels++) {
		shape(&m->level[m->nlevels], &d);
		sum += size_of(&m->level[m->nlevels]);
		d.Width = d.Width > 1 ? d.Width / 2 : 1;
		d.Height = d.Height > 1 ? d.Height / 2 : d.Height;
		d.Depth = d.Depth > 1 ? d.Depth / 2 : d.Depth;
	}
	drv_lock();
	m->memory = drv_alloc_new(ALLOC_ARRAY, ctx->device, sum, 512);
	if (m->memory)
		m->memory->ctx = ctx;
	drv_unlock();
	if (!m->memory) {
		free(m);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	sum = 0;
	for (unsigned i = 0; i < m->nlevels; i++) {
		m->level[i].bytes = (char *)(uintptr_t)m->memory->addr + sum;
		sum += size_of(&m->level[i]);
	}
	m->mark = MARK_MIPMAP;
	*pHandle = m;
	return CUDA_SUCCESS;
}

CUresult cuMipmappedArrayGetLevel(CUarray *pLevelArray, CUmipmappedArray hMipmappedArray, unsigned int level)
{
	if (!hMipmappedArray || hMipmappedArray->mark != MARK_MIPMAP)
		return CUDA_ERROR_INVALID_HANDLE;
	if (!pLevelArray || level >= hMipmappedArray->nlevels)
		return CUDA_ERROR_INVALID_VALUE;
	*pLevelArray = &hMipmappedArray->level[level];
	return CUDA_SUCCESS;
}

CUresult cuMipmappedArrayDestroy(CUmipmappedArray hMipmappedArray)
{
	CUcontext ctx;

	TRY(drv_current(&ctx));
	if (!hMipmappedArray || hMipmappedArray->mark != MARK_MIPMAP)
		return CUDA_ERROR_INVALID_HANDLE;
	drv_lock();
	drv_ctx_drain(ctx);
	hMipmappedArray->mark = 0;
	for (unsigned i = 0; i < hMipmappedArray->nlevels; i++)
		hMipmappedArray->level[i].mark = 0;
	if (drv_alloc_find(hMipmappedArray->memory->addr) == hMipmappedArray->memory)
		drv_alloc_drop(hMipmappedArray->memory);
	drv_unlock();
	return CUDA_SUCCESS;
}

CUresult cuMipmappedArrayGetMemoryRequirements(
	CUDA_ARRAY_MEMORY_REQUIREMENTS *memoryRequirements, CUmipmappedArray mipmap, CUdevice device)
{
	uint32_t physical;

	TRY(drv_device(device, &physical));
	if (!mipmap || mipmap->mark != MARK_MIPMAP)
		return CUDA_ERROR_INVALID_HANDLE;
	if (!memoryRequirements)
		return CUDA_ERROR_INVALID_VALUE;
	*memoryRequirements =
		(CUDA_ARRAY_MEMORY_REQUIREMENTS){.size = mipmap->memory->bytes, .alignment = 512};
	return CUDA_SUCCESS;
}
