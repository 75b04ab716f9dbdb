#include "shm/client/watch.h"

#include <errno.h>
#include <linux/futex.h>
#include <stddef.h>

#include "units.h"

#include "shm/base/atomic.h"
#include "shm/client/client_state.h"
#include "shm/base/fault.h"
#include "shm/client/reclaim.h"
#include "shm/base/word.h"

/* The kernel announces a death before it takes the process's memory apart, and the lock is gone only after
 * that: the neighbour is looked at after 50 us, then at longer and longer intervals. */
#define DYING_FIRST_NS (50 * US)
#define DYING_MOST_NS  (5 * MS)
/* A process that still holds its lock after this time is not dead: only its thread has ended. */
#define DYING_NS (5000 * MS)
/* Neighbours that die while one slot is being cleaned are looked at in the same call. */
#define LOOKS_MOST 64
/* The second watcher of a dead client looks this much later: by then the first has cleaned up, unless it is stopped.
 */
#define SECOND_NS (1 * MS)
/* The most clients between two neighbours that are looked at when a client has come or gone. */
#define BETWEEN_MOST 64

_Static_assert(offsetof(struct arb_slot, life) - offsetof(struct arb_slot, life_next) ==
		       offsetof(struct arb_slot, life2) - offsetof(struct arb_slot, life2_next),
	"a robust list has one distance for all of its entries");

/* The word of slot i on which its first or second watcher sleeps. */
static arb_u32 *life_of(const struct arb_segment *seg, uint32_t i, unsigned watcher)
{
	return watcher ? &seg->slots[i].life2 : &seg->slots[i].life;
}

/* Returns how often the client has joined; 0: it has not joined now. Under the client's lock. */
static uint32_t joins_of(const struct gpuarb_client *c)
{
	return arb_load32(&c->guard->joined) ? c->joins : 0;
}

/* Enters the words of all clients into the list. `locked` is the client whose lock the caller has. Other clients may
 * be moved to another segment by their own threads; then they are entered when their own words are looked at. */
static void list_lives(struct arb_watch *w, const struct arb_watch_gpu *locked)
{
	uint64_t *last = (uint64_t *)(void *)&w->list;

	/* At every moment it is a list that the kernel can follow. */
	arb_word_store(&w->list.first, last);
	for (unsigned i = 0; i < w->ngpus; i++) {
		struct arb_watch_gpu *g = &w->gpus[i];

		if (g != locked)
			arb_lock_take(&g->client->guard->lock);
		if (g->joins != joins_of(g->client))
			g->joins = 0;
		if (g->joins) {
			struct arb_slot *s = arb_client_slot(g->client);

			arb_store64(&s->life2_next, (uintptr_t)w->list.first);
			arb_store64(&s->life_next, (uintptr_t)&s->life2_next);
			arb_word_store_release(&w->list.first, &s->life_next.v);
		}
		if (g != locked)
			arb_lock_give(&g->client->guard->lock);
	}
}

/* Do both words of slot i name this thread? */
static bool shows(const struct arb_watch *w, const struct arb_segment *seg, uint32_t i)
{
	for (unsigned k = 0; k < ARB_WATCHERS; k++)
		if ((arb_load32(life_of(seg, i, k)) & ~FUTEX_WAITERS) != w->thread)
			return false;
	return true;
}

/* Makes the client watched from now on, whatever was written into its words before. Under its lock. */
static void show_life(struct arb_watch *w, struct arb_watch_gpu *g)
{
	struct gpuarb_client *c = g->client;
	uint32_t joins = joins_of(c);

	if (__builtin_expect(g->joins != joins, 0)) {
		g->joins = joins;
		for (unsigned k = 0; k < ARB_WATCHERS; k++)
			g->next[k].slot = ARB_NONE;
		g->ignored = 0;
		list_lives(w, g);
		/* A value that the ring of this segment does not have now, so that the next look finds the
		 * neighbours. */
		g->ring = arb_load32(&c->seg.header->ring) - 1;
	}
	if (!joins || __builtin_expect(shows(w, &c->seg, c->me.slot), 1))
		return;
	/* Another thread may have these words in its own list. */
	list_lives(w, g);
	arb_store32(&arb_client_slot(c)->life2, w->thread);
	arb_store32_release(&arb_client_slot(c)->life, w->thread);
	/* WAKE: a client that looks for its neighbours from now on finds us, and a client that has found them already
	 * looks again. */
	arb_os_wake(&c->seg.header->ring);
}

