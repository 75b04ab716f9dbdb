/* Another process stops a process's calls, takes its memory off the device and brings it back. */
#include "test/sim/test/simtest.h"

#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "units.h"

TestSuite(checkpoint, .fini = sim_remove);

struct shared {
	volatile unsigned long steps;
	volatile int hold;
};

/* A process with 1 GiB that launches kernels and waits for them until it is killed. */
static void worker(void *arg)
{
	struct shared *with = arg;
	CUdeviceptr p;
	CUstream s;

	sim_device();
	OK(cuMemAlloc_v2(&p, GIB));
	s = sim_stream(CU_STREAM_NON_BLOCKING);
	for (;;) {
		sim_spin(s, with->hold ? 40000 * MS : MS);
		__atomic_add_fetch(&with->steps, 1, __ATOMIC_SEQ_CST);
		OK(cuStreamSynchronize(s));
	}
}

static struct shared *start(pid_t *pid, int hold)
{
	struct shared *with = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	sim_fresh("GPUSIM_MEMORY_MB", "2048", NULL);
	with->hold = hold;
	*pid = sim_child(worker, with);
	while (!with->steps)
		usleep(500);
	sim_device();
	return with;
}

static CUprocessState state_of(pid_t pid)
{
	CUprocessState state;

	OK(cuCheckpointProcessGetState(pid, &state));
	return state;
}

static void stands_still(struct shared *with)
{
	unsigned long steps;

	usleep(5000);
	steps = with->steps;
	usleep(30000);
	cr_assert_leq(with->steps, steps + 1);
}

Test(checkpoint, memory_is_gone_meanwhile)
{
	struct sim_device_state state;
	struct shared *with;
	CUdeviceptr p;
	uint64_t busy;
	unsigned long steps;
	pid_t pid;

	with = start(&pid, 0);
	cr_assert_eq(state_of(pid), CU_PROCESS_STATE_RUNNING);
	GIVES(cuCheckpointProcessCheckpoint(pid, NULL), CUDA_ERROR_ILLEGAL_STATE);
	OK(cuCheckpointProcessLock(pid, NULL));
	cr_assert_eq(state_of(pid), CU_PROCESS_STATE_LOCKED);
	GIVES(cuCheckpointProcessLock(pid, NULL), CUDA_ERROR_ILLEGAL_STATE);
	sim_truth(&state, NULL, NULL);
	busy = state.busy_ns;
	stands_still(with);
	cr_assert_geq(sim_truth_of(pid).memory_bytes, GIB);
	GIVES(cuMemAlloc_v2(&p, GIB), CUDA_ERROR_OUT_OF_MEMORY);

	OK(cuCheckpointProcessCheckpoint(pid, NULL));
	cr_assert_eq(state_of(pid), CU_PROCESS_STATE_CHECKPOINTED);
	cr_assert_eq(sim_truth_of(pid).memory_bytes, 0);
	cr_assert(!sim_truth_of(pid).has_context);
	GIVES(cuCheckpointProcessUnlock(pid, NULL), CUDA_ERROR_ILLEGAL_STATE);
	stands_still(with);
	sim_truth(&state, NULL, NULL);
	cr_assert_eq(state.busy_ns, busy, "a locked process has run");

	/* This process can use the memory meanwhile. */
	OK(cuMemAlloc_v2(&p, GIB));
	GIVES(cuCheckpointProcessRestore(pid, NULL), CUDA_ERROR_OUT_OF_MEMORY);
	cr_assert_eq(state_of(pid), CU_PROCESS_STATE_CHECKPOINTED);
	OK(cuMemFree_v2(p));
	OK(cuCheckpointProcessRestore(pid, NULL));
	cr_assert_eq(state_of(pid), CU_PROCESS_STATE_LOCKED);
	cr_assert_geq(sim_truth_of(pid).memory_bytes, GIB);
	stands_still(with);

	steps = with->steps;
	OK(cuCheckpointProcessUnlock(pid, NULL));
	usleep(300000);
	cr_assert_gt(with->steps, steps + 5);
	kill(pid, SIGKILL);
	sim_join(pid);
}

/* Work that was queued before ends first. If that takes too long, the lock fails and changes nothing. */
Test(checkpoint, a_lock_waits_for_what_was_queued)
{
	CUcheckpointLockArgs args = {.timeoutMs = 50};
	struct shared *with;
	pid_t pid;

	with = start(&pid, 1);
	GIVES(cuCheckpointProcessLock(pid, &args), CUDA_ERROR_NOT_READY);
	cr_assert_eq(state_of(pid), CU_PROCESS_STATE_RUNNING);
	cr_assert_eq(with->steps, 1);
	kill(pid, SIGKILL);
	sim_join(pid);
}

struct question {
	pid_t pid;
	CUresult result;
	CUprocessState state;
	volatile int answered;
};

static void *asker(void *argument)
{
	struct question *q = argument;

	q->result = cuCheckpointProcessGetState(q->pid, &q->state);
	__atomic_store_n(&q->answered, 1, __ATOMIC_SEQ_CST);
	return NULL;
}

/* A thread of the target would have to answer, and all of them are stopped. */
Test(checkpoint, a_stopped_process_answers_nobody)
{
	struct question q = {0};
	pthread_t thread;
	int status;

	start(&q.pid, 0);
	kill(q.pid, SIGSTOP);
	cr_assert_eq(waitpid(q.pid, &status, WUNTRACED), q.pid);
	cr_assert_eq(pthread_create(&thread, NULL, asker, &q), 0);
	usleep(200000);
	cr_assert(!__atomic_load_n(&q.answered, __ATOMIC_SEQ_CST));
	kill(q.pid, SIGCONT);
	cr_assert_eq(pthread_join(thread, NULL), 0);
	cr_assert_eq(q.result, CUDA_SUCCESS);
	cr_assert_eq(q.state, CU_PROCESS_STATE_RUNNING);
	kill(q.pid, SIGKILL);
	sim_join(q.pid);
}

Test(checkpoint, of_nobody_is_refused)
{
	CUprocessState state;
	int tid = 0;

	sim_fresh(NULL);
	sim_device();
	GIVES(cuCheckpointProcessLock(999999999, NULL), CUDA_ERROR_INVALID_VALUE);
	GIVES(cuCheckpointProcessGetState(getpid(), NULL), CUDA_ERROR_INVALID_VALUE);
	OK(cuCheckpointProcessGetState(getpid(), &state));
	cr_assert_eq(state, CU_PROCESS_STATE_RUNNING);
	OK(cuCheckpointProcessGetRestoreThreadId(getpid(), &tid));
	cr_assert_eq(tid, getpid());
}

/* The process's death frees its slot and its saved memory. */
Test(checkpoint, a_locked_process_can_be_killed)
{
	struct sim_device_state state;
	pid_t pid;

	start(&pid, 0);
	OK(cuCheckpointProcessLock(pid, NULL));
	kill(pid, SIGKILL);
	sim_join(pid);
	GIVES(cuCheckpointProcessUnlock(pid, NULL), CUDA_ERROR_INVALID_VALUE);
	usleep(5000);
	sim_truth(&state, NULL, NULL);
	cr_assert_lt(state.memory_used_bytes, GIB);
}
