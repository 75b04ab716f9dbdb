/* What a test may have the forwarding driver do (preload_forward.c). */
#ifndef TEST_PRELOAD_FORWARD_H
#define TEST_PRELOAD_FORWARD_H

#include <pthread.h>

struct forward_control {
	pthread_t mine; /* who is not held */
	unsigned
		armed; /* 1: the first other thread that asks about an event stays in the driver until it is 0, for 3 s at most */
	unsigned held;      /* somebody does */
	unsigned destroyed; /* streams and contexts */
};

struct forward_control *forward_control(void);

#endif
