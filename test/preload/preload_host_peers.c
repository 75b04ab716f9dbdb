/* Copies between GPUs count on both. What is true is taken from the simulated GPU of the stream: the programs here
 * have no other work on either GPU. */
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "test/preload/preload_host.h"
#include "test/sim/device/model.h"

/* Each copy takes 4.2 ms at GPUSIM_MEM_GBPS=1. */
#define BYTES   (4u << 20)
#define COPY_NS 4195000ull

struct pair {
	CUcontext ctx[2];
	CUdeviceptr memory[2];
	CUstream stream[2];
};

static struct pair two_gpus(void)
{
	struct pair p;

	setenv("GPUSIM_MEM_GBPS", "1", 1);
	for (int i = 0; i < 2; i++) {
		p.ctx[i] = host_context(i);
		OK(cuStreamCreate(&p.stream[i], CU_STREAM_NON_BLOCKING));
		OK(cuMemAlloc_v2(&p.memory[i], BYTES));
		/* What a first fence costs is not measured here. */
		host_work();
	}
	OK(cuCtxSetCurrent(p.ctx[0]));
	return p;
}

static void must_leave_both(void)
{
	host_must_leave(0);
	host_must_leave(1);
}

static uint64_t worked_ns(int device)
{
	struct sim_device_state state;

	T_CHECK(!sim_open() && !sim_device_state(device, &state), "no simulation");
	return state.busy_ns;
}

enum { PEER_ASYNC, PEER, DTOD_ASYNC, DTOD, ANY_ASYNC, ANY, PLANE, VOLUME, PEER_VOLUME, BATCH, WAYS };

static const char *const names[WAYS] = {"cuMemcpyPeerAsync", "cuMemcpyPeer", "cuMemcpyDtoDAsync",
	"cuMemcpyDtoD", "cuMemcpyAsync", "cuMemcpy", "cuMemcpy2DAsync", "cuMemcpy3DAsync",
	"cuMemcpy3DPeerAsync", "cuMemcpyBatchAsync"};

static void copy(const struct pair *p, int way, int to, int from, CUstream stream)
{
	CUdeviceptr dst = p->memory[to], src = p->memory[from];
	CUDA_MEMCPY2D plane = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
		.dstMemoryType = CU_MEMORYTYPE_DEVICE,
		.srcDevice = src,
		.dstDevice = dst,
		.WidthInBytes = BYTES,
		.Height = 1};
	CUDA_MEMCPY3D volume = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
		.dstMemoryType = CU_MEMORYTYPE_UNIFIED,
		.srcDevice = src,
		.dstDevice = dst,
		.WidthInBytes = BYTES,
		.Height = 1,
		.Depth = 1};
	CUDA_MEMCPY3D_PEER peers;
	CUmemcpyAttributes attributes = {.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM};
	size_t bytes = BYTES, first = 0;

	memcpy(&peers, &volume, sizeof(peers));
	peers.srcContext = p->ctx[from];
	peers.dstContext = p->ctx[to];
	switch (way) {
	case PEER_ASYNC:
		OK(cuMemcpyPeerAsync(dst, p->ctx[to], src, p->ctx[from], BYTES, stream));
		break;
	case PEER:
		OK(cuMemcpyPeer(dst, p->ctx[to], src, p->ctx[from], BYTES));
		break;
	case DTOD_ASYNC:
		OK(cuMemcpyDtoDAsync_v2(dst, src, BYTES, stream));
		break;
	case DTOD:
		OK(cuMemcpyDtoD_v2(dst, src, BYTES));
		break;
	case ANY_ASYNC:
		OK(cuMemcpyAsync(dst, src, BYTES, stream));
		break;
	case ANY:
		OK(cuMemcpy(dst, src, BYTES));
		break;
	case PLANE:
		OK(cuMemcpy2DAsync_v2(&plane, stream));
		break;
	case VOLUME:
		OK(cuMemcpy3DAsync_v2(&volume, stream));
		break;
	case PEER_VOLUME:
		OK(cuMemcpy3DPeerAsync(&peers, stream));
		break;
	default:
		OK(cuMemcpyBatchAsync_v2(&dst, &src, &bytes, 1, &attributes, &first, 1, stream));
	}
}

/* Gives what each of the three GPUs billed; with `since`, what it billed since the last call. */
static void billed_since(uint64_t billed[3], bool since)
{
	for (int i = 0; i < 3; i++) {
		/* No client has used the third GPU. */
		uint64_t now = i < 2 || host_clients(i) ? host_picture(i)->busy_ns : 0;

		billed[i] = since ? now - billed[i] : now;
	}
}

