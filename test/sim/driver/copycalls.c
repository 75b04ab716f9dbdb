/* The entry points for copies and memsets: each only describes what is copied where. */
#include "test/sim/driver/copy.h"

#define HOST(p)  CU_MEMORYTYPE_HOST, p, 0, NULL
#define DEV(p)   CU_MEMORYTYPE_DEVICE, NULL, p, NULL
#define ANY(p)   CU_MEMORYTYPE_UNIFIED, NULL, p, NULL
#define ARRAY(a) CU_MEMORYTYPE_ARRAY, NULL, 0, a

struct end {
	CUmemorytype type;
	const void *host;
	CUdeviceptr device;
	CUarray array;
	size_t x;
};

static CUresult line(CUstream s, struct end to, struct end from, size_t bytes, bool sync)
{
	CUDA_MEMCPY3D d = {
		.srcMemoryType = from.type,
		.srcHost = from.host,
		.srcDevice = from.device,
		.srcArray = from.array,
		.srcXInBytes = from.x,
		.dstMemoryType = to.type,
		.dstHost = (void *)(uintptr_t)to.host,
		.dstDevice = to.device,
		.dstArray = to.array,
		.dstXInBytes = to.x,
		.WidthInBytes = bytes,
		.Height = 1,
		.Depth = 1,
	};

	return drv_copy(s, &d, sync);
}

#define END(...)              ((struct end){__VA_ARGS__})
#define SYNC(to, from, n)     line(pt ? CU_STREAM_PER_THREAD : CU_STREAM_LEGACY, to, from, n, true)
#define ASYNC(s, to, from, n) line(PICK(s), to, from, n, false)

TWIN(cuMemcpy, _ptds, (CUdeviceptr dst, CUdeviceptr src, size_t ByteCount),
	SYNC(END(ANY(dst), 0), END(ANY(src), 0), ByteCount))
TWIN(cuMemcpyAsync, _ptsz, (CUdeviceptr dst, CUdeviceptr src, size_t ByteCount, CUstream hStream),
	ASYNC(hStream, END(ANY(dst), 0), END(ANY(src), 0), ByteCount))
TWIN(cuMemcpyHtoD_v2, _ptds, (CUdeviceptr dstDevice, const void *srcHost, size_t ByteCount),
	SYNC(END(DEV(dstDevice), 0), END(HOST(srcHost), 0), ByteCount))
TWIN(cuMemcpyHtoDAsync_v2, _ptsz,
	(CUdeviceptr dstDevice, const void *srcHost, size_t ByteCount, CUstream hStream),
	ASYNC(hStream, END(DEV(dstDevice), 0), END(HOST(srcHost), 0), ByteCount))
TWIN(cuMemcpyDtoH_v2, _ptds, (void *dstHost, CUdeviceptr srcDevice, size_t ByteCount),
	SYNC(END(HOST(dstHost), 0), END(DEV(srcDevice), 0), ByteCount))
TWIN(cuMemcpyDtoHAsync_v2, _ptsz, (void *dstHost, CUdeviceptr srcDevice, size_t ByteCount, CUstream hStream),
	ASYNC(hStream, END(HOST(dstHost), 0), END(DEV(srcDevice), 0), ByteCount))
TWIN(cuMemcpyDtoD_v2, _ptds, (CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount),
	SYNC(END(DEV(dstDevice), 0), END(DEV(srcDevice), 0), ByteCount))
TWIN(cuMemcpyDtoDAsync_v2, _ptsz,
	(CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount, CUstream hStream),
	ASYNC(hStream, END(DEV(dstDevice), 0), END(DEV(srcDevice), 0), ByteCount))
TWIN(cuMemcpyPeer, _ptds,
	(CUdeviceptr dstDevice, CUcontext dstContext, CUdeviceptr srcDevice, CUcontext srcContext,
		size_t ByteCount),
	drv_ctx_valid(dstContext) && drv_ctx_valid(srcContext)
		? SYNC(END(DEV(dstDevice), 0), END(DEV(srcDevice), 0), ByteCount)
		: CUDA_ERROR_INVALID_CONTEXT)
TWIN(cuMemcpyPeerAsync, _ptsz,
	(CUdeviceptr dstDevice, CUcontext dstContext, CUdeviceptr srcDevice, CUcontext srcContext,
		size_t ByteCount, CUstream hStream),
	drv_ctx_valid(dstContext) && drv_ctx_valid(srcContext)
		? ASYNC(hStream, END(DEV(dstDevice), 0), END(DEV(srcDevice), 0), ByteCount)
		: CUDA_ERROR_INVALID_CONTEXT)
TWIN(cuMemcpyDtoA_v2, _ptds, (CUarray dstArray, size_t dstOffset, CUdeviceptr srcDevice, size_t ByteCount),
	SYNC(END(ARRAY(dstArray), dstOffset), END(DEV(srcDevice), 0), ByteCount))
TWIN(cuMemcpyAtoD_v2, _ptds, (CUdeviceptr dstDevice, CUarray srcArray, size_t srcOffset, size_t ByteCount),
	SYNC(END(DEV(dstDevice), 0), END(ARRAY(srcArray), srcOffset), ByteCount))
