/* gpuarb-node --check: prints what programs need here, one line each, and the command that helps where something is
 * missing. */
#include <ctype.h>
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <limits.h>
#include <pwd.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "gpuarb/config.h"
#include "gpuarb/control.h"
#include "gpuarb/places.h"
#include "gpuarb/rights.h"

#include "tools/common/cli.h"
#include "tools/common/cli_gpu.h"
#include "tools/node.h"

/* OK: it is there; NOTE: programs run without it; MISSING: they do not. */
enum verdict { OK, NOTE, MISSING };

static int missing;
/* The command that helps in most cases, for this directory. */
static char set_up[PATH_MAX + 32];

/* Prints a line. `mend` is the command that helps, or NULL if there is none. */
__attribute__((format(printf, 4, 5))) static void say(
	enum verdict verdict, const char *what, const char *mend, const char *format, ...)
{
	static const char *const words[] = {"ok", "note", "missing"};
	va_list ap;

	missing += verdict == MISSING;
	printf("%-8s %-10s ", words[verdict], what);
	va_start(ap, format);
	vprintf(format, ap);
	va_end(ap);
	printf("\n");
	if (mend && verdict != OK)
		printf("%-8s %-10s   %s\n", "", "", mend);
}

static void check_library(void)
{
	const char *path = cli_library_find();
	struct stat st;
	char *whole = path ? realpath(path, NULL) : NULL;

	if (!path)
		say(MISSING, "library", "sudo make install",
			"there is no libgpuarb-preload.so beside this program");
	else if (stat(path, &st) == 0 && !(st.st_mode & 0004))
		say(MISSING, "library", "make install with a umask of 022", "others may not read %s",
			whole ? whole : path);
	else
		say(OK, "library", NULL, "%s", whole ? whole : path);
	free(whole);
}

static void check_driver(const struct nvml_gpu *gpus, int ngpus, const char *why_none)
{
	void *cuda = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);

	if (!cuda)
		say(MISSING, "driver", "install NVIDIA's driver; without a GPU: gpuarb-run --sim",
			"there is no libcuda.so.1");
	else
		say(OK, "driver", NULL, "libcuda.so.1 is found");
	if (!ngpus)
		say(MISSING, "GPUs",
			"nvidia-smi says what the driver thinks; without a GPU: gpuarb-run --sim", "%s",
			why_none ? why_none : "there is none");
	for (int i = 0; i < ngpus; i++)
		say(OK, "GPU", NULL, "%s%s%s%s%s", gpus[i].uuid, *gpus[i].index ? " (GPU " : "",
			gpus[i].index, *gpus[i].index ? "), " : "", gpus[i].name);
}

static bool in_session(gid_t group)
{
	gid_t groups[1024];
	int n = getgroups(sizeof(groups) / sizeof(groups[0]), groups);

	while (n-- > 0)
		if (groups[n] == group)
			return true;
	return getegid() == group;
}

static bool in_database(const struct passwd *user, gid_t group)
{
	gid_t groups[1024];
	int n = sizeof(groups) / sizeof(groups[0]);

	if (!user || getgrouplist(user->pw_name, user->pw_gid, groups, &n) < 0)
		return false;
	while (n-- > 0)
		if (groups[n] == group)
			return true;
	return false;
}

/* Checks the group of the directory, if that is set up for several users; otherwise the group that gpuarb-node would
 * take. A user who may join without a group needs none. */
