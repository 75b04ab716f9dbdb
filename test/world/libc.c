/*
 * What the simulated driver, the load and the preload call in the C library: the linker leads these calls here
 * (--wrap). Calls that no simulated thread makes go to the real C library.
 */
#include "test/world/world.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "test/world/traces.h"

#define NEVER UINT64_MAX

/* Only the linker uses these names, so no header declares them. */
#pragma GCC diagnostic ignored "-Wmissing-prototypes"

void *__real_malloc(size_t size);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t size);
void __real_free(void *p);

void *__wrap_malloc(size_t size)
{
	return world.current ? world_alloc(size) : __real_malloc(size);
}

void *__wrap_calloc(size_t n, size_t size)
{
	void *p;

	if (!world.current)
		return __real_calloc(n, size);
	p = world_alloc(n * size);
	return memset(p, 0, n * size);
}

void __wrap_free(void *p)
{
	if (world_owns(p))
		world_free(p);
	else
		__real_free(p);
}

void *__wrap_realloc(void *p, size_t size)
{
	return world_owns(p) || (!p && world.current) ? world_resize(p, size) : __real_realloc(p, size);
}

char *__wrap_strdup(const char *text)
{
	size_t size = strlen(text) + 1;
	char *copy = __wrap_malloc(size);

	return copy ? memcpy(copy, text, size) : NULL;
}

void *__wrap_aligned_alloc(size_t alignment, size_t size)
{
	return world_alloc_aligned(alignment, size);
}

int __real_clock_gettime(clockid_t clock, struct timespec *ts);

int __wrap_clock_gettime(clockid_t clock, struct timespec *ts)
{
	static uint64_t second_ns;
	static time_t second;
	uint64_t ns;

	if (!world.current && clock != CLOCK_REALTIME)
		return __real_clock_gettime(clock, ts);
	if (world.current)
		world_spend(world.weather.clock_ns);
	ns = clock == CLOCK_THREAD_CPUTIME_ID ? world.current->cpu_ns : world.now_ns;
	/* Most calls fall into the same second as the call before: then the division, the slowest part, is saved. */
	if (ns - second_ns >= WORLD_S)
		second_ns = ns - ns % WORLD_S, second = (time_t)(ns / WORLD_S);
	*ts = (struct timespec){second, (long)(ns - second_ns)};
	return 0;
}

