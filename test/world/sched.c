/* Which thread runs next: a heap of threads, ordered by when they are due. Of threads that are due at the same time the
 * seed chooses. */
#include "test/world/world.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "test/world/coro.h"
#include "test/world/due.h"
#include "test/world/gpu.h"

#define WORDS 4096 /* buckets of waiting threads */
#define NEVER UINT64_MAX
/* Bytes of the stack of the next thread that are brought into the cache: what it needs to return from a few calls. */
#define STACK_FETCHED 512

struct world world;

/* The state while no simulated thread runs, as in constructors: that code is never interrupted. */
static struct arb_self_state no_self;
static struct arb_process no_own;
static struct arb_thread no_mine;

#define NO_POINTS (1u << 30)
uint32_t world_points = NO_POINTS, world_points_kept;
struct arb_self_state *world_self = &no_self;
struct arb_process *world_own = &no_own;
struct arb_thread *world_mine = &no_mine;
uint64_t world_self_thread = UINT64_MAX;
bool world_ahead;

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

/* Puts a thread into the heap, due at `at_ns`, or moves it there if it is in the heap already. */
static void schedule(struct world_thread *t, uint64_t at_ns)
{
	t->at_ns = at_ns;
	if (!t->place && world.hole) {
		world.hole = false;
		t->place = 1;
	} else if (!t->place) {
		world.heap = grow(world.heap, world.nheap, &world.room, sizeof(*world.heap));
		t->place = ++world.nheap;
	}
	world.clear_ns = 0;
	world_due_sift(t->place - 1, (struct world_due){at_ns, world_chance_next(&world.chance), t});
	if (world.hole)
		world_due_behind();
}

