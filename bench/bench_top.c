/* What it costs to leave gpuarb-top open: its processor time on a wide screen, beside one percent of a core. */
#include <errno.h>
#include <pty.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gpuarb/client.h"
#include "bench/report.h"

#define GPU     "GPU-bench-top"
#define SECONDS 6.0
#define CLIENTS 256

static char directory[] = "/dev/shm/gpuarb-bench-XXXXXX";

static void fail(const char *what)
{
	fprintf(stderr, "bench_top: %s\n", what);
	exit(1);
}

/* Starts clients that run and are throttled in turns, with as many accounts as processes. */
static pid_t client(unsigned number)
{
	pid_t pid = fork();

	if (pid == 0) {
		char account[32];
		struct gpuarb_options o = {.gpu = GPU,
			.dir = directory,
			.conf = "/dev/null",
			.account = account,
			.core_pct = number % 2 ? 5 : 100,
			.ignore_env = true};
		struct gpuarb_client *c;
		struct gpuarb_error err;

		prctl(PR_SET_PDEATHSIG, SIGKILL);
		snprintf(account, sizeof(account), "account-%u", number);
		if (gpuarb_client_open(&o, &c, &err) < 0)
			_exit(1);
		for (;;) {
			gpuarb_client_wait(c, NULL, 1000000000);
			usleep(20000);
			gpuarb_client_leave(c, 0);
			usleep(180000);
		}
	}
	return pid;
}

/* Runs gpuarb-top on a terminal of its own for `seconds`; returns the share of a core that it took. */
static double watch(const char *tool, unsigned short columns, unsigned short lines, double seconds)
{
	struct winsize size = {.ws_col = columns, .ws_row = lines};
	uint64_t began = bench_now_ns(), elapsed;
	struct rusage used;
	char text[4096];
	int terminal, status;
	pid_t pid = forkpty(&terminal, NULL, NULL, &size);

	if (pid < 0)
		fail(strerror(errno));
	if (pid == 0) {
		setenv("TERM", "xterm-256color", 1);
		setenv("LC_ALL", "C.UTF-8", 1);
		execl(tool, tool, "--dir", directory, (char *)NULL);
		_exit(127);
	}
	/* Reads what is sent, as a terminal does. */
	while ((double)(bench_now_ns() - began) < seconds * 1e9) {
		fd_set ready;
		struct timeval wait = {0, 100000};

		FD_ZERO(&ready);
		FD_SET(terminal, &ready);
		if (select(terminal + 1, &ready, NULL, NULL, &wait) > 0 &&
			read(terminal, text, sizeof(text)) <= 0)
			break;
	}
	if (write(terminal, "q", 1) != 1)
		fail("gpuarb-top ended by itself");
	while (read(terminal, text, sizeof(text)) > 0)
		;
	wait4(pid, &status, 0, &used);
	elapsed = bench_now_ns() - began;
	close(terminal);
	if (status != 0)
		fail("gpuarb-top failed");
	return ((double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) * 1e9 +
		       (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) * 1e3) /
	       (double)elapsed;
}

int main(int argc, char **argv)
{
	static pid_t clients[CLIENTS];
	struct bench b;
	char tool[512], command[64];
	ssize_t n = readlink("/proc/self/exe", tool, sizeof(tool) - 32);

	bench_begin(&b, "top",
		"the processor time of gpuarb-top, started and left open, per second, against one percent of "
		"a core",
		argc, argv);
	if (n < 0 || !mkdtemp(directory))
		fail(strerror(errno));
	tool[n] = '\0';
	strcpy(strrchr(tool, '/'), "/gpuarb-top");
	for (unsigned i = 0; i < 4; i++)
		clients[i] = client(i);
	usleep(500000);
	if (bench_wants(&b, "four_clients"))
		bench_ratio(&b, "four_clients", 1e3 * watch(tool, 100, 30, SECONDS), "ms", 10, 1);
	for (unsigned i = 4; i < CLIENTS; i++)
		clients[i] = client(i);
	usleep(1500000);
	if (bench_wants(&b, "256_clients"))
		bench_ratio(&b, "256_clients", 1e3 * watch(tool, 250, 60, SECONDS), "ms", 10, 1);
	for (unsigned i = 0; i < CLIENTS; i++) {
		kill(clients[i], SIGKILL);
		waitpid(clients[i], NULL, 0);
	}
	snprintf(command, sizeof(command), "rm -rf %s", directory);
	if (system(command) != 0)
		fail("the directory was not removed");
	return bench_end(&b);
}