static void check_group(const char *dir, const struct gpuarb_config *config, bool may_join)
{
	const struct passwd *user;
	const struct group *entry;
	char path[PATH_MAX], mend[PATH_MAX + 128], name[64];
	struct stat st;
	gid_t id = (gid_t)config->value[ARB_KEY_GROUP];

	snprintf(path, sizeof(path), "%s/state", dir);
	if (stat(path, &st) == 0 && st.st_uid == 0 && st.st_gid != 0 && (st.st_mode & 0020))
		id = st.st_gid;
	entry = id == (gid_t)-1 ? getgrnam(ARB_GROUP_NAME) : getgrgid(id);
	if (!entry && id == (gid_t)-1) {
		/* gpuarb-node makes the group for the machine's own directory alone. */
		snprintf(mend, sizeof(mend), "%s%s",
			strcmp(dir, ARB_DIR_DEFAULT) ? "sudo groupadd --system " ARB_GROUP_NAME ", then "
						     : "",
			set_up);
		say(may_join ? NOTE : MISSING, "group", mend, "there is no group " ARB_GROUP_NAME);
		return;
	}
	if (entry)
		id = entry->gr_gid;
	if (entry)
		snprintf(name, sizeof(name), "%s", entry->gr_name);
	else
		snprintf(name, sizeof(name), "number %lu", (unsigned long)id);
	if (geteuid() == 0) {
		if (entry && !entry->gr_mem[0]) {
			snprintf(mend, sizeof(mend), "adduser NAME %s", entry->gr_name);
			say(NOTE, "group", mend, "%s has no members yet: only root uses the GPUs", name);
		} else {
			say(OK, "group", NULL, "%s", name);
		}
		return;
	}
	user = getpwuid(geteuid());
	if (in_session(id)) {
		say(OK, "group", NULL, "you are in the group %s", name);
	} else if (in_database(user, id)) {
		snprintf(mend, sizeof(mend), "log in again, or for one shell: newgrp %s",
			entry ? entry->gr_name : "");
		say(MISSING, "group", mend, "you are in the group %s, but were not when you logged in", name);
	} else {
		snprintf(mend, sizeof(mend), "sudo adduser %s %s, then log in again",
			user ? user->pw_name : "$USER", entry ? entry->gr_name : name);
		say(may_join ? NOTE : MISSING, "group", mend, "you are not in the group %s%s", name,
			may_join ? ", but may join all the same" : "");
	}
}

static void check_directory(const char *dir, const struct gpuarb_config *config)
{
	char path[PATH_MAX], needed[32], left[32];
	unsigned long long room, bytes;
	struct statvfs fs;
	struct stat st;

	snprintf(path, sizeof(path), "%s/state", dir);
	if (stat(path, &st) != 0) {
		say(MISSING, "directory", set_up, "%s: %s", path, strerror(errno));
		return;
	}
	bytes = gpuarb_control_bytes((unsigned)config->value[ARB_KEY_SLOTS]);
	if (st.st_uid != 0)
		say(st.st_uid == geteuid() ? NOTE : MISSING, "directory", set_up,
			"%s belongs to user %lu: the segments go when that user logs out", path,
			(unsigned long)st.st_uid);
	else if (!(st.st_mode & 0022))
		say(MISSING, "directory", set_up, "%s is root's alone (mode %o)", path, st.st_mode & 07777);
	else
		say(OK, "directory", NULL, "%s", dir);
	if (statvfs(path, &fs) != 0)
		return;
	room = (unsigned long long)fs.f_bavail * fs.f_frsize;
	if (room < bytes)
		say(NOTE, "room", "make room there, or have fewer slots (slots = in arbiter.conf)",
			"%s are free in %s; the segments of one more GPU take %s",
			cli_bytes(room, left, sizeof(left)), dir, cli_bytes(bytes, needed, sizeof(needed)));
}

/* Returns whether the user may join. */
static bool check_segment(const char *dir, const char *gpu)
{
	struct gpuarb_error err = {0};
	char name[CLI_GPU_TEXT];
	unsigned slots;
	int r = gpuarb_control_try_state(dir, gpu, &slots, &err);

	cli_gpu_text(gpu, name);
	if (r == -ENOENT) {
		say(MISSING, "segment", set_up, "%s has none yet", name);
		return false;
	}
	if (r < 0) {
		say(MISSING, "segment",
			r == -EPROTO ? "sudo gpuarb-node --replace, when its clients have ended" : NULL, "%s",
			err.text);
		return false;
	}
	r = gpuarb_control_try_settings(dir, gpu, &err);
	if (r == 0)
		say(OK, "segment", NULL, "%s: you may join, %u slots", name, slots);
	else
		say(MISSING, "segment", r == -ENOENT ? set_up : NULL, "%s", err.text);
	return true;
}

/* Looks at the segments of the GPUs that the driver knows; if it knows none, at all segments. Returns whether the
 * user may join all of them. */
static bool check_segments(const char *dir, const struct nvml_gpu *gpus, int ngpus)
{
	static char names[CLI_GPUS_MOST][ARB_UUID_BYTES];
	int n = 0, joined = 0;

	for (int i = 0; i < ngpus; i++)
		joined += check_segment(dir, gpus[i].uuid);
	if (!ngpus)
		n = gpuarb_control_list(dir, names, CLI_GPUS_MOST, NULL);
	for (int i = 0; i < n && i < CLI_GPUS_MOST; i++)
		joined += check_segment(dir, names[i]);
	return joined > 0 && joined == (ngpus ? ngpus : n);
}

