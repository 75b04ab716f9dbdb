/*
 * Copies. Every form becomes one three-dimensional description. Whether the host waits follows the driver's rules: an
 * asynchronous call is asynchronous only between the device and pinned memory. From pageable memory, a small transfer
 * is staged at once, and the host waits for a large one. The host waits for copies into pageable memory. It never
 * waits for a copy within the device.
 */
#include "test/sim/driver/driver.h"
#include "test/sim/driver/copy.h"

#define STAGED_MAX (64u << 10)

enum side { SIDE_DEVICE, SIDE_PINNED, SIDE_PAGEABLE };

struct place {
	char *base;
	size_t pitch, height;
};

static enum side side_of(CUmemorytype type, const void *host, CUdeviceptr device)
{
	CUdeviceptr p = type == CU_MEMORYTYPE_HOST ? (CUdeviceptr)(uintptr_t)host : device;
	struct alloc *a;

	if (type == CU_MEMORYTYPE_ARRAY)
		return SIDE_DEVICE;
	a = drv_alloc_find(p);
	if (!a)
		return SIDE_PAGEABLE;
	return a->kind == ALLOC_HOST || a->kind == ALLOC_REGISTERED ? SIDE_PINNED : SIDE_DEVICE;
}

static enum side src_side(const CUDA_MEMCPY3D *d)
{
	return side_of(d->srcMemoryType, d->srcHost, d->srcDevice);
}

static enum side dst_side(const CUDA_MEMCPY3D *d)
{
	return side_of(d->dstMemoryType, d->dstHost, d->dstDevice);
}

static uint64_t bytes_of(const CUDA_MEMCPY3D *d)
{
	return (uint64_t)d->WidthInBytes * d->Height * d->Depth;
}

/* drv.lock held */
void drv_copy_cost(const struct task *t, struct sim_op *op)
{
	const CUDA_MEMCPY3D *d = &t->copy.desc;
	bool from = src_side(d) == SIDE_DEVICE, to = dst_side(d) == SIDE_DEVICE;
	double ns;

	op->bytes = bytes_of(d);
	if (from && to) {
		op->kind = SIM_OP_KERNEL;
		op->flags |= SIM_OP_COPY;
		op->occupancy = 1000;
		ns = 1000 + (double)op->bytes / drv.set->mem_gbps;
	} else {
		op->kind = from ? SIM_OP_D2H : SIM_OP_H2D;
		ns = (double)drv.set->copy_latency_ns + (double)op->bytes / drv.set->pcie_gbps;
	}
	op->work = (uint64_t)(ns * SIM_UNIT);
}

static struct place place_of(
	CUmemorytype type, const void *host, CUdeviceptr device, CUarray array, size_t pitch, size_t height)
{
	struct place p = {.pitch = pitch, .height = height};

	if (type == CU_MEMORYTYPE_ARRAY)
		p.base = drv_array_bytes(array, &p.pitch, &p.height);
	else
		p.base = type == CU_MEMORYTYPE_HOST ? (char *)(uintptr_t)host : (char *)(uintptr_t)device;
	return p;
}

static char *row(const struct place *p, size_t x, size_t y, size_t z)
{
	return p->base + (z * p->height + y) * p->pitch + x;
}

void drv_copy_run(const struct task *t)
{
	const CUDA_MEMCPY3D *d = &t->copy.desc;
	struct place from =
		place_of(d->srcMemoryType, d->srcHost, d->srcDevice, d->srcArray, d->srcPitch, d->srcHeight);
	struct place to =
		place_of(d->dstMemoryType, d->dstHost, d->dstDevice, d->dstArray, d->dstPitch, d->dstHeight);
	const char *staged = t->copy.staged;

	if (!to.base || (!from.base && !staged))
		return;
	for (size_t z = 0; z < d->Depth; z++) {
		for (size_t y = 0; y < d->Height; y++) {
			char *dst = row(&to, d->dstXInBytes, d->dstY + y, d->dstZ + z);

			if (staged) {
				memcpy(dst, staged, d->WidthInBytes);
				staged += d->WidthInBytes;
			} else {
				memmove(dst, row(&from, d->srcXInBytes, d->srcY + y, d->srcZ + z),
					d->WidthInBytes);
			}
		}
	}
}

static void *stage(const CUDA_MEMCPY3D *d)
{
	struct place from =
		place_of(d->srcMemoryType, d->srcHost, d->srcDevice, d->srcArray, d->srcPitch, d->srcHeight);
	char *copy = malloc(bytes_of(d)), *at = copy;

	for (size_t z = 0; copy && z < d->Depth; z++) {
		for (size_t y = 0; y < d->Height; y++) {
			memcpy(at, row(&from, d->srcXInBytes, d->srcY + y, d->srcZ + z), d->WidthInBytes);
			at += d->WidthInBytes;
		}
	}
	return copy;
}

