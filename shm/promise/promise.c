/*
 * Making promises. A process that makes a promise holds ARB_BYTE_PROMISES while it adds up and writes, so that of two
 * processes that come at once the second sees the promise of the first. The promise itself is the lock on its byte,
 * which the kernel drops when the last process that inherited the descriptor has ended.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "gpuarb/config.h"
#include "gpuarb/promise.h"

#include "shm/base/atomic.h"
#include "shm/client/client_state.h"
#include "shm/client/control_segment.h"
#include "shm/base/error.h"
#include "shm/client/owner.h"
#include "shm/base/os.h"
#include "shm/promise/promise_bytes.h"
#include "shm/client/reclaim.h"
#include "shm/segment/settings.h"
#include "shm/segment/slot.h"
#include "shm/base/text.h"

#define PATIENCE_NS 2000000000ull
/* Programs rarely have descriptors of their own from this number on. */
#define FD_LEAST 200

struct gpuarb_promiser {
	struct arb_segment seg;
	struct arb_control_map control;
	bool have_control;
	bool locked;
	struct arb_lock lock;
	int64_t value[ARB_KEY_COUNT];
	uint64_t physical;              /* as the driver says */
	char gpu[ARB_UUID_BYTES + 40];  /* the GPU's name in sentences */
	uint32_t entry;                 /* ours, or ARB_NONE */
	char container[ARB_NAME_BYTES]; /* the account that @container means here */
	struct arb_promises *all;
};

/* Returns the promise under the account's name that its clients will use. */
static struct gpuarb_promise named(struct gpuarb_promiser *p, const struct gpuarb_promise *promise)
{
	struct gpuarb_promise named = *promise;
	struct arb_os_identity id;

	if (strcmp(promise->account, ARB_BY_CONTAINER) != 0)
		return named;
	if (!p->container[0]) {
		arb_os_identify(&id);
		arb_client_container_name(&id, p->container);
	}
	named.account = p->container;
	return named;
}

void gpuarb_promiser_close(struct gpuarb_promiser *p)
{
	if (!p)
		return;
	gpuarb_promiser_unlock(p);
	if (p->have_control)
		arb_control_map_close(&p->control);
	if (p->seg.header)
		arb_segment_close(&p->seg);
	free(p->all);
	free(p);
}

static int open_all(struct gpuarb_promiser *p, const char *dir, const char *gpu, struct gpuarb_error *err)
{
	struct gpuarb_config config;
	struct arb_create create;
	int r = gpuarb_config_load(&config, NULL, false, err);

	if (r < 0)
		return r;
	memcpy(p->value, config.value, sizeof(p->value));
	create = (struct arb_create){(uint32_t)config.value[ARB_KEY_SLOTS],
		(mode_t)config.value[ARB_KEY_SEGMENT_MODE], (gid_t)config.value[ARB_KEY_GROUP]};
	gpuarb_config_free(&config);
	if (arb_os_clock_init() < 0)
		return arb_fail(err, -ENOTSUP,
			"this time namespace's clock cannot be compared with that of the clients");
	r = arb_segment_open(&p->seg, dir, gpu, true, &create, err);
	if (r < 0)
		return r;
	p->have_control = arb_control_map_open(&p->control, dir, gpu, false, NULL, NULL, NULL) == 0;
	p->all = arb_promise_alloc(&p->seg);
	return p->all ? 0 : arb_fail(err, -ENOMEM, "out of memory");
}

int gpuarb_promiser_open(const char *dir, const char *gpu, uint64_t physical,
	struct gpuarb_promiser **promiser, struct gpuarb_error *err)
{
	struct gpuarb_promiser *p = calloc(1, sizeof(*p));
	int r;

