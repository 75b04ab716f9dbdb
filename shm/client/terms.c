/* The limits that hold for a client, in words. */
#include <stdio.h>

#include "gpuarb/client.h"
#include "gpuarb/config.h"

#include "shm/client/client_state.h"

int gpuarb_client_terms(struct gpuarb_client *c, char *text, size_t size)
{
	struct gpuarb_client_status status;
	char name[ARB_NAME_BYTES], core[80], mem[64] = "as much of its memory as there is", bytes[32];
	int r = gpuarb_client_status(c, &status);

	if (r < 0)
		return r;
	arb_lock_take(&c->guard->lock);
	snprintf(name, sizeof(name), "%s", c->opened.name);
	arb_lock_give(&c->guard->lock);
	if (status.core_pct >= 100)
		snprintf(core, sizeof(core), "all of the GPU's time");
	/* Requests and weights divide the time among the accounts that want it. */
	if (status.shares && status.quota_ppm < status.core_pct * 10000)
		snprintf(core, sizeof(core),
			"%u percent of the GPU's time (%u.%u now, by requests and weights)", status.core_pct,
			status.quota_ppm / 10000, status.quota_ppm / 1000 % 10);
	else if (status.core_pct < 100 && status.quota_ppm < status.core_pct * 10000)
		snprintf(core, sizeof(core), "%u percent of the GPU's time (%u.%u now, limits are scaled)",
			status.core_pct, status.quota_ppm / 10000, status.quota_ppm / 1000 % 10);
	else if (status.core_pct < 100)
		snprintf(core, sizeof(core), "%u percent of the GPU's time", status.core_pct);
	if (status.mem_limit) {
		gpuarb_config_format(ARB_KEY_MEM, (int64_t)status.mem_limit, bytes, sizeof(bytes));
		snprintf(mem, sizeof(mem), "%s of its memory", bytes);
	}
	snprintf(text, size, "account %s may use %s and %s", name, core, mem);
	return 0;
}
