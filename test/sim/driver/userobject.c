/* User objects, which live as long as graphs hold references to them. */
#include "test/sim/driver/graph.h"

struct CUuserObject_st {
	void *ptr;
	CUhostFn destroy;
	unsigned refs;
};

struct held {
	struct held *next;
	CUgraph graph;
	CUuserObject object;
	unsigned count;
};

static struct held *all;

/* Called without drv.lock: the destructor is the program's. */
static void put(CUuserObject o, unsigned count)
{
	bool last;

	drv_lock();
	o->refs -= count < o->refs ? count : o->refs;
	last = !o->refs;
	drv_unlock();
	if (!last)
		return;
	o->destroy(o->ptr);
	free(o);
}

CUresult cuUserObjectCreate(CUuserObject *object_out, void *ptr, CUhostFn destroy,
	unsigned int initialRefcount, unsigned int flags)
{
	CUuserObject o;

	if (!drv.ready)
		return drv_why();
	if (!object_out || !destroy || !initialRefcount || flags != CU_USER_OBJECT_NO_DESTRUCTOR_SYNC)
		return CUDA_ERROR_INVALID_VALUE;
	o = calloc(1, sizeof(*o));
	if (!o)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*o = (struct CUuserObject_st){ptr, destroy, initialRefcount};
	*object_out = o;
	return CUDA_SUCCESS;
}

CUresult cuUserObjectRetain(CUuserObject object, unsigned int count)
{
	if (!object || !count)
		return CUDA_ERROR_INVALID_VALUE;
	drv_lock();
	object->refs += count;
	drv_unlock();
	return CUDA_SUCCESS;
}

CUresult cuUserObjectRelease(CUuserObject object, unsigned int count)
{
	if (!object || !count)
		return CUDA_ERROR_INVALID_VALUE;
	put(object, count);
	return CUDA_SUCCESS;
}

CUresult cuGraphRetainUserObject(CUgraph graph, CUuserObject object, unsigned int count, unsigned int flags)
{
	struct held *h;

	if (!drv_graph_valid(graph) || !object || !count || flags & ~1u)
		return CUDA_ERROR_INVALID_VALUE;
	h = calloc(1, sizeof(*h));
	if (!h)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*h = (struct held){.graph = graph, .object = object, .count = count};
	drv_lock();
	if (!(flags & CU_GRAPH_USER_OBJECT_MOVE))
		object->refs += count;
	h->next = all;
	all = h;
	drv_unlock();
	return CUDA_SUCCESS;
}

/* Takes an entry of a graph for an object (NULL: for any object) out of the list, and returns it. */
static struct held *take(CUgraph graph, CUuserObject object)
{
	struct held **at = &all, *h;

	while (*at && ((*at)->graph != graph || (object && (*at)->object != object)))
		at = &(*at)->next;
	h = *at;
	if (h)
		*at = h->next;
	return h;
}

CUresult cuGraphReleaseUserObject(CUgraph graph, CUuserObject object, unsigned int count)
{
	struct held *h;

	if (!drv_graph_valid(graph) || !object || !count)
		return CUDA_ERROR_INVALID_VALUE;
	drv_lock();
	h = take(graph, object);
	if (h && h->count > count) {
		h->count -= count;
		h->next = all;
		all = h;
		h = NULL;
	}
	drv_unlock();
	if (h)
		count = h->count;
	free(h);
	put(object, count);
	return CUDA_SUCCESS;
}

/* Called without drv.lock when a graph is destroyed. */
void drv_graph_objects_end(CUgraph graph)
{
	for (;;) {
		struct held *h;

		drv_lock();
		h = take(graph, NULL);
		drv_unlock();
		if (!h)
			return;
		put(h->object, h->count);
		free(h);
	}
}
