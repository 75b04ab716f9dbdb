/* A limits file, as the downward API writes annotations: it is understood, or it is refused and changes nothing. */
#include "test/fuzz/fuzz.h"

#include <string.h>

#include "shm/base/limits_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const struct arb_limits before = {.core_pct = 33, .has_mem = true, .mem_bytes = 12345, .weight = 77};
	struct arb_limits limits = before;
	struct gpuarb_error err = {0};
	char *text = fuzz_text(data, size);

	if (arb_limits_parse(text, size, "limits", &limits, &err) == 0) {
		FUZZ_HOLDS(limits.core_pct <= 100 && limits.request_pct <= 100, "limits of %u and %u percent",
			limits.core_pct, limits.request_pct);
	} else {
		FUZZ_HOLDS(err.text[0] && !strchr(err.text, '\n'), "refused with '%s'", err.text);
		FUZZ_HOLDS(limits.core_pct == before.core_pct && limits.has_mem == before.has_mem &&
				   limits.mem_bytes == before.mem_bytes &&
				   limits.has_request == before.has_request && limits.weight == before.weight,
			"a file that was refused has changed something");
	}
	free(text);
	return 0;
}
