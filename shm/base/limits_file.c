#include "shm/base/limits_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "gpuarb/config.h"

#include "shm/base/error.h"
#include "shm/base/os.h"

/* A file system's clock may stand still for this long: a later write within this time need not change the file's
 * time. */
#define RECENT_NS 200000000

/* The names under which a limit may stand in the file; the first that is there counts. */
static const struct name {
	const char *text;
	enum arb_key key;
} names[] = {
	{"gpuarb.dev/core-limit", ARB_KEY_CORE},
	{"gpuarb.dev/memory-limit", ARB_KEY_MEM},
	{"gpuarb.dev/core-request", ARB_KEY_REQUEST},
	{"gpuarb.dev/core-weight", ARB_KEY_WEIGHT},
	{"nvshare.com/gpu-core-limit", ARB_KEY_CORE},
	{"nvshare.com/gpu-memory-limit", ARB_KEY_MEM},
};
#define NAMES (sizeof(names) / sizeof(names[0]))

static bool is_space(char c)
{
	return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

/* Makes a character fit for a sentence in the program's log: no character may move the cursor. */
static char plain(char c)
{
	return (unsigned char)c < ' ' || c == 0x7f ? '?' : c;
}

/*
 * Copies the quoted text that begins at `at` into `value`, as far as there is room. Escaped characters that no limit
 * contains become '?'. Returns what follows the closing quote, or NULL if there is none.
 */
static const char *unquote(const char *at, const char *end, char *value, size_t size)
{
	size_t n = 0;

	for (; at < end && *at != '"'; at++) {
		char c = plain(*at);

		if (*at == '\n')
			return NULL;
		if (*at == '\\') {
			if (++at == end)
				return NULL;
			c = *at == '"' || *at == '\\' ? *at : '?';
		}
		if (n + 1 < size)
			value[n++] = c;
	}
	value[n] = '\0';
	return at < end ? at + 1 : NULL;
}

/* Returns which of our names a line begins with, or NAMES. */
static size_t name_of(const char *line, const char *equals)
{
	size_t length = (size_t)(equals - line), i = 0;

	while (i < NAMES && (strlen(names[i].text) != length || memcmp(names[i].text, line, length) != 0))
		i++;
	return i;
}

/* Reads one line, without its newline. Blank lines and keys of other programs are skipped. */
static int parse_line(
	const char *line, const char *end, const char *where, char values[][64], struct gpuarb_error *err)
{
	const char *equals = memchr(line, '=', (size_t)(end - line)), *rest = NULL;
	char value[64];
	size_t i;

	while (end > line && is_space(end[-1]))
		end--;
	if (line == end)
		return 0;
	if (equals && equals > line && equals + 1 < end && equals[1] == '"')
		rest = unquote(equals + 2, end, value, sizeof(value));
	if (!rest || rest != end) {
		size_t n = 0;

		for (; n < sizeof(value) - 1 && line + n < end; n++)
			value[n] = plain(line[n]);
		value[n] = '\0';
		return arb_fail(
			err, -EINVAL, "%s: '%.40s' is neither key=\"value\" nor a number", where, value);
	}
	i = name_of(line, equals);
	if (i < NAMES)
		memcpy(values[i], value, sizeof(value));
	return 0;
}

/* Is the text a single word? Then it is the share of the GPU. */
static bool parse_bare(const char *text, size_t length, char value[64])
{
	while (length && is_space(text[length - 1]))
		length--;
	while (length && is_space(*text)) {
		text++;
		length--;
	}
	if (!length || length >= 64 || *text < '0' || *text > '9' || memchr(text, '=', length))
		return false;
	for (size_t i = 0; i < length; i++)
		value[i] = plain(text[i]);
	value[length] = '\0';
	return true;
}

int arb_limits_parse(const char *text, size_t length, const char *where, struct arb_limits *limits,
	struct gpuarb_error *err)
{
	char values[NAMES][64] = {{0}}, place[PATH_MAX + 64];
	const char *end = text + length, *line = text;
	struct arb_limits found = {0};
	int64_t number;
	int r;

	if (parse_bare(text, length, values[0]))
		line = end;
	for (unsigned n = 1; line < end; n++) {
		const char *newline = memchr(line, '\n', (size_t)(end - line));

		snprintf(place, sizeof(place), "%s:%u", where, n);
		r = parse_line(line, newline ? newline : end, place, values, err);
		if (r < 0)
			return r;
		line = newline ? newline + 1 : end;
	}
	/* Backwards, so that a name that counts more comes later, and overwrites. An empty value counts as none. */
	for (size_t i = NAMES; i-- > 0;) {
		if (!values[i][0])
			continue;
		snprintf(place, sizeof(place), "%s: %s", where, names[i].text);
		r = gpuarb_config_parse(names[i].key, values[i], place, &number, err);
		if (r < 0)
			return r;
		if (names[i].key == ARB_KEY_CORE)
			found.core_pct = (unsigned)number;
		else if (names[i].key == ARB_KEY_MEM)
			found.mem_bytes = (uint64_t)number;
		else if (names[i].key == ARB_KEY_REQUEST)
			found.request_pct = (unsigned)number;
		else
			found.weight = (unsigned)number;
		found.has_mem |= names[i].key == ARB_KEY_MEM;
		found.has_request |= names[i].key == ARB_KEY_REQUEST;
	}
	*limits = found;
	return 0;
}

static bool same_time(const struct timespec *a, const struct timespec *b)
{
	return a->tv_sec == b->tv_sec && a->tv_nsec == b->tv_nsec;
}

static bool same_file(const struct arb_limits_file *f, const struct stat *st)
{
	return f->read && f->device == st->st_dev && f->inode == st->st_ino &&
	       f->size == (uint64_t)st->st_size && same_time(&f->modified, &st->st_mtim) &&
	       same_time(&f->changed, &st->st_ctim);
}

static void remember(struct arb_limits_file *f, const struct stat *st)
{
	struct timespec now;
	int64_t age;

	clock_gettime(CLOCK_REALTIME, &now);
	age = (int64_t)(now.tv_sec - st->st_ctim.tv_sec) * 1000000000 + (now.tv_nsec - st->st_ctim.tv_nsec);
	f->read = true;
	f->recent = age < RECENT_NS;
	f->device = st->st_dev;
	f->inode = st->st_ino;
	f->size = (uint64_t)st->st_size;
	f->modified = st->st_mtim;
	f->changed = st->st_ctim;
}

/* Reads the whole file, until its end and not up to the length that the kernel gave: it may grow meanwhile. */
static int read_all(int fd, char **text, size_t *length)
{
	size_t room = 4096;
	char *buffer = malloc(room), *grown;
	ssize_t n;

	*length = 0;
	while (buffer && (n = syscall(SYS_read, fd, buffer + *length, room - *length)) != 0) {
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 || *length + (size_t)n > ARB_LIMITS_BYTES_MAX) {
			int code = n < 0 ? -errno : -EFBIG;

			free(buffer);
			return code;
		}
		*length += (size_t)n;
		if (*length == room) {
			room *= 2;
			grown = realloc(buffer, room);
			if (!grown)
				free(buffer);
			buffer = grown;
		}
	}
	*text = buffer;
	return buffer ? 0 : -ENOMEM;
}

