#include "preload/process/own.h"

#include "preload/process/device.h"
#include "preload/memory/memory_table.h"
#include "preload/track/track.h"
#include "shm/client/watch.h"

static struct arb_device devices[ARB_DEVICES];
static struct track tracks[ARB_DEVICES];
static struct memory_stripe stripes[MEMORY_STRIPES] = {[0 ... MEMORY_STRIPES - 1] = MEMORY_STRIPE_INIT};
static struct arb_watch watch;

struct arb_process arb_own = ARB_PROCESS_INIT(devices, tracks, stripes, &watch);
__thread struct arb_thread arb_mine = {.self = &arb_own.nobody};
