/* Who runs next: a heap of threads by when they are due, the seed where several are. */
#include "world.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "coro.h"
#include "gpu.h"

#define WORDS 4096 /* buckets of those who wait */
#define NEVER UINT64_MAX

struct world world;

/* Whoever looks from outside is never interrupted. Constructors come before everything. */
static uint32_t no_points;
static struct arb_self_state no_self;
static struct arb_process no_own;
static struct arb_thread no_mine;

uint32_t *world_points = &no_points;
struct arb_self_state *world_self = &no_self;
struct arb_process *world_own = &no_own;
struct arb_thread *world_mine = &no_mine;
uint64_t world_self_thread = UINT64_MAX;

static void *scheduler;
static struct world_thread *waiting[WORDS];

void *__real_malloc(size_t size);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t size);
void __real_free(void *p);

static void out_of_memory(void)
{
	fprintf(stderr, "world: out of memory\n");
	exit(2);
}

static void *grow(void *list, unsigned n, unsigned *room, size_t each)
{
	if (n < *room)
		return list;
	*room = *room ? 2 * *room : 64;
	list = __real_realloc(list, *room * each);
	if (!list)
		out_of_memory();
	return list;
}

static bool before(const struct world_thread *a, const struct world_thread *b)
{
	return a->at_ns != b->at_ns ? a->at_ns < b->at_ns : a->tie < b->tie;
}

static void put(unsigned i, struct world_thread *t)
{
	world.heap[i] = t;
	t->place = i + 1;
}

static void sift(unsigned i, struct world_thread *t)
{
	unsigned child;

	while (i && before(t, world.heap[(i - 1) / 2])) {
		put(i, world.heap[(i - 1) / 2]);
		i = (i - 1) / 2;
	}
	while ((child = 2 * i + 1) < world.nheap) {
		if (child + 1 < world.nheap && before(world.heap[child + 1], world.heap[child]))
			child++;
		if (!before(world.heap[child], t))
			break;
		put(i, world.heap[child]);
		i = child;
	}
	put(i, t);
}

/* Due then; where it is due already, it is moved. */
static void schedule(struct world_thread *t, uint64_t at_ns)
{
	t->at_ns = at_ns;
	t->tie = world_chance_next(&world.chance);
	if (!t->place) {
		world.heap = grow(world.heap, world.nheap, &world.room, sizeof(*world.heap));
		t->place = ++world.nheap;
	}
	sift(t->place - 1, t);
}

static void unschedule(struct world_thread *t)
{
	unsigned i = t->place - 1;
	struct world_thread *last;

	if (!t->place)
		return;
	t->place = 0;
	last = world.heap[--world.nheap];
	if (last != t)
		sift(i, last);
}

static struct world_thread **bucket(const uint32_t *word)
{
	return &waiting[((uint64_t)(uintptr_t)word * 0x9e3779b97f4a7c15ull) >> 52];
}

static void stop_waiting(struct world_thread *t)
{
	struct world_thread **at = bucket(t->word);

	while (*at && *at != t)
		at = &(*at)->next_waiting;
	if (*at)
		*at = t->next_waiting;
	t->word = NULL;
}

static uint32_t draw_points(void)
{
	uint64_t n;

	if (!world.weather.point_mean)
		return 1u << 30;
	n = world_chance_exp(&world.chance, world.weather.point_mean);
	return n < 1 ? 1 : n > 1u << 30 ? 1u << 30 : (uint32_t)n;
}

/* Leaves the processor to whoever is next. */
static void leave(void)
{
	struct world_thread *t = world.current;

	coro_switch(&t->sp, scheduler);
}

static void leave_until(uint64_t at_ns)
{
	schedule(world.current, at_ns);
	leave();
}

void world_spend(uint64_t ns)
{
	struct world_thread *t = world.current;
	uint64_t at = world.now_ns + ns;

	if (!t) {
		world.now_ns = at;
		return;
	}
	t->cpu_ns += ns;
	if (world.nheap && world.heap[0]->at_ns <= at)
		leave_until(at);
	else
		world.now_ns = at;
}

