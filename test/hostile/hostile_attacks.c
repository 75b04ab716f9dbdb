#include "test/hostile/hostile.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "shm/segment/account_record.h"
#include "shm/base/atomic.h"
#include "shm/base/os.h"
#include "shm/segment/snapshot.h"
#include "shm/base/text.h"

#define HOUR_TICKS (3600ull * 1000000000u * ARB_TICKS_PER_NS)

static struct arb_slot *slot(struct target *t)
{
	return &t->seg.slots[t->slot];
}

static void add(arb_u64 *word, uint64_t by)
{
	arb_store64(word, arb_load64(word) + by);
}

/* The record that counts now. */
static struct arb_record *record(struct target *t)
{
	return snap_record_of(&t->seg, arb_load64(&t->seg.header->head));
}

static struct arb_account_record *account(struct target *t)
{
	struct arb_account_record *r =
		account_record_of(&t->seg, t->account, arb_load64(&t->seg.accounts[t->account].head));

	return r ? r : &t->seg.accounts[t->account].home[0];
}

/* A program as any user starts it, with an account's name of its own. */
static void program(struct target *t, const char *account, const char *core, const char *load, bool wait)
{
	pid_t pid = fork();

	if (pid == 0) {
		char command[1024];

		alarm(20);
		prctl(PR_SET_PDEATHSIG, SIGKILL); /* it is killed when the attacker ends */
		setenv("GPUARB_ACCOUNT", account, 1);
		setenv("GPUARB_CORE_LIMIT", core, 1);
		snprintf(command, sizeof(command),
			"LD_PRELOAD=%s/libgpuarb-preload.so exec %s/simload %s >/dev/null 2>&1", t->build,
			t->build, load);
		execl("/bin/sh", "sh", "-c", command, (char *)NULL);
		_exit(127);
	}
	if (wait)
		waitpid(pid, NULL, 0);
}

static void join_account(struct target *t)
{
	program(t, "victim", "1", "-k 100 -n 20", true);
}

static void stay_in_account(struct target *t)
{
	program(t, "victim", "1", "-k 100 -p burst -b 1:100000 -d 10", false);
}

static void join_unlimited(struct target *t)
{
	program(t, "victim", "100", "-k 1000 -d 1.5", false);
}

static void bill_raised(struct target *t)
{
	add(&slot(t)->acc, HOUR_TICKS);
	add(&slot(t)->total, HOUR_TICKS);
}

static void bill_lowered(struct target *t)
{
	add(&slot(t)->acc, 0 - HOUR_TICKS);
	add(&slot(t)->total, 0 - HOUR_TICKS);
}

static void base_lowered(struct target *t)
{
	add(&slot(t)->base, 0 - HOUR_TICKS);
}

static void folded_raised(struct target *t)
{
	add(&account(t)->folded, HOUR_TICKS);
}

static void cap_lowered(struct target *t)
{
	add(&account(t)->cap, 0 - HOUR_TICKS);
	add(&account(t)->hard, 0 - HOUR_TICKS);
}

static void cap_raised(struct target *t)
{
	add(&account(t)->cap, HOUR_TICKS);
	add(&account(t)->hard, HOUR_TICKS);
}

static void quota_lowered(struct target *t)
{
	arb_store64(&account(t)->quota, 10000 | 10000ull << 32);
	arb_store32(&t->seg.accounts[t->account].limit_ppm, 10000);
}

static void slots_zeroed(struct target *t)
{
	memset((void *)t->seg.slots, 0, t->seg.nslots * sizeof(struct arb_slot));
}

static void accounts_zeroed(struct target *t)
{
	memset((void *)t->seg.accounts, 0, t->seg.naccounts * sizeof(struct arb_account));
}

static void asked(struct target *t)
{
	arb_store32(&slot(t)->asked_ppm, 10000);
	arb_add32_full(&t->seg.header->epoch, 1);
}

