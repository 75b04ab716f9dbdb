/* Leases as a program takes them: its look-ups of gpuarb_acquire and gpuarb_release lead here, and these functions call
 * the preload of its process. */
#include <errno.h>

#include "gpuarb.h"
#include "gpuarb/client.h"
#include "shm/admission/shared.h"
#include "test/world/judge.h"
#include "test/world/world.h"

int world_acquire(const char *gpu, const struct gpuarb_request *request, struct gpuarb_lease *lease)
{
	struct gpuarb_client *client;
	struct gpuarb_error err = {0};
	int r;

	(void)gpu;
	r = gpuarb_preload_table.client(WORLD_GPU, &client, &err);
	if (r < 0)
		return r;
	__atomic_store_n(&lease->client, (void *)client, __ATOMIC_SEQ_CST);
	return gpuarb_preload_table.acquire(client, request, lease);
}

int world_release(struct gpuarb_lease *lease)
{
	return lease->client && lease->birth ? gpuarb_preload_table.release(lease->client, lease) : 0;
}
