/* What administrators do: change settings, clean up behind dead clients, check. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "gpuarb/config.h"
#include "gpuarb/control.h"
#include "gpuarb/places.h"
#include "gpuarb/rights.h"

#include "shm/segment/account.h"
#include "shm/admission/admission.h"
#include "shm/base/atomic.h"
#include "shm/segment/check.h"
#include "shm/client/control_segment.h"
#include "shm/base/error.h"
#include "shm/segment/foreign.h"
#include "shm/base/granted.h"
#include "shm/base/os.h"
#include "shm/promise/promise_bytes.h"
#include "shm/client/reclaim.h"
#include "shm/segment/segment.h"
#include "shm/segment/settings.h"
#include "shm/segment/slot.h"

#define WRITER_PATIENCE_NS 2000000000ull
/* A change takes less than a millisecond: an administrator whose mark is older than this has died. */
#define MARK_NS 1000000000ull

const char *gpuarb_control_dir(const char *dir)
{
	const char *from_env;

	if (dir && *dir)
		return dir;
	from_env = arb_granted_getenv("GPUARB_DIR");
	return from_env && *from_env ? from_env : ARB_DIR_DEFAULT;
}

/* Makes every client look again: clients that run see the epoch, clients that sleep are woken by the futex. */
static void wake_all(struct arb_segment *seg)
{
	arb_add32_full(&seg->header->epoch, 1);
	for (uint32_t i = 0; i < seg->nslots; i++)
		if (arb_load32(&seg->slots[i].state) != ARB_SLOT_FREE)
			arb_os_wake(&seg->slots[i].wake);
}

static int check_scope(enum arb_key key, const char *account, struct gpuarb_error *err)
{
	if ((gpuarb_keys[key].scope == ARB_SCOPE_ACCOUNT) == (account != NULL))
		return 0;
	return arb_fail(err, -EINVAL,
		account ? "%s is a setting of the GPU, not of an account"
			: "%s is a limit of an account: say which one",
		gpuarb_keys[key].name);
}

/* Reads the class as it is in the draft; false: it would be a new class. */
static bool class_in(const struct arb_control_copy *draft, const char *name, struct gpuarb_class_rules *rules)
{
	for (uint32_t i = 0; i < ARB_CLASSES; i++) {
		arb_settings_load_class(&draft->classes[i], rules);
		if (strcmp(rules->name, name) == 0)
			return true;
	}
	*rules = gpuarb_class_default;
	return strcmp(rules->name, name) == 0;
}

static int apply_class(
	struct arb_control_copy *draft, const struct gpuarb_class_change *change, struct gpuarb_error *err)
{
	const char *name = change->task_class;
	struct gpuarb_class_rules rules;
	char initial[64] = "";
	int r;

	if (!gpuarb_class_name_ok(name))
		return arb_fail(err, -EINVAL, ARB_CLASS_NAME_SENTENCE, "class", name);
	if (!change->key && strcmp(name, gpuarb_class_default.name) == 0)
		return arb_fail(err, -EINVAL, ARB_CLASS_STAYS_SENTENCE, name);
	if (!change->key)
		return arb_settings_drop_class(draft, name)
			       ? 0
			       : arb_fail(err, -ENOENT, "there is no class '%s'", name);
	if (!class_in(draft, name, &rules))
		snprintf(rules.name, sizeof(rules.name), "%s", name);
	if (!change->value)
		gpuarb_class_format(&gpuarb_class_default, change->key, initial, sizeof(initial));
	r = gpuarb_class_parse(&rules, change->key, change->value ? change->value : initial, name, err);
	if (r == 0 && (r = arb_settings_set_class(draft, &rules)) == -ENOSPC)
		arb_fail(err, r, "no room for another class; there are %u", ARB_CLASSES);
	return r;
}

