/* What /proc says of a process of this PID namespace. */
#ifndef TOOLS_PROC_H
#define TOOLS_PROC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct proc {
	unsigned inner_pid;  /* in its innermost namespace: what it knows itself by */
	uint64_t start_time; /* clock ticks since boot */
	bool nested;         /* that namespace is not ours */
};

/* False: there is no such process, or it is hidden from us. */
bool proc_read(unsigned pid, struct proc *to);
/* Its name, as the kernel has it; empty: not known. Returns `to`. */
char *proc_command(unsigned pid, char *to, size_t size);

#endif
