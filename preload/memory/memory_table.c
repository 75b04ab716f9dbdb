/*
 * A hash table in stripes. Each stripe has its own lock, which is held for some ten nanoseconds.
 *
 * It is no table that is read without a lock (preload/process/known.h), because most operations here write (put, take):
 * readers without a lock would gain nothing.
 */
#include "preload/memory/memory_table.h"

#include "preload/hooks/compat.h"
#include "preload/process/own.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define NONE       MEMORY_NO_ENTRY
#define FIRST_ROOM 64u

static uint64_t mixed(uint64_t key)
{
	return (key ^ key >> 29) * 0x9e3779b97f4a7c15u;
}

static struct memory_stripe *stripe_of(uint64_t key)
{
	return &arb_own.stripes[mixed(key) >> (64 - MEMORY_STRIPE_BITS)];
}

static uint32_t *chain_of(struct memory_stripe *s, uint64_t key)
{
	return &s->chain[(mixed(key) >> 24) & (s->room - 1)];
}

static bool grow(struct memory_stripe *s)
{
	uint32_t room = s->room ? s->room * 2 : FIRST_ROOM;
	struct memory_entry *entry;
	uint32_t *chain;

	if (room > 1u << 26)
		return false;
	entry = realloc(s->entry, room * sizeof(*entry));
	if (!entry)
		return false;
	s->entry = entry;
	chain = malloc(room * sizeof(*chain));
	if (!chain)
		return false;
	free(s->chain);
	s->chain = chain;
	memset(chain, 0xff, room * sizeof(*chain));
	/* All old entries are in use. They are put into their chains by epoch, so that of two entries with the same key
	 * the newer stays first; the order of their index would not ensure that. */
	for (uint32_t i = s->room; i < room; i++) {
		entry[i].kind = 0;
		entry[i].next = i + 1 < room ? i + 1 : NONE;
	}
	s->unused = s->room;
	room = s->room;
	s->room = room ? room * 2 : FIRST_ROOM;
	for (uint32_t i = 0; i < room; i++) {
		uint32_t *at = chain_of(s, entry[i].key);

		while (*at != NONE && entry[*at].epoch > entry[i].epoch)
			at = &entry[*at].next;
		entry[i].next = *at;
		*at = i;
	}
	return true;
}

bool memory_table_put(const struct memory_entry *e)
{
	struct memory_stripe *s = stripe_of(e->key);
	uint32_t i, *at;

	pthread_mutex_lock(&s->lock);
	if (s->unused == NONE && !grow(s)) {
		pthread_mutex_unlock(&s->lock);
		return false;
	}
	i = s->unused;
	s->unused = s->entry[i].next;
	s->entry[i] = *e;
	at = chain_of(s, e->key);
	s->entry[i].next = *at;
	*at = i;
	pthread_mutex_unlock(&s->lock);
	return true;
}

/* The lock is held. */
static void remove_at(struct memory_stripe *s, uint32_t *at)
{
	uint32_t i = *at;

	*at = s->entry[i].next;
	s->entry[i].kind = 0;
	s->entry[i].next = s->unused;
	s->unused = i;
}

static bool look_up(uint64_t key, unsigned kinds, struct memory_entry *entry, bool take)
{
	struct memory_stripe *s = stripe_of(key);
	bool found = false;

	pthread_mutex_lock(&s->lock);
	if (s->room) {
		for (uint32_t *at = chain_of(s, key); *at != NONE; at = &s->entry[*at].next) {
			if (s->entry[*at].key != key || !(s->entry[*at].kind & kinds))
				continue;
			*entry = s->entry[*at];
			if (take)
				remove_at(s, at);
			found = true;
			break;
		}
	}
	pthread_mutex_unlock(&s->lock);
	return found;
}

bool memory_table_take(uint64_t key, unsigned kinds, struct memory_entry *entry)
{
	return look_up(key, kinds, entry, true);
}

bool memory_table_find(uint64_t key, unsigned kinds, struct memory_entry *entry)
{
	return look_up(key, kinds, entry, false);
}

void memory_table_walk(
	unsigned kinds, bool (*visit)(void *argument, const struct memory_entry *entry), void *argument)
{
	for (unsigned n = 0; n < MEMORY_STRIPES; n++) {
		struct memory_stripe *s = &arb_own.stripes[n];

		pthread_mutex_lock(&s->lock);
		for (uint32_t c = 0; c < s->room; c++) {
			for (uint32_t *at = &s->chain[c]; *at != NONE;) {
				struct memory_entry *e = &s->entry[*at];

				if (e->kind & kinds && visit(argument, e))
					remove_at(s, at);
				else
					at = &e->next;
			}
		}
		pthread_mutex_unlock(&s->lock);
	}
}

void memory_table_forget(void)
{
	for (unsigned n = 0; n < MEMORY_STRIPES; n++) {
		struct memory_stripe *s = &arb_own.stripes[n];

		/* At the fork another thread may have been changing the stripe, so its memory is not freed. */
		*s = (struct memory_stripe)MEMORY_STRIPE_INIT;
	}
}