double world_cpu_s(void)
{
	struct timespec ts;

	__real_clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

int __wrap_nanosleep(const struct timespec *ts, struct timespec *left)
{
	world_sleep((uint64_t)ts->tv_sec * WORLD_S + (uint64_t)ts->tv_nsec);
	if (left)
		*left = (struct timespec){0, 0};
	return 0;
}

/* Interrupts the thread at a mutex. Only threads of its own process can see that, so threads of other processes need
 * not run first. */
static void __attribute__((noinline)) interrupt_here(void)
{
	if (world_ahead)
		world_points_kept = 1;
	world_interrupt();
}

static inline bool is_point(void)
{
	uint32_t *points = world_ahead ? &world_points_kept : &world_points;

	return __builtin_expect(--*points == 0, 0);
}

/* A mutex is one word, 0 while it is free. A thread that waits for the mutex waits on this word. */
struct mutex {
	uint32_t word; /* the owner's number + 1, | WAITED */
};
#define WAITED 0x80000000u

int __wrap_pthread_mutex_init(pthread_mutex_t *m, const pthread_mutexattr_t *attr)
{
	(void)attr;
	memset(m, 0, sizeof(*m));
	return 0;
}

static void take(struct mutex *m)
{
	m->word = world.current->number + 1;
	world.current->mutexes++;
}

static int __attribute__((noinline)) lock_slowly(struct mutex *m, bool interrupted)
{
	if (interrupted)
		interrupt_here();
	while (m->word) {
		m->word |= WAITED;
		world_wait(&m->word, m->word, NEVER);
	}
	take(m);
	return 0;
}

static int __attribute__((noinline)) wake_all(struct mutex *m)
{
	/* All waiters look again; the first gets the mutex. */
	world_wake(&m->word, 0);
	if (is_point())
		interrupt_here();
	return 0;
}

int __wrap_pthread_mutex_lock(pthread_mutex_t *mutex)
{
	struct mutex *m = (struct mutex *)mutex;

	bool interrupted;

	if (!world.current)
		return 0;
	interrupted = is_point();
	if (__builtin_expect(interrupted || m->word != 0, 0))
		return lock_slowly(m, interrupted);
	take(m);
	return 0;
}

int __wrap_pthread_mutex_unlock(pthread_mutex_t *mutex)
{
	struct mutex *m = (struct mutex *)mutex;
	uint32_t word = m->word;

	if (!world.current)
		return 0;
	/* In a forked child the mutex may be locked by a thread of its parent. */
	if (__builtin_expect((word & ~WAITED) == world.current->number + 1, 1))
		world.current->mutexes--;
	m->word = 0;
	if (__builtin_expect(word & WAITED, 0))
		return wake_all(m);
	if (__builtin_expect(is_point(), 0))
		interrupt_here();
	return 0;
}

bool world_mutex_is_mine(const pthread_mutex_t *mutex)
{
	const struct mutex *m = (const struct mutex *)mutex;

	return (m->word & ~WAITED) == world.current->number + 1;
}

struct start {
	void *(*body)(void *);
	void *argument;
};

int __wrap_pthread_create(
	pthread_t *thread, const pthread_attr_t *attr, void *(*body)(void *), void *argument)
{
	struct world_thread *t;

	(void)attr;
	world_spend(20 * WORLD_US);
	t = world_thread_new(
		world.current->process, "thread", world.now_ns + world_lateness(), body, argument);
	*thread = (pthread_t)t;
	return 0;
}

int __wrap_pthread_join(pthread_t thread, void **result)
{
	struct world_thread *t = (struct world_thread *)thread;

	while (!t->ended)
		world_wait(&t->ended, 0, NEVER);
	if (result)
		*result = t->result;
	return 0;
}

int __wrap_pthread_detach(pthread_t thread)
{
	(void)thread;
	return 0;
}

pthread_t __wrap_pthread_self(void)
{
	return (pthread_t)world.current;
}

int __wrap_pthread_once(pthread_once_t *once, void (*function)(void))
{
	if (*once == PTHREAD_ONCE_INIT) {
		*once = 1;
		function();
	}
	return 0;
}

static unsigned nkeys;
static void (*destroys[16])(void *);

int __wrap_pthread_key_create(pthread_key_t *key, void (*destroy)(void *))
{
	/* Each process creates its own keys. Different processes may use equal keys, because the values belong to
	 * threads. */
	for (*key = 1; *key <= nkeys; ++*key)
		if (destroys[*key] == destroy)
			return 0;
	if (nkeys == 15)
		return EAGAIN;
	destroys[++nkeys] = destroy;
	*key = nkeys;
	return 0;
}

void world_keys_end(void)
{
	for (unsigned i = 0; i < 16; i++) {
		void *value = world.current->keys[i];

		world.current->keys[i] = NULL;
		if (value && destroys[i])
			destroys[i](value);
	}
}

int __wrap_pthread_setspecific(pthread_key_t key, const void *value)
{
	if (world.current)
		world.current->keys[key % 16] = (void *)(uintptr_t)value;
	return 0;
}

void *__wrap_pthread_getspecific(pthread_key_t key)
{
	return world.current ? world.current->keys[key % 16] : NULL;
}

/* Handlers of fork(). Only those with a `prepare` are kept: they let no claim of a slot be under way at a fork. Others
 * would make the child begin anew in memory that here is its parent's. */
static struct {
	void (*prepare)(void), (*parent)(void), (*child)(void);
} at_fork;

int __wrap_pthread_atfork(void (*prepare)(void), void (*parent)(void), void (*child)(void))
{
	if (prepare) {
		at_fork.prepare = prepare;
		at_fork.parent = parent;
		at_fork.child = child;
	}
	return 0;
}

struct forked {
	void *(*body)(void *);
	void *argument;
};

static void *child(void *argument)
{
	struct forked f = *(struct forked *)argument;

	if (at_fork.child)
		at_fork.child();
	f.body(f.argument);
	world_process_exit();
}

struct world_process *world_fork(
	struct world_process *parent, const char *name, void *(*body)(void *), void *argument)
{
	bool mine = world.current->process == parent;
	struct forked *f = world_alloc(sizeof(*f));
	struct world_process *p;

	if (mine && at_fork.prepare)
		at_fork.prepare();
	world_spend(50 * WORLD_US);
	world_meet();
	p = world_process_new(parent->environment);
	p->self = parent->self;
	*f = (struct forked){body, argument};
	world_kernel_forked(parent, p);
	world_thread_new(p, name, world.now_ns + world_lateness(), child, f);
	if (mine && at_fork.parent)
		at_fork.parent();
	return p;
}

int __real_atexit(void (*function)(void));

int __wrap_atexit(void (*function)(void))
{
	struct world_process *p;

	if (!world.current)
		return __real_atexit(function);
	p = world.current->process;
	if (p->nat_exit < sizeof(p->at_exit) / sizeof(*p->at_exit))
		p->at_exit[p->nat_exit++] = function;
	return 0;
}

int __wrap_sem_init(sem_t *sem, int shared, unsigned value)
{
	(void)shared;
	memset(sem, 0, sizeof(*sem));
	*(uint32_t *)sem = value;
	return 0;
}

int __wrap_sem_post(sem_t *sem)
{
	++*(uint32_t *)sem;
	world_wake((uint32_t *)sem, 1);
	return 0;
}

int __wrap_sem_wait(sem_t *sem)
{
	while (!*(uint32_t *)sem)
		world_wait((uint32_t *)sem, 0, NEVER);
	--*(uint32_t *)sem;
	return 0;
}

static char *lookup(const char *name)
{
	const char *const *e = world.current ? world.current->process->environment : NULL;

	for (; e && e[0]; e += 2)
		if (!strcmp(e[0], name))
			return (char *)(uintptr_t)e[1];
	return world.current && !strcmp(name, "GPUARB_TRACE") ? world_traces_path() : NULL;
}

char *__real_getenv(const char *name);

char *__wrap_getenv(const char *name)
{
	return world.current ? lookup(name) : __real_getenv(name);
}

char *__wrap_secure_getenv(const char *name)
{
	return lookup(name);
}

pid_t __real_getpid(void);

pid_t __wrap_getpid(void)
{
	return world.current ? (pid_t)(1000 + world.current->process->number) : __real_getpid();
}

int __wrap_sched_yield(void)
{
	world_spend(world.weather.call_ns + 100);
	return 0;
}

void *__real_mmap(void *address, size_t size, int protection, int flags, int fd, off_t offset);

/* Mappings have the same addresses in every run, because some addresses serve as handles. They end with the world. */
#define MAP_BASE   0x400000000000ull
#define MAP_SPACE  (8ull << 40)
#define PAGE_BYTES 4096ull
#define HUGE_BYTES (2ull << 20)
static uint64_t mapped;

void *__wrap_mmap(void *address, size_t size, int protection, int flags, int fd, off_t offset)
{
	uint64_t align = size < HUGE_BYTES ? PAGE_BYTES : HUGE_BYTES;
	void *at;

	if (!world.current || address)
		return __real_mmap(address, size, protection, flags, fd, offset);
	/* Small mappings lie side by side: a huge page apart, they would compete for a few lines of the caches. */
	mapped = (mapped + align - 1) & ~(align - 1);
	at = (void *)(uintptr_t)(MAP_BASE + mapped);
	mapped += (size + align - 1) & ~(align - 1);
	if (mapped > MAP_SPACE) {
		fprintf(stderr, "world: its processes have mapped too much\n");
		exit(2);
	}
	return __real_mmap(at, size, protection, flags | MAP_FIXED_NOREPLACE, fd, offset);
}

void world_unmap_all(void)
{
	if (mapped)
		munmap((void *)(uintptr_t)MAP_BASE, mapped);
	mapped = 0;
}

int __wrap_prctl(int option, ...)
{
	(void)option;
	return 0;
}

long __real_syscall(long number, ...);

/* Answers gettid: the first thread of a process has the number of its process. */
long __wrap_syscall(long number, ...)
{
	long a[6];
	va_list ap;

	va_start(ap, number);
	for (int i = 0; i < 6; i++)
		a[i] = va_arg(ap, long);
	va_end(ap);
	if (number == SYS_gettid && world.current)
		return world.current == world.current->process->first
			       ? 1000 + (long)world.current->process->number
			       : 1000000 + (long)world.current->number;
	if (number == SYS_openat && world.current)
		return world_text_open((const char *)(uintptr_t)a[1]);
	if (number == SYS_read && world.current)
		return world_text_read((int)a[0], (void *)(uintptr_t)a[1], (size_t)a[2]);
	return __real_syscall(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}
