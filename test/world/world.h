/*
 * The world: many processes simulated in one, on a clock that jumps, by a seed. This is what its parts see of
 * each other: the scheduler (sched.c) with its threads and processes, chance, the record of decisions.
 *
 * Exactly one thread runs at a time. It runs until it asks for something that takes time (world_spend), or
 * sleeps, or ends; the next one is whoever is due first, and of several that are due at the same nanosecond the
 * seed decides. So a world is the same to the last instruction whenever its seed is.
 *
 * Where the weather allows it (ahead_ns), a thread goes on although threads of other processes are due, until it
 * comes to something that others could see or have changed (world_meet): most of what a program does is its own.
 * What it submits to the GPU meanwhile is dated, and the model begins it no sooner. Threads of one process never see
 * a time before one that another of them has seen.
 */
#ifndef WORLD_H
#define WORLD_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "test/world/own.h"
#include "test/world/self.h"

#define WORLD_US 1000ull
#define WORLD_MS 1000000ull
#define WORLD_S  1000000000ull

/* Chance. Each part draws from a stream of its own, so that one more draw here changes nothing there. */
struct world_chance {
	uint64_t s[4];
};
void world_chance_seed(struct world_chance *c, uint64_t seed);
uint64_t world_chance_next(struct world_chance *c);
/* 0 .. n - 1; n > 0. */
uint64_t world_chance_below(struct world_chance *c, uint64_t n);
/* True once in n; never if n is 0. */
bool world_chance_once_in(struct world_chance *c, uint64_t n);
/* One of n numbers. */
uint64_t world_chance_pick(struct world_chance *c, const uint64_t *list, unsigned n);
/* Draws from an exponential distribution with this mean, in whole numbers, by a table: the same on every machine. */
uint64_t world_chance_exp(struct world_chance *c, uint64_t mean);

/* What was decided, for the record. */
enum world_what {
	WORLD_RUNS,      /* a thread goes on */
	WORLD_HELD_UP,   /* it is taken off its processor, for this long */
	WORLD_SLEEPS,    /* until then */
	WORLD_WAITS,     /* on a word */
	WORLD_WAKES,     /* how many threads wait on a word */
	WORLD_STARTS,    /* a thread */
	WORLD_ENDS,      /* a thread */
	WORLD_EXITS,     /* a process */
	WORLD_IS_KILLED, /* a process */
	WORLD_IS_STOPPED,
	WORLD_GOES_ON,
	WORLD_LOCKS,   /* a byte */
	WORLD_UNLOCKS, /* a byte */
	WORLD_DOES,    /* an operation of a script */
	WORLD_FAULT,
};

enum world_state { THREAD_READY, THREAD_WAITING, THREAD_GONE };

struct world_thread {
	struct world_process *process;
	unsigned number; /* in the world */
	enum world_state state;
	uint64_t at_ns;  /* when it runs next */
	unsigned place;  /* in the heap, + 1; 0: in none */
	uint32_t points; /* until it may be taken off its processor */
	bool held_up;    /* it is, in the midst of something */
	bool timed_out, woken;
	/* The word that it waits on. */
	const uint32_t *word;
	uint32_t value;
	uint64_t since_ns, changed_ns; /* that it waits; that the word was first seen to be another */
	struct world_thread *next_waiting;
	uint64_t cpu_ns;
	uint64_t mutexes; /* that it has */
	void *stack, *sp;
	void *(*body)(void *);
	void *argument, *result;
	uint32_t ended;            /* 1; a thread that joins it waits on this */
	struct world_thread *next; /* of its process */
	struct arb_thread mine;
	void *keys[16];
	unsigned char tls[2048]; /* the simulated driver's */
	const char *name;
};

struct world_process {
	unsigned number;
	bool alive, doomed, stopped;
	uint64_t continue_ns, ended_ns, pauses_ns;
	uint64_t reached_ns; /* the latest time that one of its threads has seen */
	struct world_thread *threads, *first;
	struct arb_self_state self;
	struct arb_process *own;
	unsigned char *image; /* the simulated driver's state */
	void (*at_exit[8])(void);
	unsigned nat_exit;
	const char *const *environment; /* NAME, value, NAME, value, NULL */
	void *script;
};

/* How unkind this world is: all of it drawn from the seed, or quiet. */
struct world_weather {
	uint32_t point_mean;   /* points between two interruptions; 0: none */
	uint64_t interrupt_ns; /* how long, on average */
	uint32_t preempt_in;   /* one of this many is long; 0: none */
	uint64_t preempt_ns;   /* on average */
	uint64_t late_ns;      /* how late a wake-up is, on average */
	uint32_t very_late_in; /* one of this many is late by 5 ms; 0: none */
	uint64_t clock_ns;     /* reading the clock */
	uint64_t call_ns;      /* a system call */
	uint64_t wake_ns;      /* the processor's time that a sleep costs its thread; no time passes for it */
	uint64_t ahead_ns;     /* how far a thread may go on past others that are due, where nobody sees it */
};

/* When a thread is due; of several at one time the thread with the lowest tie is first. */
struct world_due {
	uint64_t at_ns, tie;
	struct world_thread *thread;
};

