/* How a client gets its segments: the GPU's or, if these cannot be had, one in its own memory. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpuarb/client.h"
#include "gpuarb/control.h"
#include "gpuarb/places.h"

#include "shm/base/atomic.h"
#include "shm/segment/check.h"
#include "shm/client/client_state.h"
#include "shm/base/error.h"
#include "shm/segment/events.h"
#include "shm/base/fault.h"
#include "shm/base/granted.h"
#include "shm/base/os.h"
#include "shm/policy/policy.h"
#include "shm/client/reclaim.h"
#include "shm/segment/settings.h"
#include "shm/segment/slot.h"

/* How often a client that goes on alone looks whether the segment can be used again; and how long after it could not
 * join. */
#define RETURN_NS        1000000000ull
#define RETURN_FAILED_NS 10000000000ull
/* A running program is held up for no longer than this to return to the segment. */
#define RETURN_PATIENCE_NS 20000000ull

void arb_client_find_control(struct gpuarb_client *c)
{
	struct arb_control_map found, old = c->control;
	int fd;

	if (c->seg.alone)
		return;
	if (c->have_control) {
		fd = arb_file_open(&c->control.file, O_RDONLY);
		if (fd >= 0)
			arb_os_close(fd);
		if (fd != -ESTALE)
			return;
	}
	/* The file was removed and not made anew: what was set last still counts. */
	if (arb_control_map_open(&found, c->opened.dir, c->opened.gpu, false, NULL, NULL, NULL) < 0)
		return;
	/* A forked child must find the old mapping or the new one. If a fork() is under way, the mappings are
	 * exchanged at the next look. */
	if (!arb_slot_try_hold_forks()) {
		arb_control_map_close(&found);
		return;
	}
	c->control = found;
	c->have_control = true;
	c->control_epoch = ~0ull;
	arb_slot_let_fork();
	arb_control_map_close(&old);
}

static int open_control(struct gpuarb_client *c, const struct arb_create *create,
	const struct gpuarb_config *config, struct gpuarb_error *err)
{
	struct arb_control_copy *first = aligned_alloc(_Alignof(struct arb_control_copy), sizeof(*first));
	int r;

	if (!first)
		return arb_fail(err, -ENOMEM, "out of memory");
	arb_settings_first(first, config);
	if (create)
		r = arb_control_map_open(
			&c->control, c->opened.dir, c->opened.gpu, false, create, first, err);
	else
		r = arb_control_map_alone(&c->control, c->opened.gpu, first, err);
	free(first);
	return r;
}

/* Finds the control segment. Where there is none, and none can be made, our own settings count; garbage in it is an
 * error. */
static int find_control(struct gpuarb_client *c, const struct gpuarb_config *config, struct gpuarb_error *err)
{
	struct arb_create create = {
		0, (mode_t)config->value[ARB_KEY_CONTROL_MODE], (gid_t)config->value[ARB_KEY_GROUP]};
	int r = arb_control_map_open(&c->control, c->opened.dir, c->opened.gpu, false, NULL, NULL, err);

	if (r == -ENOENT)
		r = open_control(c, &create, config, err);
	c->have_control = r == 0;
	return r == -EACCES || r == -EROFS || r == -ENOENT || r == -EPERM || r == -ENOSPC || r == -EDQUOT ? 0
													  : r;
}

/* Opens both segments. */
static int open_segments(struct gpuarb_client *c, const char *dir, const char *gpu,
	const struct gpuarb_config *config, struct gpuarb_error *err)
{
	struct arb_create create = {(uint32_t)config->value[ARB_KEY_SLOTS],
		(mode_t)config->value[ARB_KEY_SEGMENT_MODE], (gid_t)config->value[ARB_KEY_GROUP]};
	int r = arb_segment_open(&c->seg, dir, gpu, true, &create, err);

	if (r < 0)
		return r;
	/* Both fit: they are parts of the path that was just opened. */
	snprintf(c->opened.dir, sizeof(c->opened.dir), "%s", dir);
	snprintf(c->opened.gpu, sizeof(c->opened.gpu), "%s", gpu);
	return find_control(c, config, err);
}

