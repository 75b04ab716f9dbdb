/*
 * All that the library asks of the kernel: clock, futex, byte-range locks, files, threads, the identity of the
 * process. Each function returns a value or -errno and leaves errno as it was; none is a cancellation point. Tests
 * can replace each function, so that a lost wake-up or an expired reservation is a unit test, and so that many
 * clients can run on a simulated kernel in one process.
 */
#ifndef ARB_OS_H
#define ARB_OS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

#include "gpuarb/abi.h"

struct arb_os_identity;
struct arb_os_robust;

/* What is known of a file: which file it is, how large, and whose. */
struct arb_os_file {
	dev_t dev;
	ino_t ino;
	uint64_t size;
	bool regular;
	mode_t mode; /* the rights alone */
	uid_t uid;
	gid_t gid;
};

/* One of several words that a thread sleeps on together. */
struct arb_os_word {
	uint32_t *word;
	uint32_t value;
	bool shared; /* other processes wake it too */
};

/* Where an entry is NULL the kernel is asked, except for park_any and robust, which are then not available. */
struct arb_os_hooks {
	uint64_t (*now_ns)(void);
	uint64_t (*cpu_ns)(void);
	int (*futex_wait)(arb_u32 *word, uint32_t value, uint64_t timeout_ns);
	int (*futex_wake)(arb_u32 *word);
	int (*futex_wait_until)(arb_u32 *word, uint32_t value, uint64_t until_ns);
	void (*park)(uint32_t *word, uint32_t value, uint64_t ns);
	void (*unpark)(uint32_t *word);
	int (*park_any)(const struct arb_os_word *words, unsigned n, uint64_t ns);
	int (*robust)(struct arb_os_robust *list, uint32_t *thread);
	void (*sleep_ns)(uint64_t ns);
	void (*yield)(void);
	int (*barrier)(bool announce);
	int (*thread)(void *(*body)(void *argument), void *argument); /* called by the preload */
	int (*open)(const char *path, int flags);
	void (*close)(int fd);
	int (*lock)(int fd, uint64_t byte);
	void (*unlock)(int fd, uint64_t byte);
	int (*is_locked)(int fd, uint64_t byte);
	void *(*lock_page)(int fd, int *error);
	void *(*fork_page)(int *error);
	void (*unmap)(void *address, size_t size);
	int (*stat)(int fd, struct arb_os_file *file);
	int (*look)(const char *path, struct arb_os_file *file);
	int (*read)(int fd, void *buffer, size_t size, uint64_t at);
	void *(*map)(int fd, size_t size, bool writable, int *error);
	int (*temporary)(const char *directory);
	int (*allocate)(int fd, size_t size);
	int (*mode)(int fd, mode_t mode);
	int (*name)(int fd, const char *path);
	bool (*exists)(const char *path);
	int (*append)(const char *path, bool create, const void *data, size_t size);
	void (*identify)(struct arb_os_identity *id);
};

/* NULL outside tests. */
extern const struct arb_os_hooks *arb_os_hooks;
/* The number of ns that this process's time namespace adds to CLOCK_MONOTONIC. */
extern int64_t arb_os_clock_offset_ns;

static inline uint64_t arb_os_now_ns(void)
{
	struct timespec ts;

	if (__builtin_expect(arb_os_hooks != NULL, 0) && arb_os_hooks->now_ns)
		return arb_os_hooks->now_ns();
	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec - (uint64_t)arb_os_clock_offset_ns;
}