/* Is slot i to be watched? A slot that was announced dead and is not live any more has been cleaned only in part,
 * so it is still to be watched. */
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

/* Has a neighbour died? Only one of the threads that sleep on its word is woken: that thread cleans up, whichever
 * neighbour it has by now. */
static bool next_died(const struct arb_watch_gpu *g)
{
	for (unsigned k = 0; k < ARB_WATCHERS; k++) {
		uint32_t i = g->next[k].slot;

		if (i != ARB_NONE && arb_load32(life_of(&g->client->seg, i, k)) & FUTEX_OWNER_DIED &&
			is_watched(g, i))
			return true;
	}
	return false;
}

/* Finds the neighbours. Also looks at the clients in between, whose deaths the kernel does not announce, because they
 * have no thread for it, or not yet. */
static void find_next(struct arb_watch_gpu *g, uint32_t ring)
{
	struct arb_segment *seg = &g->client->seg;
	uint32_t me = g->client->me.slot, looks = 0;

	unsigned found = 0;

	g->ring = ring;
	for (unsigned k = 0; k < ARB_WATCHERS; k++)
		g->next[k] = (struct arb_watched){.slot = ARB_NONE};
	for (uint32_t n = 1; n < seg->nslots && found < ARB_WATCHERS; n++) {
		uint32_t i = (me + n) % seg->nslots;

		if (is_watched(g, i))
			g->next[found++].slot = i;
		else if (arb_load32(&seg->slots[i].state) != ARB_SLOT_FREE && looks++ < BETWEEN_MOST)
			arb_reclaim_look(seg, me, i, false, &g->client->rules);
	}
}

/* A neighbour is gone: the neighbours behind it move up in the list. All are found anew once none of them is dead. */
static void forget(struct arb_watch_gpu *g, unsigned watcher)
{
	for (unsigned k = watcher; k + 1 < ARB_WATCHERS; k++)
		g->next[k] = g->next[k + 1];
	g->next[ARB_WATCHERS - 1] = (struct arb_watched){.slot = ARB_NONE};
	g->ring = arb_load32(&g->client->seg.header->ring) - 1;
}

/* Cleans up behind a neighbour whose death the kernel has announced. Returns when to come again, in ns; 0: it is
 * done. */
static uint64_t bury(struct arb_watch_gpu *g, unsigned watcher)
{
	struct gpuarb_client *c = g->client;
	struct arb_watched *dead = &g->next[watcher];
	uint64_t now = arb_os_now_ns(), gone;

	if (!dead->since_ns && watcher) {
		dead->since_ns = now;
		return SECOND_NS;
	}
	if (arb_reclaim_look(&c->seg, c->me.slot, dead->slot, true, &c->rules) > 0 ||
		!is_watched(g, dead->slot)) {
		forget(g, watcher);
		return 0;
	}
	if (!dead->since_ns)
		dead->since_ns = now;
	gone = now - dead->since_ns;
	if (gone > DYING_NS) {
		g->ignored = dead->slot + 1;
		g->ignored_generation = arb_load32(&c->seg.slots[dead->slot].generation);
		/* If its thread lives all the same, another process has written into its word. The thread then
		 * restores that word. */
		arb_os_wake(&c->seg.header->ring);
		return 0;
	}
	return gone < DYING_FIRST_NS ? DYING_FIRST_NS : gone > DYING_MOST_NS ? DYING_MOST_NS : gone;
}

