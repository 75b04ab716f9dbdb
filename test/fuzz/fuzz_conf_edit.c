/* gpuarb-set --save: if a file could be loaded, it can be loaded after the edit and has the new value. */
#include "gpuarb/config.h"

#include "test/fuzz/fuzz.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tools/common/conf_edit.h"

static int load(const char *text, struct gpuarb_config *config)
{
	struct gpuarb_error err = {0};
	char path[64];
	int fd = memfd_create("arbiter.conf", MFD_CLOEXEC);
	int r;

	if (fd < 0 || write(fd, text, strlen(text)) != (ssize_t)strlen(text))
		abort();
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	r = gpuarb_config_load(config, path, true, &err);
	close(fd);
	return r;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = fuzz_text(data, size), *edited;
	struct gpuarb_config config;
	int before = load(text, &config);

	gpuarb_config_free(&config);
	edited = conf_edit(text, "gpu", "slice_ms", "7");
	FUZZ_HOLDS(edited, "no text came back");
	if (before == 0) {
		FUZZ_HOLDS(load(edited, &config) == 0, "the edited file cannot be loaded:\n%s", edited);
		FUZZ_HOLDS(config.value[ARB_KEY_SLICE_MS] == 7, "slice_ms is %lld in\n%s",
			(long long)config.value[ARB_KEY_SLICE_MS], edited);
		gpuarb_config_free(&config);
	}
	free(edited);
	free(text);
	return 0;
}
