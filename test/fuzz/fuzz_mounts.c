/* /proc/self/mountinfo and uid_map: which container and which pod a process is in. The size of the buffer that the file is
 * read with changes nothing, and an id is nothing but an id. */
#include "test/fuzz/fuzz.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "shm/base/os_proc.h"

#define SMALL 512

static void read_mounts(int fd, size_t size, struct arb_os_identity *id)
{
	char *buffer = malloc(size);

	if (!buffer || lseek(fd, 0, SEEK_SET) != 0)
		abort();
	memset(id, 0, sizeof(*id));
	arb_os_mounts(fd, buffer, size, id);
	free(buffer);
}

/* Whether the small buffer holds each line whole, and each line is text. */
static bool fits(const uint8_t *data, size_t size)
{
	for (size_t begin = 0; begin < size;) {
		const uint8_t *end = memchr(data + begin, '\n', size - begin);
		size_t length = (end ? (size_t)(end - data) : size) - begin;

		if (length >= SMALL - 1 || memchr(data + begin, '\0', length))
			return false;
		begin += length + 1;
	}
	return true;
}

static void check(const struct arb_os_identity *id)
{
	FUZZ_HOLDS(
		memchr(id->container, '\0', sizeof(id->container)) && memchr(id->pod, '\0', sizeof(id->pod)),
		"an id does not end");
	FUZZ_HOLDS(strspn(id->container, "0123456789abcdef") == strlen(id->container),
		"the container is '%s'", id->container);
	FUZZ_HOLDS(strspn(id->pod, "0123456789abcdef-") == strlen(id->pod), "the pod is '%s'", id->pod);
	FUZZ_HOLDS(!id->pod[0] || strlen(id->pod) >= 32, "the pod is '%s'", id->pod);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct arb_os_identity large, small;
	char *text = fuzz_text(data, size);
	int fd = memfd_create("mountinfo", MFD_CLOEXEC);

	if (fd < 0 || write(fd, data, size) != (ssize_t)size)
		abort();
	read_mounts(fd, size + 2, &large);
	read_mounts(fd, SMALL, &small);
	close(fd);
	check(&large);
	check(&small);
	if (fits(data, size))
		FUZZ_HOLDS(!strcmp(large.container, small.container) && !strcmp(large.pod, small.pod),
			"'%s' of '%s' in a large buffer, '%s' of '%s' in a small one", large.container,
			large.pod, small.container, small.pod);
	if (!strpbrk(text, "0123456789"))
		FUZZ_HOLDS(arb_os_user(text, 1000) == 1000, "another user without a number");
	arb_os_user(text, 1000);
	free(text);
	return 0;
}