/* CLOCK_MONOTONIC as this process sees it. */
static inline uint64_t arb_os_local_ns(void)
{
	struct timespec ts;

	if (__builtin_expect(arb_os_hooks != NULL, 0) && arb_os_hooks->now_ns)
		return arb_os_hooks->now_ns();
	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

/* Finds the time namespace's offset; a forked child may be in another one. -ENOTSUP: it cannot be known, and
 * times would not agree. */
int arb_os_clock_init(void);

/* 0: woken, or the value had changed; -ETIMEDOUT; -EINTR. */
int arb_os_futex_wait(arb_u32 *word, uint32_t value, uint64_t timeout_ns);
/* Waits until a time of arb_os_now_ns(), not for a length: a thread that is kept from the processor on its way to
 * sleep does not sleep longer for that. */
int arb_os_futex_wait_until(arb_u32 *word, uint32_t value, uint64_t until_ns);
/* Adds one to the word and wakes all threads that sleep on it: pairs WAKE. */
void arb_os_wake(arb_u32 *word);

/* Waits on a word that only this process uses. The waker changes the word before it wakes. 0 ns: for ever. */
void arb_os_park(uint32_t *word, uint32_t value, uint64_t ns);
void arb_os_unpark(uint32_t *word);

/* Waits as arb_os_park does, but on several words at once, until one of them has changed or is woken. -EFAULT: one of
 * them is not mapped. Any other error: the kernel, or the sandbox, does not offer this (Linux does from 5.16 on). */
int arb_os_park_any(const struct arb_os_word *words, unsigned n, uint64_t ns);
#define ARB_OS_WORDS 128

/*
 * What the kernel does when the calling thread dies: for each entry of the list, if the word `offset` bytes behind
 * the entry holds the thread's id, it marks that word and wakes a thread that sleeps on it. This list replaces the
 * list that the C library registered for the thread. So it is only for threads of our own, which hold no robust
 * mutex. -ENOSYS: it is not available.
 */
struct arb_os_robust {
	uint64_t *first; /* each entry holds the address of the next; the last one that of `first` */
	long offset;
	void *pending;
};
int arb_os_robust(struct arb_os_robust *list, uint32_t *thread);
/* Returns the list that the thread has now; NULL: none, or it cannot be told. */
void *arb_os_robust_list(void);

/* A short sleep. */
void arb_os_sleep_ns(uint64_t ns);
void arb_os_yield(void);
/* The calling thread's CPU time; 0: not known. */
uint64_t arb_os_cpu_ns(void);
/* membarrier(). It is called once to announce it, and then whenever other threads must have seen what this thread
 * wrote. */
int arb_os_barrier(bool announce);

int arb_os_open(const char *path, int flags);
void arb_os_close(int fd);
/* Takes the OFD write lock on one byte: 0, or -EAGAIN if another process has it. */
int arb_os_lock(int fd, uint64_t byte);
void arb_os_unlock(int fd, uint64_t byte);
/* 1: another open file description holds the byte; 0: free; or -errno. */
int arb_os_is_locked(int fd, uint64_t byte);

int arb_os_stat(int fd, struct arb_os_file *file);
/* Describes what a path leads to. */
int arb_os_look(const char *path, struct arb_os_file *file);
/* Returns how much was read, or -errno. */
int arb_os_read(int fd, void *buffer, size_t size, uint64_t at);
/* Maps a file shared with all others that map it. Returns NULL and *error on failure. */
void *arb_os_map(int fd, size_t size, bool writable, int *error);
/* These make a file without a name in this directory, give it its size and rights, and at last its name: -EEXIST if
 * that is taken. */
int arb_os_temporary(const char *directory);
int arb_os_allocate(int fd, size_t size);
int arb_os_mode(int fd, mode_t mode);
int arb_os_name(int fd, const char *path);
bool arb_os_exists(const char *path);
/* Appends to a regular file or, with `create`, writes a new file: -EEXIST if there is one. The file is opened and
 * closed each time. */
int arb_os_append(const char *path, bool create, const void *data, size_t size);

/*
 * Maps a page that holds `fd`'s locks for as long as it is mapped, whatever becomes of the descriptor. A forked child
 * does not inherit it, and closefrom() does not reach it. If mmap() fails, *error is -errno.
 */
void *arb_os_lock_page(int fd, int *error);
void arb_os_unmap(void *address, size_t size);

/* Maps a page of zeros, which is all zeros again in a forked child. */
void *arb_os_fork_page(int *error);

/* Returns whether a byte that cannot be locked is held only by processes that may only read the file. */
bool arb_os_only_readers(int fd, uint64_t byte);

struct arb_os_identity {
	uint32_t pid;
	uint32_t uid;
	uint32_t user; /* the user's number outside of any user namespace */
	uint64_t pid_ns;
	uint64_t start_time;
	char comm[16];                   /* as the kernel calls it */
	char command[ARB_COMMAND_BYTES]; /* as people call it: see command.h */
	char container[ARB_NAME_BYTES];
	char pod[40]; /* the pod of Kubernetes that the container is part of */
};

void arb_os_identify(struct arb_os_identity *id);
/* Is a process of the caller's own PID namespace gone, or does its number belong to another process by now? Returns
 * false also where that cannot be told. */
bool arb_os_gone(uint32_t pid, uint64_t pid_ns, uint64_t start);

#endif
