/*
 * Runtime: copies and fills, in both forms for both default streams.
 */
#include "test/sim/runtime/cudart.h"

#define DEV(p) ((CUdeviceptr)(uintptr_t)(p))

static cudaError_t copy(int pt, void *dst, const void *src, size_t n, enum cudaMemcpyKind kind)
{
	RT_ENTER();
	switch (kind) {
	case cudaMemcpyHostToDevice:
		return rt_result(rt_drv.cuMemcpyHtoD[pt](DEV(dst), src, n));
	case cudaMemcpyDeviceToHost:
		return rt_result(rt_drv.cuMemcpyDtoH[pt](dst, DEV(src), n));
	case cudaMemcpyDeviceToDevice:
		return rt_result(rt_drv.cuMemcpyDtoD[pt](DEV(dst), DEV(src), n));
	case cudaMemcpyHostToHost:
	case cudaMemcpyDefault:
		return rt_result(rt_drv.cuMemcpy[pt](DEV(dst), DEV(src), n));
	}
	return rt_result(cudaErrorInvalidMemcpyDirection);
}

RT_BOTH(cudaMemcpy, _ptds, copy, (void *dst, const void *src, size_t count, enum cudaMemcpyKind kind), dst,
	src, count, kind)

static cudaError_t copy_async(
	int pt, void *dst, const void *src, size_t n, enum cudaMemcpyKind kind, cudaStream_t stream)
{
	RT_ENTER();
	switch (kind) {
	case cudaMemcpyHostToDevice:
		return rt_result(rt_drv.cuMemcpyHtoDAsync[pt](DEV(dst), src, n, stream));
	case cudaMemcpyDeviceToHost:
		return rt_result(rt_drv.cuMemcpyDtoHAsync[pt](dst, DEV(src), n, stream));
	case cudaMemcpyDeviceToDevice:
		return rt_result(rt_drv.cuMemcpyDtoDAsync[pt](DEV(dst), DEV(src), n, stream));
	case cudaMemcpyHostToHost:
	case cudaMemcpyDefault:
		return rt_result(rt_drv.cuMemcpyAsync[pt](DEV(dst), DEV(src), n, stream));
	}
	return rt_result(cudaErrorInvalidMemcpyDirection);
}

RT_BOTH(cudaMemcpyAsync, _ptsz, copy_async,
	(void *dst, const void *src, size_t count, enum cudaMemcpyKind kind, cudaStream_t stream), dst, src,
	count, kind, stream)

/* All devices share an address space, so a copy between devices is an ordinary copy. */
cudaError_t cudaMemcpyPeer(void *dst, int dstDevice, const void *src, int srcDevice, size_t count)
{
	(void)dstDevice, (void)srcDevice;
	return copy(0, dst, src, count, cudaMemcpyDefault);
}

cudaError_t cudaMemcpyPeerAsync(
	void *dst, int dstDevice, const void *src, int srcDevice, size_t count, cudaStream_t stream)
{
	(void)dstDevice, (void)srcDevice;
	return copy_async(0, dst, src, count, cudaMemcpyDefault, stream);
}

static int describe(CUDA_MEMCPY2D *c, void *dst, size_t dpitch, const void *src, size_t spitch, size_t width,
	size_t height, enum cudaMemcpyKind kind)
{
	static const CUmemorytype from[] = {CU_MEMORYTYPE_HOST, CU_MEMORYTYPE_HOST, CU_MEMORYTYPE_DEVICE,
		CU_MEMORYTYPE_DEVICE, CU_MEMORYTYPE_UNIFIED};
	static const CUmemorytype to[] = {CU_MEMORYTYPE_HOST, CU_MEMORYTYPE_DEVICE, CU_MEMORYTYPE_HOST,
		CU_MEMORYTYPE_DEVICE, CU_MEMORYTYPE_UNIFIED};

	if ((unsigned int)kind > cudaMemcpyDefault)
		return 0;
	*c = (CUDA_MEMCPY2D){
		.srcMemoryType = from[kind],
		.srcHost = src,
		.srcDevice = DEV(src),
		.srcPitch = spitch,
		.dstMemoryType = to[kind],
		.dstHost = dst,
		.dstDevice = DEV(dst),
		.dstPitch = dpitch,
		.WidthInBytes = width,
		.Height = height,
	};
	return 1;
}

static cudaError_t copy_2d(int pt, void *dst, size_t dpitch, const void *src, size_t spitch, size_t width,
	size_t height, enum cudaMemcpyKind kind)
{
	CUDA_MEMCPY2D c;

	RT_ENTER();
	if (!describe(&c, dst, dpitch, src, spitch, width, height, kind))
		return rt_result(cudaErrorInvalidMemcpyDirection);
	return rt_result(rt_drv.cuMemcpy2DUnaligned[pt](&c));
}

RT_BOTH(cudaMemcpy2D, _ptds, copy_2d,
	(void *dst, size_t dpitch, const void *src, size_t spitch, size_t width, size_t height,
		enum cudaMemcpyKind kind),
	dst, dpitch, src, spitch, width, height, kind)

