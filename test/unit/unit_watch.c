/* Clients that watch over each other while they sleep, with a kernel that the test plays. */
#include "test/unit/unit_clients.h"

#include "shm/client/watch.h"

#include <linux/futex.h>
#include <unistd.h>

#include "shm/segment/slot.h"

static struct {
	struct arb_os_word words[ARB_OS_WORDS];
	unsigned n, threads;
	uint64_t ns;
	int refuses;
	void (*while_asleep)(void);
} kernel;

static int park_any(const struct arb_os_word *words, unsigned n, uint64_t ns)
{
	memcpy(kernel.words, words, n * sizeof(*words));
	kernel.n = n;
	kernel.ns = ns;
	if (kernel.refuses)
		return kernel.refuses;
	if (kernel.while_asleep)
		kernel.while_asleep();
	return 0;
}

static int robust(struct arb_os_robust *list, uint32_t *thread)
{
	(void)list;
	*thread = 1000 + kernel.threads++;
	return 0;
}

static void begin(void)
{
	static const struct arb_os_hooks hooks = {.now_ns = u_now,
		.futex_wait = u_futex_wait,
		.futex_wake = u_futex_wake,
		.park_any = park_any,
		.robust = robust};

	u_begin_default();
	memset(&kernel, 0, sizeof(kernel));
	arb_os_hooks = &hooks;
}

TestSuite(watch, .init = begin, .fini = u_end);

static uint32_t word = 7;

static void park(struct arb_watch *w, struct gpuarb_client *c)
{
	kernel.n = 0;
	arb_watch_park(w, &c, 1, &word, 7, 0);
	cr_assert_geq(kernel.n, 2);
	cr_assert_eq(kernel.words[0].word, &word);
	cr_assert(!kernel.words[0].shared && kernel.words[1].shared);
	cr_assert_eq(kernel.words[1].word, &c->seg.header->ring.v);
	cr_assert_eq(kernel.words[1].value, arb_load32(&c->seg.header->ring), "nobody has come since");
}

static bool watches_over(const struct gpuarb_client *me, const struct gpuarb_client *other)
{
	const struct arb_slot *s = &me->seg.slots[other->me.slot];

	if (kernel.n < 3)
		return false;
	cr_assert_eq(kernel.words[2].value, arb_load32(&s->life));
	cr_assert(arb_load32(&s->life) & FUTEX_WAITERS, "without it the kernel wakes nobody");
	return kernel.words[2].word == &s->life.v;
}

/* Does what the kernel does at a death: it marks the word, and then the lock is gone. */
static void announce(struct gpuarb_client *c)
{
	arb_store32(&arb_client_slot(c)->life, FUTEX_OWNER_DIED | FUTEX_WAITERS);
	arb_store32(&arb_client_slot(c)->life2, FUTEX_OWNER_DIED | FUTEX_WAITERS);
}

static void die(struct gpuarb_client *c)
{
	announce(c);
	u_die(c);
}

Test(watch, each_client_watches_over_the_next_and_the_last_over_the_first)
{
	struct gpuarb_client *a = u_client("a", 0), *b = u_client("b", 0), *c = u_client("c", 0);
	struct arb_watch wa = {0}, wb = {0}, wc = {0};

	park(&wa, a);
	cr_assert_eq(kernel.n, 2, "there is nobody else yet");
	park(&wb, b);
	cr_assert(watches_over(b, a));
	park(&wa, a);
	cr_assert(watches_over(a, b));
	park(&wc, c);
	cr_assert(watches_over(c, a));
	park(&wb, b);
	cr_assert(watches_over(b, c), "a newcomer between two is watched over by its predecessor");
	park(&wa, a);
	cr_assert(watches_over(a, b));
	gpuarb_client_close(b);
	park(&wa, a);
	cr_assert(watches_over(a, c), "a client that has left is not watched");
	gpuarb_client_close(a);
	gpuarb_client_close(c);
}

