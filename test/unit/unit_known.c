/* Tables that are read without a lock: nothing is freed while a thread reads it, and everything is freed in the end.
 */
#include <criterion/criterion.h>
#include <malloc.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "preload/process/known.h"
#include "preload/process/threads.h"
#include "test/alarm.h"

/* Stands for the tracker and the gate. */
static unsigned rang;
void tracker_ring(void);
void tracker_ring(void)
{
	__atomic_fetch_add(&rang, 1, __ATOMIC_RELAXED);
}
void tracker_wake(void);
void tracker_wake(void)
{
}
void gate_thread_ended(void);
void gate_thread_ended(void)
{
}

#define KEYS 200

struct item {
	struct known known;
	uint64_t key, twice;
};

static struct known_table table;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static struct item *put(uint64_t key)
{
	struct item *item = malloc(sizeof(*item));

	item->key = key;
	item->twice = 2 * key;
	known_add(&table, &item->known, key);
	return item;
}

static bool nothing_left(void)
{
	return !arb_own.known.removed && !arb_own.known.waiting;
}

Test(known, entries_are_found_by_their_keys_until_they_are_removed)
{
	struct item *items[KEYS];

	for (uint64_t k = 0; k < KEYS; k++)
		items[k] = put(k << 12);
	for (uint64_t k = 0; k < KEYS; k++)
		cr_assert_eq(known_find(&table, k << 12), &items[k]->known);
	cr_assert_null(known_find(&table, 1));
	for (uint64_t k = 0; k < KEYS; k += 2)
		known_remove(&items[k]->known);
	for (uint64_t k = 0; k < KEYS; k++)
		cr_assert_eq(known_find(&table, k << 12), k % 2 ? &items[k]->known : NULL);
	cr_assert_eq(rang, KEYS / 2 / 64, "the tracker is told when many wait to be freed");
	known_free();
	cr_assert(nothing_left());
}

/* A thread that reads until it is told to stop. */
static int step;

static void await(int wanted)
{
	while (__atomic_load_n(&step, __ATOMIC_ACQUIRE) != wanted)
		sched_yield();
}

static void *read_until_told(void *argument)
{
	struct item *item;

	cr_assert(known_read());
	item = (struct item *)known_find(&table, 7);
	cr_assert_not_null(item);
	__atomic_store_n(&step, 1, __ATOMIC_RELEASE);
	await(2);
	cr_assert_eq(item->twice, 14, "it is there for as long as it is read");
	known_read_end();
	__atomic_store_n(&step, 3, __ATOMIC_RELEASE);
	return argument;
}

Test(known, what_is_read_is_not_freed_and_the_tracker_does_not_wait_for_it)
{
	struct item *item = put(7);
	pthread_t thread;

	mallopt(M_PERTURB, 0xa5);
	cr_assert_eq(pthread_create(&thread, NULL, read_until_told, NULL), 0);
	await(1);
	known_remove(&item->known);
	for (int i = 0; i < 3; i++) {
		known_free();
		cr_assert_eq(arb_own.known.waiting, &item->known);
	}
	/* What is removed meanwhile waits for the next call of known_free(). */
	item = put(8);
	known_remove(&item->known);
	__atomic_store_n(&step, 2, __ATOMIC_RELEASE);
	await(3);
	known_free();
	cr_assert_null(arb_own.known.waiting);
	cr_assert_eq(arb_own.known.removed, &item->known);
	known_free();
	cr_assert(nothing_left());
	pthread_join(thread, NULL);
}

Test(known, a_section_that_began_after_the_removal_is_not_waited_for)
{
	struct item *item = put(1);

	cr_assert(known_read());
	cr_assert(known_read(), "they nest");
	known_read_end();
	known_remove(&item->known);
	known_free();
	cr_assert_eq(arb_own.known.waiting, &item->known);
	known_read_end();
	known_free();
	cr_assert(nothing_left());
}

