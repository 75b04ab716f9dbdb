/* Adding up what is promised: entries whose byte is locked, and accounts that live under a quota without one.
 */
#include "shm/promise/promise_bytes.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "shm/segment/account.h"
#include "shm/base/atomic.h"
#include "shm/base/os.h"
#include "shm/policy/policy.h"
#include "shm/segment/settings.h"
#include "shm/base/text.h"

/* The number of accounts that nobody uses and that have a request set. Each request is at least one percent, so with
 * 101 of them the sum is too much already. */
#define SET_MOST 101
#define TRIES    100

struct arb_promises *arb_promise_alloc(const struct arb_segment *seg)
{
	struct arb_promises *all =
		malloc(sizeof(*all) + (seg->nslots + seg->naccounts + SET_MOST) * sizeof(all->list[0]));

	if (all) {
		all->n = 0;
		all->most = seg->nslots + seg->naccounts + SET_MOST;
	}
	return all;
}

uint64_t arb_promise_limit(uint64_t physical, int64_t ratio_permille)
{
	uint64_t ratio = (uint64_t)ratio_permille;

	return physical / 1000 > UINT64_MAX / ratio
		       ? UINT64_MAX
		       : physical / 1000 * ratio + physical % 1000 * ratio / 1000;
}

static struct arb_promised *of(struct arb_promises *all, const char *name)
{
	struct arb_promised *p = all->list;

	while (p < all->list + all->n && strcmp(p->name, name) != 0)
		p++;
	if (p == all->list + all->n) {
		memset(p, 0, sizeof(*p));
		memcpy(p->name, name, sizeof(p->name));
		p->index = ARB_NONE;
		all->n++;
	}
	return p;
}

/* Copies a name for sentences, so each of its characters must be printable. */
static void load_name(const arb_u64 *words, char name[ARB_NAME_BYTES])
{
	arb_text_load(words, ARB_NAME_WORDS, name);
	for (char *c = name; *c; c++)
		if ((unsigned char)*c <= ' ' || *c == 0x7f)
			*c = '?';
}

static unsigned percent(uint32_t pct)
{
	return pct >= 1 && pct <= 100 ? pct : 100;
}

/* A request for more than the whole GPU is garbage. */
static unsigned request_in(uint32_t pct)
{
	return pct <= 100 ? pct : 0;
}

static void add_entry(struct arb_promises *all, const struct arb_promise *e)
{
	char name[ARB_NAME_BYTES];
	struct arb_promised *p;
	uint64_t bytes = arb_load64(&e->bytes);
	unsigned request = request_in(arb_load32(&e->request_pct));

	load_name(e->name, name);
	p = of(all, name);
	if (arb_load32(&e->waits)) {
		if (!p->ticket || arb_load64(&e->ticket) < p->ticket) {
			p->ticket = arb_load64(&e->ticket);
			p->since_ns = arb_load64(&e->since_ns);
		}
		if (bytes > p->waiting)
			p->waiting = bytes;
		if (request > p->request_waiting)
			p->request_waiting = request;
		return;
	}
	if (bytes > p->bytes)
		p->bytes = bytes;
	if (request > p->request_pct)
		p->request_pct = request;
	if (percent(arb_load32(&e->core_pct)) > p->core_pct)
		p->core_pct = percent(arb_load32(&e->core_pct));
}

static void add_account(const struct arb_segment *seg, struct arb_promises *all, uint32_t a, uint32_t without)
{
	const struct arb_account *acct = &seg->accounts[a];
	struct arb_account_snap s;
	struct arb_promised *p;
	char name[ARB_NAME_BYTES];
	uint32_t limit = arb_load32(&acct->limit_ppm);

	load_name(acct->name, name);
	if (!name[0] || arb_account_read(seg, a, &s) < 0)
		return;
	if (without < seg->nslots)
		s.attached[without / 64] &= ~(1ull << (without % 64));
	if (!arb_bits_count(s.attached, seg->nwords))
		return;
	p = of(all, name);
	p->index = a;
	p->used = s.mem_used;
	/* The strictest quota that a member asks for is in force, but that member may be the first to leave: so the
	 * largest counts. */
	for (uint32_t i = arb_bits_next(s.attached, seg->nwords, 0); i != ARB_NONE;
		i = arb_bits_next(s.attached, seg->nwords, i + 1)) {
		uint64_t asked = arb_load64(&seg->slots[i].asked_mem);

		unsigned request = request_in(arb_load32(&seg->slots[i].asked_share) & 0xff);

		if (asked > p->bytes)
			p->bytes = asked;
		if (request > p->request_pct)
			p->request_pct = request;
	}
	if (!p->core_pct)
		p->core_pct = percent(limit / (ARB_PPM / 100));
}

/* Replaces what clients asked for by what an administrator has set. A quota counts while a client has it; a request
 * is promised as soon as it is set. */
static void override(const struct arb_control *control, struct arb_promised *p)
{
	struct gpuarb_config_limit limit;

	if (arb_settings_limit(control, p->name, &limit) <= 0)
		return;
	if (limit.set & ARB_LIMIT_MEM) {
		p->waiting = p->waiting ? (uint64_t)limit.mem_bytes : 0;
		p->bytes = p->core_pct ? (uint64_t)limit.mem_bytes : 0;
	}
	if (limit.set & ARB_LIMIT_REQUEST) {
		p->request_waiting = 0;
		p->request_pct = (unsigned)limit.request_pct;
	}
	if (limit.set & ARB_LIMIT_CORE && p->core_pct)
		p->core_pct = (unsigned)limit.core_pct;
}

void arb_promise_add_set(struct arb_promises *all, const struct gpuarb_config_limit *limit)
{
	if (limit->set & ARB_LIMIT_REQUEST && limit->request_pct && gpuarb_config_name_ok(limit->name) &&
		all->n < all->most)
		of(all, limit->name);
}

/* An entry that is removed gives its place to another, so all of them are read from one version of the settings. */
static void add_all_set(const struct arb_control *control, struct arb_promises *all)
{
	for (int tries = 0; tries < TRIES; tries++) {
		uint64_t epoch = arb_settings_epoch(control);
		struct gpuarb_config_limit limit;

		for (uint32_t i = 0; arb_settings_limit_at(control, i, &limit) == 1; i++)
			arb_promise_add_set(all, &limit);
		if (arb_settings_epoch(control) == epoch)
			break;
	}
}

int arb_promise_list(const struct arb_segment *seg, const struct arb_control *control, uint32_t without,
	struct arb_promises *all)
{
	uint32_t high = arb_load32_acquire(&seg->header->accounts_high);
	int fd = arb_segment_locks(seg, O_RDONLY);

	all->n = 0;
	/* A user who may only look cannot find out which of gpuarb-run's promises still hold. */
	if (fd < 0 && (fd != -EACCES || seg->writable))
		return fd;
	for (uint32_t i = 0; fd >= 0 && i < seg->nslots; i++)
		/* Most entries have never been used: the name shows that without a system call. */
		if (arb_load64(&seg->promises[i].name[0]) &&
			arb_os_is_locked(fd, ARB_BYTE_PROMISE(seg->nslots, i)) == 1)
			add_entry(all, &seg->promises[i]);
	if (fd >= 0)
		arb_os_close(fd);
	if (high > seg->naccounts)
		high = seg->naccounts;
	for (uint32_t a = 0; a < high; a++)
		add_account(seg, all, a, without);
	if (control)
		add_all_set(control, all);
	if (control)
		for (uint32_t i = 0; i < all->n; i++)
			override(control, &all->list[i]);
	return 0;
}
