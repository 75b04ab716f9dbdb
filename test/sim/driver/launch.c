/* Kernel launches in all their forms. */
#include "test/sim/driver/driver.h"

/* Reads the parameters of a built-in kernel. Those of other kernels are unknown and not read. */
static CUresult read_args(const struct builtin *b, void **params, void **extra, uint64_t *args)
{
	const unsigned char *buffer = NULL;
	size_t have = 0, at = 0;

	if (!b || !b->nparams)
		return CUDA_SUCCESS;
	if (params && extra)
		return CUDA_ERROR_INVALID_VALUE;
	if (params) {
		for (unsigned i = 0; i < b->nparams; i++) {
			uint32_t small;

			/* With a constant size, so that memcpy is inlined. */
			if (b->size[i] == sizeof(args[i])) {
				memcpy(&args[i], params[i], sizeof(args[i]));
			} else {
				memcpy(&small, params[i], sizeof(small));
				args[i] = small;
			}
		}
		return CUDA_SUCCESS;
	}
	for (; extra && *extra != CU_LAUNCH_PARAM_END; extra += 2) {
		if (*extra == CU_LAUNCH_PARAM_BUFFER_POINTER)
			buffer = extra[1];
		else if (*extra == CU_LAUNCH_PARAM_BUFFER_SIZE)
			have = *(size_t *)extra[1];
		else
			return CUDA_ERROR_INVALID_VALUE;
	}
	for (unsigned i = 0; i < b->nparams; i++) {
		at = (at + b->size[i] - 1) / b->size[i] * b->size[i];
		if (!buffer || at + b->size[i] > have)
			return CUDA_ERROR_INVALID_VALUE;
		args[i] = 0;
		memcpy(&args[i], buffer + at, b->size[i]);
		at += b->size[i];
	}
	return CUDA_SUCCESS;
}

static bool dims_ok(const unsigned *grid, const unsigned *block)
{
	return grid[0] && grid[1] && grid[2] && block[0] && block[1] && block[2] && block[2] <= 64 &&
	       grid[1] <= 65535 && grid[2] <= 65535 && (uint64_t)block[0] * block[1] * block[2] <= 1024;
}

static CUresult read_launch(CUfunction f, const unsigned *grid, const unsigned *block, unsigned shared_bytes,
	void **params, void **extra, uint64_t *args)
{
	if (!f || f->mark != MARK_FUNC)
		return CUDA_ERROR_INVALID_HANDLE;
	if (!dims_ok(grid, block) || shared_bytes > 227 * 1024)
		return CUDA_ERROR_INVALID_VALUE;
	return read_args(f->builtin, params, extra, args);
}

/* Makes a task from the parameters of a launch or a graph node. */
CUresult drv_kernel_task(struct task *t, CUfunction f, const unsigned *grid, const unsigned *block,
	unsigned shared_bytes, void **params, void **extra)
{
	TRY(read_launch(f, grid, block, shared_bytes, params, extra, t->kernel.args));
	t->kind = TASK_KERNEL;
	t->kernel.fn = f;
	memcpy(t->kernel.grid, grid, sizeof(t->kernel.grid));
	memcpy(t->kernel.block, block, sizeof(t->kernel.block));
	t->kernel.shared_bytes = shared_bytes;
	t->kernel.cooperative = false;
	return CUDA_SUCCESS;
}

static CUresult launch(CUfunction f, const unsigned *grid, const unsigned *block, unsigned shared_bytes,
	CUstream handle, void **params, void **extra)
{
	uint64_t count = 0, args[DRV_ARGS];
	struct task t;
	CUstream s;
	CUresult rc;

	if (!drv.ready)
		return drv_why();
	TRY(read_launch(f, grid, block, shared_bytes, params, extra, args));
	drv_cost(COST_LAUNCH);
	drv_lock();
	rc = drv_stream(handle, &s);
	if (rc == CUDA_SUCCESS && !s->capture && drv_unloaded(&f->loaded)) {
		drv_unlock();
		drv_load(&f->loaded);
		drv_lock();
		rc = drv_stream(handle, &s);
	}
	/* A module's function belongs to the context into which the module was loaded. */
	if (rc == CUDA_SUCCESS && f->module->ctx && f->module->ctx != s->ctx)
		rc = CUDA_ERROR_INVALID_HANDLE;
	if (rc == CUDA_SUCCESS) {
		if (s->capture) {
			rc = drv_kernel_task(&t, f, grid, block, shared_bytes, params, extra);
			if (rc == CUDA_SUCCESS)
				rc = drv_capture_task(s, &t);
		} else {
			drv_launch_room(s);
			rc = drv_kernel(s, f, args, 0);
			count = s->tail;
		}
	}
	drv_unlock();
	if (count && drv.blocking)
		drv_wait_count(s->ring, s->gen, count);
	return rc;
}

#define GRID                                                                                                 \
	unsigned int gridDimX, unsigned int gridDimY, unsigned int gridDimZ, unsigned int blockDimX,         \
		unsigned int blockDimY, unsigned int blockDimZ
#define THREE(g) ((const unsigned[]){g##X, g##Y, g##Z})

TWIN(cuLaunchKernel, _ptsz,
	(CUfunction f, GRID, unsigned int sharedMemBytes, CUstream hStream, void **kernelParams,
		void **extra),
	launch(f, THREE(gridDim), THREE(blockDim), sharedMemBytes, PICK(hStream), kernelParams, extra))

TWIN(cuLaunchCooperativeKernel, _ptsz,
	(CUfunction f, GRID, unsigned int sharedMemBytes, CUstream hStream, void **kernelParams),
	launch(f, THREE(gridDim), THREE(blockDim), sharedMemBytes, PICK(hStream), kernelParams, NULL))

