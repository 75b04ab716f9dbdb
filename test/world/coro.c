#include "test/world/coro.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#define STACK_BYTES (320u << 10)
#define GUARD_BYTES 4096u
/* Stacks begin at 64 different places of their pages, 17 cache lines apart: otherwise the tops of all stacks would
 * compete for a few lines of the caches, and every switch would miss. */
#define COLOURS      64u
#define COLOUR_BYTES 1088u

static void **unused;
static size_t nunused, room;

void *__real_mmap(void *address, size_t size, int protection, int flags, int fd, off_t offset);
void *__real_realloc(void *p, size_t size);

void *coro_stack(void)
{
	char *base;

	if (nunused)
		return unused[--nunused];
	base = __real_mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
	if (base == MAP_FAILED || mprotect(base, GUARD_BYTES, PROT_NONE) != 0) {
		perror("world: a stack");
		exit(2);
	}
	return base;
}

void coro_give_back(void *stack)
{
	if (nunused == room) {
		room = room ? 2 * room : 64;
		unused = __real_realloc(unused, room * sizeof(*unused));
		if (!unused)
			exit(2);
	}
	unused[nunused++] = stack;
}

static void *top(void *stack)
{
	return (char *)stack + STACK_BYTES - (uintptr_t)stack / STACK_BYTES % COLOURS * COLOUR_BYTES;
}

#if defined(__x86_64__)
__asm__(".text\n"
	".globl coro_switch\n"
	".type coro_switch, @function\n"
	"coro_switch:\n"
	"	pushq %rbp\n"
	"	pushq %rbx\n"
	"	pushq %r12\n"
	"	pushq %r13\n"
	"	pushq %r14\n"
	"	pushq %r15\n"
	"	movq %rsp, (%rdi)\n"
	"	movq %rsi, %rsp\n"
	"	popq %r15\n"
	"	popq %r14\n"
	"	popq %r13\n"
	"	popq %r12\n"
	"	popq %rbx\n"
	"	popq %rbp\n"
	"	ret\n"
	".size coro_switch, .-coro_switch\n");

void *coro_prepare(void *stack, void (*body)(void))
{
	uint64_t *sp = top(stack);

	*--sp = 0; /* as if called from nowhere, and aligned as at the entry of a function */
	*--sp = (uint64_t)(uintptr_t)body;
	for (int i = 0; i < 6; i++)
		*--sp = 0;
	return sp;
}
#elif defined(__aarch64__)
__asm__(".text\n"
	".globl coro_switch\n"
	".type coro_switch, %function\n"
	"coro_switch:\n"
	"	sub sp, sp, #160\n"
	"	stp x19, x20, [sp, #0]\n"
	"	stp x21, x22, [sp, #16]\n"
	"	stp x23, x24, [sp, #32]\n"
	"	stp x25, x26, [sp, #48]\n"
	"	stp x27, x28, [sp, #64]\n"
	"	stp x29, x30, [sp, #80]\n"
	"	stp d8, d9, [sp, #96]\n"
	"	stp d10, d11, [sp, #112]\n"
	"	stp d12, d13, [sp, #128]\n"
	"	stp d14, d15, [sp, #144]\n"
	"	mov x2, sp\n"
	"	str x2, [x0]\n"
	"	mov sp, x1\n"
	"	ldp x19, x20, [sp, #0]\n"
	"	ldp x21, x22, [sp, #16]\n"
	"	ldp x23, x24, [sp, #32]\n"
	"	ldp x25, x26, [sp, #48]\n"
	"	ldp x27, x28, [sp, #64]\n"
	"	ldp x29, x30, [sp, #80]\n"
	"	ldp d8, d9, [sp, #96]\n"
	"	ldp d10, d11, [sp, #112]\n"
	"	ldp d12, d13, [sp, #128]\n"
	"	ldp d14, d15, [sp, #144]\n"
	"	add sp, sp, #160\n"
	"	ret\n"
	".size coro_switch, .-coro_switch\n");

void *coro_prepare(void *stack, void (*body)(void))
{
	uint64_t *sp = (uint64_t *)top(stack) - 20;

	for (int i = 0; i < 20; i++)
		sp[i] = 0;
	sp[11] = (uint64_t)(uintptr_t)body;
	return sp;
}
#else
#error "the world has no switch for this machine"
#endif
