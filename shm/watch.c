#include "watch.h"

#include <errno.h>
#include <linux/futex.h>
#include <stddef.h>

#include "atomic.h"
#include "client.h"
#include "reclaim.h"

#define US 1000ull
#define MS (1000 * US)
/* The kernel announces a death before it takes the process's memory apart, and the lock is gone only after
 * that: the neighbour is looked at after 50 us, then at longer and longer intervals. */
#define DYING_FIRST_NS (50 * US)
#define DYING_MOST_NS  (5 * MS)
/* Whoever holds its lock for so long after that is not dead: its thread alone has ended. */
#define DYING_NS (5000 * MS)
/* Neighbours that die while one is cleaned up behind are looked at with the same call. */
#define LOOKS_MOST 64
/* Clients between two neighbours that are looked at, where somebody has come or gone. */
#define BETWEEN_MOST 64

/* Under the client's lock. 0: it is not joined. */
static uint32_t joins_of(const struct gpuarb_client *c)
{
	return arb_load32(&c->guard->joined) ? c->joins : 0;
}

/*
 * Enters the words of all clients into the list. `locked` is the one whose lock the caller has; the others may be
 * moved to another segment by their own threads: then they are entered when it is their turn.
 */
static void list_lives(struct arb_watch *w, const struct arb_watch_gpu *locked)
{
	uint64_t *last = (uint64_t *)(void *)&w->list;

	/* At every moment it is a list that the kernel can follow. */
	__atomic_store_n(&w->list.first, last, __ATOMIC_RELAXED);
	for (unsigned i = 0; i < w->ngpus; i++) {
		struct arb_watch_gpu *g = &w->gpus[i];

		if (g != locked)
			arb_lock_take(&g->client->guard->lock);
		if (g->joins != joins_of(g->client))
			g->joins = 0;
		if (g->joins) {
			struct arb_slot *s = arb_client_slot(g->client);

			arb_store64(&s->life_next, (uintptr_t)w->list.first);
			__atomic_store_n(&w->list.first, &s->life_next.v, __ATOMIC_RELEASE);
		}
		if (g != locked)
			arb_lock_give(&g->client->guard->lock);
	}
}

/* The client is watched from now on, whatever was written into its word since the last time. Under its lock. */
static void show_life(struct arb_watch *w, struct arb_watch_gpu *g)
{
	struct gpuarb_client *c = g->client;
	uint32_t joins = joins_of(c);

	if (__builtin_expect(g->joins != joins, 0)) {
		g->joins = joins;
		g->next = ARB_NONE;
		g->ignored = 0;
		list_lives(w, g);
		/* Of this segment's ring: its neighbour is found with the next look. */
		g->ring = arb_load32(&c->seg.header->ring) - 1;
	}
	if (!joins ||
		__builtin_expect((arb_load32(&arb_client_slot(c)->life) & ~FUTEX_WAITERS) == w->thread, 1))
		return;
	arb_store32_release(&arb_client_slot(c)->life, w->thread);
	/* WAKE: whoever computes its neighbour from now on finds us, and whoever has done so looks again. */
	arb_os_wake(&c->seg.header->ring);
}

/* One that was announced dead and is not live any more has been cleaned up behind, but not to the end. */
static bool is_watched(const struct arb_watch_gpu *g, uint32_t i)
{
	const struct arb_slot *s = &g->client->seg.slots[i];
	uint32_t state = arb_load32_acquire(&s->state), life = arb_load32(&s->life);

	return i != g->client->me.slot &&
	       (state == ARB_SLOT_LIVE ? life & (FUTEX_TID_MASK | FUTEX_OWNER_DIED)
				       : state == ARB_SLOT_JOINING && life & FUTEX_OWNER_DIED) &&
	       !(life & FUTEX_OWNER_DIED && i + 1 == g->ignored &&
		       arb_load32(&s->generation) == g->ignored_generation);
}

/* Its neighbour is dead. Only one of those that sleep on its word is woken: that one sees to it, whoever its
 * neighbour is by now. */
static bool next_died(const struct arb_watch_gpu *g)
{
	return g->next != ARB_NONE && arb_load32(&g->client->seg.slots[g->next].life) & FUTEX_OWNER_DIED &&
	       is_watched(g, g->next);
}

/* Also looks at those in between of whose death the kernel tells nobody: they have no thread yet, or none at all. */
static void find_next(struct arb_watch_gpu *g, uint32_t ring)
{
	struct arb_segment *seg = &g->client->seg;
	uint32_t me = g->client->me.slot, looks = 0;

	g->ring = ring;
	g->next = ARB_NONE;
	g->since_ns = 0;
	for (uint32_t n = 1; n < seg->nslots && g->next == ARB_NONE; n++) {
		uint32_t i = (me + n) % seg->nslots;

		if (is_watched(g, i))
			g->next = i;
		else if (arb_load32(&seg->slots[i].state) != ARB_SLOT_FREE && looks++ < BETWEEN_MOST)
			arb_reclaim_look(seg, me, i, false, &g->client->rules);
	}
}

