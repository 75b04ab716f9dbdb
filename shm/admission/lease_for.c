/* A lease that is taken for another program: gpuarb-run asks, and then becomes the program. */
#include <string.h>

#include "gpuarb.h"
#include "gpuarb/client.h"

#include "shm/admission/admission.h"
#include "shm/base/command.h"
#include "shm/base/text.h"
#include "shm/client/client_state.h"

/* Names the program that the lease is for, not the tool that asks for it. */
static void name_slot(struct arb_slot *slot, char *const *program)
{
	char line[4096], name[ARB_COMMAND_BYTES];
	size_t used = 0;

	for (; *program && used + strlen(*program) < sizeof(line); program++) {
		memcpy(line + used, *program, strlen(*program) + 1);
		used += strlen(*program) + 1;
	}
	arb_command_name(line, used, name, sizeof(name));
	arb_text_store(slot->command, ARB_COMMAND_WORDS, name);
}

int gpuarb_client_acquire_for(struct gpuarb_client *client, char *const *program,
	const struct gpuarb_request *request, struct gpuarb_lease *lease)
{
	int r;

	/* The program's own work is seen by its preload; the lease itself uses nothing. */
	client->admission.tracked = true;
	r = arb_admission_acquire(client, request, lease);
	if (r == GPUARB_OK)
		name_slot(arb_client_slot(client), program);
	return r;
}
