/* The words and sizes of which the layouts of both segments are made (abi.h). */
#ifndef GPUARB_ABI_WORDS_H
#define GPUARB_ABI_WORDS_H

#include <stdint.h>

/* A word that two processes see. A struct, so that a plain assignment does not compile. */
typedef struct {
	uint32_t v;
} arb_u32;

typedef struct {
	uint64_t v;
} arb_u64;

#define ARB_LINE           64
#define ARB_SLOTS_MIN      2u
#define ARB_SLOTS_MAX      1024u
#define ARB_SLOTS_DEFAULT  256u
#define ARB_WORDS          (ARB_SLOTS_MAX / 64) /* of a bitmap over all slots */
#define ARB_EVENTS         4096u
#define ARB_KEYS_MAX       64 /* room for settings in the control segment */
#define ARB_CONTROL_LIMITS 1024u
#define ARB_NAME_WORDS     8 /* an account's name: 63 bytes and a NUL */
#define ARB_NAME_BYTES     (8 * ARB_NAME_WORDS)
#define ARB_COMMAND_WORDS  16 /* a process's command: 127 bytes and a NUL */
#define ARB_COMMAND_BYTES  (8 * ARB_COMMAND_WORDS)
#define ARB_CLASSES        32u /* task classes; the first is "default" */
#define ARB_CLASS_WORDS    4   /* a class's name: 31 bytes and a NUL */
#define ARB_CLASS_BYTES    (8 * ARB_CLASS_WORDS)
#define ARB_UUID_BYTES     64
#define ARB_MEMBERS        8u  /* users and groups that may join an account besides its owner */
#define ARB_MEMBERS_BYTES  160 /* all of them as text */

/* Time inside the segment is counted in ticks of 1/16 ns (36 years in 64 bits), and a weight of one is
 * 256: so the remainder of V's division, which waits in T, is 16 ns for each client that runs. */
#define ARB_TICKS_PER_NS 16u
#define ARB_WEIGHT_ONE   256u

/* A head word: {sequence : 52, index : 11, buffer : 1}. The index is a slot, or ARB_HOME. */
#define ARB_HEAD_BUFFER_BITS 1
#define ARB_HEAD_INDEX_BITS  11
#define ARB_HEAD_SEQ_SHIFT   (ARB_HEAD_BUFFER_BITS + ARB_HEAD_INDEX_BITS)
#define ARB_HOME             2047u
#define ARB_NONE             0xffffffffu

#endif
