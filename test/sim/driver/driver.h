/*
 * The driver library's own objects. A program's handle is a pointer to one of them. Each begins with a
 * mark, so that a stale or wrong handle is answered with an error.
 *
 * drv.lock protects all of them. It is released while a call waits for the device: a thread that waits
 * takes the file's lock without drv.lock.
 */
#ifndef SIM_DRIVER_H
#define SIM_DRIVER_H

#include "cuda_abi.h"
#include "test/sim/device/engine.h"
#include "test/sim/device/shm.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum mark {
	MARK_CTX = 0x51c0de01,
	MARK_STREAM,
	MARK_EVENT,
	MARK_MODULE,
	MARK_FUNC,
	MARK_GRAPH,
	MARK_NODE,
	MARK_EXEC,
	MARK_POOL,
	MARK_ARRAY,
	MARK_MIPMAP,
	MARK_LIBRARY,
	MARK_LINK,
	MARK_PHYS,
};

/* Kinds of calls, by what they cost the calling thread. */
enum cost {
	COST_LAUNCH,
	COST_EVENT,
	COST_COPY,
	COST_ALLOC,
	COST_SYNC,
	COST_CTX,
	COST_MODULE,
	COST_GRAPH,
	COST_QUERY,
	COST_COUNT
};

#define DRV_ARGS 6 /* parameters of a built-in kernel at most */

/* A built-in kernel: one that computes, or whose time is a parameter. */
struct builtin {
	const char *name;
	unsigned nparams;
	unsigned char size[DRV_ARGS];                                          /* 4 or 8 bytes */
	void (*run)(const uint64_t *args);                                     /* may be NULL */
	void (*timing)(const uint64_t *args, double *ns, unsigned *occupancy); /* may be NULL */
	bool faults;
	enum { RUNS_AT_ONCE, WAITS_FOR_RANKS, WAITS_FOR_VALUE } waits;
};

struct duration {
	enum { DUR_FIXED, DUR_UNIFORM, DUR_EXP, DUR_NORMAL } kind;
	double a, b; /* ns */
	unsigned occupancy;
};

struct CUfunc_st {
	uint32_t mark;
	struct CUmod_st *module;
	struct CUfunc_st *next;
	char *name;
	const struct builtin *builtin;
	struct duration duration;
	bool loaded; /* its first launch, or cuFuncLoad, is over; only used with drv.lazy_ns */
	int attribute[32];
	unsigned block[3], shared_bytes, param_bytes; /* set by the calls from before CUDA 4 */
	unsigned char param[256];
};

struct CUmod_st {
	uint32_t mark;
	CUcontext ctx;
	CUlibrary library;
	struct CUfunc_st *functions;
	char **entries; /* names in a PTX image; NULL when the image does not tell */
	unsigned nentries;
	int ptx; /* architecture of its PTX, 10 * major + minor */
	struct global {
		struct global *next;
		char *name;
		CUdeviceptr ptr;
		size_t bytes;
	} * globals;
};

enum task_kind {
	TASK_KERNEL,
	TASK_COPY,
	TASK_MEMSET,
	TASK_HOST,
	TASK_EMPTY,
	TASK_CHILD,
	TASK_RECORD,
	TASK_WAIT,
	TASK_ALLOC,
	TASK_FREE,
	TASK_MIGRATE,
	TASK_MEMOP,
	TASK_PUT, /* releases a reference of a graph's address */
};

/* A thing that a stream or a graph node does. */
struct task {
	enum task_kind kind;
	union {
		struct {
			CUfunction fn;
			unsigned grid[3], block[3], shared_bytes;
			bool cooperative;
			uint64_t args
				[DRV_ARGS]; /* of a built-in kernel; other kernels' parameters are not read */
		} kernel;
		struct {
			CUDA_MEMCPY3D desc;
			void *staged; /* copy of pageable memory that was made during the call */
		} copy;
		CUDA_MEMSET_NODE_PARAMS set;
		struct {
			CUhostFn fn;
			CUstreamCallback callback;
			void *data;
			CUstream stream;
		} host;
		CUgraph child;
		CUevent event;
		CUDA_MEM_ALLOC_NODE_PARAMS alloc;
		CUdeviceptr free;
		struct {
			uint64_t bytes;
			bool in;
		} migrate;
		struct {
			CUdeviceptr addr;
			uint64_t value;
			unsigned how; /* CU_STREAM_WAIT_VALUE_* */
			bool wait, wide;
		} memop;
	};
};

/* What this process must do once an op has completed. */
struct effect {
	enum { FX_NONE, FX_EVENT, FX_TASK } kind;
	void *what;
};

