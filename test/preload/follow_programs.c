/*
 * Unmodified programs follow their limits file: a program that keeps the GPU busy, one that sleeps throttled, and one
 * that does nothing. The file is swapped as the kubelet does it. How long it took is printed, not judged.
 *
 *   follow_programs BUILD-DIRECTORY
 */
#include "test/harness.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "gpuarb/control.h"

#define PATIENCE_NS 20000000000ull
#define ROUNDS      8

static char place[] = "/dev/shm/gpuarb-follow-XXXXXX";
static const char *build;
static struct gpuarb_picture picture;
static struct gpuarb_view *view;

struct program {
	const char *account;
	const char *arguments[10];
	unsigned core; /* the limit in its file at the start */
};

static const struct program programs[] = {
	{"busy", {"-k", "200", "-d", "100", NULL}, 60},
	{"throttled", {"-k", "5000", "-d", "100", NULL}, 1},
	{"idle", {"-k", "100", "-p", "burst", "-b", "5:100000", "-d", "100", NULL}, 30},
};
#define PROGRAMS (sizeof(programs) / sizeof(programs[0]))

static void write_file(const char *path, const char *text)
{
	FILE *file = fopen(path, "w");

	T_CHECK(file && fputs(text, file) >= 0 && fclose(file) == 0, "%s: %s", path, strerror(errno));
}

/* Swaps a volume of the downward API as the kubelet does: ..data is replaced, then the old directory is removed. */
static void swap(const char *volume, const char *text)
{
	static unsigned version;
	char path[256], link[256], old[64] = "", name[32];
	ssize_t n;

	snprintf(link, sizeof(link), "%s/%s/..data", place, volume);
	n = readlink(link, old, sizeof(old) - 1);
	old[n > 0 ? n : 0] = '\0';
	snprintf(name, sizeof(name), "..version_%u", ++version);
	snprintf(path, sizeof(path), "%s/%s/%s", place, volume, name);
	T_CHECK(mkdir(path, 0755) == 0, "%s", path);
	snprintf(path, sizeof(path), "%s/%s/%s/annotations", place, volume, name);
	write_file(path, text);
	snprintf(path, sizeof(path), "%s/%s/..data_tmp", place, volume);
	T_CHECK(symlink(name, path) == 0 && rename(path, link) == 0, "%s", link);
	if (*old) {
		snprintf(path, sizeof(path), "rm -r %s/%s/%s", place, volume, old);
		T_CHECK(system(path) == 0, "%s", path);
	}
}

static pid_t start(const struct program *p)
{
	char library[PATH_MAX], driver[PATH_MAX], limits[256], log[256], text[64], program[PATH_MAX];
	char *argv[11] = {program};
	pid_t pid;

	snprintf(text, sizeof(text), "%s/%s", place, p->account);
	T_CHECK(mkdir(text, 0755) == 0, "%s", text);
	snprintf(text, sizeof(text), "gpuarb.dev/core-limit=\"%u\"", p->core);
	swap(p->account, text);
	snprintf(limits, sizeof(limits), "%s/%s/annotations", place, p->account);
	T_CHECK(symlink("..data/annotations", limits) == 0, "%s", limits);
	snprintf(library, sizeof(library), "%s/libgpuarb-preload.so", build);
	snprintf(driver, sizeof(driver), "%s/sim", build);
	snprintf(program, sizeof(program), "%s/simload", build);
	snprintf(log, sizeof(log), "%s/%s.log", place, p->account);
	for (int i = 0; p->arguments[i]; i++)
		argv[i + 1] = (char *)p->arguments[i];
	fflush(NULL);
	pid = fork();
	if (pid == 0) {
		alarm(110);
		setenv("GPUARB_LIMITS_FILE", limits, 1);
		setenv("GPUARB_ACCOUNT", p->account, 1);
		setenv("LD_LIBRARY_PATH", driver, 1);
		setenv("LD_PRELOAD", library, 1);
		if (!freopen(log, "w", stderr) || !freopen("/dev/null", "w", stdout))
			_exit(1);
		execv(program, argv);
		_exit(127);
	}
	T_CHECK(pid > 0, "fork");
	return pid;
}

static const struct gpuarb_view_account *look(const char *name)
{
	static char gpu[1][ARB_UUID_BYTES];
	struct gpuarb_error err;

	if (!view && (gpuarb_control_list(NULL, gpu, 1, &err) < 1 ||
			     gpuarb_view_open(NULL, gpu[0], &view, &err) < 0))
		return NULL;
	if (gpuarb_view_read(view, &picture) < 0)
		return NULL;
	for (unsigned i = 0; i < picture.naccounts; i++)
		if (strcmp(picture.accounts[i].name, name) == 0 && picture.accounts[i].clients)
			return &picture.accounts[i];
	return NULL;
}