/*
 * Checks that each of the two GPUs bills what the stream's GPU has worked. A thread that a busy machine stops between
 * the gate and the driver while a window ends is billed for that, so it may be tried again. A program that is alone
 * and without a limit may be billed for its pauses, on either GPU, but at least for its work.
 */
static bool is_billed(const struct pair *p, int way, int to, int stream, bool last)
{
	uint64_t billed[3], worked = worked_ns(stream);
	bool right = true, exact = getenv("GPUARB_CORE_LIMIT") != NULL;

	must_leave_both();
	billed_since(billed, false);
	for (int i = 0; i < 5; i++) {
		copy(p, way, to, !to, p->stream[stream]);
		OK(cuCtxSynchronize());
	}
	must_leave_both();
	worked = worked_ns(stream) - worked;
	billed_since(billed, true);
	T_CHECK(worked > 4 * COPY_NS && !billed[2], "copied for %llu us, a third GPU was billed %llu",
		(unsigned long long)worked / 1000, (unsigned long long)billed[2] / 1000);
	for (int i = 0; i < 2; i++)
		right &= billed[i] > worked * 9 / 10 && (!exact || billed[i] < worked * 11 / 10 + 1000000);
	T_CHECK(right || !last, "%s in a stream of GPU %d: billed %llu and %llu us of %llu", names[way],
		stream, (unsigned long long)billed[0] / 1000, (unsigned long long)billed[1] / 1000,
		(unsigned long long)worked / 1000);
	return right;
}

static void copies_each_way(void)
{
	struct pair p = two_gpus();

	for (int way = 0; way < WAYS; way++)
		for (int k = 0; k < 4; k++) {
			OK(cuCtxSetCurrent(p.ctx[k & 1]));
			for (int try = 8; try > 0 && !is_billed(&p, way, k >> 1, k & 1, try == 1); try--)
				;
		}
}

/* Memory of one GPU that is copied in its own stream concerns no other GPU, nor does memory of the host. */
static void copies_within_one(void)
{
	struct pair p = two_gpus();
	uint64_t billed[3];
	CUdeviceptr other;
	void *host;

	OK(cuMemAlloc_v2(&other, BYTES));
	OK(cuMemHostAlloc(&host, BYTES, 0));
	must_leave_both();
	billed_since(billed, false);
	for (int i = 0; i < 10; i++) {
		OK(cuMemcpyDtoDAsync_v2(p.memory[0], other, BYTES, p.stream[0]));
		OK(cuMemcpyHtoDAsync_v2(p.memory[0], host, BYTES, p.stream[0]));
		OK(cuMemcpyAsync((CUdeviceptr)(uintptr_t)host, p.memory[0], BYTES, p.stream[0]));
		OK(cuStreamSynchronize(p.stream[0]));
	}
	must_leave_both();
	billed_since(billed, true);
	T_CHECK(billed[0] > 8 * COPY_NS && !billed[1], "billed %llu and %llu us",
		(unsigned long long)billed[0] / 1000, (unsigned long long)billed[1] / 1000);
}

/* While a copy waits for kernels of the stream's GPU, it is no work of the other GPU. */
static void copies_behind_kernels(void)
{
	struct pair p = two_gpus();
	uint64_t billed[3];
	bool right = false;

	/* If a window ends meanwhile, the wait before it cannot be taken back: 40 ms of 1000. */
	for (int round = 0; round < 5 && !right; round++) {
		must_leave_both();
		billed_since(billed, false);
		host_launch(p.stream[0], 4, 10000);
		copy(&p, PEER_ASYNC, 1, 0, p.stream[0]);
		copy(&p, PEER_ASYNC, 0, 1, p.stream[0]);
		OK(cuStreamSynchronize(p.stream[0]));
		must_leave_both();
		billed_since(billed, true);
		right = billed[0] > 40000000 && billed[1] > COPY_NS * 3 / 2 && billed[1] < 25000000;
	}
	T_CHECK(right, "billed %llu and %llu us", (unsigned long long)billed[0] / 1000,
		(unsigned long long)billed[1] / 1000);
}