static int open_alone(struct gpuarb_client *c, const char *dir, const char *gpu,
	const struct gpuarb_config *config, struct gpuarb_error *err)
{
	int r;

	if (!gpuarb_gpu_name_ok(gpu))
		return arb_fail(err, -EINVAL, "this cannot be a GPU's name: '%.80s'", gpu ? gpu : "");
	/* A path that is too long leads nowhere. */
	if ((size_t)snprintf(c->opened.dir, sizeof(c->opened.dir), "%s", dir) >= sizeof(c->opened.dir))
		c->opened.dir[0] = '\0';
	snprintf(c->opened.gpu, sizeof(c->opened.gpu), "%s", gpu);
	r = arb_segment_alone(&c->seg, gpu, err);
	if (r == 0)
		r = open_control(c, NULL, config, err);
	c->have_control = r == 0;
	c->opened.return_ns = arb_os_now_ns() + RETURN_NS;
	return r;
}

static const char *why_not_joined(int r)
{
	switch (r) {
	case -EUSERS:
		return "all of its slots are taken";
	case -ENOSPC:
		return "all of its accounts are taken";
	case -EBUSY:
		return "its directory, or what is promised of it, is held by somebody who does not go on "
		       "(stopped?)";
	case -ESTALE:
		return "the file was removed or replaced just now";
	}
	return strerror(-r);
}

static void say_not_joined(const struct gpuarb_client *c, int r, struct gpuarb_error *err)
{
	if (r == -EDQUOT || (r == -EUSERS && c->standing.denied.code == r))
		arb_fail(err, r, "%s", c->standing.denied.text);
	else if (r == -EPERM && c->standing.turned_away.code)
		arb_fail(err, r, "%s", c->standing.turned_away.text);
	else
		arb_fail(err, r, "cannot join %s: %s",
			c->seg.alone ? "a segment of its own" : c->seg.file.path, why_not_joined(r));
}

/* A directory that the caller names takes precedence over the environment. */
const char *arb_client_dir(const struct gpuarb_options *o)
{
	const char *dir = o->dir;

	if (!dir && !o->ignore_env)
		dir = arb_granted_getenv("GPUARB_DIR");
	return dir && *dir ? dir : ARB_DIR_DEFAULT;
}

int arb_client_describe(struct gpuarb_client *c, const struct gpuarb_options *o,
	const struct gpuarb_config *config, struct gpuarb_error *err)
{
	bool granted = !o->ignore_env && arb_granted();
	/* A grant takes precedence also over what the program itself says. */
	const char *account = granted ? NULL : o->account, *limits = o->limits_file;

	if (!account && !o->ignore_env)
		account = arb_granted_getenv("GPUARB_ACCOUNT");
	c->opened.by_container = account && strcmp(account, ARB_BY_CONTAINER) == 0;
	c->opened.own_account = !account || !*account || c->opened.by_container;
	if (!c->opened.own_account &&
		gpuarb_config_account(account, account == o->account ? "account" : "GPUARB_ACCOUNT", err) < 0)
		return -EINVAL;
	if (o->core_pct > 100 || o->priority > 100)
		return arb_fail(
			err, -EINVAL, "core %u, priority %u: allowed are 1 to 100", o->core_pct, o->priority);
	if (o->request_pct > 100 || o->weight > ARB_SHARE_WEIGHT_MOST)
		return arb_fail(err, -EINVAL, "request %u, weight %u: allowed are 0 to 100 and 1 to %u",
			o->request_pct, o->weight, ARB_SHARE_WEIGHT_MOST);
	if (arb_os_clock_init() < 0)
		return arb_fail(err, -ENOTSUP,
			"this time namespace's clock cannot be compared with that of other clients");
	if (!c->opened.own_account)
		snprintf(c->opened.name, sizeof(c->opened.name), "%s", account);
	c->asked.core_pct = o->core_pct && !granted       ? o->core_pct
			    : config->given[ARB_KEY_CORE] ? (unsigned)config->value[ARB_KEY_CORE]
							  : 0;
	c->asked.mem_bytes = o->mem_bytes && !granted ? o->mem_bytes : (uint64_t)config->value[ARB_KEY_MEM];
	c->asked.priority = o->priority && !granted ? o->priority : (unsigned)config->value[ARB_KEY_PRIORITY];
	c->asked.request_pct =
		o->request_pct && !granted ? o->request_pct : (unsigned)config->value[ARB_KEY_REQUEST];
	c->asked.weight = o->weight && !granted           ? o->weight
			  : config->given[ARB_KEY_WEIGHT] ? (unsigned)config->value[ARB_KEY_WEIGHT]
							  : 0;
	c->mem.physical = o->physical <= ARB_PHYSICAL_MOST ? o->physical : 0;
	c->opened.ignore_env = o->ignore_env;
	c->opened.closed = config->value[ARB_KEY_ON_ERROR] == 1;
	c->opened.unbiased = o->threads;
	c->lock_fd = o->lock_fd;
	arb_settings_rules(config->value, &c->rules);
	for (uint32_t i = 0; i < config->nclasses; i++)
		c->admission.classes[i + 1] = config->classes[i];
	if (o->conf && !(c->opened.conf = strdup(o->conf)))
		return arb_fail(err, -ENOMEM, "out of memory");
	if (!limits && !o->ignore_env)
		limits = arb_granted_getenv("GPUARB_LIMITS_FILE");
	return limits && *limits ? arb_client_follow_open(c, limits, err) : 0;
}

