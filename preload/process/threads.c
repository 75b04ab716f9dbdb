#include "preload/process/threads.h"

#include "preload/hooks/compat.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "preload/process/known.h"
#include "preload/track/track.h"
#include "shm/base/os.h"
#include "shm/base/word.h"

COMPAT_WEAK(pthread_create)

struct act_chunk {
	struct act_chunk *older;
	uint32_t used; /* threads[used] and those behind it were never taken */
	struct act_thread threads[31];
	struct urcu_bp_reader readers[31]; /* one for each of `threads`: known.c */
};

/* Its destructor tells us that a thread ends. */
static pthread_key_t key;
static int key_state; /* 0: none yet, 1: being made, 2: made, 3: could not be made */

static void leave(void *argument)
{
	struct act_thread *self = argument;

	arb_mine.self = &arb_own.nobody;
	gate_thread_ended();
	if (syscall(SYS_gettid) == getpid()) {
		arb_word_store_release(&arb_own.main_left, 1);
		tracker_wake();
	}
	if (self == &arb_own.nobody)
		return;
	self->credit = self->granted = 0;
	self->waiting = 0;
	/* The thread may have been cancelled within a read section. */
	arb_word_store_release(&self->reader->ctr, 0);
	arb_word_store_release(&self->owned, 0);
}

/* Sets the key for the program's first thread, so that its end is noticed even if it never makes a call. */
static void watch_first(void)
{
	if (arb_mine.self == &arb_own.nobody && arb_word_load_acquire(&key_state) == 2)
		pthread_setspecific(key, &arb_own.nobody);
}

/* Runs in a forked child: the other threads do not exist there, and the counts so far are the parent's. */
static void forget_others(void)
{
	arb_own.main_left = arb_own.drivers = 0;
	watch_first();
	for (struct act_chunk *c = arb_word_load_acquire(&arb_own.chunks); c; c = c->older)
		for (unsigned i = 0; i < sizeof(c->threads) / sizeof(*c->threads); i++) {
			struct act_thread *t = &c->threads[i];

			memset(t->seen, 0, sizeof(t->seen));
			if (t != arb_mine.self) {
				t->credit = t->granted = 0;
				t->owned = t->waiting = 0;
				c->readers[i].ctr = 0;
			}
		}
}

bool act_thread_main_left(void)
{
	return arb_word_load_acquire(&arb_own.main_left);
}

/* Whether the first thread has ended: it stays visible as a zombie as long as other threads exist. */
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

bool act_thread_start(void *(*body)(void *argument), void *argument)
{
	pthread_attr_t attr;
	sigset_t all, before;
	pthread_t thread;
	bool started;

	if (arb_os_hooks && arb_os_hooks->thread)
		return arb_os_hooks->thread(body, argument) == 0;
	if (!pthread_create || pthread_attr_init(&attr))
		return false;
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	sigfillset(&all);
	sigprocmask(SIG_BLOCK, &all, &before);
	started = pthread_create(&thread, &attr, body, argument) == 0;
	sigprocmask(SIG_SETMASK, &before, NULL);
	pthread_attr_destroy(&attr);
	return started;
}

void act_thread_is_tracker(void)
{
	arb_mine.is_tracker = true;
}

void act_thread_is_drivers(void)
{
	if (arb_mine.is_tracker || arb_mine.self != &arb_own.nobody)
		return;
	arb_word_store(&arb_own.drivers, (uint32_t)syscall(SYS_gettid));
}

enum act_left act_thread_left(void)
{
	char entries[512], name[16];
	uint32_t driver = arb_word_load(&arb_own.drivers);
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
		/* An entry: inode and offset (16 bytes), its own length, its kind, its name. */
		unsigned short length;

		memcpy(&length, entries + at + 16, sizeof(length));
		tasks += entries[at + 19] != '.';
		called_back += driver && !strcmp(entries + at + 19, name);
		at += length;
	}
	tasks -= arb_word_load_acquire(&arb_own.frozen.running) && tasks;
	return tasks != 2 + called_back ? ACT_OTHERS : called_back ? ACT_WITH_DRIVER : ACT_ALONE;
}

