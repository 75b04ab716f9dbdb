/*
 * What the tests with several processes have in common: a directory of their own, children that cannot
 * outlive their deadline, an administrator's hand, random numbers from a printed seed.
 */
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

/* A fresh directory with an arbiter.conf; removed with everything in it by t_dir_remove. */
struct t_dir {
	char path[128];
	char conf[160];
};

/* `conf` is the text of arbiter.conf ("slots = 64\n..."); NULL: all defaults. */
void t_dir_make(struct t_dir *dir, const char *conf);
void t_dir_remove(struct t_dir *dir);
/* dir/sub/GPU; sub is "state" or "control". */
void t_path(const struct t_dir *dir, const char *sub, char path[PATH_MAX]);

/* Fork; the child runs fn, exits with what it returns, and dies by SIGALRM after the deadline. */
pid_t t_spawn(int (*fn)(void *argument), void *argument, unsigned deadline_s);
/* The exit status, or -signal. */
int t_wait(pid_t pid);
int t_run(int (*fn)(void *argument), void *argument, unsigned deadline_s);

/* Options for this directory, whatever the environment says; account NULL: one of its own. */
struct gpuarb_options t_options(const struct t_dir *dir, const char *account);
int t_open(const struct t_dir *dir, const char *account, struct gpuarb_client **client);

/* What gpuarb-set does: one setting, or one limit of an account (value NULL: not set). Wakes nobody. */
int t_set(const struct t_dir *dir, enum arb_key key, int64_t value);
int t_set_limit(const struct t_dir *dir, const char *account, enum arb_key key, const int64_t *value);

/* Where the programs under test were built. */
const char *t_build(void);
/*
 * Runs a command of the shell. Returns its exit status, or -signal, and all that it printed, both streams
 * together, up to `size`.
 */
__attribute__((format(printf, 3, 4))) int t_shell(char *output, size_t size, const char *format, ...);

uint64_t t_now_ns(void);
void t_sleep_us(unsigned us);

/* xorshift: the same sequence for the same seed, everywhere. */
struct t_random {
	uint64_t state;
};
struct t_random t_seeded(uint64_t seed);
uint64_t t_next(struct t_random *r);
/* 0 .. n-1 */
uint32_t t_below(struct t_random *r, uint32_t n);
uint64_t t_seed_of_today(void);

/* Options of a test with numbers, such as --seconds 10; the last has no name. */
struct t_number {
	const char *name;
	unsigned *value;
};
/* Reads them and --seed N, prints how to call it again, and returns the seed: today's, if none was given. */
uint64_t t_numbers(int argc, char **argv, const struct t_number *numbers);

/* Memory that forked children share. */
void *t_shared(size_t size);

/*
 * After unshare(CLONE_NEWNS): what is mounted below `point` is not seen outside. In a chroot, whose root is
 * no mount point, `point` has to be one.
 */
bool t_mounts_private(const char *point);

/* For plain mains: says what failed and where, and ends this process with 1. */
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

/* For arb_check: prints the sentence to stderr. */
void t_say(void *argument, const char *sentence);

#endif
