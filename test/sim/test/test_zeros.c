/*
 * No call may crash a program that passes zeros: each name of the driver is called with zeros for all
 * arguments before cuInit, after it, and with a context. A child makes the calls one after the other and
 * says which call it makes. When the child dies, the next child goes on behind that call.
 */
#include <criterion/criterion.h>
#include <dlfcn.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "test/alarm.h"
#include "cuda_abi.h"

#define DEADLINE_MS 10000

static const char *const names[] = {
#define CU_CALL(name, params, args) #name,
#include "cuda_abi/calls.def"
#include "cuda_abi/interop.def"
#include "cuda_abi/newer.def"
#undef CU_CALL
};

#define COUNT (int)(sizeof(names) / sizeof(*names))

/* Every parameter of these calls is an integer, an enumeration, a pointer or a small structure of them. */
typedef CUresult (*any_call)(long, long, long, long, long, long, long, long, long, long, long, long);

enum state { FRESH, INITIALISED, WITH_CONTEXT };

static char dir[] = "/tmp/gpusim-test-XXXXXX";

static void setup(void)
{
	cr_assert(mkdtemp(dir));
	setenv("GPUSIM_DIR", dir, 1);
	setenv("GPUSIM_COST", "0", 1);
}

static void teardown(void)
{
	char command[64];

	snprintf(command, sizeof(command), "rm -rf %s", dir);
	cr_expect_eq(system(command), 0);
}

TestSuite(zeros, .init = setup, .fini = teardown);

static void child(int fd, int first, enum state state)
{
	void *lib = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
	any_call init, create;
	CUcontext ctx = NULL;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (!lib)
		_exit(3);
	init = (any_call)dlsym(lib, "cuInit");
	create = (any_call)dlsym(lib, "cuCtxCreate_v2");
	if (state >= INITIALISED && init(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0))
		_exit(3);
	if (state >= WITH_CONTEXT && create((long)&ctx, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0))
		_exit(3);
	for (int i = first; i < COUNT; i++) {
		any_call call = (any_call)dlsym(lib, names[i]);

		/* This call would change the state under test. */
		if (!strcmp(names[i], "cuInit") && state == FRESH)
			continue;
		if (write(fd, &i, sizeof(i)) != sizeof(i))
			_exit(3);
		call(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
	}
	_exit(0);
}

static void call_all(enum state state)
{
	int first = 0;

	while (first < COUNT) {
		int fd[2], last = first - 1, status = 0, i;
		struct pollfd p;
		pid_t pid;

		cr_assert_eq(pipe(fd), 0);
		pid = fork();
		if (!pid)
			child(fd[1], first, state);
		close(fd[1]);
		p = (struct pollfd){.fd = fd[0], .events = POLLIN};
		while (poll(&p, 1, DEADLINE_MS) == 1 && read(fd[0], &i, sizeof(i)) == sizeof(i))
			last = i;
		kill(pid, SIGKILL);
		waitpid(pid, &status, 0);
		close(fd[0]);
		cr_assert(last >= first, "the child could not start");
		if (last == COUNT - 1 && WIFEXITED(status) && !WEXITSTATUS(status))
			return;
		cr_expect(0, "%s with zeros ends the program (status %d)", names[last], status);
		first = last + 1;
	}
}

Test(zeros, before_cuInit)
{
	call_all(FRESH);
}

Test(zeros, without_a_context)
{
	call_all(INITIALISED);
}

Test(zeros, with_a_context)
{
	call_all(WITH_CONTEXT);
}
