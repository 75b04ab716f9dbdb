/* Chooses the GPUs of a container: those that have the most room, by what was granted there and by the other accounts
 * there. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpuarb/control.h"

#include "tools/common/cli.h"
#include "tools/runtime/runtime.h"

struct room {
	char uuid[ARB_UUID_BYTES];
	unsigned shares;        /* shares that were granted */
	unsigned limits;        /* limits of accounts that have no share, 100 each without a limit */
	uint64_t mem, mem_most; /* promised, and what that may be; most 0: not known */
	uint64_t mem_physical;
	char trouble[256]; /* why it cannot be looked at; empty: it can */
	bool taken;        /* it was chosen already */
};

/* Whether the share of this pod was counted: several containers of a pod are one account. */
static bool counted_before(const struct runtime_grant *all, int n, const char *uuid)
{
	for (int i = 0; i < n; i++)
		for (unsigned k = 0; k < all[i].ngpus && !strcmp(all[i].account, all[n].account); k++)
			if (!strcmp(all[i].gpu[k], uuid))
				return true;
	return false;
}

static bool is_granted(const struct runtime_grant *all, int n, const char *account)
{
	for (int i = 0; i < n; i++)
		if (!strcmp(all[i].account, account))
			return true;
	return false;
}

/* Adds the accounts that no container of this runtime brought: programs of users, jobs, pods of the component. */
static void add_others(struct room *room, const struct gpuarb_picture *p, const struct runtime_grant *all,
	int n, const char *account)
{
	room->mem_physical = p->mem_physical;
	room->mem_most = p->mem_promise_most;
	for (unsigned i = 0; i < p->naccounts; i++) {
		const struct gpuarb_view_account *a = &p->accounts[i];

		if (is_granted(all, n, a->name) || !strcmp(a->name, account) ||
			(!a->clients && !a->mem_promised))
			continue;
		room->mem += a->mem_promised;
		room->limits += a->clients ? a->limit_ppm / 10000 : 0;
	}
}

static void look(const struct runtime_conf *conf, struct room *room, const struct runtime_grant *all, int n,
	const struct runtime_wish *wish)
{
	static struct gpuarb_picture picture;
	struct gpuarb_view *view;
	struct gpuarb_error err;
	int r;

	/* Programs of a killed container count until their slots are cleaned, which nobody does if this GPU is used
	 * by no other client. If cleaning fails, opening the segment says why. */
	gpuarb_control_reap(conf->dir, room->uuid, NULL, NULL, &err);
	r = gpuarb_view_open(conf->dir, room->uuid, &view, &err);
	if (r == 0) {
		r = gpuarb_view_read(view, &picture);
		gpuarb_view_close(view);
		if (r < 0)
			snprintf(err.text, sizeof(err.text), "%s", strerror(-r));
	}
	if (r < 0) {
		snprintf(room->trouble, sizeof(room->trouble), "%.250s", err.text);
		return;
	}
	add_others(room, &picture, all, n, wish->account);
	for (int i = 0; i < n; i++)
		for (unsigned k = 0; k < all[i].ngpus; k++) {
			if (strcmp(all[i].gpu[k], room->uuid) != 0 ||
				!strcmp(all[i].account, wish->account) || counted_before(all, i, room->uuid))
				continue;
			room->shares += all[i].share;
			room->limits += all[i].share ? 0 : all[i].core ? all[i].core : 100;
			room->mem += all[i].mem_bytes;
		}
}

/* Returns the memory on each GPU. If none was granted, it is the same part as of the time; an annotation can lower
 * that, but not raise it. */
static uint64_t mem_on(
	const struct runtime_conf *conf, const struct room *room, const struct runtime_wish *wish)
{
	uint64_t part = room->mem_physical / 100 * wish->share;

	if (wish->mem_granted || !part || !conf->memory_by_share)
		return wish->mem_bytes;
	return wish->mem_bytes && wish->mem_bytes < part ? wish->mem_bytes : part;
}

static bool fits(const struct runtime_conf *conf, const struct room *room, const struct runtime_wish *wish)
{
	if (*room->trouble || (wish->share && room->shares + wish->share > 100))
		return false;
	return !room->mem_most || room->mem + mem_on(conf, room, wish) <= room->mem_most;
}

