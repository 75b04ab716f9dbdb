#include "test/sim/device/shm.h"
#include "test/sim/device/engine.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define WAITERS     0x80000000u
#define SLOT_MASK   0xfffu
#define REGISTRAR   0xfffu /* identity of a reader, or of a process that has no slot yet */
#define STEAL_NS    2000000u
#define MAX_WAKES   64
#define FILE_NAME   "gpu.sim"
#define FIRST_BYTES (((sizeof(struct sim_file) + 4095) / 4096) * 4096)
#define FILE_BYTES  (FIRST_BYTES + (uint64_t)SIM_MAX_RINGS * SIM_RING_OPS * sizeof(struct sim_op))

struct sim_shm sim_shm = {.fd = -1, .slot = SIM_NONE};

static pthread_mutex_t registrar_mutex = PTHREAD_MUTEX_INITIALIZER;
static uint32_t *wakes[MAX_WAKES];
static unsigned nwakes;

static void relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#else
	__asm__ volatile("" ::: "memory");
#endif
}

/* What this process's time namespace adds to CLOCK_MONOTONIC. The model uses the time without it. */
static uint64_t clock_shift_ns;

static void read_clock_shift(void)
{
	char mine[64] = "", children[64] = "", clock[32];
	long long s, ns;
	FILE *f;

	/* The file describes the namespace of children, so it counts only if this process is in that namespace, too. */
	if (readlink("/proc/self/ns/time", mine, sizeof(mine) - 1) < 0 ||
		readlink("/proc/self/ns/time_for_children", children, sizeof(children) - 1) < 0 ||
		strcmp(mine, children))
		return;
	f = fopen("/proc/self/timens_offsets", "re");
	if (!f)
		return;
	while (fscanf(f, "%31s %lld %lld", clock, &s, &ns) == 3)
		if (!strcmp(clock, "monotonic"))
			clock_shift_ns = (uint64_t)(s * 1000000000 + ns);
	fclose(f);
}

uint64_t sim_clock_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec - clock_shift_ns;
}

uint64_t sim_stamp_ns(void)
{
	return sim_clock_ns();
}

void sim_futex_wait(uint32_t *word, uint32_t value, uint64_t until_ns)
{
	uint64_t at = until_ns + clock_shift_ns;
	struct timespec ts = {.tv_sec = (time_t)(at / 1000000000u), .tv_nsec = (long)(at % 1000000000u)};

	syscall(SYS_futex, word, FUTEX_WAIT_BITSET, value, &ts, NULL, FUTEX_BITSET_MATCH_ANY);
}

void sim_futex_wake(uint32_t *word)
{
	syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

void sim_wake_later(uint32_t *word)
{
	__atomic_fetch_add(word, 1, __ATOMIC_RELEASE);
	for (unsigned i = 0; i < nwakes; i++)
		if (wakes[i] == word)
			return;
	if (nwakes < MAX_WAKES)
		wakes[nwakes++] = word;
	else
		sim_futex_wake(word);
}

/* Byte 0 belongs to the registrar, byte n + 1 to slot n. */
static int byte_lock(int cmd, short type, uint32_t byte)
{
	struct flock fl = {.l_type = type, .l_whence = SEEK_SET, .l_start = byte, .l_len = 1};
	int rc;

	do {
		rc = fcntl(sim_shm.fd, cmd, &fl);
	} while (rc < 0 && errno == EINTR);
	if (rc < 0)
		return -errno;
	return cmd == F_OFD_GETLK ? fl.l_type != F_UNLCK : 0;
}

bool sim_shm_alive(uint32_t slot)
{
	if (slot == sim_shm.slot)
		return true;
	/* After an error the process must not be taken for dead. */
	return byte_lock(F_OFD_GETLK, F_WRLCK, slot + 1) != 0;
}

bool sim_shm_stopped(uint32_t slot)
{
	char path[64], text[256], *after;
	ssize_t n = -1;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)sim_shm.file->proc[slot].pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd >= 0) {
		n = read(fd, text, sizeof(text) - 1);
		close(fd);
	}
	if (n <= 0)
		return false;
	text[n] = '\0';
	after = strrchr(text, ')');
	return after && after[1] == ' ' && after[2] == 'T';
}

static bool holder_is_dead(uint32_t word)
{
	uint32_t id = word & SLOT_MASK;

	if (id == REGISTRAR) {
		/* There is one registrar at a time. If it is this process, the registrar in the word is gone. */
		if ((sim_shm.ident & SLOT_MASK) == REGISTRAR)
			return true;
		return byte_lock(F_OFD_GETLK, F_WRLCK, 0) == 0;
	}
	return !sim_shm_alive(id - 1);
}

