#include "tools/top/top_names.h"

#include <ctype.h>
#include <dirent.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "tools/common/proc.h"

#define AGAIN_NS 10000000000ull

static void match(struct top_gpu *g, unsigned pid)
{
	struct proc proc;

	if (!proc_read(pid, &proc) || !proc.nested || !proc.start_time)
		return;
	for (unsigned i = 0; i < g->picture->nclients; i++) {
		const struct gpuarb_view_client *c = &g->picture->clients[i];

		if (c->pid == proc.inner_pid && c->start_time == proc.start_time &&
			!g->slot[c->slot].host_pid)
			g->slot[c->slot].host_pid = pid;
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
			match(g, (unsigned)strtoul(entry->d_name, NULL, 10));
	closedir(proc);
}
