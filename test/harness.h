/* What the tests with several processes share: a directory of their own, children that cannot outlive their deadline,
 * settings as an administrator makes them, random numbers from a printed seed. */
#ifndef TEST_HARNESS_H
#define TEST_HARNESS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#include "gpuarb/client.h"
#include "gpuarb/config.h"

#include "shm/segment/segment.h"
#include "shm/segment/settings.h"

#define T_GPU  "GPU-test"
#define T_SKIP 77

/* A new directory with an arbiter.conf; t_dir_remove removes it with all that is in it. */
struct t_dir {
	char path[128];
	char conf[160];
};

/*
 * Makes the directory. `conf` is the text of arbiter.conf ("slots = 64
 * ..."); NULL: all defaults.
 */
void t_dir_make(struct t_dir *dir, const char *conf);
void t_dir_remove(struct t_dir *dir);
/* Writes the path dir/sub/GPU; sub is "state" or "control". */
void t_path(const struct t_dir *dir, const char *sub, char path[PATH_MAX]);

/* Forks a child that runs fn and exits with its result. SIGALRM ends it after the deadline. */
pid_t t_spawn(int (*fn)(void *argument), void *argument, unsigned deadline_s);
/* Waits for a child; returns its exit status, or -signal. */
int t_wait(pid_t pid);
int t_run(int (*fn)(void *argument), void *argument, unsigned deadline_s);

/* Returns options for this directory that the environment does not change. If account is NULL, each client has an
 * account of its own. */
struct gpuarb_options t_options(const struct t_dir *dir, const char *account);
int t_open(const struct t_dir *dir, const char *account, struct gpuarb_client **client);

/* Changes one setting, or one limit of an account (value NULL: not set), as gpuarb-set does, but wakes no client. */
int t_set(const struct t_dir *dir, enum arb_key key, int64_t value);
int t_set_limit(const struct t_dir *dir, const char *account, enum arb_key key, const int64_t *value);

/* Returns the directory with the programs under test. */
const char *t_build(void);
/* Runs a shell command. Returns its exit status, or -signal, and up to `size` bytes of what it printed, both streams
 * together. */
__attribute__((format(printf, 3, 4))) int t_shell(char *output, size_t size, const char *format, ...);

uint64_t t_now_ns(void);
void t_sleep_us(unsigned us);

/* xorshift: the same sequence for the same seed, everywhere. */
struct t_random {
	uint64_t state;
};
struct t_random t_seeded(uint64_t seed);
uint64_t t_next(struct t_random *r);
/* Returns a number from 0 to n - 1. */
uint32_t t_below(struct t_random *r, uint32_t n);
uint64_t t_seed_of_today(void);

/* An option of a test with a number, such as --seconds 10; the last entry has no name. */
struct t_number {
	const char *name;
	unsigned *value;
};
/* Reads these options and --seed N, prints how to call the test again, and returns the seed: the given one, or one
 * that changes from day to day. */
uint64_t t_numbers(int argc, char **argv, const struct t_number *numbers);

/* Returns memory that forked children share. */
void *t_shared(size_t size);

/* After unshare(CLONE_NEWNS): hides from outside what is mounted below `point`. In a chroot, whose root is no mount
 * point, `point` itself must be one. */
bool t_mounts_private(const char *point);

/* For plain mains: if `what` is false, says so and where, and ends this process with 1. */
#define T_CHECK(what, ...)                                                                                   \
	do {                                                                                                 \
		if (!(what)) {                                                                               \
			fprintf(stderr, "%s:%d: not true: %s: ", __FILE__, __LINE__, #what);                 \
			fprintf(stderr, __VA_ARGS__);                                                        \
			fputc('\n', stderr);                                                                 \
			t_failed();                                                                          \
		}                                                                                            \
	} while (0)
__attribute__((noreturn)) void t_failed(void);

/* Callback for arb_check: prints the sentence to stderr. */
void t_say(void *argument, const char *sentence);

#endif
