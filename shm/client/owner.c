/* Which account a client belongs to, and what becomes of a client that asks for an account of another owner. */
#include "shm/client/owner.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "shm/base/atomic.h"
#include "shm/base/error.h"
#include "shm/base/granted.h"
#include "shm/base/members.h"
#include "shm/base/text.h"
#include "shm/client/client_state.h"
#include "shm/policy/policy.h"
#include "shm/segment/audit.h"
#include "shm/segment/events.h"
#include "shm/segment/slot.h"

#define IN_CONTAINER (1ull << 63)

static uint64_t owner_by_place(const char *place)
{
	return arb_text_hash(place) | IN_CONTAINER;
}

uint64_t arb_owner_of(const struct arb_os_identity *id)
{
	const char *place = id->pod[0] ? id->pod : id->container;

	return *place ? owner_by_place(place) : (uint64_t)id->user + 1;
}

/* A client in a container to which the account was granted belongs to it, whatever can be seen of its container: not
 * every engine mounts files that name it. A pod has one owner by its name and by its files. */
static uint64_t owner_of_client(const struct gpuarb_client *c, const struct arb_os_identity *id)
{
	const char *granted =
		!c->opened.ignore_env && arb_granted() ? arb_granted_getenv("GPUARB_ACCOUNT") : NULL;

	if (!granted || strcmp(granted, c->opened.name) != 0)
		return arb_owner_of(id);
	return owner_by_place(granted + (strncmp(granted, "pod-", 4) == 0 ? 4 : 0));
}

uint32_t arb_owner_bound(const struct arb_segment *seg, const struct arb_os_identity *id, int user_slots)
{
	uint32_t quarter = seg->nslots / 4;

	if (seg->alone || user_slots == 0)
		return UINT32_MAX;
	if (!(arb_owner_of(id) & IN_CONTAINER) && (id->user == 0 || id->uid == seg->file.uid))
		return UINT32_MAX;
	return user_slots > 0 ? (uint32_t)user_slots : quarter ? quarter : 1;
}

void arb_owner_describe(const struct arb_os_identity *id, char *text, size_t size)
{
	if (id->pod[0])
		snprintf(text, size, "this pod has");
	else if (id->container[0])
		snprintf(text, size, "this container has");
	else
		snprintf(text, size, "user %u has", id->user);
}

/* Counts the slots of this owner. With a descriptor of the locks it counts only those whose clients live. */
static uint32_t count_slots(const struct gpuarb_client *c, uint64_t owner, int fd)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < c->seg.nslots; i++) {
		const struct arb_slot *s = &c->seg.slots[i];

		n += i != c->me.slot && arb_load64(&s->owner) == owner &&
		     arb_load32(&s->state) != ARB_SLOT_FREE &&
		     (fd < 0 || arb_os_is_locked(fd, ARB_BYTE_SLOT(i)) != 0);
	}
	return n;
}

/* Takes a slot while the directory is held, so that of two clients that come at once the second sees the first. A
 * client that may have its slot is marked with its owner, and counts from then on. */
static int take_slot(struct gpuarb_client *c, const struct arb_os_identity *id)
{
	uint64_t owner = arb_owner_of(id);
	uint32_t bound = arb_owner_bound(&c->seg, id, c->rules.user_slots), n;
	char who[64];
	int fd;

	n = bound == UINT32_MAX ? 0 : count_slots(c, owner, -1);
	if (n >= bound && (fd = arb_segment_locks(&c->seg, O_RDONLY)) >= 0) {
		n = count_slots(c, owner, fd);
		arb_os_close(fd);
	}
	if (n < bound) {
		arb_store64(&arb_client_slot(c)->owner, owner);
		return 0;
	}
	arb_events_put(&c->seg, &(struct arb_event_copy){.kind = ARB_EVENT_CROWDED,
					.slot = c->me.slot,
					.account = ARB_NONE,
					.a = n,
					.b = bound,
					.c = id->user,
					.times = 1});
	arb_owner_describe(id, who, sizeof(who));
	return arb_fail(&c->standing.denied, -EUSERS,
		"%s %u of the %u slots of %s already, and may have %u (slots_per_user in arbiter.conf)", who,
		n, c->seg.nslots, c->seg.file.path, bound);
}

