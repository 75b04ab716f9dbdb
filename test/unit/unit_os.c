/* Which container, program and user a process is, as far as the kernel's files tell. */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "shm/base/os_proc.h"

#define ID "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

Test(os, a_container_is_known_by_its_engines_path)
{
	static const char *const inside[] = {
		"0::/system.slice/docker-" ID ".scope\n",
		"12:memory:/docker/" ID "\n0::/\n",
		"0::/machine.slice/libpod-" ID ".scope/container\n",
		"0::/kubepods.slice/kubepods-pod1234_5678.slice/cri-containerd-" ID ".scope\n",
		"0::/kubepods/besteffort/pod0b1c2d3e-0000-4000-8000-000000000000/" ID "\n",
		"636 623 0:28 /containers/" ID "/hostname /etc/hostname rw - tmpfs tmpfs rw\n",
	};
	static const char *const outside[] = {"", "0::/\n",
		"0::/user.slice/user-1000.slice/session-3.scope\n", "0::/init.scope/0123456789abcdef\n",
		"0::/" ID "0\n"};
	char id[ARB_NAME_BYTES];

	for (size_t i = 0; i < sizeof(inside) / sizeof(inside[0]); i++) {
		cr_assert(arb_os_container_id(inside[i], id, sizeof(id)), "%s", inside[i]);
		cr_assert(strncmp(id, ID, sizeof(id) - 1) == 0, "%s", id);
	}
	for (size_t i = 0; i < sizeof(outside) / sizeof(outside[0]); i++)
		cr_assert_not(arb_os_container_id(outside[i], id, sizeof(id)), "%s", outside[i]);
}

Test(os, a_process_knows_who_it_is)
{
	struct arb_os_identity id;

	errno = 77;
	arb_os_identify(&id);
	cr_assert_eq(errno, 77);
	cr_assert_eq(id.pid, (uint32_t)getpid());
	cr_assert_eq(id.uid, (uint32_t)geteuid());
	cr_assert(id.pid_ns != 0);
	cr_assert(id.start_time != 0);
	cr_assert(strncmp(id.comm, "unit_os", 7) == 0, "%s", id.comm);
	cr_assert(id.command[0] && !strchr(id.command, '/'), "%s", id.command);
}

/* Mounts a file of its own over the image's, behind `before` other mounts, as a container engine does. The mounts end
 * with this process. */
static bool mount_as_an_engine(const char *dir, const char *file, unsigned before)
{
	if ((unshare(CLONE_NEWNS) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) ||
		mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0)
		return false;
	while (before-- > 0)
		if (mount(dir, dir, NULL, MS_BIND, NULL) != 0)
			return false;
	return mount(file, "/etc/hosts", NULL, MS_BIND, NULL) == 0;
}

Test(os, a_container_is_known_by_its_mounts_however_many_there_are)
{
	char dir[] = "/tmp/gpuarb-os-XXXXXX", file[128];
	struct arb_os_identity id;
	int status, fd;
	pid_t pid;

	cr_assert(mkdtemp(dir));
	snprintf(file, sizeof(file), "%s/" ID, dir);
	cr_assert_eq(mkdir(file, 0700), 0);
	strcat(file, "/hosts");
	fd = open(file, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	cr_assert(fd >= 0 && close(fd) == 0);
	pid = fork();
	if (pid == 0) {
		/* Where mounts are forbidden the test cannot be made. */
		if (!mount_as_an_engine(dir, file, 400))
			_exit(0);
		arb_os_identify(&id);
		_exit(strncmp(id.container, ID, sizeof(id.container) - 1) != 0);
	}
	cr_assert(pid > 0 && waitpid(pid, &status, 0) == pid);
	unlink(file);
	*strrchr(file, '/') = '\0';
	rmdir(file);
	rmdir(dir);
	cr_assert_eq(status, 0, "the container is not known behind 400 mounts");
}

/* Makes the call fail, as a sandbox may: with any error that it likes. Each test is a process, so no other test is
 * affected. */
static void forbid(uint32_t call, uint32_t error)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog filter = {.len = sizeof(code) / sizeof(code[0]), .filter = code};

	cr_assert_eq(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
	cr_assert_eq(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter), 0);
}

Test(os, a_sandbox_that_forbids_to_sleep_on_several_words_is_noticed_whatever_it_answers)
{
	uint32_t value = 7;
	struct arb_os_word words[] = {{&value, 7, false}};

	forbid(449, EACCES); /* futex_waitv */
	cr_assert_lt(
		arb_os_park_any(words, 1, 1000000), 0, "taken for a sleep, it would be repeated for ever");
}

Test(os, a_thread_gets_the_robust_list_back_that_it_had)
{
	struct arb_os_robust list = {.first = (uint64_t *)(void *)&list};
	void *before = arb_os_robust_list();
	uint32_t thread;

	cr_assert_not_null(before, "the C library's");
	cr_assert_eq(arb_os_robust(&list, &thread), 0);
	cr_assert_eq(thread, (uint32_t)syscall(SYS_gettid));
	cr_assert_eq(arb_os_robust_list(), &list);
	cr_assert_eq(arb_os_robust(before, NULL), 0);
	cr_assert_eq(arb_os_robust_list(), before);
}