/* The result of a look at a neighbour. */
enum watched {
	WATCHED_SLEEP, /* sleep, on the word that was filled in, if any */
	WATCHED_AGAIN, /* something has changed: begin anew */
};

static enum watched watch_over_one(
	struct arb_watch_gpu *g, unsigned watcher, struct arb_os_word *words, unsigned *n, uint64_t *ns)
{
	struct arb_segment *seg = &g->client->seg;
	arb_u32 *life;
	uint32_t value;

	if (g->next[watcher].slot == ARB_NONE)
		return WATCHED_SLEEP;
	life = life_of(seg, g->next[watcher].slot, watcher);
	value = arb_load32_acquire(life);
	if (value & FUTEX_OWNER_DIED) {
		uint64_t again = bury(g, watcher);

		if (!again)
			return WATCHED_AGAIN;
		*ns = *ns && *ns < again ? *ns : again;
		return WATCHED_SLEEP;
	}
	if (!(value & FUTEX_TID_MASK)) {
		/* The neighbour is not watched any more; or it is just beginning to be, and then the ring will
		 * change. */
		if (watcher && arb_load32(life_of(seg, g->next[watcher].slot, 0)) & FUTEX_TID_MASK)
			return WATCHED_SLEEP;
		forget(g, watcher);
		return WATCHED_AGAIN;
	}
	/* Without that bit the kernel wakes no thread. */
	if (!(value & FUTEX_WAITERS)) {
		if (!arb_cas32_full(life, value, value | FUTEX_WAITERS))
			return WATCHED_AGAIN;
		value |= FUTEX_WAITERS;
	}
	words[(*n)++] = (struct arb_os_word){&life->v, value, true};
	return WATCHED_SLEEP;
}

/* Finds the neighbours, and the words to sleep on for them: up to three. Under the client's lock. */
static unsigned watch_over(struct arb_watch_gpu *g, struct arb_os_word *words, uint64_t *ns)
{
	struct arb_segment *seg = &g->client->seg;
	unsigned n = 0, k;

	for (int looks = 0; looks < LOOKS_MOST; looks++) {
		uint32_t ring = arb_load32_acquire(&seg->header->ring); /* pairs WAKE */

		words[0] = (struct arb_os_word){&seg->header->ring.v, ring, true};
		n = 1;
		if (ring != g->ring && !next_died(g))
			find_next(g, ring);
		for (k = 0; k < ARB_WATCHERS; k++)
			if (watch_over_one(g, k, words, &n, ns) == WATCHED_AGAIN)
				break;
		if (k == ARB_WATCHERS)
			return n;
	}
	/* There is more to do. */
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
		w->gpus[i] = (struct arb_watch_gpu){
			.client = client, .next = {{.slot = ARB_NONE}, {.slot = ARB_NONE}}};
		w->ngpus++;
	}
	return &w->gpus[i];
}

static bool prepare(struct arb_watch *w)
{
	if (__builtin_expect(!w->thread && !w->unable, 0)) {
		arb_fault_let();
		w->list = (struct arb_os_robust){.first = (uint64_t *)(void *)&w->list,
			.offset = (long)offsetof(struct arb_slot, life) -
				  (long)offsetof(struct arb_slot, life_next)};
		w->before = arb_os_robust_list();
		w->unable = arb_os_robust(&w->list, &w->thread) < 0;
	}
	return !w->unable;
}

/* Sleeps on the first word alone. */
static void park_alone(const struct arb_os_word *word, uint64_t ns)
{
	if (word->shared)
		arb_os_futex_wait((arb_u32 *)(void *)word->word, word->value, ns);
	else
		arb_os_park(word->word, word->value, ns);
}

