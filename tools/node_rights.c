#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <limits.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gpuarb/abi.h"
#include "gpuarb/config.h"
#include "gpuarb/control.h"
#include "gpuarb/places.h"
#include "gpuarb/rights.h"

#include "tools/common/cli.h"
#include "tools/node.h"

#define NOBODYS ((gid_t)-1)

/* Runs a command without its output; if the program is missing, the caller tries another. */
static bool run(char *const *words)
{
	int status = 1, null;
	pid_t pid;

	fflush(NULL);
	pid = fork();
	if (pid == 0) {
		null = open("/dev/null", O_RDWR);
		dup2(null, STDOUT_FILENO);
		dup2(null, STDERR_FILENO);
		/* Under sudo or cron PATH may lack both directories. */
		setenv("PATH", "/usr/sbin:/sbin:/usr/bin:/bin", 1);
		execvp(words[0], words);
		_exit(127);
	}
	while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	return pid > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

/* Makes the group with the tool of the distribution: shadow's groupadd, Debian's addgroup, or busybox. */
static bool make_group(void)
{
	static char *const ways[][4] = {
		{"groupadd", "--system", ARB_GROUP_NAME, NULL},
		{"addgroup", "--system", ARB_GROUP_NAME, NULL},
		{"addgroup", "-S", ARB_GROUP_NAME, NULL},
	};

	for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++)
		if (run(ways[i]) && getgrnam(ARB_GROUP_NAME))
			return true;
	return false;
}

static struct node_group named(gid_t id)
{
	struct node_group group = {id, ""};
	const struct group *entry = getgrgid(id);

	if (entry)
		snprintf(group.name, sizeof(group.name), "%s", entry->gr_name);
	else
		snprintf(group.name, sizeof(group.name), "%lu", (unsigned long)id);
	return group;
}

/* Returns the group that an administrator has given a directory of segments to, or NOBODYS. */
static struct node_group given_to(const char *dir)
{
	char path[PATH_MAX];
	struct stat st;

	snprintf(path, sizeof(path), "%s/state", dir);
	if (lstat(path, &st) != 0 || !S_ISDIR(st.st_mode) || st.st_uid != 0 || st.st_gid == 0 ||
		!(st.st_mode & S_ISGID))
		return (struct node_group){NOBODYS, ""};
	return named(st.st_gid);
}

struct node_group node_group_find(const char *dir, const struct gpuarb_config *config)
{
	struct node_group group = {(gid_t)config->value[ARB_KEY_GROUP], ""};
	const struct group *entry;

	if (geteuid() != 0)
		return (struct node_group){NOBODYS, ""};
	if (group.id == NOBODYS) {
		entry = getgrnam(ARB_GROUP_NAME);
		if (!entry && strcmp(dir, ARB_DIR_DEFAULT) != 0)
			return given_to(dir);
		if (!entry && !make_group())
			die("there is no group " ARB_GROUP_NAME
			    ", and neither groupadd nor addgroup can make it; make it, or name another in "
			    "arbiter.conf (group = NAME)");
		if (!entry) {
			entry = getgrnam(ARB_GROUP_NAME);
			printf("group " ARB_GROUP_NAME
			       ": made; its members may use the GPUs through gpuarb\n");
		}
		group.id = entry->gr_gid;
	}
	return named(group.id);
}

static bool is_all(const struct stat *st, gid_t gid, mode_t mode)
{
	return st->st_uid == 0 && st->st_gid == gid && (st->st_mode & 07777) == mode;
}

/* Sets owner, group and mode of a file, unless `fine` says that an administrator has chosen them (NULL: whenever they
 * differ). It works on a descriptor, so that a user cannot replace the file between the check and the change. */
