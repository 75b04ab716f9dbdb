/*
 * Device memory counts against the account's quota: reserved before the driver is asked, given back if the
 * driver refuses and when the memory is freed. Over the quota the program gets the driver's own error for
 * it and the driver is not asked.
 */
#ifndef PRELOAD_MEMORY_H
#define PRELOAD_MEMORY_H

#include <stddef.h>

#include "preload/process/act.h"
#include "preload/memory/memory_mark.h"
#include "preload/memory/memory_table.h"

/* For every call that is not let through at once, whatever its category. */
bool arb_memory_before(struct act_call *call, CUresult *result);
CUresult arb_memory_after(struct act_call *call, CUresult result);

/* The queries that show the device's memory, after the driver answered them: query.c. */
void arb_query_after(const struct act_call *call);

/* What is reserved is needed, or is the most that may be: then the call is under way until it is settled. */
enum memory_need { MEMORY_ALL, MEMORY_MOST };

/* Between the parts. Counting: false means over the quota. A device without a client counts nothing. */
bool memory_reserve(struct arb_device *device, uint64_t bytes, enum memory_need need);
/* Reserves as memory_reserve does. 0; -ENOMEM; -EAGAIN: calls under way may give back what is missing. */
int memory_try(struct arb_device *device, uint64_t bytes, enum memory_need need);
void memory_settled(struct arb_device *device);
/* For people: the program has been refused, by the quota or by what one process may have; what for (NULL: an
 * allocation). Always false. memory_say.c. */
bool memory_refused(struct arb_device *device, uint64_t bytes);
bool memory_refused_for(struct arb_device *device, uint64_t bytes, const char *purpose);
/* Says that the driver has refused memory, when what was reserved for the call has been given back; 0 bytes: not
 * known how much. */
void memory_driver_refused(struct arb_device *device, uint64_t bytes);
/* How long calls under way are waited for at most: the driver takes microseconds, if no thread is held up. */
#define MEMORY_UNDER_WAY_NS (2000 * MS)
/* Reserves as memory_reserve does; before it gives up it takes back what the process's pools keep without using it. */
bool memory_reserve_hard(struct arb_device *device, uint64_t bytes, enum memory_need need);
bool memory_reserve_hard_for(
	struct arb_device *device, uint64_t bytes, enum memory_need need, const char *purpose);
/* Takes back what the pools keep; for any thread, also one that captures. */
void memory_give_back(void);
/* Reserves as memory_reserve_hard does, for a call in a stream; frees that are queued there are waited for. */
bool memory_reserve_waiting(
	struct arb_device *device, uint64_t bytes, enum memory_need need, const struct act_call *call);
/* Are `bytes` more than there will ever be room for? */
bool memory_never(struct arb_device *device, uint64_t bytes);
/* What other processes of the account have by the books but not on the device, because they are frozen. Asks the driver
 * about each of them. */
uint64_t memory_frozen(struct arb_device *device);
/* Counts up to `bytes`, as far as there is room: how much it was. */
uint64_t memory_reserve_rest(struct arb_device *device, uint64_t bytes);
void memory_release(struct arb_device *device, uint64_t bytes);
/* Says what of the GPU is in use, where those who take turns at the memory want to know. Costs nothing else. */
void memory_say_used(struct arb_device *device);
/* The device of an ordinal, and the ordinal of the current context's. */
struct arb_device *memory_device(CUdevice ordinal);

/* Whether memory at this location is a GPU's, and whose. Since CUDA 13.4 it may be said to a part of one. */
static inline bool memory_on_device(const CUmemLocation *at, CUdevice *ordinal)
{
	*ordinal = (int)at->type == CUDA_ABI_LOCATION_DOMAIN ? at->id & 0xff : at->id;
	return at->type == CU_MEM_LOCATION_TYPE_DEVICE || (int)at->type == CUDA_ABI_LOCATION_DOMAIN;
}
bool memory_ordinal(CUdevice *ordinal);

/* Plain pointers and arrays: memory_plain.c. */
bool memory_plain_before(struct act_call *call, CUresult *result);
CUresult memory_plain_after(struct act_call *call, CUresult result);
void memory_free_before(struct act_call *call);
void memory_free_after(struct act_call *call, CUresult result);

/* What such a call is about to take. */
uint64_t memory_plain_bytes(const struct act_call *call);
/* What the device loses by an allocation of so many bytes. */
uint64_t memory_pages(uint64_t bytes);

/* Contexts, which count as configured, and what ends with them: memory_context.c. */
bool memory_context_before(struct act_call *call, CUresult *result);
void memory_context_after(struct act_call *call, CUresult result);
void memory_context_forget(void);

/* Contexts whose memory is measured (context_mb = auto): memory_auto.c. Counts a context that was made, and returns
 * what it takes; code that is loaded counts with the context. */
