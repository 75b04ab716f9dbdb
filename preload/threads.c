#include "threads.h"

#include "compat.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "track.h"

struct act_chunk {
	struct act_chunk *older;
	uint32_t used; /* those behind were never anybody's */
	struct act_thread threads[31];
};

/* Chunks are pushed and never taken away. */
static pthread_key_t key;
static int key_state; /* 0: none yet, 1: being made, 2: made, 3: not to be had */


static void leave(void *argument)
{
	struct act_thread *self = argument;

	arb_mine.self = &arb_own.nobody;
	gate_thread_ended();
	if (syscall(SYS_gettid) == getpid()) {
		__atomic_store_n(&arb_own.main_left, 1, __ATOMIC_RELEASE);
		tracker_wake();
	}
	if (self == &arb_own.nobody)
		return;
	self->credit = self->granted = 0;
	self->waiting = 0;
	__atomic_store_n(&self->owned, 0, __ATOMIC_RELEASE);
}

/* So that the end of the program's first thread is noticed, also if it never makes a call. */
static void watch_first(void)
{
	if (arb_mine.self == &arb_own.nobody && __atomic_load_n(&key_state, __ATOMIC_ACQUIRE) == 2)
		pthread_setspecific(key, &arb_own.nobody);
}

/* The other threads do not exist in the child, and what they did was not done by it. */
static void forget_others(void)
{
	arb_own.main_left = arb_own.drivers = 0;
	watch_first();
	for (struct act_chunk *c = __atomic_load_n(&arb_own.chunks, __ATOMIC_ACQUIRE); c; c = c->older)
		for (unsigned i = 0; i < sizeof(c->threads) / sizeof(*c->threads); i++) {
			struct act_thread *t = &c->threads[i];

			memset(t->seen, 0, sizeof(t->seen));
			if (t != arb_mine.self) {
				t->credit = t->granted = 0;
				t->owned = t->waiting = 0;
			}
		}
}

bool act_thread_main_left(void)
{
	return __atomic_load_n(&arb_own.main_left, __ATOMIC_ACQUIRE);
}

/* The first thread remains visible after its end, as a zombie; beside it there may be nobody but us. */
static bool is_zombie(void)
{
	char path[64], text[256], *after;
	ssize_t n = -1;
	int fd;

	snprintf(path, sizeof(path), "/proc/self/task/%d/stat", (int)getpid());
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd >= 0) {
		n = read(fd, text, sizeof(text) - 1);
		close(fd);
	}
	if (n <= 0)
		return false;
	text[n] = 0;
	after = strrchr(text, ')');
	return after && after[1] == ' ' && after[2] == 'Z';
}

void act_thread_is_tracker(void)
{
	arb_mine.is_tracker = true;
}

void act_thread_is_drivers(void)
{
	if (arb_mine.is_tracker || arb_mine.self != &arb_own.nobody)
		return;
	__atomic_store_n(&arb_own.drivers, (uint32_t)syscall(SYS_gettid), __ATOMIC_RELAXED);
}

enum act_left act_thread_left(void)
{
	char entries[512], name[16];
	uint32_t driver = __atomic_load_n(&arb_own.drivers, __ATOMIC_RELAXED);
	uint64_t seen[CAT_COUNT];
	long n = -1;
	unsigned tasks = 0, called_back = 0;
	int fd;

	if (!act_thread_main_left() || !is_zombie())
		return ACT_OTHERS;
	act_thread_sum(seen);
	if (seen[CAT_HOSTFN])
		driver = 0;
	snprintf(name, sizeof(name), "%u", driver);
	fd = open("/proc/self/task", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd >= 0) {
		n = syscall(SYS_getdents64, fd, entries, sizeof(entries));
		close(fd);
	}
	for (long at = 0; at < n;) {
		/* inode and offset, then the length of the entry, its kind, its name */
		unsigned short length;

		memcpy(&length, entries + at + 16, sizeof(length));
		tasks += entries[at + 19] != '.';
		called_back += driver && !strcmp(entries + at + 19, name);
		at += length;
	}
	return tasks != 2 + called_back ? ACT_OTHERS : called_back ? ACT_WITH_DRIVER : ACT_ALONE;
}

