/*
 * Device memory that another process opens. An export moves the allocation's pages into a file beside the
 * simulation's, at the same address; another process maps that file. As with a real device the memory is counted for
 * the exporter alone.
 *
 * Bytes are moved when the process that queued the work notices its end. So the exporter must have synchronised before
 * the other process reads. Events between processes would promise more than that, and are not supported.
 */
#include "test/sim/driver/driver.h"

#include <dirent.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#define MAGIC 0x637069756d697367ULL
#define PAGE  4096u

struct handle {
	uint64_t magic, serial, id, bytes;
	uint32_t device, pad;
	uint64_t zero[3];
};
_Static_assert(sizeof(struct handle) == sizeof(CUipcMemHandle), "fits exactly");

/* drv.lock: what this process has open */
static struct opened {
	struct opened *next;
	uint64_t serial, id;
	CUdeviceptr addr;
	unsigned refs;
} * opened;

static bool shared_any;

static uint64_t own_serial(void)
{
	return sim_shm.slot == SIM_NONE ? 0 : sim_shm.file->proc[sim_shm.slot].serial;
}

static bool directory(char *out)
{
	char link[32];
	ssize_t n;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", sim_shm.fd);
	n = readlink(link, out, PATH_MAX - 1);
	if (n <= 0)
		return false;
	out[n] = '\0';
	dirname(out);
	return true;
}

static bool file_of(char *out, size_t size, uint64_t serial, uint64_t id)
{
	char dir[PATH_MAX];

	return directory(dir) && snprintf(out, size, "%s/ipc-%lu-%lu", dir, serial, id) < (int)size;
}

static bool lives(uint64_t serial)
{
	for (uint32_t i = 0; i < SIM_MAX_PROCS; i++)
		if (sim_shm.file->proc[i].serial == serial && sim_shm.file->proc[i].state == SIM_PROC_LIVE &&
			sim_shm_alive(i))
			return true;
	return false;
}

/* Removes the files of processes that died with exported memory; or, with `own`, this process's files at its end. */
static void sweep(bool own)
{
	char dir[PATH_MAX];
	struct dirent *e;
	DIR *d;

	if (!directory(dir))
		return;
	d = opendir(dir);
	while (d && (e = readdir(d))) {
		unsigned long serial, id;

		if (sscanf(e->d_name, "ipc-%lu-%lu", &serial, &id) == 2 &&
			(serial == own_serial() ? own : !lives(serial)))
			unlinkat(dirfd(d), e->d_name, 0);
	}
	if (d)
		closedir(d);
}

/* Copies only the pages that were ever touched, so that the file of a large allocation takes no more memory. */
static bool copy_pages(int fd, const struct alloc *a, size_t pages)
{
	int map = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
	uint64_t entry[512];
	bool ok = map >= 0;

	for (size_t i = 0; ok && i < pages; i++) {
		size_t at = i % 512, n = pages - i < 512 ? pages - i : 512;

		if (!at)
			ok = pread(map, entry, n * sizeof(*entry),
				     (off_t)((a->addr / PAGE + i) * sizeof(*entry))) ==
			     (ssize_t)(n * sizeof(*entry));
		/* The page is present or swapped out. */
		if (ok && entry[at] >> 62)
			ok = pwrite(fd, (char *)(uintptr_t)a->addr + i * PAGE, PAGE, (off_t)(i * PAGE)) ==
			     PAGE;
	}
	if (map >= 0)
		close(map);
	return ok;
}

/* drv.lock held */
static CUresult share(struct alloc *a)
{
	size_t pages = (a->bytes + PAGE - 1) / PAGE;
	char path[PATH_MAX + 64];
	CUresult rc = CUDA_ERROR_OUT_OF_MEMORY;
	int fd;

	if (a->exported)
		return CUDA_SUCCESS;
	sweep(false);
	if (!file_of(path, sizeof(path), own_serial(), a->id))
		return CUDA_ERROR_OPERATING_SYSTEM;
	fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
	if (fd < 0)
		return CUDA_ERROR_OPERATING_SYSTEM;
	if (!ftruncate(fd, (off_t)(pages * PAGE)) && copy_pages(fd, a, pages) &&
		mmap((void *)(uintptr_t)a->addr, pages * PAGE, PROT_READ | PROT_WRITE,
			MAP_SHARED | MAP_FIXED | MAP_NORESERVE, fd, 0) != MAP_FAILED) {
		a->exported = shared_any = true;
		rc = CUDA_SUCCESS;
	} else {
		unlink(path);
	}
	close(fd);
	return rc;
}

/* drv.lock held. Other processes that have opened the memory keep their mapping. */
void drv_ipc_unshare(const struct alloc *a)
{
	char path[PATH_MAX + 64];

	if (file_of(path, sizeof(path), own_serial(), a->id))
		unlink(path);
}