/* Opens, reads and parses the file. The descriptor lives no longer than this call. */
static int load(struct arb_limits_file *f, struct arb_limits *limits, struct gpuarb_error *err)
{
	size_t length = 0;
	char *text = NULL;
	struct stat st;
	int fd, r = 0;

	/* Not arb_os_open(), which does not follow links: the kubelet replaces the file by replacing a link. A pipe
	 * must not make us wait. */
	fd = (int)syscall(SYS_openat, AT_FDCWD, f->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0);
	if (fd < 0 || fstat(fd, &st) != 0)
		r = -errno;
	else if (!S_ISREG(st.st_mode))
		r = -EISDIR;
	else
		r = read_all(fd, &text, &length);
	if (fd >= 0)
		arb_os_close(fd);
	if (r == -EISDIR)
		return arb_fail(err, r, "limits file %.200s: it is not a file", f->path);
	if (r < 0)
		return arb_fail(err, r, "limits file %.200s: %s", f->path, strerror(-r));
	/* A file that makes no sense is remembered too: it need not be read again until it changes. */
	remember(f, &st);
	r = arb_limits_parse(text, length, f->path, limits, err);
	free(text);
	return r;
}

int arb_limits_look(struct arb_limits_file *f, struct gpuarb_error *err)
{
	struct arb_limits limits = f->limits;
	struct gpuarb_error trouble = {0};
	int saved = errno, r;
	struct stat st;
	bool first = !f->read, other;

	if (stat(f->path, &st) == 0 && same_file(f, &st) && !f->recent) {
		errno = saved;
		return 0;
	}
	r = load(f, &limits, &trouble);
	errno = saved;
	if (r < 0) {
		/* The file is gone or holds garbage. That is said when it begins, not at every look. */
		bool again = f->said.code == trouble.code && strcmp(f->said.text, trouble.text) == 0;

		if (r != -EINVAL)
			f->read = false;
		f->said = trouble;
		if (again)
			return 0;
		if (err)
			*err = trouble;
		return r;
	}
	f->said.code = 0;
	other = first || limits.core_pct != f->limits.core_pct || limits.has_mem != f->limits.has_mem ||
		limits.mem_bytes != f->limits.mem_bytes || limits.has_request != f->limits.has_request ||
		limits.request_pct != f->limits.request_pct || limits.weight != f->limits.weight;
	f->limits = limits;
	return other;
}