	*promiser = NULL;
	if (!p)
		return arb_fail(err, -ENOMEM, "out of memory");
	p->physical = physical;
	p->entry = ARB_NONE;
	snprintf(p->gpu, sizeof(p->gpu), "%s", gpu);
	r = open_all(p, gpuarb_control_dir(dir), gpu, err);
	if (r < 0) {
		gpuarb_promiser_close(p);
		return r;
	}
	if (physical)
		arb_store64(&p->seg.header->mem_physical, physical);
	*promiser = p;
	return 0;
}

void gpuarb_promiser_call(struct gpuarb_promiser *p, const char *name)
{
	snprintf(p->gpu, sizeof(p->gpu), "%s", name);
}

int gpuarb_promiser_lock(struct gpuarb_promiser *p, struct gpuarb_error *err)
{
	int r = arb_slot_lock_wait(&p->seg, ARB_BYTE_PROMISES(p->seg.nslots), PATIENCE_NS, &p->lock);

	if (r < 0)
		return arb_fail(err, r, "cannot promise anything in %s: %s", p->seg.file.path,
			r == -EAGAIN   ? "somebody else is at it and does not end (stopped?)"
			: r == -ESTALE ? "the file was removed or replaced just now"
				       : strerror(-r));
	p->locked = true;
	return 0;
}

void gpuarb_promiser_unlock(struct gpuarb_promiser *p)
{
	if (p->locked)
		arb_slot_unlock(&p->lock);
	p->locked = false;
}

static struct arb_promise_bounds bounds(const struct gpuarb_promiser *p)
{
	struct arb_promise_bounds b = {p->gpu, (uint64_t)p->value[ARB_KEY_PHYSICAL_MEMORY_MB] << 20,
		p->value[ARB_KEY_OVERSUB_RATIO]};

	if (!b.physical)
		b.physical = p->physical;
	if (!b.physical)
		b.physical = arb_load64(&p->seg.header->mem_physical);
	return b;
}

static int look(struct gpuarb_promiser *p, const struct gpuarb_promise *promise, struct gpuarb_room *room)
{
	const struct arb_control *control = p->have_control ? p->control.control : NULL;
	struct arb_promise_bounds b;
	uint64_t epoch, mine = UINT64_MAX;
	struct arb_rules rules;

	memset(room, 0, sizeof(*room));
	if (control)
		arb_settings_read(control, p->value, &epoch);
	if (p->entry != ARB_NONE)
		mine = arb_load64(&p->seg.promises[p->entry].ticket);
	b = bounds(p);
	arb_settings_rules(p->value, &rules);
	/* Done also where there is room: memory that dead clients hold makes a GPU look fuller than another. */
	arb_promise_bury(&p->seg, &rules);
	return arb_promise_look(&p->seg, control, &rules, &b, promise, mine, ARB_NONE, p->all, room);
}

int gpuarb_promiser_room(
	struct gpuarb_promiser *p, const struct gpuarb_promise *promise, struct gpuarb_room *room)
{
	struct gpuarb_promise asked = named(p, promise);

	return look(p, &asked, room);
}

/* Bounds the promises of one owner as its slots are bounded, so that no owner takes all of them. */
static int within_bound(const struct gpuarb_promiser *p, int fd, struct gpuarb_error *err)
{
	int64_t user_slots = p->value[ARB_KEY_SLOTS_PER_USER];
	struct arb_os_identity id;
	uint32_t bound, n = 0;
	uint64_t owner;
	char who[64];

	arb_os_identify(&id);
	bound = arb_owner_bound(&p->seg, &id, (int)user_slots);
	if (bound == UINT32_MAX)
		return 0;
	owner = arb_owner_of(&id);
	for (uint32_t i = 0; i < p->seg.nslots; i++)
		n += arb_load64(&p->seg.promises[i].owner) == owner &&
		     arb_os_is_locked(fd, ARB_BYTE_PROMISE(p->seg.nslots, i)) == 1;
	if (n < bound)
		return 0;
	arb_owner_describe(&id, who, sizeof(who));
	return arb_fail(err, -EUSERS,
		"%s %u of the %u promises of %s already, and may have %u (slots_per_user in arbiter.conf)",
		who, n, p->seg.nslots, p->seg.file.path, bound);
}

