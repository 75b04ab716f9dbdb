/* Programs with unusual descriptors, children, threads and ends. */
#include "test/preload/preload_host.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

/* Counts the open descriptors whose file's name contains these words; "" counts all. */
static unsigned descriptors(const char *with)
{
	DIR *dir = opendir("/proc/self/fd");
	struct dirent *e;
	unsigned n = 0;

	T_CHECK(dir, "no /proc");
	while ((e = readdir(dir))) {
		char link[256];
		ssize_t length = readlinkat(dirfd(dir), e->d_name, link, sizeof(link) - 1);

		if (length <= 0 || atoi(e->d_name) == dirfd(dir))
			continue;
		link[length] = 0;
		n += strstr(link, with) != NULL;
	}
	closedir(dir);
	return n;
}

static void close_all(int from)
{
	for (int fd = from; fd < 1024; fd++)
		close(fd);
}

/* Closes all descriptors as a daemon does, and then opens its own. */
static void closes_all_before(void)
{
	close_all(0);
	T_CHECK(open("/dev/null", O_RDWR) == 0 && dup(0) == 1, "not the lowest");
	host_context(0);
	host_work();
	T_CHECK(descriptors("/state/") == 0 && descriptors("/control/") == 0, "something was left open");
	T_CHECK(host_clients(0) == 1, "not joined");
}

static void closes_all_after(void)
{
	host_context(0);
	host_work();
	close_all(3);
	T_CHECK(host_clients(0) == 1, "its slot was lost with its descriptors");
	t_sleep_us(1200000); /* looks at the segment's file come every second */
	host_work();
	T_CHECK(host_clients(0) == 1, "its slot was lost later");
}

/* The program has opened a file of its own where standard error was. */
static void has_a_file_where_stderr_was(void)
{
	char path[] = "/tmp/preload-host-XXXXXX";
	int fd = mkstemp(path);
	off_t size;

	T_CHECK(fd >= 0 && !unlink(path) && dup2(fd, 2) == 2, "no file");
	setenv("GPUARB_DIR", "/proc/nothing", 1);
	host_context(0);
	host_work();
	size = lseek(2, 0, SEEK_END);
	_exit(size == 0 ? 0 : 9);
}

static void keeps_no_descriptor(void)
{
	unsigned before, after;

	host_context(0);
	before = descriptors("");
	host_work();
	t_sleep_us(1200000);
	host_work();
	after = descriptors("");
	T_CHECK(after == before, "%u descriptors, then %u", before, after);
	T_CHECK(descriptors("/state/") == 0 && descriptors("/control/") == 0, "of a segment");
}

static int run(const char *const argv[])
{
	pid_t pid;
	int status;

	T_CHECK(posix_spawn(&pid, argv[0], NULL, NULL, (char *const *)argv, environ) == 0, "no child");
	T_CHECK(waitpid(pid, &status, 0) == pid, "lost");
	return status;
}

static void starts_others_while_it_works(void)
{
	static const char *const argv[] = {"/bin/sh", "-c", "exit $(ls /proc/self/fd | wc -l)", NULL};
	int before = run(argv);
	CUstream stream;
	pid_t pid;
	int status;

	host_context(0);
	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	host_flood(stream);
	for (int i = 0; i < 20; i++) {
		T_CHECK(run(argv) == before, "a child sees descriptors of ours");
		pid = vfork();
		if (!pid) {
			execl("/bin/true", "true", (char *)NULL);
			_exit(1);
		}
		T_CHECK(pid > 0 && waitpid(pid, &status, 0) == pid && status == 0, "vfork");
	}
	T_CHECK(system("exit 3") == 3 << 8, "system");
	T_CHECK(host_clients(0) == 1, "its slot was lost");
}

static int uses_the_gpu(void *argument)
{
	(void)argument;
	host_context(0);
	host_work();
	T_CHECK(host_clients(0) >= 1, "not joined");
	return 0;
}

static void has_children_that_use_the_gpu(void)
{
	pid_t pid[3];

	for (int i = 0; i < 3; i++)
		pid[i] = t_spawn(uses_the_gpu, NULL, 20);
	for (int i = 0; i < 3; i++)
		T_CHECK(t_wait(pid[i]) == 0, "child %d", i);
	T_CHECK(host_clients(0) == 0, "a parent that does not use the GPU is no client");
	host_context(0);
	host_work();
	T_CHECK(host_clients(0) == 1, "not joined");
}

/* The driver does not work after a fork: the child gets the driver's own answer. */
static int asks_after_fork(void *argument)
{
	CUdeviceptr p;

	(void)argument;
	GIVES(cuMemAlloc_v2(&p, 1 << 20), CUDA_ERROR_NOT_INITIALIZED);
	GIVES(cuInit(0), CUDA_ERROR_NOT_INITIALIZED);
	return 0;
}

static int sleeps(void *argument)
{
	(void)argument;
	pause();
	return 0;
}

