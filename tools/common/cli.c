#include "tools/common/cli.h"

#include <argp.h>
#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "gpuarb/config.h"

#define LETTER(id, word, letter) const char cli_word_##id[] = word;
#define WORD(id, word)           const char cli_word_##id[] = word;
#include "tools/common/options.def"

#define CHILDREN_MOST 4

/* Two options with the same letter do not compile. */
__attribute__((unused)) static int one_word_a_letter(int letter)
{
	switch (letter) {
#define LETTER(id, word, letter) case letter:
#include "tools/common/options.def"
		return 1;
	default:
		return 0;
	}
}

/* argp has these options as well, but not -h. */
static const struct argp_option common_table[] = {
	{CLI_OPTION(HELP), NULL, 0, "Give this help list", -1},
	{NULL, '?', NULL, OPTION_HIDDEN, NULL, -1},
	{CLI_OPTION(USAGE), NULL, 0, "Give a short usage message", -1},
	{CLI_OPTION(VERSION), NULL, 0, "Print program version", -1},
	{0},
};

static error_t on_common(int key, char *text, struct argp_state *state)
{
	(void)text;
	switch (key) {
	case '?':
	case OPT_HELP:
		argp_state_help(state, stdout, ARGP_HELP_STD_HELP);
		return 0;
	case OPT_USAGE:
		argp_state_help(state, stdout, ARGP_HELP_USAGE | ARGP_HELP_EXIT_OK);
		return 0;
	case OPT_VERSION:
		printf("%s " GPUARB_VERSION "\n", program_invocation_short_name);
		exit(fflush(stdout) == 0 ? 0 : 1);
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static void say_variable(void *argument, const char *sentence)
{
	(void)argument;
	fprintf(stderr, "%s: %s\n", program_invocation_short_name, sentence);
}

/* Ends the program if GPUARB_CONF names a directory. Some commands would not read it, and so not notice. */
static void check_conf(void)
{
	const char *conf = getenv("GPUARB_CONF");
	struct stat st;

	if (conf && stat(conf, &st) == 0 && S_ISDIR(st.st_mode))
		die("GPUARB_CONF=%s is a directory; allowed: the name of a file, such as /etc/gpuarb/arbiter.conf",
			conf);
}

/* Leaves out argp's note that short options take the same arguments as long ones. */
static char *shown(int key, const char *text, void *input)
{
	(void)input;
	return key == ARGP_KEY_HELP_DUP_ARGS_NOTE ? NULL : (char *)text;
}

void cli_parse(const struct argp *parser, int argc, char **argv, unsigned flags, void *input)
{
	static const struct argp common = {common_table, on_common, NULL, NULL, NULL, NULL, NULL};
	struct argp_child children[CHILDREN_MOST + 2] = {0};
	struct argp whole = *parser;
	int n = 0;

	for (; parser->children && parser->children[n].argp && n < CHILDREN_MOST; n++)
		children[n] = parser->children[n];
	children[n].argp = &common;
	whole.children = children;
	whole.help_filter = shown;
	argp_err_exit_status = 2;
	argp_parse(&whole, argc, argv, flags | ARGP_NO_HELP, NULL, input);
	gpuarb_client_environment(say_variable, NULL);
	check_conf();
}

int cli_option(int key, char *text, struct argp_state *state, const char **dir, const char **gpu)
{
	switch (key) {
	case OPT_DIR:
		if (!*text)
			argp_error(state, "--dir cannot be empty; allowed: the name of a directory");
		*dir = text;
		return 0;
	case OPT_GPU:
		*gpu = text;
		return 0;
	case ARGP_KEY_ARG:
		argp_error(state, "there is nothing to do with '%s'", text);
		return EINVAL;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

/* Names of accounts and commands are chosen by others, and a terminal obeys control characters. */
static void say(const char *format, va_list ap)
{
	char *text;

	if (vasprintf(&text, format, ap) < 0)
		return;
	for (char *p = text; *p; p++)
		if (((unsigned char)*p < ' ' && *p != '\n') || *p == 0x7f)
			*p = '?';
	fprintf(stderr, "%s: %s\n", program_invocation_short_name, text);
	free(text);
}

void die(const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	say(format, ap);
	va_end(ap);
	exit(1);
}

void die_usage(const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	say(format, ap);
	va_end(ap);
	exit(2);
}

void cli_dir_exists(const char *dir)
{
	struct stat st;
	int code;

	if (!dir)
		return;
	code = stat(dir, &st) != 0 ? errno : S_ISDIR(st.st_mode) ? 0 : ENOTDIR;
	if (code)
		die("--dir %s: %s; allowed: a directory of segments, as gpuarb-node or the first client "
		    "makes it",
			dir, strerror(code));
}

void cli_own_directory(char *path, size_t size)
{
	ssize_t n = readlink("/proc/self/exe", path, size - 1);

	path[n > 0 ? n : 0] = '\0';
	if (strrchr(path, '/'))
		*strrchr(path, '/') = '\0';
}

const char *cli_library_find(void)
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
	return NULL;
}

const char *cli_library(const char *hint)
{
	const char *path = cli_library_find();
	char own[PATH_MAX];

	cli_own_directory(own, sizeof(own));
	if (!path)
		die("there is no libgpuarb-preload.so beside %s or in its ../lib/gpuarb%s", own, hint);
	return path;
}

const char *cli_account(const char *option, const char *text)
{
	struct gpuarb_error err;

	if (gpuarb_config_account(text, option, &err) < 0)
		die_usage("%s", err.text);
	return text;
}

long cli_number(const char *option, const char *text, long least, long most, const char *unit)
{
	char *end;
	long value;

	errno = 0;
	value = strtol(text, &end, 10);
	if (errno || end == text || *end || value < least || value > most)
		die_usage("%s cannot be '%s'; allowed: %ld to %ld%s%s", option, text, least, most,
			*unit ? " " : "", unit);
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
