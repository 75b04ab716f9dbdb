/*
 * The state of this process and of the calling thread. The world (test/world) simulates many processes in one, so it is
 * compiled with another header in place of this one.
 */
#ifndef PRELOAD_OWN_H
#define PRELOAD_OWN_H

#include "preload/process/process.h"

extern struct arb_process arb_own __attribute__((visibility("hidden")));
extern __thread struct arb_thread arb_mine __attribute__((visibility("hidden"), tls_model("initial-exec")));

#endif
