/*
 * Hash tables that many threads read and few change. They have a fixed size and are read under liburcu's urcu-bp, without a
 * lock. A thread that changes a table holds the lock of the table's owner. The tracker frees removed entries when no
 * thread can read them any more.
 *
 * A read section contains no call of the driver, of the kernel or of the C library, because the tracker waits for its end.
 *
 * The read side, the phases and the lists are liburcu's own, from its headers. Its archives cannot be linked into a
 * shared library (their thread-local words are addressed as those of an executable), need GLIBC_2.34, and make two system
 * calls and a key at the start of every program. So the writers' side is here. It is only a few lines, because each thread has
 * a record anyway (threads.c): no registration, no constructor, no thread, no system call.
 */
#ifndef PRELOAD_KNOWN_H
#define PRELOAD_KNOWN_H

#include <stdbool.h>
#include <stdint.h>

/* The functions that are shorter than ten lines are inlined. */
#define URCU_INLINE_SMALL_FUNCTIONS
#include <urcu/rcuhlist.h>
#include <urcu/static/urcu-bp.h>

#define KNOWN_CHAINS 64

struct known_table {
	struct cds_hlist_head chains[KNOWN_CHAINS];
};

/* The first member of each entry of a table. Entries come from malloc. */
struct known {
	struct cds_hlist_node chain;
	uint64_t key;
	struct known *freed; /* the next of the removed entries */
};

/* Begins a read section; sections may be nested. False: this thread has no record of its own, and must not read. */
bool known_read(void);
void known_read_end(void);

/* Finds an entry, or NULL. Called within a read section, or with the lock held. */
struct known *known_find(const struct known_table *table, uint64_t key);
/* Both are called with the lock held. */
void known_add(struct known_table *table, struct known *entry, uint64_t key);
void known_remove(struct known *entry);

/* Frees the removed entries, unless a reader is held up: then a later call does. Called by the tracker; without a tracker, by
 * the thread that removed them. */
void known_free(void);
/* Resets the state in a forked child, where the other threads do not exist. */
void known_forked(void);

#endif
