/*
 * Runtime: the program's device code. Constructors that nvcc generates announce binaries, kernels and
 * variables before main; nothing is loaded until a context first needs it.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "test/sim/runtime/cudart.h"

#define FATBIN_MAGIC 0x466243b1

struct wrapper {
	int magic, version;
	const void *data;
	void *filename;
};

/* What was loaded of a binary, kernel or variable in a context; there are seldom more than a few contexts. */
struct use {
	struct use *next;
	CUcontext ctx;
	union {
		CUmodule module;
		CUfunction fn;
		CUdeviceptr address;
	};
};

struct binary {
	const void *image;
	struct use *uses;
};

enum kind { KERNEL, VARIABLE, MANAGED };

struct symbol {
	struct symbol *next;
	const void *host;
	const char *name;
	struct binary *binary;
	enum kind kind;
	size_t bytes;
	struct use *uses;
};

#define BUCKETS 1024

static struct symbol *table[BUCKETS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static struct symbol **bucket(const void *host)
{
	uintptr_t h = (uintptr_t)host;

	return &table[(h >> 4 ^ h >> 14) % BUCKETS];
}

static struct symbol *lookup(const void *host, int kernel)
{
	for (struct symbol *s = *bucket(host); s; s = s->next)
		if (s->host == host && (s->kind == KERNEL) == kernel)
			return s;
	return NULL;
}

static struct use *use_in(struct use *u, CUcontext ctx)
{
	while (u && u->ctx != ctx)
		u = u->next;
	return u;
}

static struct use *add_use(struct use **list, CUcontext ctx)
{
	struct use *u = calloc(1, sizeof(*u));

	if (u) {
		u->ctx = ctx;
		u->next = *list;
		*list = u;
	}
	return u;
}

static void drop_uses(struct use **list, CUcontext ctx)
{
	while (*list) {
		struct use *u = *list;

		if (!ctx || u->ctx == ctx) {
			*list = u->next;
			free(u);
		} else {
			list = &u->next;
		}
	}
}

void rt_forget_context(CUcontext ctx)
{
	pthread_mutex_lock(&lock);
	for (int i = 0; i < BUCKETS; i++)
		for (struct symbol *s = table[i]; s; s = s->next) {
			drop_uses(&s->uses, ctx);
			drop_uses(&s->binary->uses, ctx);
		}
	pthread_mutex_unlock(&lock);
}

static CUresult module_in(struct binary *b, CUcontext ctx, CUmodule *module)
{
	struct use *u = use_in(b->uses, ctx);
	CUresult r;

	if (!u) {
		r = rt_drv.cuModuleLoadData(module, b->image);
		if (r)
			return r;
		u = add_use(&b->uses, ctx);
		if (!u)
			return CUDA_ERROR_OUT_OF_MEMORY;
		u->module = *module;
	}
	*module = u->module;
	return CUDA_SUCCESS;
}

/* Finds a variable. If the driver does not know it, because it cannot read the image, it gets memory of its own. */
static CUresult load_symbol(struct symbol *s, CUcontext ctx, struct use *u)
{
	CUmodule module;
	size_t bytes = 0;
	CUresult r;

	if (s->kind == MANAGED) {
		u->address = (CUdeviceptr)(uintptr_t) * (void *const *)s->host;
		return u->address ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
	}
	r = module_in(s->binary, ctx, &module);
	if (r)
		return r;
	if (s->kind == KERNEL)
		return rt_drv.cuModuleGetFunction(&u->fn, module, s->name);
	r = rt_drv.cuModuleGetGlobal(&u->address, &bytes, module, s->name);
	if (!r && bytes >= s->bytes)
		return CUDA_SUCCESS;
	r = rt_drv.cuMemAlloc(&u->address, s->bytes ? s->bytes : 1);
	if (!r)
		r = rt_drv.cuMemsetD8[0](u->address, 0, s->bytes);
	return r;
}

static CUresult symbol_in(struct symbol *s, struct use *out)
{
	CUcontext ctx;
	struct use *u;
	CUresult r = rt_drv.cuCtxGetCurrent(&ctx);

	if (r)
		return r;
	pthread_mutex_lock(&lock);
	u = use_in(s->uses, ctx);
	if (!u) {
		struct use fresh = {.ctx = ctx};

		r = load_symbol(s, ctx, &fresh);
		u = r ? NULL : add_use(&s->uses, ctx);
		if (u) {
			fresh.next = u->next;
			*u = fresh;
		} else if (!r) {
			r = CUDA_ERROR_OUT_OF_MEMORY;
		}
	}
	if (u)
		*out = *u;
	pthread_mutex_unlock(&lock);
	return r;
}

/* Finds a kernel by its host function, or by the handle from __cudaGetKernel. */
static struct symbol *kernel_of(const void *host)
{
	struct symbol *s;

	pthread_mutex_lock(&lock);
	s = lookup(host, 1);
	for (int i = 0; !s && i < BUCKETS; i++)
		for (struct symbol *t = table[i]; t; t = t->next)
			if (t == host && t->kind == KERNEL)
				s = t;
	pthread_mutex_unlock(&lock);
	return s;
}

cudaError_t rt_kernel_function(cudaKernel_t kernel, CUfunction *fn)
{
	struct use u;
	CUresult r;

	if (!kernel)
		return rt_result(cudaErrorInvalidDeviceFunction);
	r = symbol_in((struct symbol *)kernel, &u);
	if (!r)
		*fn = u.fn;
	return rt_result(r);
}

cudaError_t rt_function(const void *host, CUfunction *fn)
{
	return rt_kernel_function((cudaKernel_t)kernel_of(host), fn);
}

cudaError_t __cudaGetKernel(cudaKernel_t *kernel, const void *host)
{
	struct symbol *s = kernel_of(host);

	if (!s)
		return rt_result(cudaErrorInvalidDeviceFunction);
	*kernel = (cudaKernel_t)s;
	return cudaSuccess;
}

cudaError_t cudaGetKernel(cudaKernel_t *kernelPtr, const void *entryFuncAddr)
{
	return kernelPtr ? __cudaGetKernel(kernelPtr, entryFuncAddr) : rt_result(cudaErrorInvalidValue);
}

cudaError_t cudaFuncGetName(const char **name, const void *func)
{
	struct symbol *s = kernel_of(func);

	if (!name || !s)
		return rt_result(name ? cudaErrorInvalidDeviceFunction : cudaErrorInvalidValue);
	*name = s->name;
	return cudaSuccess;
}

cudaError_t cudaGetFuncBySymbol(cudaFunction_t *functionPtr, const void *symbolPtr)
{
	RT_ENTER();
	return functionPtr ? rt_function(symbolPtr, functionPtr) : rt_result(cudaErrorInvalidValue);
}

static struct symbol *variable_of(const void *host)
{
	struct symbol *s;

	pthread_mutex_lock(&lock);
	s = lookup(host, 0);
	pthread_mutex_unlock(&lock);
	return s;
}

cudaError_t cudaGetSymbolAddress(void **devPtr, const void *symbol)
{
	struct symbol *s = variable_of(symbol);
	struct use u;
	CUresult r;

	RT_ENTER();
	if (!s)
		return rt_result(cudaErrorInvalidSymbol);
	r = symbol_in(s, &u);
	if (!r)
		*devPtr = (void *)(uintptr_t)u.address;
	return rt_result(r);
}

cudaError_t cudaGetSymbolSize(size_t *size, const void *symbol)
{
	struct symbol *s = variable_of(symbol);

	if (!s)
		return rt_result(cudaErrorInvalidSymbol);
	*size = s->bytes;
	return cudaSuccess;
}

void **__cudaRegisterFatBinary(void *wrapper)
{
	const struct wrapper *w = wrapper;
	struct binary *b = calloc(1, sizeof(*b));

	if (b)
		b->image = w->magic == FATBIN_MAGIC ? w->data : wrapper;
	return (void **)b;
}

void __cudaRegisterFatBinaryEnd(void **handle)
{
	(void)handle;
}

/* Frees the records alone: the program ends, and the driver may have ended already. */
void __cudaUnregisterFatBinary(void **handle)
{
	struct binary *b = (struct binary *)handle;

	pthread_mutex_lock(&lock);
	for (int i = 0; i < BUCKETS; i++)
		for (struct symbol **p = &table[i]; *p;) {
			struct symbol *s = *p;

			if (s->binary != b) {
				p = &s->next;
				continue;
			}
			*p = s->next;
			drop_uses(&s->uses, NULL);
			free(s);
		}
	if (b)
		drop_uses(&b->uses, NULL);
	free(b);
	pthread_mutex_unlock(&lock);
}

static void add(void **handle, const void *host, const char *name, enum kind kind, size_t bytes)
{
	struct symbol *s = calloc(1, sizeof(*s));

	if (!s || !handle) {
		free(s);
		return;
	}
	s->host = host;
	s->name = name;
	s->binary = (struct binary *)handle;
	s->kind = kind;
	s->bytes = bytes;
	pthread_mutex_lock(&lock);
	s->next = *bucket(host);
	*bucket(host) = s;
	pthread_mutex_unlock(&lock);
}

void __cudaRegisterFunction(void **handle, const char *host, char *device, const char *name, int thread_limit,
	void *tid, void *bid, dim3 *block, dim3 *grid, int *warp)
{
	(void)device, (void)thread_limit, (void)tid, (void)bid, (void)block, (void)grid, (void)warp;
	add(handle, host, name, KERNEL, 0);
}

void __cudaRegisterVar(void **handle, char *host, char *device, const char *name, int ext, size_t size,
	int constant, int global)
{
	(void)device, (void)ext, (void)constant, (void)global;
	add(handle, host, name, VARIABLE, size);
}

void __cudaRegisterManagedVar(void **handle, void **host, char *device, const char *name, int ext,
	size_t size, int constant, int global)
{
	(void)device, (void)ext, (void)constant, (void)global;
	add(handle, host, name, MANAGED, size);
}

void __cudaRegisterHostVar(void **handle, const char *name, char *host, size_t size)
{
	(void)handle, (void)name, (void)host, (void)size;
}

/* Called before the host first uses a managed variable, whose pointer is valid from then on. */
char __cudaInitModule(void **handle)
{
	char ok = 1;

	if (rt_enter())
		return 0;
	pthread_mutex_lock(&lock);
	for (int i = 0; i < BUCKETS; i++)
		for (struct symbol *s = table[i]; s; s = s->next) {
			void **host = (void **)(uintptr_t)s->host;
			CUdeviceptr p;

			if (s->kind != MANAGED || s->binary != (struct binary *)handle || *host)
				continue;
			if (rt_drv.cuMemAllocManaged(&p, s->bytes, CU_MEM_ATTACH_GLOBAL)) {
				ok = 0;
				continue;
			}
			*host = memset((void *)(uintptr_t)p, 0, s->bytes);
		}
	pthread_mutex_unlock(&lock);
	return ok;
}
