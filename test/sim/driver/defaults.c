/*
 * All names of the driver: each exists with its signature and answers "not supported". A file that
 * models a call defines it again: the strong definition there replaces the weak one here.
 */
#include "cuda_abi.h"

#pragma GCC diagnostic ignored "-Wunused-parameter"

#define CU_CALL(name, params, args)                                                                          \
	__attribute__((weak)) CUresult name params                                                           \
	{                                                                                                    \
		return CUDA_ERROR_NOT_SUPPORTED;                                                             \
	}
#include "cuda_abi/calls.def"
#include "cuda_abi/interop.def"
#include "cuda_abi/newer.def"
#undef CU_CALL