/* Whether a program of this name runs. */
static bool is_running(const char *name)
{
	char path[PATH_MAX], comm[32];
	struct dirent *entry;
	DIR *proc = opendir("/proc");
	bool found = false;
	ssize_t n;
	int fd;

	while (proc && !found && (entry = readdir(proc))) {
		if (!isdigit((unsigned char)entry->d_name[0]))
			continue;
		snprintf(path, sizeof(path), "/proc/%s/comm", entry->d_name);
		fd = open(path, O_RDONLY | O_CLOEXEC);
		n = fd < 0 ? 0 : read(fd, comm, sizeof(comm) - 1);
		if (fd >= 0)
			close(fd);
		comm[n > 0 ? n : 0] = '\0';
		comm[strcspn(comm, "\n")] = '\0';
		found = strcmp(comm, name) == 0;
	}
	if (proc)
		closedir(proc);
	return found;
}

static void check_services(void)
{
	bool systemd = access("/run/systemd/system", F_OK) == 0;

	/* The kernel keeps 15 characters of a name: this name has exactly 15. */
	if (is_running("gpuarb-watchdog"))
		say(OK, "watchdog", NULL, "it runs");
	else
		say(NOTE, "watchdog",
			systemd ? "sudo systemctl enable --now gpuarb-watchdog"
				: "gpuarb-watchdog, in the background",
			"it does not run: behind a client that dies alone, the next client cleans up");
	if (!systemd)
		return;
	if (access("/etc/systemd/system/multi-user.target.wants/gpuarb-node.service", F_OK) == 0)
		say(OK, "at start", NULL, "gpuarb-node.service makes the segments");
	else
		say(NOTE, "at start", "sudo systemctl enable gpuarb-node",
			"nobody makes the segments when the machine has started");
}

static bool in_path(const char *program)
{
	const char *rest = getenv("PATH");
	char path[PATH_MAX];

	while (rest && *rest) {
		size_t n = strcspn(rest, ":");

		snprintf(path, sizeof(path), "%.*s/%s", (int)n, rest, program);
		if (access(path, X_OK) == 0)
			return true;
		rest += n + (rest[n] == ':');
	}
	snprintf(path, sizeof(path), "/usr/sbin/%s", program);
	return access(path, X_OK) == 0;
}

static void check_containers(void)
{
	static const char *const engines[] = {
		"podman", "docker", "containerd", "crio", "singularity", "apptainer"};
	bool described =
		access("/etc/cdi/gpuarb.json", R_OK) == 0 || access("/run/cdi/gpuarb.json", R_OK) == 0;
	char found[128] = "";

	for (size_t i = 0; i < sizeof(engines) / sizeof(engines[0]); i++)
		if (in_path(engines[i]))
			snprintf(found + strlen(found), sizeof(found) - strlen(found), "%s%s",
				*found ? ", " : "", engines[i]);
	if (!*found)
		say(OK, "containers", NULL, "there is no engine here");
	else if (described)
		say(OK, "containers", NULL, "%s; --device gpuarb.dev/gpu=0-30 works by CDI", found);
	else
		say(NOTE, "containers", "sudo gpuarb-cdi --output /etc/cdi/gpuarb.json",
			"%s; there is no CDI spec of gpuarb, so --device gpuarb.dev/gpu=0-30 is not known",
			found);
}

int node_check(const char *dir, const struct nvml_gpu *gpus, int ngpus, const char *why_none)
{
	struct gpuarb_config config;
	struct gpuarb_error err = {0};

	snprintf(set_up, sizeof(set_up), "sudo gpuarb-node%s%s",
		strcmp(dir, ARB_DIR_DEFAULT) ? " --dir " : "", strcmp(dir, ARB_DIR_DEFAULT) ? dir : "");
	if (gpuarb_config_load(&config, NULL, false, &err) < 0)
		say(MISSING, "settings", NULL, "%s", err.text);
	check_library();
	check_driver(gpus, ngpus, why_none);
	check_directory(dir, &config);
	check_group(dir, &config, check_segments(dir, gpus, ngpus));
	check_services();
	check_containers();
	gpuarb_config_free(&config);
	if (missing)
		printf("\n%d missing: programs cannot share the GPUs of this machine through gpuarb yet, or you may not.\n",
			missing);
	else
		printf("\nEverything is there: gpuarb-run --core 30 -- PROGRAM\n");
	return missing ? 1 : 0;
}
