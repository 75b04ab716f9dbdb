/* Memory that two processes see: the same bytes at two addresses, counted once. */
#include "test/sim/test/simtest.h"

#include <dirent.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "units.h"

TestSuite(ipc, .fini = sim_remove);

struct talk {
	int to_child[2], to_parent[2];
	CUipcMemHandle handle;
};

static void say(int fd, const void *what, size_t n)
{
	cr_assert_eq(write(fd, what, n), (ssize_t)n);
}

static void hear(int fd, void *what, size_t n)
{
	cr_assert_eq(read(fd, what, n), (ssize_t)n);
}

static struct talk *talk_new(void)
{
	struct talk *t = calloc(1, sizeof(*t));

	cr_assert(t && !pipe(t->to_child) && !pipe(t->to_parent));
	return t;
}

static int ipc_files(void)
{
	DIR *d = opendir(getenv("GPUSIM_DIR"));
	struct dirent *e;
	int n = 0;

	while (d && (e = readdir(d)))
		n += !strncmp(e->d_name, "ipc-", 4);
	if (d)
		closedir(d);
	return n;
}

/* Exports 64 MiB of which only two pages were written, and waits to be told to end. */
static void exporter(void *arg)
{
	struct talk *t = arg;
	CUipcMemHandle h;
	CUdeviceptr p;
	unsigned v = 0;
	char c;

	sim_device();
	OK(cuMemAlloc_v2(&p, 64 * MIB));
	OK(cuMemsetD32_v2(p, 0x11111111, 1024));
	OK(cuMemsetD32_v2(p + 40 * MIB, 0x22222222, 1024));
	OK(cuIpcGetMemHandle(&h, p));
	say(t->to_parent[1], &h, sizeof(h));
	hear(t->to_child[0], &c, 1);
	OK(cuMemcpyDtoH_v2(&v, p + 8 * MIB, 4));
	say(t->to_parent[1], &v, sizeof(v));
	hear(t->to_child[0], &c, 1);
	if (c == 'f')
		OK(cuMemFree_v2(p));
	say(t->to_parent[1], &c, 1);
	hear(t->to_child[0], &c, 1);
}

Test(ipc, both_processes_see_the_same_bytes_and_the_books_see_one)
{
	struct sim_device_state device;
	struct sim_process_state list[8];
	struct talk *t;
	CUdeviceptr p, again;
	uint64_t before;
	unsigned v = 0;
	int n = 8;
	pid_t child;

	sim_fresh("GPUSIM_CTX_MB", "10", NULL);
	t = talk_new();
	child = sim_child(exporter, t);
	hear(t->to_parent[0], &t->handle, sizeof(t->handle));
	sim_device();
	sim_truth(&device, list, &n);
	before = device.memory_used_bytes;
	cr_assert_eq(before, 84 * MIB);

	GIVES(cuIpcOpenMemHandle_v2(&p, t->handle, 0), CUDA_ERROR_INVALID_VALUE);
	OK(cuIpcOpenMemHandle_v2(&p, t->handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
	OK(cuIpcOpenMemHandle_v2(&again, t->handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
	cr_assert_eq(p, again);
	sim_truth(&device, list, &n);
	cr_assert_eq(device.memory_used_bytes, before);
	OK(cuMemcpyDtoH_v2(&v, p + 40 * MIB + 4092, 4));
	cr_assert_eq(v, 0x22222222);
	OK(cuMemcpyDtoH_v2(&v, p + 20 * MIB, 4));
	cr_assert_eq(v, 0);
	OK(cuMemsetD32_v2(p + 8 * MIB, 77, 1));
	OK(cuCtxSynchronize());
	say(t->to_child[1], "x", 1);
	hear(t->to_parent[0], &v, sizeof(v));
	cr_assert_eq(v, 77);

	GIVES(cuMemFree_v2(p), CUDA_ERROR_INVALID_VALUE);
	OK(cuIpcCloseMemHandle(p));
	OK(cuMemcpyDtoH_v2(&v, p, 4));
	OK(cuIpcCloseMemHandle(p));
	GIVES(cuMemcpyDtoH_v2(&v, p, 4), CUDA_ERROR_INVALID_VALUE);
	GIVES(cuIpcCloseMemHandle(p), CUDA_ERROR_INVALID_VALUE);
	say(t->to_child[1], "f", 1);
	hear(t->to_parent[0], &v, 1);
	GIVES(cuIpcOpenMemHandle_v2(&p, t->handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS),
		CUDA_ERROR_MAP_FAILED);
	cr_assert_eq(ipc_files(), 0);
	say(t->to_child[1], "e", 1);
	cr_assert_eq(sim_join(child), 0);
}

Test(ipc, a_handle_is_not_for_the_process_that_made_it)
{
	CUipcMemHandle h;
	CUdeviceptr p, q, host;

	sim_fresh(NULL);
	sim_device();
	OK(cuMemAlloc_v2(&p, 100));
	OK(cuIpcGetMemHandle(&h, p));
	GIVES(cuIpcOpenMemHandle_v2(&q, h, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS), CUDA_ERROR_INVALID_CONTEXT);
	OK(cuMemAllocManaged(&host, 100, CU_MEM_ATTACH_GLOBAL));
	GIVES(cuIpcGetMemHandle(&h, host), CUDA_ERROR_INVALID_VALUE);
	memset(&h, 0, sizeof(h));
	GIVES(cuIpcOpenMemHandle_v2(&q, h, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS), CUDA_ERROR_INVALID_VALUE);
	OK(cuMemFree_v2(p));
	cr_assert_eq(ipc_files(), 0);
}

Test(ipc, what_a_killed_exporter_left_is_removed_by_the_next_one)
{
	struct talk *t;
	CUipcMemHandle h;
	CUdeviceptr p, q;
	unsigned v = 0;
	pid_t child;

	sim_fresh(NULL);
	t = talk_new();
	child = sim_child(exporter, t);
	hear(t->to_parent[0], &t->handle, sizeof(t->handle));
	sim_device();
	OK(cuIpcOpenMemHandle_v2(&p, t->handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
	kill(child, SIGKILL);
	cr_assert_eq(sim_join(child), -SIGKILL);
	cr_assert_eq(ipc_files(), 1);
	/* Memory that is open stays readable, though it is not counted any more once its exporter is dead. */
	OK(cuMemcpyDtoH_v2(&v, p, 4));
	cr_assert_eq(v, 0x11111111);
	OK(cuMemAlloc_v2(&q, 100));
	OK(cuIpcGetMemHandle(&h, q));
	cr_assert_eq(ipc_files(), 1);
	/* The test's directory can be removed only after this. */
	OK(cuMemFree_v2(q));
	cr_assert_eq(ipc_files(), 0);
}
