/* A segment that is truncated while processes use it, and every other SIGBUS. */
#include <criterion/criterion.h>

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "test/alarm.h"
#include "shm/base/fault.h"
#include "shm/base/lock.h"

#define SIZE (4 * 4096)

static char path[] = "/dev/shm/gpuarb-fault-XXXXXX";

/* Maps a file, which is about to lose its content. */
static volatile char *map(void)
{
	int fd = mkstemp(path);
	char *base;

	cr_assert(fd >= 0 && ftruncate(fd, SIZE) == 0);
	base = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	cr_assert_neq(base, MAP_FAILED);
	memset(base, 'x', SIZE);
	cr_assert_eq(ftruncate(fd, 0), 0);
	close(fd);
	unlink(path);
	return base;
}

static sigjmp_buf back;
static volatile int number_seen;
static void *volatile address_seen;
static volatile int order[4], norder;

static void jump(int number, siginfo_t *info, void *context)
{
	(void)context;
	number_seen = number;
	address_seen = info->si_addr;
	order[norder++ % 4] = 1;
	siglongjmp(back, 1);
}

static struct sigaction earlier;

/* A handler that calls the handler it replaced for faults that are not its own. */
static void polite(int number, siginfo_t *info, void *context)
{
	order[norder++ % 4] = 2;
	if (earlier.sa_flags & SA_SIGINFO)
		earlier.sa_sigaction(number, info, context);
}

static void install(void (*handler)(int, siginfo_t *, void *), struct sigaction *old)
{
	struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO};

	cr_assert_eq(sigaction(SIGBUS, &action, old), 0);
}

Test(fault, a_mapping_that_lost_its_file_reads_zeros)
{
	volatile char *base = map();
	uint32_t guard = arb_fault_guard((void *)base, SIZE);

	cr_assert(guard && !arb_fault_lost(guard));
	cr_assert_eq(base[SIZE / 2], 0);
	cr_assert(arb_fault_lost(guard));
	base[1] = 'y';
	cr_assert_eq(base[1], 'y');
	arb_fault_unguard(guard);
	cr_assert_not(arb_fault_lost(arb_fault_guard((void *)base, SIZE)), "the next one begins anew");
}

Test(fault, every_other_fault_goes_to_the_handler_of_the_program)
{
	volatile char *ours = map(), *theirs;

	memcpy(path, "/dev/shm/gpuarb-fault-XXXXXX", sizeof(path));
	theirs = map();
	install(jump, NULL);
	arb_fault_guard((void *)ours, SIZE);
	if (!sigsetjmp(back, 1))
		cr_assert_fail("read %d", theirs[4096]);
	cr_assert_eq(number_seen, SIGBUS);
	cr_assert_eq(address_seen, (void *)(theirs + 4096));
	cr_assert_eq(ours[4096], 0);
}

static void touch(volatile char *theirs)
{
	theirs[0] = 1;
	_exit(0);
}

Test(fault, without_a_handler_of_its_own_a_program_dies_of_its_own_fault)
{
	volatile char *ours = map(), *theirs;
	int status;
	pid_t pid;

	memcpy(path, "/dev/shm/gpuarb-fault-XXXXXX", sizeof(path));
	theirs = map();
	/* The address sanitizer has installed a handler of its own. */
	signal(SIGBUS, SIG_DFL);
	arb_fault_guard((void *)ours, SIZE);
	pid = fork();
	if (pid == 0)
		touch(theirs);
	cr_assert_eq(waitpid(pid, &status, 0), pid);
	cr_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGBUS);
	pid = fork();
	if (pid == 0) {
		raise(SIGBUS);
		_exit(0);
	}
	cr_assert_eq(waitpid(pid, &status, 0), pid);
	cr_assert(
		WIFSIGNALED(status) && WTERMSIG(status) == SIGBUS, "a SIGBUS that was sent kills it as well");
}

Test(fault, a_handler_that_the_program_installs_later_stays_in_the_chain)
{
	volatile char *ours = map(), *theirs;

	memcpy(path, "/dev/shm/gpuarb-fault-XXXXXX", sizeof(path));
	theirs = map();
	install(jump, NULL);
	arb_fault_guard((void *)ours, SIZE);
	install(polite, &earlier);
	arb_fault_keep();
	cr_assert_eq(ours[0], 0, "ours is in front again");
	cr_assert_eq(norder, 0);
	if (!sigsetjmp(back, 1))
		cr_assert_fail("read %d", theirs[0]);
	cr_assert(norder == 2 && order[0] == 2 && order[1] == 1,
		"the program's handler, then ours, which it replaced");
	/* When the program takes its handler away again, ours is in force. */
	cr_assert_eq(sigaction(SIGBUS, &earlier, NULL), 0);
	arb_fault_keep();
	norder = 0;
	if (!sigsetjmp(back, 1))
		cr_assert_fail("read %d", theirs[0]);
	cr_assert(norder == 1 && order[0] == 1);
}

static volatile char *shared;

static void *blocking(void *argument)
{
	static struct arb_process_lock lock, inner;
	sigset_t all, now;

	(void)argument;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, NULL);
	arb_lock_take(&lock);
	arb_lock_take(&inner);
	arb_lock_give(&inner);
	cr_assert_eq(shared[0], 0);
	arb_lock_give(&lock);
	pthread_sigmask(SIG_SETMASK, NULL, &now);
	cr_assert(sigismember(&now, SIGBUS), "its mask is its own again");
	return NULL;
}

Test(fault, a_thread_that_blocks_the_signal_survives)
{
	pthread_t thread;

	shared = map();
	arb_fault_guard((void *)shared, SIZE);
	cr_assert_eq(pthread_create(&thread, NULL, blocking, NULL), 0);
	pthread_join(thread, NULL);
}
