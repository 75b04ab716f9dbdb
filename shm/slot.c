#include "slot.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>

#include "atomic.h"
#include "text.h"

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
	fd = arb_file_open(&seg->file, O_RDWR);
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

static __thread uint64_t bound_ns __attribute__((tls_model("initial-exec")));

uint64_t arb_slot_wait_bound(uint64_t until_ns)
{
	uint64_t before = bound_ns;

	bound_ns = until_ns;
	return before;
}

int arb_slot_lock_wait(
	const struct arb_segment *seg, uint64_t byte, uint64_t patience_ns, struct arb_lock *lock)
{
	uint64_t end = arb_os_now_ns() + patience_ns, pause = 20000;
	int r;

	if (bound_ns && bound_ns < end)
		end = bound_ns;

	/* Not F_OFD_SETLKW: a stopped holder would hang us, and the host's signals would end it. Most are
	 * about to let go, so the first tries come one right behind the other. */
	for (int tries = 0; (r = arb_slot_lock(seg, byte, lock)) == -EAGAIN; tries++) {
		if (tries < 16)
			continue;
		if (arb_os_now_ns() >= end)
			break;
		arb_os_sleep_ns(pause);
		if (pause < 1000000)
			pause *= 2;
	}
	return r;
}

void arb_slot_unlock(struct arb_lock *lock)
{
	if (lock->fd < 0)
		return;
	/* Said aloud, because a child forked just now has the same open file. */
	arb_os_unlock(lock->fd, lock->byte);
	arb_os_close(lock->fd);
}

int arb_slot_alive(const struct arb_segment *seg, uint32_t i)
{
	int fd, r;

	if (seg->alone)
		return i == 0;
	/* Who cannot be asked after is left in peace. */
	if (seg->stranded)
		return 1;
	fd = arb_file_open(&seg->file, O_RDONLY);
	if (fd < 0)
		return fd;
	r = arb_os_is_locked(fd, ARB_BYTE_SLOT(i));
	arb_os_close(fd);
	return r;
}

/*
 * A child forked while we hold the byte through a descriptor, before the page holds it, would keep a share
 * of the lock for as long as it lives. So fork() waits for a claim to end; one by a bare clone() does not.
 */
static pthread_mutex_t claiming = PTHREAD_MUTEX_INITIALIZER;

static void before_fork(void)
{
	pthread_mutex_lock(&claiming);
}

static void after_fork(void)
{
	pthread_mutex_unlock(&claiming);
}

static void watch_forks(void)
{
	pthread_atfork(before_fork, after_fork, after_fork);
}

static uint32_t claim_with(struct arb_segment *seg, int fd)
{
	/* First those that look free, then all: the hint may be wrong both ways. */
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

/* From here on the page holds the lock; the descriptor may go, unless somebody wants it. */
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
	fd = arb_file_open(&seg->file, O_RDWR);
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

void arb_slot_hold_forks(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, watch_forks);
	pthread_mutex_lock(&claiming);
}

void arb_slot_let_fork(void)
{
	pthread_mutex_unlock(&claiming);
}

int arb_slot_claim(struct arb_segment *seg, uint32_t *slot, void **page, int *kept)
{
	int r;

	arb_slot_hold_forks();
	r = claim(seg, slot, page, kept);
	arb_slot_let_fork();
	return r;
}

int arb_slot_hold(const struct arb_segment *seg, uint64_t byte, void **page)
{
	int fd, r;

	if (seg->alone)
		return -ENOTSUP;
	arb_slot_hold_forks();
	fd = r = arb_file_open(&seg->file, O_RDWR);
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
	arb_store64(&s->heartbeat_ns, now);
	arb_store64(&s->joined_ns, now);
	arb_store64(&s->wait_since_ns, 0);
	arb_store64(&s->rank_ppm, 0);
	arb_store64(&s->throttled_ns, 0);
	arb_store64(&s->waited_ns, 0);
	arb_store64(&s->enters, 0);
	arb_store32(&s->adm_want, 0);
	arb_store32(&s->adm_leases, 0);
	arb_store64(&s->adm_granted, 0);
	arb_store64(&s->adm_refused, 0);
	for (int i = 0; i < ARB_COUNTERS; i++)
		arb_store64(&s->counter[i], 0);
	arb_store32(&s->pid, id->pid);
	arb_store32(&s->uid, id->uid);
	arb_store64(&s->pid_ns, id->pid_ns);
	arb_store64(&s->start_time, id->start_time);
	arb_text_store(s->command, 2, id->command);
	arb_text_store(s->container, ARB_NAME_WORDS, id->container);
}

void arb_slot_show(struct arb_segment *seg, uint32_t slot)
{
	arb_store32_release(&seg->slots[slot].state, ARB_SLOT_LIVE); /* SLOT_PUBLISH */
}
