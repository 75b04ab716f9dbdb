/*
 * The GPU of the world: the simulated GPU's own model, on the world's clock. Its file is memory here. Nobody waits for
 * its lock, because the thread that holds it is never interrupted. Its processes are processes of the world.
 *
 * Static variables of the simulated driver, and the few of the preload, are in one section of this program
 * (world_state). Before a process runs, its own copy of them is brought there. Arrays with an entry for each GPU have
 * sections of their own (world_by_...): only the entries of the world's GPUs are brought.
 */
#include "test/world/gpu.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "preload/process/device.h"
#include "preload/memory/memory_table.h"
#include "preload/track/track.h"
#include "shm/admission/shared.h"
#include "test/sim/device/engine.h"
#include "test/sim/device/shm.h"

#define FIRST_BYTES (((sizeof(struct sim_file) + 4095) / 4096) * 4096)
#define FILE_BYTES  (FIRST_BYTES + (uint64_t)SIM_MAX_RINGS * SIM_RING_OPS * sizeof(struct sim_op))
#define MAX_WAKES   64

_Static_assert(SIM_MAX_DEVICES <= ARB_SHARED_GPUS, "a process can join every GPU");

#define LINE 64 /* bytes that are moved at a time */

struct sim_shm sim_shm __attribute__((section("world_state"), aligned(LINE))) = {.fd = -1, .slot = SIM_NONE};

extern unsigned char __start_world_state[], __stop_world_state[], __start_world_tls[], __stop_world_tls[];

/* These arrays and their numbers of entries. They are moved by whole words. */
#define BY_GPU(X)                                                                                            \
	X(known, ARB_SHARED_GPUS)                                                                            \
	X(primary, ARB_DEVICES)                                                                              \
	X(high, SIM_MAX_DEVICES)                                                                             \
	X(standard, SIM_MAX_DEVICES)                                                                         \
	X(current, SIM_MAX_DEVICES)                                                                          \
	X(managed, ARB_DEVICES)
#define X(name, entries) extern unsigned char __start_world_by_##name[], __stop_world_by_##name[];
BY_GPU(X)
#undef X
static const struct {
	unsigned char *start, *stop;
	unsigned entries;
} by_gpu[] = {
#define X(name, entries) {__start_world_by_##name, __stop_world_by_##name, entries},
	BY_GPU(X)
#undef X
};
#define ARRAYS (sizeof(by_gpu) / sizeof(by_gpu[0]))

/* A word of one of these arrays. */
typedef uint64_t piece __attribute__((may_alias));

static struct {
	piece **words; /* the words of the arrays that are brought */
	unsigned nwords, words_room;
	bool wide; /* the processor moves half a line at a time */
	struct sim_file *file;
	bool used; /* in this world */
	unsigned char *fresh, *fresh_tls;
	struct world_process *loaded;
	struct world_thread *loaded_tls;
	struct world_process *slots[SIM_MAX_PROCS];
	bool locked;
	uint32_t *wakes[MAX_WAKES];
	unsigned nwakes;
	struct world_thread
		*spinner; /* the thread that asked for the time last, and how often it did in a row */
	unsigned spins;
} gpu;

void *__real_malloc(size_t size);
void *__real_realloc(void *p, size_t size);
void *__real_aligned_alloc(size_t alignment, size_t size);
void __real_free(void *p);

#if defined(__x86_64__)
typedef uint64_t half __attribute__((vector_size(LINE / 2), aligned(1), may_alias));

__attribute__((target("avx2"))) static void move_wide(
	unsigned char *to, const unsigned char *from, size_t lines)
{
#pragma GCC unroll 8
	for (size_t i = 0; i < 2 * lines; i++)
		((half *)to)[i] = ((const half *)from)[i];
}

static bool moves_wide(void)
{
	return __builtin_cpu_supports("avx2");
}
#else
static void move_wide(unsigned char *to, const unsigned char *from, size_t lines)
{
	memcpy(to, from, lines * LINE);
}

static bool moves_wide(void)
{
	return false;
}
#endif

static void out_of_memory(void)
{
	fprintf(stderr, "world: out of memory\n");
	exit(2);
}

