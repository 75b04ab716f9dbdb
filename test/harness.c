#include "test/harness.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/syscall.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "shm/base/atomic.h"
#include "shm/base/os.h"
#include "shm/segment/slot.h"
#include "test/alarm.h"

void t_failed(void)
{
	fflush(NULL);
	_exit(1);
}

void t_say(void *argument, const char *sentence)
{
	(void)argument;
	fprintf(stderr, "arb_check: %s\n", sentence);
}

void t_dir_make(struct t_dir *dir, const char *conf)
{
	FILE *file;

	snprintf(dir->path, sizeof(dir->path), "/dev/shm/gpuarb-test-XXXXXX");
	T_CHECK(mkdtemp(dir->path), "%s: %s", dir->path, strerror(errno));
	snprintf(dir->conf, sizeof(dir->conf), "%s/arbiter.conf", dir->path);
	file = fopen(dir->conf, "we");
	T_CHECK(file && fputs(conf ? conf : "", file) >= 0 && fclose(file) == 0, "%s", dir->conf);
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st, (void)type, (void)ftw;
	return remove(path);
}

void t_dir_remove(struct t_dir *dir)
{
	nftw(dir->path, remove_one, 16, FTW_DEPTH | FTW_PHYS | FTW_MOUNT);
}

void t_path(const struct t_dir *dir, const char *sub, char path[PATH_MAX])
{
	snprintf(path, PATH_MAX, "%s/%s/%s", dir->path, sub, T_GPU);
}

/* The deadlines of children, by their pids. A child's own alarm comes first. This one is for a child that hangs in
 * fork(), before it could set its alarm: another thread may have locked a sanitizer's allocator. */
static struct {
	pid_t pid;
	uint64_t until_ns;
} children[1024];

#define CHILD(pid)     children[(unsigned)(pid) % (sizeof(children) / sizeof(*children))]
#define CHILD_MARGIN_S 3

pid_t t_spawn(int (*fn)(void *argument), void *argument, unsigned deadline_s)
{
	pid_t parent = getpid(), pid;

	fflush(NULL);
	pid = fork();
	T_CHECK(pid >= 0, "fork: %s", strerror(errno));
	if (pid == 0) {
		int r;

		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() != parent)
			_exit(1);
		signal(SIGALRM, SIG_DFL);
		alarm(deadline_s);
		r = fn(argument);
		/* Lines are counted at the end of a process (make coverage). */
		if (getenv("T_COVERAGE"))
			exit(r);
		fflush(NULL);
		_exit(r);
	}
	CHILD(pid).pid = pid;
	CHILD(pid).until_ns = t_now_ns() + (deadline_s + CHILD_MARGIN_S) * 1000000000ull;
	return pid;
}