struct world {
	uint64_t now_ns, start_ns, seed;
	uint64_t clear_ns; /* until then the thread that runs meets nobody; 0: to be found out */
	uint64_t step_ns;  /* when the thread that runs was let run: nobody is due before */
	uint64_t step;     /* times that a thread was let run */
	uint64_t hash;
	struct world_weather weather;
	struct world_thread *current;
	struct world_due *heap;
	unsigned nheap, room;
	bool hole; /* the first place is free, for the thread that runs: mostly it is due again soon */
	uint64_t behind_ns; /* while it is: when the first of the others is due; UINT64_MAX: nobody is */
	struct world_thread **threads;             /* of processes that live */
	unsigned nthreads, threads_room, numbered; /* numbered: all ever made, also those that are gone */
	unsigned ended;                            /* processes whose threads are still listed */
	struct world_process **processes;
	unsigned nprocesses, processes_room;
	struct world_chance chance;   /* the scheduler's */
	struct world_chance programs; /* scripts and faults */
	uint64_t kills, last_death_ns;
	uint64_t pauses_ns; /* that threads were held up, and processes stopped, in all */
	uint64_t looked_ns; /* when the last step was checked */
	bool touched; /* the thread that ran last came to a scheduling point: it may have changed what others see */
	bool failed;
	char failure[1024];
	uint64_t until_step; /* stop there; 0: nowhere */
};

extern struct world world;

/* The weather of an idle machine, and of a virtual one whose host takes its time away. */
void world_quiet(void);
void world_robbed(void);

/* From an empty world to its first thread. */
void world_begin(uint64_t seed);
void world_end(void);

struct world_process *world_process_new(const char *const *environment);
/* A thread that is due at `at_ns`. */
struct world_thread *world_thread_new(
	struct world_process *p, const char *name, uint64_t at_ns, void *(*body)(void *), void *argument);
/* Runs until nobody is due before `until_ns`, `done` says so, or something was found. After each step
 * `check` is called. */
void world_run(uint64_t until_ns, void (*check)(void));

/* By the running thread. */
void world_spend_slowly(uint64_t ns);
static inline void world_spend(uint64_t ns)
{
	if (world.now_ns + ns >= world.clear_ns) {
		world_spend_slowly(ns);
		return;
	}
	world.now_ns += ns;
	world.current->cpu_ns += ns;
}
/* Lets threads that are due before go first: called before anything that other processes see, or can change. */
void world_meet(void);
/* It has gone on past the time at which others are due; and the points that it has left besides. */
extern bool world_ahead;
extern uint32_t world_points_kept;
void world_sleep_until(uint64_t at_ns);
void world_sleep(uint64_t ns);
/* 0: woken, or the word is not `value`; -ETIMEDOUT. until_ns UINT64_MAX: for ever. */
int world_wait(const uint32_t *word, uint32_t value, uint64_t until_ns);
/* How many were woken; most 0: all. */
unsigned world_wake(const uint32_t *word, unsigned most);
void world_thread_exit(void *result) __attribute__((noreturn));
/* Ends the process as exit() does, without the functions that are called before. */
void world_process_exit(void) __attribute__((noreturn));
void world_interrupt(void);
void world_keys_end(void);
/* The end of a program: its exit handlers, then the process. */
void world_exit(void) __attribute__((noreturn));

/* Called by any thread. The victim goes no further, wherever it is. */
void world_kill(struct world_process *p);
/* Lets it go on for `points` more points. */
void world_doom(struct world_process *p, uint32_t points);
void world_stop(struct world_process *p, uint64_t ns);

/* Processor time of this program, in seconds: what virtual time is compared with. */
double world_cpu_s(void);

/* Returns how late a thread that is woken now will wake up. */
uint64_t world_lateness(void);

/* The record. */
void world_note(enum world_what what, uint64_t a, uint64_t b);
void world_does(const char *what, uint64_t a, uint64_t b);
void world_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
void world_trace_to(const char *path);
/* Every world says its hash when it ends. */
extern bool world_hashes;
void world_tell(void);

/* Memory of the world's processes: gone with the world (arena.c). */
void *world_alloc(size_t size);
void *world_alloc_aligned(size_t alignment, size_t size);
void world_free(void *p);
void *world_resize(void *p, size_t size);
bool world_owns(const void *p);
void world_arena_reset(void);
void world_unmap_all(void);

/* The kernel (kernel.c). */
void world_kernel_begin(void);
void world_kernel_end(void);
void world_kernel_ended(struct world_process *p); /* its descriptors and locks go */
/* The child has what its parent has open, and none of its mappings of locks. */
void world_kernel_forked(struct world_process *parent, struct world_process *child);
int world_unlink(const char *path);
void *world_file(const char *path, size_t *size);
/* Does anybody hold this byte of a file? */
bool world_is_locked(const char *path, uint64_t byte);
/* Grows with every file that gets a name or loses it. */
uint64_t world_files(void);

/* Small files that are replaced as a whole (texts.c); NULL: it goes. */
void world_text(const char *path, const char *text);
int world_text_open(const char *path);
long world_text_read(int fd, void *buffer, size_t size);
bool world_text_close(int fd);
void world_texts_end(void);

/* Has the thread that runs this mutex? */
bool world_mutex_is_mine(const pthread_mutex_t *mutex);

/* fork(): the handlers of the library, and a child of the calling thread's process, or of another's, that runs
 * `body`. Its memory is its parent's: what it may write to is its own business (libc.c). */
struct world_process *world_fork(
	struct world_process *parent, const char *name, void *(*body)(void *), void *argument);

/* gpuarb_acquire and gpuarb_release of a program (leases.c). */
struct gpuarb_request;
struct gpuarb_lease;
int world_acquire(const char *gpu, const struct gpuarb_request *request, struct gpuarb_lease *lease);
int world_release(struct gpuarb_lease *lease);

#endif
