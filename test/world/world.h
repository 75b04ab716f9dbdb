/*
 * The world: many processes simulated in one, on a virtual clock, by a seed. This header is what the parts of the world
 * see of each other: the scheduler (sched.c) with its threads and processes, chance, the record of decisions.
 *
 * Exactly one thread runs at a time. It runs until it asks for something that takes time (world_spend), sleeps, or
 * ends. The thread that is due first runs next; of threads that are due at the same nanosecond the seed chooses one. So
 * the same seed makes the same world, to the last instruction.
 *
 * Where the weather allows it (ahead_ns), a thread runs ahead: it goes on although threads of other processes are due,
 * until it comes to something that they share (world_meet). That saves switches, because most of what a program does
 * concerns no other program. Work that such a thread submits to the GPU carries its time, and the model begins it no
 * sooner. The clock never goes back from one thread of a process to another.
 */
#ifndef WORLD_H
#define WORLD_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "test/world/world_own.h"
#include "test/world/world_self.h"

#define WORLD_US 1000ull
#define WORLD_MS 1000000ull
#define WORLD_S  1000000000ull

/* Random numbers. Each part of the world draws from a stream of its own, so that an additional draw in one part changes
 * no draw of another. */
struct world_chance {
	uint64_t s[4];
};
void world_chance_seed(struct world_chance *c, uint64_t seed);
uint64_t world_chance_next(struct world_chance *c);
/* Returns a number from 0 to n - 1; n > 0. */
uint64_t world_chance_below(struct world_chance *c, uint64_t n);
/* Returns true once in n times on average; never if n is 0. */
bool world_chance_once_in(struct world_chance *c, uint64_t n);
/* Returns one of the n numbers of a list. */
uint64_t world_chance_pick(struct world_chance *c, const uint64_t *list, unsigned n);
/* Draws from an exponential distribution with this mean, with integers and a table: the same on every machine. */
uint64_t world_chance_exp(struct world_chance *c, uint64_t mean);

