#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "gpuarb/abi.h"
#include "gpuarb/places.h"
#include "gpuarb/rights.h"

#include "shm/base/groups.h"

/*
 * Finds the nearest part of a path that can be looked at: below a closed directory nothing can. *shared: this part is
 * there for several users. Then it belongs to root, or to a member of the group in a directory that root has set up
 * for the group.
 */
static bool look(const char *wanted, struct stat *st, bool *shared)
{
	char path[PATH_MAX], *slash;
	struct stat above;

	snprintf(path, sizeof(path), "%s", wanted);
	/* Three levels at most, for DIR/state/GPU: what is above DIR is not ours. */
	for (int levels = 3; levels && (slash = strrchr(path, '/')) && slash != path; levels--) {
		bool seen = stat(path, st) == 0;

		*slash = '\0';
		if (!seen)
			continue;
		*shared = st->st_uid == 0 ||
			  (stat(path, &above) == 0 && above.st_uid == 0 && (above.st_mode & S_ISGID));
		return true;
	}
	return false;
}

bool arb_rights_is_member(gid_t group)
{
	gid_t groups[256];
	int n = getgroups((int)(sizeof(groups) / sizeof(groups[0])), groups);

	for (int i = 0; i < n; i++)
		if (groups[i] == group)
			return true;
	/* More groups than fit here: a user that may be a member already is not told to become one. */
	return getegid() == group || n < 0;
}

/* "name:x:number:members" */
static bool group_name(gid_t group, char *name, size_t size)
{
	FILE *file = fopen("/etc/group", "re");
	char line[4096], *number, *end;
	bool found = false;

	while (file && !found && fgets(line, sizeof(line), file)) {
		number = strchr(line, ':');
		number = number ? strchr(number + 1, ':') : NULL;
		found = number && strtoul(number + 1, &end, 10) == group && *end == ':' && end > number + 1;
		if (found)
			snprintf(name, size, "%.*s", (int)strcspn(line, ":"), line);
	}
	if (file)
		fclose(file);
	return found;
}

int64_t arb_rights_group(const char *name)
{
	FILE *file = fopen("/etc/group", "re");
	int64_t group = -1;
	char line[4096];

	while (file && group < 0 && fgets(line, sizeof(line), file)) {
		size_t n = strcspn(line, ":");
		const char *id = line[n] ? strchr(line + n + 1, ':') : NULL;

		if (n == strlen(name) && strncmp(line, name, n) == 0 && id && id[1] >= '0' && id[1] <= '9')
			group = (int64_t)strtoul(id + 1, NULL, 10);
	}
	if (file)
		fclose(file);
	return group;
}

#define DIR_MOST 100 /* a longer one would cut the sentence short */

/* Writes the option that names the directory of a segment, DIR/state/GPU or DIR/state; nothing for the machine's own. */
static void dir_option(const char *path, char *option, size_t size)
{
	const char *end = strstr(path, "/state");

	if (!end)
		end = strstr(path, "/control");
	option[0] = '\0';
	if (end && strncmp(path, ARB_DIR_DEFAULT "/", sizeof(ARB_DIR_DEFAULT)) != 0)
		snprintf(option, size, " --dir %.*s", end - path > DIR_MOST ? 3 : (int)(end - path),
			end - path > DIR_MOST ? "DIR" : path);
}

const char *gpuarb_rights_hint(const char *path, int code, char *text, size_t size)
{
	int saved = errno;
	char name[ARB_NAME_BYTES], option[128];
	struct stat st;
	bool shared;

	text[0] = '\0';
	if ((code != -EACCES && code != -EPERM) || geteuid() == 0 || !look(path, &st, &shared))
		goto out;
	if (shared && st.st_gid != 0 && (st.st_mode & 0060) == 0060 && !arb_rights_is_member(st.st_gid)) {
		if (group_name(st.st_gid, name, sizeof(name)))
			snprintf(text, size,
				"; members of the group %s may: 'sudo adduser $USER %s', then log in again",
				name, name);
		else
			snprintf(text, size,
				"; members of group number %lu may (a container: --group-add %lu)",
				(unsigned long)st.st_gid, (unsigned long)st.st_gid);
	} else if (st.st_uid != geteuid()) {
		dir_option(path, option, sizeof(option));
		/* For a directory that is not the machine's own, gpuarb-node makes no group. */
		snprintf(text, size,
			"; it is not shared yet: %s'sudo gpuarb-node%s' gives it to the group " ARB_GROUP_NAME
			", then 'sudo adduser $USER " ARB_GROUP_NAME "', and log in again",
			*option && arb_rights_group(ARB_GROUP_NAME) < 0
				? "'sudo groupadd --system " ARB_GROUP_NAME "' makes a group, "
				: "",
			option);
	}
out:
	errno = saved;
	return text;
}
