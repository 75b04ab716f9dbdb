/*
 * Clients watch over each other while asleep. The clients of a GPU form a ring by their slots: each watches over the
 * next two that have a thread of their own for it. A client's words `life` and `life2` are in the robust list of that
 * thread, so the kernel itself wakes both watchers when the process dies, however it dies and whatever they are
 * doing; one of the two may be stopped. So no client has to probe others from time to time.
 */
#ifndef ARB_WATCH_H
#define ARB_WATCH_H

#include <stdbool.h>
#include <stdint.h>

#include "gpuarb/abi.h"

#include "shm/base/os.h"
#include "shm/base/wakeups.h"

struct gpuarb_client;

/* GPUs of one process that are watched: each takes three of the words that a thread can sleep on. */
#define ARB_WATCH_GPUS 42
/* The number of clients that watch over each client. */
#define ARB_WATCHERS 2

/* A neighbour: the first behind us, whose word is `life`, or the second, whose word is `life2`. */
struct arb_watched {
	uint32_t slot;     /* or ARB_NONE */
	uint64_t since_ns; /* when its death was announced; 0: it was not */
};

struct arb_watch_gpu {
	struct gpuarb_client *client;
	uint32_t joins; /* the client's, when its words were entered into the list; 0: they are not there */
	uint32_t ring;  /* the ring's word when `next` was found */
	struct arb_watched next[ARB_WATCHERS];
	uint32_t ignored, ignored_generation; /* a client that was announced dead and lives: slot + 1 */
};

/* What a thread keeps for watching; all zeros at first. */
struct arb_watch {
	struct arb_os_robust list;
	void *before;    /* the list that the C library had registered */
	uint32_t thread; /* the thread's id in its own PID namespace */
	bool unable;     /* the kernel does not offer it; the thread just sleeps */
	struct arb_wakeups wakeups;
	uint64_t
		woken_cpu_ns; /* the thread's CPU time before the sleep from which another process woke it; 0: none did */
	unsigned ngpus;
	struct arb_watch_gpu gpus[ARB_WATCH_GPUS];
};

/*
 * Sleeps on a word of this process until it changes or is woken, for `ns` at most (0: for ever), and watches
 * over the neighbours of these clients meanwhile. Returns early where a neighbour has come, gone or died;
 * the next call cleans up behind a dead one.
 */
void arb_watch_park(struct arb_watch *watch, struct gpuarb_client *const *clients, unsigned n, uint32_t *word,
	uint32_t value, uint64_t ns);

/* Does what arb_watch_park does, on a word that other processes see. */
void arb_watch_park_shared(struct arb_watch *watch, struct gpuarb_client *const *clients, unsigned n,
	arb_u32 *word, uint32_t value, uint64_t ns);

/* Is the client watched over by way of this thread, or has another one taken its place? */
bool arb_watch_stands(const struct arb_watch *watch, struct gpuarb_client *client);

/* Called before the thread ends while the process goes on. Words that another thread has taken over stay with that
 * thread. */
void arb_watch_end(struct arb_watch *watch);

#endif