static int apply(struct arb_control_copy *draft, const struct gpuarb_change *change, struct gpuarb_error *err)
{
	enum arb_key key = gpuarb_config_find(change->key);
	int64_t value[ARB_MEMBERS] = {0};
	int r;

	if (key == ARB_KEY_COUNT)
		return gpuarb_config_unknown(change->key, "", err);
	if (gpuarb_keys[key].scope == ARB_SCOPE_CREATE)
		return arb_fail(err, -EINVAL,
			"%s counts when a segment is made; set it in arbiter.conf or as %s", change->key,
			gpuarb_keys[key].env);
	r = check_scope(key, change->account, err);
	if (r < 0)
		return r;
	r = change->account ? gpuarb_config_account(change->account, change->key, err) : 0;
	if (r < 0)
		return r;
	if (change->value) {
		r = gpuarb_config_parse(
			key, change->value, change->account ? change->account : "", &value[0], err);
		if (r < 0)
			return r;
		if (key == ARB_KEY_MEMBERS)
			gpuarb_config_members(change->value, value);
	} else {
		value[0] = gpuarb_keys[key].initial;
	}
	if (!change->account) {
		arb_store64(&draft->value[key], (uint64_t)value[0]);
		return 0;
	}
	r = arb_settings_set_limit(draft, change->account, key, change->value ? value : NULL);
	if (r == -ENOSPC)
		return arb_fail(
			err, r, "no room for limits of another account; there are %u", ARB_CONTROL_LIMITS);
	return r;
}

static int check_draft(const struct arb_control_copy *draft, struct gpuarb_error *err)
{
	int64_t value[ARB_KEY_COUNT];

	for (int key = 0; key < ARB_KEY_COUNT; key++)
		value[key] = (int64_t)arb_load64(&draft->value[key]);
	return gpuarb_config_check(value, "GPU", err);
}

/* Opens the control segment for writing; makes it, with the settings of arbiter.conf, if there is none. */
static int open_for_writing(
	struct arb_control_map *map, const char *dir, const char *gpu, struct gpuarb_error *err)
{
	struct gpuarb_config config;
	int r = gpuarb_config_load(&config, NULL, false, err);

	if (r == 0) {
		r = arb_control_make(map, dir, gpu, true, &config, err);
		gpuarb_config_free(&config);
	}
	if (r == -EACCES || r == -EPERM || r == -EROFS)
		arb_fail(err, r,
			"limits of %s cannot be changed: only who may write %s/control may do that (%s)%s",
			gpu, dir, strerror(-r), geteuid() == 0 ? "" : "; 'sudo gpuarb-set' does");
	return r;
}

/* Locks the byte, which the writer holds. A user who may only look can hold it too, by a read lock, but must not keep
 * administrators from writing: then a word that only administrators can write is used instead. */
static int lock_writer(const struct arb_control_map *map, struct arb_lock *lock, uint64_t *marked)
{
	arb_u64 *word = &map->control->writer_ns;
	uint64_t began = arb_os_now_ns();
	int r = -EAGAIN;

	*marked = 0;
	lock->byte = ARB_BYTE_CONTROL_WRITER;
	lock->fd = arb_file_open(&map->file, O_RDWR);
	if (lock->fd < 0)
		return lock->fd;
	for (;;) {
		uint64_t now = arb_os_now_ns(), since = arb_load64(word);
		bool writes = since && now - since < MARK_NS;

		r = arb_os_lock(lock->fd, lock->byte);
		if (r == 0 && !writes)
			return 0;
		if (r == 0) {
			arb_os_unlock(lock->fd, lock->byte);
			r = -EAGAIN;
		} else if (r == -EAGAIN && !writes && arb_os_only_readers(lock->fd, lock->byte) &&
			   arb_cas64_full(word, since, now)) {
			*marked = now;
			return 0;
		}
		if (r != -EAGAIN || now - began >= WRITER_PATIENCE_NS)
			break;
		arb_os_sleep_ns(1000000);
	}
	arb_os_close(lock->fd);
	return r;
}

static void unlock_writer(const struct arb_control_map *map, struct arb_lock *lock, uint64_t marked)
{
	if (marked)
		arb_cas64_full(&map->control->writer_ns, marked, 0);
	arb_slot_unlock(lock);
}

static bool quotas(const struct gpuarb_change *changes, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (changes[i].account && (gpuarb_config_find(changes[i].key) == ARB_KEY_MEM ||
						  gpuarb_config_find(changes[i].key) == ARB_KEY_REQUEST))
			return true;
	return false;
}