/* Fills in the fields that may be left out, and checks the others. */
bool drv_copy_normal(CUDA_MEMCPY3D *d)
{
	if (!d->srcPitch)
		d->srcPitch = d->srcXInBytes + d->WidthInBytes;
	if (!d->dstPitch)
		d->dstPitch = d->dstXInBytes + d->WidthInBytes;
	if (!d->srcHeight)
		d->srcHeight = d->srcY + d->Height;
	if (!d->dstHeight)
		d->dstHeight = d->dstY + d->Height;
	if (d->srcMemoryType < CU_MEMORYTYPE_HOST || d->srcMemoryType > CU_MEMORYTYPE_UNIFIED ||
		d->dstMemoryType < CU_MEMORYTYPE_HOST || d->dstMemoryType > CU_MEMORYTYPE_UNIFIED)
		return false;
	if (d->srcMemoryType != CU_MEMORYTYPE_ARRAY && d->Height > 1 && d->srcPitch < d->WidthInBytes)
		return false;
	if (d->dstMemoryType != CU_MEMORYTYPE_ARRAY && d->Height > 1 && d->dstPitch < d->WidthInBytes)
		return false;
	return true;
}

/* drv.lock held. Checks that a device address belongs to an allocation, and that a flat range lies within it. */
static bool address_ok(CUmemorytype type, CUdeviceptr p, CUarray array, const void *host, uint64_t flat)
{
	struct alloc *a;

	if (type == CU_MEMORYTYPE_ARRAY)
		return array && array->mark == MARK_ARRAY;
	if (type == CU_MEMORYTYPE_HOST)
		return host != NULL;
	a = drv_alloc_find(p);
	if (!a)
		return type == CU_MEMORYTYPE_UNIFIED && p;
	return !flat || p + flat <= a->addr + a->bytes;
}

CUresult drv_copy(CUstream handle, const CUDA_MEMCPY3D *desc, bool sync)
{
	struct task t = {.kind = TASK_COPY, .copy = {.desc = *desc}};
	CUDA_MEMCPY3D *d = &t.copy.desc;
	enum side from, to;
	uint64_t flat;
	bool wait, ok;
	CUresult rc;
	CUstream s;

	if (!drv.ready)
		return drv_why();
	if (!drv_copy_normal(d))
		return CUDA_ERROR_INVALID_VALUE;
	/* With GPUSIM_EVENTS=slice even a copy of no bytes waits for the slice. */
	if (!bytes_of(d))
		return drv.set->slice_events ? drv_issue(handle, &(struct task){.kind = TASK_EMPTY}, sync)
					     : CUDA_SUCCESS;
	drv_cost(COST_COPY);
	flat = d->Height == 1 && d->Depth == 1 ? d->WidthInBytes : 0;
	drv_lock();
	rc = drv_stream(handle, &s);
	ok = rc == CUDA_SUCCESS &&
	     address_ok(d->srcMemoryType, d->srcDevice, d->srcArray, d->srcHost, flat) &&
	     address_ok(d->dstMemoryType, d->dstDevice, d->dstArray, d->dstHost, flat);
	if (rc == CUDA_SUCCESS && !ok)
		rc = CUDA_ERROR_INVALID_VALUE;
	if (rc != CUDA_SUCCESS) {
		drv_unlock();
		return rc;
	}
	from = src_side(d);
	to = dst_side(d);
	if (sync)
		wait = from != SIDE_DEVICE || to != SIDE_DEVICE;
	else
		wait = to == SIDE_PAGEABLE || (from == SIDE_PAGEABLE && bytes_of(d) > STAGED_MAX);
	if (s->capture && !sync)
		wait = false;
	else if (from == SIDE_PAGEABLE && !wait)
		t.copy.staged = stage(d);
	drv_unlock();
	/* In a capture only the asynchronous forms are allowed. */
	return drv_issue(handle, &t, wait || (sync && s->capture));
}

void drv_memset_run(const CUDA_MEMSET_NODE_PARAMS *p)
{
	char *line = (char *)(uintptr_t)p->dst;

	for (size_t y = 0; y < p->height; y++, line += p->pitch) {
		switch (p->elementSize) {
		case 1:
			memset(line, (int)p->value, p->width);
			break;
		case 2:
			for (size_t x = 0; x < p->width; x++)
				((uint16_t *)(void *)line)[x] = (uint16_t)p->value;
			break;
		default:
			for (size_t x = 0; x < p->width; x++)
				((uint32_t *)(void *)line)[x] = p->value;
			break;
		}
	}
}

bool drv_memset_normal(CUDA_MEMSET_NODE_PARAMS *p)
{
	if (p->elementSize != 1 && p->elementSize != 2 && p->elementSize != 4)
		return false;
	if (p->dst % p->elementSize || (p->height > 1 && p->pitch < p->width * p->elementSize))
		return false;
	return true;
}

CUresult drv_memset(CUstream handle, CUdeviceptr dst, size_t pitch, unsigned value, unsigned element,
	size_t width, size_t height)
{
	struct task t = {.kind = TASK_MEMSET,
		.set = {.dst = dst,
			.pitch = pitch,
			.value = value,
			.elementSize = element,
			.width = width,
			.height = height}};
	struct alloc *a;
	uint64_t last;
	bool ok;

	if (!drv.ready)
		return drv_why();
	if (!drv_memset_normal(&t.set))
		return CUDA_ERROR_INVALID_VALUE;
	if (!width || !height)
		return CUDA_SUCCESS;
	drv_cost(COST_COPY);
	last = (height - 1) * pitch + width * element;
	drv_lock();
	a = drv_alloc_find(dst);
	ok = a && dst + last <= a->addr + a->bytes;
	drv_unlock();
	return ok ? drv_issue(handle, &t, false) : CUDA_ERROR_INVALID_VALUE;
}
