#include "preload/process/known.h"

#include <stddef.h>
#include <stdlib.h>

#include "preload/process/threads.h"
#include "preload/track/track.h"
#include "shm/base/os.h"
#include "shm/base/word.h"

/* The tracker is woken when this many more entries have been removed; otherwise it frees them when it is awake anyway. */
#define LEFT_MOST 64
/* A read section takes some ten nanoseconds. A thread that is held up in one is waited for at most this often and long. */
#define LOOKS    8
#define RETRY_NS 50000

/* The variables that liburcu's read side refers to. */
struct urcu_bp_gp urcu_bp_gp = {.ctr = URCU_BP_GP_COUNT};
DEFINE_URCU_TLS(struct urcu_bp_reader *, urcu_bp_reader) __attribute__((tls_model("initial-exec")));
/* 0: readers execute barriers themselves, because a program's filter of system calls may not allow membarrier. */
int urcu_bp_has_sys_membarrier;

bool known_read(void)
{
	struct urcu_bp_reader *reader = act_thread_get()->reader;

	if (!reader)
		return false;
	URCU_TLS(urcu_bp_reader) = reader;
	_urcu_bp_read_lock();
	return true;
}

void known_read_end(void)
{
	_urcu_bp_read_unlock();
}

/* Is never called: a thread without a record does not read. */
void urcu_bp_register(void)
{
}

static unsigned chain_of(uint64_t key)
{
	return (unsigned)((key ^ key >> 29) * 0x9e3779b97f4a7c15u >> 58) % KNOWN_CHAINS;
}

struct known *known_find(const struct known_table *table, uint64_t key)
{
	const struct cds_hlist_node *at = rcu_dereference(table->chains[chain_of(key)].next);

	while (at && cds_hlist_entry(at, struct known, chain)->key != key)
		at = rcu_dereference(at->next);
	return at ? cds_hlist_entry(at, struct known, chain) : NULL;
}

void known_add(struct known_table *table, struct known *entry, uint64_t key)
{
	entry->key = key;
	cds_hlist_add_head_rcu(&entry->chain, &table->chains[chain_of(key)]);
}

void known_remove(struct known *entry)
{
	cds_hlist_del_rcu(&entry->chain);
	entry->freed = arb_word_load(&arb_own.known.removed);
	while (!arb_word_cas_release(&arb_own.known.removed, &entry->freed, entry))
		;
	if (arb_word_add_then_load(&arb_own.known.left, 1) % LEFT_MOST == 0)
		tracker_ring();
}

/* Waits until no thread is in a read section that began before the last change of phase. False: one still is. */
static bool passed(void)
{
	for (unsigned i = 0; i < LOOKS; i++) {
		if (!act_thread_any_reads())
			return true;
		arb_os_sleep_ns(RETRY_NS);
	}
	return false;
}

/* Like urcu_bp_synchronize_rcu(), which explains the two phases, but gives up if a reader is held up. */
static bool synchronize(void)
{
	cmm_smp_mb();
	if (!passed())
		return false;
	cmm_smp_mb();
	CMM_STORE_SHARED(urcu_bp_gp.ctr, urcu_bp_gp.ctr ^ URCU_BP_GP_CTR_PHASE);
	cmm_smp_mb();
	if (!passed())
		return false;
	cmm_smp_mb();
	return true;
}

void known_free(void)
{
	struct known *entry, *next;

	if (!arb_word_load(&arb_own.known.removed) && !arb_own.known.waiting)
		return;
	/* Without a tracker several threads may come here at the same time. */
	if (arb_word_exchange_acquire(&arb_own.known.freeing, 1))
		return;
	if (!arb_own.known.waiting)
		arb_own.known.waiting = arb_word_exchange_acquire(&arb_own.known.removed, NULL);
	if (arb_own.known.waiting && synchronize()) {
		entry = arb_own.known.waiting;
		arb_own.known.waiting = NULL;
		for (; entry; entry = next) {
			next = entry->freed;
			free(entry);
		}
	}
	arb_word_store_release(&arb_own.known.freeing, 0);
}

/* Does not free the removed entries: another thread of the parent may have been in the middle of freeing them. */
void known_forked(void)
{
	arb_own.known.removed = arb_own.known.waiting = NULL;
	arb_own.known.freeing = arb_own.known.left = 0;
}
