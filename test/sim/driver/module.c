/*
 * Modules. Any image is accepted. A PTX text says which kernels it has, so a name that it lacks is an
 * error. In other images every name is found.
 */
#include "test/sim/driver/driver.h"
#include "test/sim/driver/module.h"

#include <ctype.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#define GLOBAL_BYTES  4096
#define WRAPPER_MAGIC 0x466243b1u
#define FATBIN_MAGIC  0xba55ed50u
#define FATBIN_PTX    1

static bool is_ptx(const char *text)
{
	while (isspace((unsigned char)*text))
		text++;
	return !strncmp(text, ".version", 8) || !strncmp(text, "//", 2) || !strncmp(text, "/*", 2);
}

static void add_entry(CUmodule m, const char *name, size_t n)
{
	char **list = realloc(m->entries, (m->nentries + 1) * sizeof(*list));

	if (!list)
		return;
	m->entries = list;
	list[m->nentries] = strndup(name, n);
	m->nentries += list[m->nentries] != NULL;
}

static void read_ptx(CUmodule m, const char *text)
{
	for (const char *p = strstr(text, ".entry"); p; p = strstr(p, ".entry")) {
		size_t n = 0;

		p += strlen(".entry");
		if (!isspace((unsigned char)*p))
			continue;
		while (isspace((unsigned char)*p))
			p++;
		while (isalnum((unsigned char)p[n]) || p[n] == '_' || p[n] == '$')
			n++;
		if (n)
			add_entry(m, p, n);
	}
}

/* Compares byte by byte, because an image may be shorter than the mark. */
static bool begins(const char *image, uint32_t magic)
{
	for (unsigned i = 0; i < 4; i++)
		if ((unsigned char)image[i] != (magic >> 8 * i & 0xff))
			return false;
	return true;
}

/*
 * Returns for which architecture the image's PTX is: programs choose their kernels by it. A fat binary is
 * a header and entries, each with its kind, its sizes and its architecture.
 */
static int ptx_arch(const char *image)
{
	const char *text = is_ptx(image) ? strstr(image, ".target sm_") : NULL, *end;
	uint64_t bytes;
	int best = 0;

	if (text)
		return atoi(text + strlen(".target sm_"));
	if (begins(image, WRAPPER_MAGIC))
		memcpy(&image, image + 8, sizeof(image));
	if (!begins(image, FATBIN_MAGIC))
		return 0;
	memcpy(&bytes, image + 8, sizeof(bytes));
	end = image + 16 + bytes;
	for (image += 16; image + 32 <= end;) {
		struct {
			uint16_t kind, version;
			uint32_t header;
			uint64_t payload;
			uint32_t other[3], arch;
		} e;

		memcpy(&e, image, sizeof(e));
		if (e.kind == FATBIN_PTX && (int)e.arch > best)
			best = (int)e.arch;
		if (e.header < sizeof(e) || e.payload > (uint64_t)(end - image))
			break;
		image += e.header + e.payload;
	}
	return best;
}

CUmodule drv_module_new(CUcontext ctx, const void *image)
{
	CUmodule m = calloc(1, sizeof(*m));

	if (!m)
		return NULL;
	m->mark = MARK_MODULE;
	m->ctx = ctx;
	if (image && is_ptx(image))
		read_ptx(m, image);
	m->ptx = image ? ptx_arch(image) : 0;
	return m;
}

void drv_module_end(CUmodule m)
{
	while (m->functions) {
		CUfunction f = m->functions;

		/* The object stays: work may be queued, and a stale handle must be recognised. */
		m->functions = f->next;
		f->mark = 0;
	}
	while (m->globals) {
		struct global *g = m->globals;
		struct alloc *a = drv_alloc_find(g->ptr);

		m->globals = g->next;
		if (a)
			drv_alloc_drop(a);
		free(g->name);
		free(g);
	}
	for (unsigned i = 0; i < m->nentries; i++)
		free(m->entries[i]);
	free(m->entries);
	m->entries = NULL;
	m->nentries = 0;
	m->mark = 0;
}

static bool has_entry(CUmodule m, const char *name)
{
	if (!m->entries)
		return true;
	for (unsigned i = 0; i < m->nentries; i++)
		if (!strcmp(m->entries[i], name))
			return true;
	return false;
}

/* drv.lock held */
CUfunction drv_module_function(CUmodule m, const char *name)
{
	CUfunction f;

	for (f = m->functions; f; f = f->next)
		if (!strcmp(f->name, name))
			return f;
	if (!has_entry(m, name))
		return NULL;
	f = calloc(1, sizeof(*f));
	if (!f)
		return NULL;
	f->mark = MARK_FUNC;
	f->module = m;
	f->name = strdup(name);
	f->builtin = drv_builtin(name);
	drv_duration(name, &f->duration);
	f->attribute[CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK] = 1024;
	f->attribute[CU_FUNC_ATTRIBUTE_NUM_REGS] = 32;
	f->attribute[CU_FUNC_ATTRIBUTE_PTX_VERSION] = m->ptx ? m->ptx : 80;
	f->attribute[CU_FUNC_ATTRIBUTE_BINARY_VERSION] = 80;
	f->attribute[CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES] = 49152;
	f->attribute[CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT] = -1;
	f->block[0] = f->block[1] = f->block[2] = 1;
	f->next = m->functions;
	m->functions = f;
	return f;
}

