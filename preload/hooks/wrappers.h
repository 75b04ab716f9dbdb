/* The functions that programs get instead of the driver's: wrap_<name>, one for each row of the tables. */
#ifndef PRELOAD_WRAPPERS_H
#define PRELOAD_WRAPPERS_H

#include "cuda_abi.h"
#include "preload/hooks/nvml_hooks.h"

#define HOOK(symbol, base, version, variant, category, params, args, facts) CUresult wrap_##symbol params;
#include "preload/hooks/hooks.def"
#undef HOOK

#define NVML_HOOK(symbol, params, args) int wrap_##symbol params;
#include "preload/hooks/nvml.def"
#undef NVML_HOOK

#endif
