/*
 * Texture and surface objects: descriptions through which kernels would read. No simulated kernel reads
 * through one, so they are only kept and given back.
 */
#include "test/sim/driver/driver.h"

struct object {
	struct object *next;
	bool surface;
	CUDA_RESOURCE_DESC resource;
	CUDA_TEXTURE_DESC texture;
	CUDA_RESOURCE_VIEW_DESC view;
	bool has_view;
};

/* drv.lock */
static struct object *objects;

static struct object **place_of(unsigned long long handle, bool surface)
{
	struct object **p = &objects;

	while (*p && ((uintptr_t)*p != handle || (*p)->surface != surface))
		p = &(*p)->next;
	return p;
}

static bool sane(const CUDA_RESOURCE_DESC *d, uint64_t align)
{
	if (!d || d->flags)
		return false;
	switch (d->resType) {
	case CU_RESOURCE_TYPE_ARRAY:
		return d->res.array.hArray;
	case CU_RESOURCE_TYPE_MIPMAPPED_ARRAY:
		return d->res.mipmap.hMipmappedArray;
	case CU_RESOURCE_TYPE_LINEAR:
		return d->res.linear.devPtr && d->res.linear.devPtr % align == 0;
	case CU_RESOURCE_TYPE_PITCH2D:
		return d->res.pitch2D.devPtr && d->res.pitch2D.devPtr % align == 0 &&
		       d->res.pitch2D.pitchInBytes % 32 == 0;
	default:
		return false;
	}
}

static CUresult create(unsigned long long *out, const struct object *from)
{
	struct object *o = malloc(sizeof(*o));

	if (!o)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*o = *from;
	drv_lock();
	o->next = objects;
	objects = o;
	drv_unlock();
	*out = (uintptr_t)o;
	return CUDA_SUCCESS;
}

static CUresult destroy(unsigned long long handle, bool surface)
{
	CUcontext ctx;
	struct object **p, *o;

	TRY(drv_current(&ctx));
	drv_lock();
	p = place_of(handle, surface);
	o = *p;
	if (o)
		*p = o->next;
	drv_unlock();
	free(o);
	return o ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult fetch(unsigned long long handle, bool surface, struct object *out)
{
	struct object *o;

	if (!drv.ready)
		return drv_why();
	drv_lock();
	o = *place_of(handle, surface);
	if (o)
		*out = *o;
	drv_unlock();
	return o ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuTexObjectCreate(CUtexObject *pTexObject, const CUDA_RESOURCE_DESC *pResDesc,
	const CUDA_TEXTURE_DESC *pTexDesc, const CUDA_RESOURCE_VIEW_DESC *pResViewDesc)
{
	struct object o = {0};
	CUcontext ctx;

	TRY(drv_current(&ctx));
	if (!pTexObject || !pTexDesc ||
		!sane(pResDesc, drv_attribute(ctx->device, CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT)))
		return CUDA_ERROR_INVALID_VALUE;
	o.resource = *pResDesc;
	o.texture = *pTexDesc;
	o.has_view = pResViewDesc;
	if (pResViewDesc)
		o.view = *pResViewDesc;
	return create(pTexObject, &o);
}

CUresult cuTexObjectDestroy(CUtexObject texObject)
{
	return destroy(texObject, false);
}

CUresult cuTexObjectGetResourceDesc(CUDA_RESOURCE_DESC *pResDesc, CUtexObject texObject)
{
	struct object o;

	TRY(fetch(texObject, false, &o));
	if (!pResDesc)
		return CUDA_ERROR_INVALID_VALUE;
	*pResDesc = o.resource;
	return CUDA_SUCCESS;
}

CUresult cuTexObjectGetTextureDesc(CUDA_TEXTURE_DESC *pTexDesc, CUtexObject texObject)
{
	struct object o;

	TRY(fetch(texObject, false, &o));
	if (!pTexDesc)
		return CUDA_ERROR_INVALID_VALUE;
	*pTexDesc = o.texture;
	return CUDA_SUCCESS;
}

CUresult cuTexObjectGetResourceViewDesc(CUDA_RESOURCE_VIEW_DESC *pResViewDesc, CUtexObject texObject)
{
	struct object o;

	TRY(fetch(texObject, false, &o));
	if (!pResViewDesc || !o.has_view)
		return CUDA_ERROR_INVALID_VALUE;
	*pResViewDesc = o.view;
	return CUDA_SUCCESS;
}

CUresult cuSurfObjectCreate(CUsurfObject *pSurfObject, const CUDA_RESOURCE_DESC *pResDesc)
{
	struct object o = {.surface = true};
	CUcontext ctx;

	TRY(drv_current(&ctx));
	if (!pSurfObject || !sane(pResDesc, 1) || pResDesc->resType != CU_RESOURCE_TYPE_ARRAY)
		return CUDA_ERROR_INVALID_VALUE;
	o.resource = *pResDesc;
	return create(pSurfObject, &o);
}

CUresult cuSurfObjectDestroy(CUsurfObject surfObject)
{
	return destroy(surfObject, true);
}

CUresult cuSurfObjectGetResourceDesc(CUDA_RESOURCE_DESC *pResDesc, CUsurfObject surfObject)
{
	struct object o;

	TRY(fetch(surfObject, true, &o));
	if (!pResDesc)
		return CUDA_ERROR_INVALID_VALUE;
	*pResDesc = o.resource;
	return CUDA_SUCCESS;
}

/* Succeeds, although no profiler is attached. */
CUresult cuProfilerStart(void)
{
	CUcontext ctx;

	return drv_current(&ctx);
}

CUresult cuProfilerStop(void)
{
	CUcontext ctx;

	return drv_current(&ctx);
}