static cudaError_t copy_2d_async(int pt, void *dst, size_t dpitch, const void *src, size_t spitch,
	size_t width, size_t height, enum cudaMemcpyKind kind, cudaStream_t stream)
{
	CUDA_MEMCPY2D c;

	RT_ENTER();
	if (!describe(&c, dst, dpitch, src, spitch, width, height, kind))
		return rt_result(cudaErrorInvalidMemcpyDirection);
	return rt_result(rt_drv.cuMemcpy2DAsync[pt](&c, stream));
}

RT_BOTH(cudaMemcpy2DAsync, _ptsz, copy_2d_async,
	(void *dst, size_t dpitch, const void *src, size_t spitch, size_t width, size_t height,
		enum cudaMemcpyKind kind, cudaStream_t stream),
	dst, dpitch, src, spitch, width, height, kind, stream)

/* Finds the address in a variable of the program, and checks that the range lies within the variable. */
static cudaError_t inside(const void *symbol, size_t count, size_t offset, char **at)
{
	size_t size = 0;
	cudaError_t e = cudaGetSymbolAddress((void **)at, symbol);

	if (!e)
		e = cudaGetSymbolSize(&size, symbol);
	if (!e && (offset > size || count > size - offset))
		e = rt_result(cudaErrorInvalidValue);
	*at += e ? 0 : offset;
	return e;
}

static cudaError_t to_symbol(
	int pt, const void *symbol, const void *src, size_t count, size_t offset, enum cudaMemcpyKind kind)
{
	char *at = NULL;
	cudaError_t e = inside(symbol, count, offset, &at);

	return e ? e : copy(pt, at, src, count, kind);
}

RT_BOTH(cudaMemcpyToSymbol, _ptds, to_symbol,
	(const void *symbol, const void *src, size_t count, size_t offset, enum cudaMemcpyKind kind), symbol,
	src, count, offset, kind)

static cudaError_t from_symbol(
	int pt, void *dst, const void *symbol, size_t count, size_t offset, enum cudaMemcpyKind kind)
{
	char *at = NULL;
	cudaError_t e = inside(symbol, count, offset, &at);

	return e ? e : copy(pt, dst, at, count, kind);
}

RT_BOTH(cudaMemcpyFromSymbol, _ptds, from_symbol,
	(void *dst, const void *symbol, size_t count, size_t offset, enum cudaMemcpyKind kind), dst, symbol,
	count, offset, kind)

static cudaError_t to_symbol_async(int pt, const void *symbol, const void *src, size_t count, size_t offset,
	enum cudaMemcpyKind kind, cudaStream_t stream)
{
	char *at = NULL;
	cudaError_t e = inside(symbol, count, offset, &at);

	return e ? e : copy_async(pt, at, src, count, kind, stream);
}

RT_BOTH(cudaMemcpyToSymbolAsync, _ptsz, to_symbol_async,
	(const void *symbol, const void *src, size_t count, size_t offset, enum cudaMemcpyKind kind,
		cudaStream_t stream),
	symbol, src, count, offset, kind, stream)

static cudaError_t from_symbol_async(int pt, void *dst, const void *symbol, size_t count, size_t offset,
	enum cudaMemcpyKind kind, cudaStream_t stream)
{
	char *at = NULL;
	cudaError_t e = inside(symbol, count, offset, &at);

	return e ? e : copy_async(pt, dst, at, count, kind, stream);
}

RT_BOTH(cudaMemcpyFromSymbolAsync, _ptsz, from_symbol_async,
	(void *dst, const void *symbol, size_t count, size_t offset, enum cudaMemcpyKind kind,
		cudaStream_t stream),
	dst, symbol, count, offset, kind, stream)

static cudaError_t fill(int pt, void *p, int value, size_t n)
{
	RT_CALL(rt_drv.cuMemsetD8[pt](DEV(p), (unsigned char)value, n));
}

RT_BOTH(cudaMemset, _ptds, fill, (void *devPtr, int value, size_t count), devPtr, value, count)

static cudaError_t fill_async(int pt, void *p, int value, size_t n, cudaStream_t stream)
{
	RT_CALL(rt_drv.cuMemsetD8Async[pt](DEV(p), (unsigned char)value, n, stream));
}

RT_BOTH(cudaMemsetAsync, _ptsz, fill_async, (void *devPtr, int value, size_t count, cudaStream_t stream),
	devPtr, value, count, stream)

static cudaError_t fill_2d(int pt, void *p, size_t pitch, int value, size_t width, size_t height)
{
	RT_CALL(rt_drv.cuMemsetD2D8[pt](DEV(p), pitch, (unsigned char)value, width, height));
}

RT_BOTH(cudaMemset2D, _ptds, fill_2d, (void *devPtr, size_t pitch, int value, size_t width, size_t height),
	devPtr, pitch, value, width, height)

static cudaError_t fill_2d_async(
	int pt, void *p, size_t pitch, int value, size_t width, size_t height, cudaStream_t stream)
{
	RT_CALL(rt_drv.cuMemsetD2D8Async[pt](DEV(p), pitch, (unsigned char)value, width, height, stream));
}

RT_BOTH(cudaMemset2DAsync, _ptsz, fill_2d_async,
	(void *devPtr, size_t pitch, int value, size_t width, size_t height, cudaStream_t stream), devPtr,
	pitch, value, width, height, stream)
