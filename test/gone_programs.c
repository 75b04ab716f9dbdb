/*
 * Unmodified programs that end: killed beside others that run, sleep throttled, wait for a turn or do nothing;
 * killed alone, and found later; ended by themselves with memory still allocated. Real processes, real kills.
 * How long it took until the slot was free is printed, not judged.
 *
 *   gone_programs BUILD-DIRECTORY
 */
#include "harness.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "gpuarb/control.h"

#define PATIENCE_NS 20000000000ull
#define MEMORY      (100ull << 20)

static char place[] = "/dev/shm/gpuarb-gone-XXXXXX";
static const char *build;
static struct gpuarb_picture picture;
static struct gpuarb_view *view;
static char gpu[1][ARB_UUID_BYTES];

static pid_t start(const char *account, const char *core, const char *const *arguments)
{
	char library[PATH_MAX], driver[PATH_MAX], program[PATH_MAX];
	char *argv[16] = {program, "-m", "100"};
	pid_t pid;

	snprintf(library, sizeof(library), "%s/libgpuarb-preload.so", build);
	snprintf(driver, sizeof(driver), "%s/sim", build);
	snprintf(program, sizeof(program), "%s/simload", build);
	for (int i = 0; arguments[i]; i++)
		argv[i + 3] = (char *)arguments[i];
	fflush(NULL);
	pid = fork();
	if (pid == 0) {
		alarm(60);
		setenv("GPUARB_ACCOUNT", account, 1);
		setenv("GPUARB_CORE_LIMIT", core, 1);
		setenv("LD_LIBRARY_PATH", driver, 1);
		setenv("LD_PRELOAD", library, 1);
		if (!freopen("/dev/null", "w", stdout))
			_exit(1);
		execv(program, argv);
		_exit(127);
	}
	T_CHECK(pid > 0, "fork");
	return pid;
}

static bool look(void)
{
	struct gpuarb_error err;

	if (!view && (gpuarb_control_list(NULL, gpu, 1, &err) < 1 ||
			     gpuarb_view_open(NULL, gpu[0], &view, &err) < 0))
		return false;
	return gpuarb_view_read(view, &picture) == 0;
}

static const struct gpuarb_view_account *account_of(const char *name)
{
	for (unsigned i = 0; look() && i < picture.naccounts; i++)
		if (strcmp(picture.accounts[i].name, name) == 0)
			return &picture.accounts[i];
	return NULL;
}

/* The process of that account that works, once it has used the GPU. */
static pid_t client_of(const char *name)
{
	for (uint64_t began = t_now_ns();; t_sleep_us(1000)) {
		const struct gpuarb_view_account *a = account_of(name);

		for (unsigned i = 0; a && i < picture.nclients; i++)
			if (picture.clients[i].account == (unsigned)(a - picture.accounts) &&
				picture.clients[i].used_ns)
				return (pid_t)picture.clients[i].pid;
		T_CHECK(t_now_ns() - began < PATIENCE_NS, "%s does not work", name);
	}
}

/* Ends a program: its workers first, each by the picture. */
static void stop(pid_t pid, const char *name)
{
	const struct gpuarb_view_account *a = account_of(name);

	for (unsigned i = 0; a && i < picture.nclients; i++)
		if (picture.clients[i].account == (unsigned)(a - picture.accounts))
			kill((pid_t)picture.clients[i].pid, SIGKILL);
	t_wait(pid);
}

/* Kills a program that idles with memory, and waits until somebody else has cleaned up behind it. */
static uint64_t kill_idle(void)
{
	static const char *const idle[] = {"-k", "100", "-p", "burst", "-b", "5:100000", "-d", "50", NULL};
	pid_t program = start("victim", "100", idle), victim = client_of("victim");
	uint64_t before, began;

	t_sleep_us(300000); /* its own thread is asleep, and so is that of an idle neighbour */
	T_CHECK(account_of("victim")->mem_used == MEMORY, "it holds its memory");
	before = picture.reclaimed;
	kill(victim, SIGKILL);
	for (began = t_now_ns(); !look() || picture.reclaimed == before; t_sleep_us(200))
		T_CHECK(t_now_ns() - began < PATIENCE_NS, "nobody cleaned up behind it");
	began = t_now_ns() - began;
	t_wait(program);
	for (unsigned i = 0; look() && i < picture.nclients; i++)
		T_CHECK((pid_t)picture.clients[i].pid != victim, "it is still there");
	return began;
}