TWIN(cuMemcpyHtoA_v2, _ptds, (CUarray dstArray, size_t dstOffset, const void *srcHost, size_t ByteCount),
	SYNC(END(ARRAY(dstArray), dstOffset), END(HOST(srcHost), 0), ByteCount))
TWIN(cuMemcpyAtoH_v2, _ptds, (void *dstHost, CUarray srcArray, size_t srcOffset, size_t ByteCount),
	SYNC(END(HOST(dstHost), 0), END(ARRAY(srcArray), srcOffset), ByteCount))
TWIN(cuMemcpyAtoA_v2, _ptds,
	(CUarray dstArray, size_t dstOffset, CUarray srcArray, size_t srcOffset, size_t ByteCount),
	SYNC(END(ARRAY(dstArray), dstOffset), END(ARRAY(srcArray), srcOffset), ByteCount))
TWIN(cuMemcpyHtoAAsync_v2, _ptsz,
	(CUarray dstArray, size_t dstOffset, const void *srcHost, size_t ByteCount, CUstream hStream),
	ASYNC(hStream, END(ARRAY(dstArray), dstOffset), END(HOST(srcHost), 0), ByteCount))
TWIN(cuMemcpyAtoHAsync_v2, _ptsz,
	(void *dstHost, CUarray srcArray, size_t srcOffset, size_t ByteCount, CUstream hStream),
	ASYNC(hStream, END(HOST(dstHost), 0), END(ARRAY(srcArray), srcOffset), ByteCount))

static CUresult plane(CUstream s, const CUDA_MEMCPY2D *p, bool sync)
{
	CUDA_MEMCPY3D d;

	if (!p)
		return CUDA_ERROR_INVALID_VALUE;
	d = (CUDA_MEMCPY3D){
		.srcXInBytes = p->srcXInBytes,
		.srcY = p->srcY,
		.srcMemoryType = p->srcMemoryType,
		.srcHost = p->srcHost,
		.srcDevice = p->srcDevice,
		.srcArray = p->srcArray,
		.srcPitch = p->srcPitch,
		.dstXInBytes = p->dstXInBytes,
		.dstY = p->dstY,
		.dstMemoryType = p->dstMemoryType,
		.dstHost = p->dstHost,
		.dstDevice = p->dstDevice,
		.dstArray = p->dstArray,
		.dstPitch = p->dstPitch,
		.WidthInBytes = p->WidthInBytes,
		.Height = p->Height,
		.Depth = 1,
	};
	return drv_copy(s, &d, sync);
}
#define PLANE_SYNC plane(pt ? CU_STREAM_PER_THREAD : CU_STREAM_LEGACY, pCopy, true)
TWIN(cuMemcpy2D_v2, _ptds, (const CUDA_MEMCPY2D *pCopy), PLANE_SYNC)
TWIN(cuMemcpy2DUnaligned_v2, _ptds, (const CUDA_MEMCPY2D *pCopy), PLANE_SYNC)
TWIN(cuMemcpy2DAsync_v2, _ptsz, (const CUDA_MEMCPY2D *pCopy, CUstream hStream),
	plane(PICK(hStream), pCopy, false))

static CUresult volume(CUstream s, const CUDA_MEMCPY3D *p, bool sync)
{
	return p ? drv_copy(s, p, sync) : CUDA_ERROR_INVALID_VALUE;
}
TWIN(cuMemcpy3D_v2, _ptds, (const CUDA_MEMCPY3D *pCopy),
	volume(pt ? CU_STREAM_PER_THREAD : CU_STREAM_LEGACY, pCopy, true))
TWIN(cuMemcpy3DAsync_v2, _ptsz, (const CUDA_MEMCPY3D *pCopy, CUstream hStream),
	volume(PICK(hStream), pCopy, false))

/* The peer form differs from the plain form in two fields, which are reserved there. */
static CUresult peer_volume(CUstream s, const CUDA_MEMCPY3D_PEER *p, bool sync)
{
	_Static_assert(sizeof(CUDA_MEMCPY3D_PEER) == sizeof(CUDA_MEMCPY3D), "same layout");
	CUDA_MEMCPY3D d;

	if (!p)
		return CUDA_ERROR_INVALID_VALUE;
	memcpy(&d, p, sizeof(d));
	d.reserved0 = d.reserved1 = NULL;
	return drv_copy(s, &d, sync);
}
TWIN(cuMemcpy3DPeer, _ptds, (const CUDA_MEMCPY3D_PEER *pCopy),
	peer_volume(pt ? CU_STREAM_PER_THREAD : CU_STREAM_LEGACY, pCopy, true))
TWIN(cuMemcpy3DPeerAsync, _ptsz, (const CUDA_MEMCPY3D_PEER *pCopy, CUstream hStream),
	peer_volume(PICK(hStream), pCopy, false))