/* Sleeps on the words. -EFAULT and other errors as arb_os_park_any. */
static int park_on(struct arb_watch *w, const struct arb_os_word *words, unsigned n, uint64_t ns)
{
	uint64_t until = ns ? arb_os_now_ns() + ns : UINT64_MAX, cpu_ns = arb_os_cpu_ns();
	int r = 0;

	if (n > 1)
		r = arb_os_park_any(words, n, ns);
	else
		park_alone(words, ns);
	/* If its own word has not changed, and it has not slept for as long as it meant to, another process has woken it. */
	w->woken_cpu_ns =
		r == 0 && arb_word_load(words->word) == words->value && arb_os_now_ns() < until ? cpu_ns : 0;
	return r;
}

/* Sleeps without listening to words of others, if these have cost too much. Returns whether the caller has something to
 * do. */
static bool rest(struct arb_watch *w, const struct arb_os_word *word, uint64_t *ns)
{
	uint64_t deaf_ns;

	if (__builtin_expect(!w->woken_cpu_ns, 1))
		return false;
	deaf_ns = arb_wakeups_count(&w->wakeups, arb_os_cpu_ns() - w->woken_cpu_ns, arb_os_now_ns());
	w->woken_cpu_ns = 0;
	if (!deaf_ns)
		return false;
	if (*ns && deaf_ns > *ns)
		deaf_ns = *ns;
	if (word->shared)
		arb_os_sleep_ns(deaf_ns);
	else
		park_alone(word, deaf_ns);
	if (*ns == deaf_ns || arb_word_load(word->word) != word->value)
		return true;
	*ns -= *ns ? deaf_ns : 0;
	return false;
}

static void park(struct arb_watch *w, struct gpuarb_client *const *clients, unsigned n,
	struct arb_os_word word, uint64_t ns)
{
	struct arb_os_word words[1 + (1 + ARB_WATCHERS) * ARB_WATCH_GPUS] = {word};
	unsigned nwords = 1;
	uint64_t most;

	if (rest(w, &word, &ns))
		return;
	most = ns;
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
		int r = park_on(w, words, nwords, most);

		if (r == 0)
			return;
		/* Another thread has moved a client to another segment meanwhile: the next call finds the new one. */
		if (r == -EFAULT) {
			ns = ns && ns < DYING_MOST_NS ? ns : DYING_MOST_NS;
		} else {
			/* A client that cannot watch must not stand between two clients that can. */
			arb_watch_end(w);
			w->unable = true;
		}
	}
	park_on(w, &word, 1, ns);
}

void arb_watch_park(struct arb_watch *w, struct gpuarb_client *const *clients, unsigned n, uint32_t *word,
	uint32_t value, uint64_t ns)
{
	park(w, clients, n, (struct arb_os_word){word, value, false}, ns);
}

void arb_watch_park_shared(struct arb_watch *w, struct gpuarb_client *const *clients, unsigned n,
	arb_u32 *word, uint32_t value, uint64_t ns)
{
	park(w, clients, n, (struct arb_os_word){&word->v, value, true}, ns);
}

bool arb_watch_stands(const struct arb_watch *w, struct gpuarb_client *c)
{
	bool stands;

	arb_lock_take(&c->guard->lock);
	stands = joins_of(c) && shows(w, &c->seg, c->me.slot);
	arb_lock_give(&c->guard->lock);
	return stands;
}

void arb_watch_end(struct arb_watch *w)
{
	for (unsigned i = 0; i < w->ngpus; i++) {
		struct gpuarb_client *c = w->gpus[i].client;

		arb_lock_take(&c->guard->lock);
		if (w->gpus[i].joins && w->gpus[i].joins == joins_of(c) && shows(w, &c->seg, c->me.slot)) {
			arb_store32(&arb_client_slot(c)->life, 0);
			arb_store32(&arb_client_slot(c)->life2, 0);
			arb_os_wake(&c->seg.header->ring);
		}
		arb_lock_give(&c->guard->lock);
	}
	w->ngpus = 0;
	arb_word_store(&w->list.first, (uint64_t *)(void *)&w->list);
	/* The thread may run the program's own exit handlers. */
	if (w->before)
		arb_os_robust(w->before, NULL);
	w->before = NULL;
	w->thread = 0;
}