static int change(const char *dir, const char *gpu, const struct gpuarb_change *changes,
	const struct gpuarb_class_change *classes, size_t count, struct gpuarb_error *err)
{
	struct arb_control_map map;
	struct arb_control_copy *draft;
	struct arb_promise_change promises = {.open = false};
	struct arb_segment seg;
	struct arb_lock writer;
	uint64_t marked;
	int r;

	dir = gpuarb_control_dir(dir);
	r = open_for_writing(&map, dir, gpu, err);
	if (r < 0)
		return r;
	draft = aligned_alloc(_Alignof(struct arb_control_copy), sizeof(*draft));
	r = draft ? lock_writer(&map, &writer, &marked) : -ENOMEM;
	if (r < 0) {
		arb_fail(err, r, "cannot write %s: %s", map.file.path,
			r == -EAGAIN ? "somebody else is changing it" : strerror(-r));
		goto out;
	}
	r = arb_settings_begin(map.control, draft);
	if (r < 0)
		arb_fail(err, r, "%s holds garbage; remove it and set the limits anew", map.file.path);
	for (size_t i = 0; i < count && r == 0; i++)
		r = changes ? apply(draft, &changes[i], err) : apply_class(draft, &classes[i], err);
	if (r == 0)
		r = check_draft(draft, err);
	if (r == 0 && changes && quotas(changes, count))
		r = arb_promise_change_begin(&promises, dir, gpu, map.control, draft, err);
	if (r == 0)
		arb_settings_publish(map.control, draft);
	arb_promise_change_end(&promises);
	unlock_writer(&map, &writer, marked);
	/* If there is no state segment yet, there is no client to wake. If it cannot be written, its clients look
	 * within a tick. */
	if (r == 0 && arb_segment_open(&seg, dir, gpu, true, NULL, NULL) == 0) {
		wake_all(&seg);
		arb_segment_close(&seg);
	}
out:
	free(draft);
	arb_control_map_close(&map);
	return r;
}

int gpuarb_control_change(const char *dir, const char *gpu, const struct gpuarb_change *changes, size_t count,
	struct gpuarb_error *err)
{
	return change(dir, gpu, changes, NULL, count, err);
}

int gpuarb_control_change_classes(const char *dir, const char *gpu, const struct gpuarb_class_change *changes,
	size_t count, struct gpuarb_error *err)
{
	return change(dir, gpu, NULL, changes, count, err);
}

int gpuarb_control_get(const char *dir, const char *gpu, const char *account, const char *name, char *text,
	size_t size, struct gpuarb_error *err)
{
	enum arb_key key = gpuarb_config_find(name);
	struct arb_control_map map;
	int64_t value[ARB_KEY_COUNT];
	struct gpuarb_config_limit limit = {.set = 0};
	char members[ARB_MEMBERS_BYTES];
	uint64_t epoch;
	int r;

	if (key == ARB_KEY_COUNT)
		return gpuarb_config_unknown(name, "", err);
	r = check_scope(key, account, err);
	if (r < 0)
		return r;
	r = arb_control_map_open(&map, gpuarb_control_dir(dir), gpu, false, NULL, NULL, err);
	if (r < 0)
		return r;
	if (!account) {
		r = arb_settings_read(map.control, value, &epoch);
	} else {
		r = arb_settings_limit(map.control, account, &limit);
		if (r >= 0)
			r = r == 1 && limit.set & gpuarb_config_flag(key)
				    ? 0
				    : arb_fail(err, -ENOENT, "account '%s' has no %s set", account, name);
		value[key] = *gpuarb_config_value(&limit, key);
	}
	arb_control_map_close(&map);
	if (r == 0 && key == ARB_KEY_MEMBERS) {
		gpuarb_config_members_format(limit.members, members);
		snprintf(text, size, "%s", members);
	} else if (r == 0) {
		gpuarb_config_format(key, value[key], text, size);
	}
	return r;
}

int gpuarb_control_class(const char *dir, const char *gpu, const char *task_class, const char *key,
	char *text, size_t size, struct gpuarb_error *err)
{
	struct gpuarb_class_rules classes[ARB_CLASSES] = {0};
	struct arb_control_map map;
	uint32_t i = 0;
	int r = arb_control_map_open(&map, gpuarb_control_dir(dir), gpu, false, NULL, NULL, err);

	if (r < 0)
		return r;
	arb_settings_classes(map.control, classes);
	arb_control_map_close(&map);
	arb_admission_have_default(classes);
	while (i < ARB_CLASSES && strcmp(classes[i].name, task_class) != 0)
		i++;
	if (i == ARB_CLASSES || !*task_class)
		return arb_fail(err, -ENOENT, "there is no class '%.60s'", task_class);
	/* Classes do not have this key: the parser has the sentence for that. */
	if (gpuarb_class_format(&classes[i], key, text, size) < 0)
		return gpuarb_class_parse(&classes[i], key, "", task_class, err);
	return 0;
}

