/* The file that says what a container was granted: of several lines with the same name the first counts, and the
 * environment changes no limit. */
#include "test/fuzz/fuzz.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "gpuarb/places.h"

#include "shm/base/granted.h"

/* Returns the value in the first line that begins with "name=", and its length; NULL: there is none. */
static const uint8_t *first(const uint8_t *data, size_t size, const char *name, size_t *length)
{
	size_t n = strlen(name);

	for (size_t begin = 0, end; begin < size; begin = end + 1) {
		for (end = begin; end < size && data[end] != '\n' && data[end]; end++)
			;
		if (end - begin > n && memcmp(data + begin, name, n) == 0 && data[begin + n] == '=') {
			*length = end - begin - n - 1;
			return data + begin + n + 1;
		}
	}
	return NULL;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const char *const limits[] = {"GPUARB_ACCOUNT", "GPUARB_CORE_LIMIT", "GPUARB_CORE_REQUEST",
		"GPUARB_MEM_LIMIT", "GPUARB_WEIGHT"};
	static const char environment[] = "of the program";
	char path[64];
	int fd = memfd_create("granted", MFD_CLOEXEC);

	if (fd < 0 || write(fd, data, size) != (ssize_t)size)
		abort();
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	arb_granted_set_file(path);
	if (size > ARB_GRANTED_BYTES_MAX)
		size = ARB_GRANTED_BYTES_MAX;
	FUZZ_HOLDS(arb_granted(), "the file is there and not seen");
	for (size_t i = 0; i < sizeof(limits) / sizeof(limits[0]); i++) {
		size_t length = 0;
		const uint8_t *wanted = first(data, size, limits[i], &length);
		const char *value;

		setenv(limits[i], environment, 1);
		value = arb_granted_getenv(limits[i]);
		FUZZ_HOLDS(!value == !wanted, "%s is '%s'", limits[i], value ? value : "not there");
		FUZZ_HOLDS(!value || (strlen(value) == length && memcmp(value, wanted, length) == 0),
			"%s is '%s'", limits[i], value);
	}
	close(fd);
	return 0;
}