struct CUstream_st {
	uint32_t mark;
	uint32_t ring, gen;
	struct sim_ring *r;
	CUcontext ctx;
	struct CUstream_st *next; /* in drv.streams */
	unsigned flags;
	int priority;
	unsigned long long id;
	bool legacy, per_thread, internal;
	bool blocking;        /* ordered with the legacy stream */
	bool touched;         /* has work for which the legacy stream does not wait yet */
	uint64_t legacy_tail; /* up to which op of the legacy stream it waits already */
	uint64_t tail, launches, work;
	uint64_t fx_head;
	unsigned fx_pending;
	struct effect *fx;
	struct capture *capture;
	CUgraphNode *cap_deps; /* the nodes after which the next captured node comes */
	size_t ncap_deps;
};

struct CUevent_st {
	uint32_t mark;
	CUcontext ctx;
	unsigned flags;
	unsigned refs;
	bool recorded, done;
	uint32_t ring, gen;
	uint64_t count; /* complete when the ring has completed this many ops */
	uint64_t end_ns;
	struct capture *capture; /* if recorded in a capture: it has no time, only a place in the graph */
	CUgraphNode *cap_deps;
	size_t ncap_deps;
};

struct CUctx_st {
	uint32_t mark;
	uint32_t device;
	unsigned flags;
	unsigned refs; /* of the primary context */
	bool primary, active;
	bool touched; /* a blocking stream has work for which the legacy stream does not wait yet */
	unsigned long long id;
	unsigned api_version;
	CUresult sticky;
	CUstream legacy_stream;
	size_t limit[16];
	CUfunc_cache cache;
	struct CUctx_st *next;
	struct CUctx_st *parent; /* of a green context */
};

struct driver {
	pthread_mutex_t lock;
	bool ready;
	CUresult why; /* when not ready */
	pthread_mutex_t loading;
	uint64_t cost_ns[COST_COUNT];
	uint64_t lazy_ns, lazy_most_ns; /* cost of the first launch of a function or a graph */
	uint64_t start_ns;              /* from the call to the device: work arrives this much later */
	uint64_t callback_ns, callback_most_ns; /* from the end of the work to the call of a host function */
	unsigned connections; /* hardware queues that its streams share; 0: each stream has its own */
	unsigned streams_made;
	unsigned width; /* width of kernels that do not say theirs, in 1/1000 of the device */
	unsigned visible[SIM_MAX_DEVICES];
	unsigned nvisible;
	bool blocking;        /* a launch returns when its kernel has ended */
	bool strict;          /* calls that ask about an event need a current context */
	bool instances;       /* each device is a part of one GPU, with a UUID of its own */
	bool knows_instances; /* cuDeviceGetUuid gives an instance's UUID, as since CUDA 13 */
	CUcontext contexts;
	struct CUctx_st *primary; /* of each device */
	CUstream streams;
	unsigned fx_pending;
	unsigned captures;
	uint64_t random;
	unsigned long long next_id;
	struct sim_settings *set;
};

extern struct driver drv;

#define TRY(call)                                                                                            \
	do {                                                                                                 \
		CUresult try_rc_ = (call);                                                                   \
		if (try_rc_ != CUDA_SUCCESS)                                                                 \
			return try_rc_;                                                                      \
	} while (0)

/* Defines a call, and its variant in which a NULL stream means the thread's own default stream. */
#define TWIN(name, suffix, params, call)                                                                     \
	CUresult name params                                                                                 \
	{                                                                                                    \
		const bool pt = false;                                                                       \
		return call;                                                                                 \
	}                                                                                                    \
	CUresult name##suffix params                                                                         \
	{                                                                                                    \
		const bool pt = true;                                                                        \
		return call;                                                                                 \
	}
#define PICK(s) ((s) ? (s) : pt ? CU_STREAM_PER_THREAD : CU_STREAM_LEGACY)

/* driver.c */
void drv_cost_slow(uint64_t ns);
static inline void drv_cost(enum cost c)
{
	if (drv.cost_ns[c])
		drv_cost_slow(drv.cost_ns[c]);
}
/* Returns whether a thing that is loaded at its first use must still be loaded, by drv_load() and without drv.lock. */
static inline bool drv_unloaded(const bool *loaded)
{
	return drv.lazy_most_ns && !__atomic_load_n(loaded, __ATOMIC_ACQUIRE);
}
void drv_load(bool *loaded);
/* Returns why the driver cannot be used; never success. */
static inline CUresult drv_why(void)
{
	return drv.why != CUDA_SUCCESS ? drv.why : CUDA_ERROR_NOT_INITIALIZED;
}
/* checkpoint.c */
void drv_frozen(void);
/* Takes drv.lock in a thread of the driver, which goes on while the program's calls are frozen. */
static inline void drv_lock_always(void)
{
	pthread_mutex_lock(&drv.lock);
}
static inline void drv_lock(void)
{
	pthread_mutex_lock(&drv.lock);
	if (drv.ready && __atomic_load_n(&sim_shm.file->proc[sim_shm.slot].frozen, __ATOMIC_RELAXED))
		drv_frozen();
}
static inline void drv_unlock(void)
{
	pthread_mutex_unlock(&drv.lock);
}
double drv_random(void); /* 0 < x < 1 */
uint64_t drv_between(uint64_t low, uint64_t high);

