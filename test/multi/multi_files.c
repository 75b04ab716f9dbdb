/* The files of a segment: they are made once however many processes try, and missed when they are gone. Anything else
 * that lies in their place is reported with a sentence and left as it is. */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "units.h"

#include "test/multi/multi.h"

#include "gpuarb.h"
#include "gpuarb/control.h"
#include "shm/base/atomic.h"
#include "shm/client/client_state.h"

static struct t_dir dir;
static char path[PATH_MAX];

static void make(void)
{
	t_dir_make(&dir, "slots = 8\n");
	t_path(&dir, "state", path);
}

static void clean(void)
{
	t_dir_remove(&dir);
}

TestSuite(files, .init = make, .fini = clean);

static void make_directory(const char *sub)
{
	char name[PATH_MAX];

	snprintf(name, sizeof(name), "%s/%s", dir.path, sub);
	cr_assert_eq(mkdir(name, 0755), 0);
}

static char *read_whole(const char *name, size_t *size)
{
	struct stat st;
	char *bytes;
	int fd = open(name, O_RDONLY | O_CLOEXEC);

	cr_assert(fd >= 0 && fstat(fd, &st) == 0);
	*size = (size_t)st.st_size;
	bytes = malloc(*size + 1);
	cr_assert(bytes && read(fd, bytes, *size) == (ssize_t)*size);
	close(fd);
	return bytes;
}

static void write_at(const char *name, off_t at, const void *bytes, size_t size)
{
	int fd = open(name, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);

	cr_assert(fd >= 0 && pwrite(fd, bytes, size, at) == (ssize_t)size);
	close(fd);
}

/* Checks that opening fails with `code` and a sentence that names the file and contains `words`, and leaves its bytes
 * as they were. */
static void refused(const char *name, int code, const char *words)
{
	struct gpuarb_options o = t_options(&dir, NULL);
	struct gpuarb_error err = {0};
	struct gpuarb_client *c;
	size_t before_size = 0, after_size = 0;
	struct stat st;
	bool regular = stat(name, &st) == 0 && S_ISREG(st.st_mode);
	char *before = regular ? read_whole(name, &before_size) : NULL, *after;
	int r = gpuarb_client_open(&o, &c, &err);

	cr_assert_eq(r, code, "%d: %s", r, err.text);
	cr_assert_null(c);
	cr_assert_eq(err.code, code);
	cr_assert(strstr(err.text, name), "'%s' does not name %s", err.text, name);
	cr_assert(strstr(err.text, words), "'%s' does not say '%s'", err.text, words);
	if (regular) {
		after = read_whole(name, &after_size);
		cr_assert(before_size == after_size && memcmp(before, after, after_size) == 0,
			"%s was changed", name);
		free(after);
	}
	free(before);
}

static void create(void)
{
	struct gpuarb_client *c;

	cr_assert_eq(t_open(&dir, NULL, &c), 0);
	gpuarb_client_close(c);
}

static void patch(const char *name, off_t at, uint64_t by, size_t size)
{
	uint64_t word = 0;
	int fd = open(name, O_RDWR | O_CLOEXEC);

	cr_assert(fd >= 0 && pread(fd, &word, size, at) == (ssize_t)size);
	word += by;
	cr_assert(pwrite(fd, &word, size, at) == (ssize_t)size);
	close(fd);
}

Test(files, a_file_of_zeros_is_refused)
{
	char zeros[8192] = {0};

	make_directory("state");
	write_at(path, 0, zeros, sizeof(zeros));
	refused(path, -EBADMSG, "zeros");
}

Test(files, an_empty_file_is_refused)
{
	make_directory("state");
	write_at(path, 0, "", 0);
	refused(path, -EBADMSG, "truncated");
}

Test(files, a_file_of_garbage_is_refused)
{
	char garbage[100000];
	struct t_random random = t_seeded(3);

	for (size_t i = 0; i < sizeof(garbage); i++)
		garbage[i] = (char)t_next(&random);
	make_directory("state");
	write_at(path, 0, garbage, sizeof(garbage));
	refused(path, -EBADMSG, "not a gpuarb state segment");
}

Test(files, a_truncated_segment_is_refused)
{
	create();
	cr_assert_eq(truncate(path, 40960), 0);
	refused(path, -EBADMSG, "40960 bytes");
	cr_assert_eq(truncate(path, 30), 0);
	refused(path, -EBADMSG, "truncated");
}

Test(files, another_version_is_refused)
{
	create();
	patch(path, offsetof(struct arb_state_header, version), 41, 4);
	refused(path, -EPROTO, "version 44, this gpuarb has version 3");
}

Test(files, another_build_is_refused)
{
	create();
	patch(path, offsetof(struct arb_state_header, fingerprint), 1, 8);
	refused(path, -EPROTO, "different build");
}

Test(files, a_damaged_header_is_refused)
{
	create();
	patch(path, offsetof(struct arb_state_header, nslots), 1, 4);
	refused(path, -EBADMSG, "damaged");
}

