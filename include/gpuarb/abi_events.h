/* The event ring of the state segment (abi.h): its layout, and what the numbers in it mean. */
#ifndef GPUARB_ABI_EVENTS_H
#define GPUARB_ABI_EVENTS_H

#include "gpuarb/abi_words.h"

/* What happened. Each is written once; an event that repeats quickly is written once a second, with the number of
 * times. */
enum arb_event_kind {
	ARB_EVENT_NONE = 0,
	ARB_EVENT_JOINED,            /* a: pid; b: uid */
	ARB_EVENT_LEFT,              /* a: ticks it had used; b: bytes freed */
	ARB_EVENT_RECLAIMED,         /* a: ticks it had used; b: bytes freed */
	ARB_EVENT_THROTTLED,         /* a: ticks used in the window; b: until, ns */
	ARB_EVENT_RESUMED,           /* a: ns it had waited; b: enum arb_reason, why it does not run now */
	ARB_EVENT_EVICTED,           /* a: ns without a heartbeat */
	ARB_EVENT_RETURNED,          /* an evicted client came back */
	ARB_EVENT_WAIT_TIMEOUT,      /* a: ns it had waited; b: enum arb_reason */
	ARB_EVENT_LIMIT_CHANGED,     /* a: old ppm; b: new ppm */
	ARB_EVENT_MEM_LIMIT_CHANGED, /* a: old bytes; b: new bytes; 0: none */
	ARB_EVENT_MEM_REFUSED,       /* a: bytes wanted; b: the bound; c: counted; why: enum arb_refusal */
	ARB_EVENT_MEM_DRIVER,        /* the driver refused. a: bytes wanted; b: quota; c: used */
	ARB_EVENT_TURN_BEGAN,        /* at the GPU's memory. a: its bytes; b: ns it had waited */
	ARB_EVENT_TURN_ENDED,        /* a: its bytes; b: ns; c: when, ns; why: enum arb_turn_end */
	ARB_EVENT_PRESSURE,      /* a: hundredths of a percent; b: the line; why: 1 HIGH_PRESSURE, 0 NORMAL */
	ARB_EVENT_LEASE_SKIPPED, /* a: class; why: enum arb_reason */
	ARB_EVENT_LEASE_TIMEOUT, /* a: class; b: ns it had waited; why: enum arb_reason */
	ARB_EVENT_AUTO, /* the policy auto. a: sum of the limits, ppm; why: 1 one at a time, 0 all at once */
	ARB_EVENT_WINDOW,     /* a: new length in ns; b: the old one */
	ARB_EVENT_ALTERNATES, /* the GPU serves its processes one after the other. a: ns for which that counts */
	ARB_EVENT_CORRUPT,    /* a process found garbage; a: which check */
	ARB_EVENT_CROWDED, /* could not join. a: slots that its owner has; b: slots_per_user; c: its user */
	/* Words that somebody else wrote over were put right; why: ARB_RESTORED_*. a: 0: a client's own; 1: those of an
	 * account that nobody uses, by the watchdog or by a client that joined it (no slot) */
	ARB_EVENT_RESTORED,
	ARB_EVENT_EMPTIED, /* the account's last member is gone. a: ticks used by all; b: ticks owed; c: the head of its record */
	ARB_EVENT_COUNT
};

/* The bound that an allocation would have exceeded. */
enum arb_refusal {
	ARB_REFUSAL_NONE = 0,
	ARB_REFUSAL_QUOTA,  /* the account's */
	ARB_REFUSAL_SINGLE, /* the most that one client may have of the GPU: single_oversub is off */
	ARB_REFUSAL_SIZE,   /* the largest number of bytes that can be counted */
	ARB_REFUSAL_COUNT
};

/* The words that a client found written over. */
#define ARB_RESTORED_BILL   1u  /* acc, total, weight, base */
#define ARB_RESTORED_ASKED  2u  /* the limits that it asks for */
#define ARB_RESTORED_MEMORY 4u  /* the bytes that it holds */
#define ARB_RESTORED_SLOT   8u  /* state, generation, account */
#define ARB_RESTORED_RECORD 16u /* its account's record: caps, usage, members, memory */
#define ARB_RESTORED_ENTRY                                                                                   \
	32u /* its account's name and owner, that it is one of those in use, the segment's kind and size */
#define ARB_RESTORED_PLACE  64u  /* its place in the running set */
#define ARB_RESTORED_CLOCKS 128u /* the clocks and the window of the running set */
/* Their names for people. */
#define ARB_RESTORED_LIST(X)                                                                                 \
	X(BILL, "its bill")                                                                                  \
	X(ASKED, "the limits that it asks for")                                                              \
	X(MEMORY, "the memory that it holds")                                                                \
	X(SLOT, "its slot")                                                                                  \
	X(RECORD, "its account's record")                                                                    \
	X(ENTRY, "its account's entry or the segment's header")                                              \
	X(PLACE, "its place in the running set")                                                             \
	X(CLOCKS, "the clocks")

enum arb_turn_end {
	ARB_TURN_OVER, /* its time was over, and others waited */
	ARB_TURN_IDLE, /* it had no work for switch_idle_ms */
};

/*
 * A place in the event ring. seq is 2 * position + 1 while it is written and 2 * position + 2 after
 * (EVENT_PUBLISH); check covers seq and the fields, so that an entry that two writers filled at once, or
 * that a dead one left half-way, is recognised and skipped.
 */
struct arb_event {
	arb_u64 seq;
	arb_u64 time_ns;
	arb_u64 what;    /* kind | slot << 16 | generation << 32 */
	arb_u64 account; /* index | why << 16 | times << 32; the index ARB_EVENT_GPU: of the GPU as a whole */
	arb_u64 a, b, c;
	arb_u64 check;
} __attribute__((aligned(ARB_LINE)));

#define ARB_EVENT_GPU 0xffffu

#endif
