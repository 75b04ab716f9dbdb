#include "shm/segment/segment.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <stddef.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "gpuarb/control.h"

#include "shm/base/atomic.h"
#include "shm/base/error.h"
#include "shm/segment/file.h"
#include "shm/base/os.h"
#include "shm/segment/snapshot.h"

/* FNV-1a over the numbers of which a layout is made. */
static uint64_t mix(uint64_t hash, const uint64_t *numbers, size_t count)
{
	for (size_t i = 0; i < count; i++)
		for (int shift = 0; shift < 64; shift += 8)
			hash = (hash ^ ((numbers[i] >> shift) & 0xff)) * 0x100000001b3ull;
	return hash;
}

/* The number of slots follows from the size of the file. */
_Static_assert(sizeof(struct arb_slot) + 2 * sizeof(struct arb_account) >= 4096, "a slot is at least a page");

#define AT(type, member) offsetof(struct type, member)

uint64_t arb_segment_fingerprint(void)
{
	static const uint64_t layout[] = {ARB_ABI_VERSION, ARB_TICKS_PER_NS, ARB_WEIGHT_ONE, ARB_WORDS,
		ARB_HEAD_INDEX_BITS, ARB_SHAPE_WEIGHT_BITS, ARB_REASON_COUNT, ARB_EVENT_COUNT,
		sizeof(struct arb_record), AT(arb_record, reserved), AT(arb_record, win_number),
		AT(arb_record, win_busy), AT(arb_record, running), AT(arb_record, waiting),
		AT(arb_record, evicted), sizeof(struct arb_account_record), AT(arb_account_record, quota),
		AT(arb_account_record, mem_used), AT(arb_account_record, attached),
		AT(arb_account_record, parity), AT(arb_account_record, owed), sizeof(struct arb_slot),
		AT(arb_slot, total), AT(arb_slot, weight), AT(arb_slot, base), AT(arb_slot, wall_total),
		AT(arb_slot, heartbeat_ns), AT(arb_slot, evicted_busy), AT(arb_slot, wake),
		AT(arb_slot, gate), AT(arb_slot, evicted_v), AT(arb_slot, state), AT(arb_slot, wait_since_ns),
		AT(arb_slot, mem), AT(arb_slot, throttled_ns), AT(arb_slot, estimated_ns), AT(arb_slot, pid),
		AT(arb_slot, owner), AT(arb_slot, command), AT(arb_slot, container), AT(arb_slot, counter),
		AT(arb_slot, unknown), AT(arb_slot, record), AT(arb_slot, account_record),
		sizeof(struct arb_account), AT(arb_account, active_window), AT(arb_account, limit_ppm),
		AT(arb_account, owner), AT(arb_account, name), AT(arb_account, home),
		AT(arb_slot, turn_since_ns), AT(arb_slot, level), AT(arb_slot, asked_share),
		AT(arb_account, request_ppm), AT(arb_promise, request_pct), AT(arb_promise, owner),
		ARB_SHAPE_TOP_SHIFT, sizeof(struct arb_event), AT(arb_event, what), AT(arb_event, check),
		sizeof(struct arb_promise), AT(arb_promise, name), AT(arb_state_header, mem_physical),
		AT(arb_state_header, mem_foreign), sizeof(struct arb_state_header),
		AT(arb_state_header, head), AT(arb_state_header, epoch), AT(arb_state_header, event_next),
		AT(arb_state_header, told_window_ms), AT(arb_state_header, taken), ARB_WANT_PRIORITY_SHIFT,
		ARB_SAMPLE_TIME_SHIFT, ARB_SAMPLE_TIME_UNIT, AT(arb_slot, adm_want),
		AT(arb_slot, adm_since_ns), AT(arb_state_header, adm_sample),
		AT(arb_state_header, adm_boost_until_ns), AT(arb_state_header, adm_wake),
		AT(arb_state_header, adm_waiting), AT(arb_state_header, adm_leased)};

	return mix(0xcbf29ce484222325ull, layout, sizeof(layout) / sizeof(layout[0]));
}

