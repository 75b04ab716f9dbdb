/*
 * A program that records a trace and does something difficult meanwhile; test/traces/programs.sh looks at the files.
 *
 *   trace_program plain|forks|children|closes|killed|execs|bounded|moves
 */
#include <cuda_abi.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "units.h"

#define FIRST 3
#define LAST  64

#define OK(call)                                                                                             \
	do {                                                                                                 \
		if ((call) != CUDA_SUCCESS) {                                                                \
			fprintf(stderr, "trace_program: %s failed\n", #call);                                \
			_exit(3);                                                                            \
		}                                                                                            \
	} while (0)

/* Launches kernels of 0.2 ms and waits for them. */
static void work(unsigned launches)
{
	static CUmodule module;
	static CUfunction spin;
	uint64_t ns = 200 * US;
	void *params[] = {&ns};
	CUcontext ctx;
	CUdevice dev;

	if (!module) {
		OK(cuInit(0));
		OK(cuDeviceGet(&dev, 0));
		OK(cuCtxCreate_v2(&ctx, 0, dev));
		OK(cuModuleLoadData(&module, "test"));
		OK(cuModuleGetFunction(&spin, module, "spin_ns"));
	}
	for (unsigned i = 0; i < launches; i++)
		OK(cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
	OK(cuCtxSynchronize());
}

static void must(bool true_, const char *what)
{
	if (true_)
		return;
	fprintf(stderr, "trace_program: %s\n", what);
	_exit(4);
}

static void wait_for(pid_t child)
{
	int status = -1;

	must(child > 0 && waitpid(child, &status, 0) == child && status == 0, "a child has failed");
}

/* Closes all descriptors, also the trace's. Those that the program opens now are its own. */
static void close_all(void)
{
	int own[LAST - FIRST];
	struct stat st;

	for (int fd = FIRST; fd < LAST; fd++)
		close(fd);
	for (int i = 0; i < LAST - FIRST; i++)
		must((own[i] = open("/tmp", O_TMPFILE | O_RDWR, 0600)) >= 0, "no file of its own");
	work(500);
	for (int i = 0; i < LAST - FIRST; i++)
		must(fstat(own[i], &st) == 0 && st.st_size == 0,
			"something was written into a file of the program's");
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "";
	const struct rlimit small = {2048, 2048};
	pid_t child;

	alarm(60);
	if (!strcmp(what, "plain")) {
		work(100);
	} else if (!strcmp(what, "forks")) {
		/* The child ends by exit(), with a copy of what the parent has not written to the trace yet. */
		work(50);
		child = fork();
		if (child == 0)
			exit(0);
		wait_for(child);
		work(50);
	} else if (!strcmp(what, "children")) {
		child = fork();
		work(100);
		if (child)
			wait_for(child);
	} else if (!strcmp(what, "closes")) {
		work(50);
		close_all();
	} else if (!strcmp(what, "killed")) {
		work(1500);
		kill(getpid(), SIGKILL);
	} else if (!strcmp(what, "execs")) {
		work(50);
		execl(argv[0], argv[0], "plain", NULL);
		return 5;
	} else if (!strcmp(what, "bounded")) {
		/* Without this, the signal for a file that is too large would end the program. */
		must(setrlimit(RLIMIT_FSIZE, &small) == 0, "setrlimit");
		work(2000);
	} else if (!strcmp(what, "moves")) {
		work(50);
		must(chdir("/") == 0, "chdir");
		work(50);
	} else {
		return 2;
	}
	return 0;
}
