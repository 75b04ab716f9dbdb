/*
 * Device memory counts against the account's quota. It is reserved before the driver is asked, and given back if
 * the driver refuses or when the memory is freed. Over the quota the driver is not asked, and the program gets the
 * error that the driver would have returned.
 */
#ifndef PRELOAD_MEMORY_H
#define PRELOAD_MEMORY_H

#include <stddef.h>

#include "preload/process/act.h"
#include "preload/memory/memory_mark.h"
#include "preload/memory/memory_table.h"

/* Called for every call that does not take the fast path, whatever its category. */
bool arb_memory_before(struct act_call *call, CUresult *result);
CUresult arb_memory_after(struct act_call *call, CUresult result);

/* Corrects the driver's answer to a query that shows the device's memory: query.c. */
void arb_query_after(const struct act_call *call);

/* MEMORY_ALL: all of the bytes are needed. MEMORY_MOST: at most so many are needed; the call is under way until
 * memory_settled. */
enum memory_need { MEMORY_ALL, MEMORY_MOST };

/* Reserves bytes of the account's quota; false: there is no room. A device without a client counts nothing. */
bool memory_reserve(struct arb_device *device, uint64_t bytes, enum memory_need need);
/* Reserves as memory_reserve does. Returns 0, -ENOMEM, or -EAGAIN if calls under way may give back what is missing. */
int memory_try(struct arb_device *device, uint64_t bytes, enum memory_need need);
/* A call that reserved MEMORY_MOST is no longer under way. */
void memory_settled(struct arb_device *device);
/* Says on standard error that the program has been refused memory, by the quota or by what one process may have.
 * `purpose` is what the memory was for (NULL: an allocation). Returns false always. memory_say.c. */
bool memory_refused(struct arb_device *device, uint64_t bytes);
bool memory_refused_for(struct arb_device *device, uint64_t bytes, const char *purpose);
/* Says that the driver has refused memory. To be called after the call's reservation was given back. `bytes` is 0 if
 * the size is not known. */
void memory_driver_refused(struct arb_device *device, uint64_t bytes);
/* The longest wait for calls under way. The driver takes microseconds for one, unless its thread is held up. */
#define MEMORY_UNDER_WAY_NS (2000 * MS)
/* Reserves as memory_reserve does. Before it gives up it takes back what the process's pools keep unused, and waits for
 * calls under way. If it fails it says so on standard error. */
bool memory_reserve_hard(struct arb_device *device, uint64_t bytes, enum memory_need need);
bool memory_reserve_hard_for(
	struct arb_device *device, uint64_t bytes, enum memory_need need, const char *purpose);
/* Takes back what the pools keep unused. Any thread may call it, also one that captures. */
void memory_give_back(void);
/* Reserves as memory_reserve_hard does, for a call in a stream, and waits for frees that are queued in that stream. */
bool memory_reserve_waiting(
	struct arb_device *device, uint64_t bytes, enum memory_need need, const struct act_call *call);
/* Tells whether `bytes` are more than the whole quota. */
bool memory_never(struct arb_device *device, uint64_t bytes);
/* Returns how much other processes of the account have by the books but not on the device, because they were
 * checkpointed: memory_frozen.c. */
uint64_t memory_frozen(struct arb_device *device);
/* Reserves up to `bytes`, as far as there is room, and returns how much it reserved. */
uint64_t memory_reserve_rest(struct arb_device *device, uint64_t bytes);
void memory_release(struct arb_device *device, uint64_t bytes);
/* Tells the segment how much of the GPU's memory is in use, if clients take turns at the memory; otherwise it costs
 * one test. */
void memory_say_used(struct arb_device *device);
struct arb_device *memory_device(CUdevice ordinal);

/* Tells whether memory at this location is on a GPU, and sets that GPU's ordinal. Since CUDA 13.4 a location may also be
 * a part of a GPU. */
static inline bool memory_on_device(const CUmemLocation *at, CUdevice *ordinal)
{
	*ordinal = (int)at->type == CUDA_ABI_LOCATION_DOMAIN ? at->id & 0xff : at->id;
	return at->type == CU_MEM_LOCATION_TYPE_DEVICE || (int)at->type == CUDA_ABI_LOCATION_DOMAIN;
}
/* Sets the ordinal of the current context's device; false: no context is current. */
bool memory_ordinal(CUdevice *ordinal);

/* Plain pointers and arrays: memory_plain.c. */
bool memory_plain_before(struct act_call *call, CUresult *result);
CUresult memory_plain_after(struct act_call *call, CUresult result);
void memory_free_before(struct act_call *call);
void memory_free_after(struct act_call *call, CUresult result);

/* Returns how much memory a call that makes a pointer or an array is about to take. */
uint64_t memory_plain_bytes(const struct act_call *call);
/* Returns how much memory the device loses by an allocation of `bytes`. */
uint64_t memory_pages(uint64_t bytes);

/* Contexts, which count as `context_mb` says, and the memory that ends with them: memory_context.c. */
bool memory_context_before(struct act_call *call, CUresult *result);
void memory_context_after(struct act_call *call, CUresult result);
void memory_context_forget(void);

/* Contexts whose memory is measured (context_mb = auto): memory_auto.c. Measures and reserves the memory of a context
 * that was made, and returns how much it is. Loaded code counts with its context. */
