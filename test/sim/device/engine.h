/*
 * The device model: a discrete-event simulation in the time of CLOCK_MONOTONIC. Any process that looks at the device
 * advances the model. Completions have their computed times and their order, however late they are noticed.
 *
 * All functions here are called with the file's lock held.
 */
#ifndef SIM_ENGINE_H
#define SIM_ENGINE_H

#include "test/sim/device/layout.h"
#include "test/sim/device/shm.h"

/* Advances the model to now, never back. Cheap if nothing can have changed. */
void sim_engine_advance(uint64_t now_ns);

/* Advances the model, and also makes the accounts exact at `now_ns`. */
void sim_engine_advance_fully(uint64_t now_ns);

/* Ends the processes that have died. Looks for them at most every few ms unless `force`. */
void sim_engine_reap(uint64_t now_ns, bool force);

/* Ends a process that is gone: drops its queued work and frees its memory; its accounts stay. */
void sim_engine_end_process(uint32_t slot);

/* Frees the slot of a dead process: adds its accounts to each device's sums of the past. */
void sim_engine_forget(uint32_t slot);

/* Counts an op that has ended in the account of its process, unless the op was a plain kernel. */
void sim_engine_count(struct sim_account *account, const struct sim_op *op, uint32_t device);

/* Ends the oldest op of a ring. */
static inline void sim_engine_end_op(struct sim_ring *r, struct sim_op *op, struct sim_account *account)
{
	struct sim_file *f = sim_shm.file;

	op->end_ns = f->now_ns;
	op->done_seq = ++f->done_seq;
	if (op->flags == SIM_OP_LAUNCH && op->kind == SIM_OP_KERNEL)
		account->launches++;
	else if (op->flags || op->kind == SIM_OP_H2D || op->kind == SIM_OP_D2H)
		sim_engine_count(account, op, r->device);
	if (op->flags & SIM_OP_LAUNCH)
		__atomic_store_n(&r->launches_done, r->launches_done + 1, __ATOMIC_RELAXED);
	r->done_work += op->work;
	r->started = 0;
	r->turn_ns = 0;
	r->granted = 0;
	r->held = SIM_HELD_NOT;
	__atomic_store_n(&r->head, r->head + 1, __ATOMIC_RELEASE);
	if (r->waited && r->head >= r->waited) {
		r->waited = 0;
		sim_wake_later(&r->wake);
	}
}

/* steady.c: advances the model while there are only kernels that run and follow each other, up to `target` at most. */
enum sim_steady {
	SIM_NOT_STEADY, /* there is something else now; nothing was done */
	SIM_STEADY,     /* advanced until something else comes next */
	SIM_STEADY_ON,  /* advanced to the target, where nothing ends; next_ns says when something will */
};
enum sim_steady sim_steady_run(uint64_t target_ns);

/* Computes every derived field anew. */
void sim_engine_rebuild(void);

/* Returns when a ring will have completed `count` ops if no process submits work or dies; at most a few ms from now. */
uint64_t sim_engine_predict(uint32_t ring, uint64_t count);

/* Opens a ring for the calling process; SIM_NONE: there is no room. A ring is freed once it is closed and empty. */
uint32_t sim_ring_open(uint32_t device);
void sim_ring_close(uint32_t ring);

/* Memory of the calling process on a device. Taking it returns 0 or -ENOMEM. */
bool sim_memory_fits(uint32_t device, uint64_t bytes); /* fits beside all memory that is not managed */
int sim_memory_take(uint32_t device, uint64_t bytes);
void sim_memory_give(uint32_t device, uint64_t bytes);
void sim_managed_take(uint32_t device, uint64_t bytes);
void sim_managed_give(uint32_t device, uint64_t bytes);
uint64_t sim_memory_used(uint32_t device);

/* sim_residency.c: brings in up to `bytes` of a process's managed pages. Returns how many bytes came in. */
uint64_t sim_page_in(struct sim_account *account, uint32_t device, uint64_t bytes);

/* compute.c: the compute engine's queue. */
void sim_compute_enter(uint32_t ring);
void sim_compute_leave(uint32_t ring);
void sim_compute_begin(uint32_t device);
void sim_compute_check(void);
uint64_t sim_compute_next(uint64_t now_ns, uint64_t next_ns);
void sim_compute_progress(uint64_t dt_ns);
/* Ends slices and switches. Returns true if the engine now belongs to another process. */
bool sim_compute_rotate(uint64_t now_ns);
/* Returns whether the oldest op of a ring may go on; otherwise it waits for the slice of its process. */
bool sim_compute_admit(uint32_t ring);
void sim_compute_wait(uint32_t ring);
void sim_migrate(struct sim_account *account, uint32_t device, uint64_t bytes, bool in);

/* Returns whether the kernel of a ring has the engine now. */
bool sim_compute_runs(uint32_t ring);

/* held.c: kernels that occupy the device while they wait. */
void sim_held_start(uint32_t ring);
/* Finds the kernels that have arrived, and those whose wait is over. */
void sim_held_update(void);

/* Returns how many slots were ever used: the slots behind them are unchanged since the file was created. */
static inline uint32_t sim_slots_used(const struct sim_file *f)
{
	return f->serial < SIM_MAX_PROCS ? (uint32_t)f->serial : SIM_MAX_PROCS;
}

/* Returns the time that work takes at a rate of 1/n, in whole ns, rounded up. */
static inline uint64_t sim_work_ns(uint64_t work, uint64_t n)
{
	return (work * n + SIM_UNIT - 1) / SIM_UNIT;
}

#endif