uint64_t arb_control_fingerprint(void)
{
	/* The settings themselves are part of the layout, because their place in keys.def gives them their
	 * meaning. */
	static const uint64_t layout[] = {ARB_ABI_VERSION, ARB_KEYS_MAX, ARB_CONTROL_LIMITS,
		sizeof(struct arb_limit), AT(arb_limit, core_pct), AT(arb_limit, set),
		AT(arb_limit, request_pct), AT(arb_limit, members), sizeof(struct arb_control_copy),
		AT(arb_control_copy, limit), sizeof(struct arb_control), AT(arb_control, head),
		AT(arb_control, copy), ARB_CLASSES, sizeof(struct arb_class), AT(arb_class, priority),
		AT(arb_control_copy, classes)};
	static const char names[] =
#define KEY(id, name, ...) name " "
#include "gpuarb/keys.def"
#undef KEY
		;
	uint64_t hash = mix(0xcbf29ce484222325ull, layout, sizeof(layout) / sizeof(layout[0]));

	for (size_t i = 0; i < sizeof(names); i++)
		hash = (hash ^ (uint8_t)names[i]) * 0x100000001b3ull;
	return hash;
}

bool gpuarb_gpu_name_ok(const char *gpu)
{
	size_t n = gpu ? strlen(gpu) : 0;

	return n > 0 && n < ARB_UUID_BYTES && gpu[0] != '.' &&
	       strspn(gpu, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.") == n;
}

bool gpuarb_gpu_is_uuid(const char *gpu)
{
	static const char form[] = "xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx";

	if ((strncmp(gpu, "GPU-", 4) != 0 && strncmp(gpu, "MIG-", 4) != 0) || strlen(gpu) != 4 + strlen(form))
		return false;
	for (size_t i = 0; form[i]; i++)
		if (form[i] == '-' ? gpu[4 + i] != '-' : !isxdigit((unsigned char)gpu[4 + i]))
			return false;
	return true;
}

static size_t slots_at(void)
{
	return sizeof(struct arb_state_header);
}

static size_t accounts_at(uint32_t nslots)
{
	return slots_at() + (size_t)nslots * sizeof(struct arb_slot);
}

static size_t events_at(uint32_t nslots, uint32_t naccounts)
{
	return accounts_at(nslots) + (size_t)naccounts * sizeof(struct arb_account);
}

static size_t promises_at(uint32_t nslots, uint32_t naccounts, uint32_t nevents)
{
	return events_at(nslots, naccounts) + (size_t)nevents * sizeof(struct arb_event);
}

/* As many promises as slots. */
size_t arb_segment_size(uint32_t nslots, uint32_t naccounts, uint32_t nevents)
{
	return (promises_at(nslots, naccounts, nevents) + (size_t)nslots * sizeof(struct arb_promise) +
		       4095) &
	       ~(size_t)4095;
}

/* An account for each slot, and as many again for accounts whose members have left with a debt. */
uint32_t arb_segment_accounts_for(uint32_t nslots)
{
	return 2 * nslots;
}

static int path_of(
	char *path, size_t size, const char *dir, const char *sub, const char *gpu, struct gpuarb_error *err)
{
	if (!gpuarb_gpu_name_ok(gpu))
		return arb_fail(err, -EINVAL,
			"'%.80s' cannot be a GPU's name: 1 to %d letters, digits, '-', '_' or '.', not "
			"beginning with '.'",
			gpu ? gpu : "", ARB_UUID_BYTES - 1);
	if ((size_t)snprintf(path, size, "%s/%s/%s", dir, sub, gpu) >= size)
		return arb_fail(
			err, -ENAMETOOLONG, "the path of the segment directory is too long: %.80s...", dir);
	return 0;
}

bool arb_segment_exists(const char *dir, const char *gpu)
{
	char path[PATH_MAX];
	int saved = errno;
	bool there = path_of(path, sizeof(path), dir, "state", gpu, NULL) == 0 &&
		     (access(path, F_OK) == 0 || errno != ENOENT);

	errno = saved;
	return there;
}

struct state_plan {
	uint32_t nslots, naccounts, nevents;
	const char *gpu;
};

/* The file is all zeros; what is not zero in an unused segment is written here. */
static void state_initialise(void *base, const void *argument)
{
	const struct state_plan *plan = argument;
	struct arb_state_header *h = base;
	struct arb_slot *slot0 = (struct arb_slot *)((char *)base + slots_at());
	struct arb_account *accounts = (struct arb_account *)((char *)base + accounts_at(plan->nslots));
	uint64_t now = arb_os_now_ns() * ARB_TICKS_PER_NS;
	struct timespec ts;

	clock_gettime(CLOCK_REALTIME, &ts);
	h->magic = ARB_STATE_MAGIC;
	h->version = ARB_ABI_VERSION;
	h->nslots = plan->nslots;
	h->fingerprint = arb_segment_fingerprint();
	h->size = arb_segment_size(plan->nslots, plan->naccounts, plan->nevents);
	h->naccounts = plan->naccounts;
	h->nevents = plan->nevents;
	/* Not 0: a client whose mapping has lost its file reads zeros, and finds that something has changed. */
	arb_store32(&h->epoch, 1);
	h->created_ns = (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
	strncpy(h->uuid, plan->gpu, sizeof(h->uuid) - 1);
	/* Head 0: slot 0, buffer 0, sequence 0. */
	arb_store64(&slot0->record[0].t, now);
	/* Windows count from 1, so that an account in window 0 is one that has never been counted. */
	arb_store64(&slot0->record[0].win_number, 1);
	arb_store64(&slot0->record[0].win_start, arb_snapshot_aligned(now, 100));
	arb_store64(&slot0->record[0].shape, 1u << ARB_SHAPE_WORDS_SHIFT | 100ull << ARB_SHAPE_WIN_SHIFT);
	for (uint32_t i = 0; i < plan->naccounts; i++)
		arb_store64(&accounts[i].head, (uint64_t)ARB_HOME << ARB_HEAD_BUFFER_BITS);
}

static int wrong_kind(const void *header, const char *path, const char *kind, struct gpuarb_error *err)
{
	static const uint64_t zeros[8];

	if (memcmp(header, zeros, sizeof(zeros)) == 0)
		return arb_fail(err, -EBADMSG,
			"%s is empty (zeros), not a gpuarb %s segment; it is left as it is", path, kind);
	return arb_fail(err, -EBADMSG, "%s is not a gpuarb %s segment; it is left as it is", path, kind);
}

static int wrong_version(uint32_t version, bool fingerprint_ok, const char *path, struct gpuarb_error *err)
{
	if (version != ARB_ABI_VERSION)
		return arb_fail(err, -EPROTO,
			"%s has layout version %u, this gpuarb has version %u; let its clients end and "
			"remove it, or use the same gpuarb",
			path, version, ARB_ABI_VERSION);
	if (!fingerprint_ok)
		return arb_fail(err, -EPROTO,
			"%s has layout version %u like this gpuarb, but was laid out by a different build; "
			"use the same build",
			path, version);
	return 0;
}

static int state_check(const void *header, size_t size, const char *path, struct gpuarb_error *err)
{
	const struct arb_state_header *h = header;
	int r;

	if (h->magic != ARB_STATE_MAGIC)
		return wrong_kind(header, path, "state", err);
	r = wrong_version(h->version, h->fingerprint == arb_segment_fingerprint(), path, err);
	if (r < 0)
		return r;
	if (h->nslots < ARB_SLOTS_MIN || h->nslots > ARB_SLOTS_MAX ||
		h->naccounts != arb_segment_accounts_for(h->nslots) || h->nevents != ARB_EVENTS ||
		h->size != arb_segment_size(h->nslots, h->naccounts, h->nevents))
		return arb_fail(err, -EBADMSG, "%s has a damaged header (%u slots); it is left as it is",
			path, h->nslots);
	/* Bytes behind the end do not count, because a process that may write a file can make it longer. */
	if (size < h->size)
		return arb_fail(err, -EBADMSG, "%s has %zu bytes instead of %llu; it is left as it is", path,
			size, (unsigned long long)h->size);
	return 0;
}

static int control_check(const void *header, size_t size, const char *path, struct gpuarb_error *err)
{
	const struct arb_control *c = header;
	int r;

	if (c->magic != ARB_CONTROL_MAGIC)
		return wrong_kind(header, path, "control", err);
	r = wrong_version(c->version, c->fingerprint == arb_control_fingerprint(), path, err);
	if (r < 0)
		return r;
	if (size != c->size || size != sizeof(struct arb_control))
		return arb_fail(err, -EBADMSG, "%s has %zu bytes instead of %zu; it is left as it is", path,
			size, sizeof(struct arb_control));
	return 0;
}

/* Opens the file without O_CREAT first (fs.protected_regular), makes it if there is none, and then opens the file
 * that is there: ours, or that of a process that was faster. */
static int open_or_create(struct arb_file *file, const char *dir, const char *sub, bool writable,
	size_t header_size, int (*check)(const void *, size_t, const char *, struct gpuarb_error *),
	struct arb_file_plan *plan, struct gpuarb_error *err)
{
	char directory[PATH_MAX];
	int r = arb_file_map(file, writable, header_size, check, err);

	if (r != -ENOENT || !plan)
		return r;
	snprintf(directory, sizeof(directory), "%s/%s", dir, sub);
	plan->directory = directory;
	plan->path = file->path;
	r = arb_file_directories(dir, sub, plan->mode, plan->gid, err);
	if (r == 0)
		r = arb_file_create(plan, err);
	if (r == 0 || r == -EEXIST)
		r = arb_file_map(file, writable, header_size, check, err);
	return r;
}

/* Computes where everything is: by the size that was checked, and not by the header, which may have changed since. */
static void divide(struct arb_segment *seg, bool writable)
{
	seg->header = seg->file.base;
	seg->writable = writable;
	seg->nslots = ARB_SLOTS_MIN;
	while (arb_segment_size(seg->nslots, arb_segment_accounts_for(seg->nslots), ARB_EVENTS) <
		seg->file.size)
		seg->nslots++;
	seg->naccounts = arb_segment_accounts_for(seg->nslots);
	seg->nevents = ARB_EVENTS;
	seg->fingerprint = arb_segment_fingerprint();
	seg->nwords = (seg->nslots + 63) / 64;
	seg->beyond = seg->nslots % 64 ? ~0ull << (seg->nslots % 64) : 0;
	seg->slots = (struct arb_slot *)((char *)seg->file.base + slots_at());
	seg->accounts = (struct arb_account *)((char *)seg->file.base + accounts_at(seg->nslots));
	seg->events = (struct arb_event *)((char *)seg->file.base + events_at(seg->nslots, seg->naccounts));
	seg->promises = (struct arb_promise *)((char *)seg->file.base +
					       promises_at(seg->nslots, seg->naccounts, seg->nevents));
}

/* Writes the path of the locks. It is next to the segment, so that a process that sees the segment sees the locks,
 * under a name that no GPU has. */
static int locks_path(char *path, size_t size, const char *dir, const char *gpu, struct gpuarb_error *err)
{
	if ((size_t)snprintf(path, size, "%s/state/.%s.locks", dir, gpu) >= size)
		return arb_fail(
			err, -ENAMETOOLONG, "the path of the segment directory is too long: %.80s...", dir);
	return 0;
}

/* Finds the file of the locks, or makes it, for a process that may lock. It is missing if a creator died before
 * making it, or if it was removed. Its rights follow from the segment's, whichever process makes it. */
static int find_locks(struct arb_segment *seg, const char *dir, struct gpuarb_error *err)
{
	char directory[PATH_MAX];
	struct arb_file_plan plan = {.directory = directory,
		.path = seg->locks.path,
		.mode = arb_segment_lock_mode(seg->file.mode),
		.gid = seg->file.gid};

	snprintf(directory, sizeof(directory), "%s/state", dir);
	return arb_file_find(&seg->locks, &plan, err);
}

int arb_segment_locks(const struct arb_segment *seg, int flags)
{
	struct arb_os_file st;
	int fd = arb_file_open(&seg->locks, flags);

	if (fd >= 0 && (arb_os_look(seg->file.path, &st) < 0 || st.ino != seg->file.ino ||
			       st.dev != seg->file.dev)) {
		arb_os_close(fd);
		fd = -ESTALE;
	}
	return fd;
}

int arb_segment_open(struct arb_segment *seg, const char *dir, const char *gpu, bool writable,
	const struct arb_create *create, struct gpuarb_error *err)
{
	struct state_plan what = {0};
	struct arb_file_plan plan = {.initialise = state_initialise, .argument = &what};
	int r;

	memset(seg, 0, sizeof(*seg));
	r = path_of(seg->file.path, sizeof(seg->file.path), dir, "state", gpu, err);
	if (r == 0)
		r = locks_path(seg->locks.path, sizeof(seg->locks.path), dir, gpu, err);
	if (r < 0)
		return r;
	if (create) {
		if (create->nslots < ARB_SLOTS_MIN || create->nslots > ARB_SLOTS_MAX)
			return arb_fail(err, -EINVAL, "%u slots: allowed are %u to %u", create->nslots,
				ARB_SLOTS_MIN, ARB_SLOTS_MAX);
		what = (struct state_plan){
			create->nslots, arb_segment_accounts_for(create->nslots), ARB_EVENTS, gpu};
		plan.size = arb_segment_size(what.nslots, what.naccounts, what.nevents);
		plan.mode = create->mode;
		plan.gid = create->gid;
	}
	r = open_or_create(&seg->file, dir, "state", writable, offsetof(struct arb_state_header, head),
		state_check, create ? &plan : NULL, err);
	if (r < 0)
		return r;
	r = writable ? find_locks(seg, dir, err) : 0;
	if (r < 0) {
		arb_file_unmap(&seg->file);
		return r;
	}
	divide(seg, writable);
	return 0;
}

bool arb_segment_restore_header(struct arb_segment *seg)
{
	volatile struct arb_state_header *h = seg->header;
	bool found = false;

#define ARB_PUT(field, value)                                                                                \
	if (__builtin_expect(h->field != (value), 0)) {                                                      \
		h->field = (value);                                                                          \
		found = true;                                                                                \
	}
	ARB_PUT(magic, ARB_STATE_MAGIC)
	ARB_PUT(version, ARB_ABI_VERSION)
	ARB_PUT(nslots, seg->nslots)
	ARB_PUT(fingerprint, seg->fingerprint)
	ARB_PUT(size, seg->file.size)
	ARB_PUT(naccounts, seg->naccounts)
	ARB_PUT(nevents, seg->nevents)
#undef ARB_PUT
	return found;
}

int arb_segment_alone(struct arb_segment *seg, const char *gpu, struct gpuarb_error *err)
{
	struct state_plan what = {ARB_SLOTS_MIN, arb_segment_accounts_for(ARB_SLOTS_MIN), ARB_EVENTS, gpu};
	struct arb_file_plan plan = {.size = arb_segment_size(what.nslots, what.naccounts, what.nevents),
		.initialise = state_initialise,
		.argument = &what};
	int r;

	memset(seg, 0, sizeof(*seg));
	r = arb_file_alone(&seg->file, &plan, err);
	if (r < 0)
		return r;
	seg->alone = true;
	divide(seg, true);
	return 0;
}

void arb_segment_close(struct arb_segment *seg)
{
	arb_file_unmap(&seg->file);
	seg->header = NULL;
}

struct control_plan {
	const struct arb_control_copy *first;
	const char *gpu;
};

static void control_initialise(void *base, const void *argument)
{
	const struct control_plan *plan = argument;
	struct arb_control *c = base;

	c->magic = ARB_CONTROL_MAGIC;
	c->version = ARB_ABI_VERSION;
	c->fingerprint = arb_control_fingerprint();
	c->size = sizeof(struct arb_control);
	strncpy(c->uuid, plan->gpu, sizeof(c->uuid) - 1);
	memcpy(&c->copy[0], plan->first, sizeof(c->copy[0]));
}

int arb_control_map_open(struct arb_control_map *map, const char *dir, const char *gpu, bool writable,
	const struct arb_create *create, const struct arb_control_copy *first, struct gpuarb_error *err)
{
	struct control_plan what = {first, gpu};
	struct arb_file_plan plan = {
		.size = sizeof(struct arb_control), .initialise = control_initialise, .argument = &what};
	int r;

	memset(map, 0, sizeof(*map));
	r = path_of(map->file.path, sizeof(map->file.path), dir, "control", gpu, err);
	if (r < 0)
		return r;
	if (create) {
		plan.mode = create->mode;
		plan.gid = create->gid;
	}
	r = open_or_create(&map->file, dir, "control", writable, offsetof(struct arb_control, head),
		control_check, create ? &plan : NULL, err);
	if (r == 0) {
		map->control = map->file.base;
		map->writable = writable;
	}
	return r;
}

int arb_control_map_alone(struct arb_control_map *map, const char *gpu, const struct arb_control_copy *first,
	struct gpuarb_error *err)
{
	struct control_plan what = {first, gpu};
	struct arb_file_plan plan = {
		.size = sizeof(struct arb_control), .initialise = control_initialise, .argument = &what};
	int r;

	memset(map, 0, sizeof(*map));
	r = arb_file_alone(&map->file, &plan, err);
	if (r == 0) {
		map->control = map->file.base;
		map->writable = true;
	}
	return r;
}

void arb_control_map_close(struct arb_control_map *map)
{
	arb_file_unmap(&map->file);
	map->control = NULL;
}