/* context.c */
CUresult drv_current(CUcontext *ctx); /* the current context, usable */
bool drv_ctx_valid(CUcontext ctx);

/* stream.c */
CUresult drv_stream(CUstream handle, CUstream *stream);
CUstream drv_stream_new(CUcontext ctx, unsigned flags);
void drv_streams_close(CUcontext ctx);
CUresult drv_ctx_drain(CUcontext ctx);

/* submit.c: everything that puts work into rings, called with drv.lock held (released while waiting). */
uint64_t drv_push(CUstream s, struct sim_op op, struct effect fx);
void drv_push_wait(CUstream s, uint32_t ring, uint32_t gen, uint64_t count);
uint64_t drv_marker(CUstream s);
CUresult drv_task(CUstream s, const struct task *task, unsigned flags);
CUresult drv_kernel(CUstream s, CUfunction fn, const uint64_t *args, unsigned flags);
void drv_launch_room(CUstream s);
void drv_collect(void);

/* Called without drv.lock. */
void drv_wait_count(uint32_t ring, uint32_t gen, uint64_t count);
bool drv_reached(uint32_t ring, uint32_t gen, uint64_t count);
CUresult drv_issue(CUstream handle, const struct task *task, bool wait);

/* hostfn.c */
void drv_host_add(CUstream s, uint64_t count, const struct task *task);

/* memop.c */
bool drv_memop_met(const struct task *t);
void drv_memop_write(const struct task *t);

/* event.c */
void drv_event_record(CUevent e, CUstream s);
void drv_event_put(CUevent e);

/* kernels.c */
const struct builtin *drv_builtin(const char *name);
void drv_duration(const char *name, struct duration *d);
uint64_t drv_kernel_work(const struct CUfunc_st *fn, const uint64_t *args, unsigned *occupancy);

/* launch.c */
CUresult drv_kernel_task(struct task *t, CUfunction f, const unsigned *grid, const unsigned *block,
	unsigned shared_bytes, void **params, void **extra);

/* copy.c */
bool drv_copy_normal(CUDA_MEMCPY3D *d);
void drv_copy_run(const struct task *t);
void drv_memset_run(const CUDA_MEMSET_NODE_PARAMS *p);
void drv_copy_cost(const struct task *t, struct sim_op *op);

/* capture.c */
CUresult drv_capture_task(CUstream s, const struct task *task);
CUresult drv_capture_unsafe(void);
CUresult drv_capture_implicit(CUcontext ctx);
CUresult drv_capture_record(CUevent e, CUstream s);
CUresult drv_capture_wait(CUevent e, CUstream s);
void drv_capture_drop(CUstream s);
CUresult drv_capture_invalidate(CUstream s, CUresult rc);

/* sim_memory.c */
enum alloc_kind {
	ALLOC_DEVICE,
	ALLOC_MANAGED,
	ALLOC_HOST,
	ALLOC_REGISTERED,
	ALLOC_POOL,
	ALLOC_VMM,
	ALLOC_ARRAY,
	ALLOC_GRAPH,
	ALLOC_IPC,
};
struct alloc {
	CUdeviceptr addr;
	uint64_t bytes, rounded;
	enum alloc_kind kind;
	uint32_t device;
	CUcontext ctx;
	unsigned flags;
	unsigned long long id;
	CUmemoryPool pool;
	bool exported; /* its pages are in a file that other processes may open */
	unsigned refs; /* references, if it is a graph's address */
};
struct alloc *drv_alloc_find(CUdeviceptr p);
struct alloc *drv_alloc_new(enum alloc_kind kind, uint32_t device, uint64_t bytes, uint64_t align);
struct alloc *drv_alloc_add(CUdeviceptr addr, uint64_t bytes, enum alloc_kind kind, uint32_t device);
void drv_alloc_drop(struct alloc *a);
void drv_alloc_unlist(struct alloc *a);
void drv_alloc_drop_ctx(CUcontext ctx);
CUresult drv_take(uint32_t device, uint64_t bytes);
void drv_give(uint32_t device, uint64_t bytes);

/* ipc.c */
void drv_ipc_unshare(const struct alloc *a);
void drv_ipc_closed(const struct alloc *a);
void drv_ipc_unload(void);

/* pool.c */
void drv_pool_freed(CUdeviceptr p);
void drv_pool_trim(void);
void drv_pool_release(struct alloc *a, unsigned long long stream, unsigned pending);

/* graphmem.c: frees an allocation that a graph has left behind, in the order of stream `s`, or at once if it is NULL */
CUresult drv_graphmem_free(CUdeviceptr p, CUstream s);
void drv_graphmem_put(CUdeviceptr p);

/* sim_device.c */
CUresult drv_device(CUdevice dev, uint32_t *physical);
int drv_device_index(uint32_t physical);
int drv_attribute(uint32_t physical, CUdevice_attribute a);

/* array.c */
void *drv_array_bytes(CUarray a, size_t *pitch, size_t *height);

#endif
