/* What the segment costs: transitions, handing over, joining, and reading all of it. */
#include <errno.h>
#include <fcntl.h>
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

#include "shm/base/atomic.h"
#include "shm/client/client_state.h"
#include "shm/base/os.h"
#include "bench/report.h"

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
	struct gpuarb_options options = {.gpu = gpu, .dir = directory, .conf = "/dev/null"};
	struct gpuarb_client *client;
	struct gpuarb_error err = {0};

	if (gpuarb_client_open(&options, &client, &err) < 0) {
		fprintf(stderr, "bench_segment: %s\n", err.text);
		exit(1);
	}
	return client;
}

static void set(const char *gpu, const char *key, const char *value)
{
	struct gpuarb_change change = {.key = key, .value = value};
	struct gpuarb_error err = {0};

	if (gpuarb_control_change(directory, gpu, &change, 1, &err) < 0) {
		fprintf(stderr, "bench_segment: %s\n", err.text);
		exit(1);
	}
}

/* The least that a pair could cost: two readings of the clock, and two CAS on a cache line that no other thread uses.
 */
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

	/* In both cases there is a second member, so that W is the same. */
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

/*
 * Handing over: the time from the moment a client lets go until the other, which slept, goes on. A bare futex and a
 * daemon that passes messages on are measured in turns with it. What prepares a round (the partner is told to sleep,
 * and answers) is not timed.
 */
struct round {
	arb_u32 go, ready, answer,
		word; /* separate cache lines would make no difference, because no thread spins */
	arb_u64 began, ended;
	arb_u32 kind; /* 0: lease, 1: futex, 2: daemon */
};

enum { LEASE, FUTEX, DAEMON, KINDS };

static void await(arb_u32 *word, uint32_t value)
{
	uint32_t seen;

	while ((seen = arb_load32_acquire(word)) != value)
		arb_os_futex_wait(word, seen, 1000000000);
}

static void tell(arb_u32 *word)
{
	arb_os_wake(word);
}

static void partner(struct round *round, int socket)
{
	struct gpuarb_client *c = client_on("handover");
	char message[64];

	for (uint32_t n = 1;; n++) {
		uint32_t word;

		await(&round->go, n);
		/* The word is read before the thread says that it is ready, because the other thread may be quicker
		 * than its next instruction. */
		word = arb_load32(&round->word);
		tell(&round->ready);
		switch (arb_load32(&round->kind)) {
		case LEASE:
			must(gpuarb_client_wait(c, NULL, 60000000000ull), "wait");
			break;
		case FUTEX:
			await(&round->word, word + 1);
			break;
		default:
			if (read(socket, message, sizeof(message)) != sizeof(message))
				must(-EIO, "socket");
		}
		arb_store64(&round->ended, bench_now_ns());
		must(gpuarb_client_leave(c, 0), "leave");
		tell(&round->answer);
	}
}

/* Hands over as programs with a daemon do: the daemon reads that the lease is free, and writes to the next client. */
static void daemon_between(int from, int to)
{
	char message[64];

	while (read(from, message, sizeof(message)) == sizeof(message) &&
		write(to, message, sizeof(message)) == sizeof(message))
		;
	_exit(0);
}

static double one_round(struct round *round, struct gpuarb_client *c, int socket, uint32_t kind, uint32_t n)
{
	char message[64] = {0};

	arb_store32(&round->kind, kind);
	must(gpuarb_client_enter(c, NULL), "enter");
	tell(&round->go);
	await(&round->ready, n);
	usleep(60); /* it has said that it is about to sleep: it gets the time to do so */
	arb_store64(&round->began, bench_now_ns());
	switch (kind) {
	case LEASE:
		must(gpuarb_client_leave(c, 0), "leave");
		break;
	case FUTEX:
		arb_os_wake(&round->word);
		break;
	default:
		if (write(socket, message, sizeof(message)) != sizeof(message))
			must(-EIO, "socket");
	}
	await(&round->answer, n);
	must(gpuarb_client_leave(c, 0), "leave");
	return (double)(arb_load64(&round->ended) - arb_load64(&round->began));
}

static int by_size(const void *a, const void *b)
{
	return (*(const double *)a > *(const double *)b) - (*(const double *)a < *(const double *)b);
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

/* The word is in a file, like all that unrelated processes share: the kernel finds such a futex by its inode. */
static struct round *shared_page(void)
{
	char path[64];
	void *page;
	int fd;

	snprintf(path, sizeof(path), "%s/round", directory);
	fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0 || ftruncate(fd, 4096) != 0)
		must(-errno, path);
	page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (page == MAP_FAILED)
		must(-errno, path);
	close(fd);
	return page;
}

static void handover(struct bench *b)
{
	enum { ROUNDS = 3000 };
	static double took[KINDS][ROUNDS];
	struct round *round = shared_page();
	struct gpuarb_client *c = client_on("handover");
	int up[2], down[2];
	pid_t other, relay;
	uint32_t n = 0;

	if (socketpair(AF_UNIX, SOCK_STREAM, 0, up) || socketpair(AF_UNIX, SOCK_STREAM, 0, down))
		must(-errno, "set-up");
	set("handover", "policy", "exclusive");
	set("handover", "grace_ms", "600000");
	if ((other = in_child()) == 0)
		partner(round, down[1]);
	if ((relay = in_child()) == 0)
		daemon_between(up[1], down[0]);
	for (int i = 0; i < ROUNDS; i++)
		for (uint32_t kind = 0; kind < KINDS; kind++)
			took[kind][i] = one_round(round, c, up[0], kind, ++n);
	for (int kind = 0; kind < KINDS; kind++)
		qsort(took[kind], ROUNDS, sizeof(double), by_size);
	bench_ratio(b, "handover", took[LEASE][ROUNDS / 2], "ns", took[FUTEX][ROUNDS / 2], 1.5);
	bench_show(b, "handover_daemon", took[DAEMON][ROUNDS / 2], "ns", took[FUTEX][ROUNDS / 2]);
	kill(other, SIGKILL);
	kill(relay, SIGKILL);
	waitpid(other, NULL, 0);
	waitpid(relay, NULL, 0);
	gpuarb_client_close(c);
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
	struct gpuarb_error err = {0};
	double best = 0;

	for (int i = 0; i < 256; i++)
		c[i] = client_on("snapshot");
	/* The view is mapped read-only, so a write would crash. */
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
	} cases[] = {{"enter_leave", enter_leave}, {"enter_leave_256", enter_leave_256},
		{"handover", handover}, {"join_256", join_256}, {"snapshot_read", snapshot_read}};
	char command[64];
	struct bench b;

	bench_begin(&b, "segment",
		"Cases: enter_leave, enter_leave_256, handover, join_256, snapshot_read. Times are the "
		"fastest of many\n"
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
