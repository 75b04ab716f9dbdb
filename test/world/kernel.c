/* The kernel, as far as a client asks for it: files in memory, byte locks of open files, futexes, time. */
#include "test/world/world.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "shm/base/os.h"
#include "test/world/traces.h"

#define FILES        256 /* removed files included: they may still be mapped */
#define DESCRIPTIONS 8192
#define FIRST_FD     1000
#define HELD         4    /* how many bytes a description may lock */
#define BYTES        4096 /* bytes that can be locked; all bytes beyond share the last one */
#define FILE_BASE    0x300000000000ull
#define FILE_SPACE   (256ull << 20)

struct description;

struct file {
	char path[160];
	bool named, used;
	char *base;
	size_t size;
	uint64_t inode;
	struct description *holder[BYTES];
};

/* An open file description. Its locks end with its last descriptor (of the owner or of a child) and its mapping. */
struct description {
	struct file *file;                  /* NULL: unused */
	struct world_process *owner, *heir; /* heir: a forked child that has the descriptor, too */
	bool open, mapped;                  /* by its owner; a child does not inherit the mapping */
	uint64_t held[HELD];
	unsigned nheld;
};

static struct file files[FILES];
static struct description descriptions[DESCRIPTIONS];
static unsigned ndescriptions; /* descriptions from here on were never used */
static uint64_t inodes, renames;

static struct file *find(const char *path)
{
	for (unsigned i = 0; i < FILES; i++)
		if (files[i].named && !strcmp(files[i].path, path))
			return &files[i];
	return NULL;
}

static int describe(struct file *file)
{
	unsigned i = 0;

	while (i < ndescriptions && descriptions[i].file)
		i++;
	if (i == DESCRIPTIONS)
		return -EMFILE;
	if (i == ndescriptions)
		ndescriptions++;
	descriptions[i] = (struct description){
		.file = file, .owner = world.current ? world.current->process : NULL, .open = true};
	return (int)i + FIRST_FD;
}

static struct description *of(int fd)
{
	unsigned i = (unsigned)(fd - FIRST_FD);

	if (i >= DESCRIPTIONS || !descriptions[i].file) {
		world_fail("a descriptor is used that is not open: %d", fd);
		return &descriptions[0];
	}
	return &descriptions[i];
}

static unsigned place(uint64_t byte)
{
	return byte < BYTES ? (unsigned)byte : BYTES - 1;
}

static void close_description(struct description *d)
{
	for (unsigned i = 0; i < d->nheld; i++)
		d->file->holder[place(d->held[i])] = NULL;
	d->file = NULL;
}

static void look_after(struct description *d)
{
	if (!d->open && !d->mapped && !d->heir)
		close_description(d);
}

static bool is_heir(const struct description *d)
{
	return d->heir && world.current && d->heir == world.current->process;
}

static void call(void)
{
	if (world.current) {
		world_spend(world.weather.call_ns);
		world_meet();
	}
}

static int k_open(const char *path, int flags)
{
	struct file *f = find(path);

	(void)flags;
	call();
	f = find(path);
	return f ? describe(f) : -ENOENT;
}

static void k_close(int fd)
{
	struct description *d;

	if (world_text_close(fd))
		return;
	d = of(fd);
	if (is_heir(d))
		d->heir = NULL;
	else
		d->open = false;
	look_after(d);
	call();
}

static int k_lock(int fd, uint64_t byte)
{
	struct description *d, **holder;

	call();
	d = of(fd);
	holder = &d->file->holder[place(byte)];
	world_note(WORLD_LOCKS, byte, *holder && *holder != d);
	if (*holder && *holder != d)
		return -EAGAIN;
	if (*holder != d && d->nheld == HELD) {
		world_fail("one open file holds more than %d bytes", HELD);
		return -ENOLCK;
	}
	if (*holder != d)
		d->held[d->nheld++] = byte;
	*holder = d;
	return 0;
}

