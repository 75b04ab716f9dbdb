/*
 * A process that may write a segment may also truncate it. Then any process that touches its mapping gets SIGBUS. So
 * a process that has mapped a segment has a handler for that signal. The handler knows only our mappings: it replaces
 * one that has lost its file by memory of the process, full of zeros, and the access goes on. Every other SIGBUS is
 * handed on to the handler that was there before, with the same arguments.
 */
#ifndef ARB_FAULT_H
#define ARB_FAULT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Guards a mapping, and makes sure that the handler is there. Returns a number for the next two functions; 0: it is
 * not guarded. */
uint32_t arb_fault_guard(void *base, size_t size);
void arb_fault_unguard(uint32_t guard);
/* Has the mapping lost its file? */
bool arb_fault_lost(uint32_t guard);

/* Puts the handler in front again where the program has installed one of its own since. */
void arb_fault_keep(void);

/*
 * The kernel kills the process if a thread gets SIGBUS while it blocks this signal. All threads that touch a mapping
 * take a lock of the process. So a thread that takes such a lock lets the signal through until it releases the lock.
 * Each thread is asked once whether it blocks the signal.
 */
extern __thread int arb_fault_blocks; /* 0: not asked; -1: no; 1 + locks that it holds */
void arb_fault_ask(void);
void arb_fault_mask(bool block);
/* For threads of our own: lets the signal through for good. */
void arb_fault_let(void);

static inline void arb_fault_allow(void)
{
	if (__builtin_expect(arb_fault_blocks >= 0, 0)) {
		if (!arb_fault_blocks)
			arb_fault_ask();
		if (arb_fault_blocks > 0 && arb_fault_blocks++ == 1)
			arb_fault_mask(false);
	}
}

static inline void arb_fault_disallow(void)
{
	if (__builtin_expect(arb_fault_blocks > 1, 0) && --arb_fault_blocks == 1)
		arb_fault_mask(true);
}

#endif