static int ended(int status)
{
	return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

static void kill_if_late(pid_t pid)
{
	int fd = (int)syscall(SYS_pidfd_open, pid, 0), r = 0;
	uint64_t now;

	if (fd < 0)
		return;
	while (r == 0 && (now = t_now_ns()) < CHILD(pid).until_ns) {
		struct pollfd ended = {.fd = fd, .events = POLLIN};

		r = poll(&ended, 1, (int)((CHILD(pid).until_ns - now) / 1000000 + 1));
		if (r < 0 && errno == EINTR)
			r = 0;
	}
	close(fd);
	if (r != 0)
		return;
	fprintf(stderr, "harness: child %d did not die of its alarm and is killed\n", (int)pid);
	kill(pid, SIGKILL);
}

int t_wait(pid_t pid)
{
	int status;

	if (CHILD(pid).pid == pid)
		kill_if_late(pid);
	while (waitpid(pid, &status, 0) != pid)
		T_CHECK(errno == EINTR, "waitpid: %s", strerror(errno));
	return ended(status);
}

int t_run(int (*fn)(void *argument), void *argument, unsigned deadline_s)
{
	return t_wait(t_spawn(fn, argument, deadline_s));
}

const char *t_build(void)
{
	const char *build = getenv("T_BUILD");

	return build ? build : "build";
}

int t_shell(char *output, size_t size, const char *format, ...)
{
	char *command, *both, rest[4096];
	va_list ap;
	FILE *pipe;
	size_t n;

	va_start(ap, format);
	T_CHECK(vasprintf(&command, format, ap) >= 0, "out of memory");
	va_end(ap);
	T_CHECK(asprintf(&both, "exec 2>&1; %s", command) >= 0, "out of memory");
	pipe = popen(both, "re");
	T_CHECK(pipe, "popen: %s", strerror(errno));
	n = fread(output, 1, size - 1, pipe);
	output[n] = '\0';
	while (fread(rest, 1, sizeof(rest), pipe) > 0)
		;
	free(command);
	free(both);
	return ended(pclose(pipe));
}

struct gpuarb_options t_options(const struct t_dir *dir, const char *account)
{
	return (struct gpuarb_options){
		.gpu = T_GPU, .dir = dir->path, .conf = dir->conf, .account = account, .ignore_env = true};
}

int t_open(const struct t_dir *dir, const char *account, struct gpuarb_client **client)
{
	struct gpuarb_options options = t_options(dir, account);

	return gpuarb_client_open(&options, client, NULL);
}

static int change(const struct t_dir *dir, const char *account, enum arb_key key, const int64_t *value)
{
	struct arb_control_copy *draft = aligned_alloc(_Alignof(struct arb_control_copy), sizeof(*draft));
	struct arb_control_map map;
	int fd = -1,
	    r = draft ? arb_control_map_open(&map, dir->path, T_GPU, true, NULL, NULL, NULL) : -ENOMEM;

	if (r < 0) {
		free(draft);
		return r;
	}
	fd = arb_file_open(&map.file, O_RDWR);
	r = fd < 0 ? fd : -EAGAIN;
	for (int tries = 0;
		fd >= 0 && tries < 10000 && (r = arb_os_lock(fd, ARB_BYTE_CONTROL_WRITER)) == -EAGAIN;
		tries++)
		t_sleep_us(200);
	if (r == 0) {
		r = arb_settings_begin(map.control, draft);
		if (r == 0 && account)
			r = arb_settings_set_limit(draft, account, key, value);
		else if (r == 0)
			arb_store64(&draft->value[key], (uint64_t)*value);
		if (r == 0)
			arb_settings_publish(map.control, draft);
	}
	if (fd >= 0)
		arb_os_close(fd);
	arb_control_map_close(&map);
	free(draft);
	return r;
}

int t_set(const struct t_dir *dir, enum arb_key key, int64_t value)
{
	return change(dir, NULL, key, &value);
}

int t_set_limit(const struct t_dir *dir, const char *account, enum arb_key key, const int64_t *value)
{
	return change(dir, account, key, value);
}

uint64_t t_now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

void t_sleep_us(unsigned us)
{
	struct timespec ts = {us / 1000000, us % 1000000 * 1000L};

	nanosleep(&ts, NULL);
}

struct t_random t_seeded(uint64_t seed)
{
	struct t_random r = {(seed + 1) * 0x9e3779b97f4a7c15ull};

	if (!r.state)
		r.state = 1;
	for (int i = 0; i < 4; i++)
		t_next(&r);
	return r;
}

uint64_t t_next(struct t_random *r)
{
	r->state ^= r->state << 13;
	r->state ^= r->state >> 7;
	r->state ^= r->state << 17;
	return r->state * 0x2545f4914f6cdd1dull;
}

uint32_t t_below(struct t_random *r, uint32_t n)
{
	return (uint32_t)((t_next(r) >> 32) * n >> 32);
}

uint64_t t_seed_of_today(void)
{
	return t_now_ns() ^ (uint64_t)getpid() << 40;
}

uint64_t t_numbers(int argc, char **argv, const struct t_number *numbers)
{
	uint64_t seed = t_seed_of_today();

	for (int i = 1; i < argc; i += 2) {
		const struct t_number *n = numbers;

		while (n->name && strcmp(argv[i], n->name) != 0)
			n++;
		T_CHECK(i + 1 < argc && (n->name || strcmp(argv[i], "--seed") == 0), "%s", argv[i]);
		if (n->name)
			*n->value = (unsigned)strtoul(argv[i + 1], NULL, 0);
		else
			seed = strtoull(argv[i + 1], NULL, 0);
	}
	printf("%s", program_invocation_short_name);
	for (const struct t_number *n = numbers; n->name; n++)
		printf(" %s %u", n->name, *n->value);
	printf(" --seed %llu\n", (unsigned long long)seed);
	fflush(stdout);
	return seed;
}

void *t_shared(size_t size)
{
	void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	T_CHECK(p != MAP_FAILED, "mmap: %s", strerror(errno));
	return p;
}

bool t_mounts_private(const char *point)
{
	return mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 ||
	       mount(NULL, point, NULL, MS_PRIVATE, NULL) == 0;
}