static void beside(const char *how, const char *core, const char *const *arguments)
{
	pid_t program = start("neighbour", core, arguments);
	uint64_t longest = 0;

	client_of("neighbour");
	for (int i = 0; i < 3; i++) {
		uint64_t took = kill_idle();

		longest = took > longest ? took : longest;
	}
	stop(program, "neighbour");
	printf("gone: killed beside one that %s: cleaned up behind after at most %.1f ms\n", how,
		(double)longest / 1e6);
}

/* Killed while it has work, and nobody there: it must not be billed until somebody looks. */
static void alone(void)
{
	static const char *const busy[] = {"-k", "1000", "-d", "50", NULL};
	static const char *const short_run[] = {"-k", "1000", "-n", "10", NULL};
	pid_t program = start("alone", "30", busy), victim = client_of("alone");
	uint64_t used, busy_ns;

	t_sleep_us(500000);
	kill(victim, SIGKILL);
	t_wait(program);
	t_sleep_us(50000); /* it is silent by now */
	T_CHECK(account_of("alone"), "it has just been there");
	used = account_of("alone")->used_now_ns;
	busy_ns = picture.busy_now_ns;
	t_sleep_us(1000000);
	T_CHECK(look() && picture.busy_now_ns == busy_ns, "the GPU was busy for %.3f ms more",
		(double)(picture.busy_now_ns - busy_ns) / 1e6);
	/* Who comes next does not find it either, and is not held up by more than the debt of a window. */
	program = start("alone", "30", short_run);
	T_CHECK(t_wait(program) == 0, "the next program of the account");
	T_CHECK(look() && picture.busy_ns == picture.billed_ns, "the law");
	T_CHECK(picture.busy_ns < busy_ns + 500000000, "busy for %.3f ms, after %.3f", (double)picture.busy_ns / 1e6,
		(double)busy_ns / 1e6);
	T_CHECK(used < 2000000000, "half a second of work was billed as %.3f s", (double)used / 1e9);
	printf("gone: killed alone: a second later the GPU has not been busy any more\n");
}

/* Ended by itself, with memory still allocated: it has left, nobody died. */
static void by_itself(void)
{
	static const char *const short_run[] = {"-k", "100", "-n", "10", NULL};
	struct gpuarb_event events[64];
	uint64_t before, position = 0;
	unsigned left = 0, reclaimed = 0;
	int n;

	T_CHECK(look(), "a picture");
	before = picture.reclaimed;
	while (gpuarb_view_events(view, &position, events, 64) > 0)
		;
	T_CHECK(t_wait(start("leaver", "50", short_run)) == 0, "a short program");
	T_CHECK(look() && picture.reclaimed == before, "nobody died");
	T_CHECK(picture.nclients == 0 && picture.mem_used == 0, "%u are there, with %llu bytes", picture.nclients,
		(unsigned long long)picture.mem_used);
	while ((n = gpuarb_view_events(view, &position, events, 64)) > 0)
		for (int i = 0; i < n; i++) {
			left += events[i].kind == ARB_EVENT_LEFT;
			reclaimed += events[i].kind == ARB_EVENT_RECLAIMED;
		}
	T_CHECK(left == 1 && reclaimed == 0, "%u left and %u died", left, reclaimed);
	printf("gone: ended with memory allocated: it left, and nothing is held\n");
}

int main(int argc, char **argv)
{
	static const char *const busy[] = {"-k", "200", "-d", "50", NULL};
	static const char *const slow[] = {"-k", "5000", "-d", "50", NULL};
	static const char *const idle[] = {"-k", "100", "-p", "burst", "-b", "5:100000", "-d", "50", NULL};
	char command[64];

	T_CHECK(argc == 2, "Usage: gone_programs BUILD-DIRECTORY");
	build = realpath(argv[1], NULL);
	T_CHECK(build && mkdtemp(place), "%s", argv[1]);
	setenv("GPUARB_DIR", place, 1);
	setenv("GPUARB_CONF", "/dev/null", 1);
	setenv("GPUSIM_DIR", place, 1);
	alone();
	by_itself();
	beside("runs", "100", busy);
	beside("sleeps throttled", "1", slow);
	beside("idles", "100", idle);
	gpuarb_view_close(view);
	snprintf(command, sizeof(command), "rm -r %s", place);
	return system(command) == 0 ? 0 : 1;
}