/* Names the account after the container's short id, as engines do; without an id, all processes of a PID namespace
 * share one. */
void arb_client_container_name(const struct arb_os_identity *id, char name[ARB_NAME_BYTES])
{
	if (id->container[0])
		snprintf(name, ARB_NAME_BYTES, "%.12s", id->container);
	else
		snprintf(name, ARB_NAME_BYTES, "pidns-%llu", (unsigned long long)id->pid_ns);
}

void arb_client_own_name(struct gpuarb_client *c, const struct arb_os_identity *id)
{
	if (c->opened.by_container)
		arb_client_container_name(id, c->opened.name);
	else
		snprintf(c->opened.name, sizeof(c->opened.name), "%s.%u.%llu.%llu",
			id->comm[0] ? id->comm : "process", id->pid, (unsigned long long)id->pid_ns,
			(unsigned long long)id->start_time);
	for (char *p = c->opened.name; *p; p++)
		if ((unsigned char)*p <= ' ' || *p == 0x7f)
			*p = '_';
}

/* Gives the client no more than the limits of the account that it asked for: being turned away must not be an
 * advantage. */
static void bound_by(struct gpuarb_client *c, uint32_t account, const struct gpuarb_config_limit *set)
{
	struct arb_asked force = arb_account_asked(&c->seg, account);
	unsigned core;

	arb_asked_settle(&force, set);
	core = force.ppm / (ARB_PPM / 100);
	if (core && core < 100 && (!c->asked.core_pct || core < c->asked.core_pct))
		c->asked.core_pct = core;
	if (force.mem && (!c->asked.mem_bytes || force.mem < c->asked.mem_bytes))
		c->asked.mem_bytes = force.mem;
}

/* Finds the account; the directory is held. -EPERM: the account belongs to another owner. */
static int find_account(struct gpuarb_client *c, const struct arb_os_identity *id)
{
	uint32_t first = (uint32_t)(arb_text_hash(c->opened.name) % c->seg.naccounts);
	struct gpuarb_config_limit set = {.set = 0};
	struct arb_snap snap;

	if (arb_running_read(&c->seg, &snap) < 0)
		snap.win_number = 0;
	c->standing.guest = false;
	c->standing.window = 0;
	c->seg.own_account = ARB_NONE;
	c->account = arb_account_find(&c->seg, c->opened.name, snap.win_number, c->rules.carryover_pct);
	/* All entries are in use. Some may seem so only because another process wrote members into them that do not
	 * exist. Where all of them were written over, the first ones belong to clients that will put them right, so the
	 * search begins anywhere. */
	for (uint32_t n = 0; c->account == ARB_NONE && n < c->seg.naccounts; n++)
		if (arb_audit_account(&c->seg, (first + n) % c->seg.naccounts, NULL) > 0)
			c->account = arb_account_find(
				&c->seg, c->opened.name, snap.win_number, c->rules.carryover_pct);
	if (c->account == ARB_NONE)
		return -ENOSPC;
	/* If the account has no members, only the ring knows what it was. Attaching deals with garbage. */
	arb_audit_account(&c->seg, c->account, NULL);
	c->ledger.owner = owner_of_client(c, id);
	if (arb_account_claim(&c->seg, c->account, c->ledger.owner, snap.win_number, c->rules.carryover_pct))
		return 0;
	c->ledger.owner = 0;
	if (c->have_control)
		arb_settings_limit(c->control.control, c->opened.name, &set);
	c->standing.guest = set.set & ARB_LIMIT_MEMBERS && arb_members_has(set.members, id);
	if (c->standing.guest)
		return 0;
	bound_by(c, c->account, &set);
	return -EPERM;
}

