/*
 * A program that also uses libgpuarb.so is one client, not two: the library finds this table, and works on the
 * preload's clients. Where the preload has not joined a GPU yet, it joins now.
 */
#include "shm/admission/admission.h"
#include "shm/admission/shared.h"

#include "preload/process/device.h"

static int client(const char *gpu, struct gpuarb_client **found, struct gpuarb_error *err)
{
	/* A preload that is disabled (GPUARB_DISABLE) does not enter the running set for the program. */
	return gpuarb_client_shared(
		&(struct gpuarb_options){.gpu = gpu, .threads = true}, !arb_disabled(), found, err);
}

__attribute__((visibility("default"))) const struct arb_shared_table gpuarb_preload_table =
	ARB_SHARED_TABLE(client);
