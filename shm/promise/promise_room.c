/* Decides whether there is room for a promise and, if not, lists the others: by arithmetic over the list of promises.
 */
#include <errno.h>
#include <string.h>

#include "shm/base/atomic.h"
#include "shm/base/error.h"
#include "shm/promise/promise_bytes.h"
#include "shm/client/reclaim.h"
#include "shm/segment/settings.h"

#define NAMED 6 /* accounts that a refusal names */

static uint64_t plus(uint64_t a, uint64_t b)
{
	return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

uint64_t arb_promise_share(const struct arb_control *control, const char *account, uint64_t bytes)
{
	struct gpuarb_config_limit limit;
	bool set = control && arb_settings_limit(control, account, &limit) == 1 && limit.set & ARB_LIMIT_MEM;

	return set ? (uint64_t)limit.mem_bytes : bytes;
}

unsigned arb_promise_request(const struct arb_control *control, const char *account, unsigned request_pct)
{
	struct gpuarb_config_limit limit;
	bool set =
		control && arb_settings_limit(control, account, &limit) == 1 && limit.set & ARB_LIMIT_REQUEST;

	return set ? (unsigned)limit.request_pct : request_pct;
}

/* Adds up the requests of all other accounts, against all of the GPU's time. */
static void add_up_requests(
	const struct arb_promises *all, const char *account, uint64_t ticket, struct gpuarb_room *room)
{
	unsigned had = 0;

	for (uint32_t i = 0; i < all->n; i++) {
		const struct arb_promised *other = &all->list[i];

		if (!strcmp(other->name, account)) {
			had = other->request_pct;
			continue;
		}
		room->request_promised += other->request_pct;
		if (other->request_waiting > other->request_pct && other->ticket < ticket)
			room->request_promised += other->request_waiting - other->request_pct;
	}
	if (had > room->request_pct)
		room->request_pct = had;
	room->request_fits = room->request_pct <= had || room->request_pct + room->request_promised <= 100;
}

/* `room->bytes` is what the account would have. */
static void add_up(const struct arb_promises *all, const struct arb_promise_bounds *b, const char *account,
	uint64_t ticket, struct gpuarb_room *room)
{
	uint64_t had = 0;

	for (uint32_t i = 0; i < all->n; i++) {
		const struct arb_promised *other = &all->list[i];

		if (!strcmp(other->name, account)) {
			had = other->bytes;
			continue;
		}
		room->promised = plus(room->promised, other->bytes);
		if (other->waiting > other->bytes && other->ticket < ticket)
			room->promised = plus(room->promised, other->waiting - other->bytes);
		if (!other->bytes)
			room->unpromised = plus(room->unpromised, other->used);
		room->core_used += other->core_pct;
	}
	if (had > room->bytes)
		room->bytes = had;
	room->physical = b->physical;
	room->most = arb_promise_limit(b->physical, b->ratio_permille);
	room->free = room->most > room->promised ? room->most - room->promised : 0;
	/* What the account has already is no new promise, even if the bound was lowered since. */
	room->fits = !room->physical || !room->bytes || room->bytes <= had || room->bytes <= room->free;
	add_up_requests(all, account, ticket, room);
	room->fits &= room->request_fits;
}

void arb_promise_bury(struct arb_segment *seg, const struct arb_rules *rules)
{
	struct arb_reclaimed what;

	for (uint32_t i = 0; i < seg->nslots; i++)
		if (arb_load32(&seg->slots[i].state) != ARB_SLOT_FREE)
			arb_reclaim_slot(seg, i, rules, &what);
}

/* Cleans up behind the dead for a client, which must not sleep: -EBUSY if it should try again. */
static int bury_now(struct arb_segment *seg, uint32_t me, const struct arb_rules *rules)
{
	int r = 0;

	for (uint32_t i = 0; i < seg->nslots; i++)
		if (i != me && arb_load32(&seg->slots[i].state) != ARB_SLOT_FREE &&
			arb_reclaim_look(seg, me, i, false, rules) == -EBUSY)
			r = -EBUSY;
	return r;
}

int arb_promise_look(struct arb_segment *seg, const struct arb_control *control,
	const struct arb_rules *rules, const struct arb_promise_bounds *bounds,
	const struct gpuarb_promise *promise, uint64_t ticket, uint32_t me, struct arb_promises *all,
	struct gpuarb_room *room)
{
	int buried = 0;

	for (bool again = false;; again = true) {
		int r = arb_promise_list(seg, control, me, all);

		*room = (struct gpuarb_room){
			.bytes = arb_promise_share(control, promise->account, promise->bytes),
			.request_pct = arb_promise_request(control, promise->account, promise->request_pct)};
		if (r < 0)
			return r;
		add_up(all, bounds, promise->account, ticket, room);
		if (room->fits)
			return 0;
		if (again)
			return buried;
		if (me == ARB_NONE)
			arb_promise_bury(seg, rules);
		else
			buried = bury_now(seg, me, rules);
	}
}

/* Writes 12.5Gi, 300Mi or 17 bytes: exact where that is short, else to a tenth. */
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

static void name_them(const struct arb_promises *all, const char *account, char *text, size_t size)
{
	uint32_t named = 0, more = 0;
	size_t at = 0;
	char bytes[24];

	*text = '\0';
	for (uint32_t i = 0; i < all->n; i++) {
		const struct arb_promised *other = &all->list[i];
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

static int refuse_request(const struct arb_promises *all, const struct arb_promise_bounds *b,
	const char *account, const struct gpuarb_room *room, struct gpuarb_error *err)
{
	char names[320] = "";
	uint32_t named = 0, more = 0;
	size_t at = 0;

	for (uint32_t i = 0; i < all->n && at < sizeof(names); i++) {
		const struct arb_promised *other = &all->list[i];
		bool waits = other->request_waiting > other->request_pct;

		if (!strcmp(other->name, account) || (!other->request_pct && !waits))
			continue;
		if (named == NAMED) {
			more++;
			continue;
		}
		at += (size_t)snprintf(names + at, sizeof(names) - at, "%s%.30s %s %u", named++ ? ", " : "",
			other->name, waits ? "waits for" : "has",
			waits ? other->request_waiting : other->request_pct);
	}
	if (more && at < sizeof(names))
		snprintf(names + at, sizeof(names) - at, " and %u more", more);
	return arb_fail(err, -ENOSPC,
		"%s cannot promise %u percent of its time to %.30s: %u of 100 are promised (%s)", b->gpu,
		room->request_pct, account, room->request_promised, names);
}

int arb_promise_refuse(const struct arb_promises *all, const struct arb_promise_bounds *b,
	const char *account, const struct gpuarb_room *room, struct gpuarb_error *err)
{
	char want[24], most[24], physical[24], promised[24], names[320];

	if (!room->request_fits)
		return refuse_request(all, b, account, room, err);
	size_text(room->bytes, want);
	size_text(room->most, most);
	size_text(room->physical, physical);
	size_text(room->promised, promised);
	if (room->bytes > room->most)
		return arb_fail(err, -E2BIG,
			"%s cannot promise %s to %.30s: that is more than the %s it may promise "
			"(oversub_ratio "
			"%.3f of %s)",
			b->gpu, want, account, most, (double)b->ratio_permille / 1000, physical);
	name_them(all, account, names, sizeof(names));
	return arb_fail(err, -ENOSPC, "%s cannot promise %s to %.30s: %s of %s is promised (%s)", b->gpu,
		want, account, promised, most, names);
}
