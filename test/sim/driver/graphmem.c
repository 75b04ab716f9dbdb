/*
 * The memory of graphs. An allocation node has an address from the time when it is made. A launch or an upload puts
 * physical memory behind that address, from a stock of each device that gives nothing back by itself. The memory of a
 * graph is used again by the next graph in its stream, and by graphs in other streams when its work is done. An
 * allocation that its graph does not free keeps its memory until the program frees it.
 */
#include "test/sim/driver/graph.h"

#define GRAIN (2u << 20)

/* A piece of the stock. */
struct chunk {
	struct chunk *next;
	uint32_t device;
	uint64_t bytes;
	const struct graph_memory *user; /* the graph that mapped it last */
	bool launching;                  /* the work of that graph is being queued */
	CUdeviceptr pin;                 /* the allocation, not freed yet, to which it belongs; 0: none */
	unsigned long long stream;       /* where it was used last; ring, gen: when that is done */
	uint32_t ring, gen;
	uint64_t count;
};

static struct chunk *stock;
static uint64_t high[SIM_MAX_DEVICES][2]; /* used, reserved */

static bool idle(const struct chunk *c)
{
	return !c->launching && !c->pin && (!c->count || drv_reached(c->ring, c->gen, c->count));
}

static uint64_t sum(uint32_t device, bool used)
{
	uint64_t bytes = 0;

	for (const struct chunk *c = stock; c; c = c->next)
		if (c->device == device && (!used || c->user || !idle(c)))
			bytes += c->bytes;
	return bytes;
}

static void note_high(uint32_t device)
{
	for (int i = 0; i < 2; i++) {
		uint64_t now = sum(device, i == 0);

		high[device][i] = now > high[device][i] ? now : high[device][i];
	}
}

static void trim(uint32_t device)
{
	for (struct chunk **at = &stock; *at;) {
		struct chunk *c = *at;

		if (c->device != device || !idle(c)) {
			at = &c->next;
			continue;
		}
		*at = c->next;
		drv_give(device, c->bytes);
		free(c);
	}
}

static struct chunk *fresh(uint32_t device, uint64_t bytes)
{
	struct chunk *c = calloc(1, sizeof(*c));

	if (c && drv_take(device, bytes) != CUDA_SUCCESS) {
		drv_collect();
		drv_pool_trim();
		trim(device);
		if (drv_take(device, bytes) != CUDA_SUCCESS) {
			free(c);
			c = NULL;
		}
	}
	if (!c)
		return NULL;
	c->device = device;
	c->bytes = bytes;
	c->next = stock;
	stock = c;
	return c;
}

/* Splits a piece that is larger than `bytes`: the rest becomes a piece of its own. */
static bool split(struct chunk *c, uint64_t bytes)
{
	struct chunk *rest;

	if (c->bytes <= bytes)
		return true;
	rest = malloc(sizeof(*rest));
	if (!rest)
		return false;
	*rest = *c;
	rest->bytes = c->bytes - bytes;
	c->bytes = bytes;
	c->next = rest;
	return true;
}

static bool usable(const struct chunk *c, const struct graph_memory *m, CUstream s, int pass)
{
	if (c->launching || c->pin)
		return false;
	return pass == 0 ? c->user == m : pass == 1 ? c->stream == s->id : idle(c);
}

static bool take(const struct graph_memory *m, uint32_t device, uint64_t bytes, CUdeviceptr pin, CUstream s)
{
	struct chunk *c;

	for (int pass = 0; pass < 3 && bytes; pass++) {
		for (c = stock; c && bytes; c = c->next) {
			if (c->device != device || !usable(c, m, s, pass) || !split(c, bytes))
				continue;
			c->launching = true;
			c->user = m;
			c->pin = pin;
			bytes -= c->bytes;
		}
	}
	if (!bytes)
		return true;
	c = fresh(device, bytes);
	if (c) {
		c->launching = true;
		c->user = m;
		c->pin = pin;
	}
	return c != NULL;
}