Test(watch, the_kernel_finds_the_words_of_all_clients_of_a_thread)
{
	struct gpuarb_client *a = u_client("a", 0), *b = u_client("b", 0), *both[] = {a, b};
	struct arb_watch w = {0};
	uint64_t *entry;
	int found = 0;

	arb_watch_park(&w, both, 2, &word, 7, 0);
	for (entry = w.list.first; entry != (uint64_t *)(void *)&w.list && found < 5;
		entry = (uint64_t *)(uintptr_t)*entry) {
		uint32_t life = *(uint32_t *)(void *)((char *)entry + w.list.offset);

		cr_assert_eq(life & FUTEX_TID_MASK, w.thread);
		found++;
	}
	cr_assert_eq(found, 4, "each has two");
	gpuarb_client_part(a);
	arb_watch_park(&w, both, 2, &word, 7, 0);
	cr_assert_eq(w.list.first, &b->seg.slots[b->me.slot].life_next.v);
	cr_assert_eq(*w.list.first, (uintptr_t)&b->seg.slots[b->me.slot].life2_next);
	cr_assert_eq(*(uint64_t *)(uintptr_t)*w.list.first, (uintptr_t)&w.list);
	gpuarb_client_close(a);
	gpuarb_client_close(b);
}

Test(watch, a_dead_neighbour_is_cleaned_up_behind_and_the_next_one_is_watched)
{
	struct gpuarb_client *a = u_client("a", 0), *b = u_client("b", 0), *c = u_client("c", 0);
	struct arb_watch wa = {0}, wb = {0}, wc = {0};

	cr_assert_eq(gpuarb_client_mem_reserve(b, 1 << 20), 0);
	park(&wb, b);
	park(&wc, c);
	park(&wa, a);
	die(b);
	park(&wa, a);
	cr_assert_eq(arb_load32(&a->seg.slots[b->me.slot].state), ARB_SLOT_FREE);
	cr_assert_eq(arb_load64(&a->seg.header->reclaimed), 1);
	cr_assert(watches_over(a, c));
	gpuarb_client_close(a);
	gpuarb_client_close(c);
}

Test(watch, neighbours_that_die_together_are_all_found)
{
	struct gpuarb_client *a = u_client("a", 0), *dead[10];
	static struct arb_watch wa, w[10];

	for (int i = 0; i < 10; i++)
		park(&w[i], dead[i] = u_client("b", 0));
	park(&wa, a);
	for (int i = 0; i < 10; i++)
		die(dead[i]);
	park(&wa, a);
	cr_assert_eq(arb_load64(&a->seg.header->reclaimed), 10);
	cr_assert_eq(kernel.n, 2, "there is nobody else any more");
	gpuarb_client_close(a);
}

Test(watch, a_dying_process_whose_memory_is_still_being_freed_is_looked_at_again_soon)
{
	struct gpuarb_client *a = u_client("a", 0), *b = u_client("b", 0);
	struct arb_watch wa = {0}, wb = {0};

	park(&wb, b);
	park(&wa, a);
	announce(b);
	park(&wa, a);
	cr_assert(kernel.ns > 0 && kernel.ns <= MS, "it does not sleep for ever");
	u_clock_ns += 100 * MS;
	park(&wa, a);
	cr_assert(kernel.ns > MS && kernel.ns <= 5 * MS, "the less often the longer it takes");
	u_die(b);
	park(&wa, a);
	cr_assert_eq(arb_load64(&a->seg.header->reclaimed), 1);
	gpuarb_client_close(a);
}

