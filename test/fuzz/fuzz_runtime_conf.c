/* runtime.conf: any text is read, or keeps a container from starting with one sentence. Whatever it says, an operation on
 * a container that exists reads it without one. */
#include "test/fuzz/fuzz.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tools/runtime/runtime.h"

static jmp_buf refused;
static volatile bool starting;

/* Takes the place of the one that ends gpuarb-runtime. What a refused file leaves open ends with that program. */
void runtime_fail(const char *format, ...)
{
	char text[3 * PATH_MAX];
	va_list ap;

	va_start(ap, format);
	vsnprintf(text, sizeof(text), format, ap);
	va_end(ap);
	FUZZ_HOLDS(starting, "refused though no container was to start: %s", text);
	FUZZ_HOLDS(text[0] && !strchr(text, '\n'), "refused with '%s'", text);
	longjmp(refused, 1);
}

__attribute__((visibility("default"))) const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
	return "detect_leaks=0";
}

/* A refused file stays open; it is closed here. */
static void close_above(int fd)
{
	for (int i = fd + 1; i < fd + 4; i++)
		close(i);
}

/* Whether a line begins with this name. */
static bool says(const uint8_t *data, size_t size, const char *name)
{
	size_t n = strlen(name);

	for (size_t at = 0; at < size; at++) {
		while (at < size && strchr(" \t\v\f\r\n", data[at]) && data[at])
			at++;
		if (size - at >= n && memcmp(data + at, name, n) == 0)
			return true;
		while (at < size && data[at] != '\n')
			at++;
	}
	return false;
}

static void check(const struct runtime_conf *conf)
{
	const char *const paths[] = {conf->pod_command, conf->dir, conf->library, conf->run};

	for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++) {
		FUZZ_HOLDS(memchr(paths[i], '\0', PATH_MAX), "path %zu does not end", i);
		FUZZ_HOLDS(!*paths[i] || *paths[i] == '/', "path %zu is %s", i, paths[i]);
	}
	FUZZ_HOLDS(memchr(conf->runtime, '\0', PATH_MAX), "the runtime's path does not end");
	FUZZ_HOLDS(conf->without_share <= RUNTIME_PASS, "without_share is %d", conf->without_share);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct runtime_conf conf, again;
	static volatile bool found;
	static char path[64];
	int fd = memfd_create("runtime.conf", MFD_CLOEXEC);

	if (fd < 0 || write(fd, data, size) != (ssize_t)size)
		abort();
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	setenv("GPUARB_RUNTIME_CONF", path, 1);
	setenv("PATH", "/nowhere", 1);
	starting = false;
	found = runtime_conf_try(&again);
	check(&again);
	FUZZ_HOLDS(again.memory_by_share || says(data, size, "memory"), "memory is free by no line");
	FUZZ_HOLDS(!again.selinux_pass || says(data, size, "selinux"), "selinux may pass by no line");
	starting = true;
	if (setjmp(refused) == 0) {
		runtime_conf_load(&conf);
		check(&conf);
		FUZZ_HOLDS(found && conf.runtime[0] == '/' && conf.library[0] == '/',
			"runtime '%s', library '%s'", conf.runtime, conf.library);
		FUZZ_HOLDS(!strcmp(conf.runtime, again.runtime) && !strcmp(conf.dir, again.dir) &&
				   !strcmp(conf.run, again.run) &&
				   conf.without_share == again.without_share &&
				   conf.memory_by_share == again.memory_by_share,
			"read twice, it says two things");
	}
	close_above(fd);
	close(fd);
	return 0;
}
