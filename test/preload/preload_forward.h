/* How a test controls the forwarding driver (preload_forward.c). */
#ifndef TEST_PRELOAD_FORWARD_H
#define TEST_PRELOAD_FORWARD_H

#include <pthread.h>

struct forward_control {
	pthread_t mine; /* the thread that is not held */
	unsigned
		armed; /* 1: the first other thread that asks about an event stays in the driver until it is 0, for 3 s at most */
	unsigned held;      /* a thread stays in the driver */
	unsigned destroyed; /* how many streams and contexts were destroyed */
};

struct forward_control *forward_control(void);

#endif
