/*
 * Memory of processes that were checkpointed (cuCheckpointProcess*). The device has it back, but it stays in the books,
 * which are those of the process that holds it; so it is left out of account where it matters, which is where somebody else
 * of the account would be refused memory for it. There is nothing to undo when it is restored or dies.
 *
 * The driver is not asked about other processes: a thread of theirs would have to answer, and whoever is stopped does not.
 * Each process says it of itself (track/track_frozen.c).
 */
#include "preload/memory/memory.h"

#include "gpuarb/client.h"
#include "preload/process/device.h"

uint64_t memory_frozen(struct arb_device *device)
{
	struct gpuarb_client *client = device ? arb_device_client(device) : NULL;

	return client ? gpuarb_client_mem_gone(client) : 0;
}
