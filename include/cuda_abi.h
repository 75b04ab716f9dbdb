/*
 * The binary interface of the CUDA driver, 13.0 and (newer.h) what followed up to 13.4: types, values and every exported name as it is
 * exported (cuMemAlloc and cuMemAlloc_v2 are two functions here, nothing is renamed by macros).
 * It replaces cuda.h, which must not be included beside it; no toolkit is needed to build.
 */
#ifndef CUDA_ABI_H
#define CUDA_ABI_H

#include "cuda_abi/base.h"
#include "cuda_abi/codes.h"
#include "cuda_abi/enums.h"
#include "cuda_abi/structs.h"
#include "cuda_abi/interop.h"
#include "cuda_abi/newer.h"

/* Whoever defines one of these names exports it, also from a library built with hidden symbols. */
#define CUDA_ABI_EXPORT __attribute__((visibility("default")))

#define CU_CALL(name, params, args) CUDA_ABI_EXPORT CUresult name params;
#include "cuda_abi/calls.def"
#include "cuda_abi/interop.def"
#include "cuda_abi/newer.def"
#undef CU_CALL

#endif