void world_interrupt(void)
{
	struct world_thread *t = world.current;
	uint64_t ns;

	if (!t) {
		no_points = 1u << 30;
		return;
	}
	if (t->process->doomed) {
		world_kill(t->process);
		leave();
	}
	t->points = draw_points();
	if (!world.weather.point_mean)
		return;
	ns = world_chance_once_in(&world.chance, world.weather.preempt_in)
		     ? world_chance_exp(&world.chance, world.weather.preempt_ns)
		     : world_chance_exp(&world.chance, world.weather.interrupt_ns);
	/* For no time at all: whoever is due now comes first. */
	if (ns || (world.nheap && world.heap[0]->at_ns <= world.now_ns)) {
		world_note(WORLD_HELD_UP, ns, 0);
		t->process->pauses_ns += ns;
		t->held_up = true;
		leave_until(world.now_ns + ns);
		t->held_up = false;
	}
}

uint64_t world_lateness(void)
{
	const struct world_weather *w = &world.weather;

	if (world_chance_once_in(&world.chance, w->very_late_in))
		return 5 * WORLD_MS;
	return w->late_ns ? world_chance_exp(&world.chance, w->late_ns) : 0;
}

void world_sleep_until(uint64_t at_ns)
{
	if (at_ns < world.now_ns)
		at_ns = world.now_ns;
	at_ns += world_lateness();
	world_note(WORLD_SLEEPS, at_ns, 0);
	leave_until(at_ns);
}

void world_sleep(uint64_t ns)
{
	world_sleep_until(world.now_ns + ns);
}

int world_wait(const uint32_t *word, uint32_t value, uint64_t until_ns)
{
	struct world_thread *t = world.current, **at = bucket(word);

	world_spend(world.weather.call_ns);
	if (__atomic_load_n(word, __ATOMIC_RELAXED) != value)
		return 0;
	if (until_ns <= world.now_ns)
		return -ETIMEDOUT;
	world_note(WORLD_WAITS, until_ns == NEVER ? 0 : until_ns, value);
	t->word = word;
	t->value = value;
	t->since_ns = world.now_ns;
	t->changed_ns = 0;
	t->state = THREAD_WAITING;
	t->woken = t->timed_out = false;
	/* At the end of the queue, as the kernel has it. */
	while (*at)
		at = &(*at)->next_waiting;
	*at = t;
	t->next_waiting = NULL;
	if (until_ns != NEVER)
		schedule(t, until_ns + world_lateness());
	leave();
	if (!t->woken)
		stop_waiting(t);
	t->state = THREAD_READY;
	return t->woken ? 0 : -ETIMEDOUT;
}

unsigned world_wake(const uint32_t *word, unsigned most)
{
	struct world_thread **at = bucket(word), *t;
	unsigned n = 0;

	while ((t = *at) && (!most || n < most)) {
		if (t->word != word) {
			at = &t->next_waiting;
			continue;
		}
		*at = t->next_waiting;
		t->word = NULL;
		t->woken = true;
		schedule(t, world.now_ns + world_lateness());
		n++;
	}
	world_note(WORLD_WAKES, n, 0);
	if (world.current)
		world_spend(world.weather.call_ns);
	return n;
}

static void thread_gone(struct world_thread *t)
{
	if (t->state == THREAD_WAITING && t->word)
		stop_waiting(t);
	unschedule(t);
	t->state = THREAD_GONE;
}

void world_thread_exit(void *result)
{
	struct world_thread *t = world.current;

	world_keys_end();
	t->result = result;
	world_note(WORLD_ENDS, t->number, 0);
	thread_gone(t);
	t->ended = 1;
	world_wake(&t->ended, 0);
	leave();
	abort();
}

static void process_over(struct world_process *p)
{
	for (struct world_thread *t = p->threads; t; t = t->next)
		if (t->state != THREAD_GONE)
			thread_gone(t);
	p->alive = false;
	p->ended_ns = world.last_death_ns = world.now_ns;
	world_kernel_ended(p);
	world_gpu_ended(p);
}

void world_process_exit(void)
{
	world_note(WORLD_EXITS, world.current->process->number, 0);
	process_over(world.current->process);
	leave();
	abort();
}

void world_exit(void)
{
	struct world_process *p = world.current->process;

	while (p->nat_exit)
		p->at_exit[--p->nat_exit]();
	world_process_exit();
}

void world_kill(struct world_process *p)
{
	if (!p->alive)
		return;
	world_note(WORLD_IS_KILLED, p->number, 0);
	world.kills++;
	process_over(p);
}

void world_doom(struct world_process *p, uint32_t points)
{
	if (!p->alive)
		return;
	p->doomed = true;
	for (struct world_thread *t = p->threads; t; t = t->next)
		t->points = points;
}

