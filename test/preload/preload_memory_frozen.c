/* Processes that a checkpoint has frozen: what they hold is not counted while the device has got it back. */
#include "test/preload/preload_memory.h"

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

/* What the frozen process has reported and is told to do. */
struct frozen {
	int holds, more;
};

static void wait_for(const int *word, int value)
{
	while (__atomic_load_n(word, __ATOMIC_ACQUIRE) < value)
		t_sleep_us(1000);
}

/* It has 200 of the account's 256 MiB, and asks for 20 more each time it is told to. */
static int holder(void *argument)
{
	struct frozen *f = argument;
	CUdeviceptr p;

	pm_context();
	OK(cuMemAlloc_v2(&p, 200 * MIB));
	for (int round = 1;; round++) {
		__atomic_store_n(&f->holds, round, __ATOMIC_RELEASE);
		wait_for(&f->more, round);
		OK(cuMemAlloc_v2(&p, 20 * MIB));
		OK(cuMemFree_v2(p));
	}
	return 0;
}

static pid_t begin(struct frozen *f)
{
	pid_t pid;

	*f = (struct frozen){0};
	pid = t_spawn(holder, f, 60);
	wait_for(&f->holds, 1);
	return pid;
}

static void end(pid_t pid)
{
	kill(pid, SIGKILL);
	t_wait(pid);
}

static void must_have_left(uint64_t bytes)
{
	size_t left, total;

	OK(cuMemGetInfo_v2(&left, &total));
	T_CHECK(left == bytes && total == 256 * MIB, "%lld MiB left", (long long)(left / MIB));
}

/* A process says within some ms that it was frozen or let go; on a busy machine it takes longer. */
static void must_come_to(uint64_t bytes)
{
	size_t left = 0, total;

	for (int i = 0; i < 5000; i++) {
		OK(cuMemGetInfo_v2(&left, &total));
		if (left == bytes)
			return;
		t_sleep_us(2000);
	}
	T_CHECK(left == bytes, "%lld MiB left", (long long)(left / MIB));
}

static void restored(struct frozen *f, pid_t pid)
{
	CUdeviceptr a, b;

	GIVES(cuMemAlloc_v2(&a, 100 * MIB), CUDA_ERROR_OUT_OF_MEMORY);
	must_have_left(56 * MIB);
	OK(cuCheckpointProcessLock(pid, NULL));
	/* It still has its memory. */
	GIVES(cuMemAlloc_v2(&a, 100 * MIB), CUDA_ERROR_OUT_OF_MEMORY);
	OK(cuCheckpointProcessCheckpoint(pid, NULL));
	must_come_to(256 * MIB);
	OK(cuMemAlloc_v2(&a, 100 * MIB));
	must_have_left(156 * MIB);
	/* The quota holds for the processes that are there. */
	GIVES(cuMemAlloc_v2(&b, 160 * MIB), CUDA_ERROR_OUT_OF_MEMORY);
	OK(cuMemAllocManaged(&b, 150 * MIB, CU_MEM_ATTACH_GLOBAL));
	must_have_left(6 * MIB);
	OK(cuMemFree_v2(b));
	T_CHECK(pm_counted(0) == 300 * MIB && pm_truth(0) == 100 * MIB, "counted %lld, truth %lld",
		(long long)pm_counted(0), (long long)pm_truth(0));
	OK(cuCheckpointProcessRestore(pid, NULL));
	/* From here on the memory counts again, so the account has more than its quota. */
	must_come_to(0);
	GIVES(cuMemAlloc_v2(&b, MIB), CUDA_ERROR_OUT_OF_MEMORY);
	OK(cuCheckpointProcessUnlock(pid, NULL));
	OK(cuMemFree_v2(a));
	must_have_left(56 * MIB);
	__atomic_store_n(&f->more, 1, __ATOMIC_RELEASE);
	wait_for(&f->holds, 2);
	T_CHECK(pm_counted(0) == 200 * MIB && pm_truth(0) == 0, "counted %lld", (long long)pm_counted(0));
	end(pid);
	must_have_left(256 * MIB);
	PM_BOTH(0);
}

/* A process that is stopped cannot say whether it is frozen: nobody waits for it, and what it said last counts. */
static void stopped(struct frozen *f, pid_t pid)
{
	CUdeviceptr a;

	(void)f;
	kill(pid, SIGSTOP);
	GIVES(cuMemAlloc_v2(&a, 100 * MIB), CUDA_ERROR_OUT_OF_MEMORY);
	must_have_left(56 * MIB);
	kill(pid, SIGCONT);
	OK(cuCheckpointProcessLock(pid, NULL));
	OK(cuCheckpointProcessCheckpoint(pid, NULL));
	must_come_to(256 * MIB);
	kill(pid, SIGSTOP);
	t_sleep_us(200000);
	must_have_left(256 * MIB);
	OK(cuMemAlloc_v2(&a, 100 * MIB));
	OK(cuMemFree_v2(a));
	kill(pid, SIGCONT);
	OK(cuCheckpointProcessRestore(pid, NULL));
	OK(cuCheckpointProcessUnlock(pid, NULL));
	must_come_to(56 * MIB);
	end(pid);
}

static void killed(struct frozen *f, pid_t pid)
{
	CUdeviceptr a, b;

	(void)f;
	OK(cuCheckpointProcessLock(pid, NULL));
	OK(cuCheckpointProcessCheckpoint(pid, NULL));
	must_come_to(256 * MIB);
	OK(cuMemAlloc_v2(&a, 100 * MIB));
	end(pid);
	/* Nothing of it is left to be counted or to be left out. */
	OK(cuMemAlloc_v2(&b, 156 * MIB));
	PM_BOTH(256 * MIB);
	OK(cuMemFree_v2(a));
	OK(cuMemFree_v2(b));
	PM_BOTH(0);
	must_have_left(256 * MIB);
}

/* Starts the holder and makes this process's context. The test ends the holder. */
static void with_holder(void (*test)(struct frozen *f, pid_t pid))
{
	struct frozen *f = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pid_t pid;

	T_CHECK(f != MAP_FAILED, "no memory");
	/* It starts before this process has a driver, because children cannot use their parent's. */
	pid = begin(f);
	pm_context();
	test(f, pid);
}

void pm_frozen(void)
{
	with_holder(restored);
}

void pm_frozen_stopped(void)
{
	with_holder(stopped);
}

void pm_frozen_killed(void)
{
	with_holder(killed);
}