Test(watch, a_client_that_was_announced_dead_and_lives_is_left_in_peace_in_the_end)
{
	struct gpuarb_client *a = u_client("a", 0), *b = u_client("b", 0), *c = u_client("c", 0);
	struct arb_watch wa = {0}, wb = {0}, wc = {0};

	park(&wb, b);
	park(&wc, c);
	park(&wa, a);
	announce(b);
	park(&wa, a);
	u_clock_ns += 6000 * MS;
	park(&wa, a);
	cr_assert(watches_over(a, c));
	cr_assert_eq(kernel.ns, 0);
	cr_assert_eq(arb_load64(&a->seg.header->reclaimed), 0);
	gpuarb_client_close(a);
	gpuarb_client_close(b);
	gpuarb_client_close(c);
}

static struct gpuarb_client *newcomer;
static struct arb_watch newcomers;

static void somebody_comes(void)
{
	kernel.while_asleep = NULL;
	arb_watch_park(&newcomers, &newcomer, 1, &word, 7, 0);
}

Test(watch, a_newcomer_changes_the_word_that_another_is_about_to_sleep_on)
{
	struct gpuarb_client *a = u_client("a", 0);
	struct arb_watch wa = {0};
	uint32_t before;

	newcomer = u_client("b", 0);
	arb_watch_park(&wa, &a, 1, &word, 7, 0);
	before = arb_load32(&a->seg.header->ring);
	kernel.while_asleep = somebody_comes;
	arb_watch_park(&wa, &a, 1, &word, 7, 0);
	cr_assert_neq(arb_load32(&a->seg.header->ring), before);
	park(&wa, a);
	cr_assert(watches_over(a, newcomer));
	arb_watch_end(&newcomers);
	park(&wa, a);
	cr_assert_eq(kernel.n, 2, "its thread has ended, the process has not");
	gpuarb_client_close(a);
	gpuarb_client_close(newcomer);
}

Test(watch, a_client_that_has_parted_is_gone_and_does_not_come_back)
{
	struct gpuarb_client *a = u_client("a", 0), *b = u_client("b", 30);
	struct gpuarb_work work = {0};

	cr_assert_eq(gpuarb_client_mem_reserve(b, 1 << 20), 0);
	cr_assert_eq(gpuarb_client_enter(b, NULL), 0);
	gpuarb_client_part(b);
	cr_assert_eq(arb_load32(&a->seg.slots[b->me.slot].state), ARB_SLOT_FREE);
	cr_assert_eq(arb_load64(&a->seg.header->reclaimed), 0, "it did not die");
	/* What is left of the program still frees memory, and even allocates some, and none of it is counted. */
	cr_assert_eq(gpuarb_client_mem_release(b, 1 << 20), 0);
	cr_assert_eq(gpuarb_client_mem_reserve(b, 1 << 20), 0);
	cr_assert_eq(gpuarb_client_enter(b, &work), -ESHUTDOWN);
	cr_assert_eq(gpuarb_client_tick(b), -ESHUTDOWN);
	cr_assert_eq(arb_load32(&a->seg.slots[b->me.slot].state), ARB_SLOT_FREE);
	gpuarb_client_close(b);
	gpuarb_client_close(a);
}

static void assert_listed(const struct arb_watch *w, struct gpuarb_client *c)
{
	cr_assert_eq(arb_load32(&arb_client_slot(c)->life) & FUTEX_TID_MASK, w->thread);
	cr_assert_eq(w->list.first, &arb_client_slot(c)->life_next.v);
}

/* A segment is removed and made anew; the client gets a slot of the same number and generation. */
Test(watch, a_client_that_moves_to_another_segment_is_watched_over_there)
{
	struct gpuarb_client *a = u_client("a", 0), *b;
	struct arb_watch wa = {0}, wb = {0};
	char path[PATH_MAX];

	park(&wa, a);
	assert_listed(&wa, a);
	t_path(&u_dir, "state", path);
	cr_assert_eq(unlink(path), 0);
	cr_assert_eq(gpuarb_client_rejoin(a, false, NULL), 0);
	park(&wa, a);
	assert_listed(&wa, a);
	b = u_client("b", 0);
	park(&wb, b);
	cr_assert(watches_over(b, a));
	gpuarb_client_close(a);
	gpuarb_client_close(b);
}