static size_t state_bytes(void)
{
	return (size_t)(__stop_world_state - __start_world_state);
}

/* Returns where in a process's copy the words of the arrays begin: behind the rest. */
static size_t words_at(void)
{
	return (state_bytes() + sizeof(piece) - 1) / sizeof(piece) * sizeof(piece);
}

static size_t image_bytes(void)
{
	return words_at() + gpu.nwords * sizeof(piece);
}

static void count_arrays(void)
{
	gpu.nwords = 0;
	for (unsigned i = 0; i < ARRAYS; i++) {
		size_t bytes = (size_t)(by_gpu[i].stop - by_gpu[i].start) / by_gpu[i].entries *
			       gpu.file->set.devices;

		for (size_t at = 0; at < bytes; at += sizeof(piece)) {
			if (gpu.nwords == gpu.words_room) {
				gpu.words_room = gpu.words_room ? 2 * gpu.words_room : 64;
				gpu.words = __real_realloc(gpu.words, gpu.words_room * sizeof(*gpu.words));
				if (!gpu.words)
					out_of_memory();
			}
			gpu.words[gpu.nwords++] = (piece *)(by_gpu[i].start + at);
		}
	}
}

static size_t tls_bytes(void)
{
	return (size_t)(__stop_world_tls - __start_world_tls);
}

static void *copy_of(const void *from, size_t bytes)
{
	void *copy = __real_malloc(bytes);

	if (!copy)
		out_of_memory();
	return memcpy(copy, from, bytes);
}