uint64_t memory_auto_context(struct arb_device *device, CUcontext ctx);
/* Returns how much of the GPU's memory this process has by NVML; 0: NVML does not say, or not in time. memory_nvml.c. */
uint64_t memory_by_nvml(const struct arb_device *device);
void memory_nvml_forget(void);
void memory_code_before(struct act_call *call);
void memory_code_after(struct act_call *call, CUresult result);
/* Returns how many contexts of this process have ended, or begun to end, so far. */
uint64_t memory_epoch(void);

/* More memory than the GPU has: memory_managed.c. */
bool memory_managed_on(const struct arb_device *device);
bool memory_managed_wanted(const struct arb_device *device, const struct act_call *call);
/* Makes managed memory in place of the call, and returns the driver's answer. */
CUresult memory_managed_alloc(struct act_call *call, size_t bytes, size_t pitch);
/*
 * To be called when a busy interval has begun, by the thread and in the context that will launch. If the interval
 * begins a turn, the memory that others pushed out is fetched back, as long as `go_on` returns true.
 */
void memory_come_back(struct arb_device *device, bool (*go_on)(void *argument), void *argument);

/* Stream-ordered allocations where device memory becomes managed: memory_ordered.c. The first two return true if they
 * have dealt with the call; *result is then what the program gets. */
bool memory_ordered_alloc(
	struct act_call *call, struct arb_device *device, CUmemoryPool pool, CUresult *result);
bool memory_ordered_free(struct act_call *call, CUresult *result);
/* Tells whether memory that the program has freed is still kept. */
bool memory_ordered_any(void);
/* Really frees the kept memory whose work has ended. */
void memory_ordered_give_back(void);
/* Frees kept memory and waits for work that uses it, until there is room for `bytes`, which are then reserved. */
bool memory_ordered_wait(struct arb_device *device, uint64_t bytes, enum memory_need need);
/* To be called after the program has synchronised: kept memory may be freed now. */
void memory_ordered_synced(void);
/* To be called after the program has trimmed a pool, or has asked for one of its attributes. */
void memory_ordered_trim(CUmemoryPool pool, CUdevice ordinal, uint64_t keep);
void memory_ordered_attribute(CUmemoryPool pool, CUdevice ordinal, CUmemPool_attribute what, void *value);
/* To be called before a stream ends, and before and after a context ends. */
void memory_ordered_stream(CUstream stream);
void memory_ordered_context(CUcontext ctx, uint64_t epoch, enum memory_end what);
void memory_ordered_forget(void);

/* Pools and the memory of graphs, which count by what the driver has reserved for them: memory_pool.c,
 * memory_stock.c. */
bool memory_pool_before(struct act_call *call, CUresult *result);
CUresult memory_pool_after(struct act_call *call, CUresult result);
bool memory_graph_before(struct act_call *call, CUresult *result);
void memory_graph_after(const struct act_call *call);
/* Returns the most that an allocation of `bytes` can add to a pool: drivers take memory for pools in steps. */
uint64_t memory_pool_most(uint64_t bytes);
/* Returns how many calls of this process have reserved the most that they may need and have not settled. */
unsigned memory_calls_flying(void);
/* To be called when all work of a context has ended (NULL: of the current context). */
void memory_pool_drained(CUcontext ctx);
/* Tells whether a destroyed pool has frees that such an end of work would complete. */
bool memory_pool_pending(void);
/* Tells whether memory that was freed in a stream, or by a graph, may not have been given back yet. */
bool memory_pool_owes(void);
/* Tells whether there can be graphs with memory. */
bool memory_graph_any(void);
/* Reserves what graphs of a device may take now, with the answers of memory_try; memory_graph_done is called after the
 * driver has taken it, or has not. */
int memory_graph_expect(CUdevice ordinal, uint64_t bytes);
void memory_graph_done(CUdevice ordinal, uint64_t bytes);

/* Executable graphs, made, launched, destroyed: memory_graph.c, memory_launch.c. */
/* Tells whether this executable graph has memory. */
bool memory_graph_has(uint64_t exec);
bool memory_exec_before(struct act_call *call, CUresult *result);
void memory_exec_after(struct act_call *call, CUresult result);
bool memory_launch_before(struct act_call *call, CUresult *result);
void memory_launch_after(struct act_call *call, CUresult result);
/* To be called when the program frees an address that no table knows: a graph may have left it allocated. */
void memory_graph_freed(CUdeviceptr at);
/* To be called before and after memory that no graph uses is given back to the device. */
void memory_graph_trim_begin(void);
void memory_graph_trim_end(void);
/* To be called before a stream ends: a later stream may have the same handle. */
void memory_graph_stream(CUstream stream);
/* To be called before and after a context ends: its events end with it. */
void memory_graph_context(CUcontext ctx, enum memory_end what);
void memory_exec_forget(void);
/* To be called when a pointer of a pool was freed. */
void memory_pool_freed(const struct memory_entry *entry, const struct act_call *call);
/* To be called before and after a context ends: its events end with it. */
void memory_pool_context(CUcontext ctx, enum memory_end what);
/* Counts anew what pools and graphs have. `tight`: gives back what is not in use first. */
void memory_pool_settle_all(bool tight);
bool memory_pool_any(void);
void memory_pool_forget(void);

/* Physical memory by reference: memory_vmm.c. */
bool memory_vmm_before(struct act_call *call, CUresult *result);
void memory_vmm_after(struct act_call *call, CUresult result);
void memory_vmm_forget(void);

#endif
