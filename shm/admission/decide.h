/*
 * May a task have a lease? The decision as arithmetic: what is known goes in, what is to be done comes out. Nothing
 * here reads a clock or shared memory, and nothing is written: admission.c gathers what is known, and carries out the
 * decision.
 */
#ifndef ARB_DECIDE_H
#define ARB_DECIDE_H

#include <stdbool.h>
#include <stdint.h>

#include "gpuarb/abi.h"

#include "shm/segment/usage.h"

/* The busy clock says nothing about the usage. */
#define ARB_DECIDE_UNKNOWN (-1)

struct arb_decide_pressure {
	bool high; /* the GPU is under pressure */
	bool note; /* the state differs from the sample's word: publish it, so that the next look starts there */
	bool over; /* this ends the pressure: clients that wait for it look again */
};

/* Finds the pressure by a sample or, where that is too old, by the busy clock: hundredths of a percent, or
 * ARB_DECIDE_UNKNOWN, which counts as pressure. */
struct arb_decide_pressure arb_decide_pressure(const struct arb_usage *sample, int busy);

/* A task that asks, and what it meets. */
struct arb_decide_case {
	uint32_t want;    /* as in its slot's adm_want */
	unsigned ahead;   /* how many waiting tasks go before it, and would fit */
	bool high;        /* the GPU is under pressure */
	bool leases;      /* a lease is held */
	unsigned highest; /* the highest priority that a class has */
};

/* Returns whether the task would fit, whatever waits before it. A task that its own quota or memory blocks does not
 * fit. */
bool arb_decide_fits(const struct arb_decide_case *c);

/* Returns ARB_REASON_NONE if the task may go as far as classes and pressure are concerned, ARB_REASON_QUEUE if others
 * go first, or ARB_REASON_PRESSURE. What blocked the task before does not count, because it asks anew. */
uint32_t arb_decide(const struct arb_decide_case *c);

#endif
