/*
 * cuCheckpointProcess*: a process stops the calls of another process (lock), takes its memory off the devices
 * (checkpoint), brings it back (restore) and lets it go on (unlock). Work that the target has queued ends first. If the
 * target is stopped by a signal, each of these calls waits until it goes on, even the query of its state.
 *
 * The state is a word of the target's slot. Its calls sleep on that word where they take drv.lock. Its helper thread
 * does not, because host functions that are queued must end first, too.
 */
#include "test/sim/driver/driver.h"

#include <unistd.h>

#define LOOK_NS 200000 /* how often the caller checks whether the target's work has ended */

static struct sim_proc *find(int pid)
{
	struct sim_file *f = sim_shm.file;

	for (uint32_t i = 0; i < SIM_MAX_PROCS; i++)
		if (f->proc[i].state == SIM_PROC_LIVE && f->proc[i].pid == pid && sim_shm_alive(i))
			return &f->proc[i];
	return NULL;
}

/*
 * Finds the slot of a live process. On success the file's lock is held. In a real driver a thread of the target
 * answers, so a target that is stopped by a signal does not answer until it goes on.
 */
static CUresult target(int pid, struct sim_proc **p)
{
	uint32_t nobody = 0;
	bool stopped;

	if (!drv.ready)
		return drv_why();
	do {
		sim_lock();
		sim_engine_advance_fully(sim_clock_ns());
		*p = find(pid);
		stopped = *p && pid != getpid() && sim_shm_stopped((uint32_t)(*p - sim_shm.file->proc));
		if (*p && !stopped)
			return CUDA_SUCCESS;
		sim_unlock();
		if (stopped)
			sim_futex_wait(&nobody, 0, sim_clock_ns() + LOOK_NS);
	} while (stopped);
	return CUDA_ERROR_INVALID_VALUE;
}

static void set(struct sim_proc *p, uint32_t state)
{
	__atomic_store_n(&p->frozen, state, __ATOMIC_SEQ_CST);
	sim_wake_later(&p->frozen_wake);
}

/* Moves the target from one state to another, or returns CUDA_ERROR_ILLEGAL_STATE. */
static CUresult step(int pid, uint32_t from, uint32_t to)
{
	struct sim_proc *p;
	CUresult rc = CUDA_SUCCESS;

	TRY(target(pid, &p));
	if (p->frozen == from)
		set(p, to);
	else
		rc = CUDA_ERROR_ILLEGAL_STATE;
	sim_unlock();
	return rc;
}

static bool idle(const struct sim_proc *p)
{
	struct sim_file *f = sim_shm.file;
	uint32_t owner = (uint32_t)(p - f->proc) + 1;

	for (uint32_t i = 0; i < SIM_MAX_RINGS; i++)
		if (f->ring[i].owner == owner &&
			f->ring[i].head != __atomic_load_n(&f->ring[i].tail, __ATOMIC_ACQUIRE))
			return false;
	return true;
}

CUresult cuCheckpointProcessLock(int pid, CUcheckpointLockArgs *args)
{
	uint64_t until = args && args->timeoutMs ? sim_clock_ns() + args->timeoutMs * 1000000ull : UINT64_MAX;
	uint32_t nobody = 0;
	struct sim_proc *p;

	TRY(step(pid, SIM_NOT_FROZEN, SIM_LOCKED));
	for (;;) {
		bool done;

		TRY(target(pid, &p));
		done = idle(p);
		if (!done && sim_clock_ns() >= until) {
			set(p, SIM_NOT_FROZEN);
			sim_unlock();
			return CUDA_ERROR_NOT_READY;
		}
		sim_unlock();
		if (done)
			return CUDA_SUCCESS;
		sim_futex_wait(&nobody, 0, sim_clock_ns() + LOOK_NS);
	}
}

