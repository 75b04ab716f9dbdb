/*
 * Memory of processes that were checkpointed (cuCheckpointProcess*). The device has this memory back, but it stays in
 * the process's books. It is subtracted only where another process of the account would be refused memory because of
 * it. So there is nothing to undo when the process is restored or dies.
 *
 * The driver is not asked about other processes, because a thread of such a process would have to answer, and a stopped
 * process does not answer. Each process says it of itself (track/track_frozen.c).
 */
#include "preload/memory/memory.h"

#include "gpuarb/client.h"
#include "preload/process/device.h"

uint64_t memory_frozen(struct arb_device *device)
{
	struct gpuarb_client *client = device ? arb_device_client(device) : NULL;

	return client ? gpuarb_client_mem_gone(client) : 0;
}