static CUresult batch(CUdeviceptr *dsts, CUdeviceptr *srcs, size_t *sizes, size_t count, CUstream s)
{
	if (!dsts || !srcs || !sizes || !count)
		return CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; i < count; i++)
		TRY(line(s, END(ANY(dsts[i]), 0), END(ANY(srcs[i]), 0), sizes[i], false));
	return CUDA_SUCCESS;
}
TWIN(cuMemcpyBatchAsync_v2, _ptsz,
	(CUdeviceptr * dsts, CUdeviceptr *srcs, size_t *sizes, size_t count, CUmemcpyAttributes *attrs,
		size_t *attrsIdxs, size_t numAttrs, CUstream hStream),
	((void)attrs, (void)attrsIdxs, (void)numAttrs, batch(dsts, srcs, sizes, count, PICK(hStream))))
TWIN(cuMemcpyBatchAsync, _ptsz,
	(CUdeviceptr * dsts, CUdeviceptr *srcs, size_t *sizes, size_t count, CUmemcpyAttributes *attrs,
		size_t *attrsIdxs, size_t numAttrs, size_t *failIdx, CUstream hStream),
	((void)attrs, (void)attrsIdxs, (void)numAttrs, (void)failIdx,
		batch(dsts, srcs, sizes, count, PICK(hStream))))

static void operand(const CUmemcpy3DOperand *o, const CUextent3D *e, struct end *end, size_t *y, size_t *z,
	size_t *pitch, size_t *height)
{
	if (o->type == CU_MEMCPY_OPERAND_TYPE_ARRAY) {
		*end = (struct end){ARRAY(o->op.array.array), o->op.array.offset.x};
		*y = o->op.array.offset.y;
		*z = o->op.array.offset.z;
		return;
	}
	*end = (struct end){ANY(o->op.ptr.ptr), 0};
	*pitch = o->op.ptr.rowLength ? o->op.ptr.rowLength : e->width;
	*height = o->op.ptr.layerHeight ? o->op.ptr.layerHeight : e->height;
}

/* Extents are in bytes: linear memory has no element size. */
static CUresult batch_3d(size_t n, CUDA_MEMCPY3D_BATCH_OP *list, unsigned long long flags, CUstream s)
{
	if (!n || !list || flags)
		return CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; i < n; i++) {
		CUDA_MEMCPY3D d = {.WidthInBytes = list[i].extent.width,
			.Height = list[i].extent.height,
			.Depth = list[i].extent.depth};
		struct end from, to;

		operand(&list[i].src, &list[i].extent, &from, &d.srcY, &d.srcZ, &d.srcPitch, &d.srcHeight);
		operand(&list[i].dst, &list[i].extent, &to, &d.dstY, &d.dstZ, &d.dstPitch, &d.dstHeight);
		d.srcMemoryType = from.type;
		d.srcDevice = from.device;
		d.srcArray = from.array;
		d.srcXInBytes = from.x;
		d.dstMemoryType = to.type;
		d.dstDevice = to.device;
		d.dstArray = to.array;
		d.dstXInBytes = to.x;
		TRY(drv_copy(s, &d, false));
	}
	return CUDA_SUCCESS;
}
TWIN(cuMemcpy3DBatchAsync_v2, _ptsz,
	(size_t numOps, CUDA_MEMCPY3D_BATCH_OP *opList, unsigned long long flags, CUstream hStream),
	batch_3d(numOps, opList, flags, PICK(hStream)))
TWIN(cuMemcpy3DBatchAsync, _ptsz,
	(size_t numOps, CUDA_MEMCPY3D_BATCH_OP *opList, size_t *failIdx, unsigned long long flags,
		CUstream hStream),
	((void)failIdx, batch_3d(numOps, opList, flags, PICK(hStream))))

#define SET(bits, type, element)                                                                             \
	TWIN(cuMemsetD##bits##_v2, _ptds, (CUdeviceptr dstDevice, type v, size_t N),                         \
		drv_memset(pt ? CU_STREAM_PER_THREAD : CU_STREAM_LEGACY, dstDevice, N *element, v, element,  \
			N, 1))                                                                               \
	TWIN(cuMemsetD##bits##Async, _ptsz, (CUdeviceptr dstDevice, type v, size_t N, CUstream hStream),     \
		drv_memset(PICK(hStream), dstDevice, N *element, v, element, N, 1))                          \
	TWIN(cuMemsetD2D##bits##_v2, _ptds,                                                                  \
		(CUdeviceptr dstDevice, size_t dstPitch, type v, size_t Width, size_t Height),               \
		drv_memset(pt ? CU_STREAM_PER_THREAD : CU_STREAM_LEGACY, dstDevice, dstPitch, v, element,    \
			Width, Height))                                                                      \
	TWIN(cuMemsetD2D##bits##Async, _ptsz,                                                                \
		(CUdeviceptr dstDevice, size_t dstPitch, type v, size_t Width, size_t Height,                \
			CUstream hStream),                                                                   \
		drv_memset(PICK(hStream), dstDevice, dstPitch, v, element, Width, Height))

SET(8, unsigned char, 1)
SET(16, unsigned short, 2)
SET(32, unsigned int, 4)