static void asked_nothing(struct target *t)
{
	arb_store32(&slot(t)->asked_ppm, 0);
	arb_add32_full(&t->seg.header->epoch, 1);
}

static void weight(struct target *t)
{
	arb_store64(&slot(t)->weight, 1);
}

static void out_of_the_set(struct target *t)
{
	struct arb_record *r = record(t);

	for (unsigned w = 0; r && w < ARB_WORDS; w++)
		arb_store64(&r->running[w], 0);
	if (r)
		arb_store64(&r->shape, arb_load64(&r->shape) & ~((1ull << ARB_SHAPE_WEIGHT_BITS) - 1));
}

static void head_anywhere(struct target *t)
{
	static uint64_t seed = 88172645463325252ull;

	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	arb_store64(&t->seg.header->head, seed);
}

static void clock_jumps(struct target *t)
{
	struct arb_record *r = record(t);

	if (r)
		add(&r->v, HOUR_TICKS / ARB_WEIGHT_ONE);
}

static void time_ahead(struct target *t)
{
	struct arb_record *r = record(t);
	uint64_t by = 50ull * 1000000000u * ARB_TICKS_PER_NS;

	if (r) {
		add(&r->t, by);
		add(&r->win_start, by);
	}
}

static void window_long(struct target *t)
{
	struct arb_record *r = record(t);

	if (r)
		arb_store64(
			&r->shape, (arb_load64(&r->shape) & 0xffffffff) | 3600000ull << ARB_SHAPE_WIN_SHIFT);
}

static void crowd(struct target *t)
{
	struct arb_record *r = record(t);
	uint64_t shape;

	if (!r)
		return;
	shape = arb_load64(&r->shape);
	for (uint32_t i = 0; i < 64 && i < t->seg.nslots; i++) {
		if (i == t->slot)
			continue;
		arb_store64(&t->seg.slots[i].weight, ARB_WEIGHT_ONE);
		arb_store64(&t->seg.slots[i].heartbeat_ns, arb_os_now_ns());
	}
	arb_store64(&r->running[0], ~0ull);
	shape &= ~((1ull << ARB_SHAPE_WEIGHT_BITS) - 1);
	arb_store64(&r->shape, shape | 64 * ARB_WEIGHT_ONE);
}

/* Every entry has a name, a limit, and a member that does not exist. */
static void entries(struct target *t)
{
	for (uint32_t a = 0; a < t->seg.naccounts; a++) {
		struct arb_account *entry = &t->seg.accounts[a];
		char name[32];

		if (a == t->account)
			continue;
		snprintf(name, sizeof(name), "nobody-%u", a);
		arb_text_store(entry->name, ARB_NAME_WORDS, name);
		arb_store64(&entry->home[0].attached[0], 1ull << (t->seg.nslots - 1));
		arb_store64(&entry->home[0].quota, 10000 | 10000ull << 32);
		arb_store64(&entry->head, (uint64_t)ARB_HOME << ARB_HEAD_BUFFER_BITS);
	}
	arb_store32(&t->seg.header->accounts_high, t->seg.naccounts);
}

/* The GPU's memory is promised, used and foreign; and clients take turns for the next two minutes. */
static void promised(struct target *t)
{
	for (uint32_t i = 0; i < t->seg.nslots; i++)
		arb_store64(&t->seg.promises[i].bytes, 1ull << 40);
	arb_store64(&t->seg.header->mem_foreign, ~0ull);
	arb_store64(&t->seg.header->mem_physical, 4096);
	arb_store64(&t->seg.header->alternates_until_ns, arb_os_now_ns() + 119000000000ull);
}

static void name_changed(struct target *t)
{
	arb_text_store(t->seg.accounts[t->account].name, ARB_NAME_WORDS, "stolen");
}

static void slot_freed(struct target *t)
{
	arb_store32(&slot(t)->state, ARB_SLOT_FREE);
	arb_add32_full(&slot(t)->generation, 1);
	arb_store32(&slot(t)->account, 7);
}

