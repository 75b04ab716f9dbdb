#include "tools/common/holders.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "tools/common/proc.h"

/* "1: OFDLCK  ADVISORY  WRITE -1 00:1a:4711 0 0", in /proc/locks and behind "lock:" in an fdinfo. */
static bool parse(const char *line, const struct stat *file, uint64_t *first, uint64_t *last)
{
	unsigned major, minor;
	uint64_t inode;
	char end[32];

	if (sscanf(line, " %*u: %*s %*s %*s %*d %x:%x:%" SCNu64 " %" SCNu64 " %31s", &major, &minor, &inode,
		    first, end) != 5 ||
		inode != file->st_ino || makedev(major, minor) != file->st_dev)
		return false;
	*last = strcmp(end, "EOF") ? strtoull(end, NULL, 10) : UINT64_MAX;
	return true;
}

/* Clients hold a byte each, for as long as they live; the others are held for moments, or by gpuarb-run and the sampler. */
static bool is_foreign(uint64_t first, uint64_t last, unsigned nslots, const bool *taken)
{
	if (first != last)
		return true;
	if (first < nslots)
		return !taken[first];
	return first <= ARB_BYTE_PROMISES(nslots);
}

void holders_read(const char *path, unsigned nslots, const bool *taken, struct holders *to)
{
	FILE *locks = fopen("/proc/locks", "re");
	struct stat file;
	char line[256];

	memset(to, 0, sizeof(*to));
	while (locks && stat(path, &file) == 0 && to->n < HOLDERS_MOST && fgets(line, sizeof(line), locks)) {
		struct holder *h = &to->list[to->n];

		if (parse(line, &file, &h->first, &h->last) && is_foreign(h->first, h->last, nslots, taken))
			to->n++;
	}
	if (locks)
		fclose(locks);
}

static void name(struct holder *h, unsigned pid)
{
	char path[64];
	struct stat st;

	snprintf(path, sizeof(path), "/proc/%u", pid);
	h->known = true;
	h->pid = pid;
	h->uid = stat(path, &st) == 0 ? st.st_uid : 0;
	proc_command(pid, h->command, sizeof(h->command));
}

/* The locks of one descriptor of a process that leads to the file. */
static void look_at(unsigned pid, const char *fd, const struct stat *file, struct holders *to)
{
	char path[PATH_MAX], line[256];
	uint64_t first, last;
	FILE *info;

	snprintf(path, sizeof(path), "/proc/%u/fdinfo/%s", pid, fd);
	info = fopen(path, "re");
	while (info && fgets(line, sizeof(line), info))
		if (!strncmp(line, "lock:", 5) && parse(line + 5, file, &first, &last))
			for (unsigned i = 0; i < to->n; i++)
				if (to->list[i].first == first && to->list[i].last == last)
					name(&to->list[i], pid);
	if (info)
		fclose(info);
}

static void look_at_process(unsigned pid, const struct stat *file, struct holders *to)
{
	char path[PATH_MAX];
	struct dirent *entry;
	struct stat st;
	DIR *fds;

	snprintf(path, sizeof(path), "/proc/%u/fd", pid);
	fds = opendir(path);
	if (!fds) {
		to->hidden |= errno == EACCES || errno == EPERM;
		return;
	}
	while ((entry = readdir(fds))) {
		snprintf(path, sizeof(path), "/proc/%u/fd/%.16s", pid, entry->d_name);
		if (isdigit((unsigned char)entry->d_name[0]) && stat(path, &st) == 0 &&
			st.st_ino == file->st_ino && st.st_dev == file->st_dev)
			look_at(pid, entry->d_name, file, to);
	}
	closedir(fds);
}

void holders_name(const char *path, const struct holders *before, struct holders *now)
{
	struct dirent *entry;
	unsigned n = 0;
	struct stat file;
	DIR *proc;

	for (unsigned i = 0; i < now->n; i++)
		for (unsigned k = 0; k < before->n; k++)
			if (now->list[i].first == before->list[k].first &&
				now->list[i].last == before->list[k].last) {
				now->list[n++] = now->list[i];
				break;
			}
	now->n = n;
	proc = n && stat(path, &file) == 0 ? opendir("/proc") : NULL;
	while (proc && (entry = readdir(proc)))
		if (isdigit((unsigned char)entry->d_name[0]))
			look_at_process((unsigned)atoi(entry->d_name), &file, now);
	if (proc)
		closedir(proc);
}
