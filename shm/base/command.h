/* The name that people see for a process. */
#ifndef ARB_COMMAND_H
#define ARB_COMMAND_H

#include <stddef.h>

/*
 * Gives "python train.py" for a command line, whose words end in NULs as in /proc/self/cmdline: the program's name
 * and, if it is an interpreter, the name of what it runs. Nothing else is given, because arguments may be secrets and
 * all users who may look at the GPU read this. No control characters; empty if the command line is.
 */
void arb_command_name(const char *text, size_t length, char *to, size_t size);

#endif