int gpuarb_control_list(const char *dir, char names[][ARB_UUID_BYTES], size_t most, struct gpuarb_error *err)
{
	char path[PATH_MAX], hint[384];
	int saved = errno, count = 0;
	struct dirent *entry;
	DIR *d;

	snprintf(path, sizeof(path), "%s/state", gpuarb_control_dir(dir));
	d = opendir(path);
	if (!d) {
		int code = -errno;

		errno = saved;
		return code == -ENOENT ? 0
				       : arb_fail(err, code, "cannot list %s: %s%s", path, strerror(-code),
						 gpuarb_rights_hint(path, code, hint, sizeof(hint)));
	}
	while ((entry = readdir(d)) != NULL) {
		if (!gpuarb_gpu_name_ok(entry->d_name))
			continue;
		if ((size_t)count < most)
			memcpy(names[count], entry->d_name,
				strlen(entry->d_name) + 1); /* it fits, because the name was checked */
		count++;
	}
	closedir(d);
	errno = saved;
	return count;
}

void arb_control_rules(const char *dir, const char *gpu, struct arb_rules *rules)
{
	struct arb_control_map map;
	int64_t value[ARB_KEY_COUNT];
	uint64_t epoch;
	int r = arb_control_map_open(&map, dir, gpu, false, NULL, NULL, NULL);

	for (int key = 0; key < ARB_KEY_COUNT; key++)
		value[key] = gpuarb_keys[key].initial;
	if (r == 0) {
		arb_settings_read(map.control, value, &epoch);
		arb_control_map_close(&map);
	}
	arb_settings_rules(value, rules);
}

int arb_control_segment(
	struct arb_segment *seg, const char *dir, const char *gpu, bool writable, struct gpuarb_error *err)
{
	int r = arb_os_clock_init();

	if (r < 0)
		return arb_fail(
			err, r, "this time namespace's clock cannot be compared with that of the clients");
	return arb_segment_open(seg, dir, gpu, writable, NULL, err);
}

int gpuarb_control_reap(const char *dir, const char *gpu,
	void (*each)(void *argument, const struct gpuarb_reclaimed *what), void *argument,
	struct gpuarb_error *err)
{
	struct arb_segment seg;
	struct arb_rules rules;
	struct arb_reclaimed found;
	int count = 0, r, worst = 0;

	dir = gpuarb_control_dir(dir);
	r = arb_control_segment(&seg, dir, gpu, true, err);
	if (r < 0)
		return r;
	arb_control_rules(dir, gpu, &rules);
	for (uint32_t i = 0; i < seg.nslots; i++) {
		r = arb_reclaim_slot(&seg, i, &rules, &found);
		if (r < 0)
			worst = r;
		if (r != 1)
			continue;
		count++;
		if (each) {
			struct gpuarb_reclaimed what = {.slot = i,
				.pid = found.pid,
				.pid_ns = found.pid_ns,
				.used_ns = found.used_ticks / ARB_TICKS_PER_NS,
				.freed_bytes = found.freed_bytes,
				.was_running = found.was_running};

			memcpy(what.command, found.command, sizeof(what.command));
			memcpy(what.account, found.account, sizeof(what.account));
			each(argument, &what);
		}
	}
	arb_segment_close(&seg);
	if (worst < 0 && count == 0)
		return arb_fail(err, worst, "cannot clean up in %s/state/%s: %s", dir, gpu, strerror(-worst));
	return count;
}

int gpuarb_control_check(const char *dir, const char *gpu, void (*say)(void *argument, const char *sentence),
	void *argument, struct gpuarb_error *err)
{
	struct arb_segment seg;
	int r = arb_control_segment(&seg, gpuarb_control_dir(dir), gpu, false, err);

	if (r < 0)
		return r;
	r = arb_check(&seg, say, argument);
	arb_segment_close(&seg);
	return r == -EBUSY ? arb_fail(err, r, "the segment of %s was too busy to be read as a whole", gpu)
			   : r;
}

int gpuarb_control_foreign(
	const char *dir, const char *gpu, uint64_t used, const uint64_t *foreign, struct gpuarb_error *err)
{
	struct arb_segment seg;
	struct arb_rules rules;
	int r;

	dir = gpuarb_control_dir(dir);
	r = arb_control_segment(&seg, dir, gpu, true, err);
	if (r < 0)
		return r;
	arb_control_rules(dir, gpu, &rules);
	if (foreign)
		arb_foreign_found(&seg, *foreign, arb_os_now_ns());
	else
		arb_foreign_bound(&seg, used, rules.memory.per_client, arb_os_now_ns());
	arb_segment_close(&seg);
	return 0;
}
