/*
 * Runtime: the names without an implementation. They never read their arguments.
 */
#include "test/sim/runtime/cudart.h"

#define CUDART_REST(name)                                                                                    \
	CUDA_ABI_EXPORT cudaError_t name(void);                                                              \
	cudaError_t name(void)                                                                               \
	{                                                                                                    \
		return rt_result(cudaErrorNotSupported);                                                     \
	}
#include "test/sim/runtime/cudart_rest.def"