static int attach(struct gpuarb_client *c, const struct arb_os_identity *id)
{
	struct arb_lock directory;
	int r = arb_slot_directory(&c->seg, &directory);

	if (r < 0)
		return r;
	r = take_slot(c, id);
	if (r == 0)
		r = find_account(c, id);
	if (r == 0) {
		/* Stored before it is done, so that the process that cleans up knows where to look. */
		arb_store32(&arb_client_slot(c)->account, c->account);
		arb_fence_release();
		c->seg.own_account = c->account;
		r = arb_account_attach(&c->seg, c->account, c->me.slot);
		if (r == -EBADMSG && arb_account_repair(&c->seg, c->account) >= 0)
			r = arb_account_attach(&c->seg, c->account, c->me.slot);
	}
	arb_slot_unlock(&directory);
	return r;
}

static void describe_owner(uint64_t owner, char *text, size_t size)
{
	if (owner & IN_CONTAINER)
		snprintf(text, size, "another container");
	else
		snprintf(text, size, "user %llu", (unsigned long long)owner - 1);
}

int arb_client_attach(struct gpuarb_client *c, const struct arb_os_identity *id)
{
	char wanted[ARB_NAME_BYTES], owner[64];
	int r = attach(c, id);

	if (c->standing.guest)
		arb_client_know_memory(c);
	if (r != -EPERM)
		return r;
	describe_owner(arb_load64(&c->seg.accounts[c->account].owner), owner, sizeof(owner));
	snprintf(wanted, sizeof(wanted), "%s", c->opened.name);
	arb_fail(&c->standing.turned_away, -EPERM,
		"the account '%s' belongs to %s, and its entry does not name this process (gpuarb-set --account %s members=...)",
		wanted, owner, wanted);
	if (c->opened.closed)
		return r;
	/* The name contains the owner that the account is for. If even that account belongs to another owner, the
	 * process is added to the name. */
	if (id->container[0])
		snprintf(c->opened.name, sizeof(c->opened.name), "%.40s.%.12s", wanted, id->container);
	else
		snprintf(c->opened.name, sizeof(c->opened.name), "%.40s.user%u", wanted, id->user);
	r = attach(c, id);
	if (r == -EPERM) {
		c->opened.by_container = false;
		arb_client_own_name(c, id);
		r = attach(c, id);
	}
	if (r < 0)
		snprintf(c->opened.name, sizeof(c->opened.name), "%s", wanted);
	return r;
}

const char *gpuarb_client_turned_away(struct gpuarb_client *c, char *name, size_t size)
{
	if (!c->standing.turned_away.code)
		return NULL;
	arb_lock_take(&c->guard->lock);
	snprintf(name, size, "%s", c->opened.name);
	arb_lock_give(&c->guard->lock);
	return c->standing.turned_away.text;
}

bool arb_guest_has_quota(struct gpuarb_client *c, const struct arb_snap *snap, uint64_t outstanding)
{
	uint64_t usage, grant, windows = snap->win_number - c->standing.window;

	if (!c->asked.core_pct || c->asked.core_pct >= 100)
		return true;
	usage = arb_running_usage_at(&c->seg, snap, c->me.slot, snap->win_v);
	grant = arb_policy_grant(c->asked.core_pct * (ARB_PPM / 100), snap->win_ticks);
	if (!c->standing.window || snap->win_number < c->standing.window)
		c->standing.cap = usage + grant;
	else if (windows)
		c->standing.cap =
			arb_policy_next_cap(usage, c->standing.cap, grant, c->rules.carryover_pct, windows);
	c->standing.window = snap->win_number;
	return arb_policy_below(arb_running_usage(&c->seg, snap, c->me.slot), outstanding, c->standing.cap);
}
