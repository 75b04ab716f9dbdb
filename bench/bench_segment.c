/* What the segment costs: transitions, hand-over, joining, and looking at it all. */
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gpuarb/client.h"
#include "gpuarb/control.h"

#include "atomic.h"
#include "client.h"
#include "os.h"
#include "report.h"

static char directory[] = "/dev/shm/gpuarb-bench-XXXXXX";

static void must(int result, const char *what)
{
	if (result < 0) {
		fprintf(stderr, "bench_segment: %s: %s\n", what, strerror(-result));
		exit(1);
	}
}

static struct gpuarb_client *client_on(const char *gpu)
{
	struct gpuarb_options options = { .gpu = gpu, .dir = directory, .conf = "/dev/null" };
	struct gpuarb_client *client;
	struct gpuarb_error err = { 0 };

	if (gpuarb_client_open(&options, &client, &err) < 0) {
		fprintf(stderr, "bench_segment: %s\n", err.text);
		exit(1);
	}
	return client;
}

static void set(const char *gpu, const char *key, const char *value)
{
	struct gpuarb_change change = { .key = key, .value = value };
	struct gpuarb_error err = { 0 };

	if (gpuarb_control_change(directory, gpu, &change, 1, &err) < 0) {
		fprintf(stderr, "bench_segment: %s\n", err.text);
		exit(1);
	}
}

/* Two readings of the clock and two CAS on a cache line of one's own: the least a pair could cost. */
static void clock_and_cas(void *argument, unsigned iterations)
{
	arb_u64 *word = argument;

	for (unsigned i = 0; i < iterations; i++)
		for (int half = 0; half < 2; half++) {
			uint64_t old = arb_load64(word);

			arb_cas64_full(word, old, old + bench_now_ns());
		}
}

static void pairs(void *argument, unsigned iterations)
{
	struct gpuarb_client *c = argument;

	for (unsigned i = 0; i < iterations; i++) {
		gpuarb_client_enter(c, NULL);
		gpuarb_client_leave(c, 0);
	}
}

static void enter_leave(struct bench *b)
{
	static arb_u64 word __attribute__((aligned(ARB_LINE)));
	struct gpuarb_client *c = client_on("enter-leave");
	double ns, base;

	bench_duel(pairs, c, clock_and_cas, &word, 5000, 400, &ns, &base);
	bench_ratio(b, "enter_leave", ns, "ns", base, 1.75);
	gpuarb_client_close(c);
}

static void enter_leave_256(struct bench *b)
{
	struct gpuarb_client *crowd[256], *few[2];
	double ns, base;

	/* In both there is a second member, so that W is the same. */
	for (int i = 0; i < 2; i++)
		few[i] = client_on("pair-of-2");
	for (int i = 0; i < 256; i++)
		crowd[i] = client_on("pair-of-256");
	must(gpuarb_client_enter(few[1], NULL), "enter");
	must(gpuarb_client_enter(crowd[255], NULL), "enter");
	bench_duel(pairs, crowd[128], pairs, few[0], 5000, 400, &ns, &base);
	bench_ratio(b, "enter_leave_256", ns, "ns", base, 1.2);
	for (int i = 0; i < 256; i++)
		gpuarb_client_close(crowd[i]);
	for (int i = 0; i < 2; i++)
		gpuarb_client_close(few[i]);
}

/* Both sides of a game of ping-pong; each turn of `play` is there and back. */
struct game {
	arb_u32 *word;
	int socket;
	struct gpuarb_client *client;
};

static void futex_there_and_back(void *argument, unsigned iterations)
{
	struct game *g = argument;

	for (unsigned i = 0; i < iterations; i++) {
		arb_store32(&g->word[0], 1);
		arb_os_wake(&g->word[0]); /* 1 -> 2 */
		while (arb_load32(&g->word[16]) != 2)
			arb_os_futex_wait(&g->word[16], 0, 1000000000);
		arb_store32(&g->word[16], 0);
	}
}

static void futex_partner(arb_u32 *word)
{
	for (;;) {
		while (arb_load32(&word[0]) != 2)
			arb_os_futex_wait(&word[0], 0, 1000000000);
		arb_store32(&word[0], 0);
		arb_store32(&word[16], 1);
		arb_os_wake(&word[16]);
	}
}

/* A hand-over needs somebody to hand over to: on a busy machine the other may not be in the queue yet. */
static void hand_over(struct gpuarb_client *c)
{
	struct arb_snap snap;

	while (arb_running_read(&c->seg, &snap) == 0 && arb_bits_count(snap.waiting, snap.words) == 0)
		sched_yield();
	must(gpuarb_client_leave(c, 0), "leave");
	must(gpuarb_client_wait(c, NULL, 5000000000ull), "wait");
}

static void lease_there_and_back(void *argument, unsigned iterations)
{
	struct game *g = argument;

	for (unsigned i = 0; i < iterations; i++)
		hand_over(g->client);
}

static void lease_partner(void)
{
	struct gpuarb_client *c = client_on("handover");

	must(gpuarb_client_wait(c, NULL, 5000000000ull), "wait");
	for (;;)
		hand_over(c);
}

/* As those do it who have a daemon: a message that says "released" and one that says "yours". */
static void socket_there_and_back(void *argument, unsigned iterations)
{
	struct game *g = argument;
	char message[64] = { 0 };

	for (unsigned i = 0; i < iterations; i++)
		if (write(g->socket, message, sizeof(message)) != sizeof(message) ||
			read(g->socket, message, sizeof(message)) != sizeof(message))
			must(-EIO, "socket");
}