static bool live(CUdeviceptr p)
{
	for (const struct chunk *c = stock; c; c = c->next)
		if (c->pin == p)
			return true;
	return false;
}

static void unpin(CUdeviceptr p, CUstream s)
{
	struct task put = {.kind = TASK_PUT, .free = p};
	uint64_t count = 0;

	if (s) {
		drv_task(s, &put, 0);
		count = s->tail;
	}
	for (struct chunk *c = stock; c; c = c->next) {
		if (c->pin != p)
			continue;
		c->pin = 0;
		if (s) {
			c->ring = s->ring;
			c->gen = s->gen;
			c->count = count;
			c->stream = s->id;
		}
	}
	if (!s)
		drv_graphmem_put(p);
}

CUresult drv_graphmem_free(CUdeviceptr p, CUstream s)
{
	if (!live(p))
		return CUDA_ERROR_INVALID_VALUE;
	unpin(p, s);
	return CUDA_SUCCESS;
}

void drv_graphmem_get(CUdeviceptr p)
{
	struct alloc *a = drv_alloc_find(p);

	if (a)
		a->refs++;
}

void drv_graphmem_put(CUdeviceptr p)
{
	struct alloc *a = drv_alloc_find(p);

	if (a && a->kind == ALLOC_GRAPH && --a->refs == 0)
		drv_alloc_drop(a);
}

static bool behind(CUgraphNode node, CUgraphNode what)
{
	if (node == what)
		return true;
	for (size_t i = 0; i < node->ndeps; i++)
		if (behind(node->deps[i], what))
			return true;
	return false;
}

/* Returns whether all uses of the address by nodes have ended when the nodes in `deps` end. */
static bool over(CUgraph g, const CUgraphNode *deps, size_t n, CUdeviceptr p)
{
	size_t made = 0, freed = 0;

	for (size_t i = 0; i < g->n; i++) {
		const struct task *t = &g->nodes[i]->task;
		bool before = false;

		if (t->kind == TASK_ALLOC && t->alloc.dptr == p)
			made++;
		if (t->kind != TASK_FREE || t->free != p)
			continue;
		freed++;
		for (size_t k = 0; k < n; k++)
			before |= behind(deps[k], g->nodes[i]);
		if (!before)
			return false;
	}
	return made == freed;
}

/* Returns an address for an allocation node. Allocations of a graph that never exist at the same time may share one. */
CUdeviceptr drv_graphmem_address(
	CUgraph g, const CUgraphNode *deps, size_t n, uint32_t device, uint64_t bytes)
{
	struct alloc *a;

	for (size_t i = 0; i < g->n; i++) {
		const struct task *t = &g->nodes[i]->task;

		if (t->kind != TASK_ALLOC)
			continue;
		a = drv_alloc_find(t->alloc.dptr);
		if (a && a->device == device && a->bytes >= bytes && over(g, deps, n, a->addr))
			return a->addr;
	}
	a = drv_alloc_new(ALLOC_GRAPH, device, bytes, 512);
	return a ? a->addr : 0;
}

static struct graph_part *part_of(struct graph_memory *m, CUdeviceptr p)
{
	for (unsigned i = 0; i < m->n; i++)
		if (m->part[i].addr == p)
			return &m->part[i];
	return NULL;
}

bool drv_graphmem_step(struct graph_memory *m, const struct task *t)
{
	CUdeviceptr p = t->kind == TASK_ALLOC ? t->alloc.dptr : t->free;
	struct graph_part *part;

	if (t->kind != TASK_ALLOC && t->kind != TASK_FREE)
		return true;
	part = part_of(m, p);
	if (!part) {
		part = realloc(m->part, (m->n + 1) * sizeof(*part));
		if (!part)
			return false;
		m->part = part;
		part += m->n++;
		*part = (struct graph_part){.addr = p};
	}
	if (t->kind == TASK_FREE) {
		part->frees++;
		return true;
	}
	part->allocs++;
	if (part->allocs == 1) {
		struct alloc *a = drv_alloc_find(p);

		part->device = a->device;
		part->bytes = (a->bytes + GRAIN - 1) / GRAIN * GRAIN;
		drv_graphmem_get(p);
	}
	return true;
}

