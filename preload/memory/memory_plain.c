/*
 * Memory that a pointer or an array stands for. An entry is taken out of the table before the driver frees the memory,
 * because afterwards another thread may get the same address. The entry goes back in if the driver refuses. So of two
 * frees of one pointer only one counts, even if they run at the same time.
 */
#include "preload/memory/memory.h"

#include "preload/process/device.h"

#include <stddef.h>

#define ROW   512u       /* rows of pitched memory and of arrays are a multiple of this */
#define SMALL 512u       /* allocations below half a page share pages, in steps of this */
#define PAGE  (2u << 20) /* larger allocations have whole pages of their own */

static uint64_t times(uint64_t a, uint64_t b)
{
	uint64_t product;

	return __builtin_mul_overflow(a, b, &product) ? UINT64_MAX : product;
}

static uint64_t rounded(uint64_t bytes, uint64_t unit)
{
	return bytes > UINT64_MAX - unit ? UINT64_MAX : (bytes + unit - 1) / unit * unit;
}

static uint64_t row(uint64_t bytes)
{
	return rounded(bytes, ROW);
}

/* Counts what the device loses, not what was asked for: otherwise allocations of half a page each would take twice the
 * quota. */
uint64_t memory_pages(uint64_t bytes)
{
	return rounded(bytes, bytes < PAGE / 2 ? SMALL : PAGE);
}

static unsigned format_bytes(CUarray_format format)
{
	switch (format) {
	case CU_AD_FORMAT_UNSIGNED_INT8:
	case CU_AD_FORMAT_SIGNED_INT8:
	case CU_AD_FORMAT_NV12:
		return 1;
	case CU_AD_FORMAT_UNSIGNED_INT16:
	case CU_AD_FORMAT_SIGNED_INT16:
	case CU_AD_FORMAT_HALF:
		return 2;
	default:
		return 4;
	}
}

/* Fills in the description of the array, in the form that covers all others. False: the call takes no memory of its
 * own. */
static bool describe(const struct act_call *call, CUDA_ARRAY3D_DESCRIPTOR *d)
{
	*d = (CUDA_ARRAY3D_DESCRIPTOR){0};
	if (!call->desc)
		return false;
	switch (call->id) {
	case HOOK_cuArrayCreate: {
		const CUDA_ARRAY_DESCRIPTOR_v1 *v = call->desc;

		*d = (CUDA_ARRAY3D_DESCRIPTOR){v->Width, v->Height, 0, v->Format, v->NumChannels, 0};
		return true;
	}
	case HOOK_cuArrayCreate_v2: {
		const CUDA_ARRAY_DESCRIPTOR *v = call->desc;

		*d = (CUDA_ARRAY3D_DESCRIPTOR){v->Width, v->Height, 0, v->Format, v->NumChannels, 0};
		return true;
	}
	case HOOK_cuArray3DCreate: {
		const CUDA_ARRAY3D_DESCRIPTOR_v1 *v = call->desc;

		*d = (CUDA_ARRAY3D_DESCRIPTOR){
			v->Width, v->Height, v->Depth, v->Format, v->NumChannels, v->Flags};
		break;
	}
	case HOOK_cuArray3DCreate_v2:
	case HOOK_cuMipmappedArrayCreate:
		*d = *(const CUDA_ARRAY3D_DESCRIPTOR *)call->desc;
		break;
	default:
		return false;
	}
	/* The memory of a sparse array, or of one that is mapped later, comes from cuMemCreate and is counted there. */
	return !(d->Flags & (CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING));
}

static uint64_t array_bytes(const struct act_call *call)
{
	unsigned levels = call->id == HOOK_cuMipmappedArrayCreate ? call->count : 1;
	CUDA_ARRAY3D_DESCRIPTOR d;
	uint64_t sum = 0;

	if (!describe(call, &d))
		return 0;
	for (unsigned i = 0; i < levels && i < 32; i++) {
		uint64_t line = row(times(d.Width, (uint64_t)format_bytes(d.Format) * d.NumChannels));
		uint64_t level = times(times(line, d.Height ? d.Height : 1), d.Depth ? d.Depth : 1);

		sum = sum > UINT64_MAX - level ? UINT64_MAX : sum + level;
		d.Width = d.Width > 1 ? d.Width / 2 : 1;
		d.Height = d.Height > 1 ? d.Height / 2 : d.Height;
		/* The layers of a layered array are the same on every level. */
		if (!(d.Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP)))
			d.Depth = d.Depth > 1 ? d.Depth / 2 : d.Depth;
	}
	return sum;
}

/* Returns what is reserved before the call. The answer depends on the call alone, so it can be computed again later. */
uint64_t memory_plain_bytes(const struct act_call *call)
{
	if (arb_hooks[call->id].category == CAT_ARRAY)
		return memory_pages(array_bytes(call));
	if (!call->out2)
		return memory_pages(call->bytes);
	return call->aux ? memory_pages(times(row(call->bytes / call->aux), call->aux)) : 0;
}

/* Returns how much the driver says that it has taken; if it does not say, `expected`. */
static uint64_t actual(const struct act_call *call, uint64_t key, uint64_t expected)
{
	__typeof__(cuArrayGetMemoryRequirements) *array;
	__typeof__(cuMipmappedArrayGetMemoryRequirements) *mipmap;
	CUDA_ARRAY_MEMORY_REQUIREMENTS needs = {0};
	CUresult result = CUDA_ERROR_NOT_SUPPORTED;
	CUdevice ordinal;

	if (call->id == HOOK_cuMemAllocPitch)
		return memory_pages(times(*(unsigned *)call->out2, call->aux));
	if (call->id == HOOK_cuMemAllocPitch_v2)
		return memory_pages(times(*(size_t *)call->out2, call->aux));
	if (arb_hooks[call->id].category != CAT_ARRAY || !expected || !memory_ordinal(&ordinal))
		return expected;
	array = arb_real(cuArrayGetMemoryRequirements);
	mipmap = arb_real(cuMipmappedArrayGetMemoryRequirements);
	/* Drivers answer this for some arrays only. */
	if (call->id == HOOK_cuMipmappedArrayCreate)
		result = mipmap ? mipmap(&needs, (CUmipmappedArray)(uintptr_t)key, ordinal) : result;
	else
		result = array ? array(&needs, (CUarray)(uintptr_t)key, ordinal) : result;
	return result == CUDA_SUCCESS && needs.size ? memory_pages(needs.size) : expected;
}

