/*
 * Asks for a lease before each task, as a server of several kinds of task would.
 *
 *     cc lease.c $(pkg-config --cflags --libs gpuarb) -o lease
 *     ./lease CLASS [MAX_WAIT_MS]
 *
 * Exit: 0 the task ran, 3 the class skips and the GPU is busy, 4 it waited in vain, 1 something is wrong.
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "gpuarb.h"

/* What the program would do on the GPU. */
static void do_task(void)
{
	nanosleep(&(struct timespec){.tv_nsec = 20 * 1000 * 1000}, NULL);
}

int main(int argc, char **argv)
{
	struct gpuarb_request request = {.task_class = argc > 1 ? argv[1] : NULL};
	struct gpuarb_lease lease = GPUARB_LEASE_INIT;
	int result;

	if (argc > 2)
		request.max_wait_ms = strtol(argv[2], NULL, 10);
	/* If the length of the task is known, a hint says so: this task works on 3 s of sound. */
	request.hint.input_ms = 3000;
	result = gpuarb_acquire(NULL, &request, &lease);
	switch (result) {
	case GPUARB_OK:
		do_task();
		gpuarb_release(&lease);
		printf("ran after a wait of %.1f ms\n", (double)lease.waited_ns / 1e6);
		return 0;
	case GPUARB_SKIP:
		printf("skipped\n");
		return 3;
	case GPUARB_TIMEOUT:
		printf("waited for %.1f ms in vain\n", (double)lease.waited_ns / 1e6);
		return 4;
	default:
		fprintf(stderr, "lease: %s\n", gpuarb_error_text());
		return 1;
	}
}