/* Releases the memory of a graph. If the graph is still running, its addresses stay for ever. */
void drv_graphmem_end(struct graph_memory *m, bool running)
{
	for (struct chunk *c = stock; c; c = c->next)
		if (c->user == m)
			c->user = NULL;
	for (unsigned i = 0; i < m->n; i++)
		if (m->part[i].allocs && !running)
			drv_graphmem_put(m->part[i].addr);
	free(m->part);
	*m = (struct graph_memory){0};
}

/* Checks that what the last launch left behind was freed. With `auto_free` the graph frees it itself. */
static CUresult clear(struct graph_memory *m, CUstream s, bool auto_free)
{
	for (unsigned i = 0; i < m->n; i++) {
		if (!m->part[i].allocs || !live(m->part[i].addr))
			continue;
		if (!auto_free)
			return CUDA_ERROR_INVALID_VALUE;
		unpin(m->part[i].addr, s);
	}
	return CUDA_SUCCESS;
}

CUresult drv_graphmem_bind(struct graph_memory *m, CUstream s, bool auto_free, bool launch)
{
	bool room = true;

	if (!m->n)
		return CUDA_SUCCESS;
	if (launch)
		TRY(clear(m, s, auto_free));
	for (unsigned i = 0; i < m->n && room; i++) {
		const struct graph_part *p = &m->part[i];

		if (p->allocs && !live(p->addr))
			room = take(m, p->device, p->bytes, launch && p->allocs > p->frees ? p->addr : 0, s);
	}
	for (struct chunk *c = stock; c && !room; c = c->next) {
		if (!c->launching || c->user != m)
			continue;
		c->launching = false;
		c->pin = 0;
	}
	for (unsigned i = 0; i < m->n; i++) {
		const struct graph_part *p = &m->part[i];

		if (p->allocs && !room)
			trim(p->device);
		else if (p->allocs)
			note_high(p->device);
		if (room && launch && p->allocs > p->frees)
			drv_graphmem_get(p->addr);
	}
	return room ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

void drv_graphmem_queued(struct graph_memory *m, CUstream s, uint64_t count)
{
	for (struct chunk *c = stock; c && m->n; c = c->next) {
		if (!c->launching || c->user != m)
			continue;
		c->launching = false;
		c->stream = s->id;
		c->ring = s->ring;
		c->gen = s->gen;
		c->count = count;
	}
	/* Allocations that other graphs have left behind and this graph frees. */
	for (unsigned i = 0; i < m->n; i++)
		if (m->part[i].frees && !m->part[i].allocs)
			drv_graphmem_free(m->part[i].addr, s);
}

CUresult cuDeviceGetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attr, void *value)
{
	uint32_t physical;

	TRY(drv_device(device, &physical));
	if (!value || attr > CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH)
		return CUDA_ERROR_INVALID_VALUE;
	drv_lock();
	note_high(physical);
	if (attr == CU_GRAPH_MEM_ATTR_USED_MEM_HIGH || attr == CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH)
		*(cuuint64_t *)value = high[physical][attr == CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH];
	else
		*(cuuint64_t *)value = sum(physical, attr == CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT);
	drv_unlock();
	return CUDA_SUCCESS;
}

CUresult cuDeviceSetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attr, void *value)
{
	uint32_t physical;

	TRY(drv_device(device, &physical));
	if (!value ||
		(attr != CU_GRAPH_MEM_ATTR_USED_MEM_HIGH && attr != CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH))
		return CUDA_ERROR_INVALID_VALUE;
	drv_lock();
	high[physical][attr == CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH] = 0;
	drv_unlock();
	return CUDA_SUCCESS;
}

CUresult cuDeviceGraphMemTrim(CUdevice device)
{
	uint32_t physical;

	TRY(drv_device(device, &physical));
	drv_lock();
	trim(physical);
	drv_unlock();
	return CUDA_SUCCESS;
}