static int works_and_leaves_a_child(void *argument)
{
	pid_t *child = argument;

	host_context(0);
	host_work();
	*child = t_spawn(sleeps, NULL, 30);
	/* t_spawn wants its children to end before their parent; this one must live longer. */
	raise(SIGKILL);
	return 0;
}

static void forks_after_it_used_the_gpu(void)
{
	host_context(0);
	host_work();
	for (int i = 0; i < 3; i++)
		T_CHECK(t_run(asks_after_fork, NULL, 10) == 0, "the child");
	host_work();
	T_CHECK(host_clients(0) == 1, "a child is no client");
}

static void has_a_child_that_lives_longer(void)
{
	pid_t *child = t_shared(sizeof(*child));

	T_CHECK(t_run(works_and_leaves_a_child, child, 10) == -SIGKILL, "the parent");
	T_CHECK(host_clients(0) == 0, "a dead parent's slot is kept by its child");
	kill(*child, SIGKILL);
}

/* Waits at the gate meanwhile, in a thread. */
static void *floods(void *argument)
{
	CUfunction function;
	CUmodule module;
	unsigned us = 2000;
	void *params[] = {&us};

	OK(cuCtxSetCurrent(argument));
	OK(cuModuleLoadData(&module, "any"));
	OK(cuModuleGetFunction(&function, module, "gpusim_spin"));
	/* Goes on until the driver is gone, and beyond. */
	for (;;)
		cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL);
	return NULL;
}

static void starts_flooding(void)
{
	CUcontext context = host_context(0);
	pthread_t thread;

	T_CHECK(!pthread_create(&thread, NULL, floods, context), "no thread");
	t_sleep_us(300000);
	T_CHECK(host_clients(0) == 1, "not joined");
}

static int floods_and_execs(void *argument)
{
	(void)argument;
	starts_flooding();
	execl("/bin/sh", "sh", "-c", "sleep 0.5; exit 5", (char *)NULL);
	return 1;
}

static void execs_while_a_thread_waits(void)
{
	pid_t pid = t_spawn(floods_and_execs, NULL, 20);

	t_sleep_us(600000);
	T_CHECK(host_clients(0) == 0, "it is no client any more");
	T_CHECK(t_wait(pid) == 5, "its status");
}

static void ends_at_once(void)
{
	starts_flooding();
	_exit(6);
}

static void *calls_exit(void *argument)
{
	(void)argument;
	exit(7);
}

static void ends_from_a_thread(void)
{
	pthread_t thread;

	starts_flooding();
	T_CHECK(!pthread_create(&thread, NULL, calls_exit, NULL), "no thread");
	for (;;)
		cuCtxSynchronize();
}

static void returns_while_a_thread_waits(void)
{
	starts_flooding();
	exit(8);
}

static void *works_a_little(void *argument)
{
	OK(cuCtxSetCurrent(argument));
	t_sleep_us(200000);
	host_work();
	return NULL;
}

/* The program ends with its last thread, and that must not be our thread. */
static void ends_with_its_last_thread(void)
{
	CUcontext context = host_context(0);
	pthread_t thread;

	host_work();
	T_CHECK(!pthread_create(&thread, NULL, works_a_little, context), "no thread");
	pthread_exit(NULL);
}

static void closes_the_driver(void)
{
	void *driver = dlopen("libcuda.so.1", RTLD_NOW);

	host_context(0);
	host_work();
	for (int i = 0; i < 3; i++)
		T_CHECK(driver && !dlclose(driver) && (driver = dlopen("libcuda.so.1", RTLD_NOW)), "dlclose");
	T_CHECK(!dlclose(driver), "dlclose");
	host_work();
}

static void *one_of_many(void *argument)
{
	OK(cuCtxSetCurrent(argument));
	host_launch(NULL, 5, 20);
	return NULL;
}

static void has_many_short_threads(void)
{
	CUcontext context = host_context(0);

	for (int round = 0; round < 30; round++) {
		pthread_t thread[16];

		for (int i = 0; i < 16; i++)
			T_CHECK(!pthread_create(&thread[i], NULL, one_of_many, context), "no thread");
		for (int i = 0; i < 16; i++)
			pthread_join(thread[i], NULL);
	}
	OK(cuCtxSynchronize());
	/* What the segment shows is at most 100 ms old; later, without work, it is exact. */
	t_sleep_us(300000);
	T_CHECK(host_picture(0)->clients[0].counter[ARB_COUNTER_LAUNCHES] == 30 * 16 * 5, "%llu launches",
		(unsigned long long)host_picture(0)->clients[0].counter[ARB_COUNTER_LAUNCHES]);
}

