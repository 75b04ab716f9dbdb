/* Stacks and the switch between them. */
#ifndef WORLD_CORO_H
#define WORLD_CORO_H

#include <stddef.h>

/* Returns a stack with a guard page below it. Stacks that are given back are used again. */
void *coro_stack(void);
void coro_give_back(void *stack);
/* Prepares a new coroutine on this stack and returns where to switch to. The first switch calls `body`, which must not
 * return. */
void *coro_prepare(void *stack, void (*body)(void));
/* Switches to `to`. The calling coroutine goes on when another switches back to *from. */
void coro_switch(void **from, void *to);

#endif