static void lock_word(void)
{
	uint32_t *word = &sim_shm.file->lock;
	uint32_t me = sim_shm.ident;
	uint32_t seen = 0;

	if (__atomic_compare_exchange_n(word, &seen, me, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
		return;
	for (int i = 0; i < 200; i++) {
		relax();
		seen = 0;
		if (__atomic_load_n(word, __ATOMIC_RELAXED) == 0 &&
			__atomic_compare_exchange_n(
				word, &seen, me, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
			return;
	}
	for (;;) {
		seen = __atomic_load_n(word, __ATOMIC_RELAXED);
		if (seen == 0) {
			if (__atomic_compare_exchange_n(
				    word, &seen, me | WAITERS, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
				return;
			continue;
		}
		if (!(seen & WAITERS)) {
			if (!__atomic_compare_exchange_n(
				    word, &seen, seen | WAITERS, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
				continue;
			seen |= WAITERS;
		}
		sim_futex_wait(word, seen, sim_clock_ns() + STEAL_NS);
		if (__atomic_load_n(word, __ATOMIC_RELAXED) != seen || !holder_is_dead(seen))
			continue;
		if (__atomic_compare_exchange_n(
			    word, &seen, me | WAITERS, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)) {
			sim_shm.file->recoveries++;
			sim_engine_rebuild();
			return;
		}
	}
}

/* The calling thread has the lock, or is about to take it. */
static __thread volatile bool holding;

void sim_lock(void)
{
	holding = true;
	if (sim_shm.slot == SIM_NONE) {
		pthread_mutex_lock(&registrar_mutex);
		byte_lock(F_OFD_SETLKW, F_WRLCK, 0);
		/* A new identity each time, so that an earlier lock word is never mistaken for this one. */
		sim_shm.ident = ((uint32_t)(sim_clock_ns() >> 8) & 0xffffu) << 12 | REGISTRAR;
	}
	lock_word();
	nwakes = 0;
}

void sim_unlock(void)
{
	uint32_t *list[MAX_WAKES];
	unsigned n = nwakes;

	memcpy(list, wakes, n * sizeof(list[0]));
	if (__atomic_exchange_n(&sim_shm.file->lock, 0, __ATOMIC_RELEASE) & WAITERS)
		syscall(SYS_futex, &sim_shm.file->lock, FUTEX_WAKE, 1, NULL, NULL, 0);
	holding = false;
	if (sim_shm.slot == SIM_NONE) {
		byte_lock(F_OFD_SETLK, F_UNLCK, 0);
		pthread_mutex_unlock(&registrar_mutex);
	}
	for (unsigned i = 0; i < n; i++)
		sim_futex_wake(list[i]);
}

static void file_paths(char *dir, char *path, size_t size)
{
	const char *env = getenv("GPUSIM_DIR");

	if (env && *env)
		snprintf(dir, size, "%s", env);
	else
		snprintf(dir, size, "/dev/shm/gpusim-%u", (unsigned)getuid());
	snprintf(path, size + sizeof(FILE_NAME), "%s/" FILE_NAME, dir);
}

/* Creates the file. It gets its name only when it is complete; if another process was faster, its file is used. */
static int create_file(const char *dir, const char *path)
{
	char tmp[PATH_MAX + 32];
	struct sim_file *file;
	int fd, rc = 0;

	if (mkdir(dir, 0777) < 0 && errno != EEXIST)
		return -errno;
	snprintf(tmp, sizeof(tmp), "%s/.new-XXXXXX", dir);
	fd = mkostemp(tmp, O_CLOEXEC);
	if (fd < 0)
		return -errno;
	if (ftruncate(fd, (off_t)FILE_BYTES) < 0 || fchmod(fd, 0666) < 0) {
		rc = -errno;
		goto out;
	}
	file = mmap(NULL, FIRST_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (file == MAP_FAILED) {
		rc = -errno;
		goto out;
	}
	file->magic = SIM_MAGIC;
	file->layout = SIM_LAYOUT;
	file->ops_at = FIRST_BYTES / 4096;
	sim_settings_read(file);
	file->now_ns = sim_clock_ns();
	file->sample_at_ns = file->now_ns + file->set.sample_ns;
	for (int i = 0; i < SIM_MAX_DEVICES; i++)
		file->device[i].since_ns = file->now_ns;
	munmap(file, FIRST_BYTES);
	if (link(tmp, path) < 0 && errno != EEXIST)
		rc = -errno;
out:
	unlink(tmp);
	close(fd);
	return rc;
}

int sim_shm_open(void)
{
	char dir[PATH_MAX], path[PATH_MAX + sizeof(FILE_NAME)];
	struct stat st;
	void *map;
	int fd;

	if (sim_shm.file)
		return 0;
	read_clock_shift();
	file_paths(dir, path, sizeof(dir));
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0 && errno == ENOENT) {
		int rc = create_file(dir, path);

		if (rc < 0)
			return rc;
		fd = open(path, O_RDWR | O_CLOEXEC);
	}
	if (fd < 0)
		return -errno;
	if (fstat(fd, &st) < 0 || st.st_size != (off_t)FILE_BYTES) {
		close(fd);
		return -EPROTO;
	}
	map = mmap(NULL, FILE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
	if (map == MAP_FAILED) {
		int rc = -errno;

		close(fd);
		return rc;
	}
	sim_shm.file = map;
	if (sim_shm.file->magic != SIM_MAGIC || sim_shm.file->layout != SIM_LAYOUT) {
		munmap(map, FILE_BYTES);
		sim_shm.file = NULL;
		close(fd);
		return -EPROTO;
	}
	sim_shm.ops = (struct sim_op *)((char *)map + (uint64_t)sim_shm.file->ops_at * 4096);
	sim_shm.fd = fd;
	return 0;
}

void sim_shm_forget(void)
{
	if (!sim_shm.file)
		return;
	munmap(sim_shm.file, FILE_BYTES);
	close(sim_shm.fd);
	sim_shm = (struct sim_shm){.fd = -1, .slot = SIM_NONE};
	pthread_mutex_init(&registrar_mutex, NULL);
}

void sim_shm_close(void)
{
	sim_shm_leave();
	sim_shm_forget();
}

/* Chooses a free slot, or otherwise the slot whose process died longest ago. */
static uint32_t choose_slot(struct sim_file *file)
{
	uint32_t best = SIM_NONE;

	for (uint32_t i = 0; i < SIM_MAX_PROCS; i++) {
		struct sim_proc *p = &file->proc[i];

		if (p->state == SIM_PROC_LIVE)
			continue;
		if (byte_lock(F_OFD_GETLK, F_WRLCK, i + 1) != 0)
			continue;
		if (p->state == SIM_PROC_FREE)
			return i;
		if (best == SIM_NONE || p->ended_ns < file->proc[best].ended_ns)
			best = i;
	}
	return best;
}

int sim_shm_join(void)
{
	struct sim_file *file = sim_shm.file;
	struct sim_proc *p;
	uint32_t slot, gen;
	FILE *comm;

	if (sim_shm.slot != SIM_NONE)
		return 0;
	sim_lock();
	sim_engine_reap(sim_clock_ns(), true);
	sim_engine_advance(sim_clock_ns());
	slot = choose_slot(file);
	if (slot == SIM_NONE || byte_lock(F_OFD_SETLK, F_WRLCK, slot + 1) < 0) {
		sim_unlock();
		return -EUSERS;
	}
	p = &file->proc[slot];
	if (p->state == SIM_PROC_DEAD)
		sim_engine_forget(slot);
	gen = p->gen + 1;
	memset(p, 0, sizeof(*p));
	p->gen = gen;
	p->serial = ++file->serial;
	p->pid = getpid();
	p->started_ns = file->now_ns;
	comm = fopen("/proc/self/comm", "re");
	if (comm) {
		if (fgets(p->command, sizeof(p->command), comm))
			p->command[strcspn(p->command, "\n")] = 0;
		fclose(comm);
	}
	p->state = SIM_PROC_LIVE;
	sim_unlock();
	sim_shm.ident = (gen & 0xffffu) << 12 | (slot + 1);
	sim_shm.slot = slot;
	return 0;
}

void sim_shm_leave(void)
{
	/* A program that exits in a signal handler, during a call, is treated as if it were killed. */
	if (sim_shm.slot == SIM_NONE || holding)
		return;
	sim_lock();
	sim_engine_advance(sim_clock_ns());
	sim_engine_end_process(sim_shm.slot);
	sim_unlock();
	byte_lock(F_OFD_SETLK, F_UNLCK, sim_shm.slot + 1);
	sim_shm.slot = SIM_NONE;
}
