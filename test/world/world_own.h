/* Replaces preload/process/own.h, before which it is included: each simulated process and thread has a state of its
 * own. */
#ifndef PRELOAD_OWN_H
#define PRELOAD_OWN_H

#include "preload/process/process.h"

extern struct arb_process *world_own;
extern struct arb_thread *world_mine;
#define arb_own  (*world_own)
#define arb_mine (*world_mine)

#endif
