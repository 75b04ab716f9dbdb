/* What modules, libraries and the linker share. */
#ifndef SIM_MODULE_H
#define SIM_MODULE_H

#include "test/sim/driver/driver.h"

CUmodule drv_module_new(CUcontext ctx, const void *image);
void drv_module_end(CUmodule m);
CUfunction drv_module_function(CUmodule m, const char *name);
CUresult drv_module_global(CUmodule m, const char *name, CUcontext ctx, CUdeviceptr *ptr, size_t *bytes);
char *drv_read_file(const char *path);

/* Fills the logs that a program asked for with empty strings. */
void drv_jit_options(unsigned n, const CUjit_option *options, void **values);

#endif
