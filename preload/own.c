#include "own.h"

#include "device.h"
#include "track.h"

static struct arb_device devices[ARB_DEVICES];
static struct track tracks[ARB_DEVICES];

struct arb_process arb_own = ARB_PROCESS_INIT(devices, tracks);
__thread struct arb_thread arb_mine = {.self = &arb_own.nobody};
