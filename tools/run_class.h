/* gpuarb-run --class: the program starts with a lease on the GPU, or what --or says happens. */
#ifndef TOOLS_RUN_CLASS_H
#define TOOLS_RUN_CLASS_H

#include <argp.h>

#include "tools/run.h"

/* The options of --class, for the parser of gpuarb-run. */
extern const struct argp run_class_options;

/* Exit statuses of a program that was not started because it did not get its lease. */
enum run_class_exit {
	RUN_NOT_ADMITTED = 80, /* its class does not wait; or --or skip, whatever the reason */
	RUN_USAGE_HIGH = 81,   /* waited; the GPU is under pressure */
	RUN_QUEUE = 82,        /* waited; others go first, or too many wait */
	RUN_MEMORY = 83,       /* waited; its memory does not fit */
	RUN_QUOTA = 84,        /* waited; its account has used up its share */
};

/* Waits for the lease, right before the program starts; the program and all its children inherit it. Returns if no
 * lease is asked for, or if it was given. */
void run_class(const struct run_options *o);

#endif