/* Has the client a limit, because it asks for one or by arbiter.conf, or may it get one? */
static bool limited(const struct gpuarb_client *c, const struct gpuarb_config *config)
{
	if ((c->asked.core_pct && c->asked.core_pct < 100) || c->asked.mem_bytes || c->opened.follow)
		return true;
	for (size_t i = 0; i < config->nlimits; i++) {
		const struct gpuarb_config_limit *l = &config->limits[i];

		if (!strcmp(l->name, c->opened.name) && (((l->set & ARB_LIMIT_CORE) && l->core_pct < 100) ||
								((l->set & ARB_LIMIT_MEM) && l->mem_bytes)))
			return true;
	}
	return false;
}

/* Whether on_error refuses a client that has no segment. */
static int closed(struct gpuarb_config *config, struct gpuarb_error *err)
{
	if (config->value[ARB_KEY_ON_ERROR] != 1)
		return 0;
	gpuarb_config_free(config);
	return arb_fail(err, -ECONNREFUSED, "on_error = closed: without its segment the GPU is refused");
}

static int join(struct gpuarb_client *c, struct gpuarb_error *err)
{
	struct arb_patience patience = ARB_CLIENT_PATIENCE;
	int r = 0;

	c->guard = arb_os_fork_page(&r);
	if (!c->guard)
		return arb_fail(err, r, "cannot map a page: %s", strerror(-r));
	arb_lock_take(&c->guard->lock);
	do
		r = arb_client_join(c);
	while (r == -EBUSY && arb_client_breathe(c, &patience));
	arb_lock_give(&c->guard->lock);
	if (r < 0)
		say_not_joined(c, r, err);
	return r;
}

static bool account_ok(const struct gpuarb_options *o)
{
	const char *name = o->account;

	if (!o->ignore_env && (!name || arb_granted()))
		name = arb_granted_getenv("GPUARB_ACCOUNT");
	return !name || !*name || gpuarb_config_name_ok(name);
}

static int open_client(const struct gpuarb_options *options, bool alone, struct gpuarb_client **client,
	struct gpuarb_error *err)
{
	struct gpuarb_options o = options ? *options : (struct gpuarb_options){0};
	struct gpuarb_config config;
	struct gpuarb_client *c;
	int r;