Test(files, another_version_of_the_control_segment_is_refused)
{
	char control[PATH_MAX];

	create();
	t_path(&dir, "control", control);
	patch(control, offsetof(struct arb_control, version), 1, 4);
	refused(control, -EPROTO, "version 4, this gpuarb has version 3");
}

Test(files, a_directory_or_a_fifo_or_a_link_is_refused)
{
	make_directory("state");
	cr_assert_eq(mkdir(path, 0755), 0);
	refused(path, -EISDIR, "directory");
	cr_assert_eq(rmdir(path), 0);
	cr_assert_eq(mkfifo(path, 0644), 0);
	refused(path, -EINVAL, "not a regular file");
	cr_assert_eq(unlink(path), 0);
	cr_assert_eq(symlink("/etc/passwd", path), 0);
	refused(path, -ELOOP, "");
}

static int as_nobody(void *words)
{
	struct gpuarb_options o = t_options(&dir, NULL);
	struct gpuarb_error err = {0};
	struct gpuarb_client *c;

	if (setgid(65534) != 0 || setuid(65534) != 0)
		return 2;
	if (gpuarb_client_open(&o, &c, &err) != -EACCES)
		return 3;
	return strstr(err.text, words) && strstr(err.text, dir.path) && strstr(err.text, "Permission denied")
		       ? 0
		       : 4;
}

Test(files, a_directory_without_permission_is_refused)
{
	int result;

	if (geteuid() != 0)
		t_skip_test(&dir, "a directory without permission: needs root, to become somebody else");
	cr_assert_eq(chmod(dir.path, 0755), 0);
	cr_assert_eq(chmod(dir.conf, 0644), 0);
	result = t_run(as_nobody, "cannot make the directory", 10);
	cr_assert_eq(result, 0, "making it: %d", result);
	create();
	result = t_run(as_nobody, "cannot open", 10);
	cr_assert_eq(result, 0, "opening it: %d", result);
}

/* A container has its control directory read-only, and finds either the file there or none. */
Test(files, a_read_only_control_directory_is_enough)
{
	char control[PATH_MAX], name[PATH_MAX];
	struct gpuarb_client *c;
	struct gpuarb_client_status status;
	int64_t half = 50;

	create();
	if (unshare(CLONE_NEWNS) != 0 || !t_mounts_private("/dev/shm"))
		t_skip_test(&dir, "a read-only control directory: mounting is not permitted here");
	snprintf(control, sizeof(control), "%s/control", dir.path);
	cr_assert_eq(t_set_limit(&dir, "tenant", ARB_KEY_CORE, &half), 0);
	cr_assert_eq(mount(control, control, NULL, MS_BIND, NULL), 0);
	cr_assert_eq(mount(NULL, control, NULL, MS_BIND | MS_REMOUNT | MS_RDONLY, NULL), 0);
	t_path(&dir, "control", name);
	cr_assert(open(name, O_RDWR | O_CLOEXEC) < 0 && errno == EROFS);
	cr_assert_eq(t_open(&dir, "tenant", &c), 0);
	cr_assert_eq(gpuarb_client_enter(c, NULL), 0);
	cr_assert_eq(gpuarb_client_status(c, &status), 0);
	cr_assert_eq(status.core_pct, 50, "the administrator's limit is seen");
	gpuarb_client_close(c);
	cr_assert_eq(umount(control), 0);
}

static int join_and_tell_inode(void *argument)
{
	ino_t *inode = argument;
	struct gpuarb_client *c;
	int r = t_open(&dir, NULL, &c);

	if (r < 0)
		return -r;
	*inode = c->seg.file.ino;
	gpuarb_client_close(c);
	return 0;
}

Test(files, fifty_processes_create_one_segment)
{
	ino_t *inode = t_shared(50 * sizeof(*inode));
	pid_t pid[50];

	t_dir_remove(&dir);
	t_dir_make(&dir, "slots = 64\n");
	for (int i = 0; i < 50; i++)
		pid[i] = t_spawn(join_and_tell_inode, &inode[i], 30);
	for (int i = 0; i < 50; i++)
		cr_assert_eq(t_wait(pid[i]), 0, "process %d", i);
	for (int i = 1; i < 50; i++)
		cr_assert_eq(inode[i], inode[0]);
	must_hold(&dir);
}

Test(files, a_creator_killed_half_way_leaves_nothing_or_a_whole_segment)
{
	struct t_random random = t_seeded(7);
	ino_t *inode = t_shared(sizeof(*inode));
	unsigned whole = 0, nothing = 0;

	t_path(&dir, "state", path);
	for (int i = 0; i < 200; i++) {
		pid_t pid = t_spawn(join_and_tell_inode, inode, 30);

		t_sleep_us(t_below(&random, 1500));
		kill(pid, SIGKILL);
		t_wait(pid);
		if (access(path, F_OK) == 0) {
			struct arb_segment seg;

			cr_assert_eq(arb_segment_open(&seg, dir.path, T_GPU, false, NULL, NULL), 0);
			arb_segment_close(&seg);
			whole++;
		} else {
			nothing++;
		}
		cr_assert_eq(t_run(join_and_tell_inode, inode, 30), 0, "the next one");
		must_hold(&dir);
		unlink(path);
		t_path(&dir, "control", path);
		unlink(path);
		t_path(&dir, "state", path);
	}
	cr_log_info("%u times whole, %u times nothing", whole, nothing);
}

