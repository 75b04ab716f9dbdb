/* What the tests of the preload's memory accounting share: a GPU, a quota, gpuarb's books and the GPU's. */
#ifndef TEST_PRELOAD_MEMORY_H
#define TEST_PRELOAD_MEMORY_H

#include <stdint.h>

#include "cuda_abi.h"
#include "units.h"
#include "test/harness.h"

#define PM_ACCOUNT "tenant"
#define OK(call)   T_CHECK((call) == CUDA_SUCCESS, "not success")
#define GIVES(call, code)                                                                                    \
	do {                                                                                                 \
		CUresult got_ = (call);                                                                      \
		T_CHECK(got_ == (code), "gives %d", (int)got_);                                              \
	} while (0)

/* Makes a new simulated GPU on which contexts take no memory, and a new segment; `quota` is the account's quota. */
void pm_begin(struct t_dir *dir, const char *quota);
void pm_end(struct t_dir *dir);
/* Sets the account's quota as an administrator. */
void pm_quota(const char *text);
/* Sets how much may be promised, as a multiple of the GPU's memory. */
void pm_ratio(const char *text);

/* Calls cuInit and makes a context on device 0. */
CUcontext pm_context(void);
/* Returns the UUID of a device, which is the name of its segment. */
const char *pm_uuid(int device);

/* Return the account's bytes by gpuarb's books, and the calling process's bytes by the GPU's own. */
uint64_t pm_counted(int device);
uint64_t pm_truth(int device);
/* Checks that both are `bytes`. */
#define PM_BOTH(bytes)                                                                                       \
	do {                                                                                                 \
		uint64_t want_ = (bytes), counted_ = pm_counted(0), truth_ = pm_truth(0);                    \
		T_CHECK(counted_ == want_ && truth_ == want_, "want %lld, counted %lld, truth %lld",         \
			(long long)want_, (long long)counted_, (long long)truth_);                           \
	} while (0)

/* preload_memory_race.c */
void pm_race(void);
void pm_race_managed(void);
/* preload_memory_graph.c */
void pm_graphs(void);
void pm_graphs_at_once(void);
void pm_graphs_rest(void);
void pm_graphs_threads(void);
/* preload_memory_query.c; begins without a context, as do pm_others, pm_devices and pm_under_way* */
void pm_queries(void);
/* preload_memory_more.c */
void pm_others(void);
void pm_devices(void);
void pm_capture(void);
void pm_under_way(void);
void pm_under_way_elsewhere(void);
/* preload_memory_context.c; the first four begin without a context */
void pm_overhead(void);
void pm_found(void);
void pm_found_by_nvml(void);
void pm_found_without_nvml(void);
void pm_overhead_race(void);
void pm_nothing(void);
/* preload_memory_promise.c; begins without a context */
void pm_promises(void);
/* preload_memory_turns.c; the second begins without a context */
void pm_oversubscribe(void);
/* preload_memory_ordered.c */
void pm_ordered(void);
void pm_ordered_ends(void);
void pm_turns(void);
/* preload_memory_says.c; pm_says_nothing, pm_says_single and pm_says_restored begin with a context */
void pm_says(void);
void pm_says_ways(void);
void pm_says_driver(void);
void pm_says_nothing(void);
void pm_says_single(void);
void pm_says_context(void);
void pm_says_restored(void);
/* preload_memory_frozen.c; both begin without a context */
void pm_frozen(void);
void pm_frozen_killed(void);
void pm_frozen_stopped(void);
/* preload_memory_wait.c */
void pm_waits(void);
void pm_waits_managed(void);

#endif
