/*
 * Virtual memory management: physical memory is a file in memory that is mapped into reserved address
 * space, so that two mappings of a handle show the same bytes.
 */
#include "test/sim/driver/driver.h"

#include <sys/mman.h>
#include <unistd.h>

#define GRAIN (2u << 20)

struct phys {
	uint32_t mark;
	struct phys *next;
	int fd;
	uint64_t bytes;
	uint32_t device;
	unsigned refs; /* one of the handle, and one of each mapping */
	bool released;
	CUmemAllocationProp prop;
};

struct range {
	struct range *next;
	CUdeviceptr addr;
	uint64_t bytes;
	struct phys *phys; /* NULL for a reservation */
	uint64_t offset;
};

static struct phys *all_phys;
static struct range *reservations, *mappings;

static CUresult usable(const CUmemAllocationProp *prop, uint32_t *device)
{
	if (!drv.ready)
		return drv_why();
	if (!prop || prop->type != CU_MEM_ALLOCATION_TYPE_PINNED)
		return CUDA_ERROR_INVALID_VALUE;
	if (prop->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
		return CUDA_ERROR_NOT_SUPPORTED;
	return drv_device(prop->location.id, device);
}

CUresult cuMemGetAllocationGranularity(
	size_t *granularity, const CUmemAllocationProp *prop, CUmemAllocationGranularity_flags option)
{
	uint32_t device;

	(void)option;
	TRY(usable(prop, &device));
	if (!granularity)
		return CUDA_ERROR_INVALID_VALUE;
	*granularity = GRAIN;
	return CUDA_SUCCESS;
}

CUresult cuMemAddressReserve(
	CUdeviceptr *ptr, size_t size, size_t alignment, CUdeviceptr addr, unsigned long long flags)
{
	uint64_t align = alignment > GRAIN ? alignment : GRAIN;
	struct range *r;
	char *p, *at;

	(void)addr;
	if (!drv.ready)
		return drv_why();
	if (!ptr || !size || size % GRAIN || flags || (alignment & (alignment - 1)))
		return CUDA_ERROR_INVALID_VALUE;
	r = calloc(1, sizeof(*r));
	p = mmap(NULL, size + align, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (!r || p == MAP_FAILED) {
		free(r);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	at = (char *)(((uintptr_t)p + align - 1) / align * align);
	if (at > p)
		munmap(p, (size_t)(at - p));
	munmap(at + size, (size_t)(p + align - at));
	r->addr = (CUdeviceptr)(uintptr_t)at;
	r->bytes = size;
	drv_lock();
	r->next = reservations;
	reservations = r;
	drv_unlock();
	*ptr = r->addr;
	return CUDA_SUCCESS;
}

static struct range **find(struct range **list, CUdeviceptr addr)
{
	while (*list && !(addr >= (*list)->addr && addr < (*list)->addr + (*list)->bytes))
		list = &(*list)->next;
	return list;
}

CUresult cuMemAddressFree(CUdeviceptr ptr, size_t size)
{
	CUresult rc = CUDA_ERROR_INVALID_VALUE;
	struct range **at, *r;

	drv_lock();
	at = find(&reservations, ptr);
	r = *at;
	if (r && r->addr == ptr && r->bytes == size) {
		bool mapped = false;

		for (struct range *m = mappings; m; m = m->next)
			mapped |= m->addr >= ptr && m->addr < ptr + size;
		if (!mapped) {
			*at = r->next;
			munmap((void *)(uintptr_t)ptr, size);
			free(r);
			rc = CUDA_SUCCESS;
		}
	}
	drv_unlock();
	return rc;
}

static struct phys *phys_of(CUmemGenericAllocationHandle handle)
{
	for (struct phys *p = all_phys; p; p = p->next)
		if ((CUmemGenericAllocationHandle)(uintptr_t)p == handle)
			return p;
	return NULL;
}

static void put(struct phys *p)
{
	if (--p->refs)
		return;
	for (struct phys **at = &all_phys; *at; at = &(*at)->next) {
		if (*at == p) {
			*at = p->next;
			break;
		}
	}
	drv_give(p->device, p->bytes);
	close(p->fd);
	free(p);
}

CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t size, const CUmemAllocationProp *prop,
	unsigned long long flags)
{
	struct phys *p;
	uint32_t device;
	CUresult rc;

	TRY(usable(prop, &device));
	if (!handle || !size || size % GRAIN || flags)
		return CUDA_ERROR_INVALID_VALUE;
	if (prop->requestedHandleTypes != CU_MEM_HANDLE_TYPE_NONE)
		return CUDA_ERROR_NOT_SUPPORTED;
	drv_cost(COST_ALLOC);
	p = calloc(1, sizeof(*p));
	if (!p)
		return CUDA_ERROR_OUT_OF_MEMORY;
	p->fd = memfd_create("gpusim", MFD_CLOEXEC);
	if (p->fd < 0 || ftruncate(p->fd, (off_t)size) < 0) {
		if (p->fd >= 0)
			close(p->fd);
		free(p);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	p->mark = MARK_PHYS;
	p->bytes = size;
	p->device = device;
	p->refs = 1;
	p->prop = *prop;
	drv_lock();
	rc = drv_take(device, size);
	if (rc == CUDA_SUCCESS) {
		p->next = all_phys;
		all_phys = p;
		*handle = (CUmemGenericAllocationHandle)(uintptr_t)p;
	} else {
		close(p->fd);
		free(p);
	}
	drv_unlock();
	return rc;
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle)
{
	struct phys *p;

	drv_lock();
	p = phys_of(handle);
	if (p)
		put(p);
	drv_unlock();
	return p ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemMap(CUdeviceptr ptr, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
	unsigned long long flags)
{
	CUresult rc = CUDA_ERROR_INVALID_VALUE;
	struct range *res, *m;
	struct phys *p;

	if (!size || size % GRAIN || ptr % GRAIN || offset % GRAIN || flags)
		return CUDA_ERROR_INVALID_VALUE;
	m = calloc(1, sizeof(*m));
	if (!m)
		return CUDA_ERROR_OUT_OF_MEMORY;
	drv_lock();
	p = phys_of(handle);
	res = *find(&reservations, ptr);
	if (!p || !res || ptr + size > res->addr + res->bytes || offset + size > p->bytes)
		goto out;
	for (struct range *o = mappings; o; o = o->next)
		if (ptr < o->addr + o->bytes && o->addr < ptr + size)
			goto out;
	/* cuMemSetAccess gives access later. */
	if (mmap((void *)(uintptr_t)ptr, size, PROT_NONE, MAP_SHARED | MAP_FIXED | MAP_NORESERVE, p->fd,
		    (off_t)offset) == MAP_FAILED) {
		rc = CUDA_ERROR_MAP_FAILED;
		goto out;
	}
	*m = (struct range){.next = mappings, .addr = ptr, .bytes = size, .phys = p, .offset = offset};
	mappings = m;
	p->refs++;
	m = NULL;
	drv_alloc_add(ptr, size, ALLOC_VMM, p->device);
	rc = CUDA_SUCCESS;
out:
	free(m);
	drv_unlock();
	return rc;
}

CUresult cuMemUnmap(CUdeviceptr ptr, size_t size)
{
	CUresult rc = CUDA_ERROR_INVALID_VALUE;

	drv_lock();
	for (struct range **at = &mappings; *at;) {
		struct range *m = *at;
		struct alloc *a;

		if (m->addr < ptr || m->addr + m->bytes > ptr + size) {
			at = &m->next;
			continue;
		}
		*at = m->next;
		mmap((void *)(uintptr_t)m->addr, m->bytes, PROT_NONE,
			MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
		a = drv_alloc_find(m->addr);
		if (a)
			drv_alloc_unlist(a);
		put(m->phys);
		free(m);
		rc = CUDA_SUCCESS;
	}
	drv_unlock();
	return rc;
}

CUresult cuMemSetAccess(CUdeviceptr ptr, size_t size, const CUmemAccessDesc *desc, size_t count)
{
	CUresult rc = CUDA_ERROR_INVALID_VALUE;

	if (!drv.ready)
		return drv_why();
	if (!desc || !count)
		return CUDA_ERROR_INVALID_VALUE;
	drv_lock();
	for (struct range *m = mappings; m; m = m->next) {
		if (m->addr < ptr || m->addr + m->bytes > ptr + size)
			continue;
		/* This process acts as the device, so it must be able to write even read-only memory. */
		mprotect((void *)(uintptr_t)m->addr, m->bytes,
			desc[0].flags == CU_MEM_ACCESS_FLAGS_PROT_NONE ? PROT_NONE : PROT_READ | PROT_WRITE);
		rc = CUDA_SUCCESS;
	}
	drv_unlock();
	return rc;
}

CUresult cuMemGetAccess(unsigned long long *flags, const CUmemLocation *location, CUdeviceptr ptr)
{
	bool mapped;

	if (!flags || !location)
		return CUDA_ERROR_INVALID_VALUE;
	drv_lock();
	mapped = *find(&mappings, ptr) != NULL;
	drv_unlock();
	*flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
	return mapped ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *addr)
{
	struct range *m;

	if (!handle)
		return CUDA_ERROR_INVALID_VALUE;
	drv_lock();
	m = *find(&mappings, (CUdeviceptr)(uintptr_t)addr);
	if (m) {
		m->phys->refs++;
		*handle = (CUmemGenericAllocationHandle)(uintptr_t)m->phys;
	}
	drv_unlock();
	return m ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemGetAllocationPropertiesFromHandle(
	CUmemAllocationProp *prop, CUmemGenericAllocationHandle handle)
{
	struct phys *p;

	if (!prop)
		return CUDA_ERROR_INVALID_VALUE;
	drv_lock();
	p = phys_of(handle);
	if (p)
		*prop = p->prop;
	drv_unlock();
	return p ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
