#include "shm/base/self.h"

struct arb_self_state arb_self;
