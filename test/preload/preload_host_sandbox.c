/* Programs that give up rights and resources, or never had them. */
#include "test/preload/preload_host.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

/* From now on, for all threads, these system calls fail with EPERM or end the process. */
static void forbid(const int *calls, unsigned count, unsigned how)
{
	struct sock_filter code[64], *c = code;
	struct sock_fprog program = {.filter = code};

	*c++ = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
	for (unsigned i = 0; i < count; i++) {
		*c++ = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)calls[i], 0, 1);
		*c++ = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, how);
	}
	*c++ = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
	program.len = (unsigned short)(c - code);
	T_CHECK(!prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs");
	if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program) != 0)
		_exit(T_SKIP);
}

static int run_it(void *argument)
{
	void (**it)(void) = argument;

	(*it)();
	_exit(0);
}

/* Runs it in a child, so that the parent keeps its rights to look afterwards. It logs this sentence once, or nothing,
 * and nothing else. */
static void must_work(void (*it)(void), const char *sentence)
{
	int status = t_run(run_it, &it, 20);

	if (status == T_SKIP)
		_exit(T_SKIP);
	T_CHECK(status == 0, "it did not work");
	T_CHECK(host_lines("") == (sentence ? 1 : 0), "%u lines", host_lines(""));
	T_CHECK(!sentence || host_lines(sentence) == 1, "not this line");
}

static void works_on(unsigned tenths)
{
	while (tenths--) {
		t_sleep_us(100000);
		host_work();
	}
}

#define REFUSE (SECCOMP_RET_ERRNO | EPERM)

static const int opening[] = {SYS_openat,
#ifdef SYS_open
	SYS_open,
#endif
	SYS_memfd_create, SYS_socket};

/* No file can be opened when it first uses the GPU: it logs that once, and works. */
static void may_open_nothing(void)
{
	OK(cuInit(0));
	forbid(opening, sizeof(opening) / sizeof(*opening), REFUSE);
	for (int i = 0; i < 3; i++) {
		CUcontext context;

		OK(cuCtxCreate_v2(&context, 0, 0));
		host_work();
	}
}

static void may_open_nothing_and_says_so(void)
{
	must_work(may_open_nothing, "preload: ");
}

/* The filter comes after it has joined. */
static void may_open_nothing_any_more(void)
{
	host_context(0);
	host_work();
	forbid(opening, sizeof(opening) / sizeof(*opening), REFUSE);
	works_on(15);
}

static void may_open_nothing_any_more_and_is_silent(void)
{
	must_work(may_open_nothing_any_more, NULL);
}

/* The process is killed if the preload makes a system call that it does not need. */
static void is_killed_for_the_unusual(void)
{
	static const int calls[] = {SYS_membarrier, SYS_execve, SYS_ptrace, SYS_socket, SYS_kill, SYS_tgkill,
		SYS_bpf, SYS_mount, SYS_memfd_create, SYS_unlinkat};

	OK(cuInit(0));
	forbid(calls, sizeof(calls) / sizeof(*calls), SECCOMP_RET_KILL_PROCESS);
	host_context(0);
	host_work();
	t_sleep_us(1200000);
	host_work();
	_exit(0);
}

static void may_start_no_thread(void)
{
	static const int calls[] = {SYS_clone,
#ifdef SYS_clone3
		SYS_clone3
#endif
	};

	OK(cuInit(0));
	forbid(calls, sizeof(calls) / sizeof(*calls), REFUSE);
	host_context(0);
	for (int i = 0; i < 10; i++)
		host_work();
	T_CHECK(host_clients(0) == 1, "joined all the same");
	T_CHECK(host_lines("no thread") == 1 && host_lines("preload: ") == 1, "%u lines",
		host_lines("preload: "));
}

static void has_no_memory_for_it(void)
{
	struct rlimit limit = {64 << 20, 64 << 20};

	OK(cuInit(0));
	/* Nothing more can be mapped, because its address space is larger than this limit already. */
	T_CHECK(!setrlimit(RLIMIT_AS, &limit), "setrlimit");
	host_context(0);
	host_launch(NULL, 20, 50);
	OK(cuCtxSynchronize());
	_exit(0);
}

static void has_no_descriptor_left(void)
{
	struct rlimit limit = {3, 3};

	OK(cuInit(0));
	T_CHECK(!setrlimit(RLIMIT_NOFILE, &limit), "setrlimit");
	host_context(0);
	host_work();
}

static void has_no_descriptor_and_says_so(void)
{
	must_work(has_no_descriptor_left, "as if it were alone");
}

