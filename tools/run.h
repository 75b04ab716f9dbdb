/*
 * gpuarb-run: what its files share. gpuarb-run.c reads the options and becomes the program; each thing that
 * is looked at, or arranged, before that has a file of its own.
 */
#ifndef TOOLS_RUN_H
#define TOOLS_RUN_H

#include <stdbool.h>
#include <stddef.h>

struct run_options {
	const char *core, *mem, *priority, *request, *weight, *policy, *account, *gpu, *dir, *record;
	double wait_s; /* for memory; < 0: do not */
	bool sim, dry_run, container_flags, verbose;
	char **program; /* NULL: none was given */
};

/* A variable of the program's: set, or printed where nothing is to be run. */
void run_set(const struct run_options *o, const char *name, const char *value);

/* Printed when everything has turned out to be right. */
__attribute__((format(printf, 1, 2))) void run_print(const char *format, ...);
/* What a shell, which puts printed flags on a command line, takes for its own. */
#define RUN_SPECIAL " \t\n*?[\\'\"$`"

/* run_check.c: what would go wrong later, said now. All but one end the program with a sentence. */
/* There is such a GPU. Its UUID where the driver can be asked, else as it was given; "auto" is yet to be
 * chosen. */
const char *run_check_gpu(const struct run_options *o);
/* A GPU whose settings were made already has its policy. */
void run_check_policy(const struct run_options *o);
/* Programs of this account that run already may have asked for other limits: says which count. */
void run_check_account(const struct run_options *o, const char *account);

/* run_directory.c: a directory of segments that is full, read-only or forbidden. on_error = closed: nothing is
 * started, with a sentence. */
void run_check_directory(const struct run_options *o);
/* Later, where one of them came up: under on_error = open says that, and `then`. False: it is another error. */
struct gpuarb_error;
bool run_without_segment(const struct gpuarb_error *err, const char *then);

/* run_record.c: --record. An earlier trace of this name is removed; anything else ends the program with a sentence. */
void run_record(const struct run_options *o);

/* run_container.c: the mounts, as flags of docker and podman. */
void run_container(const struct run_options *o, const char *library);

#endif