static void unschedule(struct world_thread *t)
{
	unsigned i = t->place - 1;

	if (!t->place)
		return;
	t->place = 0;
	world.clear_ns = 0;
	world_due_remove(i);
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

static void go_ahead(void)
{
	if (world_ahead)
		return;
	world_ahead = true;
	world_points_kept = world_points;
	world_points = 1;
}

static void no_longer_ahead(void)
{
	if (!world_ahead)
		return;
	world_ahead = false;
	world_points = world_points_kept;
}

/* Leaves the processor to the next thread. */
static void leave(void)
{
	struct world_thread *t = world.current;

	no_longer_ahead();
	coro_switch(&t->sp, scheduler);
}

static void leave_until(uint64_t at_ns)
{
	schedule(world.current, at_ns);
	leave();
}

/* Returns when the next other thread of this thread's process is due; UINT64_MAX: none is. */
static uint64_t sibling_due(const struct world_thread *me)
{
	uint64_t at = NEVER;

	for (const struct world_thread *t = me->process->threads; t; t = t->next)
		if (t != me && t->place && t->at_ns < at)
			at = t->at_ns;
	return at;
}

void world_spend_slowly(uint64_t ns)
{
	struct world_thread *t = world.current;
	uint64_t at = world.now_ns + ns, due, until;

	if (!t) {
		world.now_ns = at;
		return;
	}
	t->cpu_ns += ns;
	due = world_due_ns();
	if (due > at) {
		world.now_ns = at;
		world.clear_ns = due;
		return;
	}
	if (at > world.step_ns + world.weather.ahead_ns || !world.weather.ahead_ns) {
		leave_until(at);
		return;
	}
	until = sibling_due(t);
	if (until <= at) {
		leave_until(at);
		return;
	}
	world.now_ns = at;
	go_ahead();
	world.clear_ns = world.step_ns + world.weather.ahead_ns + 1;
	if (until < world.clear_ns)
		world.clear_ns = until;
}

void world_meet(void)
{
	if (!world_ahead)
		return;
	no_longer_ahead();
	if (world_due_ns() <= world.now_ns)
		leave_until(world.now_ns);
	world.clear_ns = 0;
}

static void pause_for(struct world_process *p, uint64_t ns)
{
	p->pauses_ns += ns;
	world.pauses_ns += ns;
}

void world_interrupt(void)
{
	struct world_thread *t = world.current;
	uint64_t ns;

	if (!t) {
		world_points = NO_POINTS;
		return;
	}
	if (world_ahead) {
		world_points_kept--;
		world_meet();
	}
	if (world_points)
		return;
	if (t->process->doomed) {
		world_kill(t->process);
		leave();
	}
	world_points = draw_points();
	world.touched = true;
	if (!world.weather.point_mean)
		return;
	ns = world_chance_once_in(&world.chance, world.weather.preempt_in)
		     ? world_chance_exp(&world.chance, world.weather.preempt_ns)
		     : world_chance_exp(&world.chance, world.weather.interrupt_ns);
	/* Even a sleep of no time lets a thread that is due now run first. */
	if (ns || world_due_ns() <= world.now_ns) {
		world_note(WORLD_HELD_UP, ns, 0);
		pause_for(t->process, ns);
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
	world.current->cpu_ns += world.weather.wake_ns;
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
	world_meet();
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
	/* At the end of the queue, as in the kernel. */
	while (*at)
		at = &(*at)->next_waiting;
	*at = t;
	t->next_waiting = NULL;
	if (until_ns != NEVER)
		schedule(t, until_ns + world_lateness());
	t->cpu_ns += world.weather.wake_ns;
	leave();
	if (!t->woken)
		stop_waiting(t);
	t->state = THREAD_READY;
	return t->woken ? 0 : -ETIMEDOUT;
}

unsigned world_wake(const uint32_t *word, unsigned most)
{
	struct world_thread **at, *t;
	unsigned n = 0;

	world_meet();
	at = bucket(word);
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
	world.ended++;
	p->ended_ns = world.last_death_ns = world.now_ns;
	world_kernel_ended(p);
	world_gpu_ended(p);
}

void world_process_exit(void)
{
	world_meet();
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
	if (world.current && world.current->process == p)
		*(world_ahead ? &world_points_kept : &world_points) = points;
}

void world_stop(struct world_process *p, uint64_t ns)
{
	world_note(WORLD_IS_STOPPED, p->number, ns);
	p->stopped = true;
	pause_for(p, ns);
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
	world.processes =
		grow(world.processes, world.nprocesses, &world.processes_room, sizeof(*world.processes));
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
	t->number = world.numbered++;
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

/* Makes `t` the running thread: from here on the product sees its state and that of its process. */
static void enter(struct world_thread *t)
{
	world.current = t;
	world.clear_ns = 0;
	world_points = t->points;
	world_self = &t->process->self;
	world_own = t->process->own;
	world_mine = &t->mine;
	world_self_thread = t->number + 1;
	world_gpu_enter(t);
}

static void outside(void)
{
	world_ahead = false;
	world.current = NULL;
	world.clear_ns = 0;
	world_points = NO_POINTS;
	world_self = &no_self;
	world_own = &no_own;
	world_mine = &no_mine;
	world_self_thread = UINT64_MAX;
}

/* Delays a thread of a stopped process until that process goes on. Returns whether it did. */
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

/* Brings the thread that is probably next into the cache. */
static void fetch(const struct world_thread *t)
{
	for (unsigned i = 0; i < STACK_FETCHED; i += 64)
		__builtin_prefetch((char *)t->sp + i);
	world_gpu_fetch(t);
}

/* Frees the threads of processes that have ended, and their stacks. */
static void bury(void)
{
	unsigned n = 0;

	for (unsigned i = 0; i < world.nthreads; i++) {
		struct world_thread *t = world.threads[i];

		if (t->process->alive) {
			world.threads[n++] = t;
			continue;
		}
		t->process->threads = t->process->first = NULL;
		world_gpu_thread_gone(t);
		coro_give_back(t->stack);
		__real_free(t);
	}
	world.nthreads = n;
	world.ended = 0;
}

void world_run(uint64_t until_ns, void (*check)(void))
{
	while (world.nheap && !world.failed && world.heap[0].at_ns < until_ns) {
		struct world_thread *t = world.heap[0].thread, *next;
		uint32_t points;

		world.now_ns = world.step_ns = t->at_ns;
		if (put_off(t))
			continue;
		next = world_due_take();
		world.step++;
		/* Another thread of the process may have run ahead: this thread sees what that one did, so its clock
		 * must not be behind. */
		if (t->process->reached_ns > t->at_ns)
			world.now_ns = t->process->reached_ns;
		enter(t);
		world_note(WORLD_RUNS, t->number, 0);
		points = t->points;
		world.touched = false;
		if (next)
			fetch(next);
		coro_switch(&scheduler, t->sp);
		world_due_close();
		t->points = world_points;
		world.touched |= t->points != points;
		if (world.now_ns > t->process->reached_ns)
			t->process->reached_ns = world.now_ns;
		if (world.nheap && world.heap[0].at_ns < world.now_ns)
			world.now_ns = world.heap[0].at_ns;
		outside();
		if (world.ended)
			bury();
		if (check)
			check();
		world.looked_ns = world.now_ns;
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
	if (world_hashes)
		printf("seed %llu: %llu steps, hash %016llx\n", (unsigned long long)world.seed,
			(unsigned long long)world.step, (unsigned long long)world.hash);
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