	*client = NULL;
	r = gpuarb_config_load(&config, o.conf, o.ignore_env, err);
	if (alone && closed(&config, err))
		return -ECONNREFUSED;
	/* A setting that is wrong or cannot be read counts as not set: the limits that could be read are kept. */
	if (r < 0 && !alone)
		return r;
	if (alone && !account_ok(&o))
		o.account = "";
	c = calloc(1, sizeof(*c));
	r = c ? arb_client_describe(c, &o, &config, err) : arb_fail(err, -ENOMEM, "out of memory");
	if (r == 0 && alone)
		r = limited(c, &config) ? open_alone(c, arb_client_dir(&o), o.gpu, &config, err)
					: arb_fail(err, -ENOENT, "there is no limit to keep");
	else if (r == 0)
		r = open_segments(c, arb_client_dir(&o), o.gpu, &config, err);
	gpuarb_config_free(&config);
	if (r == 0)
		r = join(c, err);
	if (r < 0) {
		gpuarb_client_close(c);
		return r;
	}
	*client = c;
	if (err)
		*err = (struct gpuarb_error){0};
	return 0;
}

int gpuarb_client_open(
	const struct gpuarb_options *options, struct gpuarb_client **client, struct gpuarb_error *err)
{
	return open_client(options, false, client, err);
}

int gpuarb_client_open_alone(
	const struct gpuarb_options *options, struct gpuarb_client **client, struct gpuarb_error *err)
{
	return open_client(options, true, client, err);
}

/* Takes over the segments of `fresh`, which gets ours. Both locks are held, and no fork() is under way: a
 * child finds the one or the other, whole. */
static void move_to(struct gpuarb_client *c, struct gpuarb_client *fresh)
{
	struct gpuarb_client old;

	old.seg = c->seg;
	old.control = c->control;
	/* The memory that we hold is counted in the new segment as soon as we have joined; our leases end with the
	 * old one. */
	if (arb_load32(&c->guard->joined))
		c->guard->carried = c->mem.held;
	arb_store64(&c->guard->birth, 0);
	arb_store32(&c->guard->joined, 0);
	c->seg = fresh->seg;
	c->control = fresh->control;
	c->have_control = fresh->have_control;
	c->control_epoch = ~0ull;
	c->quota.window = 0;
	/* Clients that are still in the old segment see us die. */
	arb_os_unmap(c->lock_page, 0);
	c->lock_page = NULL;
	fresh->seg = old.seg;
	fresh->control = old.control;
}

static void take_both(struct gpuarb_client *c)
{
	/* Threads that ask for leases read the segment under this lock. */
	arb_lock_take(&c->guard->adm);
	arb_lock_take(&c->guard->lock);
}

static void give_both(struct gpuarb_client *c)
{
	arb_lock_give(&c->guard->lock);
	arb_lock_give(&c->guard->adm);
}

static bool differ(const struct arb_file *a, const struct arb_file *b)
{
	return a->ino != b->ino || a->dev != b->dev;
}

/* When the client is no longer alone, it asks again for its own limits. Both locks are held. */
static void ask_as_before(struct gpuarb_client *c)
{
	if (c->asked.core_pct == c->opened.core_kept)
		c->asked.core_pct = c->opened.core_before;
	if (c->asked.mem_bytes == c->opened.mem_kept)
		c->asked.mem_bytes = c->opened.mem_before;
}

/* Moves and joins. Another thread may have done both already, or have joined. */
static int move_and_join(struct gpuarb_client *c, struct gpuarb_client *fresh, struct gpuarb_error *err)
{
	struct arb_patience patience = ARB_CLIENT_PATIENCE;
	bool more = true, moved;
	int r = 0;

	arb_slot_hold_forks();
	take_both(c);
	moved = fresh->seg.alone
			? !c->seg.alone
			: differ(&fresh->seg.file, &c->seg.file) || differ(&fresh->seg.locks, &c->seg.locks);
	if (moved && c->seg.alone) {
		ask_as_before(c);
		patience.length_ns = RETURN_PATIENCE_NS;
	}
	if (moved)
		move_to(c, fresh);
	arb_slot_let_fork();
	while (moved && (r = arb_client_ensure(c)) == -EBUSY && more) {
		give_both(c);
		more = arb_patience_pause(&patience);
		take_both(c);
	}
	if (r < 0)
		say_not_joined(c, r, err);
	give_both(c);
	return r;
}

