/* The file of a segment's locks: only users who may join can open it, the first process that finds it missing makes
 * it, and a client notices that it was removed. */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "test/multi/multi.h"

#include "gpuarb/control.h"
#include "shm/client/client_state.h"
#include "shm/segment/slot.h"

#define STRANGER 61003

static struct t_dir dir;
static char state[PATH_MAX], locks[PATH_MAX];

static void make(void)
{
	t_dir_make(&dir, "slots = 8\nsegment_mode = 0664\n");
	cr_assert_eq(chmod(dir.path, 0755), 0);
	t_path(&dir, "state", state);
	snprintf(locks, sizeof(locks), "%s/state/.%s.locks", dir.path, T_GPU);
}

static void clean(void)
{
	t_dir_remove(&dir);
}

TestSuite(locks, .init = make, .fini = clean);

static unsigned mode_of(const char *path)
{
	struct stat st;

	cr_assert_eq(stat(path, &st), 0, "%s: %s", path, strerror(errno));
	return st.st_mode & 07777;
}

/* Does what a user can do who may only read the segment. */
static int look(void *argument)
{
	static struct gpuarb_picture picture;
	struct flock reads = {.l_type = F_RDLCK, .l_whence = SEEK_SET};
	struct gpuarb_view *view;
	struct gpuarb_client *c;
	int fd, dead = *(int *)argument;

	if (setgroups(0, NULL) != 0 || setgid(STRANGER) != 0 || setuid(STRANGER) != 0)
		return 1;
	if (open(locks, O_RDONLY | O_CLOEXEC) >= 0 || errno != EACCES)
		return 2;
	fd = open(state, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || fcntl(fd, F_OFD_SETLK, &reads) != 0)
		return 3;
	if (t_open(&dir, NULL, &c) != -EACCES)
		return 4;
	if (gpuarb_view_open(dir.path, T_GPU, &view, NULL) < 0 || gpuarb_view_read(view, &picture) < 0)
		return 5;
	if (!picture.only_looks || picture.nclients != 2 || picture.ndead != (unsigned)dead)
		return 6;
	gpuarb_view_close(view);
	/* All bytes of the segment stay locked for reading. */
	kill(getpid(), SIGSTOP);
	return 0;
}

static int join_and_stay(void *argument)
{
	struct gpuarb_client *c;

	(void)argument;
	if (t_open(&dir, NULL, &c) < 0)
		return 1;
	kill(getpid(), SIGSTOP);
	return 0;
}

static pid_t start(int (*body)(void *), void *argument)
{
	pid_t pid = t_spawn(body, argument, 20);
	int status;

	cr_assert_eq(waitpid(pid, &status, WUNTRACED), pid);
	cr_assert(WIFSTOPPED(status), "it ended with status %d", WEXITSTATUS(status));
	return pid;
}

static void kill_it(pid_t pid)
{
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

Test(locks, a_user_who_may_only_read_locks_nothing_that_others_need)
{
	struct gpuarb_client *c = must_open(&dir, NULL), *next;
	int dead = 0;
	pid_t looker, other;

	if (geteuid() != 0)
		t_skip_test(&dir, "a user who may only read: only root can be another user");
	cr_assert_eq(mode_of(state), 0664);
	cr_assert_eq(mode_of(locks), 0660);
	other = start(join_and_stay, NULL);
	looker = start(look, &dead);
	/* Joining, leaving and cleaning up take locks. */
	next = must_open(&dir, NULL);
	gpuarb_client_close(next);
	kill_it(other);
	cr_assert_eq(gpuarb_control_reap(dir.path, T_GPU, NULL, NULL, NULL), 1);
	kill_it(looker);
	gpuarb_client_close(c);
	must_hold(&dir);
}

Test(locks, a_user_who_may_only_read_finds_the_dead_by_their_process_numbers)
{
	struct gpuarb_client *c = must_open(&dir, NULL);
	int dead = 1;

	if (geteuid() != 0)
		t_skip_test(&dir, "a user who may only read: only root can be another user");
	kill_it(start(join_and_stay, NULL));
	kill_it(start(look, &dead));
	gpuarb_client_close(c);
}

Test(locks, the_locks_have_the_rights_of_the_segment_whichever_process_makes_them)
{
	static const mode_t modes[][2] = {
		{0600, 0600}, {0640, 0600}, {0660, 0660}, {0664, 0660}, {0666, 0666}};

	gpuarb_client_close(must_open(&dir, NULL));
	for (size_t i = 0; i < sizeof(modes) / sizeof(modes[0]); i++) {
		cr_assert_eq(chmod(state, modes[i][0]), 0);
		cr_assert_eq(unlink(locks), 0);
		gpuarb_client_close(must_open(&dir, NULL));
		cr_assert_eq(mode_of(locks), modes[i][1], "%o of %o", mode_of(locks), modes[i][0]);
	}
}

Test(locks, a_client_whose_locks_were_removed_joins_anew)
{
	struct gpuarb_client *c = must_open(&dir, "a"), *next;
	struct gpuarb_error err = {0};
	uint64_t end = t_now_ns() + 5000000000ull;
	int r = 0;

	cr_assert_eq(gpuarb_client_enter(c, NULL), 0);
	cr_assert_eq(unlink(locks), 0);
	while (r == 0 && t_now_ns() < end)
		r = gpuarb_client_tick(c);
	cr_assert_eq(r, -ESTALE);
	next = must_open(&dir, "b");
	cr_assert_eq(gpuarb_client_rejoin(c, false, &err), 0, "%s", err.text);
	cr_assert_neq(c->me.slot, next->me.slot);
	cr_assert_eq(c->seg.locks.ino, next->seg.locks.ino);
	cr_assert_eq(arb_slot_alive(&next->seg, c->me.slot), 1);
	cr_assert_eq(arb_slot_alive(&c->seg, next->me.slot), 1);
	cr_assert_eq(
		gpuarb_control_reap(dir.path, T_GPU, NULL, NULL, NULL), 1, "what it was before has died");
	cr_assert_eq(gpuarb_client_enter(c, NULL), 0);
	gpuarb_client_close(c);
	gpuarb_client_close(next);
	must_hold(&dir);
}

Test(locks, anything_but_a_file_in_their_place_is_reported)
{
	struct gpuarb_options o = t_options(&dir, NULL);
	struct gpuarb_error err = {0};
	struct gpuarb_client *c;

	gpuarb_client_close(must_open(&dir, NULL));
	cr_assert_eq(unlink(locks), 0);
	cr_assert_eq(mkfifo(locks, 0666), 0);
	cr_assert_eq(gpuarb_client_open(&o, &c, &err), -EINVAL, "%s", err.text);
	cr_assert(strstr(err.text, locks) && strstr(err.text, "regular"), "%s", err.text);
	cr_assert_eq(unlink(locks), 0);
	cr_assert_eq(symlink("/etc/passwd", locks), 0);
	cr_assert_eq(gpuarb_client_open(&o, &c, &err), -ELOOP, "%s", err.text);
}
