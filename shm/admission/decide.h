/*
 * May a task have a lease? The decision as arithmetic: what is known goes in, what is to be done comes out. Nothing
 * here reads a clock or shared memory, and nothing is written: admission.c gathers, and carries out.
 */
#ifndef ARB_DECIDE_H
#define ARB_DECIDE_H

#include <stdbool.h>
#include <stdint.h>

#include "gpuarb/abi.h"

#include "shm/segment/usage.h"

/* A usage by the busy clock that cannot be told. */
#define ARB_DECIDE_UNKNOWN (-1)

struct arb_decide_pressure {
	bool high; /* the GPU is under pressure */
	bool note; /* the state is another than the sample's word says: publish it, so that the next look starts there */
	bool over; /* this ends the pressure: clients that wait for it look again */
};

/* The pressure by a sample and, where that is too old, by the busy clock: hundredths of a percent, or
 * ARB_DECIDE_UNKNOWN, which counts as pressure. */
struct arb_decide_pressure arb_decide_pressure(const struct arb_usage *sample, int busy);

/* A task that asks, and what it meets. */
struct arb_decide_case {
	uint32_t want;    /* as in its slot's adm_want */
	unsigned ahead;   /* how many wait that go before it, and would fit */
	bool high;        /* the GPU is under pressure */
	bool leases;      /* a lease is held */
	unsigned highest; /* the highest priority that a class has */
};

/* Returns whether the task would fit, whatever waits before it. A task that its own quota or memory blocks does not.
 */
bool arb_decide_fits(const struct arb_decide_case *c);

/* ARB_REASON_NONE: it may go as far as classes and pressure are concerned; ARB_REASON_QUEUE: others go first;
 * ARB_REASON_PRESSURE. What blocked it before does not count: it asks anew. */
uint32_t arb_decide(const struct arb_decide_case *c);

#endif