static void flood(struct target *t)
{
	for (int i = 0; i < 1000; i++) {
		arb_add32_full(&t->seg.header->epoch, 1);
		arb_os_wake(&slot(t)->wake);
	}
}

static void mem_counted(struct target *t)
{
	arb_store64(&account(t)->mem_used, 1ull << 40);
	arb_store64(&slot(t)->asked_mem, 4096);
	arb_store64(&t->seg.accounts[t->account].mem_limit, 4096);
}

static void not_attached(struct target *t)
{
	struct arb_account_record *r = account(t);

	for (unsigned w = 0; w < ARB_WORDS; w++)
		arb_store64(&r->attached[w], 0);
}

/* Takes locks, with the rights that it has. */
static void lock_in(const char *path, uint64_t first, uint64_t length)
{
	int fd = open(path, O_RDWR), reads = fd < 0;
	struct flock l = {
		.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = (off_t)first, .l_len = (off_t)length};

	if (reads) {
		fd = open(path, O_RDONLY);
		l.l_type = F_RDLCK;
	}
	/* Takes one byte after the other, so that locked bytes do not keep it from the free ones. */
	l.l_len = 1;
	for (uint64_t i = 0; fd >= 0 && i < length; i++) {
		l.l_start = (off_t)(first + i);
		fcntl(fd, F_OFD_SETLK, &l);
	}
}

/* Takes locks on the segment itself and on the file of its locks. */
static void lock(struct target *t, uint64_t first, uint64_t length)
{
	char path[PATH_MAX];

	lock_in(t->state, first, length);
	lock_in(locks_of(t, path), first, length);
}

static void lock_all(struct target *t)
{
	lock(t, 0, 4096);
}

static void lock_directory(struct target *t)
{
	lock(t, ARB_BYTE_DIRECTORY(256), 1);
}

static void lock_control(struct target *t)
{
	char path[PATH_MAX];
	const char *name = strrchr(t->state, '/');
	struct flock l = {.l_type = F_RDLCK, .l_whence = SEEK_SET, .l_len = 1};
	int fd;

	snprintf(path, sizeof(path), "%s/control%s", t->dir, name);
	fd = open(path, O_RDONLY);
	if (fd < 0 || fcntl(fd, F_OFD_SETLK, &l) != 0)
		perror("lock");
}

static void many_programs(struct target *t)
{
	for (int i = 0; i < 12; i++)
		program(t, "crowd", "100", "-k 100 -p burst -b 1:100000 -d 6", false);
	sleep(1);
}

static void last_events(struct target *t)
{
	arb_store64(&t->seg.header->event_next, UINT64_MAX - 3);
	memset((void *)t->seg.events, 0xff, t->seg.nevents * sizeof(struct arb_event));
}

/* Who comes finds a segment of another version. */
static void header(struct target *t)
{
	t->seg.header->version = 99;
	t->seg.header->nslots = 8;
	t->seg.header->fingerprint = 1;
}

static void hints(struct target *t)
{
	for (unsigned w = 0; w < ARB_WORDS; w++)
		arb_store64(&t->seg.header->taken[w], ~0ull);
	arb_store32(&t->seg.header->accounts_high, 0);
	arb_store64(&t->seg.header->mem_physical, 1);
}

static void everything(struct target *t)
{
	size_t from = offsetof(struct arb_state_header, head);

	memset((char *)t->seg.file.base + from, 0x5a, t->seg.file.size - from);
}