/* The kernel has announced its death. When to come again, in ns; 0: it is dealt with. */
static uint64_t bury(struct arb_watch_gpu *g)
{
	struct gpuarb_client *c = g->client;
	uint64_t now = arb_os_now_ns(), gone;

	if (arb_reclaim_look(&c->seg, c->me.slot, g->next, true, &c->rules) > 0 || !is_watched(g, g->next)) {
		g->ring = arb_load32(&c->seg.header->ring) - 1; /* another neighbour */
		return 0;
	}
	if (!g->since_ns)
		g->since_ns = now;
	gone = now - g->since_ns;
	if (gone > DYING_NS) {
		g->ignored = g->next + 1;
		g->ignored_generation = arb_load32(&c->seg.slots[g->next].generation);
		/* If its thread is there all the same, somebody has written into its word: it puts that right. */
		arb_os_wake(&c->seg.header->ring);
		return 0;
	}
	return gone < DYING_FIRST_NS ? DYING_FIRST_NS : gone > DYING_MOST_NS ? DYING_MOST_NS : gone;
}

/* Finds the neighbour, and what to sleep on for it: up to two words. Under the client's lock. */
static unsigned watch_over(struct arb_watch_gpu *g, struct arb_os_word *words, uint64_t *ns)
{
	struct arb_segment *seg = &g->client->seg;
	unsigned n = 0;

	for (int looks = 0; looks < LOOKS_MOST; looks++) {
		uint32_t ring = arb_load32_acquire(&seg->header->ring); /* pairs WAKE */
		arb_u32 *life;
		uint32_t value;

		words[0] = (struct arb_os_word){&seg->header->ring.v, ring, true};
		n = 1;
		if (ring != g->ring && !next_died(g))
			find_next(g, ring);
		if (g->next == ARB_NONE)
			return n;
		life = &seg->slots[g->next].life;
		value = arb_load32_acquire(life);
		if (value & FUTEX_OWNER_DIED) {
			uint64_t again = bury(g);

			if (!again)
				continue;
			*ns = *ns && *ns < again ? *ns : again;
			return n;
		}
		if (!(value & FUTEX_TID_MASK)) {
			g->ring = ring - 1; /* it is not watched any more */
			continue;
		}
		/* Without that bit the kernel wakes nobody. */
		if (!(value & FUTEX_WAITERS)) {
			if (!arb_cas32_full(life, value, value | FUTEX_WAITERS))
				continue;
			value |= FUTEX_WAITERS;
		}
		words[n++] = (struct arb_os_word){&life->v, value, true};
		return n;
	}
	/* There is more to see to. */
	*ns = *ns && *ns < DYING_MOST_NS ? *ns : DYING_MOST_NS;
	return n;
}

static struct arb_watch_gpu *gpu_of(struct arb_watch *w, struct gpuarb_client *client)
{
	unsigned i = 0;

	while (i < w->ngpus && w->gpus[i].client != client)
		i++;
	if (i == w->ngpus) {
		if (i == ARB_WATCH_GPUS)
			return NULL;
		w->gpus[i] = (struct arb_watch_gpu){.client = client, .next = ARB_NONE};
		w->ngpus++;
	}
	return &w->gpus[i];
}

static bool prepare(struct arb_watch *w)
{
	if (__builtin_expect(!w->thread && !w->unable, 0)) {
		w->list = (struct arb_os_robust){.first = (uint64_t *)(void *)&w->list,
			.offset = (long)offsetof(struct arb_slot, life) - (long)offsetof(struct arb_slot, life_next)};
		w->before = arb_os_robust_list();
		w->unable = arb_os_robust(&w->list, &w->thread) < 0;
	}
	return !w->unable;
}

void arb_watch_park(struct arb_watch *w, struct gpuarb_client *const *clients, unsigned n, uint32_t *word,
	uint32_t value, uint64_t ns)
{
	struct arb_os_word words[1 + 2 * ARB_WATCH_GPUS] = {{word, value, false}};
	unsigned nwords = 1;
	uint64_t most = ns;

	for (unsigned i = 0; i < n && prepare(w); i++) {
		struct gpuarb_client *c = clients[i];
		struct arb_watch_gpu *g = gpu_of(w, c);

		if (!g)
			break;
		arb_lock_take(&c->guard->lock);
		show_life(w, g);
		if (g->joins && !c->seg.alone && !c->seg.stranded)
			nwords += watch_over(g, words + nwords, &most);
		arb_lock_give(&c->guard->lock);
	}
	if (nwords > 1) {
		int r = arb_os_park_any(words, nwords, most);

		if (r == 0)
			return;
		/* A segment that another thread has moved away from meanwhile: the next call knows. */
		if (r == -EFAULT) {
			ns = ns && ns < DYING_MOST_NS ? ns : DYING_MOST_NS;
		} else {
			/* Who cannot watch must not stand between one that can and the next. */
			arb_watch_end(w);
			w->unable = true;
		}
	}
	arb_os_park(word, value, ns);
}

void arb_watch_end(struct arb_watch *w)
{
	for (unsigned i = 0; i < w->ngpus; i++) {
		struct gpuarb_client *c = w->gpus[i].client;

		arb_lock_take(&c->guard->lock);
		if (w->gpus[i].joins && w->gpus[i].joins == joins_of(c)) {
			arb_store32(&arb_client_slot(c)->life, 0);
			arb_os_wake(&c->seg.header->ring);
		}
		arb_lock_give(&c->guard->lock);
	}
	w->ngpus = 0;
	__atomic_store_n(&w->list.first, (uint64_t *)(void *)&w->list, __ATOMIC_RELAXED);
	/* The thread may run the program's own exit handlers. */
	if (w->before)
		arb_os_robust(w->before, NULL);
	w->before = NULL;
	w->thread = 0;
}