/* Kinds of decisions, for the record. The comments say what their numbers mean. */
enum world_what {
	WORLD_RUNS,      /* a thread goes on */
	WORLD_HELD_UP,   /* a thread is taken off its processor, for this long */
	WORLD_SLEEPS,    /* a thread, until this time */
	WORLD_WAITS,     /* a thread, on this word */
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
	unsigned number; /* unique in the world */
	enum world_state state;
	uint64_t at_ns;  /* when it runs next */
	unsigned place;  /* its place in the heap, + 1; 0: it is not in the heap */
	uint32_t points; /* scheduling points left until it may be taken off its processor */
	bool held_up;    /* taken off its processor at a scheduling point */
	bool timed_out, woken;
	/* The word that it waits on, and the value that it expects there. */
	const uint32_t *word;
	uint32_t value;
	uint64_t since_ns,
		changed_ns; /* since it waits; when the word was first seen to differ from `value` */
	struct world_thread *next_waiting;
	uint64_t cpu_ns;
	uint64_t mutexes; /* how many it holds */
	void *stack, *sp;
	void *(*body)(void *);
	void *argument, *result;
	uint32_t ended;            /* 1: it has; a thread that joins it waits on this word */
	struct world_thread *next; /* the next thread of its process */
	struct arb_thread mine;
	void *keys[16];
	unsigned char tls[2048]; /* the simulated driver's thread-local data */
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

/* How unkind this world is: drawn from the seed, or quiet. Means are of exponential distributions. */
struct world_weather {
	uint32_t point_mean;   /* scheduling points between two interruptions, on average; 0: none */
	uint64_t interrupt_ns; /* how long an interruption is, on average */
	uint32_t preempt_in;   /* one of this many interruptions is long; 0: none */
	uint64_t preempt_ns;   /* how long a long interruption is, on average */
	uint64_t late_ns;      /* how late a wake-up is, on average */
	uint32_t very_late_in; /* one of this many wake-ups is late by 5 ms; 0: none */
	uint64_t clock_ns;     /* how long it takes to read the clock */
	uint64_t call_ns;      /* how long a system call takes */
	uint64_t wake_ns;  /* processor time that a sleep costs its thread; the clock does not move for it */
	uint64_t ahead_ns; /* how far a thread may run ahead of threads of other processes that are due */
};

/* When a thread is due. Of threads that are due at the same time the thread with the lowest `tie` is first. */
struct world_due {
	uint64_t at_ns, tie;
	struct world_thread *thread;
};

struct world {
	uint64_t now_ns, start_ns, seed;
	uint64_t
		clear_ns; /* until then the running thread need not look for others that are due; 0: not known */
	uint64_t step_ns; /* when this step began: no thread is due before */
	uint64_t step;    /* steps so far: a step is one run of a thread, between two switches */
	uint64_t hash;
	struct world_weather weather;
	struct world_thread *current;
	struct world_due *heap;
	unsigned nheap, room;
	bool hole; /* the heap's first place is kept for the running thread, which mostly is due again soon */
	uint64_t behind_ns; /* while it is kept: when the first other thread is due; UINT64_MAX: none is */
	struct world_thread **threads; /* of processes that live */
	unsigned nthreads, threads_room,
		numbered; /* numbered: threads made so far, with those that are gone */
	unsigned ended;   /* processes whose threads are still listed */
	struct world_process **processes;
	unsigned nprocesses, processes_room;
	struct world_chance chance;   /* the scheduler's */
	struct world_chance programs; /* for scripts and faults */
	uint64_t kills, last_death_ns;
	uint64_t pauses_ns; /* for how long threads were held up and processes stopped, added up */
	uint64_t looked_ns; /* when the last step was checked */
	bool touched; /* the thread that ran last came to a scheduling point: it may have changed shared words */
	bool failed;
	char failure[1024];
	uint64_t until_step; /* the world stops at this step; 0: at none */
};

extern struct world world;

/* Set the weather of an idle machine, and of a virtual machine whose host takes processor time away. */
void world_quiet(void);
void world_robbed(void);

/* Sets up an empty world, to which processes and threads can be added. */
void world_begin(uint64_t seed);
void world_end(void);

struct world_process *world_process_new(const char *const *environment);
/* Makes a thread that is due at `at_ns`. */
struct world_thread *world_thread_new(
	struct world_process *p, const char *name, uint64_t at_ns, void *(*body)(void *), void *argument);
/* Runs until no thread is due before `until_ns`, or until a fault was found. Calls `check` after each step. */
void world_run(uint64_t until_ns, void (*check)(void));

/* Lets this much time pass for the running thread. */
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
/* Lets threads that are due earlier run first. Called before anything that other processes see or can change. */
void world_meet(void);
/* Whether the running thread is ahead of others that are due; and the scheduling points that it has left meanwhile. */
extern bool world_ahead;
extern uint32_t world_points_kept;
void world_sleep_until(uint64_t at_ns);
void world_sleep(uint64_t ns);
/* Waits while the word is `value`. Returns 0 if it was woken or the word differs, or -ETIMEDOUT. `until_ns` UINT64_MAX:
 * waits for ever. */
int world_wait(const uint32_t *word, uint32_t value, uint64_t until_ns);
/* Wakes at most `most` threads that wait on the word; 0: all. Returns how many it woke. */
unsigned world_wake(const uint32_t *word, unsigned most);
void world_thread_exit(void *result) __attribute__((noreturn));
/* Ends the process like _exit(): without its exit handlers. */
void world_process_exit(void) __attribute__((noreturn));
void world_interrupt(void);
void world_keys_end(void);
/* Ends the process like exit(): calls its exit handlers first. */
void world_exit(void) __attribute__((noreturn));

/* Kills a process; any thread may call it. No thread of the victim runs again. */
void world_kill(struct world_process *p);
/* Kills the process after `points` more scheduling points. */
void world_doom(struct world_process *p, uint32_t points);
void world_stop(struct world_process *p, uint64_t ns);

/* Returns the processor time of this program, in seconds, to compare virtual time with. */
double world_cpu_s(void);

/* Returns how late a thread that is woken now will wake up. */
uint64_t world_lateness(void);

/* The record of decisions (record.c). */
void world_note(enum world_what what, uint64_t a, uint64_t b);
void world_does(const char *what, uint64_t a, uint64_t b);
void world_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
void world_trace_to(const char *path);
/* Whether every world prints its hash when it ends. */
extern bool world_hashes;
void world_tell(void);

/* Memory of the world's processes, all of which goes with the world (arena.c). */
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
void world_kernel_ended(struct world_process *p); /* closes its descriptors, and so releases its locks */
/* Gives the child what its parent has open, but not the parent's mappings of locks. */
void world_kernel_forked(struct world_process *parent, struct world_process *child);
int world_unlink(const char *path);
void *world_file(const char *path, size_t *size);
/* Returns whether anybody has locked this byte of a file. */
bool world_is_locked(const char *path, uint64_t byte);
/* Returns a count that grows whenever a file gets or loses a name. */
uint64_t world_files(void);

/* Replaces a small file as a whole (texts.c); NULL: removes it. */
void world_text(const char *path, const char *text);
int world_text_open(const char *path);
long world_text_read(int fd, void *buffer, size_t size);
bool world_text_close(int fd);
void world_texts_end(void);

/* Returns whether the running thread holds this mutex. */
bool world_mutex_is_mine(const pthread_mutex_t *mutex);

/* fork(): calls the fork handlers of the client library and makes a child of `parent` that runs `body`. The child
 * shares its parent's memory, so `body` must write to nothing that the parent uses (libc.c). */
struct world_process *world_fork(
	struct world_process *parent, const char *name, void *(*body)(void *), void *argument);

/* gpuarb_acquire and gpuarb_release as a program calls them (leases.c). */
struct gpuarb_request;
struct gpuarb_lease;
int world_acquire(const char *gpu, const struct gpuarb_request *request, struct gpuarb_lease *lease);
int world_release(struct gpuarb_lease *lease);

#endif