const struct attack attacks[] = {
	{.name = "join",
		.what = "joins the victim's account with a limit of 1 percent, and leaves",
		.who = MEMBER,
		.once = join_account,
		.quick = true},
	{.name = "stay",
		.what = "joins the victim's account with a limit of 1 percent, and stays",
		.who = MEMBER,
		.once = stay_in_account},
	{.name = "spend",
		.what = "joins the victim's account without a limit, and runs",
		.who = MEMBER,
		.once = join_unlimited},
	{.name = "truncate",
		.what = "truncates the segment to nothing",
		.who = MEMBER,
		.once = attack_truncate_all,
		.alone = true,
		.quick = true},
	{.name = "truncate-half",
		.what = "truncates the segment to half",
		.who = MEMBER,
		.once = attack_truncate_half,
		.alone = true},
	{.name = "truncate-replace",
		.what = "truncates the segment to nothing, and the administrator replaces it",
		.who = MEMBER,
		.once = attack_truncate_all,
		.replace = true,
		.quick = true},
	{.name = "truncate-many",
		.what = "truncates the segment under three programs, one with a handler of its own, and gpuarb-top",
		.who = MEMBER,
		.once = attack_truncate_all,
		.others = true,
		.quick = true},
	{.name = "truncate-mended",
		.what = "truncates the segment to half under those programs, and the administrator replaces it",
		.who = MEMBER,
		.once = attack_truncate_half,
		.replace = true,
		.others = true},
	{.name = "grow", .what = "makes the segment larger", .who = MEMBER, .once = attack_grow},
	{.name = "punch",
		.what = "makes a hole of the whole segment",
		.who = MEMBER,
		.once = attack_punch,
		.alone = true},
	{.name = "unlink", .what = "removes the segment", .who = CONTAINER, .once = attack_unlink_it},
	{.name = "unlink-locks",
		.what = "removes the file of the locks",
		.who = CONTAINER,
		.once = attack_unlink_locks,
		.conf = "slots = 8\n",
		.quick = true},
	{.name = "fifo-locks",
		.what = "replaces the file of the locks by a FIFO",
		.who = CONTAINER,
		.once = attack_fifo_locks,
		.replace = true},
	{.name = "chmod-locks",
		.what = "takes all rights to the locks away",
		.who = CONTAINER,
		.once = attack_closed_locks,
		.replace = true},
	{.name = "fifo",
		.what = "replaces the segment by a FIFO",
		.who = CONTAINER,
		.once = attack_fifo,
		.replace = true},
	{.name = "symlink",
		.what = "replaces the segment by a symbolic link",
		.who = CONTAINER,
		.once = attack_link_elsewhere,
		.replace = true},
	{.name = "directory",
		.what = "replaces the segment by a directory",
		.who = CONTAINER,
		.once = attack_directory,
		.replace = true},
	{.name = "chmod",
		.what = "takes all rights to the segment away",
		.who = CONTAINER,
		.once = attack_closed,
		.replace = true},
	{.name = "bill",
		.what = "adds an hour to the victim's bill",
		.who = MEMBER,
		.once = bill_raised,
		.quick = true},
	{.name = "bills",
		.what = "adds an hour to the victim's bill every millisecond",
		.who = MEMBER,
		.again = bill_raised},
	{.name = "credit",
		.what = "takes an hour off the victim's bill",
		.who = MEMBER,
		.once = bill_lowered},
	{.name = "base",
		.what = "takes an hour off the base of the victim's bill",
		.who = MEMBER,
		.once = base_lowered},
	{.name = "folded",
		.what = "adds an hour to what departed members used",
		.who = MEMBER,
		.once = folded_raised},
	{.name = "cap",
		.what = "lowers the account's cap by an hour",
		.who = MEMBER,
		.once = cap_lowered,
		.quick = true},
	{.name = "caps",
		.what = "lowers the account's cap by an hour every millisecond",
		.who = MEMBER,
		.again = cap_lowered},
	{.name = "unlimit", .what = "raises the account's cap by an hour", .who = MEMBER, .once = cap_raised},
	{.name = "quota",
		.what = "writes a quota of 1 percent into the account",
		.who = MEMBER,
		.again = quota_lowered},
	{.name = "slots", .what = "zeroes all slots", .who = MEMBER, .once = slots_zeroed, .quick = true},
	{.name = "accounts", .what = "zeroes all accounts", .who = MEMBER, .once = accounts_zeroed},
	{.name = "asked",
		.what = "writes a wish for 1 percent into the victim's slot",
		.who = MEMBER,
		.once = asked},
	{.name = "asked-not",
		.what = "takes the wish for a limit out of the victim's slot",
		.who = MEMBER,
		.once = asked_nothing},
	{.name = "weight",
		.what = "writes a weight of 1/256 into the victim's slot",
		.who = MEMBER,
		.again = weight},
	{.name = "out",
		.what = "takes all clients out of the running set, every millisecond",
		.who = MEMBER,
		.again = out_of_the_set},
	{.name = "head",
		.what = "writes random heads, every millisecond",
		.who = MEMBER,
		.again = head_anywhere},
	{.name = "jump",
		.what = "lets the weighted clock jump by an hour",
		.who = MEMBER,
		.once = clock_jumps},
	{.name = "ahead", .what = "sets the record's time 50 s ahead", .who = MEMBER, .once = time_ahead},
	{.name = "window", .what = "makes the window an hour long", .who = MEMBER, .once = window_long},
	{.name = "crowd",
		.what = "puts 63 clients that do not exist into the running set, every millisecond",
		.who = MEMBER,
		.again = crowd,
		/* Up to half of what it uses is billed to nobody (shm/README.md). */
		.most = 50},
	{.name = "name", .what = "renames the victim's account", .who = MEMBER, .once = name_changed},
	{.name = "free",
		.what = "marks the victim's slot as free, every millisecond",
		.who = MEMBER,
		.again = slot_freed},
	{.name = "flood",
		.what = "wakes the victim and raises the epoch, a million times a second",
		.who = MEMBER,
		.again = flood},
	{.name = "memory",
		.what = "counts a terabyte for the victim, and a quota of a page",
		.who = MEMBER,
		.again = mem_counted},
	{.name = "detach",
		.what = "detaches the victim from its account, every millisecond",
		.who = MEMBER,
		.again = not_attached},
	{.name = "look-lock",
		.what = "holds read locks on all bytes, as a user who may only read",
		.who = LOOKER,
		.once = lock_all,
		.conf = "segment_mode = 0664\n",
		.quick = true},
	{.name = "lock",
		.what = "locks all bytes that are free",
		.who = MEMBER,
		.once = lock_all,
		.named = true},
	{.name = "lock-directory",
		.what = "holds the directory's byte",
		.who = MEMBER,
		.once = lock_directory,
		.named = true},
	{.name = "lock-control",
		.what = "holds the administrator's byte of the control segment",
		.who = LOOKER,
		.once = lock_control},
	{.name = "slots-taken",
		.what = "starts more programs than there are slots",
		.who = MEMBER,
		.once = many_programs,
		.conf = "slots = 8\n"},
	{.name = "events", .what = "fills the event ring with garbage", .who = MEMBER, .again = last_events},
	{.name = "entries",
		.what = "fills all entries of accounts with members that do not exist",
		.who = MEMBER,
		.once = entries,
		.conf = "slots = 64\n"},
	{.name = "promised",
		.what = "writes promises and memory that do not exist, and that the GPU alternates",
		.who = MEMBER,
		.once = promised},
	{.name = "header",
		.what = "writes another version and another size into the header",
		.who = MEMBER,
		.once = header,
		.quick = true},
	{.name = "hints",
		.what = "writes garbage into every hint of the header",
		.who = MEMBER,
		.again = hints},
	{.name = "everything-many",
		.what = "overwrites the whole segment under three programs and gpuarb-top, every millisecond",
		.who = MEMBER,
		.again = everything,
		.others = true},
	{.name = "everything",
		.what = "overwrites the whole segment",
		.who = MEMBER,
		.once = everything,
		.quick = true},
};
const unsigned nattacks = sizeof(attacks) / sizeof(attacks[0]);
