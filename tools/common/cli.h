/* What the tools share. Only cli.c may end a tool. Exit status: 0 done, 1 failed, 2 usage. */
#ifndef TOOLS_CLI_H
#define TOOLS_CLI_H

#include <stddef.h>

#include "gpuarb.h"

struct argp;
struct argp_state;

/* The options of all tools: OPT_ACCOUNT is 'a', or a number that is no letter if the option has none. */
enum cli_letter {
#define LETTER(id, word, letter) OPT_##id = letter,
#include "tools/common/options.def"
};
enum cli_word {
	OPT_WORDS = 256,
#define WORD(id, word) OPT_##id,
#include "tools/common/options.def"
};
#define LETTER(id, word, letter) extern const char cli_word_##id[];
#define WORD(id, word)           extern const char cli_word_##id[];
#include "tools/common/options.def"

/* The first two fields of a row in a tool's table of options: its word and its key. */
#define CLI_OPTION(id) cli_word_##id, OPT_##id

/* Runs argp_parse, and handles --help, --usage and --version; a mistake in usage ends with status 2. Afterwards names
 * GPUARB_... variables that are misspelt. */
void cli_parse(const struct argp *parser, int argc, char **argv, unsigned flags, void *input);

/* For a tool's table of options: the options of all tools. */
#define CLI_OPTION_DIR(group)                                                                                \
	{                                                                                                    \
		CLI_OPTION(DIR), "DIR", 0,                                                                   \
			"Directory of the segments (default: GPUARB_DIR, else /dev/shm/gpuarb)", group       \
	}

/* Handles what a tool's own parser leaves: --dir, a single --gpu, and arguments that mean nothing. */
int cli_option(int key, char *text, struct argp_state *state, const char **dir, const char **gpu);

/* For tools that only look: ends the program if a directory named with --dir does not exist. */
void cli_dir_exists(const char *dir);

/* Prints "program: sentence" on stderr and exits with status 1. */
__attribute__((noreturn, format(printf, 1, 2))) void die(const char *format, ...);
/* Prints "program: sentence" on stderr about a mistake on the command line and exits with status 2. */
__attribute__((noreturn, format(printf, 1, 2))) void die_usage(const char *format, ...);

/* Gives the directory of this program, without a slash at its end. */
void cli_own_directory(char *path, size_t size);

/* Returns the path of the library to be preloaded: beside this program, as in a build directory, or where `make
 * install` puts it. Without one, ends the program with a sentence and the hint. */
const char *cli_library(const char *hint);
/* Returns the path of that library, or NULL if there is none. */
const char *cli_library_find(void);
/* The path of the library inside containers, whatever it is outside. */
#define CLI_LIBRARY_INSIDE "/usr/lib/gpuarb/libgpuarb-preload.so"

/* Returns the name of an account. If it cannot be one, ends the program with a sentence that says why. */
const char *cli_account(const char *option, const char *text);

/* Reads a number within a range. If it is none, ends the program with a sentence that names the option and the unit ("":
 * a number without one). */
long cli_number(const char *option, const char *text, long least, long most, const char *unit);

/* Makes text from shared memory safe for a terminal: control characters become '?'. Returns `to`. */
char *cli_safe(const char *from, char *to, size_t size);

/* Writes a size as 4 GiB, 300 MiB or 17 B. Returns `to`. */
char *cli_bytes(unsigned long long bytes, char *to, size_t size);

#endif
