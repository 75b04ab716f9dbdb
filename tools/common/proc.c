#include "tools/common/proc.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static size_t read_file(unsigned pid, const char *name, char *text, size_t size)
{
	char path[64];
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), "/proc/%u/%s", pid, name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	n = fd < 0 ? 0 : read(fd, text, size - 1);
	if (fd >= 0)
		close(fd);
	text[n > 0 ? n : 0] = '\0';
	return n > 0 ? (size_t)n : 0;
}

/* "NSpid: 4711 1": the last number is the innermost one; a kernel without namespaces has no such line. */
static void read_pids(unsigned pid, struct proc *to)
{
	char status[4096], *at, *end;
	unsigned depth = 0;

	to->inner_pid = pid;
	read_file(pid, "status", status, sizeof(status));
	at = strstr(status, "\nNSpid:");
	for (at = at ? at + strlen("\nNSpid:") : NULL; at && *at != '\n'; at = end) {
		unsigned long number = strtoul(at, &end, 10);

		if (end == at)
			break;
		to->inner_pid = (unsigned)number;
		depth++;
		while (*end == ' ' || *end == '\t')
			end++;
	}
	to->nested = depth > 1;
}

/* Reads field 22 of the stat file. The command, field 2, may contain blanks and parentheses. */
bool proc_read(unsigned pid, struct proc *to)
{
	char stat[1024];
	const char *at;

	if (!read_file(pid, "stat", stat, sizeof(stat)))
		return false;
	at = strrchr(stat, ')');
	for (int field = 2; at && field < 22; field++)
		at = strchr(at + 1, ' ');
	to->start_time = at ? strtoull(at, NULL, 10) : 0;
	read_pids(pid, to);
	return at != NULL;
}

char *proc_command(unsigned pid, char *to, size_t size)
{
	read_file(pid, "comm", to, size);
	to[strcspn(to, "\n")] = '\0';
	return to;
}