/* A process uses two GPUs. The first client's place in the list is looked up while the other client belongs to no
 * segment any more. */
Test(watch, a_slot_that_was_left_is_not_written_to)
{
	struct gpuarb_client *a = u_client("a", 0), *b = u_client("b", 0), *both[] = {a, b}, *next;
	struct arb_watch w = {0};
	uint32_t slot = b->me.slot;

	arb_watch_park(&w, both, 2, &word, 7, 0);
	gpuarb_client_part(b);
	next = u_client("c", 0);
	cr_assert_eq(next->me.slot, slot);
	arb_store64(&arb_client_slot(next)->life_next, 4711);
	/* The list is made anew, as after a move to another segment. */
	w.gpus[0].joins--;
	arb_watch_park(&w, both, 2, &word, 7, 0);
	assert_listed(&w, a);
	cr_assert_eq(arb_load64(&arb_client_slot(next)->life_next), 4711);
	gpuarb_client_close(a);
	gpuarb_client_close(b);
	gpuarb_client_close(next);
}

Test(watch, a_dead_neighbour_is_not_forgotten_while_somebody_holds_the_directory)
{
	struct gpuarb_client *a = u_client("a", 0), *b = u_client("b", 0);
	struct arb_watch wa = {0}, wb = {0};
	struct arb_lock directory;

	park(&wb, b);
	park(&wa, a);
	die(b);
	cr_assert_eq(arb_slot_directory(&a->seg, &directory), 0);
	park(&wa, a);
	cr_assert(kernel.ns > 0 && kernel.ns <= 5 * MS, "it looks again soon");
	cr_assert_neq(arb_load32(&a->seg.slots[b->me.slot].state), ARB_SLOT_FREE);
	arb_slot_unlock(&directory);
	u_clock_ns += kernel.ns;
	park(&wa, a);
	cr_assert_eq(arb_load32(&a->seg.slots[b->me.slot].state), ARB_SLOT_FREE);
	cr_assert_eq(arb_load64(&a->seg.header->reclaimed), 1);
	gpuarb_client_close(a);
}

/* The kernel wakes one of the threads that sleep on the word of a dead client. It may be one that was woken already,
 * because a newcomer joined between the two, and that has another neighbour now. */
Test(watch, a_death_is_not_lost_on_a_watcher_that_has_another_neighbour_by_then)
{
	struct gpuarb_client *a = u_client("a", 0), *b = u_client("b", 0), *c = u_client("c", 0);
	struct arb_watch wa = {0}, wb = {0}, wc = {0};

	park(&wc, c);
	park(&wa, a);
	cr_assert(watches_over(a, c));
	park(&wb, b);
	cr_assert(watches_over(b, c));
	die(c);
	park(&wa, a);
	cr_assert_eq(arb_load32(&a->seg.slots[c->me.slot].state), ARB_SLOT_FREE);
	cr_assert(watches_over(a, b));
	gpuarb_client_close(a);
	gpuarb_client_close(b);
}

Test(watch, a_client_puts_its_own_word_right_and_is_watched_again)
{
	struct gpuarb_client *a = u_client("a", 0), *b = u_client("b", 0);
	struct arb_watch wa = {0}, wb = {0};
	uint32_t ring;

	park(&wb, b);
	park(&wa, a);
	announce(b); /* nobody died: another process wrote this */
	park(&wa, a);
	ring = arb_load32(&a->seg.header->ring);
	u_clock_ns += 6000 * MS;
	arb_watch_park(&wa, &a, 1, &word, 7, 0);
	cr_assert_neq(arb_load32(&a->seg.header->ring), ring, "its own thread is woken to look");
	park(&wb, b);
	assert_listed(&wb, b);
	park(&wa, a);
	cr_assert(watches_over(a, b));
	arb_store32(&arb_client_slot(b)->life, 0x1234567);
	park(&wb, b);
	assert_listed(&wb, b);
	gpuarb_client_close(a);
	gpuarb_client_close(b);
}