static void k_unlock(int fd, uint64_t byte)
{
	struct description *d = of(fd);

	for (unsigned i = 0; i < d->nheld; i++)
		if (d->held[i] == byte) {
			d->file->holder[place(byte)] = NULL;
			d->held[i] = d->held[--d->nheld];
			world_note(WORLD_UNLOCKS, byte, 0);
			break;
		}
	call();
}

static int k_is_locked(int fd, uint64_t byte)
{
	struct description *d, *holder;

	call();
	d = of(fd);
	holder = d->file->holder[place(byte)];
	return holder && holder != d;
}

bool world_is_locked(const char *path, uint64_t byte)
{
	struct file *f = find(path);

	return f && f->holder[place(byte)];
}

static void *k_lock_page(int fd, int *error)
{
	struct description *d = of(fd);

	d->mapped = true;
	*error = 0;
	call();
	return d;
}

static void *k_fork_page(int *error)
{
	void *page = world_alloc_aligned(4096, 4096);

	memset(page, 0, 4096);
	*error = 0;
	return page;
}

static void k_unmap(void *address, size_t size)
{
	struct description *d = address;

	if (d >= descriptions && d < descriptions + DESCRIPTIONS) {
		/* In a forked child nothing is mapped at that address. */
		if (d->file && (!world.current || d->owner == world.current->process)) {
			d->mapped = false;
			look_after(d);
		}
		call();
	} else if (!world_owns(address) && (uint64_t)(uintptr_t)address - FILE_BASE >= FILES * FILE_SPACE) {
		munmap(address, size ? size : 4096);
	}
}

static int k_stat(int fd, struct arb_os_file *file)
{
	struct description *d = of(fd);

	*file = (struct arb_os_file){1, d->file->inode, d->file->size, true, 0660, 0, (gid_t)-1};
	return 0;
}

static int k_look(const char *path, struct arb_os_file *file)
{
	struct file *f = find(path);

	if (!f)
		return -ENOENT;
	*file = (struct arb_os_file){1, f->inode, f->size, true, 0660, 0, (gid_t)-1};
	return 0;
}

static int k_read(int fd, void *buffer, size_t size, uint64_t at)
{
	struct file *f = of(fd)->file;

	if (at >= f->size)
		return 0;
	if (size > f->size - at)
		size = f->size - at;
	memcpy(buffer, f->base + at, size);
	return (int)size;
}

static void *k_map(int fd, size_t size, bool writable, int *error)
{
	struct file *f = of(fd)->file;

	(void)writable;
	*error = size <= f->size ? 0 : -EINVAL;
	call();
	return *error ? NULL : f->base;
}

static int k_temporary(const char *directory)
{
	unsigned i = 0;

	(void)directory;
	call();
	while (i < FILES && files[i].used)
		i++;
	if (i == FILES)
		return -ENOSPC;
	memset(&files[i], 0, sizeof(files[i]));
	files[i].used = true;
	files[i].inode = ++inodes;
	return describe(&files[i]);
}

