#include "shm/segment/slot.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>

#include "shm/base/atomic.h"
#include "shm/base/lock.h"
#include "shm/base/text.h"

#define TRIES          16
#define PAUSE_FIRST_NS 20000u
#define PAUSE_LAST_NS  1000000u

int arb_slot_lock(const struct arb_segment *seg, uint64_t byte, struct arb_lock *lock)
{
	int fd, r;

	/* Threads of one client exclude each other by its own lock. */
	lock->fd = -1;
	lock->byte = byte;
	if (seg->alone)
		return 0;
	if (seg->stranded)
		return -EBUSY;
	fd = arb_segment_locks(seg, O_RDWR);
	if (fd < 0)
		return fd;
	r = arb_os_lock(fd, byte);
	if (r < 0) {
		arb_os_close(fd);
		return r;
	}
	lock->fd = fd;
	return 0;
}

bool arb_patience_pause(struct arb_patience *p)
{
	uint64_t now = arb_os_now_ns();

	arb_lock_none_held();
	if (!p->end_ns) {
		p->end_ns = now + p->length_ns;
		p->pause_ns = PAUSE_FIRST_NS;
		if (p->until_ns && p->until_ns < p->end_ns)
			p->end_ns = p->until_ns;
	}
	if (now >= p->end_ns)
		return false;
	arb_os_sleep_ns(p->pause_ns < p->end_ns - now ? p->pause_ns : p->end_ns - now);
	if (p->pause_ns < PAUSE_LAST_NS)
		p->pause_ns *= 2;
	return true;
}

/* Most holders are about to let go of the byte, so the first tries follow each other at once. */
static int lock_soon(const struct arb_segment *seg, uint64_t byte, struct arb_lock *lock)
{
	int r = -EAGAIN;

	for (int tries = 0; tries < TRIES && r == -EAGAIN; tries++)
		r = arb_slot_lock(seg, byte, lock);
	return r;
}

int arb_slot_directory(const struct arb_segment *seg, struct arb_lock *lock)
{
	int r = lock_soon(seg, ARB_BYTE_DIRECTORY(seg->nslots), lock);

	return r == -EAGAIN ? -EBUSY : r;
}

int arb_slot_lock_wait(
	const struct arb_segment *seg, uint64_t byte, uint64_t patience_ns, struct arb_lock *lock)
{
	struct arb_patience p = {.length_ns = patience_ns};
	int r = lock_soon(seg, byte, lock);

	/* Not F_OFD_SETLKW: a stopped holder would hang us, and the host's signals would end it. */
	while (r == -EAGAIN && arb_patience_pause(&p))
		r = arb_slot_lock(seg, byte, lock);
	return r;
}

void arb_slot_unlock(struct arb_lock *lock)
{
	if (lock->fd < 0)
		return;
	/* It is unlocked explicitly, because a child that was forked meanwhile has the same open file. */
	arb_os_unlock(lock->fd, lock->byte);
	arb_os_close(lock->fd);
}

int arb_slot_alive(const struct arb_segment *seg, uint32_t i)
{
	int fd, r;

	if (seg->alone)
		return i == 0;
	/* The segment's locks cannot be asked about any more, so the slot counts as alive. */
	if (seg->stranded)
		return 1;
	fd = arb_segment_locks(seg, O_RDONLY);
	/* A process that may only look relies on what the slot says about its owner. */
	if (fd == -EACCES && !seg->writable)
		return !arb_os_gone(arb_load32(&seg->slots[i].pid), arb_load64(&seg->slots[i].pid_ns),
			arb_load64(&seg->slots[i].start_time));
	if (fd < 0)
		return fd;
	r = arb_os_is_locked(fd, ARB_BYTE_SLOT(i));
	arb_os_close(fd);
	return r;
}

/*
 * While a slot is claimed, the byte is first held through a descriptor, and then by the page. A child that is forked
 * in between would keep a share of the lock for as long as it lives. So fork() waits for a claim to end; a bare
 * clone() does not.
 */
static bool try_claiming(void)
{
	/* Not a mutex, which old libcs cannot try without libpthread. */
	return arb_cas64_full(&arb_self.claiming, 0, 1);
}

static void before_fork(void)
{
	/* A claim takes some microseconds. */
	while (!try_claiming())
		arb_os_sleep_ns(20000);
}

static void after_fork(void)
{
	arb_store64_release(&arb_self.claiming, 0);
}

static pthread_once_t watched = PTHREAD_ONCE_INIT;

static void watch_forks(void)
{
	pthread_atfork(before_fork, after_fork, after_fork);
}

static uint32_t claim_with(struct arb_segment *seg, int fd)
{
	/* First the slots that look free are tried, then all: the hint may be wrong in both directions. */
	for (uint32_t w = 0; w < seg->nwords; w++) {
		uint64_t taken = arb_load64(&seg->header->taken[w]);

		while (~taken) {
			uint32_t i = w * 64 + (uint32_t)__builtin_ctzll(~taken);

			if (i >= seg->nslots)
				break;
			if (arb_os_lock(fd, ARB_BYTE_SLOT(i)) == 0)
				return i;
			taken |= 1ull << (i % 64);
			arb_bit_set(&seg->header->taken[w], 1ull << (i % 64));
		}
	}
	for (uint32_t i = 0; i < seg->nslots; i++)
		if (arb_os_lock(fd, ARB_BYTE_SLOT(i)) == 0)
			return i;
	return ARB_NONE;
}

