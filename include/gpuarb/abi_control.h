/* The layout of the control segment: settings, limits and classes (CONTROL_PUBLISH, see abi.h). */
#ifndef GPUARB_ABI_CONTROL_H
#define GPUARB_ABI_CONTROL_H

#include "gpuarb/abi_words.h"

/* The limits that an administrator set for an account, by its name: they exist before the account does, and after
 * it. */
struct arb_limit {
	arb_u64 name[ARB_NAME_WORDS];
	arb_u64 core_pct;    /* 1..100, 0: not set */
	arb_u64 mem_bytes;   /* valid if ARB_LIMIT_MEM is in set */
	arb_u64 priority;    /* valid if ARB_LIMIT_PRIORITY is in set */
	arb_u64 set;         /* ARB_LIMIT_* */
	arb_u64 request_pct; /* valid if ARB_LIMIT_REQUEST is in set */
	arb_u64 weight;      /* valid if ARB_LIMIT_WEIGHT is in set */
	arb_u64 members
		[ARB_MEMBERS]; /* valid if ARB_LIMIT_MEMBERS is in set: users and groups that may join (shm/base/members.h); -1: none */
	arb_u64 pad[2];
} __attribute__((aligned(ARB_LINE)));

/* A class of tasks. A place without a name is free; an index belongs to a class as long as the class exists. */
struct arb_class {
	arb_u64 name[ARB_CLASS_WORDS];
	arb_u64 priority; /* 1..100, higher goes first */
	arb_u64 flags;    /* ARB_CLASS_* */
	arb_u64 max_wait_ms;
	arb_u64 queue_limit; /* processes of this class that may wait; 0: any number */
} __attribute__((aligned(ARB_LINE)));

#define ARB_CLASS_SKIP 1u /* never waits */
#define ARB_CLASS_PASS 2u /* goes under pressure too */

#define ARB_LIMIT_CORE     1u
#define ARB_LIMIT_MEM      2u
#define ARB_LIMIT_PRIORITY 4u
#define ARB_LIMIT_REQUEST  8u
#define ARB_LIMIT_WEIGHT   16u
#define ARB_LIMIT_MEMBERS  32u

struct arb_control_copy {
	arb_u64 value[ARB_KEYS_MAX]; /* by key, as in include/gpuarb/keys.def */
	arb_u64 nlimits;
	arb_u64 pad[7];
	struct arb_limit limit[ARB_CONTROL_LIMITS];
	struct arb_class classes[ARB_CLASSES];
} __attribute__((aligned(ARB_LINE)));

/* Written by an administrator who holds byte 0; clients map it read-only. */
struct arb_control {
	uint64_t magic;
	uint32_t version;
	uint32_t pad1;
	uint64_t fingerprint;
	uint64_t size;
	char uuid[ARB_UUID_BYTES];
	/* The time, in ns, since which an administrator writes although a user who may only read holds byte 0; 0:
	 * none does. By CAS; an administrator that dies leaves a time, which counts for a second. */
	arb_u64 writer_ns;
	uint8_t pad0[24];
	arb_u64 head __attribute__((aligned(ARB_LINE))); /* epoch << 1 | copy (CONTROL_PUBLISH) */
	struct arb_control_copy copy[2] __attribute__((aligned(4096)));
};

#endif