static uint64_t made(const struct act_call *call)
{
	if (call->id == HOOK_cuMemAlloc || call->id == HOOK_cuMemAllocPitch)
		return *(CUdeviceptr_v1 *)call->out;
	if (arb_hooks[call->id].category == CAT_ARRAY)
		return (uintptr_t) * (void **)call->out;
	return *(CUdeviceptr *)call->out;
}

static void unmake(const struct act_call *call, uint64_t key)
{
	if (call->id == HOOK_cuMipmappedArrayCreate)
		arb_real(cuMipmappedArrayDestroy)((CUmipmappedArray)(uintptr_t)key);
	else if (arb_hooks[call->id].category == CAT_ARRAY)
		arb_real(cuArrayDestroy)((CUarray)(uintptr_t)key);
	else if (call->id == HOOK_cuMemAlloc || call->id == HOOK_cuMemAllocPitch)
		arb_real(cuMemFree)((CUdeviceptr_v1)key);
	else
		arb_real(cuMemFree_v2)(key);
}

/* To be called after the driver's answer: puts what it made into the table, and gives back what was reserved in vain. */
static CUresult finish(
	struct act_call *call, struct arb_device *device, uint64_t expected, unsigned kind, CUresult result)
{
	__typeof__(cuCtxGetCurrent) *current = arb_real(cuCtxGetCurrent);
	struct memory_entry entry = {.device = device, .kind = kind};

	if (result != CUDA_SUCCESS) {
		memory_release(device, expected);
		return result;
	}
	entry.key = made(call);
	entry.bytes = actual(call, entry.key, expected);
	if (entry.bytes > expected && !memory_reserve_hard(device, entry.bytes - expected, MEMORY_ALL)) {
		unmake(call, entry.key);
		memory_release(device, expected);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	if (entry.bytes < expected)
		memory_release(device, expected - entry.bytes);
	if (current)
		current((CUcontext *)&entry.owner);
	entry.epoch = memory_epoch();
	/* If the table has no room the memory stays counted until the process ends, which is the safe side. */
	memory_table_put(&entry);
	return result;
}

bool memory_plain_before(struct act_call *call, CUresult *result)
{
	struct arb_device *device;
	uint64_t bytes;

	if (call->id == HOOK_cuArrayDestroy || call->id == HOOK_cuMipmappedArrayDestroy) {
		memory_free_before(call);
		return true;
	}
	bytes = memory_plain_bytes(call);
	device = bytes ? arb_device_current() : NULL;
	if (!device)
		return true;
	if (!memory_reserve_hard(device, bytes, MEMORY_ALL)) {
		*result = CUDA_ERROR_OUT_OF_MEMORY;
		return false;
	}
	if (memory_managed_wanted(device, call)) {
		size_t pitch = call->out2 ? row(call->bytes / call->aux) : 0;

		*result =
			memory_managed_alloc(call, call->out2 ? times(pitch, call->aux) : call->bytes, pitch);
		finish(call, device, bytes, MEMORY_MANAGED, *result);
		if (*result == CUDA_ERROR_OUT_OF_MEMORY)
			memory_driver_refused(device, bytes);
		return false;
	}
	call->token = (uintptr_t)device;
	return true;
}

CUresult memory_plain_after(struct act_call *call, CUresult result)
{
	struct arb_device *device = (struct arb_device *)(uintptr_t)call->token;
	unsigned kind = arb_hooks[call->id].category == CAT_ARRAY ? MEMORY_ARRAY : MEMORY_PLAIN;

	if (call->id == HOOK_cuArrayDestroy || call->id == HOOK_cuMipmappedArrayDestroy) {
		memory_free_after(call, result);
		return result;
	}
	return device ? finish(call, device, memory_plain_bytes(call), kind, result) : result;
}

/* Keeps the taken entry in those fields of the call that a free does not use. */
static void pack(struct act_call *call, const struct memory_entry *e)
{
	call->bytes = e->bytes;
	call->out = e->owner;
	call->out2 = e->device;
	call->aux = e->epoch;
	call->count = e->kind;
	call->token = 1;
}

void memory_free_before(struct act_call *call)
{
	unsigned kinds = arb_hooks[call->id].category == CAT_ARRAY
				 ? MEMORY_ARRAY
				 : MEMORY_PLAIN | MEMORY_MANAGED | MEMORY_POOLED | MEMORY_ORDERED;
	struct memory_entry entry;

	call->token = 0;
	if (call->handle && memory_table_take(call->handle, kinds, &entry))
		pack(call, &entry);
}

void memory_free_after(struct act_call *call, CUresult result)
{
	struct memory_entry entry = {.key = call->handle,
		.bytes = call->bytes,
		.owner = call->out,
		.device = call->out2,
		.epoch = call->aux,
		.kind = call->count};

	if (!call->token)
		return;
	if (result != CUDA_SUCCESS)
		memory_table_put(&entry);
	else if (entry.kind == MEMORY_POOLED)
		memory_pool_freed(&entry, call);
	else
		memory_release(entry.device, entry.bytes);
}
