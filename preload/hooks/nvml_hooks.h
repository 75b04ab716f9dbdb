/* The functions of NVML that are hooked, as NVML exports them. */
#ifndef PRELOAD_NVML_HOOKS_H
#define PRELOAD_NVML_HOOKS_H

#include "nvml_abi.h"

#define NVML_EXPORT __attribute__((visibility("default")))

#define NVML_HOOK(symbol, params, args) NVML_EXPORT int symbol params;
#include "preload/hooks/nvml.def"
#undef NVML_HOOK

#endif
