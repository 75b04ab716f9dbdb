/*
 * The whole surface of the driver: each name exists with its signature and answers "not supported".
 * A module that models a call defines it again; its strong definition replaces the weak one here.
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