static void has_no_descriptor_left_later(void)
{
	struct rlimit limit = {3, 3}, before;

	host_context(0);
	host_work();
	T_CHECK(!getrlimit(RLIMIT_NOFILE, &before), "getrlimit");
	limit.rlim_max = before.rlim_max;
	T_CHECK(!setrlimit(RLIMIT_NOFILE, &limit), "setrlimit");
	works_on(15);
	T_CHECK(!setrlimit(RLIMIT_NOFILE, &before), "setrlimit");
	T_CHECK(host_clients(0) == 1 && host_lines("") == 0, "%u lines", host_lines(""));
}

static void may_have_no_process_more(void)
{
	struct rlimit limit = {0, 0};

	OK(cuInit(0));
	T_CHECK(!setrlimit(RLIMIT_NPROC, &limit), "setrlimit");
	/* Root may always have more processes. */
	if (geteuid() == 0 && setuid(65534) != 0)
		_exit(T_SKIP);
	host_context(0);
	host_work();
	T_CHECK(host_lines("no thread") == 1 && host_lines("preload: ") == 1, "%u lines",
		host_lines("preload: "));
}

static void *works_and_idles(void *argument)
{
	host_context(0);
	host_work();
	/* Our threads begin to sleep for long meanwhile. */
	t_sleep_us(3000000);
	return argument;
}

static int ends_with_its_second_thread(void *argument)
{
	static const int waitv[] = {449}; /* futex_waitv */
	pthread_t thread;

	(void)argument;
	OK(cuInit(0));
	forbid(waitv, 1, REFUSE);
	T_CHECK(!pthread_create(&thread, NULL, works_and_idles, NULL), "no thread");
	pthread_detach(thread);
	pthread_exit(NULL);
}

/* As before Linux 5.16: a thread of ours can sleep on one word only. The program ends with its last thread all the same. */
static void may_sleep_on_one_word_only(void)
{
	uint64_t began = t_now_ns();

	T_CHECK(t_run(ends_with_its_second_thread, NULL, 20) == 0, "it did not work");
	T_CHECK(t_now_ns() - began < 7000000000ull, "it was there for seconds after its last thread");
}

static void change_root(void)
{
	char path[] = "/tmp/preload-host-XXXXXX";

	if (geteuid() != 0)
		_exit(T_SKIP);
	T_CHECK(mkdtemp(path), "no directory");
	T_CHECK(!chdir(path) && !rmdir(path) && !chroot("."), "chroot");
}

static void works_in_an_empty_root(void)
{
	OK(cuInit(0));
	change_root();
	host_context(0);
	host_work();
}

static void is_in_an_empty_root(void)
{
	must_work(works_in_an_empty_root, "as if it were alone");
}

static int goes_to_an_empty_root(void *argument)
{
	(void)argument;
	host_context(0);
	host_work();
	change_root();
	works_on(25);
	pause();
	return 0;
}

/* It stays a client, and all other clients see it as before. */
static void changes_its_root(void)
{
	pid_t pid = t_spawn(goes_to_an_empty_root, NULL, 20);

	t_sleep_us(4000000);
	if (geteuid() == 0) {
		T_CHECK(host_clients(0) == 1, "it is no client any more");
		T_CHECK(host_lines("stays in the one it has") == 1 && host_lines("") == 1, "%u lines",
			host_lines(""));
	}
	kill(pid, SIGKILL);
	t_wait(pid);
}

/* Each bad value is logged with one sentence. A program with raised privileges does not even read it:
 * preload_secure.sh. */
static void is_run_with_nonsense_in_its_environment(void)
{
	setenv("GPUARB_WINDOW_MS", "soon", 1);
	setenv("GPUARB_LOG", "not/absolute", 1);
	host_context(0);
	host_work();
	T_CHECK(host_lines("GPUARB_WINDOW_MS") == 1 && host_lines("") == 1, "%u lines", host_lines(""));
}

const struct host_case host_sandbox_cases[] = {
	{"may open nothing", may_open_nothing_and_says_so, "50", 0},
	{"may open nothing, unlimited", may_open_nothing_and_says_so, NULL, 0},
	{"may open nothing any more", may_open_nothing_any_more_and_is_silent, "50", 0},
	{"is killed for unusual system calls", is_killed_for_the_unusual, "50", 0},
	{"may sleep on one word only", may_sleep_on_one_word_only, "50", 0},
	{"may start no thread", may_start_no_thread, "50", 0},
	{"has no memory left", has_no_memory_for_it, "50", 0},
	{"has no descriptor left", has_no_descriptor_and_says_so, "50", 0},
	{"has no descriptor left any more", has_no_descriptor_left_later, "50", 0},
	{"may have no process more", may_have_no_process_more, "50", 0},
	{"is in an empty root", is_in_an_empty_root, "50", 0},
	{"changes its root", changes_its_root, "50", 0},
	{"has nonsense in its environment", is_run_with_nonsense_in_its_environment, "50", 0},
	{NULL, NULL, NULL, 0},
};
