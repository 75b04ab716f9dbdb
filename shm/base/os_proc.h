/* Reads the kernel's files in /proc. The functions that take text are pure, so that tests can give them any. */
#ifndef ARB_OS_PROC_H
#define ARB_OS_PROC_H

#include "shm/base/os.h"

/*
 * Opens a file by syscall(), because the C library's open, read, close and nanosleep are cancellation points: a thread
 * that ends in one of them would keep the locks that it holds. Returns -1 and errno on failure.
 */
int arb_os_plain_open(const char *path, int flags);
/* Reads a small file whole; returns its length, or -errno. The text always ends in a NUL. */
ssize_t arb_os_proc_text(const char *path, char *text, size_t size);
/* Returns the number of a file; 0: there is no such file. */
uint64_t arb_os_proc_inode(const char *path);

/* Finds the container's id in text such as /proc/self/cgroup or mountinfo; returns true if there is one. */
bool arb_os_container_id(const char *text, char *id, size_t size);
/* Finds the pod's id in a line of mountinfo; returns true if there is one. */
bool arb_os_pod_id(const char *line, char *id, size_t size);
/*
 * Finds the ids of the container and of the pod in a file like /proc/self/mountinfo, those that are not known yet. Inside
 * its own cgroup namespace a container sees only "/", but the files that its engine mounted over the container's own files
 * still name it; on the host these files are no mounts. Any number of other mounts may come before them. The buffer must
 * be longer than the lines with these mounts.
 */
void arb_os_mounts(int fd, char *buffer, size_t size, struct arb_os_identity *id);
/* Returns a user's number outside of the namespace whose uid_map this is. */
uint32_t arb_os_user(const char *map, uint32_t uid);

#endif
