/*
 * A program that asks for leases and uses the GPU is one client, with the preload or without it, whether the lease or
 * the context comes first. So is its forked child. The utilisation comes from NVML where that answers, and from the
 * busy clock where it hangs.
 *
 *   preload_lease lease|context|hang     (on the simulated GPU; with LD_PRELOAD or without)
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cuda_abi.h"
#include "gpuarb.h"
#include "gpuarb/control.h"

#define CHECK(what)                                                                                          \
	do {                                                                                                 \
		if (!(what)) {                                                                               \
			fprintf(stderr, "preload_lease %s: line %d: not true: %s (%s)\n", mode, __LINE__,    \
				#what, gpuarb_error_text());                                                 \
			exit(1);                                                                             \
		}                                                                                            \
	} while (0)

static const char *mode = "";
static char gpu[64];
static bool preloaded;
static struct gpuarb_picture picture;

static void name_gpu(void)
{
	CUuuid id;
	const unsigned char *b = (const unsigned char *)id.bytes;
	CUdevice device;

	CHECK(cuInit(0) == CUDA_SUCCESS && cuDeviceGet(&device, 0) == CUDA_SUCCESS);
	CHECK(cuDeviceGetUuid(&id, device) == CUDA_SUCCESS);
	snprintf(gpu, sizeof(gpu), "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x",
		b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13], b[14],
		b[15]);
}

static void use_gpu(void)
{
	CUcontext context;
	CUdeviceptr p;

	CHECK(cuCtxCreate_v2(&context, 0, 0) == CUDA_SUCCESS);
	CHECK(cuMemAlloc_v2(&p, 1 << 20) == CUDA_SUCCESS);
	CHECK(cuMemsetD8_v2(p, 7, 1 << 20) == CUDA_SUCCESS && cuCtxSynchronize() == CUDA_SUCCESS);
	CHECK(cuMemFree_v2(p) == CUDA_SUCCESS);
}

static void look(void)
{
	struct gpuarb_view *view;

	CHECK(gpuarb_view_open(NULL, gpu, &view, NULL) == 0);
	CHECK(gpuarb_view_read(view, &picture) == 0);
	gpuarb_view_close(view);
}

/* Counts the clients that this process is; `it` is set to one of them. */
static unsigned clients(const struct gpuarb_view_client **it)
{
	unsigned n = 0;

	look();
	for (unsigned i = 0; i < picture.nclients; i++)
		if (picture.clients[i].pid == (unsigned)getpid()) {
			*it = &picture.clients[i];
			n++;
		}
	return n;
}

static void one_client(void)
{
	struct gpuarb_request request = {.task_class = "asr"};
	struct gpuarb_lease lease = GPUARB_LEASE_INIT;
	const struct gpuarb_view_client *me = NULL;
	bool first = strcmp(mode, "lease") == 0;

	if (!first)
		use_gpu();
	CHECK(gpuarb_acquire(gpu, &request, &lease) == GPUARB_OK);
	if (first)
		use_gpu();
	CHECK(clients(&me) == 1);
	CHECK(picture.admission.leases >= 1);
	/* Without the preload it is billed for the lease; with the preload, for what the GPU did. */
	if (preloaded)
		CHECK(me->enters >= 1);
	else
		CHECK(me->running && me->enters == 1);
	CHECK(gpuarb_release(&lease) == 0);
	CHECK(clients(&me) == 1);
	if (!preloaded)
		CHECK(!me->running && me->used_ns > 0);
}

static void sampled_by(unsigned source)
{
	do {
		usleep(5000);
		look();
	} while (!picture.admission.sampled || picture.admission.source != source);
}

int main(int argc, char **argv)
{
	int status;
	pid_t pid;

	mode = argc > 1 ? argv[1] : "lease";
	preloaded = getenv("LD_PRELOAD") && strstr(getenv("LD_PRELOAD"), "libgpuarb-preload");
	alarm(60);
	/* The child is forked before the parent has a driver, which a child could not use. */
	pid = fork();
	CHECK(pid >= 0);
	if (pid == 0) {
		alarm(60);
		name_gpu();
		one_client();
		_exit(0);
	}
	CHECK(waitpid(pid, &status, 0) == pid && status == 0);
	name_gpu();
	one_client();
	/* This child has a parent that is a client. */
	pid = fork();
	CHECK(pid >= 0);
	if (pid == 0) {
		struct gpuarb_request request = {.task_class = "asr"};
		struct gpuarb_lease lease = GPUARB_LEASE_INIT;
		const struct gpuarb_view_client *me;

		alarm(60);
		CHECK(gpuarb_acquire(gpu, &request, &lease) == GPUARB_OK);
		CHECK(clients(&me) == 1);
		_exit(0);
	}
	CHECK(waitpid(pid, &status, 0) == pid && status == 0);
	sampled_by(strcmp(mode, "hang") == 0 ? ARB_SAMPLE_BUSY : ARB_SAMPLE_NVML);
	return 0;
}
