/*
 * What an administrator sets for an account is a promise too: a quota while a client of the account lives or has a
 * promise, a request as long as it is set. It is added up before it is published, and no other process makes promises
 * in between.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "shm/base/atomic.h"
#include "shm/base/error.h"
#include "shm/promise/promise_bytes.h"
#include "shm/segment/settings.h"

#define PATIENCE_NS 2000000000ull
/* A segment is replaced by hand, so twice in a row is rare. */
#define REPLACED_TRIES 3

static struct arb_promise_bounds bounds(
	const struct arb_promise_change *c, const struct arb_control_copy *draft, const char *gpu)
{
	struct arb_promise_bounds b = {gpu, arb_load64(&draft->value[ARB_KEY_PHYSICAL_MEMORY_MB]) << 20,
		(int64_t)arb_load64(&draft->value[ARB_KEY_OVERSUB_RATIO])};

	if (!b.physical && c->open)
		b.physical = arb_load64(&c->seg.header->mem_physical);
	return b;
}

/*
 * Replaces the quotas in the list, which clients asked for, by those of the draft. Returns an account whose quota is
 * larger than before, or NULL; *sum: the sum of all quotas.
 */
static const struct arb_promised *raised(struct arb_promises *all, const struct arb_control *control,
	const struct arb_control_copy *draft, uint64_t *sum)
{
	const struct arb_promised *more = NULL;

	*sum = 0;
	for (uint32_t i = 0; i < all->n; i++) {
		struct arb_promised *p = &all->list[i];
		struct gpuarb_config_limit limit;
		uint64_t before = arb_promise_share(control, p->name, p->bytes);

		/* A program that only queues has been promised nothing yet. */
		if (!p->core_pct)
			continue;
		if (arb_settings_limit_in(draft, p->name, &limit) && limit.set & ARB_LIMIT_MEM)
			p->bytes = (uint64_t)limit.mem_bytes;
		if (p->bytes > before)
			more = p;
		*sum = p->bytes > UINT64_MAX - *sum ? UINT64_MAX : *sum + p->bytes;
	}
	return more;
}

/* Returns the request that the account is promised under these settings, if its members and entries ask for
 * `asked`. */
static unsigned request_of(
	bool set, const struct gpuarb_config_limit *limit, const struct arb_promised *p, unsigned asked)
{
	if (set && limit->set & ARB_LIMIT_REQUEST)
		return (unsigned)limit->request_pct;
	return p->core_pct ? asked : 0;
}

/* Does with requests what raised() does with quotas, also for accounts that nobody uses. */
static const struct arb_promised *raised_request(struct arb_promises *all, const struct arb_control *control,
	const struct arb_control_copy *draft, unsigned *sum)
{
	const struct arb_promised *more = NULL;
	struct gpuarb_config_limit limit;

	*sum = 0;
	for (uint32_t i = 0; arb_settings_limit_at_in(draft, i, &limit) == 1; i++)
		arb_promise_add_set(all, &limit);
	for (uint32_t i = 0; i < all->n; i++) {
		struct arb_promised *p = &all->list[i];
		unsigned asked = p->request_pct;
		unsigned before =
			request_of(arb_settings_limit(control, p->name, &limit) == 1, &limit, p, asked);

		p->request_pct =
			request_of(arb_settings_limit_in(draft, p->name, &limit) == 1, &limit, p, asked);
		if (p->request_pct > before)
			more = p;
		*sum += p->request_pct;
	}
	return more;
}

static int add_up(struct arb_promise_change *c, const struct arb_control *control,
	const struct arb_control_copy *draft, const char *gpu, struct gpuarb_error *err)
{
	struct arb_promise_bounds b = bounds(c, draft, gpu);
	struct arb_promises *all = arb_promise_alloc(&c->seg);
	const struct arb_promised *more, *most;
	struct gpuarb_room room = {.physical = b.physical, .request_fits = true};
	struct arb_rules rules;
	int64_t value[ARB_KEY_COUNT];
	uint64_t sum;
	unsigned requests;
	int r = 0;

	if (!all)
		return arb_fail(err, -ENOMEM, "out of memory");
	for (int key = 0; key < ARB_KEY_COUNT; key++)
		value[key] = (int64_t)arb_load64(&draft->value[key]);
	arb_settings_rules(value, &rules);
	room.most = arb_promise_limit(b.physical, b.ratio_permille);
	for (bool again = false;; again = true) {
		r = c->open ? arb_promise_list(&c->seg, NULL, ARB_NONE, all) : 0;
		if (r < 0) {
			arb_fail(err, r, "cannot read %s: %s", c->seg.file.path, strerror(-r));
			break;
		}
		more = raised(all, control, draft, &sum);
		most = raised_request(all, control, draft, &requests);
		/* Where the size of the memory is not known, everything fits. */
		if (!b.physical || sum <= room.most)
			more = NULL;
		if (requests <= 100)
			most = NULL;
		if (!more && !most)
			break;
		if (again) {
			room.bytes = more ? more->bytes : 0;
			room.promised = sum - room.bytes;
			room.request_fits = more || !most;
			room.request_pct = most ? most->request_pct : 0;
			room.request_promised = requests - room.request_pct;
			r = arb_promise_refuse(all, &b, more ? more->name : most->name, &room, err);
			break;
		}
		if (c->open)
			arb_promise_bury(&c->seg, &rules);
	}
	free(all);
	return r;
}

static int begin(struct arb_promise_change *c, const char *dir, const char *gpu,
	const struct arb_control *control, const struct arb_control_copy *draft, struct gpuarb_error *err)
{
	int r;

	*c = (struct arb_promise_change){.open = false};
	r = arb_segment_open(&c->seg, dir, gpu, true, NULL, err);
	/* There is no state segment yet, so nothing is promised but the requests that are set. */
	if (r == -ENOENT)
		return add_up(c, control, draft, gpu, err);
	if (r < 0)
		return r;
	c->open = true;
	r = arb_slot_lock_wait(&c->seg, ARB_BYTE_PROMISES(c->seg.nslots), PATIENCE_NS, &c->lock);
	c->locked = r == 0;
	if (r < 0)
		arb_fail(err, r, "cannot add up what is promised in %s: %s", c->seg.file.path,
			r == -EAGAIN ? "somebody else is at it and does not end (stopped?)" : strerror(-r));
	else
		r = add_up(c, control, draft, gpu, err);
	if (r < 0)
		arb_promise_change_end(c);
	return r;
}

int arb_promise_change_begin(struct arb_promise_change *c, const char *dir, const char *gpu,
	const struct arb_control *control, const struct arb_control_copy *draft, struct gpuarb_error *err)
{
	int r = -ESTALE;

	/* A segment that was replaced meanwhile says nothing about its successor. */
	for (int tries = 0; tries < REPLACED_TRIES; tries++) {
		r = begin(c, dir, gpu, control, draft, err);
		if (r != -ESTALE)
			break;
	}
	return r;
}

void arb_promise_change_end(struct arb_promise_change *c)
{
	if (c->locked)
		arb_slot_unlock(&c->lock);
	if (c->open)
		arb_segment_close(&c->seg);
	*c = (struct arb_promise_change){.open = false};
}
