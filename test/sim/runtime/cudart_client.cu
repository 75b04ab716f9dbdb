/*
 * An ordinary CUDA program: it is compiled by nvcc where there is one and runs on the small runtime.
 * The kernels with C linkage are among those that the simulated device computes for real.
 */
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cuda_runtime.h>

#define MUST(call)                                                                                           \
	do {                                                                                                 \
		cudaError_t e_ = (call);                                                                     \
		if (e_ != cudaSuccess) {                                                                     \
			fprintf(stderr, "line %d: %s: %s\n", __LINE__, #call, cudaGetErrorString(e_));       \
			exit(1);                                                                             \
		}                                                                                            \
	} while (0)
#define CHECK(condition)                                                                                     \
	do {                                                                                                 \
		if (!(condition)) {                                                                          \
			fprintf(stderr, "line %d: not true: %s\n", __LINE__, #condition);                    \
			exit(1);                                                                             \
		}                                                                                            \
	} while (0)

__device__ int counters[8];
__constant__ float weights[16];
__managed__ int shared_total = 0;

extern "C" __global__ void fill(float *p, float v, unsigned int n)
{
	unsigned int i = blockIdx.x * blockDim.x + threadIdx.x;

	if (i < n)
		p[i] = v;
}

extern "C" __global__ void saxpy(float a, const float *x, float *y, unsigned int n)
{
	unsigned int i = blockIdx.x * blockDim.x + threadIdx.x;

	if (i < n)
		y[i] += a * x[i];
}

template <typename T> __global__ void opaque(T *p)
{
	if (p)
		*p = T(1);
}

static const unsigned int N = 100000;

static void compute(void)
{
	float *x, *y, *h = (float *)malloc(N * sizeof(float));

	MUST(cudaMalloc(&x, N * sizeof(float)));
	MUST(cudaMalloc(&y, N * sizeof(float)));
	fill<<<(N + 255) / 256, 256>>>(x, 3.0f, N);
	MUST(cudaMemset(y, 0, N * sizeof(float)));
	saxpy<<<(N + 255) / 256, 256>>>(2.0f, x, y, N);
	saxpy<<<(N + 255) / 256, 256>>>(0.5f, x, y, N);
	MUST(cudaGetLastError());
	MUST(cudaMemcpy(h, y, N * sizeof(float), cudaMemcpyDeviceToHost));
	for (unsigned int i = 0; i < N; i++)
		CHECK(h[i] == 7.5f);
	MUST(cudaFree(x));
	MUST(cudaFree(y));
	free(h);
}

static void variables(void)
{
	int in[8] = {1, 2, 3, 4, 5, 6, 7, 8}, out[8] = {0};
	float w[16], back[16];
	void *address = NULL;
	size_t size = 0;

	MUST(cudaMemcpyToSymbol(counters, in, sizeof(in)));
	MUST(cudaMemcpyFromSymbol(out, counters, 4 * sizeof(int), 4 * sizeof(int)));
	CHECK(out[0] == 5 && out[3] == 8 && out[4] == 0);
	MUST(cudaGetSymbolAddress(&address, counters));
	MUST(cudaGetSymbolSize(&size, counters));
	CHECK(address && size == sizeof(in));
	CHECK(cudaMemcpyToSymbol(counters, in, sizeof(in), 4) == cudaErrorInvalidValue);
	CHECK(cudaGetLastError() == cudaErrorInvalidValue && cudaGetLastError() == cudaSuccess);
	for (int i = 0; i < 16; i++)
		w[i] = (float)i;
	MUST(cudaMemcpyToSymbol(weights, w, sizeof(w)));
	MUST(cudaMemcpyFromSymbol(back, weights, sizeof(back)));
	CHECK(!memcmp(w, back, sizeof(w)));
	shared_total = 41;
	shared_total++;
	CHECK(shared_total == 42);
}

static void streams_and_graphs(void)
{
	cudaStream_t s;
	cudaEvent_t a, b;
	cudaGraph_t graph;
	cudaGraphExec_t exec;
	size_t nodes = 0;
	float *p, *h, ms = -1;

	MUST(cudaStreamCreate(&s));
	MUST(cudaEventCreate(&a));
	MUST(cudaEventCreate(&b));
	MUST(cudaMallocHost(&h, N * sizeof(float)));
	MUST(cudaMallocAsync(&p, N * sizeof(float), s));
	MUST(cudaEventRecord(a, s));
	for (int i = 0; i < 10; i++)
		opaque<<<1, 32, 0, s>>>(p);
	MUST(cudaEventRecord(b, s));
	MUST(cudaEventSynchronize(b));
	MUST(cudaEventElapsedTime(&ms, a, b));
	CHECK(ms > 0);

	MUST(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal));
	fill<<<10, 256, 0, s>>>(p, 1.0f, N);
	saxpy<<<10, 256, 0, s>>>(1.0f, p, p, N);
	MUST(cudaMemcpyAsync(h, p, N * sizeof(float), cudaMemcpyDeviceToHost, s));
	MUST(cudaStreamEndCapture(s, &graph));
	MUST(cudaGraphGetNodes(graph, NULL, &nodes));
	CHECK(nodes == 3);
	MUST(cudaGraphInstantiate(&exec, graph, 0));
	memset(h, 0, N * sizeof(float));
	MUST(cudaGraphLaunch(exec, s));
	MUST(cudaStreamSynchronize(s));
	CHECK(h[0] == 2.0f && h[N - 1] == 2.0f);
	MUST(cudaGraphExecDestroy(exec));
	MUST(cudaGraphDestroy(graph));
	MUST(cudaFreeAsync(p, s));
	MUST(cudaStreamSynchronize(s));
	MUST(cudaFreeHost(h));
	MUST(cudaEventDestroy(a));
	MUST(cudaEventDestroy(b));
	MUST(cudaStreamDestroy(s));
}

static void set_flag(void *p)
{
	*(int *)p += 1;
}

static void CUDART_CB stream_done(cudaStream_t, cudaError_t status, void *p)
{
	*(int *)p += status == cudaSuccess ? 10 : 1000;
}

static void graph_by_hand(void)
{
	cudaGraphNode_t set, kernel, copy, host;
	cudaGraphExec_t exec;
	cudaGraph_t graph;
	float *p, value = 4.0f, out[2] = {0, 0};
	unsigned int n = 1;
	int flag = 0;

	MUST(cudaMalloc(&p, 2 * sizeof(float)));
	void *params[] = {&p, &value, &n};
	cudaMemsetParams memset_params = {};
	cudaKernelNodeParams kernel_params = {};
	cudaHostNodeParams host_params = {set_flag, &flag};

	memset_params.dst = p;
	memset_params.elementSize = 4;
	memset_params.width = 2;
	memset_params.height = 1;
	memset_params.value = 0x40000000; /* 2.0f */
	kernel_params.func = (void *)fill;
	kernel_params.gridDim = dim3(1);
	kernel_params.blockDim = dim3(32);
	kernel_params.kernelParams = params;
	MUST(cudaGraphCreate(&graph, 0));
	MUST(cudaGraphAddMemsetNode(&set, graph, NULL, 0, &memset_params));
	MUST(cudaGraphAddKernelNode(&kernel, graph, &set, 1, &kernel_params));
	MUST(cudaGraphAddMemcpyNode1D(&copy, graph, &kernel, 1, out, p, sizeof(out), cudaMemcpyDeviceToHost));
	MUST(cudaGraphAddHostNode(&host, graph, &copy, 1, &host_params));
	MUST(cudaGraphInstantiate(&exec, graph, 0));
	MUST(cudaGraphLaunch(exec, 0));
	MUST(cudaDeviceSynchronize());
	CHECK(out[0] == 4.0f && out[1] == 2.0f && flag == 1);
	MUST(cudaGraphExecDestroy(exec));
	MUST(cudaGraphDestroy(graph));
	MUST(cudaFree(p));
}

static void the_rest(void)
{
	typedef int (*driver_version)(int *);
	cudaDriverEntryPointQueryResult found;
	cudaFuncAttributes attributes;
	cudaLaunchConfig_t config = {};
	void *entry = NULL;
	int blocks = 0, version = 0, flag = 0;
	cudaStream_t s;
	float *p;

	MUST(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
	MUST(cudaMalloc(&p, 4096));
	config.gridDim = dim3(1);
	config.blockDim = dim3(64);
	config.stream = s;
	MUST(cudaLaunchKernelEx(&config, fill, p, 1.5f, 10u));
	MUST(cudaLaunchHostFunc(s, set_flag, &flag));
	MUST(cudaStreamAddCallback(s, stream_done, &flag, 0));
	MUST(cudaStreamSynchronize(s));
	CHECK(flag == 11);
	MUST(cudaFuncGetAttributes(&attributes, opaque<int>));
	CHECK(attributes.maxThreadsPerBlock == 1024);
	MUST(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, opaque<int>, 256, 0));
	CHECK(blocks > 0);
	MUST(cudaGetDriverEntryPointByVersion("cuDriverGetVersion", &entry, 12000, cudaEnableDefault, &found));
	CHECK(entry && found == cudaDriverEntryPointSuccess);
	CHECK(((driver_version)entry)(&version) == 0 && version >= 13000);
	MUST(cudaGetDriverEntryPointByVersion("cuNoSuchThing", &entry, 12000, cudaEnableDefault, &found));
	CHECK(!entry && found == cudaDriverEntryPointSymbolNotFound);
	MUST(cudaFree(p));
	MUST(cudaStreamDestroy(s));
}

static void memory_kinds(void)
{
	struct cudaPointerAttributes attributes;
	size_t pitch = 0, free_before, free_now, total;
	char line[64], back[64], *p, *m;
	int on_stack = 0;

	MUST(cudaMemGetInfo(&free_before, &total));
	MUST(cudaMallocPitch(&p, &pitch, 50, 20));
	CHECK(pitch >= 50);
	for (int i = 0; i < 64; i++)
		line[i] = (char)i;
	MUST(cudaMemset2D(p, pitch, 9, 50, 20));
	MUST(cudaMemcpy2D(p + pitch, pitch, line, 10, 10, 5, cudaMemcpyHostToDevice));
	MUST(cudaMemcpy2D(back, 10, p + pitch, pitch, 10, 6, cudaMemcpyDeviceToHost));
	CHECK(!memcmp(line, back, 50) && back[50] == 9);
	MUST(cudaPointerGetAttributes(&attributes, p));
	CHECK(attributes.type == cudaMemoryTypeDevice && attributes.device == 0);
	MUST(cudaPointerGetAttributes(&attributes, &on_stack));
	CHECK(attributes.type == cudaMemoryTypeUnregistered);
	MUST(cudaMallocManaged(&m, 1000));
	memset(m, 5, 1000);
	MUST(cudaMemcpy(back, m + 900, 64, cudaMemcpyDefault));
	CHECK(back[0] == 5 && back[63] == 5);
	MUST(cudaFree(m));
	MUST(cudaFree(p));
	MUST(cudaFree(NULL));
	MUST(cudaMemGetInfo(&free_now, &total));
	CHECK(free_now == free_before && free_now < total);
}

static void errors(void)
{
	void *p = NULL;

	opaque<int><<<1, 5000>>>(NULL);
	CHECK(cudaPeekAtLastError() == cudaErrorInvalidConfiguration);
	CHECK(cudaGetLastError() == cudaErrorInvalidConfiguration);
	CHECK(cudaGetLastError() == cudaSuccess);
	CHECK(cudaMalloc(&p, (size_t)1 << 50) == cudaErrorMemoryAllocation);
	CHECK(!strcmp(cudaGetErrorName(cudaGetLastError()), "cudaErrorMemoryAllocation"));
	CHECK(cudaSetDevice(1000) == cudaErrorInvalidDevice);
	cudaGetLastError();
}

int main(void)
{
	struct cudaDeviceProp prop;
	int count = 0, version = 0;

	MUST(cudaGetDeviceCount(&count));
	MUST(cudaGetDeviceProperties(&prop, 0));
	MUST(cudaRuntimeGetVersion(&version));
	CHECK(count >= 1 && prop.multiProcessorCount > 0 && prop.warpSize == 32 && version == CUDART_VERSION);
	compute();
	variables();
	streams_and_graphs();
	graph_by_hand();
	the_rest();
	memory_kinds();
	errors();
	MUST(cudaDeviceSynchronize());
	MUST(cudaDeviceReset());
	compute();
	printf("ok %s\n", prop.name);
	return 0;
}
