#include "top_names.h"

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define AGAIN_NS 10000000000ull

static size_t read_file(const char *pid, const char *name, char *text, size_t size)
{
	char path[64];
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), "/proc/%.20s/%s", pid, name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	n = fd < 0 ? 0 : read(fd, text, size - 1);
	if (fd >= 0)
		close(fd);
	text[n > 0 ? n : 0] = '\0';
	return n > 0 ? (size_t)n : 0;
}

/* The pid that a process has in its innermost namespace; 0: it is in ours. */
static unsigned inner_pid(const char *pid)
{
	char status[4096];
	const char *line, *last;

	read_file(pid, "status", status, sizeof(status));
	line = strstr(status, "\nNSpid:");
	if (!line)
		return 0;
	line += 7;
	last = strpbrk(line, "\n");
	while (last && last > line && !isspace((unsigned char)last[-1]))
		last--;
	/* "NSpid: 4711 1": more than one number. */
	return last && strspn(line, " \t0123456789") && strtoul(line, NULL, 10) != strtoul(last, NULL, 10)
		       ? (unsigned)strtoul(last, NULL, 10)
		       : 0;
}

/* Field 22 of its stat file; the command, field 2, may hold blanks and parentheses. */
static uint64_t start_time(const char *pid)
{
	char stat[1024];
	const char *at;

	read_file(pid, "stat", stat, sizeof(stat));
	at = strrchr(stat, ')');
	for (int field = 2; at && field < 22; field++)
		at = strchr(at + 1, ' ');
	return at ? strtoull(at, NULL, 10) : 0;
}

static void match(struct top_gpu *g, const char *pid)
{
	unsigned inner = inner_pid(pid);
	uint64_t start = 0;

	for (unsigned i = 0; inner && i < g->picture->nclients; i++) {
		const struct gpuarb_view_client *c = &g->picture->clients[i];

		if (c->pid != inner || g->slot[c->slot].host_pid)
			continue;
		start = start ? start : start_time(pid);
		if (start && start == c->start_time)
			g->slot[c->slot].host_pid = (unsigned)strtoul(pid, NULL, 10);
	}
}

void top_names_pids(struct top_gpu *g)
{
	struct dirent *entry;
	struct stat own;
	bool foreign = false;
	DIR *proc;

	if (stat("/proc/self/ns/pid", &own) != 0)
		return;
	for (unsigned i = 0; i < g->picture->nclients; i++) {
		const struct gpuarb_view_client *c = &g->picture->clients[i];

		if (c->pid_ns == own.st_ino)
			g->slot[c->slot].host_pid = c->pid;
		else if (!g->slot[c->slot].host_pid && g->picture->now_ns >= g->slot[c->slot].pid_again_ns) {
			g->slot[c->slot].pid_again_ns = g->picture->now_ns + AGAIN_NS;
			foreign = true;
		}
	}
	proc = foreign ? opendir("/proc") : NULL;
	if (!proc)
		return;
	while ((entry = readdir(proc)) != NULL)
		if (isdigit((unsigned char)entry->d_name[0]))
			match(g, entry->d_name);
	closedir(proc);
}
