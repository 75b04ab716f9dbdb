#include "preload/track/place.h"

#include "preload/hooks/hooks.h"
#include "preload/process/device.h"
#include "preload/process/own.h"
#include "preload/track/track.h"

/* How many copies of a batch are looked at. The copies of one batch are mostly between the same two GPUs. */
#define BATCH_LOOKED 8

/* Looked up here, because calls that are not hooked are not in the table. */
static __typeof__(cuStreamGetCtx) *find_get_context(void)
{
	static __typeof__(cuStreamGetCtx) *found;
	__typeof__(cuStreamGetCtx) *get = arb_word_load(&found);

	if (!get) {
		get = (__typeof__(get))arb_driver_symbol("cuStreamGetCtx");
		arb_word_store(&found, get);
	}
	return get;
}

CUcontext place_current(void)
{
	__typeof__(cuCtxGetCurrent) *current = arb_real(cuCtxGetCurrent);
	CUcontext ctx = NULL;

	return current && current(&ctx) == CUDA_SUCCESS ? ctx : NULL;
}

static bool is_default(CUstream stream)
{
	return !stream || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD;
}

CUcontext place_of(const struct act_call *call)
{
	__typeof__(cuStreamGetCtx) *get;
	CUcontext ctx;

	if (is_default(call->stream))
		return place_current();
	ctx = streams_context_of(call->stream);
	if (ctx)
		return ctx;
	get = find_get_context();
	return get && get(call->stream, &ctx) == CUDA_SUCCESS ? ctx : NULL;
}

static int ordinal(void)
{
	CUdevice device;

	return arb_device_ordinal(&device) ? device : -1;
}

bool place_enter(const struct act_call *call)
{
	__typeof__(cuCtxPushCurrent_v2) *push = arb_real(cuCtxPushCurrent_v2);
	CUcontext ctx;
	int before;

	if (is_default(call->stream) || arb_word_load(&arb_own.gpus) < 2)
		return false;
	ctx = place_of(call);
	if (!ctx || ctx == place_current() || !push || !arb_real(cuCtxPopCurrent_v2))
		return false;
	before = ordinal();
	if (push(ctx) != CUDA_SUCCESS)
		return false;
	if (ordinal() != before)
		arb_word_store(&arb_own.strays, 1);
	return true;
}

void place_leave(void)
{
	CUcontext popped;

	arb_real(cuCtxPopCurrent_v2)(&popped);
}

bool place_strays(void)
{
	return arb_word_load(&arb_own.strays) != 0;
}

/* Looked up here, because calls that are not hooked are not in the table. */
static __typeof__(cuPointerGetAttributes) *find_attributes(void)
{
	static __typeof__(cuPointerGetAttributes) *found;
	__typeof__(cuPointerGetAttributes) *get = arb_word_load(&found);

	if (!get) {
		get = (__typeof__(get))arb_driver_symbol("cuPointerGetAttributes");
		arb_word_store(&found, get);
	}
	return get;
}

struct peers {
	int here; /* the GPU of the stream */
	unsigned n;
	struct arb_device **list;
};

static void add(struct peers *peers, int device)
{
	struct arb_device *known = device >= 0 && device != peers->here ? arb_device_known(device) : NULL;

	if (!known || !arb_device_client(known) || peers->n == GATE_PEERS)
		return;
	for (unsigned i = 0; i < peers->n; i++)
		if (peers->list[i] == known)
			return;
	peers->list[peers->n++] = known;
}

/* Managed memory moves by itself, and pinned memory is in the host: neither says that another GPU has work. */
int place_of_address(CUdeviceptr address)
{
	__typeof__(cuPointerGetAttributes) *get = find_attributes();
	CUpointer_attribute which[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_IS_MANAGED,
		CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL};
	unsigned type = 0, managed = 0;
	int device = -1;
	void *answers[] = {&type, &managed, &device};

	if (address && get && get(3, which, answers, address) == CUDA_SUCCESS &&
		type == CU_MEMORYTYPE_DEVICE && !managed)
		return device;
	return -1;
}

static void add_address(struct peers *peers, CUdeviceptr address)
{
	add(peers, place_of_address(address));
}

static void add_end(struct peers *peers, CUmemorytype type, CUdeviceptr address)
{
	if (type == CU_MEMORYTYPE_DEVICE || type == CU_MEMORYTYPE_UNIFIED)
		add_address(peers, address);
}