static void make_key(void)
{
	int none = 0, made = 3;

	if (!arb_word_cas(&key_state, &none, 1))
		return;
	pthread_atfork(NULL, NULL, forget_others);
	if (pthread_key_create && pthread_setspecific && !pthread_key_create(&key, leave))
		made = 2;
	arb_word_store_release(&key_state, made);
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

		if (!arb_word_load(&c->threads[i].owned) &&
			arb_word_cas_acquire(&c->threads[i].owned, &nobodys, 1)) {
			uint32_t used = arb_word_load(&c->used);

			while (used <= i && !arb_word_cas_release(&c->used, &used, i + 1))
				;
			c->threads[i].reader = &c->readers[i];
			return &c->threads[i];
		}
	}
	return NULL;
}

static struct act_chunk *add_chunk(void)
{
	struct act_chunk *c =
		mmap(NULL, sizeof(*c), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (c == MAP_FAILED)
		return NULL;
	c->older = arb_word_load(&arb_own.chunks);
	while (!arb_word_cas_release(&arb_own.chunks, &c->older, c))
		;
	return c;
}

static __attribute__((noinline, cold)) struct act_thread *enter(void)
{
	struct act_thread *self = NULL;
	struct act_chunk *c;
	int saved = errno;

	make_key();
	for (c = arb_word_load_acquire(&arb_own.chunks); c && !self; c = c->older)
		self = take(c);
	while (!self && (c = add_chunk()))
		self = take(c);
	if (self) {
		arb_mine.self = self;
		if (arb_word_load_acquire(&key_state) == 2)
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
		sum[i] += arb_word_load(&t->seen[i]);
}

void act_thread_sum(uint64_t sum[CAT_COUNT])
{
	memset(sum, 0, sizeof(*sum) * CAT_COUNT);
	for (struct act_chunk *c = arb_word_load_acquire(&arb_own.chunks); c; c = c->older)
		for (unsigned i = 0; i < arb_word_load_acquire(&c->used); i++)
			add(sum, &c->threads[i]);
	add(sum, &arb_own.crowd);
}

static uint64_t host_work(const struct act_thread *t)
{
	return arb_word_load(&t->seen[CAT_HOSTFN]) | arb_word_load(&t->seen[CAT_MEMOP]) |
	       arb_word_load(&t->seen[CAT_INTEROP]);
}

bool act_thread_host_work(void)
{
	for (struct act_chunk *c = arb_word_load_acquire(&arb_own.chunks); c; c = c->older)
		for (unsigned i = 0; i < arb_word_load_acquire(&c->used); i++)
			if (host_work(&c->threads[i]))
				return true;
	return host_work(&arb_own.crowd);
}

bool act_thread_any_waits(void)
{
	for (struct act_chunk *c = arb_word_load_acquire(&arb_own.chunks); c; c = c->older)
		for (unsigned i = 0; i < arb_word_load_acquire(&c->used); i++)
			if (arb_word_load(&c->threads[i].waiting))
				return true;
	return false;
}

bool act_thread_any_reads(void)
{
	for (struct act_chunk *c = arb_word_load_acquire(&arb_own.chunks); c; c = c->older)
		for (unsigned i = 0; i < arb_word_load_acquire(&c->used); i++)
			if (urcu_bp_reader_state(&c->readers[i].ctr) == URCU_BP_READER_ACTIVE_OLD)
				return true;
	return false;
}

static uint64_t on_credit(const struct act_thread *t, uint64_t interval)
{
	uint32_t granted = arb_word_load(&t->granted);
	uint32_t left = arb_word_load(&t->credit);

	return arb_word_load(&t->interval) == interval && granted > left ? granted - left : 0;
}

static uint64_t gated(const struct act_thread *t)
{
	uint64_t sum = 0;

#pragma GCC unroll 16
	for (unsigned k = CAT_LAUNCH; k <= CAT_PREFETCH; k++)
		sum += arb_word_load(&t->seen[k]);
	return sum;
}

void act_thread_gated(uint64_t interval, uint64_t *calls, uint64_t *credited)
{
	uint64_t seen = 0, on = 0;

	for (struct act_chunk *c = arb_word_load_acquire(&arb_own.chunks); c; c = c->older)
		for (unsigned i = 0; i < arb_word_load_acquire(&c->used); i++) {
			seen += gated(&c->threads[i]);
			on += on_credit(&c->threads[i], interval);
		}
	*calls = seen + gated(&arb_own.crowd);
	*credited = on;
}
