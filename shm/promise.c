/*
 * Making promises. Whoever does holds ARB_BYTE_PROMISES while it adds up and writes, so that of two who come
 * at once the second sees the first. The promise itself is the lock on its byte, which the kernel drops when
 * the last process that inherited the descriptor has ended.
 */
#include "gpuarb/promise.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "atomic.h"
#include "client.h"
#include "config.h"
#include "control.h"
#include "error.h"
#include "os.h"
#include "promise.h"
#include "reclaim.h"
#include "settings.h"
#include "slot.h"
#include "text.h"

#define PATIENCE_NS 2000000000ull
/* Where programs rarely put descriptors of their own. */
#define FD_LEAST 200
#define NAMED    6 /* accounts that a refusal names */

struct gpuarb_promiser {
	struct arb_segment seg;
	struct arb_control_map control;
	bool have_control;
	bool locked;
	struct arb_lock lock;
	int64_t value[ARB_KEY_COUNT];
	uint64_t physical; /* as the driver says */
	char gpu[ARB_UUID_BYTES];
	uint32_t entry;                 /* ours, or ARB_NONE */
	char container[ARB_NAME_BYTES]; /* what @container is here */
	struct arb_promises *all;
};

/* As its clients will call it. */
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
	struct arb_config config;
	struct arb_create create;
	int r = arb_config_load(&config, NULL, false, err);

	if (r < 0)
		return r;
	memcpy(p->value, config.value, sizeof(p->value));
	create = (struct arb_create){(uint32_t)config.value[ARB_KEY_SLOTS],
		(mode_t)config.value[ARB_KEY_SEGMENT_MODE], (gid_t)config.value[ARB_KEY_GROUP]};
	arb_config_free(&config);
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
	r = open_all(p, arb_control_dir(dir), gpu, err);
	if (r < 0) {
		gpuarb_promiser_close(p);
		return r;
	}
	if (physical)
		arb_store64(&p->seg.header->mem_physical, physical);
	*promiser = p;
	return 0;
}