/* Makes a graph with a copy from one GPU to the other, as a node or captured, behind `kernels` kernels of 10 ms. */
static CUgraphExec graph_of(const struct pair *p, bool captured, int kernels)
{
	CUDA_MEMCPY3D whole = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
		.dstMemoryType = CU_MEMORYTYPE_DEVICE,
		.srcDevice = p->memory[0],
		.dstDevice = p->memory[1],
		.WidthInBytes = BYTES,
		.Height = 1,
		.Depth = 1};
	CUgraphExec exec;
	CUgraphNode node;
	CUgraph graph;

	if (captured) {
		OK(cuStreamBeginCapture_v2(p->stream[0], CU_STREAM_CAPTURE_MODE_RELAXED));
		if (kernels)
			host_launch(p->stream[0], kernels, 10000);
		OK(cuMemcpyPeerAsync(p->memory[1], p->ctx[1], p->memory[0], p->ctx[0], BYTES, p->stream[0]));
		OK(cuStreamEndCapture(p->stream[0], &graph));
	} else {
		OK(cuGraphCreate(&graph, 0));
		OK(cuGraphAddMemcpyNode(&node, graph, NULL, 0, &whole, p->ctx[0]));
	}
	OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
	OK(cuGraphDestroy(graph));
	return exec;
}

/* Launches it five times. Gives what each GPU billed, and returns what the stream's GPU has worked. */
static uint64_t launch_graph(const struct pair *p, CUgraphExec exec, uint64_t billed[3])
{
	uint64_t worked;

	must_leave_both();
	worked = worked_ns(0);
	billed_since(billed, false);
	for (int i = 0; i < 5; i++) {
		OK(cuGraphLaunch(exec, p->stream[0]));
		OK(cuCtxSynchronize());
	}
	must_leave_both();
	billed_since(billed, true);
	return worked_ns(0) - worked;
}

static void copies_in_graphs(void)
{
	struct pair p = two_gpus();
	uint64_t billed[3], worked;

	for (int captured = 0; captured < 2; captured++) {
		CUgraphExec exec = graph_of(&p, captured, 0);
		bool right = false;

		for (int try = 0; try < 8 && !right; try++) {
			worked = launch_graph(&p, exec, billed);
			T_CHECK(worked > 4 * COPY_NS && !billed[2], "copied for %llu us",
				(unsigned long long)worked / 1000);
			right = true;
			for (int i = 0; i < 2; i++)
				right &=
					billed[i] > worked * 9 / 10 && billed[i] < worked * 11 / 10 + 1000000;
		}
		T_CHECK(right, "%s: billed %llu and %llu us of %llu", captured ? "captured" : "by a node",
			(unsigned long long)billed[0] / 1000, (unsigned long long)billed[1] / 1000,
			(unsigned long long)worked / 1000);
		OK(cuGraphExecDestroy(exec));
	}
}

/* Kernels are the work of one GPU, whatever else is in their graph. */
static void copies_in_graphs_with_kernels(void)
{
	struct pair p = two_gpus();
	CUgraphExec exec;
	uint64_t billed[3], worked;
	bool right = false;

	/* From this copy the preload learns how fast copies are. */
	copy(&p, PEER_ASYNC, 1, 0, p.stream[0]);
	OK(cuCtxSynchronize());
	exec = graph_of(&p, true, 2);
	for (int try = 0; try < 8 && !right; try++) {
		worked = launch_graph(&p, exec, billed);
		right = billed[0] > worked * 9 / 10 && billed[1] > 4 * COPY_NS && billed[1] < worked / 2;
	}
	T_CHECK(right, "billed %llu and %llu us of %llu", (unsigned long long)billed[0] / 1000,
		(unsigned long long)billed[1] / 1000, (unsigned long long)worked / 1000);
}

static void limit(int device, const char *percent)
{
	struct gpuarb_change change = {HOST_ACCOUNT, "core", percent};
	struct gpuarb_error err = {0};

	T_CHECK(!gpuarb_control_change(NULL, host_uuid(device), &change, 1, &err), "%s", err.text);
}

/* Whichever GPU has the limit, and whichever has the stream, the copies keep within the limit. */
static void copies_under_a_limit_of(int device)
{
	struct pair p = two_gpus();

	limit(device, "25");
	for (int stream = 0; stream < 2; stream++) {
		uint64_t began, worked, took, n = 0;

		OK(cuCtxSetCurrent(p.ctx[stream]));
		/* By then the limit is known and its first quota used. */
		for (int i = 0; i < 30; i++)
			copy(&p, PEER_ASYNC, 1, 0, p.stream[stream]);
		OK(cuStreamSynchronize(p.stream[stream]));
		worked = worked_ns(stream);
		began = t_now_ns();
		while (t_now_ns() < began + 2500000000ull) {
			copy(&p, n++ % 2 ? PEER_ASYNC : ANY_ASYNC, !stream, stream, p.stream[stream]);
			if (n % 4 == 0)
				OK(cuStreamSynchronize(p.stream[stream]));
		}
		OK(cuStreamSynchronize(p.stream[stream]));
		took = t_now_ns() - began;
		worked = worked_ns(stream) - worked;
		T_CHECK(worked < took * 35 / 100 && worked > took * 10 / 100,
			"limit on GPU %d, stream on GPU %d: copied for %llu of %llu ms, limited to 25 %%",
			device, stream, (unsigned long long)worked / 1000000,
			(unsigned long long)took / 1000000);
	}
}

