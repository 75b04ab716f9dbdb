/*
 * Reads and writes config.json and process.json. Engines write 64-bit numbers without a sign (an unlimited ulimit is
 * 18446744073709551615), which the JSON library refuses. Such a number is a string while it is in memory, and is
 * written as it was read.
 */
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/runtime/runtime.h"

/* An engine's file has tens of kilobytes; for pods with thousands of variables it has a few megabytes. */
#define FILE_BYTES_MOST (64u << 20)
/* The library can read any number of this many digits. */
#define DIGITS_SAFE 18

/* What is put before the digits of such a number; no file that was read contains it. */
static char mark[32];

static char *read_whole(const char *path, const char *what, size_t *length)
{
	struct stat st;
	char *text = NULL;
	size_t n = 0;
	ssize_t r = 1;
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

	if (fd < 0 || fstat(fd, &st) != 0)
		runtime_fail("%s %s: %s", what, path, strerror(errno));
	if (!S_ISREG(st.st_mode))
		runtime_fail("%s %s is not a file", what, path);
	if (st.st_size > FILE_BYTES_MOST)
		runtime_fail("%s %s has %lld bytes; %u are the most that is read", what, path,
			(long long)st.st_size, FILE_BYTES_MOST);
	text = malloc((size_t)st.st_size + 1);
	if (!text)
		runtime_fail("out of memory");
	while (n < (size_t)st.st_size && (r = read(fd, text + n, (size_t)st.st_size - n)) != 0) {
		if (r < 0 && errno != EINTR)
			runtime_fail("%s %s: %s", what, path, strerror(errno));
		n += r > 0 ? (size_t)r : 0;
	}
	close(fd);
	text[n] = '\0';
	*length = n;
	return text;
}

static void choose_mark(const char *text)
{
	unsigned n = 0;

	do
		snprintf(mark, sizeof(mark), "gpuarb-integer-%u:", n++);
	while (strstr(text, mark));
}

/* Returns how many bytes of a number begin here, and whether it is an integer that may be too large. */
static size_t number(const char *at, bool *large)
{
	size_t n = strspn(at, "+-.0123456789eE");

	*large = n > DIGITS_SAFE && strspn(at + (*at == '-'), "0123456789") == n - (*at == '-');
	return n;
}

/* Makes a copy in which large numbers are strings that begin with the mark. */
static char *quoted(const char *text, size_t length, size_t *to_length)
{
	/* A number that is marked has at least DIGITS_SAFE bytes, and becomes less than three times as long. */
	char *copy = malloc(length * 3 + sizeof(mark)), *to = copy;
	bool inside = false, large;

	if (!copy)
		runtime_fail("out of memory");
	for (const char *at = text, *end = text + length; at < end;) {
		size_t n = 1;

		if (inside && *at == '\\' && at + 1 < end)
			n = 2;
		else if (*at == '"')
			inside = !inside;
		else if (!inside && (*at == '-' || isdigit((unsigned char)*at))) {
			n = number(at, &large);
			if (large) {
				to += sprintf(to, "\"%s%.*s\"", mark, (int)n, at);
				at += n;
				continue;
			}
		}
		memcpy(to, at, n);
		to += n;
		at += n;
	}
	*to_length = (size_t)(to - copy);
	return copy;
}

/* Reverses quoted(), in place. */
static void unquote(char *text)
{
	size_t n = strlen(mark);
	char *to = text;

	for (const char *at = text; *at;) {
		const char *digits = at + 1 + n, *end = digits;

		if (*at == '"' && !strncmp(at + 1, mark, n)) {
			end += *end == '-';
			end += strspn(end, "0123456789");
		}
		if (end > digits && *end == '"') {
			memmove(to, digits, (size_t)(end - digits));
			to += end - digits;
			at = end + 1;
		} else {
			*to++ = *at++;
		}
	}
	*to = '\0';
}

json_t *runtime_bundle_read(const char *path, const char *what)
{
	json_error_t error;
	json_t *json;
	size_t length;
	char *text = read_whole(path, what, &length), *copy;

	choose_mark(text);
	copy = quoted(text, length, &length);
	json = json_loadb(copy, length, 0, &error);
	free(copy);
	free(text);
	if (!json)
		runtime_fail("%s %s:%d: %s", what, path, error.line, error.text);
	if (!json_is_object(json))
		runtime_fail("%s %s is not an object", what, path);
	return json;
}

static bool write_all(int fd, const char *text)
{
	size_t length = strlen(text), n = 0;

	while (n < length) {
		ssize_t r = write(fd, text + n, length - n);

		if (r < 0 && errno != EINTR)
			return false;
		n += r > 0 ? (size_t)r : 0;
	}
	return true;
}

/* Writes a temporary file with the owner and mode of the old one, and moves it into place, so that nobody reads half
 * of it. */
void runtime_bundle_write(const char *path, json_t *json)
{
	char fresh[PATH_MAX + 16], *text = json_dumps(json, JSON_COMPACT);
	struct stat st;
	int fd, failed;

	if (!text)
		runtime_fail("out of memory");
	unquote(text);
	snprintf(fresh, sizeof(fresh), "%s.gpuarb-new", path);
	if (stat(path, &st) != 0)
		runtime_fail("%s: %s", path, strerror(errno));
	unlink(fresh);
	fd = open(fresh, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
	failed = fd < 0 || !write_all(fd, text) || fchmod(fd, st.st_mode & 07777) != 0 ||
		 fchown(fd, st.st_uid, st.st_gid) != 0;
	if (fd >= 0)
		failed |= close(fd) != 0;
	if (failed || rename(fresh, path) != 0) {
		int code = errno;

		unlink(fresh);
		runtime_fail("cannot write %s: %s", path, strerror(code));
	}
	free(text);
}