uint64_t memory_auto_context(struct arb_device *device, CUcontext ctx);
/* memory_nvml.c: what NVML says that this process has of that GPU; 0: it does not say, or not soon. */
uint64_t memory_by_nvml(const struct arb_device *device);
void memory_nvml_forget(void);
void memory_code_before(struct act_call *call);
void memory_code_after(struct act_call *call, CUresult result);
/* How many contexts have ended so far. */
uint64_t memory_epoch(void);

/* More memory than the GPU has: memory_managed.c. */
bool memory_managed_on(const struct arb_device *device);
bool memory_managed_wanted(const struct arb_device *device, const struct act_call *call);
/* Instead of the call: the driver's answer. */
CUresult memory_managed_alloc(struct act_call *call, size_t bytes, size_t pitch);
/*
 * A stay in the running set has begun, in the thread and context that will launch: if it begins a turn, what
 * others pushed out is fetched back, as long as `go_on` says so.
 */
void memory_come_back(struct arb_device *device, bool (*go_on)(void *argument), void *argument);

/* Stream-ordered allocations on a GPU with more promised than it has: memory_ordered.c. The first two return whether
 * *result is the answer. */
bool memory_ordered_alloc(
	struct act_call *call, struct arb_device *device, CUmemoryPool pool, CUresult *result);
bool memory_ordered_free(struct act_call *call, CUresult *result);
/* Is memory kept that the program has freed? give_back frees it in earnest, as far as its work has ended. */
bool memory_ordered_any(void);
void memory_ordered_give_back(void);
/* Frees kept memory and waits for work that uses it, until there is room for `bytes`, which are then reserved. */
bool memory_ordered_wait(struct arb_device *device, uint64_t bytes, enum memory_need need);
/* The program has waited for something. */
void memory_ordered_synced(void);
/* What programs ask a pool for, and of it. */
void memory_ordered_trim(CUmemoryPool pool, CUdevice ordinal, uint64_t keep);
void memory_ordered_attribute(CUmemoryPool pool, CUdevice ordinal, CUmemPool_attribute what, void *value);
/* A stream is about to end; a context ends. */
void memory_ordered_stream(CUstream stream);
void memory_ordered_context(CUcontext ctx, uint64_t epoch, enum memory_end what);
void memory_ordered_forget(void);

/* Pools and the memory of graphs, which count by what they reserve: memory_pool.c, memory_stock.c. */
bool memory_pool_before(struct act_call *call, CUresult *result);
CUresult memory_pool_after(struct act_call *call, CUresult result);
bool memory_graph_before(struct act_call *call, CUresult *result);
void memory_graph_after(const struct act_call *call);
/* In what steps drivers take it. */
uint64_t memory_pool_most(uint64_t bytes);
/* Calls of this process that have reserved the most that they may need, and have not settled. */
unsigned memory_calls_flying(void);
/* All work of a context has ended (NULL: of the current one); and whether that would help anybody. */
void memory_pool_drained(CUcontext ctx);
bool memory_pool_pending(void);
/* Whether something that was freed in a stream, or by a graph, may still be on its way. */
bool memory_pool_owes(void);
/* Whether there can be graphs with memory. */
bool memory_graph_any(void);
/* What a device's graphs may take now counts; false: there is no room. And when they have, or have not. */
int memory_graph_expect(CUdevice ordinal, uint64_t bytes);
void memory_graph_done(CUdevice ordinal, uint64_t bytes);

/* Executable graphs, made, launched, destroyed: memory_graph.c, memory_launch.c. */
/* Whether this executable graph has memory. */
bool memory_graph_has(uint64_t exec);
bool memory_exec_before(struct act_call *call, CUresult *result);
void memory_exec_after(struct act_call *call, CUresult result);
bool memory_launch_before(struct act_call *call, CUresult *result);
void memory_launch_after(struct act_call *call, CUresult result);
/* Something is freed that a graph may have left. */
void memory_graph_freed(CUdeviceptr at);
/* Around giving back what no graph uses. */
void memory_graph_trim_begin(void);
void memory_graph_trim_end(void);
/* A stream is about to end: its name may come back as another's. */
void memory_graph_stream(CUstream stream);
/* A context ends, and the events in it. */
void memory_graph_context(CUcontext ctx, enum memory_end what);
void memory_exec_forget(void);
/* A pointer of a pool was freed. */
void memory_pool_freed(const struct memory_entry *entry, const struct act_call *call);
/* A context ends, and the events in it. */
void memory_pool_context(CUcontext ctx, enum memory_end what);
/* Counts anew what each pool and graph has; `tight`: after giving back what is not in use. */
void memory_pool_settle_all(bool tight);
bool memory_pool_any(void);
void memory_pool_forget(void);

/* Physical memory by reference: memory_vmm.c. */
bool memory_vmm_before(struct act_call *call, CUresult *result);
void memory_vmm_after(struct act_call *call, CUresult result);
void memory_vmm_forget(void);

#endif
