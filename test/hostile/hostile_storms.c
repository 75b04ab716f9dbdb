/* Attacks without a pause: words that change, and threads that are woken, as fast as a processor can. */
#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "shm/base/os.h"
#include "test/hostile/hostile_words.h"

/* Once in a millisecond is called; it lasts for this long, so the processor is busy all the time. */
#define STORM_NS 5000000ull

static bool goes_on(uint64_t began)
{
	return arb_os_now_ns() - began < STORM_NS;
}

/* The record stays valid, but no snapshot of it stays current. */
void attack_head_storm(struct target *t)
{
	uint64_t began = arb_os_now_ns();

	while (goes_on(began))
		for (int i = 0; i < 1000; i++)
			arb_add64_full(&t->seg.header->head, 1ull << ARB_HEAD_SEQ_SHIFT);
}

void attack_account_storm(struct target *t)
{
	uint64_t began = arb_os_now_ns();

	while (goes_on(began))
		for (int i = 0; i < 1000; i++)
			arb_add64_full(&t->seg.accounts[t->account].head, 1ull << ARB_HEAD_SEQ_SHIFT);
}

void attack_gate_storm(struct target *t)
{
	uint64_t began = arb_os_now_ns();

	while (goes_on(began))
		for (int i = 0; i < 1000; i++)
			arb_store32(&slot(t)->gate, 0);
}

void attack_wake_storm(struct target *t)
{
	uint64_t began = arb_os_now_ns();

	while (goes_on(began))
		arb_os_wake(&slot(t)->wake);
}

void attack_epoch_storm(struct target *t)
{
	uint64_t began = arb_os_now_ns();

	while (goes_on(began))
		for (int i = 0; i < 1000; i++)
			arb_add32_full(&t->seg.header->epoch, 1);
}

void attack_ring_storm(struct target *t)
{
	uint64_t began = arb_os_now_ns();

	while (goes_on(began))
		arb_os_wake(&t->seg.header->ring);
}

void attack_life_storm(struct target *t)
{
	uint64_t began = arb_os_now_ns();

	while (goes_on(began)) {
		arb_store32(&slot(t)->life, 0x40000000);
		arb_os_wake(&slot(t)->life);
		arb_os_wake(&t->seg.header->ring);
	}
}

void attack_ask_storm(struct target *t)
{
	uint64_t began = arb_os_now_ns();

	while (goes_on(began))
		arb_os_wake(&slot(t)->ask_frozen);
}

/* The kernel moves sleepers from one word to another, on which nobody wakes them. */
void attack_requeue_storm(struct target *t)
{
	uint64_t began = arb_os_now_ns();

	while (goes_on(began))
		syscall(SYS_futex, &slot(t)->wake.v, FUTEX_REQUEUE, 0, INT_MAX,
			&t->seg.slots[t->seg.nslots - 1].wake.v, 0);
}
