/* What the tools have in common. Only here may a tool end itself. Exit: 0 done, 1 failed, 2 usage. */
#ifndef TOOLS_CLI_H
#define TOOLS_CLI_H

#include <stddef.h>

#ifndef GPUARB_VERSION
#define GPUARB_VERSION "0.1"
#endif

struct argp;

/* argp_parse with --version, and 2 for mistakes in usage. */
void cli_parse(const struct argp *parser, int argc, char **argv, unsigned flags, void *input);

/* "program: sentence" on stderr, then exit(1). */
__attribute__((noreturn, format(printf, 1, 2))) void die(const char *format, ...);

/* A number with its range; the sentence names the option if it is none. */
long cli_number(const char *option, const char *text, long least, long most);

/* Text out of shared memory, made safe for a terminal: control characters become '?'. Returns `to`. */
char *cli_safe(const char *from, char *to, size_t size);

/* 4 GiB, 300 MiB, 17 B. Returns `to`. */
char *cli_bytes(unsigned long long bytes, char *to, size_t size);

#endif
