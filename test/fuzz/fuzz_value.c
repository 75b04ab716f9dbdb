/* One setting, which the first byte chooses: a value that is accepted is printed in a form that gives the same value
 * when it is read again. */
#include "test/fuzz/fuzz.h"

#include <string.h>

#include "gpuarb/config.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct gpuarb_error err = {0};
	int64_t value = 0, again = 0;
	enum arb_key key;
	char *text, back[64];

	if (!size)
		return 0;
	key = (enum arb_key)(data[0] % ARB_KEY_COUNT);
	text = fuzz_text(data + 1, size - 1);
	if (gpuarb_config_parse(key, text, "here", &value, &err) == 0) {
		gpuarb_config_format(key, value, back, sizeof(back));
		FUZZ_HOLDS(gpuarb_config_parse(key, back, "here", &again, &err) == 0 && again == value,
			"%s: '%s' is read as %lld and printed as '%s'", gpuarb_keys[key].name, text,
			(long long)value, back);
	} else {
		FUZZ_HOLDS(err.text[0] && !strchr(err.text, '\n'), "%s: '%s' is refused with '%s'",
			gpuarb_keys[key].name, text, err.text);
	}
	free(text);
	return 0;
}