static int k_allocate(int fd, size_t size)
{
	struct file *f = of(fd)->file;
	void *at = (void *)(uintptr_t)(FILE_BASE + (uint64_t)(f - files) * FILE_SPACE);

	if (size > FILE_SPACE)
		return -ENOSPC;
	f->base = mmap(at, size, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
	if (f->base == MAP_FAILED) {
		f->base = NULL;
		return -ENOMEM;
	}
	f->size = size;
	call();
	return 0;
}

static int k_mode(int fd, mode_t mode)
{
	(void)fd;
	(void)mode;
	return 0;
}

static int k_name(int fd, const char *path)
{
	call();
	if (find(path))
		return -EEXIST;
	snprintf(of(fd)->file->path, sizeof(of(fd)->file->path), "%s", path);
	of(fd)->file->named = true;
	renames++;
	return 0;
}

static bool k_exists(const char *path)
{
	(void)path; /* every directory exists */
	return true;
}

int world_unlink(const char *path)
{
	struct file *f = find(path);

	if (!f)
		return -ENOENT;
	f->named = false;
	renames++;
	return 0;
}

void *world_file(const char *path, size_t *size)
{
	struct file *f = find(path);

	if (f && size)
		*size = f->size;
	return f ? f->base : NULL;
}

static uint64_t k_now(void)
{
	if (world.current)
		world_spend(world.weather.clock_ns);
	return world.now_ns;
}

static uint64_t k_cpu(void)
{
	return world.current->cpu_ns + 1;
}

static int k_futex_wait_until(arb_u32 *word, uint32_t value, uint64_t until_ns)
{
	return world_wait(&word->v, value, until_ns);
}

static int k_futex_wait(arb_u32 *word, uint32_t value, uint64_t timeout_ns)
{
	return world_wait(&word->v, value, world.now_ns + timeout_ns);
}

static int k_futex_wake(arb_u32 *word)
{
	return (int)world_wake(&word->v, 0);
}

static void k_park(uint32_t *word, uint32_t value, uint64_t ns)
{
	world_wait(word, value, ns ? world.now_ns + ns : UINT64_MAX);
}

static void k_unpark(uint32_t *word)
{
	world_wake(word, 1);
}

static void k_sleep(uint64_t ns)
{
	world_sleep(ns);
}

static void k_yield(void)
{
	world_spend(world.weather.call_ns + 100);
}

static int k_barrier(bool announce)
{
	(void)announce;
	call();
	return 0;
}

static int k_thread(void *(*body)(void *argument), void *argument)
{
	world_spend(20 * WORLD_US);
	world_thread_new(world.current->process, "tracker", world.now_ns + world_lateness(), body, argument);
	return 0;
}

static void k_identify(struct arb_os_identity *id)
{
	unsigned number = world.current ? world.current->process->number : 0;

	id->pid = 1000 + number;
	id->uid = 1000;
	id->pid_ns = 1;
	id->start_time = number + 1;
	snprintf(id->command, sizeof(id->command), "program%u", number);
	call();
}

static const struct arb_os_hooks hooks = {
	.now_ns = k_now,
	.cpu_ns = k_cpu,
	.futex_wait = k_futex_wait,
	.futex_wake = k_futex_wake,
	.futex_wait_until = k_futex_wait_until,
	.park = k_park,
	.unpark = k_unpark,
	.sleep_ns = k_sleep,
	.yield = k_yield,
	.barrier = k_barrier,
	.thread = k_thread,
	.open = k_open,
	.close = k_close,
	.lock = k_lock,
	.unlock = k_unlock,
	.is_locked = k_is_locked,
	.lock_page = k_lock_page,
	.fork_page = k_fork_page,
	.unmap = k_unmap,
	.stat = k_stat,
	.read = k_read,
	.map = k_map,
	.look = k_look,
	.temporary = k_temporary,
	.allocate = k_allocate,
	.mode = k_mode,
	.name = k_name,
	.exists = k_exists,
	.append = world_traces_append,
	.identify = k_identify,
};

uint64_t world_files(void)
{
	return renames;
}

void world_kernel_begin(void)
{
	world_traces_begin();
	arb_os_hooks = &hooks;
	inodes = 0;
}

void world_kernel_end(void)
{
	for (unsigned i = 0; i < FILES; i++)
		if (files[i].base)
			munmap(files[i].base, files[i].size);
	for (unsigned i = 0; i < FILES; i++)
		files[i].used = files[i].named = false, files[i].base = NULL;
	for (unsigned i = 0; i < ndescriptions; i++)
		descriptions[i].file = NULL;
	ndescriptions = 0;
	world_texts_end();
}

void world_kernel_ended(struct world_process *p)
{
	for (unsigned i = 0; i < ndescriptions; i++) {
		struct description *d = &descriptions[i];

		if (!d->file || (d->owner != p && d->heir != p))
			continue;
		if (d->heir == p)
			d->heir = NULL;
		else
			d->open = d->mapped = false;
		look_after(d);
	}
}

void world_kernel_forked(struct world_process *parent, struct world_process *child)
{
	for (unsigned i = 0; i < ndescriptions; i++)
		if (descriptions[i].file && descriptions[i].owner == parent && descriptions[i].open)
			descriptions[i].heir = child;
}
