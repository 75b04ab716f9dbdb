/* Context-independent libraries, kernels, the linker, attributes of functions, occupancy. */
#include "test/sim/driver/driver.h"
#include "test/sim/driver/module.h"

struct CUlib_st {
	uint32_t mark;
	CUmodule module;
};

struct CUlinkState_st {
	uint32_t mark;
	char *image;
	size_t bytes;
};

void drv_jit_options(unsigned n, const CUjit_option *options, void **values)
{
	for (unsigned i = 0; options && values && i < n; i++) {
		bool buffer = options[i] == CU_JIT_INFO_LOG_BUFFER || options[i] == CU_JIT_ERROR_LOG_BUFFER;
		bool size = options[i] == CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES ||
			    options[i] == CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES;

		if (buffer && values[i])
			*(char *)values[i] = 0;
		else if (size)
			values[i] = NULL;
	}
}

static CUresult library_new(CUlibrary *out, const void *image)
{
	CUlibrary lib;

	if (!drv.ready)
		return drv_why();
	if (!out || !image)
		return CUDA_ERROR_INVALID_VALUE;
	drv_cost(COST_MODULE);
	lib = calloc(1, sizeof(*lib));
	if (!lib)
		return CUDA_ERROR_OUT_OF_MEMORY;
	lib->mark = MARK_LIBRARY;
	lib->module = drv_module_new(NULL, image);
	if (!lib->module) {
		free(lib);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	lib->module->library = lib;
	*out = lib;
	return CUDA_SUCCESS;
}

CUresult cuLibraryLoadData(CUlibrary *library, const void *code, CUjit_option *jitOptions,
	void **jitOptionsValues, unsigned int numJitOptions, CUlibraryOption *libraryOptions,
	void **libraryOptionValues, unsigned int numLibraryOptions)
{
	(void)libraryOptions;
	(void)libraryOptionValues;
	(void)numLibraryOptions;
	drv_jit_options(numJitOptions, jitOptions, jitOptionsValues);
	return library_new(library, code);
}

CUresult cuLibraryLoadFromFile(CUlibrary *library, const char *fileName, CUjit_option *jitOptions,
	void **jitOptionsValues, unsigned int numJitOptions, CUlibraryOption *libraryOptions,
	void **libraryOptionValues, unsigned int numLibraryOptions)
{
	char *data = fileName ? drv_read_file(fileName) : NULL;
	CUresult rc;

	if (!data)
		return fileName ? CUDA_ERROR_FILE_NOT_FOUND : CUDA_ERROR_INVALID_VALUE;
	rc = cuLibraryLoadData(library, data, jitOptions, jitOptionsValues, numJitOptions, libraryOptions,
		libraryOptionValues, numLibraryOptions);
	free(data);
	return rc;
}

static CUresult check(CUlibrary lib)
{
	if (!drv.ready)
		return drv_why();
	return lib && lib->mark == MARK_LIBRARY ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuLibraryUnload(CUlibrary library)
{
	TRY(check(library));
	drv_lock();
	drv_module_end(library->module);
	library->mark = 0;
	drv_unlock();
	return CUDA_SUCCESS;
}

/* A kernel handle may be passed where a function is expected, so both are the same object. */
CUresult cuLibraryGetKernel(CUkernel *pKernel, CUlibrary library, const char *name)
{
	CUfunction f;

	TRY(check(library));
	if (!pKernel || !name)
		return CUDA_ERROR_INVALID_VALUE;
	drv_lock();
	f = drv_module_function(library->module, name);
	drv_unlock();
	if (!f)
		return CUDA_ERROR_NOT_FOUND;
	*pKernel = (CUkernel)(void *)f;
	return CUDA_SUCCESS;
}

CUresult cuLibraryGetKernelCount(unsigned int *count, CUlibrary lib)
{
	TRY(check(lib));
	if (!count)
		return CUDA_ERROR_INVALID_VALUE;
	*count = lib->module->nentries;
	return CUDA_SUCCESS;
}

CUresult cuLibraryEnumerateKernels(CUkernel *kernels, unsigned int numKernels, CUlibrary lib)
{
	TRY(check(lib));
	if (!kernels || !numKernels)
		return CUDA_ERROR_INVALID_VALUE;
	drv_lock();
	for (unsigned i = 0; i < numKernels; i++)
		kernels[i] = i < lib->module->nentries ? (CUkernel)(void *)drv_module_function(
								 lib->module, lib->module->entries[i])
						       : NULL;
	drv_unlock();
	return CUDA_SUCCESS;
}

CUresult cuLibraryGetModule(CUmodule *pMod, CUlibrary library)
{
	CUcontext ctx;

	TRY(drv_current(&ctx));
	TRY(check(library));
	if (!pMod)
		return CUDA_ERROR_INVALID_VALUE;
	*pMod = library->module;
	return CUDA_SUCCESS;
}

static CUresult global(CUdeviceptr *dptr, size_t *bytes, CUlibrary library, const char *name)
{
	CUcontext ctx;
	CUresult rc;

	TRY(drv_current(&ctx));
	TRY(check(library));
	if (!name || (!dptr && !bytes))
		return CUDA_ERROR_INVALID_VALUE;
	drv_lock();
	rc = drv_module_global(library->module, name, ctx, dptr, bytes);
	drv_unlock();
	return rc;
}

CUresult cuLibraryGetGlobal(CUdeviceptr *dptr, size_t *bytes, CUlibrary library, const char *name)
{
	return global(dptr, bytes, library, name);
}

CUresult cuLibraryGetManaged(CUdeviceptr *dptr, size_t *bytes, CUlibrary library, const char *name)
{
	return global(dptr, bytes, library, name);
}

static CUfunction kernel(CUkernel k)
{
	CUfunction f = (CUfunction)(void *)k;

	return f && f->mark == MARK_FUNC ? f : NULL;
}

CUresult cuKernelGetFunction(CUfunction *pFunc, CUkernel k)
{
	CUcontext ctx;

	TRY(drv_current(&ctx));
	if (!pFunc)
		return CUDA_ERROR_INVALID_VALUE;
	*pFunc = kernel(k);
	return *pFunc ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuKernelGetLibrary(CUlibrary *pLib, CUkernel k)
{
	if (!pLib)
		return CUDA_ERROR_INVALID_VALUE;
	if (!kernel(k))
		return CUDA_ERROR_INVALID_HANDLE;
	*pLib = kernel(k)->module->library;
	return *pLib ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuKernelGetName(const char **name, CUkernel k)
{
	return cuFuncGetName(name, kernel(k));
}

CUresult cuKernelGetAttribute(int *pi, CUfunction_attribute attrib, CUkernel k, CUdevice dev)
{
	(void)dev;
	return cuFuncGetAttribute(pi, attrib, kernel(k));
}

CUresult cuKernelSetAttribute(CUfunction_attribute attrib, int val, CUkernel k, CUdevice dev)
{
	(void)dev;
	return cuFuncSetAttribute(kernel(k), attrib, val);
}

CUresult cuKernelSetCacheConfig(CUkernel k, CUfunc_cache config, CUdevice dev)
{
	(void)dev;
	return cuFuncSetCacheConfig(kernel(k), config);
}

CUresult cuKernelGetParamInfo(CUkernel k, size_t paramIndex, size_t *paramOffset, size_t *paramSize)
{
	return cuFuncGetParamInfo(kernel(k), paramIndex, paramOffset, paramSize);
}

static CUresult func(CUfunction f)
{
	if (!drv.ready)
		return drv_why();
	return f && f->mark == MARK_FUNC ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuFuncGetAttribute(int *pi, CUfunction_attribute attrib, CUfunction hfunc)
{
	TRY(func(hfunc));
	if (!pi || attrib >= CU_FUNC_ATTRIBUTE_MAX)
		return CUDA_ERROR_INVALID_VALUE;
	*pi = hfunc->attribute[attrib];
	return CUDA_SUCCESS;
}

CUresult cuFuncSetAttribute(CUfunction hfunc, CUfunction_attribute attrib, int value)
{
	TRY(func(hfunc));
	if (attrib < CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES || attrib >= CU_FUNC_ATTRIBUTE_MAX)
		return CUDA_ERROR_INVALID_VALUE;
	hfunc->attribute[attrib] = value;
	return CUDA_SUCCESS;
}

CUresult cuFuncSetCacheConfig(CUfunction hfunc, CUfunc_cache config)
{
	(void)config;
	return func(hfunc);
}

CUresult cuFuncSetSharedMemConfig(CUfunction hfunc, CUsharedconfig config)
{
	(void)config;
	return func(hfunc);
}

CUresult cuFuncGetModule(CUmodule *hmod, CUfunction hfunc)
{
	TRY(func(hfunc));
	if (!hmod)
		return CUDA_ERROR_INVALID_VALUE;
	*hmod = hfunc->module;
	return CUDA_SUCCESS;
}

CUresult cuFuncGetName(const char **name, CUfunction hfunc)
{
	TRY(func(hfunc));
	if (!name)
		return CUDA_ERROR_INVALID_VALUE;
	*name = hfunc->name;
	return CUDA_SUCCESS;
}

/* Knows the parameters of built-in kernels alone; an image is not read for them. */
CUresult cuFuncGetParamInfo(CUfunction f, size_t paramIndex, size_t *paramOffset, size_t *paramSize)
{
	size_t at = 0;

	TRY(func(f));
	if (!paramOffset || !f->builtin || paramIndex >= f->builtin->nparams)
		return CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; i <= paramIndex; i++) {
		at = (at + f->builtin->size[i] - 1) / f->builtin->size[i] * f->builtin->size[i];
		if (i < paramIndex)
			at += f->builtin->size[i];
	}
	*paramOffset = at;
	if (paramSize)
		*paramSize = f->builtin->size[paramIndex];
	return CUDA_SUCCESS;
}

CUresult cuFuncIsLoaded(CUfunctionLoadingState *state, CUfunction function)
{
	TRY(func(function));
	if (!state)
		return CUDA_ERROR_INVALID_VALUE;
	*state = drv_unloaded(&function->loaded) ? CU_FUNCTION_LOADING_STATE_UNLOADED
						 : CU_FUNCTION_LOADING_STATE_LOADED;
	return CUDA_SUCCESS;
}

CUresult cuFuncLoad(CUfunction function)
{
	TRY(func(function));
	if (drv_unloaded(&function->loaded))
		drv_load(&function->loaded);
	return CUDA_SUCCESS;
}

CUresult cuLinkCreate_v2(
	unsigned int numOptions, CUjit_option *options, void **optionValues, CUlinkState *stateOut)
{
	CUcontext ctx;

	TRY(drv_current(&ctx));
	if (!stateOut)
		return CUDA_ERROR_INVALID_VALUE;
	drv_jit_options(numOptions, options, optionValues);
	*stateOut = calloc(1, sizeof(**stateOut));
	if (!*stateOut)
		return CUDA_ERROR_OUT_OF_MEMORY;
	(*stateOut)->mark = MARK_LINK;
	return CUDA_SUCCESS;
}

CUresult cuLinkCreate(
	unsigned int numOptions, CUjit_option *options, void **optionValues, CUlinkState *stateOut)
{
	return cuLinkCreate_v2(numOptions, options, optionValues, stateOut);
}

/* The linked image is the inputs one after the other: loading it needs no more. */
CUresult cuLinkAddData_v2(CUlinkState state, CUjitInputType type, void *data, size_t size, const char *name,
	unsigned int numOptions, CUjit_option *options, void **optionValues)
{
	char *image;

	(void)type;
	(void)name;
	if (!state || state->mark != MARK_LINK)
		return CUDA_ERROR_INVALID_HANDLE;
	if (!data)
		return CUDA_ERROR_INVALID_VALUE;
	drv_jit_options(numOptions, options, optionValues);
	image = realloc(state->image, state->bytes + size + 1);
	if (!image)
		return CUDA_ERROR_OUT_OF_MEMORY;
	memcpy(image + state->bytes, data, size);
	state->image = image;
	state->bytes += size;
	image[state->bytes] = 0;
	return CUDA_SUCCESS;
}

CUresult cuLinkAddData(CUlinkState state, CUjitInputType type, void *data, size_t size, const char *name,
	unsigned int numOptions, CUjit_option *options, void **optionValues)
{
	return cuLinkAddData_v2(state, type, data, size, name, numOptions, options, optionValues);
}

CUresult cuLinkAddFile_v2(CUlinkState state, CUjitInputType type, const char *path, unsigned int numOptions,
	CUjit_option *options, void **optionValues)
{
	char *data = path ? drv_read_file(path) : NULL;
	CUresult rc;

	if (!data)
		return path ? CUDA_ERROR_FILE_NOT_FOUND : CUDA_ERROR_INVALID_VALUE;
	rc = cuLinkAddData_v2(state, type, data, strlen(data), path, numOptions, options, optionValues);
	free(data);
	return rc;
}

CUresult cuLinkAddFile(CUlinkState state, CUjitInputType type, const char *path, unsigned int numOptions,
	CUjit_option *options, void **optionValues)
{
	return cuLinkAddFile_v2(state, type, path, numOptions, options, optionValues);
}

CUresult cuLinkComplete(CUlinkState state, void **cubinOut, size_t *sizeOut)
{
	if (!state || state->mark != MARK_LINK)
		return CUDA_ERROR_INVALID_HANDLE;
	if (!cubinOut)
		return CUDA_ERROR_INVALID_VALUE;
	*cubinOut = state->image;
	if (sizeOut)
		*sizeOut = state->bytes;
	return CUDA_SUCCESS;
}

CUresult cuLinkDestroy(CUlinkState state)
{
	if (!state || state->mark != MARK_LINK)
		return CUDA_ERROR_INVALID_HANDLE;
	state->mark = 0;
	free(state->image);
	free(state);
	return CUDA_SUCCESS;
}
