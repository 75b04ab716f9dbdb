#include "shm/base/fault.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "shm/base/atomic.h"
#include "shm/base/os.h"

/* Two mappings for each GPU, and those that are opened for a moment. A mapping that finds no place is not guarded. */
#define GUARDS 96
/* A program installs a handler or two of its own. Once the levels are used up, its next handler stays in front of
 * ours. */
#define LEVELS        8
#define KERNEL_SIGSET 8 /* bytes: an argument of rt_sigprocmask */

/* Written by the thread that claims the entry; read by the handler. `base` is stored last, and taken back first. */
static struct guard {
	arb_u32 taken;
	arb_u32 lost;
	arb_u64 base, size;
} guards[GUARDS];

/*
 * Each level is a function of its own, with the action that it hands on to. This action is written before the level
 * is installed and never again. So a chain of handlers works as it does for any program: a handler that remembers
 * ours and calls it, or puts it back, finds what it remembered.
 */
static struct level {
	arb_u32 taken;
	struct sigaction before;
} levels[LEVELS];

static arb_u32 installing;

__thread int arb_fault_blocks;

/* Runs in the handler, so it uses only system calls, and words that are read whole. */
static bool replace(uintptr_t address)
{
	for (unsigned i = 0; i < GUARDS; i++) {
		struct guard *g = &guards[i];
		uintptr_t base = (uintptr_t)arb_load64_acquire(&g->base);
		size_t size = (size_t)arb_load64(&g->size);

		if (!base || address < base || address - base >= size)
			continue;
		arb_store32_release(&g->lost, 1);
		return syscall(SYS_mmap, base, size, PROT_READ | PROT_WRITE,
			       MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == (long)base;
	}
	return false;
}

/* Does what the kernel would have done without our handler. */
static void hand_on(const struct sigaction *before, int number, siginfo_t *info, void *context)
{
	struct sigaction none = {.sa_handler = SIG_DFL};
	bool sent = info->si_code <= 0;

	if (before->sa_flags & SA_SIGINFO) {
		before->sa_sigaction(number, info, context);
	} else if (before->sa_handler != SIG_DFL && before->sa_handler != SIG_IGN) {
		before->sa_handler(number);
	} else if (!sent || before->sa_handler == SIG_DFL) {
		/* A fault happens again as soon as this handler returns, and ends the process. A signal that was sent
		 * is sent again. */
		sigaction(number, &none, NULL);
		if (sent)
			syscall(SYS_tgkill, getpid(), syscall(SYS_gettid), number);
	}
}

static void on_bus(unsigned level, int number, siginfo_t *info, void *context)
{
	int saved = errno;

	if (info->si_code <= 0 || !replace((uintptr_t)info->si_addr)) {
		errno = saved;
		hand_on(&levels[level].before, number, info, context);
		return;
	}
	errno = saved;
}

/* clang-format off */
#define LEVEL(n)                                                                                             \
	static void on_bus_##n(int number, siginfo_t *info, void *context)                                   \
	{                                                                                                    \
		on_bus(n, number, info, context);                                                            \
	}
LEVEL(0) LEVEL(1) LEVEL(2) LEVEL(3) LEVEL(4) LEVEL(5) LEVEL(6) LEVEL(7)
	/* clang-format on */

	static void (*const entries[LEVELS])(int, siginfo_t *, void *) = {
		on_bus_0, on_bus_1, on_bus_2, on_bus_3, on_bus_4, on_bus_5, on_bus_6, on_bus_7};

static bool is_ours(const struct sigaction *action)
{
	for (unsigned i = 0; i < LEVELS; i++)
		if (action->sa_flags & SA_SIGINFO && action->sa_sigaction == entries[i])
			return true;
	return false;
}

static bool same(const struct sigaction *a, const struct sigaction *b)
{
	return a->sa_flags == b->sa_flags && a->sa_sigaction == b->sa_sigaction;
}

void arb_fault_keep(void)
{
	struct sigaction now, ours = {0};
	int saved = errno;
	unsigned i = 0;

	if (arb_os_hooks || !arb_cas32_full(&installing, 0, 1))
		return;
	if (sigaction(SIGBUS, NULL, &now) == 0 && !is_ours(&now)) {
		while (i < LEVELS && arb_load32(&levels[i].taken) && !same(&levels[i].before, &now))
			i++;
		if (i < LEVELS) {
			levels[i].before = now;
			arb_store32_release(&levels[i].taken, 1);
			ours.sa_sigaction = entries[i];
			ours.sa_mask = now.sa_mask;
			ours.sa_flags = SA_SIGINFO | SA_ONSTACK;
			/* A handler of the program runs as it asked to, on the stack that it asked for. */
			if (now.sa_flags & SA_SIGINFO ||
				(now.sa_handler != SIG_DFL && now.sa_handler != SIG_IGN))
				ours.sa_flags =
					SA_SIGINFO | (now.sa_flags & (SA_ONSTACK | SA_NODEFER | SA_RESTART));
			sigaction(SIGBUS, &ours, NULL);
		}
	}
	arb_store32_release(&installing, 0);
	errno = saved;
}

uint32_t arb_fault_guard(void *base, size_t size)
{
	if (arb_os_hooks)
		return 0;
	for (uint32_t i = 0; i < GUARDS; i++) {
		struct guard *g = &guards[i];

		if (arb_load32(&g->taken) || !arb_cas32_full(&g->taken, 0, 1))
			continue;
		arb_store32(&g->lost, 0);
		arb_store64(&g->size, size);
		arb_store64_release(&g->base, (uintptr_t)base);
		arb_fault_keep();
		return i + 1;
	}
	return 0;
}

void arb_fault_unguard(uint32_t guard)
{
	if (!guard || guard > GUARDS)
		return;
	arb_store64_release(&guards[guard - 1].base, 0);
	arb_store32_release(&guards[guard - 1].taken, 0);
}

bool arb_fault_lost(uint32_t guard)
{
	return guard && guard <= GUARDS && arb_load32_acquire(&guards[guard - 1].lost);
}

/* Changes the mask by the system call, because the C library's function has moved from one library to another. */
static bool change_mask(int how)
{
	uint64_t bus = 1ull << (SIGBUS - 1), before = 0;
	int saved = errno;

	syscall(SYS_rt_sigprocmask, how, how == SIG_SETMASK ? NULL : &bus, &before, KERNEL_SIGSET);
	errno = saved;
	return before & bus;
}

void arb_fault_ask(void)
{
	arb_fault_blocks = !arb_os_hooks && change_mask(SIG_SETMASK) ? 1 : -1;
}

void arb_fault_mask(bool block)
{
	change_mask(block ? SIG_BLOCK : SIG_UNBLOCK);
}

void arb_fault_let(void)
{
	if (arb_os_hooks)
		return;
	change_mask(SIG_UNBLOCK);
	arb_fault_blocks = -1;
}
