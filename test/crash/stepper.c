#include "test/crash/stepper.h"

#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#define RIP           offsetof(struct user_regs_struct, rip)
#define CHILD_SECONDS 120

extern const char stepper_begin_at[], stepper_end_at[];

__attribute__((noinline, noclone)) void stepper_begin(void)
{
	__asm__ volatile(".globl stepper_begin_at\nstepper_begin_at: int3" ::: "memory");
}

__attribute__((noinline, noclone)) void stepper_end(void)
{
	__asm__ volatile(".globl stepper_end_at\nstepper_end_at: int3" ::: "memory");
}

static uint64_t rip_of(pid_t child)
{
	return (uint64_t)ptrace(PTRACE_PEEKUSER, child, RIP, NULL);
}

/* Resumes the child and waits until it stops. Returns whether it stopped by a trap. */
static bool resume(pid_t child, int how)
{
	int status;

	if (ptrace(how, child, NULL, NULL) != 0)
		return false;
	while (waitpid(child, &status, 0) < 0)
		if (errno != EINTR)
			return false;
	return WIFSTOPPED(status) && WSTOPSIG(status) == SIGTRAP;
}

pid_t stepper_spawn(void (*body)(void *argument), void *argument)
{
	pid_t child = fork();
	int status;

	if (child == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		signal(SIGALRM, SIG_DFL);
		alarm(CHILD_SECONDS);
		if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0)
			_exit(97);
		body(argument);
		_exit(0);
	}
	if (child < 0)
		return -1;
	while (waitpid(child, &status, 0) < 0)
		if (errno != EINTR)
			return -1;
	if (!WIFSTOPPED(status))
		return -1;
	if (WSTOPSIG(status) != SIGTRAP || rip_of(child) != (uint64_t)(uintptr_t)stepper_begin_at + 1) {
		stepper_kill(child);
		return -1;
	}
	ptrace(PTRACE_SETOPTIONS, child, NULL, PTRACE_O_EXITKILL);
	return child;
}

static void nothing(void *argument)
{
	(void)argument;
	stepper_begin();
}

bool stepper_possible(void)
{
	pid_t child = stepper_spawn(nothing, NULL);

	return child > 0 && resume(child, PTRACE_SINGLESTEP) && stepper_kill(child);
}

static int append(struct stepper_path *path, uint64_t rip)
{
	if (path->length == path->room) {
		size_t room = path->room ? 2 * path->room : 4096;

		if (!(path->rip = realloc(path->rip, room * sizeof(*path->rip))) ||
			!(path->anchor = realloc(path->anchor, room * sizeof(*path->anchor))) ||
			!(path->turn = realloc(path->turn, room * sizeof(*path->turn))) ||
			!(path->cost = realloc(path->cost, room * sizeof(*path->cost))))
			return -ENOMEM;
		path->room = room;
	}
	path->rip[path->length++] = rip;
	return 0;
}

struct seen {
	uint64_t rip;
	uint32_t times;
};

/* Breakpoints cannot be set in the page that belongs to the kernel. */
static bool in_vdso(uint64_t rip)
{
	uint64_t vdso = getauxval(AT_SYSINFO_EHDR);

	return vdso && rip >= vdso && rip < vdso + 0x4000;
}

/* Finds the cheapest way to each boundary: a single step costs one stop, each turn that passes a breakpoint costs
 * two. */
static int plan(struct stepper_path *path)
{
	size_t size = 1;
	struct seen *table;

	while (size < 2 * path->length + 2)
		size *= 2;
	table = calloc(size, sizeof(*table));
	if (!table)
		return -ENOMEM;
	for (size_t n = 0; n < path->length; n++) {
		size_t at = (path->rip[n] * 0x9e3779b97f4a7c15ull >> 32) & (size - 1);
		uint32_t walk = n ? path->cost[n - 1] + 1 : 0, jump;

		while (table[at].rip && table[at].rip != path->rip[n])
			at = (at + 1) & (size - 1);
		table[at].rip = path->rip[n];
		jump = 2 * table[at].times + 1;
		if (n && (walk <= jump || in_vdso(path->rip[n]))) {
			path->anchor[n] = path->anchor[n - 1];
			path->turn[n] = path->turn[n - 1];
			path->cost[n] = walk;
		} else {
			path->anchor[n] = (uint32_t)n;
			path->turn[n] = table[at].times;
			path->cost[n] = n ? jump : 0;
		}
		table[at].times++;
	}
	free(table);
	return 0;
}

/* Runs to the execution number `turn` (from 0) of `address`. */
static bool run_to(pid_t child, uint64_t address, uint32_t turn)
{
	long word = ptrace(PTRACE_PEEKTEXT, child, address, NULL);
	long trap = (word & ~0xffl) | 0xcc;

	for (;; turn--) {
		if (rip_of(child) != address) {
			if (ptrace(PTRACE_POKETEXT, child, address, trap) != 0 || !resume(child, PTRACE_CONT))
				return false;
			if (rip_of(child) != address + 1)
				return false;
			ptrace(PTRACE_POKEUSER, child, RIP, address);
			ptrace(PTRACE_POKETEXT, child, address, word);
		}
		if (turn == 0)
			return true;
		if (!resume(child, PTRACE_SINGLESTEP))
			return false;
	}
}