/* Keeps the limits that were in force, whoever had set them. */
static void keep_limits(struct gpuarb_client *c)
{
	arb_lock_take(&c->guard->lock);
	if (!c->seg.alone) {
		c->opened.core_before = c->asked.core_pct;
		c->opened.mem_before = c->asked.mem_bytes;
		if (c->quota.terms.limit_ppm && c->quota.terms.limit_ppm < ARB_PPM)
			c->asked.core_pct = c->quota.terms.limit_ppm / (ARB_PPM / 100);
		else if (!c->quota.terms.limit_ppm && c->opened.core_kept)
			c->asked.core_pct = c->opened.core_kept; /* returning failed just now */
		if (c->mem.limit)
			c->asked.mem_bytes = c->mem.limit;
		c->opened.core_kept = c->asked.core_pct;
		c->opened.mem_kept = c->asked.mem_bytes;
	}
	arb_lock_give(&c->guard->lock);
}

int gpuarb_client_rejoin(struct gpuarb_client *c, bool alone, struct gpuarb_error *err)
{
	struct gpuarb_client *fresh;
	struct gpuarb_config config;
	int r = gpuarb_config_load(&config, c->opened.conf, c->opened.ignore_env, err);

	if (alone && closed(&config, err))
		return -ECONNREFUSED;
	if (r < 0 && !alone)
		return r;
	fresh = calloc(1, sizeof(*fresh));
	/* Files are opened and made without the locks. */
	if (!fresh)
		r = arb_fail(err, -ENOMEM, "out of memory");
	else if (!alone)
		r = open_segments(fresh, c->opened.dir, c->opened.gpu, &config, err);
	else {
		keep_limits(c);
		r = open_alone(fresh, c->opened.dir, c->opened.gpu, &config, err);
	}
	if (r == 0)
		r = move_and_join(c, fresh, err);
	if (alone && c->opened.return_ns < arb_os_now_ns())
		c->opened.return_ns = arb_os_now_ns() + RETURN_NS;
	gpuarb_config_free(&config);
	gpuarb_client_close(fresh);
	return r;
}

static bool is_held(const struct arb_segment *seg, uint64_t byte)
{
	struct arb_lock lock;

	if (arb_slot_lock(seg, byte, &lock) < 0)
		return true;
	arb_slot_unlock(&lock);
	return false;
}

bool gpuarb_client_may_return(struct gpuarb_client *c)
{
	uint64_t now = arb_os_now_ns();
	struct arb_segment there;
	bool open;

	if (!c->seg.alone || !*c->opened.dir || now < c->opened.return_ns)
		return false;
	c->opened.return_ns = now + RETURN_NS;
	if (arb_segment_open(&there, c->opened.dir, c->opened.gpu, true, NULL, NULL) < 0)
		return false;
	open = !is_held(&there, ARB_BYTE_DIRECTORY(there.nslots)) &&
	       !is_held(&there, ARB_BYTE_PROMISES(there.nslots));
	arb_segment_close(&there);
	if (!open)
		return false;
	/* This time counts if joining fails. */
	c->opened.return_ns = now + RETURN_FAILED_NS;
	return true;
}

int gpuarb_client_remain(struct gpuarb_client *c, struct gpuarb_error *err)
{
	struct gpuarb_config config;
	int r;

	gpuarb_config_load(&config, c->opened.conf, c->opened.ignore_env, NULL);
	if (closed(&config, err))
		return -ECONNREFUSED;
	gpuarb_config_free(&config);
	arb_lock_take(&c->guard->lock);
	/* If a move has failed half-way, there is no segment left to stay in. */
	r = arb_load32(&c->guard->joined) && !arb_fault_lost(c->seg.file.guard)
		    ? 0
		    : arb_fail(err, -ENOTCONN, "it is a client of no segment");
	if (r == 0)
		c->seg.stranded = true;
	arb_lock_give(&c->guard->lock);
	return r;
}

bool gpuarb_client_is_alone(const struct gpuarb_client *c)
{
	return c->seg.alone;
}
