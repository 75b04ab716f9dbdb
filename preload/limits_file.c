/*
 * A process that was given a limits file (GPUARB_LIMITS_FILE) follows it: the tracker looks now and then,
 * also while there is no work. What is wrong with the file is said once.
 */
#include "track.h"

#include <errno.h>

#include "gpuarb/client.h"

#include "log.h"

uint64_t limits_file_look(struct arb_device *device)
{
	struct gpuarb_error err;
	uint64_t next = 0;

	int r = gpuarb_client_follow(device->client, &next, &err);

	if (r == -EDQUOT)
		arb_log(ARB_LOG_WARN, "%s", err.text);
	else if (r < 0)
		arb_log(ARB_LOG_WARN, "%s: %s: the last limits stay", device->uuid, err.text);
	return next;
}

uint64_t limits_file_follow(void)
{
	uint64_t least = 0;

	for (unsigned i = 0; i < tracks_high(); i++) {
		struct track *t = &arb_own.tracks[i];
		uint64_t next;

		if (!__atomic_load_n(&t->device, __ATOMIC_ACQUIRE) ||
			__atomic_load_n(&t->broken, __ATOMIC_RELAXED))
			continue;
		next = limits_file_look(t->device);
		if (next && (!least || next < least))
			least = next;
	}
	return least;
}
