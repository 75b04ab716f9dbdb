/* Who this process is, by the kernel's files in /proc. */
#include "shm/base/os_proc.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "shm/base/command.h"

int arb_os_plain_open(const char *path, int flags)
{
	return (int)syscall(SYS_openat, AT_FDCWD, path, flags, 0);
}

ssize_t arb_os_proc_text(const char *path, char *text, size_t size)
{
	size_t used = 0;
	ssize_t n;
	int fd = arb_os_plain_open(path, O_RDONLY | O_CLOEXEC);

	text[0] = '\0';
	if (fd < 0)
		return -errno;
	while (used < size - 1 && (n = syscall(SYS_read, fd, text + used, size - 1 - used)) > 0)
		used += (size_t)n;
	arb_os_close(fd);
	text[used] = '\0';
	return (ssize_t)used;
}

uint64_t arb_os_proc_inode(const char *path)
{
	struct stat st;

	return stat(path, &st) == 0 ? st.st_ino : 0;
}

static bool is_hex(char c)
{
	return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
}

bool arb_os_container_id(const char *text, char *id, size_t size)
{
	/* Every engine puts its 64 hexadecimal digits somewhere into the path. */
	const char *p = text;

	while (*p) {
		size_t n = 0;

		while (is_hex(p[n]))
			n++;
		if (n == 64) {
			snprintf(id, size, "%.*s", (int)n, p);
			return true;
		}
		p += n ? n : 1;
	}
	return false;
}

bool arb_os_pod_id(const char *line, char *id, size_t size)
{
	/* The kubelet mounts these two into every container, out of the pod's own directory. */
	const char *at = strstr(line, " /etc/hosts ") || strstr(line, " /dev/termination-log ")
				 ? strstr(line, "/pods/")
				 : NULL;
	size_t n = at ? strspn(at + 6, "0123456789abcdef-") : 0;

	if (n < 32 || n >= size || at[6 + n] != '/')
		return false;
	snprintf(id, size, "%.*s", (int)n, at + 6);
	return true;
}

uint32_t arb_os_user(const char *map, uint32_t uid)
{
	unsigned inside, outside, count;
	int length;

	for (; sscanf(map, " %u %u %u%n", &inside, &outside, &count, &length) == 3; map += length)
		if (uid >= inside && uid - inside < count)
			return outside + (uid - inside);
	return uid;
}

static void from_mount(struct arb_os_identity *id, const char *line)
{
	if (!id->container[0] && strstr(line, " /etc/host"))
		arb_os_container_id(line, id->container, sizeof(id->container));
	if (!id->pod[0])
		arb_os_pod_id(line, id->pod, sizeof(id->pod));
}

void arb_os_mounts(int fd, char *text, size_t size, struct arb_os_identity *id)
{
	size_t used = 0;
	ssize_t n;

	while (!(id->pod[0] && id->container[0]) &&
		(n = syscall(SYS_read, fd, text + used, size - 1 - used)) > 0) {
		char *line = text, *end;

		text[used += (size_t)n] = '\0';
		for (; (end = strchr(line, '\n')); line = end + 1) {
			*end = '\0';
			from_mount(id, line);
		}
		/* This is the beginning of a line that does not fit into the buffer; none of the wanted lines is that
		 * long. */
		used -= (size_t)(line - text);
		memmove(text, line, used);
		if (used == size - 1)
			used = 0;
	}
}

/* Reads the start time in a process's stat file; 0: the file cannot be read. */
static uint64_t start_time(const char *path)
{
	char text[1024], *after;
	unsigned long long start = 0;

	/* The command in this file may hold anything, so count from its last parenthesis. */
	if (arb_os_proc_text(path, text, sizeof(text)) > 0 && (after = strrchr(text, ')')))
		sscanf(after + 1,
			" %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %llu",
			&start);
	return start;
}

bool arb_os_gone(uint32_t pid, uint64_t pid_ns, uint64_t start)
{
	int saved = errno;
	uint64_t found;
	char path[32];
	bool gone;

	/* The number of a process in another namespace says nothing here. */
	if (arb_os_hooks || !pid || pid > INT32_MAX || arb_os_proc_inode("/proc/self/ns/pid") != pid_ns)
		return false;
	snprintf(path, sizeof(path), "/proc/%u/stat", pid);
	gone = kill((pid_t)pid, 0) != 0 && errno == ESRCH;
	if (!gone && start) {
		found = start_time(path);
		gone = found && found != start;
	}
	errno = saved;
	return gone;
}

void arb_os_identify(struct arb_os_identity *id)
{
	int saved = errno;
	char text[16384];
	ssize_t length;
	int fd;

	memset(id, 0, sizeof(*id));
	if (arb_os_hooks && arb_os_hooks->identify) {
		arb_os_hooks->identify(id);
		return;
	}
	id->pid = (uint32_t)getpid();
	id->uid = (uint32_t)geteuid();
	id->pid_ns = arb_os_proc_inode("/proc/self/ns/pid");
	if (arb_os_proc_text("/proc/self/comm", text, sizeof(text)) > 0)
		snprintf(id->comm, sizeof(id->comm), "%.*s", (int)strcspn(text, "\n"), text);
	length = arb_os_proc_text("/proc/self/cmdline", text, sizeof(text));
	arb_command_name(text, length > 0 ? (size_t)length : 0, id->command, sizeof(id->command));
	if (!id->command[0])
		snprintf(id->command, sizeof(id->command), "%s", id->comm);
	id->start_time = start_time("/proc/self/stat");
	id->user = arb_os_proc_text("/proc/self/uid_map", text, sizeof(text)) > 0 ? arb_os_user(text, id->uid)
										  : id->uid;
	if (arb_os_proc_text("/proc/self/cgroup", text, sizeof(text)) > 0)
		arb_os_container_id(text, id->container, sizeof(id->container));
	fd = arb_os_plain_open("/proc/self/mountinfo", O_RDONLY | O_CLOEXEC);
	if (fd >= 0) {
		arb_os_mounts(fd, text, sizeof(text), id);
		arb_os_close(fd);
	}
	errno = saved;
}