static void add_operand(struct peers *peers, const CUmemcpy3DOperand *operand)
{
	if (operand->type == CU_MEMCPY_OPERAND_TYPE_POINTER)
		add_address(peers, operand->op.ptr.ptr);
}

/* An array has no address: the GPU of its memory is the one of the context that was given with it. */
static void add_context(struct peers *peers, CUcontext ctx)
{
	__typeof__(cuCtxPushCurrent_v2) *push = arb_real(cuCtxPushCurrent_v2);

	if (!ctx || !push || !arb_real(cuCtxPopCurrent_v2) || push(ctx) != CUDA_SUCCESS)
		return;
	add(peers, ordinal());
	place_leave();
}

static void add_described(struct peers *peers, const struct act_call *call)
{
	unsigned n = call->count < BATCH_LOOKED ? call->count : BATCH_LOOKED;

	switch (call->id) {
	case HOOK_cuMemcpy2D_v2:
	case HOOK_cuMemcpy2D_v2_ptds:
	case HOOK_cuMemcpy2DUnaligned_v2:
	case HOOK_cuMemcpy2DUnaligned_v2_ptds:
	case HOOK_cuMemcpy2DAsync_v2:
	case HOOK_cuMemcpy2DAsync_v2_ptsz: {
		const CUDA_MEMCPY2D *copy = call->desc;

		add_end(peers, copy->srcMemoryType, copy->srcDevice);
		add_end(peers, copy->dstMemoryType, copy->dstDevice);
		break;
	}
	case HOOK_cuMemcpy3D_v2:
	case HOOK_cuMemcpy3D_v2_ptds:
	case HOOK_cuMemcpy3DAsync_v2:
	case HOOK_cuMemcpy3DAsync_v2_ptsz: {
		const CUDA_MEMCPY3D *copy = call->desc;

		add_end(peers, copy->srcMemoryType, copy->srcDevice);
		add_end(peers, copy->dstMemoryType, copy->dstDevice);
		break;
	}
	case HOOK_cuMemcpy3DPeer:
	case HOOK_cuMemcpy3DPeer_ptds:
	case HOOK_cuMemcpy3DPeerAsync:
	case HOOK_cuMemcpy3DPeerAsync_ptsz: {
		const CUDA_MEMCPY3D_PEER *copy = call->desc;

		add_context(peers, copy->srcContext);
		add_context(peers, copy->dstContext);
		break;
	}
	case HOOK_cuMemcpy3DBatchAsync:
	case HOOK_cuMemcpy3DBatchAsync_ptsz:
	case HOOK_cuMemcpy3DBatchAsync_v2:
	case HOOK_cuMemcpy3DBatchAsync_v2_ptsz:
	case HOOK_cuMemcpy3DWithAttributesAsync:
	case HOOK_cuMemcpy3DWithAttributesAsync_ptsz: {
		const CUDA_MEMCPY3D_BATCH_OP *copy = call->desc;

		for (unsigned i = 0; i < n; i++) {
			add_operand(peers, &copy[i].src);
			add_operand(peers, &copy[i].dst);
		}
		break;
	}
	default:
		break;
	}
}

static bool is_launch(const struct act_call *call)
{
	return call->id == HOOK_cuGraphLaunch || call->id == HOOK_cuGraphLaunch_ptsz;
}

unsigned place_peers(const struct act_call *call, struct arb_device *list[GATE_PEERS])
{
	unsigned category = arb_hooks[call->id].category;
	struct peers peers = {.list = list};

	struct peers_graph graph;

	if (arb_word_load(&arb_own.gpus) < 2)
		return 0;
	if (category == CAT_GRAPH && arb_word_load(&arb_own.gate.graphs) && is_launch(call) &&
		peers_graph(call->handle, &graph)) {
		peers.here = ordinal();
		for (int i = 0; i < 64; i++)
			if (graph.devices >> i & 1)
				add(&peers, i);
		return peers.n;
	}
	if (category != CAT_COPY && category != CAT_COPY_SYNC)
		return 0;
	peers.here = ordinal();
	if (call->count && call->to && call->from) {
		for (unsigned i = 0; i < call->count && i < BATCH_LOOKED; i++) {
			add_address(&peers, ((const CUdeviceptr *)(uintptr_t)call->to)[i]);
			add_address(&peers, ((const CUdeviceptr *)(uintptr_t)call->from)[i]);
		}
	} else if (!call->count) {
		add_address(&peers, call->to);
		add_address(&peers, call->from);
	}
	if (call->desc && !call->to)
		add_described(&peers, call);
	return peers.n;
}
