/* What the files of gpuarb-run share. gpuarb-run.c reads the options and becomes the program. Each thing that is
 * checked or arranged before that has a file of its own. */
#ifndef TOOLS_RUN_H
#define TOOLS_RUN_H

#include <stdbool.h>
#include <stddef.h>

struct run_options {
	const char *core, *mem, *priority, *request, *weight, *policy, *account, *gpu, *dir, *record;
	double wait_s; /* how long to wait for a promise of memory; < 0: not at all */
	bool sim, dry_run, container_flags, verbose;
	char **program; /* NULL: none was given */
};

/* Sets a variable of the program, or prints it where nothing is to be run. */
void run_set(const struct run_options *o, const char *name, const char *value);

/* Adds to what is printed once everything has turned out to be right. */
__attribute__((format(printf, 1, 2))) void run_print(const char *format, ...);
/* Characters that a shell interprets when it puts printed flags on a command line. */
#define RUN_SPECIAL " \t\n*?[\\'\"$`"

/* run_check.c: reports now what would go wrong later. All but the last end the program with a sentence. */
/* Checks that there is such a GPU. Returns its UUID if the driver can be asked, otherwise the name as it was given;
 * "auto" is chosen later. */
const char *run_check_gpu(const struct run_options *o);
/* Checks the policy: a GPU whose settings were made already has one. */
void run_check_policy(const struct run_options *o);
/* Compares with programs of this account that run already and may have asked for other limits: says which limits
 * count. */
void run_check_account(const struct run_options *o, const char *account);

/* run_directory.c: checks a directory of segments that may be full, read-only or forbidden. With on_error = closed it
 * ends the program with a sentence. */
void run_check_directory(const struct run_options *o);
/* Handles such an error that occurs later. With on_error = open prints it and `then`. Returns false if it is another
 * error. */
struct gpuarb_error;
bool run_without_segment(const struct gpuarb_error *err, const char *then);

/* run_record.c: handles --record. An earlier trace of this name is removed; any other file ends the program with a
 * sentence. */
void run_record(const struct run_options *o);

/* run_container.c: prints the mounts, as flags of docker and podman. */
void run_container(const struct run_options *o, const char *library);

#endif