static void sleep_alone(uint32_t *at, uint32_t value, uint64_t ns)
{
	(void)at;
	(void)value;
	(void)ns;
}

/* A client in a container whose sandbox refuses the call, beside clients that may make it. */
Test(watch, a_client_that_cannot_watch_does_not_take_the_place_of_one_that_can)
{
	struct gpuarb_client *a = u_client("a", 0), *b = u_client("b", 0), *c = u_client("c", 0);
	struct arb_watch wa = {0}, wb = {0}, wc = {0};
	struct arb_os_hooks hooks = *arb_os_hooks;
	uint32_t ring;

	hooks.park = sleep_alone;
	arb_os_hooks = &hooks;
	park(&wc, c);
	park(&wa, a);
	ring = arb_load32(&a->seg.header->ring);
	kernel.refuses = -EPERM;
	arb_watch_park(&wb, &b, 1, &word, 7, 0);
	kernel.refuses = 0;
	cr_assert_neq(arb_load32(&a->seg.header->ring), ring);
	park(&wa, a);
	cr_assert(watches_over(a, c));
	gpuarb_client_close(a);
	gpuarb_client_close(b);
	gpuarb_client_close(c);
}

Test(watch, a_client_that_dies_before_it_has_a_thread_is_found_by_the_next_newcomer)
{
	struct gpuarb_client *a = u_client("a", 0), *b = u_client("b", 0), *c = u_client("c", 0);
	struct arb_watch wa = {0}, wc = {0};

	park(&wa, a);
	u_die(b);
	park(&wc, c);
	park(&wa, a);
	cr_assert(watches_over(a, c));
	cr_assert_eq(arb_load32(&a->seg.slots[b->me.slot].state), ARB_SLOT_FREE);
	cr_assert_eq(arb_load64(&a->seg.header->reclaimed), 1);
	gpuarb_client_close(a);
	gpuarb_client_close(c);
}

/* Its first watcher is stopped, but the kernel has told the second one as well. */
Test(watch, a_death_behind_a_stopped_watcher_is_found_by_the_watcher_before)
{
	struct gpuarb_client *a = u_client("a", 0), *stopped = u_client("b", 0), *c = u_client("c", 0);
	struct arb_watch wa = {0}, ws = {0}, wc = {0};
	const struct arb_slot *s = &a->seg.slots[c->me.slot];

	park(&wc, c);
	park(&ws, stopped);
	park(&wa, a);
	cr_assert(watches_over(a, stopped));
	cr_assert_eq(kernel.n, 4);
	cr_assert_eq(kernel.words[3].word, &s->life2.v);
	cr_assert(kernel.words[3].value & FUTEX_WAITERS);
	die(c);
	park(&wa, a);
	cr_assert_neq(arb_load32(&s->state), ARB_SLOT_FREE, "the first watcher has a millisecond to do it");
	cr_assert(kernel.ns > 0 && kernel.ns <= MS);
	u_clock_ns += MS;
	park(&wa, a);
	cr_assert_eq(arb_load32(&s->state), ARB_SLOT_FREE);
	cr_assert_eq(arb_load64(&a->seg.header->reclaimed), 1);
	gpuarb_client_close(a);
	gpuarb_client_close(stopped);
}

/* A thread ends after another one has taken its place: the words belong to the other one. */
Test(watch, a_thread_that_was_replaced_changes_nothing_when_it_ends)
{
	struct gpuarb_client *a = u_client("a", 0);
	struct arb_watch first = {0}, then = {0};

	park(&first, a);
	park(&then, a);
	arb_watch_end(&first);
	cr_assert_eq(arb_load32(&arb_client_slot(a)->life) & FUTEX_TID_MASK, then.thread);
	arb_watch_end(&then);
	cr_assert_eq(arb_load32(&arb_client_slot(a)->life), 0);
	gpuarb_client_close(a);
}
