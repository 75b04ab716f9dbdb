/*
 * Memory of processes that were checkpointed (cuCheckpointProcess*). The device has it back, but nobody can take it out of
 * the books: the process that holds it is stopped in the driver, and whoever stopped it may be no client. So it stays
 * in the books, and is left out of account where it matters, which is where somebody else of the account would be
 * refused memory for it: there the driver is asked who is frozen. There is nothing to undo when it is restored or dies.
 */
#include "preload/memory/memory.h"

#include "gpuarb/client.h"
#include "preload/process/device.h"
#include "preload/track/track.h"

/* Members that are asked about: more than share a GPU by far. */
#define ASKED 64

uint64_t memory_frozen(struct arb_device *device)
{
	__typeof__(cuCheckpointProcessGetState) *ask = arb_real(cuCheckpointProcessGetState);
	struct gpuarb_client *client = device ? arb_device_client(device) : NULL;
	struct gpuarb_member member[ASKED];
	unsigned n = client && ask ? gpuarb_client_members(client, member, ASKED) : 0;
	CUstreamCaptureMode mode;
	uint64_t gone = 0;

	if (!n)
		return 0;
	mode = track_relax();
	for (unsigned i = 0; i < n; i++) {
		CUprocessState state = CU_PROCESS_STATE_RUNNING;

		if (ask((int)member[i].pid, &state) == CUDA_SUCCESS && state == CU_PROCESS_STATE_CHECKPOINTED)
			gone += member[i].bytes;
	}
	track_unrelax(mode);
	return gone;
}
