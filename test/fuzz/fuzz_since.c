/* gpuarb-top --since: any text is a moment that is not in the future, or is refused. */
#include "test/fuzz/fuzz.h"

#include "tools/top/top_past.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const uint64_t now = 1700000000ull * 1000000000ull;
	uint64_t since = 0;
	char *text = fuzz_text(data, size);

	if (top_past_since(text, now, &since))
		FUZZ_HOLDS(since && since <= now, "'%s' is %llu", text, (unsigned long long)since);
	free(text);
	return 0;
}
