#include "log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* So many lines in so many seconds; what is more is not worth the disk it fills. */
#define BURST         20
#define BURST_SECONDS 10

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

static int flooded(void)
{
	static int64_t since;
	static uint32_t lines;
	struct timespec now;

	if (clock_gettime(CLOCK_MONOTONIC, &now) != 0)
		return 0;
	if (now.tv_sec - __atomic_load_n(&since, __ATOMIC_RELAXED) >= BURST_SECONDS) {
		__atomic_store_n(&since, now.tv_sec, __ATOMIC_RELAXED);
		__atomic_store_n(&lines, 0, __ATOMIC_RELAXED);
	}
	return __atomic_fetch_add(&lines, 1, __ATOMIC_RELAXED) >= BURST;
}

void arb_log(enum arb_log_level level, const char *format, ...)
{
	int saved = errno, fd = STDERR_FILENO, n, m;
	const char *path;
	char line[768];
	va_list args;

	if (level > wanted(&path) || flooded())
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
	line[n++] = '\n';
	if (path)
		fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOCTTY, 0644);
	if (fd >= 0 && write(fd, line, (size_t)n) < 0)
		n = 0; /* there is nobody left to tell */
	if (path && fd >= 0)
		close(fd);
out:
	errno = saved;
}