/* Ends in the middle of a read section, as a cancelled thread does. */
static void *read_and_end(void *argument)
{
	cr_assert(known_read());
	__atomic_store_n(&step, 1, __ATOMIC_RELEASE);
	await(2);
	pthread_exit(argument);
}

Test(known, a_thread_that_has_ended_while_it_read_holds_nothing_up)
{
	struct item *item = put(1);
	pthread_t thread;

	cr_assert_eq(pthread_create(&thread, NULL, read_and_end, NULL), 0);
	await(1);
	known_remove(&item->known);
	known_free();
	cr_assert_not_null(arb_own.known.waiting);
	__atomic_store_n(&step, 2, __ATOMIC_RELEASE);
	pthread_join(thread, NULL);
	known_free();
	cr_assert(nothing_left());
}

/* Many readers, a thread that changes the table, a thread that frees, threads that come and go, and forks meanwhile.
 */
static bool over;
static uint64_t reads;

static void look_up(uint64_t key)
{
	const struct item *item;

	cr_assert(known_read());
	item = (const struct item *)known_find(&table, key);
	if (item) {
		for (int i = 0; i < 20; i++)
			cr_assert_eq(*(volatile const uint64_t *)&item->twice, 2 * key);
		cr_assert_eq(item->key, key);
	}
	known_read_end();
}

static void *look_up_often(void *argument)
{
	uint64_t n = 0;

	for (uint64_t k = (uintptr_t)argument; n < 20000; k = (k * 31 + 7) % KEYS, n++)
		look_up(k);
	__atomic_fetch_add(&reads, n, __ATOMIC_RELAXED);
	return argument;
}

static void *come_and_go(void *argument)
{
	while (!__atomic_load_n(&over, __ATOMIC_RELAXED)) {
		pthread_t thread;

		cr_assert_eq(pthread_create(&thread, NULL, look_up_often, argument), 0);
		pthread_join(thread, NULL);
	}
	return argument;
}

static void *free_often(void *argument)
{
	while (!__atomic_load_n(&over, __ATOMIC_RELAXED))
		known_free();
	return argument;
}

static void change(uint64_t key)
{
	struct known *entry;

	pthread_mutex_lock(&lock);
	entry = known_find(&table, key);
	if (entry)
		known_remove(entry);
	else
		put(key);
	pthread_mutex_unlock(&lock);
}

/* In the child the other threads do not exist, wherever they were. */
static void be_a_child(void)
{
	known_forked();
	table = (struct known_table){0};
	pthread_mutex_init(&lock, NULL);
	for (uint64_t k = 0; k < 2 * KEYS; k++)
		change(k % KEYS);
	look_up(3);
	known_free();
	_exit(nothing_left() ? 0 : 1);
}

Test(known, readers_a_writer_and_forks)
{
	pthread_t threads[4], freeing;
	int status;

	mallopt(M_PERTURB, 0xa5);
	for (uint64_t i = 0; i < 4; i++)
		cr_assert_eq(pthread_create(&threads[i], NULL, come_and_go, (void *)(uintptr_t)i), 0);
	cr_assert_eq(pthread_create(&freeing, NULL, free_often, NULL), 0);
	for (unsigned round = 0; round < 60; round++) {
		pid_t child;

		for (uint64_t i = 0; i < 2000; i++)
			change((i * 17 + round) % KEYS);
		child = fork();
		if (!child)
			be_a_child();
		cr_assert_eq(waitpid(child, &status, 0), child);
		cr_assert_eq(status, 0, "a child waits for no reader of its parent's: %x", (unsigned)status);
	}
	__atomic_store_n(&over, true, __ATOMIC_RELAXED);
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	pthread_join(freeing, NULL);
	for (uint64_t k = 0; k < KEYS; k++)
		if (known_find(&table, k))
			change(k);
	known_free();
	known_free();
	cr_assert(nothing_left());
	cr_assert_gt(reads, 0);
}
