/*
 * A process that was given a limits file (GPUARB_LIMITS_FILE) follows it: the tracker looks at the file at intervals,
 * also while there is no work. Each error in the file is logged once.
 */
#include "preload/track/track.h"

#include <errno.h>

#include "gpuarb/client.h"

#include "preload/process/log.h"
#include "shm/base/word.h"

uint64_t limits_file_look(struct arb_device *device)
{
	struct gpuarb_error err;
	uint64_t next = 0;

	int r = gpuarb_client_follow(device->client, &next, &err);

	if (r == -EDQUOT)
		arb_log(ARB_LOG_WARN, "%s: %s", device->name, arb_device_rest(device, err.text));
	else if (r < 0)
		arb_log(ARB_LOG_WARN, "%s: %s: the last limits stay", device->name, err.text);
	return next;
}

uint64_t limits_file_follow(void)
{
	uint64_t least = 0;

	for (unsigned i = 0; i < tracks_high(); i++) {
		struct track *t = &arb_own.tracks[i];
		uint64_t next;

		if (!arb_word_load_acquire(&t->device) || arb_word_load(&t->broken))
			continue;
		next = limits_file_look(t->device);
		if (next && (!least || next < least))
			least = next;
	}
	return least;
}
