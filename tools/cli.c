#include "cli.h"

#include <argp.h>
#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void cli_parse(const struct argp *parser, int argc, char **argv, unsigned flags, void *input)
{
	static char version[64];

	/* Assigned, not defined: a definition that is hidden is not the one that libc looks at. */
	snprintf(version, sizeof(version), "%s " GPUARB_VERSION, program_invocation_short_name);
	argp_program_version = version;
	argp_err_exit_status = 2;
	argp_parse(parser, argc, argv, flags, NULL, input);
}

int cli_option(int key, char *text, struct argp_state *state, const char **dir, const char **gpu)
{
	switch (key) {
	case 'd':
		*dir = text;
		return 0;
	case 'g':
		*gpu = text;
		return 0;
	case ARGP_KEY_ARG:
		argp_error(state, "there is nothing to do with '%s'", text);
		return EINVAL;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

void die(const char *format, ...)
{
	va_list ap;

	fprintf(stderr, "%s: ", program_invocation_short_name);
	va_start(ap, format);
	vfprintf(stderr, format, ap);
	va_end(ap);
	fputc('\n', stderr);
	exit(1);
}

void cli_own_directory(char *path, size_t size)
{
	ssize_t n = readlink("/proc/self/exe", path, size - 1);

	path[n > 0 ? n : 0] = '\0';
	if (strrchr(path, '/'))
		*strrchr(path, '/') = '\0';
}

const char *cli_library(const char *hint)
{
	static const char *const places[] = {"", "/../lib/gpuarb", "/../lib"};
	static char path[PATH_MAX];
	char own[PATH_MAX - 64];

	cli_own_directory(own, sizeof(own));
	for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
		snprintf(path, sizeof(path), "%s%s/libgpuarb-preload.so", own, places[i]);
		if (access(path, R_OK) == 0)
			return path;
	}
	die("there is no libgpuarb-preload.so beside %s or in its ../lib/gpuarb%s", own, hint);
}

long cli_number(const char *option, const char *text, long least, long most)
{
	char *end;
	long value;

	errno = 0;
	value = strtol(text, &end, 10);
	if (errno || end == text || *end || value < least || value > most) {
		fprintf(stderr, "%s: %s cannot be '%s'; allowed: %ld to %ld\n", program_invocation_short_name,
			option, text, least, most);
		exit(2);
	}
	return value;
}

char *cli_safe(const char *from, char *to, size_t size)
{
	size_t i = 0;

	for (; from[i] && i + 1 < size; i++)
		to[i] = (unsigned char)from[i] < ' ' || from[i] == 0x7f ? '?' : from[i];
	to[i] = '\0';
	return to;
}

char *cli_bytes(unsigned long long bytes, char *to, size_t size)
{
	static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
	double value = (double)bytes;
	int unit = 0;

	while (value >= 1024 && unit < 4) {
		value /= 1024;
		unit++;
	}
	snprintf(to, size, unit && value < 10 ? "%.1f %s" : "%.0f %s", value, units[unit]);
	return to;
}
