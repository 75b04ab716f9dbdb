/* What a file keeps about its process is not true in a forked child: there it begins anew. */
#ifndef ARB_FORKS_H
#define ARB_FORKS_H

#include <pthread.h>

/* Defines watch(), which has every forked child call child(); however often it is called, child() is called once. */
#define ARB_FORKS_WATCH(watch, child)                                                                        \
	static void watch##_once(void)                                                                       \
	{                                                                                                    \
		pthread_atfork(NULL, NULL, child);                                                           \
	}                                                                                                    \
	void watch(void)                                                                                     \
	{                                                                                                    \
		static pthread_once_t once = PTHREAD_ONCE_INIT;                                              \
                                                                                                             \
		pthread_once(&once, watch##_once);                                                           \
	}

#endif