static void copies_under_a_limit_of_the_first(void)
{
	copies_under_a_limit_of(0);
}

static void copies_under_a_limit_of_the_second(void)
{
	copies_under_a_limit_of(1);
}

struct race {
	uint64_t done[2];
};

static void *copies_for_ever(void *argument)
{
	struct pair p = *(struct pair *)argument;

	OK(cuCtxSetCurrent(p.ctx[1]));
	for (;;) {
		copy(&p, PEER, 0, 1, NULL);
		copy(&p, ANY_ASYNC, 1, 0, p.stream[1]);
		OK(cuStreamSynchronize(p.stream[1]));
	}
	return NULL;
}

static int copies_against(struct race *race, int who)
{
	struct pair p;
	pthread_t thread;

	setenv("GPUARB_ACCOUNT", who ? "one" : "other", 1);
	p = two_gpus();
	/* Each GPU has a thread with its streams, and they copy both ways. */
	T_CHECK(!pthread_create(&thread, NULL, copies_for_ever, &p), "no thread");
	for (;;) {
		copy(&p, PEER_ASYNC, 1, 0, p.stream[0]);
		copy(&p, DTOD, 0, 1, NULL);
		OK(cuStreamSynchronize(p.stream[0]));
		__atomic_add_fetch(&race->done[who], 1, __ATOMIC_RELEASE);
	}
	return 0;
}

static int is_one(void *argument)
{
	return copies_against(argument, 0);
}

static int is_the_other(void *argument)
{
	return copies_against(argument, 1);
}

static void must_get_on(const struct race *race, int who)
{
	uint64_t from = __atomic_load_n(&race->done[who], __ATOMIC_ACQUIRE),
		 end = t_now_ns() + 20000000000ull;

	while (__atomic_load_n(&race->done[who], __ATOMIC_ACQUIRE) < from + 5) {
		T_CHECK(t_now_ns() < end, "program %d stands still", who);
		t_sleep_us(2000);
	}
}

/* Two programs take turns on two GPUs, and need both for each of their copies. Neither waits for one GPU while it
 * keeps the other, and a program that is killed in the middle keeps neither. */
static void copies_against_another(const char *policy)
{
	struct race *race = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pid_t pid[2];

	setenv("GPUARB_POLICY", policy, 1);
	pid[0] = t_spawn(is_one, race, 60);
	pid[1] = t_spawn(is_the_other, race, 60);
	for (int round = 0; round < 3; round++) {
		for (int who = 0; who < 2; who++)
			must_get_on(race, who);
		kill(pid[round & 1], SIGKILL);
		t_wait(pid[round & 1]);
		must_get_on(race, !(round & 1));
		pid[round & 1] = t_spawn(round & 1 ? is_the_other : is_one, race, 60);
	}
	for (int who = 0; who < 2; who++) {
		must_get_on(race, who);
		kill(pid[who], SIGKILL);
		t_wait(pid[who]);
	}
	for (int i = 0; i < 2; i++) {
		struct gpuarb_error err = {0};

		gpuarb_control_reap(NULL, host_uuid(i), NULL, NULL, NULL);
		T_CHECK(!gpuarb_control_check(NULL, host_uuid(i), t_say, NULL, &err), "%s", err.text);
		T_CHECK(!host_picture(i)->nrunning, "a dead one is in the set of GPU %d", i);
	}
}

static void takes_turns_with_another(void)
{
	copies_against_another("exclusive");
}

static void runs_beside_another(void)
{
	copies_against_another("concurrent");
}

const struct host_case host_peers_cases[] = {
	{"peers: copies each way", copies_each_way, NULL, 0},
	{"peers: copies each way, limited", copies_each_way, "90", 0},
	{"peers: copies within one GPU", copies_within_one, "90", 0},
	{"peers: copies behind kernels", copies_behind_kernels, "90", 0},
	{"peers: copies in graphs", copies_in_graphs, "90", 0},
	{"peers: copies in graphs with kernels", copies_in_graphs_with_kernels, "90", 0},
	{"peers: copies under a limit of the first", copies_under_a_limit_of_the_first, NULL, 0},
	{"peers: copies under a limit of the second", copies_under_a_limit_of_the_second, NULL, 0},
	{"peers: takes turns with another", takes_turns_with_another, NULL, 0},
	{"peers: limited, takes turns with another", takes_turns_with_another, "40", 0},
	{"peers: runs beside another, limited", runs_beside_another, "40", 0},
	{NULL, NULL, NULL, 0},
};
