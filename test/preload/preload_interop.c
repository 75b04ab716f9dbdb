/* Functions that the table of cuGetProcAddress refers to and that no test calls. */
#include "cuda_abi.h"

#pragma GCC diagnostic ignored "-Wunused-parameter"

#define CU_CALL(name, params, args)                                                                          \
	CUresult name params                                                                                 \
	{                                                                                                    \
		return CUDA_ERROR_NOT_SUPPORTED;                                                             \
	}
#include "cuda_abi/interop.def"
#undef CU_CALL
