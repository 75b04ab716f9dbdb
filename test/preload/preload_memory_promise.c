/* Quotas of programs to which nothing was promised before they started: the preload alone, as in a container or a
 * job. */
#include "test/preload/preload_memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* Has a context until the pipe is closed. */
static pid_t holder(int *done)
{
	int ready[2], end[2];
	pid_t pid;
	char byte;

	T_CHECK(!pipe(ready) && !pipe(end), "no pipe");
	pid = fork();
	if (pid == 0) {
		alarm(60);
		close(end[1]);
		pm_context();
		T_CHECK(write(ready[1], "", 1) == 1, "nobody is there");
		while (read(end[0], &byte, 1) > 0)
			;
		_exit(0);
	}
	close(ready[1]);
	close(end[0]);
	T_CHECK(pid > 0 && read(ready[0], &byte, 1) == 1, "the first program has no context");
	*done = end[1];
	return pid;
}

static unsigned times_said(const char *path, const char *words)
{
	FILE *log = fopen(path, "r");
	char line[1024];
	unsigned n = 0;

	while (log && fgets(line, sizeof(line), log))
		n += strstr(line, words) != NULL;
	if (log)
		fclose(log);
	return n;
}

/* The GPU has 1 GiB, and each program a quota of 600 MiB. */
void pm_promises(void)
{
	char log[600];
	CUcontext context;
	CUdeviceptr p;
	int done, status;
	pid_t pid = holder(&done);

	snprintf(log, sizeof(log), "%s/log", getenv("GPUARB_DIR"));
	setenv("GPUARB_LOG", log, 1);
	setenv("GPUARB_ACCOUNT", "second", 1);
	OK(cuInit(0));
	for (int i = 0; i < 3; i++) {
		GIVES(cuCtxCreate_v2(&context, 0, 0), CUDA_ERROR_OUT_OF_MEMORY);
		GIVES(cuDevicePrimaryCtxRetain(&context, 0), CUDA_ERROR_OUT_OF_MEMORY);
	}
	T_CHECK(times_said(log, "cannot promise 600Mi to second") == 1, "not said once");
	T_CHECK(times_said(log, PM_ACCOUNT " has 600Mi") == 1, "not said who has it");
	T_CHECK(pm_truth(0) == 0, "a context is there nevertheless");
	/* On another GPU there is room. */
	OK(cuCtxCreate_v2(&context, 0, 1));
	OK(cuCtxDestroy_v2(context));
	close(done);
	T_CHECK(waitpid(pid, &status, 0) == pid && status == 0, "the first program failed");
	/* Now there is room. */
	OK(cuCtxCreate_v2(&context, 0, 0));
	OK(cuMemAlloc_v2(&p, 500 * MIB));
	GIVES(cuMemAlloc_v2(&p, 200 * MIB), CUDA_ERROR_OUT_OF_MEMORY);
	T_CHECK(pm_truth(0) == 500 * MIB, "%llu", (unsigned long long)pm_truth(0));
	OK(cuCtxDestroy_v2(context));
	unsetenv("GPUARB_LOG");
}