/* From here on the page holds the lock; the descriptor may be closed, unless the caller wants it. */
static int keep(int fd, uint64_t byte, void **page, int *kept)
{
	int error;

	*page = arb_os_lock_page(fd, &error);
	if (!*page)
		arb_os_unlock(fd, byte);
	else if (kept)
		*kept = fd;
	if (!*page || !kept)
		arb_os_close(fd);
	return *page ? 0 : error;
}

static int claim(struct arb_segment *seg, uint32_t *slot, void **page, int *kept)
{
	int fd, r;
	uint32_t i;

	if (seg->alone) {
		*slot = 0;
		*page = NULL;
		return 0;
	}
	fd = arb_segment_locks(seg, O_RDWR);
	if (fd < 0)
		return fd;
	i = claim_with(seg, fd);
	if (i == ARB_NONE) {
		arb_os_close(fd);
		return -EUSERS;
	}
	r = keep(fd, ARB_BYTE_SLOT(i), page, kept);
	if (r < 0)
		return r;
	arb_bit_set(&seg->header->taken[i / 64], 1ull << (i % 64));
	*slot = i;
	return 0;
}

void arb_slot_watch(void)
{
	pthread_once(&watched, watch_forks);
}

void arb_slot_hold_forks(void)
{
	arb_lock_none_held();
	arb_slot_watch();
	before_fork();
}

bool arb_slot_try_hold_forks(void)
{
	arb_slot_watch();
	return try_claiming();
}

void arb_slot_let_fork(void)
{
	after_fork();
}

int arb_slot_claim(struct arb_segment *seg, uint32_t *slot, void **page, int *kept)
{
	int r;

	if (!arb_slot_try_hold_forks())
		return -EBUSY;
	r = claim(seg, slot, page, kept);
	arb_slot_let_fork();
	return r;
}

int arb_slot_hold(const struct arb_segment *seg, uint64_t byte, void **page)
{
	int fd, r;

	if (seg->alone)
		return -ENOTSUP;
	if (!arb_slot_try_hold_forks())
		return -EAGAIN;
	fd = r = arb_segment_locks(seg, O_RDWR);
	if (fd >= 0) {
		r = arb_os_lock(fd, byte);
		if (r < 0)
			arb_os_close(fd);
		else
			r = keep(fd, byte, page, NULL);
	}
	arb_slot_let_fork();
	return r;
}

void arb_slot_release(struct arb_segment *seg, uint32_t slot, void *page)
{
	arb_bit_clear(&seg->header->taken[slot / 64], 1ull << (slot % 64));
	arb_os_unmap(page, 0);
}

void arb_slot_fill(
	struct arb_segment *seg, uint32_t slot, const struct arb_os_identity *id, uint32_t priority)
{
	struct arb_slot *s = &seg->slots[slot];
	uint64_t now = arb_os_now_ns();

	arb_store32(&s->state, ARB_SLOT_JOINING);
	arb_add32_full(&s->generation, 1);
	arb_store32(&s->gate, 0);
	arb_store32(&s->priority, priority);
	arb_store32(&s->reason, ARB_REASON_NONE);
	arb_store32(&s->flags, 0);
	arb_store32(&s->life, 0);
	arb_store32(&s->life2, 0);
	arb_store32(&s->asked_ppm, 0);
	arb_store64(&s->asked_mem, 0);
	if (arb_hint32(&s->asked_share))
		arb_store32(&s->asked_share, 0);
	arb_store64(&s->heartbeat_ns, now);
	arb_store64(&s->joined_ns, now);
	arb_store64(&s->wait_since_ns, 0);
	arb_store64(&s->rank_ppm, 0);
	arb_store64(&s->throttled_ns, 0);
	arb_store64(&s->waited_ns, 0);
	arb_store64(&s->estimated_ns, 0);
	arb_store64(&s->enters, 0);
	arb_store32(&s->adm_want, 0);
	arb_store32(&s->adm_leases, 0);
	arb_store64(&s->adm_granted, 0);
	arb_store64(&s->adm_refused, 0);
	if (arb_hint64(&s->frozen))
		arb_store64(&s->frozen, 0);
	for (int i = 0; i < ARB_COUNTERS; i++)
		arb_store64(&s->counter[i], 0);
	arb_text_store(s->unknown, ARB_UNKNOWN_WORDS, "");
	arb_store32(&s->pid, id->pid);
	arb_store32(&s->uid, id->uid);
	arb_store64(&s->owner, 0);
	arb_store64(&s->pid_ns, id->pid_ns);
	arb_store64(&s->start_time, id->start_time);
	arb_text_store(s->command, ARB_COMMAND_WORDS, id->command);
	arb_text_store(s->container, ARB_NAME_WORDS, id->container);
}

void arb_slot_show(struct arb_segment *seg, uint32_t slot)
{
	arb_store32_release(&seg->slots[slot].state, ARB_SLOT_LIVE); /* SLOT_PUBLISH */
}
