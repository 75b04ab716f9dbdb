/*
 * Tables that many threads read and few change: of fixed size, read under liburcu's urcu-bp without a lock. Whoever
 * changes a table holds its owner's lock. What is taken out is freed by the tracker, when nobody can read it any more.
 *
 * A read section contains no call of the driver, of the kernel or of the C library: the tracker waits for its end.
 *
 * The read side, the phases and the lists are liburcu's own, from its headers. Its archives cannot be linked into a
 * shared library (their thread-local words are those of an executable), need GLIBC_2.34, and make two system calls and a
 * key in every program at its start. So the writers' side, which is a few lines where each thread has a record anyway
 * (threads.c), is here: no registration, no constructor, no thread, no system call.
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

/* The first member of what a table holds, which comes from malloc. */
struct known {
	struct cds_hlist_node chain;
	uint64_t key;
	struct known *freed; /* the next one that is to be freed */
};

/* Begins a read section. They may be nested. False: this thread has no record of its own, and must not read. */
bool known_read(void);
void known_read_end(void);

/* Within a read section, or with the lock. NULL: there is none. */
struct known *known_find(const struct known_table *table, uint64_t key);
/* With the lock. */
void known_add(struct known_table *table, struct known *entry, uint64_t key);
void known_remove(struct known *entry);

/* Frees what was taken out, unless somebody is held up while reading: then the next call does. In the tracker. */
void known_free(void);
/* In a forked child, whose other threads do not exist. */
void known_forked(void);

#endif
