/* What /proc says of a process of this PID namespace. */
#ifndef TOOLS_PROC_H
#define TOOLS_PROC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct proc {
	unsigned inner_pid;  /* its pid in its innermost namespace */
	uint64_t start_time; /* clock ticks since boot */
	bool nested;         /* that namespace is not ours */
};

/* Returns false if there is no such process, or if it is hidden from us. */
bool proc_read(unsigned pid, struct proc *to);
/* Gives the process's name, as the kernel has it; empty if it is not known. Returns `to`. */
char *proc_command(unsigned pid, char *to, size_t size);

#endif