void world_stop(struct world_process *p, uint64_t ns)
{
	world_note(WORLD_IS_STOPPED, p->number, ns);
	p->stopped = true;
	p->pauses_ns += ns;
	p->continue_ns = world.now_ns + ns;
}

static void body(void)
{
	struct world_thread *t = world.current;

	world_thread_exit(t->body(t->argument));
}

struct world_process *world_process_new(const char *const *environment)
{
	struct world_process *p = __real_calloc(1, sizeof(*p));

	if (!p)
		out_of_memory();
	world.processes = grow(
		world.processes, world.nprocesses, &world.processes_room, sizeof(*world.processes));
	p->number = world.nprocesses;
	p->alive = true;
	p->environment = environment;
	world.processes[world.nprocesses++] = p;
	world_gpu_process(p);
	return p;
}

struct world_thread *world_thread_new(
	struct world_process *p, const char *name, uint64_t at_ns, void *(*function)(void *), void *argument)
{
	struct world_thread *t = __real_calloc(1, sizeof(*t));

	if (!t)
		out_of_memory();
	world.threads = grow(world.threads, world.nthreads, &world.threads_room, sizeof(*world.threads));
	t->number = world.nthreads;
	world.threads[world.nthreads++] = t;
	t->process = p;
	t->name = name;
	t->body = function;
	t->argument = argument;
	t->points = draw_points();
	t->next = p->threads;
	p->threads = t;
	if (!p->first)
		p->first = t;
	t->mine.self = p->own ? &p->own->nobody : NULL;
	t->stack = coro_stack();
	t->sp = coro_prepare(t->stack, body);
	world_gpu_thread(t);
	world_note(WORLD_STARTS, t->number, p->number);
	schedule(t, at_ns);
	return t;
}

/* Its state is the one that the product sees. */
static void enter(struct world_thread *t)
{
	world.current = t;
	world_points = &t->points;
	world_self = &t->process->self;
	world_own = t->process->own;
	world_mine = &t->mine;
	world_self_thread = t->number + 1;
	world_gpu_enter(t);
}

static void outside(void)
{
	world.current = NULL;
	no_points = 1u << 30;
	world_points = &no_points;
	world_self = &no_self;
	world_own = &no_own;
	world_mine = &no_mine;
	world_self_thread = UINT64_MAX;
}

/* A stopped process's threads are due when it goes on. */
static bool put_off(struct world_thread *t)
{
	struct world_process *p = t->process;

	if (!p->stopped)
		return false;
	if (world.now_ns >= p->continue_ns) {
		p->stopped = false;
		world_note(WORLD_GOES_ON, p->number, 0);
		return false;
	}
	schedule(t, p->continue_ns);
	return true;
}

void world_run(uint64_t until_ns, void (*check)(void))
{
	while (world.nheap && !world.failed && world.heap[0]->at_ns < until_ns) {
		struct world_thread *t = world.heap[0];

		if (t->at_ns > world.now_ns)
			world.now_ns = t->at_ns;
		if (put_off(t))
			continue;
		unschedule(t);
		world.step++;
		enter(t);
		world_note(WORLD_RUNS, t->number, 0);
		coro_switch(&scheduler, t->sp);
		outside();
		if (check)
			check();
		if (world.until_step && world.step >= world.until_step)
			break;
	}
	if (!world.failed && world.now_ns < until_ns && until_ns != NEVER)
		world.now_ns = until_ns;
}

void world_begin(uint64_t seed)
{
	struct world fresh = {.seed = seed, .hash = 0xcbf29ce484222325ull, .until_step = world.until_step};

	fresh.heap = world.heap;
	fresh.room = world.room;
	fresh.threads = world.threads;
	fresh.threads_room = world.threads_room;
	fresh.processes = world.processes;
	fresh.processes_room = world.processes_room;
	world = fresh;
	world.now_ns = world.start_ns = 1000 * WORLD_S;
	world_chance_seed(&world.chance, seed);
	world_chance_seed(&world.programs, ~seed);
	memset(waiting, 0, sizeof(waiting));
	outside();
	world_kernel_begin();
}

void world_end(void)
{
	outside();
	world_gpu_end();
	for (unsigned i = 0; i < world.nthreads; i++) {
		coro_give_back(world.threads[i]->stack);
		__real_free(world.threads[i]);
	}
	for (unsigned i = 0; i < world.nprocesses; i++)
		__real_free(world.processes[i]);
	world.nthreads = world.nprocesses = world.nheap = 0;
	world_kernel_end();
	world_unmap_all();
	world_arena_reset();
}