/* A daemon between two clients: passes a message on, as a scheduler would grant a lease. */
static void socket_daemon(int from, int to)
{
	char message[64];

	while (read(from, message, sizeof(message)) == sizeof(message) &&
		write(to, message, sizeof(message)) == sizeof(message) &&
		read(to, message, sizeof(message)) == sizeof(message) &&
		write(from, message, sizeof(message)) == sizeof(message))
		;
	_exit(0);
}

static void socket_echo(int fd)
{
	char message[64];

	while (read(fd, message, sizeof(message)) == sizeof(message) &&
		write(fd, message, sizeof(message)) == sizeof(message))
		;
	_exit(0);
}

static pid_t in_child(void)
{
	pid_t pid = fork();

	if (pid < 0)
		must(-errno, "fork");
	if (pid == 0)
		prctl(PR_SET_PDEATHSIG, SIGKILL);
	return pid;
}

static void end(pid_t pid)
{
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

static void handover(struct bench *b)
{
	struct game g = { 0 };
	double ns, base, daemon_ns;
	int a[2], d[2];
	pid_t futex, lease, echo, relay;

	g.word = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (g.word == MAP_FAILED || socketpair(AF_UNIX, SOCK_STREAM, 0, a) || socketpair(AF_UNIX, SOCK_STREAM, 0, d))
		must(-errno, "set-up");
	g.client = client_on("handover");
	set("handover", "policy", "exclusive");
	/* We hold it while the baseline is timed, without a heartbeat. */
	set("handover", "grace_ms", "600000");
	must(gpuarb_client_enter(g.client, NULL), "enter");
	if ((futex = in_child()) == 0)
		futex_partner(g.word);
	if ((lease = in_child()) == 0)
		lease_partner();
	if ((relay = in_child()) == 0) {
		close(a[0]);
		close(d[1]);
		socket_daemon(a[1], d[0]);
	}
	if ((echo = in_child()) == 0) {
		close(a[0]);
		close(a[1]);
		close(d[0]);
		socket_echo(d[1]);
	}
	g.socket = a[0];
	bench_duel(lease_there_and_back, &g, futex_there_and_back, &g, 200, 60, &ns, &base);
	bench_ratio(b, "handover", ns / 2, "ns", base / 2, 1.5);
	bench_duel(socket_there_and_back, &g, futex_there_and_back, &g, 200, 30, &daemon_ns, &base);
	bench_show(b, "handover_daemon", daemon_ns / 2, "ns", base / 2);
	end(futex);
	end(lease);
	end(echo);
	end(relay);
	gpuarb_client_close(g.client);
}

static void join_256(struct bench *b)
{
	double first = 0, last = 0;

	for (int round = 0; round < 20; round++) {
		struct gpuarb_client *c[256];
		uint64_t began;

		for (int i = 0; i < 256; i++) {
			uint64_t ns;

			began = bench_now_ns();
			c[i] = client_on("join");
			ns = bench_now_ns() - began;
			if (i == 0 && round && (!first || ns < first))
				first = (double)ns;
			if (i == 255 && (!last || ns < last))
				last = (double)ns;
		}
		for (int i = 0; i < 256; i++)
			gpuarb_client_close(c[i]);
	}
	bench_ratio(b, "join_256", last / 1000, "us", first / 1000, 2.0);
}

static void snapshot_read(struct bench *b)
{
	struct gpuarb_client *c[256];
	struct gpuarb_view *view;
	static struct gpuarb_picture picture;
	struct gpuarb_error err = { 0 };
	double best = 0;

	for (int i = 0; i < 256; i++)
		c[i] = client_on("snapshot");
	/* The view is mapped read-only: a write would not be counted, it would be a crash. */
	if (gpuarb_view_open(directory, "snapshot", &view, &err) < 0) {
		fprintf(stderr, "bench_segment: %s\n", err.text);
		exit(1);
	}
	for (int i = 0; i < 2000; i++) {
		uint64_t began = bench_now_ns(), ns;

		must(gpuarb_view_read(view, &picture), "view");
		ns = bench_now_ns() - began;
		if (picture.nclients != 256)
			must(-EIO, "view: not all clients");
		if (!best || (double)ns < best)
			best = (double)ns;
	}
	bench_ratio(b, "snapshot_read", best / 1000, "us", 100, 1.0);
	gpuarb_view_close(view);
	for (int i = 0; i < 256; i++)
		gpuarb_client_close(c[i]);
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*run)(struct bench *b);
	} cases[] = { { "enter_leave", enter_leave }, { "enter_leave_256", enter_leave_256 }, { "handover", handover },
		{ "join_256", join_256 }, { "snapshot_read", snapshot_read } };
	char command[64];
	struct bench b;

	bench_begin(&b, "segment",
		"Cases: enter_leave, enter_leave_256, handover, join_256, snapshot_read. Times are the fastest of many\n"
		"short turns, taken in turns with the baseline.",
		argc, argv);
	if (!mkdtemp(directory)) {
		perror("bench_segment: /dev/shm");
		return 1;
	}
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		if (bench_wants(&b, cases[i].name))
			cases[i].run(&b);
	snprintf(command, sizeof(command), "rm -rf %s", directory);
	if (system(command) != 0)
		fprintf(stderr, "bench_segment: %s was not removed\n", directory);
	return bench_end(&b);
}
