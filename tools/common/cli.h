/* What the tools have in common. Only here may a tool end itself. Exit: 0 done, 1 failed, 2 usage. */
#ifndef TOOLS_CLI_H
#define TOOLS_CLI_H

#include <stddef.h>

#include "gpuarb.h"

struct argp;
struct argp_state;

/* The options of all tools: OPT_ACCOUNT is 'a', or a number that is no letter. */
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

/* argp_parse with --help, --usage and --version as well, and 2 for mistakes in usage. Then says which
 * GPUARB_... variables are misspelt. */
void cli_parse(const struct argp *parser, int argc, char **argv, unsigned flags, void *input);

/* For a tool's table of options: what all of them have. */
#define CLI_OPTION_DIR(group)                                                                                \
	{                                                                                                    \
		CLI_OPTION(DIR), "DIR", 0,                                                                   \
			"Directory of the segments (default: GPUARB_DIR, else /dev/shm/gpuarb)", group       \
	}

/* For all that a tool's own parser leaves: --dir, a --gpu, and arguments with which there is nothing to do.
 */
int cli_option(int key, char *text, struct argp_state *state, const char **dir, const char **gpu);

/* For those who only look: a directory that was named with --dir has to be there. */
void cli_dir_exists(const char *dir);

/* "program: sentence" on stderr, then exit(1). */
__attribute__((noreturn, format(printf, 1, 2))) void die(const char *format, ...);
/* "program: sentence" on stderr for a mistake in what was typed, then exit(2). */
__attribute__((noreturn, format(printf, 1, 2))) void die_usage(const char *format, ...);

/* The directory of this program, without a slash at its end. */
void cli_own_directory(char *path, size_t size);

/* The library to be preloaded: beside this program, as in a build directory, or where `make install` puts it.
 * Without one, ends with a sentence and the hint. */
const char *cli_library(const char *hint);
/* The path of that library, or NULL if there is none. */
const char *cli_library_find(void);
/* Where it is inside a container, whatever it is called outside. */
#define CLI_LIBRARY_INSIDE "/usr/lib/gpuarb/libgpuarb-preload.so"

/* The name of an account; the sentence says what is wrong with it if it cannot be one. */
const char *cli_account(const char *option, const char *text);

/* A number with its range; the sentence names the option if it is none. */
long cli_number(const char *option, const char *text, long least, long most);

/* Text out of shared memory, made safe for a terminal: control characters become '?'. Returns `to`. */
char *cli_safe(const char *from, char *to, size_t size);

/* 4 GiB, 300 MiB, 17 B. Returns `to`. */
char *cli_bytes(unsigned long long bytes, char *to, size_t size);

#endif