CUresult cuCheckpointProcessCheckpoint(int pid, CUcheckpointCheckpointArgs *args)
{
	struct sim_file *f = sim_shm.file;
	struct sim_proc *p;
	uint64_t bytes = 0;
	CUresult rc = CUDA_SUCCESS;

	(void)args;
	TRY(target(pid, &p));
	if (p->frozen != SIM_LOCKED)
		rc = CUDA_ERROR_ILLEGAL_STATE;
	for (uint32_t i = 0; rc == CUDA_SUCCESS && i < f->set.devices; i++) {
		struct sim_account *a = &p->dev[i];

		a->saved_bytes = a->memory_bytes;
		a->saved_contexts = a->contexts;
		bytes += a->memory_bytes + a->resident_bytes;
		a->memory_bytes = a->resident_bytes = 0;
		a->contexts = 0;
	}
	if (rc == CUDA_SUCCESS)
		set(p, SIM_CHECKPOINTED);
	sim_unlock();
	drv_cost_slow((uint64_t)((double)bytes / f->set.pcie_gbps));
	return rc;
}

CUresult cuCheckpointProcessRestore(int pid, CUcheckpointRestoreArgs *args)
{
	struct sim_file *f = sim_shm.file;
	struct sim_proc *p;
	uint64_t bytes = 0;
	CUresult rc = CUDA_SUCCESS;

	if (args && args->gpuPairsCount)
		return CUDA_ERROR_NOT_SUPPORTED; /* on other GPUs than before */
	TRY(target(pid, &p));
	if (p->frozen != SIM_CHECKPOINTED)
		rc = CUDA_ERROR_ILLEGAL_STATE;
	for (uint32_t i = 0; rc == CUDA_SUCCESS && i < f->set.devices; i++)
		if (!sim_memory_fits(i, p->dev[i].saved_bytes))
			rc = CUDA_ERROR_OUT_OF_MEMORY;
	for (uint32_t i = 0; rc == CUDA_SUCCESS && i < f->set.devices; i++) {
		struct sim_account *a = &p->dev[i];

		a->memory_bytes = a->saved_bytes;
		a->contexts = a->saved_contexts;
		bytes += a->saved_bytes;
		a->saved_bytes = 0;
		a->saved_contexts = 0;
	}
	if (rc == CUDA_SUCCESS)
		set(p, SIM_LOCKED);
	sim_unlock();
	drv_cost_slow((uint64_t)((double)bytes / f->set.pcie_gbps));
	return rc;
}

CUresult cuCheckpointProcessUnlock(int pid, CUcheckpointUnlockArgs *args)
{
	(void)args;
	return step(pid, SIM_LOCKED, SIM_NOT_FROZEN);
}

CUresult cuCheckpointProcessGetState(int pid, CUprocessState *state)
{
	struct sim_proc *p;

	if (!state)
		return CUDA_ERROR_INVALID_VALUE;
	TRY(target(pid, &p));
	*state = p->frozen == SIM_LOCKED         ? CU_PROCESS_STATE_LOCKED
		 : p->frozen == SIM_CHECKPOINTED ? CU_PROCESS_STATE_CHECKPOINTED
						 : CU_PROCESS_STATE_RUNNING;
	sim_unlock();
	return CUDA_SUCCESS;
}

/* Returns any thread of the target: nothing is restored in that thread. */
CUresult cuCheckpointProcessGetRestoreThreadId(int pid, int *tid)
{
	struct sim_proc *p;

	if (!tid)
		return CUDA_ERROR_INVALID_VALUE;
	TRY(target(pid, &p));
	sim_unlock();
	*tid = pid;
	return CUDA_SUCCESS;
}

/* drv.lock held: sleeps without it until the process may go on. */
void drv_frozen(void)
{
	struct sim_proc *p = &sim_shm.file->proc[sim_shm.slot];

	while (drv.ready && __atomic_load_n(&p->frozen, __ATOMIC_ACQUIRE)) {
		uint32_t value = __atomic_load_n(&p->frozen_wake, __ATOMIC_ACQUIRE);

		pthread_mutex_unlock(&drv.lock);
		if (__atomic_load_n(&p->frozen, __ATOMIC_ACQUIRE))
			sim_futex_wait(&p->frozen_wake, value, sim_clock_ns() + 1000000000u);
		pthread_mutex_lock(&drv.lock);
	}
}