/* drv.lock held */
CUresult drv_module_global(CUmodule m, const char *name, CUcontext ctx, CUdeviceptr *ptr, size_t *bytes)
{
	struct global *g;

	for (g = m->globals; g && strcmp(g->name, name); g = g->next)
		;
	if (!g) {
		struct alloc *a = drv_alloc_new(ALLOC_DEVICE, ctx->device, GLOBAL_BYTES, 512);

		g = calloc(1, sizeof(*g));
		if (!a || !g)
			return CUDA_ERROR_OUT_OF_MEMORY;
		a->ctx = ctx;
		g->name = strdup(name);
		g->ptr = a->addr;
		g->bytes = GLOBAL_BYTES;
		g->next = m->globals;
		m->globals = g;
	}
	if (ptr)
		*ptr = g->ptr;
	if (bytes)
		*bytes = g->bytes;
	return CUDA_SUCCESS;
}

/* Returns the content of a file, ended with a NUL, or NULL. */
char *drv_read_file(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct stat st;
	char *data = NULL;

	if (fd >= 0 && fstat(fd, &st) == 0 && (data = malloc((size_t)st.st_size + 1))) {
		ssize_t n = read(fd, data, (size_t)st.st_size);

		data[n > 0 ? n : 0] = 0;
	}
	if (fd >= 0)
		close(fd);
	return data;
}

static CUresult load(CUmodule *module, const void *image)
{
	CUcontext ctx;

	TRY(drv_current(&ctx));
	if (!module || !image)
		return CUDA_ERROR_INVALID_VALUE;
	drv_cost(COST_MODULE);
	*module = drv_module_new(ctx, image);
	return *module ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuModuleLoadData(CUmodule *module, const void *image)
{
	return load(module, image);
}

CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned int numOptions,
	CUjit_option *options, void **optionValues)
{
	drv_jit_options(numOptions, options, optionValues);
	return load(module, image);
}

CUresult cuModuleLoadFatBinary(CUmodule *module, const void *fatCubin)
{
	return load(module, fatCubin);
}

CUresult cuModuleLoad(CUmodule *module, const char *fname)
{
	CUcontext ctx;
	char *data;
	CUresult rc;

	TRY(drv_current(&ctx));
	if (!module || !fname)
		return CUDA_ERROR_INVALID_VALUE;
	data = drv_read_file(fname);
	if (!data)
		return CUDA_ERROR_FILE_NOT_FOUND;
	rc = load(module, data);
	free(data);
	return rc;
}

static CUresult check(CUmodule m)
{
	CUcontext ctx;

	TRY(drv_current(&ctx));
	return m && m->mark == MARK_MODULE ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuModuleUnload(CUmodule hmod)
{
	TRY(check(hmod));
	drv_lock();
	drv_module_end(hmod);
	drv_unlock();
	return CUDA_SUCCESS;
}

CUresult cuModuleGetFunction(CUfunction *hfunc, CUmodule hmod, const char *name)
{
	CUfunction f;

	TRY(check(hmod));
	if (!hfunc || !name)
		return CUDA_ERROR_INVALID_VALUE;
	drv_lock();
	f = drv_module_function(hmod, name);
	drv_unlock();
	if (!f)
		return CUDA_ERROR_NOT_FOUND;
	*hfunc = f;
	return CUDA_SUCCESS;
}

CUresult cuModuleGetGlobal_v2(CUdeviceptr *dptr, size_t *bytes, CUmodule hmod, const char *name)
{
	CUcontext ctx;
	CUresult rc;

	TRY(check(hmod));
	TRY(drv_current(&ctx));
	if (!name || (!dptr && !bytes))
		return CUDA_ERROR_INVALID_VALUE;
	drv_lock();
	rc = drv_module_global(hmod, name, ctx, dptr, bytes);
	drv_unlock();
	return rc;
}

CUresult cuModuleGetFunctionCount(unsigned int *count, CUmodule mod)
{
	TRY(check(mod));
	if (!count)
		return CUDA_ERROR_INVALID_VALUE;
	*count = mod->nentries;
	return CUDA_SUCCESS;
}

CUresult cuModuleEnumerateFunctions(CUfunction *functions, unsigned int numFunctions, CUmodule mod)
{
	TRY(check(mod));
	if (!functions || !numFunctions)
		return CUDA_ERROR_INVALID_VALUE;
	drv_lock();
	for (unsigned i = 0; i < numFunctions; i++)
		functions[i] = i < mod->nentries ? drv_module_function(mod, mod->entries[i]) : NULL;
	drv_unlock();
	return CUDA_SUCCESS;
}

CUresult cuModuleGetLoadingMode(CUmoduleLoadingMode *mode)
{
	if (!mode)
		return CUDA_ERROR_INVALID_VALUE;
	*mode = CU_MODULE_LAZY_LOADING;
	return CUDA_SUCCESS;
}
