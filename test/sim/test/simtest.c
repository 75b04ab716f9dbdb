#include "test/sim/test/simtest.h"

#include <semaphore.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "test/alarm.h"

#define DEADLINE_S 50

static char dir[64];
static CUmodule module;

void sim_fresh(const char *setting, ...)
{
	va_list ap;

	snprintf(dir, sizeof(dir), "/dev/shm/simtest-XXXXXX");
	cr_assert(mkdtemp(dir));
	setenv("GPUSIM_DIR", dir, 1);
	setenv("GPUSIM_COST", "0", 1);
	unsetenv("CUDA_VISIBLE_DEVICES");
	va_start(ap, setting);
	for (; setting; setting = va_arg(ap, const char *))
		setenv(setting, va_arg(ap, const char *), 1);
	va_end(ap);
}

void sim_remove(void)
{
	char path[128];

	if (!*dir)
		return;
	snprintf(path, sizeof(path), "%s/gpu.sim", dir);
	unlink(path);
	rmdir(dir);
}

CUcontext sim_device(void)
{
	CUdevice dev;
	CUcontext ctx;

	OK(cuInit(0));
	OK(cuDeviceGet(&dev, 0));
	OK(cuCtxCreate_v2(&ctx, 0, dev));
	OK(cuModuleLoadData(&module, "test"));
	return ctx;
}

CUfunction sim_kernel(const char *name)
{
	CUfunction f;

	OK(cuModuleGetFunction(&f, module, name));
	return f;
}

/* Returns a kernel of a library, which runs in any stream's context. */
static CUfunction everywhere(const char *name)
{
	static CUlibrary library;
	CUkernel k;

	if (!library)
		OK(cuLibraryLoadData(&library, "test", NULL, NULL, 0, NULL, NULL, 0));
	OK(cuLibraryGetKernel(&k, library, name));
	return (CUfunction)k;
}

void sim_spin(CUstream s, uint64_t ns)
{
	static CUfunction f;
	void *params[] = {&ns};

	if (!f)
		f = everywhere("spin_ns");
	OK(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, s, params, NULL));
}

void sim_spin_part(CUstream s, uint64_t ns, unsigned permille)
{
	static CUfunction f;
	void *params[] = {&ns, &permille};

	if (!f)
		f = everywhere("spin_part_ns");
	OK(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, s, params, NULL));
}

CUstream sim_stream(unsigned flags)
{
	CUstream s;

	OK(cuStreamCreate(&s, flags));
	return s;
}

CUevent sim_mark(CUstream s)
{
	CUevent e;

	OK(cuEventCreate(&e, 0));
	OK(cuEventRecord(e, s));
	return e;
}

static sem_t gate;

static void at_gate(void *arg)
{
	(void)arg;
	while (sem_wait(&gate))
		;
}

void sim_gate(CUstream s)
{
	sem_init(&gate, 0, 0);
	OK(cuLaunchHostFunc(s, at_gate, NULL));
}

void sim_release(void)
{
	sem_post(&gate);
}

double sim_between_us(CUevent a, CUevent b)
{
	float ms;

	OK(cuEventSynchronize(a));
	OK(cuEventSynchronize(b));
	OK(cuEventElapsedTime(&ms, a, b));
	return (double)ms * 1000;
}

double sim_wall_s(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

pid_t sim_child(void (*fn)(void *), void *arg)
{
	pid_t pid = fork();

	cr_assert_geq(pid, 0);
	if (pid)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	alarm(DEADLINE_S);
	sim_close(); /* the child must not use its parent's reader */
	fn(arg);
	exit(0);
}

int sim_join(pid_t pid)
{
	int status;

	cr_assert_eq(waitpid(pid, &status, 0), pid);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

void sim_truth(struct sim_device_state *state, struct sim_process_state *list, int *n)
{
	static struct sim_process_state all[SIM_MAX_PROCS];
	int count;

	cr_assert_eq(sim_open(), 0);
	count = sim_snapshot(0, state, true, list ? list : all, SIM_MAX_PROCS);
	cr_assert_geq(count, 0);
	if (n)
		*n = count;
}

struct sim_process_state sim_truth_of(pid_t pid)
{
	static struct sim_process_state all[SIM_MAX_PROCS];
	struct sim_device_state state;
	int n;

	sim_truth(&state, all, &n);
	for (int i = 0; i < n; i++)
		if (all[i].pid == pid)
			return all[i];
	cr_assert_fail("process %d is not in the ground truth", (int)pid);
	return (struct sim_process_state){0};
}
