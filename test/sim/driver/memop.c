/* Streams that wait for a value in memory or write one. */
#include "test/sim/driver/driver.h"

static uint64_t value_at(const struct task *t)
{
	if (t->memop.wide)
		return __atomic_load_n((uint64_t *)(uintptr_t)t->memop.addr, __ATOMIC_ACQUIRE);
	return __atomic_load_n((uint32_t *)(uintptr_t)t->memop.addr, __ATOMIC_ACQUIRE);
}

/* Returns whether a task's wait is over; true for a task that waits for nothing. */
bool drv_memop_met(const struct task *t)
{
	uint64_t have, want, all = t->memop.wide ? UINT64_MAX : UINT32_MAX;

	if (t->kind != TASK_MEMOP || !t->memop.wait)
		return true;
	have = value_at(t);
	want = t->memop.value & all;
	switch (t->memop.how & 3) {
	case CU_STREAM_WAIT_VALUE_GEQ:
		/* A cyclic comparison, as the manual says: the difference is signed. */
		return t->memop.wide ? (int64_t)(have - want) >= 0 : (int32_t)(uint32_t)(have - want) >= 0;
	case CU_STREAM_WAIT_VALUE_EQ:
		return have == want;
	case CU_STREAM_WAIT_VALUE_AND:
		return (have & want) != 0;
	default:
		return (~(have | want) & all) != 0;
	}
}

void drv_memop_write(const struct task *t)
{
	if (t->memop.wait)
		return;
	if (t->memop.wide)
		__atomic_store_n((uint64_t *)(uintptr_t)t->memop.addr, t->memop.value, __ATOMIC_RELEASE);
	else
		__atomic_store_n(
			(uint32_t *)(uintptr_t)t->memop.addr, (uint32_t)t->memop.value, __ATOMIC_RELEASE);
}

static CUresult memop(CUstream handle, CUdeviceptr addr, uint64_t value, unsigned flags, bool wait, bool wide)
{
	struct task t = {.kind = TASK_MEMOP, .memop = {addr, value, flags, wait, wide}};
	struct alloc *a;

	if (!drv.ready)
		return drv_why();
	if (!addr || addr % (wide ? 8 : 4) || flags & ~(wait ? 0x40000003u : 1u))
		return CUDA_ERROR_INVALID_VALUE;
	drv_lock();
	a = drv_alloc_find(addr);
	drv_unlock();
	if (!a)
		return CUDA_ERROR_INVALID_VALUE;
	drv_cost(COST_EVENT);
	return drv_issue(handle, &t, false);
}

#define MEMOP(bits, wide)                                                                                    \
	TWIN(cuStreamWaitValue##bits, _ptsz,                                                                 \
		(CUstream stream, CUdeviceptr addr, cuuint##bits##_t value, unsigned int flags),             \
		memop(PICK(stream), addr, value, flags, true, wide))                                         \
	TWIN(cuStreamWaitValue##bits##_v2, _ptsz,                                                            \
		(CUstream stream, CUdeviceptr addr, cuuint##bits##_t value, unsigned int flags),             \
		memop(PICK(stream), addr, value, flags, true, wide))                                         \
	TWIN(cuStreamWriteValue##bits, _ptsz,                                                                \
		(CUstream stream, CUdeviceptr addr, cuuint##bits##_t value, unsigned int flags),             \
		memop(PICK(stream), addr, value, flags, false, wide))                                        \
	TWIN(cuStreamWriteValue##bits##_v2, _ptsz,                                                           \
		(CUstream stream, CUdeviceptr addr, cuuint##bits##_t value, unsigned int flags),             \
		memop(PICK(stream), addr, value, flags, false, wide))

MEMOP(32, false)
MEMOP(64, true)

static CUresult batch(CUstream s, unsigned n, const CUstreamBatchMemOpParams *list, unsigned flags)
{
	if (flags || (n && !list) || n > 256)
		return CUDA_ERROR_INVALID_VALUE;
	for (unsigned i = 0; i < n; i++) {
		const CUstreamBatchMemOpParams *p = &list[i];

		switch (p->operation) {
		case CU_STREAM_MEM_OP_WAIT_VALUE_32:
			TRY(memop(s, p->waitValue.address, p->waitValue.value, p->waitValue.flags, true,
				false));
			break;
		case CU_STREAM_MEM_OP_WAIT_VALUE_64:
			TRY(memop(s, p->waitValue.address, p->waitValue.value64, p->waitValue.flags, true,
				true));
			break;
		case CU_STREAM_MEM_OP_WRITE_VALUE_32:
			TRY(memop(s, p->writeValue.address, p->writeValue.value, p->writeValue.flags, false,
				false));
			break;
		case CU_STREAM_MEM_OP_WRITE_VALUE_64:
			TRY(memop(s, p->writeValue.address, p->writeValue.value64, p->writeValue.flags, false,
				true));
			break;
		case CU_STREAM_MEM_OP_BARRIER:
		case CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES:
			break;
		default:
			return CUDA_ERROR_INVALID_VALUE;
		}
	}
	return CUDA_SUCCESS;
}
TWIN(cuStreamBatchMemOp, _ptsz,
	(CUstream stream, unsigned int count, CUstreamBatchMemOpParams *paramArray, unsigned int flags),
	batch(PICK(stream), count, paramArray, flags))
TWIN(cuStreamBatchMemOp_v2, _ptsz,
	(CUstream stream, unsigned int count, CUstreamBatchMemOpParams *paramArray, unsigned int flags),
	batch(PICK(stream), count, paramArray, flags))