/* Waits until the account has these limits, and returns how long it took. */
static uint64_t await(const char *name, unsigned core, uint64_t mem)
{
	uint64_t began = t_now_ns();
	const struct gpuarb_view_account *a;

	for (;;) {
		a = look(name);
		if (a && a->limit_ppm == core * 10000 && a->mem_limit == mem)
			return t_now_ns() - began;
		T_CHECK(t_now_ns() - began < PATIENCE_NS, "%s has %u and %llu, not %u and %llu", name,
			a ? a->limit_ppm / 10000 : 0, a ? (unsigned long long)a->mem_limit : 0, core,
			(unsigned long long)mem);
		t_sleep_us(500);
	}
}

/* Makes every kind of change that a file may see, and returns the longest time that a change took. */
static uint64_t life(const struct program *p)
{
	const struct gpuarb_view_account *a;
	uint64_t longest = 0, took;
	char text[128];

	await(p->account, p->core, 0);
	/* Before its first work no program looks at its file. */
	for (uint64_t began = t_now_ns(); !(a = look(p->account)) || !a->used_ns; t_sleep_us(500))
		T_CHECK(t_now_ns() - began < PATIENCE_NS, "%s does not work", p->account);
	for (unsigned i = 0; i < ROUNDS; i++) {
		snprintf(text, sizeof(text), "gpuarb.dev/core-limit=\"%u\"\ngpuarb.dev/memory-limit=\"%uMi\"",
			2 + i, 64 + i);
		swap(p->account, text);
		took = await(p->account, 2 + i, (64ull + i) << 20);
		if (took > longest)
			longest = took;
	}
	swap(p->account, "gpuarb.dev/core-limit=\"?\"\n");
	t_sleep_us(200000);
	await(p->account, 2 + ROUNDS - 1, (64ull + ROUNDS - 1) << 20);
	swap(p->account, "nvshare.com/gpu-core-limit=\"33\"");
	await(p->account, 33, 0);
	snprintf(text, sizeof(text), "rm -r %s/%s", place, p->account);
	T_CHECK(system(text) == 0, "%s", text);
	t_sleep_us(200000);
	await(p->account, 33, 0);
	snprintf(text, sizeof(text), "%s/%s", place, p->account);
	T_CHECK(mkdir(text, 0755) == 0, "%s", text);
	snprintf(text, sizeof(text), "%s/%s/annotations", place, p->account);
	write_file(text, "44\n");
	await(p->account, 44, 0);
	return longest;
}

/* Checks that a program logged two sentences, one for the garbage and one for the missing directory, and no other. */
static void check_log(const char *account)
{
	char path[256], line[1024];
	int garbage = 0, gone = 0, other = 0;
	FILE *file;

	snprintf(path, sizeof(path), "%s/%s.log", place, account);
	file = fopen(path, "r");
	T_CHECK(file, "%s", path);
	while (fgets(line, sizeof(line), file)) {
		if (strstr(line, "core cannot be '?'; allowed: 1 to 100 percent: the last limits stay"))
			garbage++;
		else if (strstr(line, "No such file or directory: the last limits stay"))
			gone++;
		else
			other++;
	}
	fclose(file);
	T_CHECK(garbage == 1 && gone == 1 && !other, "%s said it %d, %d and %d times", account, garbage, gone,
		other);
}

int main(int argc, char **argv)
{
	char command[64];

	T_CHECK(argc == 2, "Usage: follow_programs BUILD-DIRECTORY");
	build = realpath(argv[1], NULL);
	T_CHECK(build && mkdtemp(place), "%s", argv[1]);
	setenv("GPUARB_DIR", place, 1);
	setenv("GPUARB_CONF", "/dev/null", 1);
	setenv("GPUSIM_DIR", place, 1);
	unsetenv("GPUARB_LOG");
	for (size_t i = 0; i < PROGRAMS; i++) {
		pid_t pid = start(&programs[i]);
		uint64_t longest = life(&programs[i]);

		kill(pid, SIGKILL);
		t_wait(pid);
		check_log(programs[i].account);
		printf("follow: %s: %d changes of its limits file, the slowest took hold after %.1f ms\n",
			programs[i].account, ROUNDS, (double)longest / 1e6);
	}
	gpuarb_view_close(view);
	snprintf(command, sizeof(command), "rm -r %s", place);
	return system(command) == 0 ? 0 : 1;
}