static void make_key(void)
{
	int none = 0, made = 3;

	if (!__atomic_compare_exchange_n(&key_state, &none, 1, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
		return;
	pthread_atfork(NULL, NULL, forget_others);
	if (pthread_key_create && pthread_setspecific && !pthread_key_create(&key, leave))
		made = 2;
	__atomic_store_n(&key_state, made, __ATOMIC_RELEASE);
}

__attribute__((constructor)) static void begin(void)
{
	make_key();
	watch_first();
}

static struct act_thread *take(struct act_chunk *c)
{
	for (unsigned i = 0; i < sizeof(c->threads) / sizeof(*c->threads); i++) {
		uint32_t nobodys = 0;

		if (!__atomic_load_n(&c->threads[i].owned, __ATOMIC_RELAXED) &&
			__atomic_compare_exchange_n(&c->threads[i].owned, &nobodys, 1, false,
				__ATOMIC_ACQUIRE, __ATOMIC_RELAXED)) {
			uint32_t used = __atomic_load_n(&c->used, __ATOMIC_RELAXED);

			while (used <= i && !__atomic_compare_exchange_n(&c->used, &used, i + 1, false,
						    __ATOMIC_RELEASE, __ATOMIC_RELAXED))
				;
			return &c->threads[i];
		}
	}
	return NULL;
}

static struct act_chunk *add_chunk(void)
{
	struct act_chunk *c = mmap(NULL, sizeof(*c), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (c == MAP_FAILED)
		return NULL;
	c->older = __atomic_load_n(&arb_own.chunks, __ATOMIC_RELAXED);
	while (!__atomic_compare_exchange_n(&arb_own.chunks, &c->older, c, false, __ATOMIC_RELEASE, __ATOMIC_RELAXED))
		;
	return c;
}

static __attribute__((noinline, cold)) struct act_thread *enter(void)
{
	struct act_thread *self = NULL;
	struct act_chunk *c;
	int saved = errno;

	make_key();
	for (c = __atomic_load_n(&arb_own.chunks, __ATOMIC_ACQUIRE); c && !self; c = c->older)
		self = take(c);
	while (!self && (c = add_chunk()))
		self = take(c);
	if (self) {
		arb_mine.self = self;
		if (__atomic_load_n(&key_state, __ATOMIC_ACQUIRE) == 2)
			pthread_setspecific(key, self);
	}
	errno = saved;
	return self ? self : &arb_own.crowd;
}

struct act_thread *act_thread_get(void)
{
	struct act_thread *self = arb_mine.self;

	return __builtin_expect(self != &arb_own.nobody, 1) ? self : enter();
}

static void add(uint64_t sum[CAT_COUNT], const struct act_thread *t)
{
	for (unsigned i = 0; i < CAT_COUNT; i++)
		sum[i] += __atomic_load_n(&t->seen[i], __ATOMIC_RELAXED);
}

void act_thread_sum(uint64_t sum[CAT_COUNT])
{
	memset(sum, 0, sizeof(*sum) * CAT_COUNT);
	for (struct act_chunk *c = __atomic_load_n(&arb_own.chunks, __ATOMIC_ACQUIRE); c; c = c->older)
		for (unsigned i = 0; i < __atomic_load_n(&c->used, __ATOMIC_ACQUIRE); i++)
			add(sum, &c->threads[i]);
	add(sum, &arb_own.crowd);
}

bool act_thread_any_waits(void)
{
	for (struct act_chunk *c = __atomic_load_n(&arb_own.chunks, __ATOMIC_ACQUIRE); c; c = c->older)
		for (unsigned i = 0; i < __atomic_load_n(&c->used, __ATOMIC_ACQUIRE); i++)
			if (__atomic_load_n(&c->threads[i].waiting, __ATOMIC_RELAXED))
				return true;
	return false;
}

static uint64_t on_credit(const struct act_thread *t, uint64_t stay)
{
	uint32_t granted = __atomic_load_n(&t->granted, __ATOMIC_RELAXED);
	uint32_t left = __atomic_load_n(&t->credit, __ATOMIC_RELAXED);

	return __atomic_load_n(&t->stay, __ATOMIC_RELAXED) == stay && granted > left ? granted - left : 0;
}

void act_thread_gated(uint64_t stay, uint64_t *calls, uint64_t *credited)
{
	*calls = *credited = 0;
	for (struct act_chunk *c = __atomic_load_n(&arb_own.chunks, __ATOMIC_ACQUIRE); c; c = c->older)
		for (unsigned i = 0; i < __atomic_load_n(&c->used, __ATOMIC_ACQUIRE); i++) {
			for (unsigned k = CAT_LAUNCH; k <= CAT_PREFETCH; k++)
				*calls += __atomic_load_n(&c->threads[i].seen[k], __ATOMIC_RELAXED);
			*credited += on_credit(&c->threads[i], stay);
		}
	for (unsigned k = CAT_LAUNCH; k <= CAT_PREFETCH; k++)
		*calls += __atomic_load_n(&arb_own.crowd.seen[k], __ATOMIC_RELAXED);
}