/* Returns the address after the string instruction that the child is about to repeat, or 0 if it is at none. */
static uint64_t after_repeat(pid_t child, uint64_t rip)
{
	uint64_t code = (uint64_t)ptrace(PTRACE_PEEKTEXT, child, rip, NULL);
	uint64_t length = (code >> 8 & 0xf0) == 0x40 ? 3 : 2, what = code >> 8 * (length - 1) & 0xfe;

	/* rep movs, rep stos */
	return (code & 0xff) == 0xf3 && (what == 0xa4 || what == 0xaa) ? rip + length : 0;
}

int stepper_record(pid_t child, struct stepper_path *path, bool repeats,
	void (*each)(void *argument, size_t n), void *argument)
{
	path->length = 0;
	for (;;) {
		uint64_t rip = rip_of(child), after;

		if (append(path, rip) < 0)
			return -ENOMEM;
		each(argument, path->length - 1);
		if (rip == (uint64_t)(uintptr_t)stepper_end_at)
			break;
		after = repeats ? 0 : after_repeat(child, rip);
		if (after ? !run_to(child, after, 0) : !resume(child, PTRACE_SINGLESTEP))
			return -ECHILD;
	}
	/* The end has an entry too, so that it can be reached like any boundary. */
	if (plan(path) < 0)
		return -ENOMEM;
	path->length--;
	return 0;
}

uint64_t stepper_walk(pid_t child, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (rip_of(child) == (uint64_t)(uintptr_t)stepper_end_at || !resume(child, PTRACE_SINGLESTEP))
			return 0;
	return rip_of(child);
}

uint64_t stepper_go(pid_t child, const struct stepper_path *path, size_t n)
{
	size_t anchor = path->anchor[n];

	/* There is a trap at the end already. */
	if (anchor && path->rip[anchor] == (uint64_t)(uintptr_t)stepper_end_at) {
		if (!resume(child, PTRACE_CONT))
			return 0;
		return path->rip[anchor];
	}
	if (anchor && !run_to(child, path->rip[anchor], path->turn[n]))
		return 0;
	return stepper_walk(child, n - anchor);
}

bool stepper_finish(pid_t child)
{
	return rip_of(child) == (uint64_t)(uintptr_t)stepper_end_at || resume(child, PTRACE_CONT);
}

void stepper_release(pid_t child)
{
	ptrace(PTRACE_CONT, child, NULL, NULL);
}

bool stepper_kill(pid_t child)
{
	int status;

	kill(child, SIGKILL);
	do
		while (waitpid(child, &status, __WALL) < 0)
			if (errno != EINTR)
				return false;
	while (!WIFEXITED(status) && !WIFSIGNALED(status));
	return WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
}

void stepper_free(struct stepper_path *path)
{
	free(path->rip);
	free(path->anchor);
	free(path->turn);
	free(path->cost);
	memset(path, 0, sizeof(*path));
}

static int first_object(struct dl_phdr_info *info, size_t size, void *argument)
{
	(void)size;
	*(uint64_t *)argument = info->dlpi_addr;
	return 1;
}

/* Looks into our own symbol table, because most functions are not dynamic symbols. */
static bool own_symbol(uint64_t address, char *text, size_t size)
{
	static const char *image;
	static uint64_t base;
	const Elf64_Ehdr *header;
	const Elf64_Shdr *sections;

	if (!image) {
		struct stat st;
		int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);

		dl_iterate_phdr(first_object, &base);
		if (fd < 0 || fstat(fd, &st) != 0)
			return false;
		image = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
		close(fd);
		if (image == MAP_FAILED) {
			image = NULL;
			return false;
		}
	}
	header = (const Elf64_Ehdr *)image;
	sections = (const Elf64_Shdr *)(image + header->e_shoff);
	for (int i = 0; i < header->e_shnum; i++) {
		const Elf64_Sym *symbols = (const Elf64_Sym *)(image + sections[i].sh_offset);
		const char *names;

		if (sections[i].sh_type != SHT_SYMTAB)
			continue;
		names = image + sections[sections[i].sh_link].sh_offset;
		for (size_t s = 0; s < sections[i].sh_size / sizeof(*symbols); s++)
			if (ELF64_ST_TYPE(symbols[s].st_info) == STT_FUNC &&
				address - base - symbols[s].st_value < symbols[s].st_size) {
				snprintf(text, size, "%s+0x%llx", names + symbols[s].st_name,
					(unsigned long long)(address - base - symbols[s].st_value));
				return true;
			}
	}
	return false;
}

void stepper_name(uint64_t address, char *text, size_t size)
{
	Dl_info info;

	if (own_symbol(address, text, size))
		return;
	if (dladdr((void *)(uintptr_t)address, &info) && info.dli_sname)
		snprintf(text, size, "%s+0x%llx", info.dli_sname,
			(unsigned long long)(address - (uint64_t)(uintptr_t)info.dli_saddr));
	else
		snprintf(text, size, "%#llx", (unsigned long long)address);
}