/* Takes a byte, and the entry that belongs to it. */
static int claim(struct gpuarb_promiser *p, int *fd, struct gpuarb_error *err)
{
	int bound, r = arb_segment_locks(&p->seg, O_RDWR);

	if (r < 0)
		return arb_fail(err, r, "cannot open %s: %s", p->seg.locks.path, strerror(-r));
	bound = within_bound(p, r, err);
	if (bound < 0) {
		arb_os_close(r);
		return bound;
	}
	for (uint32_t i = 0; i < p->seg.nslots; i++)
		if (arb_os_lock(r, ARB_BYTE_PROMISE(p->seg.nslots, i)) == 0) {
			p->entry = i;
			*fd = r;
			return 0;
		}
	arb_os_close(r);
	return arb_fail(err, -EUSERS, "%s has room for %u promises, and all are made", p->seg.file.path,
		p->seg.nslots);
}

static void fill(struct gpuarb_promiser *p, const struct gpuarb_promise *promise, bool waits)
{
	struct arb_promise *e = &p->seg.promises[p->entry];
	struct arb_os_identity id;

	/* The name is removed first, so that the entry belongs to no account while it is written. */
	arb_text_store(e->name, ARB_NAME_WORDS, "");
	arb_fence_release();
	arb_store64(&e->bytes, promise->bytes);
	arb_store64(&e->since_ns, arb_os_now_ns());
	arb_store32(&e->core_pct, promise->core_pct ? promise->core_pct : 100);
	arb_store32(&e->request_pct, promise->request_pct);
	arb_store32(&e->pid, (uint32_t)getpid());
	arb_store32(&e->uid, (uint32_t)getuid());
	arb_os_identify(&id);
	arb_store64(&e->owner, arb_owner_of(&id));
	arb_store64(&e->ticket, arb_load64(&p->seg.header->ticket) + 1);
	arb_store64(&p->seg.header->ticket, arb_load64(&e->ticket));
	arb_store32(&e->waits, waits);
	arb_fence_release();
	arb_text_store(e->name, ARB_NAME_WORDS, promise->account);
}

/* Lets the program and all that it starts inherit the descriptor. */
static void inherit(int *fd)
{
	int saved = errno, high = fcntl(*fd, F_DUPFD, FD_LEAST);

	if (high >= 0) {
		arb_os_close(*fd);
		*fd = high;
	} else {
		fcntl(*fd, F_SETFD, 0);
	}
	errno = saved;
}

int gpuarb_promiser_take(struct gpuarb_promiser *p, const struct gpuarb_promise *asked, bool queue, int *fd,
	struct gpuarb_error *err)
{
	struct gpuarb_promise called = named(p, asked);
	const struct gpuarb_promise *promise = &called;
	struct gpuarb_room room;
	int r = look(p, promise, &room);

	if (r < 0)
		return arb_fail(err, r, "cannot read %s: %s", p->seg.file.path, strerror(-r));
	if (!room.fits) {
		struct arb_promise_bounds b = bounds(p);

		r = arb_promise_refuse(p->all, &b, promise->account, &room, err);
		if (r == -E2BIG || !queue)
			return r;
	}
	if (*fd < 0) {
		int claimed = claim(p, fd, err);

		if (claimed < 0)
			return claimed;
		fill(p, promise, r == -ENOSPC);
	}
	if (r == 0) {
		arb_store32(&p->seg.promises[p->entry].waits, 0);
		inherit(fd);
	}
	return r;
}

void gpuarb_promiser_drop(struct gpuarb_promiser *p, int *fd)
{
	if (*fd >= 0)
		arb_os_close(*fd);
	*fd = -1;
	p->entry = ARB_NONE;
}