/* Whether `a` has more room: by time, then by memory, then by name, so that the choice is always the same. */
static bool better(const struct room *a, const struct room *b)
{
	unsigned time_a = a->shares + a->limits, time_b = b->shares + b->limits;
	uint64_t free_a = a->mem_most > a->mem ? a->mem_most - a->mem : 0,
		 free_b = b->mem_most > b->mem ? b->mem_most - b->mem : 0;

	if (time_a != time_b)
		return time_a < time_b;
	if (free_a != free_b)
		return free_a > free_b;
	return strcmp(a->uuid, b->uuid) < 0;
}

static bool listed(const char *list, const char *uuid)
{
	size_t n = strlen(uuid);

	for (const char *at = list; at && (at = strstr(at, uuid)); at += n)
		if ((at == list || at[-1] == ',') && (!at[n] || at[n] == ','))
			return true;
	return !list;
}

/* Writes "GPU-1 has 70 of 100 shares and 12Gi of 16Gi granted". */
static void describe(const struct room *room, char *text, size_t size)
{
	char used[32], most[32];

	if (*room->trouble)
		snprintf(text, size, "%s", room->trouble);
	else if (!room->mem_most)
		snprintf(text, size, "%s has %u of 100 shares granted", room->uuid, room->shares);
	else
		snprintf(text, size, "%s has %u of 100 shares and %s of %s of memory granted", room->uuid,
			room->shares, cli_bytes(room->mem, used, sizeof(used)),
			cli_bytes(room->mem_most, most, sizeof(most)));
}

static void no_room(const struct room *rooms, int n, const struct runtime_wish *wish)
{
	char text[2048] = "", one[512];
	size_t length = 0;

	for (int i = 0; i < n && length < sizeof(text) - sizeof(one) - 3; i++) {
		describe(&rooms[i], one, sizeof(one));
		length += (size_t)snprintf(text + length, sizeof(text) - length, "%s%s", i ? "; " : "", one);
	}
	if (wish->gpus > 1)
		runtime_fail("there are not %u GPUs that have room for %u shares each: %s", wish->gpus,
			wish->share, text);
	runtime_fail("no GPU has room for %u shares%s: %s", wish->share,
		wish->mem_bytes ? " and their memory" : "", text);
}

/* Finds the GPUs of the other containers of this pod. */
static bool as_before(const struct runtime_grant *all, int n, struct runtime_grant *grant)
{
	for (int i = 0; i < n; i++)
		if (!strcmp(all[i].account, grant->account)) {
			grant->ngpus = all[i].ngpus;
			memcpy(grant->gpu, all[i].gpu, sizeof(grant->gpu));
			grant->mem_bytes = all[i].mem_bytes;
			return true;
		}
	return false;
}

static int by_name(const void *a, const void *b)
{
	return strcmp(a, b);
}

void runtime_room_choose(const struct runtime_conf *conf, const struct runtime_wish *wish, const char *among,
	const struct runtime_grant *others, int nothers, struct runtime_grant *grant)
{
	static struct room rooms[RUNTIME_GPUS_MOST];
	static char names[RUNTIME_GPUS_MOST][ARB_UUID_BYTES];
	struct gpuarb_error err;
	int found = gpuarb_control_list(conf->dir, names, RUNTIME_GPUS_MOST, &err), n = 0;

	if (as_before(others, nothers, grant))
		return;
	if (found < 0)
		runtime_fail("%s", err.text);
	if (found > RUNTIME_GPUS_MOST)
		found = RUNTIME_GPUS_MOST;
	qsort(names, (size_t)found, sizeof(names[0]), by_name);
	for (int i = 0; i < found; i++)
		if (listed(among, names[i])) {
			rooms[n] = (struct room){0};
			memcpy(rooms[n].uuid, names[i], ARB_UUID_BYTES);
			look(conf, &rooms[n++], others, nothers, wish);
		}
	if (!n && found)
		runtime_fail("none of the GPUs %s has a segment in %s", among, conf->dir);
	if (!n)
		runtime_fail("there is no segment in %s; gpuarb-node makes them", conf->dir);
	for (unsigned k = 0; k < wish->gpus; k++) {
		struct room *best = NULL;

		for (int i = 0; i < n; i++)
			if (!rooms[i].taken && fits(conf, &rooms[i], wish) &&
				(!best || better(&rooms[i], best)))
				best = &rooms[i];
		if (!best)
			no_room(rooms, n, wish);
		memcpy(grant->gpu[grant->ngpus++], best->uuid, ARB_UUID_BYTES);
		grant->mem_bytes = mem_on(conf, best, wish);
		best->taken = true;
	}
}