int gpuarb_promiser_lock(struct gpuarb_promiser *p, struct gpuarb_error *err)
{
	int r = arb_slot_lock_wait(&p->seg, ARB_BYTE_PROMISES(p->seg.nslots), PATIENCE_NS, &p->lock);

	if (r < 0)
		return arb_fail(err, r, "cannot promise memory in %s: %s", p->seg.file.path,
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

/* The dead are still counted until somebody cares. */
static void bury(struct gpuarb_promiser *p)
{
	struct arb_reclaimed what;
	struct arb_rules rules;

	arb_settings_rules(p->value, &rules);
	for (uint32_t i = 0; i < p->seg.nslots; i++)
		if (arb_load32(&p->seg.slots[i].state) != ARB_SLOT_FREE)
			arb_reclaim_slot(&p->seg, i, &rules, &what);
}

static uint64_t plus(uint64_t a, uint64_t b)
{
	return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

/* What the account would have if this were promised. */
static uint64_t share(const struct gpuarb_promiser *p, const struct gpuarb_promise *promise)
{
	struct arb_config_limit limit;

	if (p->have_control && arb_settings_limit(p->control.control, promise->account, &limit) == 1 &&
		limit.set & ARB_LIMIT_MEM)
		return (uint64_t)limit.mem_bytes;
	return promise->bytes;
}

static int look(struct gpuarb_promiser *p, const struct gpuarb_promise *promise, struct gpuarb_room *room)
{
	uint64_t epoch, mine = UINT64_MAX;
	int r;

	memset(room, 0, sizeof(*room));
	if (p->have_control)
		arb_settings_read(p->control.control, p->value, &epoch);
	bury(p);
	r = arb_promise_list(&p->seg, p->have_control ? p->control.control : NULL, p->all);
	if (r < 0)
		return r;
	if (p->entry != ARB_NONE)
		mine = arb_load64(&p->seg.promises[p->entry].ticket);
	room->physical = (uint64_t)p->value[ARB_KEY_PHYSICAL_MEMORY_MB] << 20;
	if (!room->physical)
		room->physical = p->physical;
	if (!room->physical)
		room->physical = arb_load64(&p->seg.header->mem_physical);
	room->most = arb_promise_limit(room->physical, p->value[ARB_KEY_OVERSUB_RATIO]);
	room->bytes = share(p, promise);
	for (uint32_t i = 0; i < p->all->n; i++) {
		const struct arb_promised *other = &p->all->list[i];

		if (!strcmp(other->name, promise->account)) {
			if (other->bytes > room->bytes)
				room->bytes = other->bytes;
			continue;
		}
		room->promised = plus(room->promised, other->bytes);
		if (other->waiting > other->bytes && other->ticket < mine)
			room->promised = plus(room->promised, other->waiting - other->bytes);
		if (!other->bytes)
			room->loose = plus(room->loose, other->used);
		room->core_used += other->core_pct;
	}
	room->free = room->most > room->promised ? room->most - room->promised : 0;
	room->fits = !room->physical || !room->bytes || room->bytes <= room->free;
	return 0;
}

int gpuarb_promiser_room(
	struct gpuarb_promiser *p, const struct gpuarb_promise *promise, struct gpuarb_room *room)
{
	struct gpuarb_promise asked = named(p, promise);

	return look(p, &asked, room);
}

/* 12.5Gi, 300Mi, 17 bytes: exact where it is short, else to a tenth. */
static const char *size_text(uint64_t bytes, char text[24])
{
	static const char *const unit[] = {" bytes", "Ki", "Mi", "Gi", "Ti"};
	double value = (double)bytes;
	int u = 0;

	for (; value >= 1024 && u < 4; u++)
		value /= 1024;
	snprintf(text, 24, "%.*f%s", value < 100 && value != (double)(uint64_t)value, value, unit[u]);
	return text;
}

static void name_them(const struct gpuarb_promiser *p, const char *account, char *text, size_t size)
{
	uint32_t named = 0, more = 0;
	size_t at = 0;
	char bytes[24];

	*text = '\0';
	for (uint32_t i = 0; i < p->all->n; i++) {
		const struct arb_promised *other = &p->all->list[i];
		bool waits = other->waiting > other->bytes;

		if (!strcmp(other->name, account) || (!other->bytes && !waits))
			continue;
		if (named == NAMED) {
			more++;
			continue;
		}
		at += (size_t)snprintf(text + at, size - at, "%s%.30s %s %s", named++ ? ", " : "",
			other->name, waits ? "waits for" : "has",
			size_text(waits ? other->waiting : other->bytes, bytes));
		if (at >= size)
			return;
	}
	if (more)
		snprintf(text + at, size - at, " and %u more", more);
}

static int refuse(const struct gpuarb_promiser *p, const struct gpuarb_promise *promise,
	const struct gpuarb_room *room, struct gpuarb_error *err)
{
	char want[24], most[24], physical[24], promised[24], names[320];

	size_text(room->bytes, want);
	size_text(room->most, most);
	size_text(room->physical, physical);
	size_text(room->promised, promised);
	if (room->bytes > room->most)
		return arb_fail(err, -E2BIG,
			"%s cannot promise %s to %.30s: that is more than the %s it may promise "
			"(oversub_ratio "
			"%.3f of %s)",
			p->gpu, want, promise->account, most, (double)p->value[ARB_KEY_OVERSUB_RATIO] / 1000,
			physical);
	name_them(p, promise->account, names, sizeof(names));
	return arb_fail(err, -ENOSPC, "%s cannot promise %s to %.30s: %s of %s is promised (%s)", p->gpu,
		want, promise->account, promised, most, names);
}

/* A byte of our own, and an entry for it. */
static int claim(struct gpuarb_promiser *p, int *fd, struct gpuarb_error *err)
{
	int r = arb_file_open(&p->seg.file, O_RDWR);

	if (r < 0)
		return arb_fail(err, r, "cannot open %s: %s", p->seg.file.path, strerror(-r));
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

	/* Without a name first: it is nobody's while it is written. */
	arb_text_store(e->name, ARB_NAME_WORDS, "");
	arb_fence_release();
	arb_store64(&e->bytes, promise->bytes);
	arb_store64(&e->since_ns, arb_os_now_ns());
	arb_store32(&e->core_pct, promise->core_pct ? promise->core_pct : 100);
	arb_store32(&e->pid, (uint32_t)getpid());
	arb_store32(&e->uid, (uint32_t)getuid());
	arb_store64(&e->ticket, arb_load64(&p->seg.header->ticket) + 1);
	arb_store64(&p->seg.header->ticket, arb_load64(&e->ticket));
	arb_store32(&e->waits, waits);
	arb_fence_release();
	arb_text_store(e->name, ARB_NAME_WORDS, promise->account);
}

/* For the program and all that it starts. */
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
		r = refuse(p, promise, &room, err);
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