/* Ways around the library. They cannot be stopped, but an administrator who wonders about a limit can see them. */
static void goes_past_the_table(void)
{
	static const enum arb_counter past[] = {
		ARB_COUNTER_PAST_EXPORT_TABLE, ARB_COUNTER_PAST_NAMESPACE, ARB_COUNTER_PAST_DEEPBIND};
	const struct gpuarb_view_client *client;
	CUuuid id = {{0}};
	const void *table;

	T_CHECK(dlmopen(LM_ID_NEWLM, "libm.so.6", RTLD_NOW), "dlmopen");
	T_CHECK(dlopen("libm.so.6", RTLD_NOW | RTLD_DEEPBIND), "dlopen");
	host_context(0);
	host_work();
	cuGetExportTable(&table, &id);
	host_work();
	t_sleep_us(400000);
	client = &host_picture(0)->clients[0];
	for (unsigned i = 0; i < sizeof(past) / sizeof(*past); i++)
		T_CHECK(client->counter[past[i]] == 1, "%llu of %u",
			(unsigned long long)client->counter[past[i]], past[i]);
	T_CHECK(client->counter[ARB_COUNTER_PAST_OTHER_DRIVER] == 0, "a second driver");
	T_CHECK(client->counter[ARB_COUNTER_LAUNCHES] == 40 && client->counter[ARB_COUNTER_WAITS] >= 2,
		"%llu launches", (unsigned long long)client->counter[ARB_COUNTER_LAUNCHES]);
}

static void ends_here(int signal)
{
	(void)signal;
	exit(3);
}

static int is_interrupted(void *argument)
{
	unsigned *us = argument;
	struct itimerval soon = {.it_value = {0, (int)*us}};

	host_context(0);
	signal(SIGALRM, ends_here);
	setitimer(ITIMER_REAL, &soon, NULL);
	for (;;)
		host_work();
	return 0;
}

/* No program should end in a signal handler, but many do, at any point and even within a call. */
static void ends_in_a_signal_handler(void)
{
	for (unsigned i = 0; i < 60; i++) {
		unsigned us = 3000 + 137 * i;
		int status = t_run(is_interrupted, &us, 20);

		T_CHECK(status == 3, "status %d after %u us", status, us);
	}
	T_CHECK(host_clients(0) == 0, "somebody is left");
}

static void *works_alone(void *argument)
{
	host_context(0);
	host_work();
	return argument;
}

/* Its first thread has never made a call when it ends. */
static void ends_with_a_thread_that_alone_worked(void)
{
	pthread_t thread;

	T_CHECK(!pthread_create(&thread, NULL, works_alone, NULL), "no thread");
	pthread_detach(thread);
	pthread_exit(NULL);
}

static void *is_cancelled_at_its_first(void *argument)
{
	CUcontext context;

	OK(cuInit(0));
	pthread_cancel(pthread_self());
	cuCtxCreate_v2(&context, 0, 0);
	pthread_testcancel();
	return argument;
}

/* A pending cancellation takes effect in a call that is a cancellation point: no lock may be held there. */
static void cancels_a_thread_that_joins(void)
{
	pthread_t thread;
	void *result;

	T_CHECK(!pthread_create(&thread, NULL, is_cancelled_at_its_first, NULL), "no thread");
	T_CHECK(!pthread_join(thread, &result) && result == PTHREAD_CANCELED, "it was not cancelled");
	host_context(0);
	host_work();
}

const struct host_case host_process_cases[] = {
	{"ends with a thread that alone worked", ends_with_a_thread_that_alone_worked, "90", 0},
	{"cancels a thread that joins", cancels_a_thread_that_joins, "90", 0},
	{"closes all descriptors before it uses the GPU", closes_all_before, "50", 0},
	{"closes all descriptors after it used the GPU", closes_all_after, "50", 0},
	{"has a file of its own where standard error was", has_a_file_where_stderr_was, "50", 0},
	{"looks at its descriptors", keeps_no_descriptor, "50", 0},
	{"starts other programs while it works", starts_others_while_it_works, NULL, 0},
	{"has children that use the GPU", has_children_that_use_the_gpu, "50", 0},
	{"forks after it used the GPU", forks_after_it_used_the_gpu, "50", 0},
	{"has a child that lives longer", has_a_child_that_lives_longer, NULL, 0},
	{"execs while a thread waits at the gate", execs_while_a_thread_waits, "5", 0},
	{"ends by _exit while a thread waits at the gate", ends_at_once, "5", 6},
	{"ends by exit from a thread", ends_from_a_thread, "5", 7},
	{"returns while a thread waits at the gate", returns_while_a_thread_waits, "5", 8},
	{"ends in a signal's handler", ends_in_a_signal_handler, "50", 0},
	{"ends with its last thread", ends_with_its_last_thread, "50", 0},
	{"ends with its last thread, unlimited", ends_with_its_last_thread, NULL, 0},
	{"closes the driver and opens it again", closes_the_driver, "50", 0},
	{"goes past the table", goes_past_the_table, "50", 0},
	{"has many short threads", has_many_short_threads, NULL, 0},
	{NULL, NULL, NULL, 0},
};
