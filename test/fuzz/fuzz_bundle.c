/* gpuarb-runtime: any config.json is refused, or read, written and read again as the same object. */
#include "test/fuzz/fuzz.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <unistd.h>

#include "tools/runtime/runtime.h"

#define MARK "gpuarb-integer-"

static jmp_buf refused;

/* Takes the place of the one that ends gpuarb-runtime. What a refused file leaves allocated ends with that program. */
void runtime_fail(const char *format, ...)
{
	char text[8192];
	va_list ap;

	va_start(ap, format);
	vsnprintf(text, sizeof(text), format, ap);
	va_end(ap);
	FUZZ_HOLDS(text[0], "refused without a sentence");
	longjmp(refused, 1);
}

__attribute__((visibility("default"))) const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
	return "detect_leaks=0";
}

/* Whether large numbers are still marked in the file, though the input has neither the mark nor an escape for it. */
static bool is_marked(const char *path, const uint8_t *data, size_t size)
{
	static char text[1u << 20];
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text));

	close(fd);
	return n > 0 && !memchr(data, '\\', size) && !memmem(data, size, MARK, strlen(MARK)) &&
	       memmem(text, (size_t)n, MARK, strlen(MARK));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static char path[] = "/dev/shm/gpuarb-fuzz-XXXXXX";
	static json_t *volatile first, *second;
	static volatile int fd;

	first = NULL;
	strcpy(strrchr(path, '-'), "-XXXXXX");
	fd = mkstemp(path);
	FUZZ_HOLDS(fd >= 0 && write(fd, data, size) == (ssize_t)size, "%s cannot be written", path);
	close(fd);
	if (setjmp(refused) == 0) {
		first = runtime_bundle_read(path, "the bundle's");
		runtime_bundle_write(path, first);
		FUZZ_HOLDS(!is_marked(path, data, size), "a number was written as text");
		second = runtime_bundle_read(path, "the bundle's");
		FUZZ_HOLDS(json_equal(first, second), "what was written is another object");
		json_decref(second);
	} else {
		FUZZ_HOLDS(!first, "what was read cannot be written, or not be read again");
	}
	json_decref(first);
	unlink(path);
	return 0;
}