void drv_ipc_unload(void)
{
	if (shared_any)
		sweep(true);
}

CUresult cuIpcGetMemHandle(CUipcMemHandle *pHandle, CUdeviceptr dptr)
{
	struct handle h = {.magic = MAGIC};
	struct alloc *a;
	CUcontext ctx;
	CUresult rc;

	TRY(drv_current(&ctx));
	if (!pHandle)
		return CUDA_ERROR_INVALID_VALUE;
	drv_lock();
	a = drv_alloc_find(dptr);
	rc = a && a->kind == ALLOC_DEVICE ? drv_ctx_drain(a->ctx ? a->ctx : ctx) : CUDA_ERROR_INVALID_VALUE;
	a = drv_alloc_find(dptr);
	if (rc == CUDA_SUCCESS)
		rc = a ? share(a) : CUDA_ERROR_INVALID_VALUE;
	if (rc == CUDA_SUCCESS) {
		h.serial = own_serial();
		h.id = a->id;
		h.bytes = a->bytes;
		h.device = a->device;
		memcpy(pHandle, &h, sizeof(h));
	}
	drv_unlock();
	return rc;
}

static struct opened **place_of(uint64_t serial, uint64_t id)
{
	struct opened **p = &opened;

	while (*p && ((*p)->serial != serial || (*p)->id != id))
		p = &(*p)->next;
	return p;
}

/* drv.lock held */
static CUresult map_file(const struct handle *h, CUcontext ctx, CUdeviceptr *out)
{
	size_t bytes = (h->bytes + PAGE - 1) / PAGE * PAGE;
	struct opened *o = calloc(1, sizeof(*o));
	char path[PATH_MAX + 64];
	struct alloc *a = NULL;
	void *p = MAP_FAILED;
	int fd = -1;

	if (o && file_of(path, sizeof(path), h->serial, h->id))
		fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd >= 0) {
		p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
		close(fd);
	}
	if (p != MAP_FAILED)
		a = drv_alloc_add((CUdeviceptr)(uintptr_t)p, h->bytes, ALLOC_IPC, h->device);
	if (!a) {
		if (p != MAP_FAILED)
			munmap(p, bytes);
		free(o);
		return CUDA_ERROR_MAP_FAILED;
	}
	a->ctx = ctx;
	*o = (struct opened){.next = opened, .serial = h->serial, .id = h->id, .addr = a->addr, .refs = 1};
	opened = o;
	*out = a->addr;
	return CUDA_SUCCESS;
}

CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *pdptr, CUipcMemHandle handle, unsigned int Flags)
{
	CUresult rc = CUDA_SUCCESS;
	struct opened *o;
	struct handle h;
	CUcontext ctx;

	TRY(drv_current(&ctx));
	memcpy(&h, &handle, sizeof(h));
	if (!pdptr || Flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS || h.magic != MAGIC || !h.bytes ||
		h.bytes > 1ULL << 46 || h.device >= sim_shm.file->set.devices)
		return CUDA_ERROR_INVALID_VALUE;
	/* The exporter itself has the memory already. */
	if (h.serial == own_serial())
		return CUDA_ERROR_INVALID_CONTEXT;
	drv_cost(COST_ALLOC);
	drv_lock();
	o = *place_of(h.serial, h.id);
	if (o) {
		o->refs++;
		*pdptr = o->addr;
	} else {
		rc = map_file(&h, ctx, pdptr);
	}
	drv_unlock();
	return rc;
}

CUresult cuIpcOpenMemHandle(CUdeviceptr *pdptr, CUipcMemHandle handle, unsigned int Flags)
{
	return cuIpcOpenMemHandle_v2(pdptr, handle, Flags);
}

/* drv.lock held: the mapping is being dropped. */
void drv_ipc_closed(const struct alloc *a)
{
	struct opened **p = &opened, *o;

	while (*p && (*p)->addr != a->addr)
		p = &(*p)->next;
	o = *p;
	if (o)
		*p = o->next;
	free(o);
}

CUresult cuIpcCloseMemHandle(CUdeviceptr dptr)
{
	struct opened *o;
	struct alloc *a;
	CUcontext ctx;
	CUresult rc;

	TRY(drv_current(&ctx));
	drv_lock();
	a = drv_alloc_find(dptr);
	rc = a && a->kind == ALLOC_IPC && a->addr == dptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
	for (o = opened; rc == CUDA_SUCCESS && o && o->addr != dptr; o = o->next)
		;
	if (rc == CUDA_SUCCESS && o && --o->refs == 0) {
		rc = drv_ctx_drain(a->ctx);
		a = drv_alloc_find(dptr);
		if (a)
			drv_alloc_drop(a);
	}
	drv_unlock();
	return rc;
}