void world_gpu_begin(void)
{
	struct sim_file *f;

	if (!gpu.file) {
		if (tls_bytes() < LINE || tls_bytes() > sizeof(((struct world_thread *)0)->tls)) {
			fprintf(stderr, "world: a thread's state has %zu bytes\n", tls_bytes());
			exit(2);
		}
		gpu.file = mmap(NULL, FILE_BYTES, PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
		if (gpu.file == MAP_FAILED) {
			perror("world: the GPU's memory");
			exit(2);
		}
		sim_shm.file = gpu.file;
		sim_shm.ops = (struct sim_op *)((char *)gpu.file + FIRST_BYTES);
		gpu.wide = moves_wide();
		gpu.fresh = copy_of(__start_world_state, state_bytes());
		gpu.fresh_tls = copy_of(__start_world_tls, tls_bytes());
	}
	gpu.used = true;
	gpu.locked = false;
	gpu.nwakes = 0;
	memset(gpu.slots, 0, sizeof(gpu.slots));
	f = gpu.file;
	f->magic = SIM_MAGIC;
	f->layout = SIM_LAYOUT;
	f->ops_at = FIRST_BYTES / 4096;
	sim_settings_read(f);
	f->now_ns = world.now_ns;
	f->sample_at_ns = f->now_ns + f->set.sample_ns;
	for (int i = 0; i < SIM_MAX_DEVICES; i++)
		f->device[i].since_ns = f->now_ns;
	memcpy(__start_world_state, gpu.fresh, state_bytes());
	count_arrays();
	for (unsigned i = 0; i < ARRAYS; i++)
		memset(by_gpu[i].start, 0, (size_t)(by_gpu[i].stop - by_gpu[i].start));
	memcpy(__start_world_tls, gpu.fresh_tls, tls_bytes());
}

bool world_gpu_used(void)
{
	return gpu.used;
}

void world_gpu_end(void)
{
	gpu.loaded = NULL;
	gpu.loaded_tls = NULL;
	gpu.spinner = NULL;
	for (unsigned i = 0; i < world.nprocesses; i++)
		__real_free(world.processes[i]->image);
	if (gpu.used)
		madvise(gpu.file, FILE_BYTES, MADV_DONTNEED);
	gpu.used = false;
}

void world_gpu_process(struct world_process *p)
{
	static const struct arb_process begin = ARB_PROCESS_INIT(NULL, NULL, NULL, NULL);

	if (!gpu.used)
		return;
	p->image = __real_aligned_alloc(LINE, (image_bytes() + LINE - 1) / LINE * LINE);
	if (!p->image)
		out_of_memory();
	memcpy(p->image, gpu.fresh, state_bytes());
	memset(p->image + words_at(), 0, gpu.nwords * sizeof(piece));
	/* Memory from the arena that was never used is zero. */
	p->own = memcpy(world_alloc_aligned(128, sizeof(begin)), &begin, sizeof(begin));
	p->own->devices = world_alloc_aligned(64, ARB_DEVICES * sizeof(struct arb_device));
	p->own->stripes = world_alloc_aligned(128, MEMORY_STRIPES * sizeof(struct memory_stripe));
	for (unsigned i = 0; i < MEMORY_STRIPES; i++)
		p->own->stripes[i] = (struct memory_stripe)MEMORY_STRIPE_INIT;
	p->own->tracks = world_alloc_aligned(64, ARB_DEVICES * sizeof(struct track));
}

void world_gpu_thread(struct world_thread *t)
{
	if (gpu.used)
		memcpy(t->tls, gpu.fresh_tls, tls_bytes());
}

/* Copies the KB or two of every switch. For such a size memcpy would use a method that takes long to begin. */
static void move(unsigned char *to, const unsigned char *from, size_t bytes)
{
	if (gpu.wide)
		move_wide(to, from, bytes / LINE);
	else
		for (size_t i = 0; i + LINE <= bytes; i += LINE)
			__builtin_memcpy(to + i, from + i, LINE);
	/* The rest, as the last whole line: a part of that line is moved a second time. */
	if (bytes % LINE)
		__builtin_memcpy(to + bytes - LINE, from + bytes - LINE, LINE);
}

static void put_away(const struct world_process *p)
{
	piece *image = (piece *)(p->image + words_at()), *const *words = gpu.words;

	move(p->image, __start_world_state, state_bytes());
	for (unsigned i = 0, n = gpu.nwords; i < n; i++)
		image[i] = *words[i];
}

static void bring(const struct world_process *p)
{
	const piece *image = (const piece *)(p->image + words_at());
	piece *const *words = gpu.words;

	move(__start_world_state, p->image, state_bytes());
	for (unsigned i = 0, n = gpu.nwords; i < n; i++)
		*words[i] = image[i];
}

void world_gpu_enter(struct world_thread *t)
{
	struct world_process *p = t->process;

	if (!gpu.used)
		return;
	if (gpu.loaded_tls != t) {
		if (gpu.loaded_tls)
			move(gpu.loaded_tls->tls, __start_world_tls, tls_bytes());
		move(__start_world_tls, t->tls, tls_bytes());
		gpu.loaded_tls = t;
	}
	if (gpu.loaded != p) {
		if (gpu.loaded)
			put_away(gpu.loaded);
		bring(p);
		gpu.loaded = p;
	}
}

static void fetch(const unsigned char *from, size_t bytes)
{
#pragma GCC unroll 8
	for (size_t i = 0; i < bytes; i += 64)
		__builtin_prefetch(from + i);
}

void world_gpu_fetch(const struct world_thread *t)
{
	if (!gpu.used || gpu.loaded == t->process)
		return;
	fetch(t->tls, tls_bytes());
	fetch(t->process->image, image_bytes());
}

void world_gpu_thread_gone(struct world_thread *t)
{
	if (gpu.loaded_tls == t)
		gpu.loaded_tls = NULL;
	if (gpu.spinner == t)
		gpu.spinner = NULL;
}

uint64_t world_gpu_memory(const struct world_process *p)
{
	for (unsigned i = 0; gpu.used && i < SIM_MAX_PROCS; i++)
		if (gpu.slots[i] == p) {
			const struct sim_account *a = &gpu.file->proc[i].dev[0];
			uint64_t contexts = a->contexts * gpu.file->set.context_bytes;

			return a->memory_bytes > contexts ? a->memory_bytes - contexts : 0;
		}
	return 0;
}

/* Takes everything from a process that has ended, as the kernel does. */
void world_gpu_ended(struct world_process *p)
{
	if (!gpu.used)
		return;
	for (unsigned i = 0; i < SIM_MAX_PROCS; i++)
		if (gpu.slots[i] == p) {
			gpu.slots[i] = NULL;
			sim_engine_advance_fully(world.now_ns);
			sim_engine_end_process(i);
			gpu.nwakes = 0;
		}
}

/* What the model needs from outside (shm.h), in the world. */

/* A thread that asks for the time many times in a row only waits, so its steps become longer. */
uint64_t sim_clock_ns(void)
{
	if (!world.current || gpu.locked)
		return world.now_ns;
	if (gpu.spinner != world.current) {
		gpu.spinner = world.current;
		gpu.spins = 0;
	}
	gpu.spins++;
	world_spend(gpu.spins < 4 ? world.weather.clock_ns : gpu.spins < 16 ? 100 : 400);
	return world.now_ns;
}

uint64_t sim_stamp_ns(void)
{
	if (world.current && !gpu.locked)
		world_spend(world.weather.clock_ns);
	gpu.spins = 0;
	return world.now_ns;
}

void sim_futex_wait(uint32_t *word, uint32_t value, uint64_t until_ns)
{
	gpu.spins = 0;
	world_wait(word, value, until_ns);
}

void sim_futex_wake(uint32_t *word)
{
	world_wake(word, 0);
}

void sim_wake_later(uint32_t *word)
{
	__atomic_fetch_add(word, 1, __ATOMIC_RELEASE);
	for (unsigned i = 0; i < gpu.nwakes; i++)
		if (gpu.wakes[i] == word)
			return;
	if (gpu.nwakes < MAX_WAKES)
		gpu.wakes[gpu.nwakes++] = word;
}

void sim_lock(void)
{
	world_meet();
	if (gpu.locked)
		world_fail("the GPU's lock is taken twice");
	gpu.locked = true;
	gpu.spins = 0;
	gpu.nwakes = 0;
}

void sim_unlock(void)
{
	uint32_t *list[MAX_WAKES];
	unsigned n = gpu.nwakes;

	memcpy(list, gpu.wakes, n * sizeof(list[0]));
	gpu.nwakes = 0;
	gpu.locked = false;
	for (unsigned i = 0; i < n; i++)
		world_wake(list[i], 0);
}

bool sim_shm_alive(uint32_t slot)
{
	return gpu.slots[slot] != NULL;
}

bool sim_shm_stopped(uint32_t slot)
{
	return gpu.slots[slot] && gpu.slots[slot]->stopped;
}

/* The GPU's file is open in every process from the beginning. */
int sim_shm_open(void)
{
	return 0;
}

void sim_shm_close(void)
{
}

void sim_shm_forget(void)
{
}

int sim_shm_join(void)
{
	struct world_process *process = world.current->process;
	struct sim_file *file = gpu.file;
	uint32_t slot = 0, best = SIM_NONE;
	struct sim_proc *p;

	sim_engine_advance(world.now_ns);
	for (slot = 0; slot < SIM_MAX_PROCS; slot++) {
		if (file->proc[slot].state == SIM_PROC_FREE)
			break;
		if (file->proc[slot].state == SIM_PROC_DEAD &&
			(best == SIM_NONE || file->proc[slot].ended_ns < file->proc[best].ended_ns))
			best = slot;
	}
	if (slot == SIM_MAX_PROCS)
		slot = best;
	if (slot == SIM_NONE)
		return -EUSERS;
	p = &file->proc[slot];
	if (p->state == SIM_PROC_DEAD)
		sim_engine_forget(slot);
	*p = (struct sim_proc){.gen = p->gen + 1,
		.serial = ++file->serial,
		.pid = (int32_t)(1000 + process->number),
		.started_ns = file->now_ns,
		.state = SIM_PROC_LIVE};
	snprintf(p->command, sizeof(p->command), "program%u", process->number);
	gpu.slots[slot] = process;
	sim_shm.slot = slot;
	sim_shm.ident = slot + 1;
	return 0;
}

void sim_shm_leave(void)
{
	world_gpu_ended(world.current->process);
	sim_shm.slot = SIM_NONE;
}

/* Lets the time of a call pass, give or take a tenth. Replaces the driver's own function, which would spin. */
void drv_cost_slow(uint64_t ns);
void drv_cost_slow(uint64_t ns)
{
	if (ns > 200000)
		world_sleep(ns);
	else
		world_spend(ns + world_chance_below(&world.chance, ns / 8 + 1));
}