/* Until the client notices the loss, operations go on as before. */
static int noticed(struct gpuarb_client *c, bool by_waiting)
{
	uint64_t end = t_now_ns() + 10000 * MS;
	int r = 0;

	while (t_now_ns() < end && r != -ESTALE) {
		r = by_waiting ? gpuarb_client_wait(c, NULL, 3000 * MS) : gpuarb_client_tick(c);
		cr_assert(r == 0 || r == -ESTALE || r == -ETIMEDOUT, "%d", r);
		t_sleep_us(2000);
	}
	return r;
}

Test(files, a_removed_segment_is_noticed_by_ticking)
{
	struct gpuarb_client *c = must_open(&dir, NULL);

	cr_assert_eq(unlink(path), 0);
	cr_assert_eq(noticed(c, false), -ESTALE);
	gpuarb_client_close(c);
}

Test(files, a_removed_segment_is_noticed_by_waiting)
{
	struct gpuarb_client *c = must_open(&dir, NULL), *holder;

	cr_assert_eq(t_set(&dir, ARB_KEY_POLICY, ARB_POLICY_EXCLUSIVE), 0);
	cr_assert_eq(t_set(&dir, ARB_KEY_GRACE_MS, 600000), 0);
	holder = must_open(&dir, NULL);
	cr_assert_eq(gpuarb_client_enter(holder, NULL), 0);
	t_path(&dir, "state", path);
	cr_assert_eq(unlink(path), 0);
	cr_assert_eq(noticed(c, true), -ESTALE);
	gpuarb_client_close(holder);
	gpuarb_client_close(c);
}

Test(files, a_replaced_segment_is_noticed)
{
	struct gpuarb_client *c = must_open(&dir, NULL), *other;

	cr_assert_eq(unlink(path), 0);
	other = must_open(&dir, NULL);
	cr_assert_eq(noticed(c, false), -ESTALE);
	cr_assert_eq(gpuarb_client_enter(other, NULL), 0);
	gpuarb_client_close(c);
	gpuarb_client_close(other);
	must_hold(&dir);
}

/* Every user may read the control segment, and so hold a read lock on it. */
Test(files, a_user_who_may_only_read_does_not_keep_administrators_from_writing)
{
	struct gpuarb_change change = {"a", "core", "40"};
	struct flock reads = {.l_type = F_RDLCK, .l_whence = SEEK_SET, .l_len = 1}, writes = reads;
	struct gpuarb_error err = {0};
	struct gpuarb_client *c;
	char control[PATH_MAX];
	int fd;

	cr_assert_eq(t_open(&dir, "a", &c), 0);
	t_path(&dir, "control", control);
	fd = open(control, O_RDONLY | O_CLOEXEC);
	cr_assert(fd >= 0 && fcntl(fd, F_OFD_SETLK, &reads) == 0);
	cr_assert_eq(gpuarb_control_change(dir.path, T_GPU, &change, 1, &err), 0, "%s", err.text);
	cr_assert_eq(arb_load64(&c->control.control->writer_ns), 0, "the mark is taken back");
	close(fd);
	/* It waits for another administrator. */
	writes.l_type = F_WRLCK;
	fd = open(control, O_RDWR | O_CLOEXEC);
	cr_assert(fd >= 0 && fcntl(fd, F_OFD_SETLK, &writes) == 0);
	cr_assert_eq(gpuarb_control_change(dir.path, T_GPU, &change, 1, &err), -EAGAIN);
	close(fd);
	gpuarb_client_close(c);
}

/* In a process of its own, because a process looks for its GPU once. */
static int asks_where_no_gpu_has_a_segment(void *argument)
{
	struct gpuarb_lease lease = GPUARB_LEASE_INIT;

	(void)argument;
	unsetenv("GPUARB_GPU");
	setenv("GPUARB_DIR", "/dev/shm/gpuarb-none", 1);
	T_CHECK(gpuarb_acquire(NULL, NULL, &lease) == -ENODEV, "it has a GPU");
	T_CHECK(strstr(gpuarb_error_text(),
			"no GPU has a segment in /dev/shm/gpuarb-none/state yet: 'sudo gpuarb-node' makes it"),
		"%s", gpuarb_error_text());
	return 0;
}

Test(leases_of_nobody, the_command_that_makes_a_segment_is_named)
{
	cr_assert_eq(t_run(asks_where_no_gpu_has_a_segment, NULL, 20), 0);
}
