/*
 * A process forks while another of its threads asks for its first lease. Whatever locks that thread holds then, the child
 * gets a lease of its own. The fork is held up inside the C library, for longer each time.
 */
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "gpuarb.h"

#include "test/harness.h"

#define STEP_US 4
#define MOST_US 160

static struct {
	uint32_t go;
	unsigned us;
} now;

static int take_one(void)
{
	struct gpuarb_request request = {.max_wait_ms = 10000};
	struct gpuarb_lease lease = GPUARB_LEASE_INIT;
	int r = gpuarb_acquire(NULL, &request, &lease);

	return r != GPUARB_OK || gpuarb_release(&lease) != 0;
}

static void *asks(void *argument)
{
	while (!__atomic_load_n(&now.go, __ATOMIC_ACQUIRE))
		;
	T_CHECK(take_one() == 0, "the parent: %s", gpuarb_error_text());
	return argument;
}

/* The last function that fork() calls before the library's handler. */
static void hold_up(void)
{
	uint64_t end = t_now_ns() + now.us * 1000ull;

	__atomic_store_n(&now.go, 1, __ATOMIC_RELEASE);
	while (t_now_ns() < end)
		;
}

static int parent(void *argument)
{
	pthread_t thread;
	pid_t pid;

	now.us = (unsigned)(uintptr_t)argument;
	T_CHECK(pthread_atfork(hold_up, NULL, NULL) == 0, "atfork");
	T_CHECK(pthread_create(&thread, NULL, asks, NULL) == 0, "a thread");
	t_sleep_us(2000);
	pid = fork();
	if (pid == 0) {
		alarm(30);
		_exit(take_one());
	}
	T_CHECK(t_wait(pid) == 0, "the child of a fork that took %u us longer", now.us);
	pthread_join(thread, NULL);
	return 0;
}

int main(void)
{
	struct t_dir dir;
	unsigned n = 0;

	for (unsigned us = 0; us <= MOST_US; us += STEP_US, n++) {
		t_dir_make(&dir, "");
		setenv("GPUARB_DIR", dir.path, 1);
		setenv("GPUARB_CONF", dir.conf, 1);
		setenv("GPUARB_GPU", "GPU-00000000-0000-0000-0000-000000000001", 1);
		T_CHECK(t_wait(t_spawn(parent, (void *)(uintptr_t)us, 60)) == 0, "after %u us", us);
		t_dir_remove(&dir);
	}
	printf("%u children of processes that asked for the first time: each had a lease\n", n);
	return 0;
}
