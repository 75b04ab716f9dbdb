#include "preload/process/log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include "shm/base/word.h"

/* At most this many lines in this many seconds, so that a log cannot fill a disk. */
#define BURST         20
#define BURST_SECONDS 10
/* At most this many lines of level debug in a second. */
#define DEBUG_BURST 50

static const char *const names[] = {"off", "error", "warn", "info", "debug"};

/* A program with raised privileges must not be made to open files. */
static enum arb_log_level wanted(const char **path)
{
	const char *text = secure_getenv("GPUARB_LOG");

	*path = NULL;
	if (!text || !*text)
		return ARB_LOG_WARN;
	for (int i = 0; i <= ARB_LOG_DEBUG; i++)
		if (!strcmp(text, names[i]))
			return (enum arb_log_level)i;
	if (*text != '/')
		return ARB_LOG_WARN;
	*path = text;
	return ARB_LOG_INFO;
}

struct burst {
	int64_t since;
	uint32_t lines;
};

/* Whether this line is one too many. *unsaid: how many lines were cut off in the time span before. */
static int flooded(struct burst *b, uint32_t most, int64_t seconds, uint32_t *unsaid)
{
	struct timespec now;
	uint32_t said;

	*unsaid = 0;
	if (clock_gettime(CLOCK_MONOTONIC, &now) != 0)
		return 0;
	if (now.tv_sec - arb_word_load(&b->since) >= seconds) {
		arb_word_store(&b->since, now.tv_sec);
		said = arb_word_exchange(&b->lines, 0);
		*unsaid = said > most ? said - most : 0;
	}
	return arb_word_add(&b->lines, 1) >= most;
}

/* Decisions (level debug) are many, so they have a rate of their own: they cannot cut off warnings. */
static int is_too_much(enum arb_log_level level)
{
	static struct burst decisions, others;
	uint32_t unsaid;
	int too_much;

	if (level != ARB_LOG_DEBUG)
		return flooded(&others, BURST, BURST_SECONDS, &unsaid);
	too_much = flooded(&decisions, DEBUG_BURST, 1, &unsaid);
	if (unsaid)
		arb_log(ARB_LOG_DEBUG, "%u lines like these were left out", unsaid);
	return too_much;
}

bool arb_log_due(struct arb_log_rate *rate, uint64_t now_ns, uint32_t *unsaid)
{
	uint64_t next = arb_word_load(&rate->next_ns);

	/* If several threads come at the same time, only the one whose CAS succeeds logs. */
	if (now_ns < next || !arb_word_cas(&rate->next_ns, &next, now_ns + ARB_LOG_EVERY_NS)) {
		arb_word_add(&rate->unsaid, 1);
		return false;
	}
	*unsaid = arb_word_exchange(&rate->unsaid, 0);
	return true;
}

static struct {
	dev_t device;
	ino_t file;
	int open;
} at_start;

/* Costs a program one system call at its start. */
__attribute__((constructor)) static void remember(void)
{
	struct stat st = {0};
	int saved = errno;

	at_start.open = fstat(STDERR_FILENO, &st) == 0;
	at_start.device = st.st_dev;
	at_start.file = st.st_ino;
	errno = saved;
}

/*
 * Whether standard error may be written to. A program that closed its descriptors may have a file or a connection of its
 * own there by now. It is safe if it is still what it was at the start, a character device, or a file opened for appending.
 */
static int is_for_people(void)
{
	struct stat st;
	int flags;

	if (fstat(STDERR_FILENO, &st) != 0)
		return 0;
	if (S_ISCHR(st.st_mode) ||
		(at_start.open && st.st_dev == at_start.device && st.st_ino == at_start.file))
		return 1;
	flags = fcntl(STDERR_FILENO, F_GETFL);
	return S_ISREG(st.st_mode) && flags >= 0 && (flags & O_APPEND);
}

bool arb_log_wants(enum arb_log_level level)
{
	const char *path;

	return level <= wanted(&path);
}

void arb_log(enum arb_log_level level, const char *format, ...)
{
	int saved = errno, fd = STDERR_FILENO, n, m;
	const char *path;
	char line[768];
	va_list args;

	if (level > wanted(&path) || (!path && !is_for_people()) || is_too_much(level))
		goto out;
	n = snprintf(line, sizeof(line), "gpuarb[%d/%ld] %s preload: ", (int)getpid(), syscall(SYS_gettid),
		names[level]);
	va_start(args, format);
	m = vsnprintf(line + n, sizeof(line) - (size_t)n - 1, format, args);
	va_end(args);
	if (m < 0)
		goto out;
	n += m;
	if (n > (int)sizeof(line) - 2)
		n = sizeof(line) - 2;
	/* Names of accounts and commands are chosen by others, and a terminal obeys control characters. */
	for (int i = 0; i < n; i++)
		if ((unsigned char)line[i] < ' ' || line[i] == 0x7f)
			line[i] = '?';
	line[n++] = '\n';
	/* By syscall(): open, write and close are cancellation points, and the thread may hold locks. */
	if (path)
		fd = (int)syscall(SYS_openat, AT_FDCWD, path,
			O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOCTTY, 0644);
	if (fd >= 0 && syscall(SYS_write, fd, line, (size_t)n) < 0)
		n = 0; /* there is no other place to say so */
	if (path && fd >= 0)
		syscall(SYS_close, fd);
out:
	errno = saved;
}