static CUresult launch_ex(const CUlaunchConfig *c, CUfunction f, void **params, void **extra, bool pt)
{
	CUresult rc;

	if (!c || (c->numAttrs && !c->attrs))
		return CUDA_ERROR_INVALID_VALUE;
	rc = launch(f, (const unsigned[]){c->gridDimX, c->gridDimY, c->gridDimZ},
		(const unsigned[]){c->blockDimX, c->blockDimY, c->blockDimZ}, c->sharedMemBytes,
		PICK(c->hStream), params, extra);
	for (unsigned i = 0; rc == CUDA_SUCCESS && i < c->numAttrs; i++) {
		const CUlaunchAttribute *a = &c->attrs[i];

		/* Both kinds of event may complete before the kernel ends, but the model has no earlier moment. */
		if (a->id == CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT)
			rc = cuEventRecord(a->value.launchCompletionEvent.event, PICK(c->hStream));
		else if (a->id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT)
			rc = cuEventRecord(a->value.programmaticEvent.event, PICK(c->hStream));
	}
	return rc;
}
TWIN(cuLaunchKernelEx, _ptsz, (const CUlaunchConfig *config, CUfunction f, void **kernelParams, void **extra),
	launch_ex(config, f, kernelParams, extra, pt))

CUresult cuLaunchCooperativeKernelMultiDevice(
	CUDA_LAUNCH_PARAMS *list, unsigned int numDevices, unsigned int flags)
{
	if (!list || !numDevices || flags & ~3u)
		return CUDA_ERROR_INVALID_VALUE;
	for (unsigned i = 0; i < numDevices; i++) {
		CUDA_LAUNCH_PARAMS *p = &list[i];
		CUcontext old;

		if (!p->hStream || p->hStream->mark != MARK_STREAM)
			return CUDA_ERROR_INVALID_HANDLE;
		TRY(cuCtxPushCurrent_v2(p->hStream->ctx));
		CUresult rc = launch(p->function, (const unsigned[]){p->gridDimX, p->gridDimY, p->gridDimZ},
			(const unsigned[]){p->blockDimX, p->blockDimY, p->blockDimZ}, p->sharedMemBytes,
			p->hStream, p->kernelParams, NULL);
		cuCtxPopCurrent_v2(&old);
		TRY(rc);
	}
	return CUDA_SUCCESS;
}

/* For the calls from before CUDA 4, which first put parameters into the function. */
static CUresult put(CUfunction f, int offset, const void *value, unsigned bytes)
{
	if (!f || f->mark != MARK_FUNC)
		return CUDA_ERROR_INVALID_HANDLE;
	if (offset < 0 || (size_t)offset + bytes > sizeof(f->param))
		return CUDA_ERROR_INVALID_VALUE;
	memcpy(f->param + offset, value, bytes);
	return CUDA_SUCCESS;
}

CUresult cuParamSetv(CUfunction hfunc, int offset, void *ptr, unsigned int numbytes)
{
	return put(hfunc, offset, ptr, numbytes);
}

CUresult cuParamSeti(CUfunction hfunc, int offset, unsigned int value)
{
	return put(hfunc, offset, &value, sizeof(value));
}

CUresult cuParamSetf(CUfunction hfunc, int offset, float value)
{
	return put(hfunc, offset, &value, sizeof(value));
}

CUresult cuParamSetSize(CUfunction hfunc, unsigned int numbytes)
{
	if (!hfunc || hfunc->mark != MARK_FUNC)
		return CUDA_ERROR_INVALID_HANDLE;
	hfunc->param_bytes = numbytes;
	return CUDA_SUCCESS;
}

CUresult cuFuncSetBlockShape(CUfunction hfunc, int x, int y, int z)
{
	if (!hfunc || hfunc->mark != MARK_FUNC)
		return CUDA_ERROR_INVALID_HANDLE;
	if (x < 1 || y < 1 || z < 1)
		return CUDA_ERROR_INVALID_VALUE;
	hfunc->block[0] = (unsigned)x;
	hfunc->block[1] = (unsigned)y;
	hfunc->block[2] = (unsigned)z;
	return CUDA_SUCCESS;
}

CUresult cuFuncSetSharedSize(CUfunction hfunc, unsigned int bytes)
{
	if (!hfunc || hfunc->mark != MARK_FUNC)
		return CUDA_ERROR_INVALID_HANDLE;
	hfunc->shared_bytes = bytes;
	return CUDA_SUCCESS;
}

CUresult cuLaunchGridAsync(CUfunction f, int grid_width, int grid_height, CUstream hStream)
{
	size_t bytes = f && f->mark == MARK_FUNC ? f->param_bytes : 0;
	void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, f ? f->param : NULL, CU_LAUNCH_PARAM_BUFFER_SIZE,
		&bytes, CU_LAUNCH_PARAM_END};

	if (!f || f->mark != MARK_FUNC)
		return CUDA_ERROR_INVALID_HANDLE;
	return launch(f, (const unsigned[]){(unsigned)grid_width, (unsigned)grid_height, 1}, f->block,
		f->shared_bytes, hStream ? hStream : CU_STREAM_LEGACY, NULL, extra);
}

CUresult cuLaunchGrid(CUfunction f, int grid_width, int grid_height)
{
	return cuLaunchGridAsync(f, grid_width, grid_height, NULL);
}

CUresult cuLaunch(CUfunction f)
{
	return cuLaunchGridAsync(f, 1, 1, NULL);
}
