/*
 * This process's state and the calling thread's. The world (test/world), where many processes are simulated in
 * one, is compiled with a header of its own in place of this one.
 */
#ifndef PRELOAD_OWN_H
#define PRELOAD_OWN_H

#include "preload/process/process.h"

extern struct arb_process arb_own __attribute__((visibility("hidden")));
extern __thread struct arb_thread arb_mine __attribute__((visibility("hidden"), tls_model("initial-exec")));

#endif
