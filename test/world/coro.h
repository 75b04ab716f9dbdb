/* Stacks and the switch between them. */
#ifndef WORLD_CORO_H
#define WORLD_CORO_H

#include <stddef.h>

/* A stack with a guard page below it; those that are given back are used again. */
void *coro_stack(void);
void coro_give_back(void *stack);
/* Where a new one begins: its first switch calls `body`, which must not return. */
void *coro_prepare(void *stack, void (*body)(void));
/* Leaves this coroutine, which goes on when another switches back to *from. */
void coro_switch(void **from, void *to);

#endif
