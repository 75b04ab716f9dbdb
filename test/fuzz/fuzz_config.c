/* arbiter.conf: any text is loaded, or refused with one sentence. */
#include "test/fuzz/fuzz.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "gpuarb/config.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct gpuarb_error err = {0};
	struct gpuarb_config config;
	char path[64];
	int fd = memfd_create("arbiter.conf", MFD_CLOEXEC);
	int r;

	if (fd < 0 || write(fd, data, size) != (ssize_t)size)
		abort();
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	r = gpuarb_config_load(&config, path, true, &err);
	FUZZ_HOLDS(r <= 0, "a file was loaded with %d", r);
	FUZZ_HOLDS(r == 0 || err.text[0], "a file was refused without a sentence");
	FUZZ_HOLDS(!strchr(err.text, '\n'), "a sentence has two lines: %s", err.text);
	if (r == 0) {
		for (int key = 0; key < ARB_KEY_COUNT; key++) {
			char text[64];
			int64_t value;

			gpuarb_config_format((enum arb_key)key, config.value[key], text, sizeof(text));
			FUZZ_HOLDS(gpuarb_config_parse((enum arb_key)key, text, "", &value, &err) == 0,
				"%s = %s was loaded, and is refused now", gpuarb_keys[key].name, text);
		}
	}
	gpuarb_config_free(&config);
	close(fd);
	return 0;
}