static void own(const char *path, mode_t kind, gid_t gid, mode_t mode,
	bool (*fine)(const struct stat *, gid_t, mode_t))
{
	char by_descriptor[64];
	int fd = open(path, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	struct stat st;

	if (fd < 0 && errno == ENOENT)
		return;
	if (fd < 0 || fstat(fd, &st) != 0)
		die("cannot look at %s: %s", path, strerror(errno));
	if ((st.st_mode & S_IFMT) != kind || (kind == S_IFREG && st.st_nlink != 1))
		die("%s is %s; remove it", path,
			kind == S_IFDIR ? "no directory" : "no file, or has another name as well");
	snprintf(by_descriptor, sizeof(by_descriptor), "/proc/self/fd/%d", fd);
	/* The mode is set last, because a change of the owner clears bits. */
	if (!(fine ? fine(&st, gid, mode) : is_all(&st, gid, mode)) &&
		(fchownat(fd, "", 0, gid, AT_EMPTY_PATH) != 0 || chmod(by_descriptor, mode) != 0))
		die("cannot give %s to its group: %s", path, strerror(errno));
	close(fd);
}

static bool is_roots(const struct stat *st, gid_t gid, mode_t mode)
{
	(void)gid, (void)mode;
	return st->st_uid == 0;
}

/* The directory was set up already: new segments get its group, whichever that is. */
static bool is_set_up(const struct stat *st, gid_t gid, mode_t mode)
{
	(void)gid, (void)mode;
	return st->st_uid == 0 && (st->st_mode & S_ISGID);
}

/* Another user than root may use it. */
static bool is_shared(const struct stat *st, gid_t gid, mode_t mode)
{
	(void)gid, (void)mode;
	return st->st_uid == 0 && (st->st_gid != 0 || (st->st_mode & 0006));
}

/* All users who should join may do so. Root may have allowed more. */
static bool has_rights(const struct stat *st, gid_t gid, mode_t mode)
{
	return st->st_uid == 0 && st->st_gid == gid && !(mode & ~st->st_mode & 07777);
}

void node_rights_directories(const char *dir, struct node_group *group, const struct gpuarb_config *config)
{
	mode_t state = (mode_t)config->value[ARB_KEY_SEGMENT_MODE];
	struct gpuarb_error err = {0};
	char path[PATH_MAX];
	struct stat st;

	if (group->id == NOBODYS)
		return;
	if (gpuarb_control_directories(dir, config, &err) < 0)
		die("%s", err.text);
	own(dir, S_IFDIR, 0, 0755, is_roots);
	snprintf(path, sizeof(path), "%s/state", dir);
	/* The rights are those in tools/deploy/systemd/gpuarb.tmpfiles. */
	own(path, S_IFDIR, group->id, 03775 | (state & 0002), is_set_up);
	if (!config->given[ARB_KEY_GROUP] && stat(path, &st) == 0)
		*group = st.st_gid ? named(st.st_gid) : (struct node_group){NOBODYS, ""};
	snprintf(path, sizeof(path), "%s/control", dir);
	own(path, S_IFDIR, 0, 0755, is_roots);
}

void node_rights_segments(const char *dir, const char *gpu, const struct node_group *group,
	const struct gpuarb_config *config, bool replace)
{
	mode_t control = (mode_t)config->value[ARB_KEY_CONTROL_MODE];
	char path[PATH_MAX];
	struct stat st;

	if (group->id == NOBODYS)
		return;
	snprintf(path, sizeof(path), "%s/state/%s", dir, gpu);
	own(path, S_IFREG, group->id, (mode_t)config->value[ARB_KEY_SEGMENT_MODE],
		replace ? has_rights : is_shared);
	/* A user who may write the segment may also lock, whatever rights root has given it. */
	if (lstat(path, &st) == 0) {
		snprintf(path, sizeof(path), "%s/state/.%s.locks", dir, gpu);
		own(path, S_IFREG, st.st_gid, gpuarb_control_lock_mode(st.st_mode), NULL);
	}
	snprintf(path, sizeof(path), "%s/control/%s", dir, gpu);
	own(path, S_IFREG, control & 0020 ? group->id : 0, control, is_roots);
}

static bool is_in(const char *user, gid_t group)
{
	const struct passwd *entry = getpwnam(user);
	gid_t groups[1024];
	int n = sizeof(groups) / sizeof(groups[0]);

	if (!entry || getgrouplist(user, entry->pw_gid, groups, &n) < 0)
		return false;
	while (n-- > 0)
		if (groups[n] == group)
			return true;
	return false;
}

void node_say_next(const struct node_group *group)
{
	const char *user = getenv("SUDO_USER");
	const struct group *entry;

	if (group->id == NOBODYS || group->id == 0)
		return;
	if (user && *user && strcmp(user, "root") != 0) {
		if (!is_in(user, group->id))
			printf("Next: 'sudo adduser %s %s', then log in again: members of the group may use the GPUs "
			       "through gpuarb.\n",
				user, group->name);
		return;
	}
	entry = getgrgid(group->id);
	if (entry && !entry->gr_mem[0])
		printf("Next: 'adduser NAME %s' for everybody who may use the GPUs through gpuarb.\n",
			group->name);
}
