#include "tools/common/nvml_child.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

struct nvml_child {
	pid_t pid;
	int fd; /* a socket for questions of one byte and their answers; -1: the child has ended */
	bool asked;
	size_t got; /* of the answer that is under way */
	struct nvml_answer coming, answer;
};

static bool send_all(int fd, const void *from, size_t size)
{
	for (size_t done = 0; done < size;) {
		ssize_t n = send(fd, (const char *)from + done, size - done, MSG_NOSIGNAL);

		if (n <= 0 && errno != EINTR)
			return false;
		done += n > 0 ? (size_t)n : 0;
	}
	return true;
}

/* A signal that the tool catches is not meant for this process. A terminal that changes its size tells both. */
static void catch_nothing(void)
{
	struct sigaction act;

	for (int i = 1; i < NSIG; i++)
		if (sigaction(i, NULL, &act) == 0 && act.sa_handler != SIG_DFL && act.sa_handler != SIG_IGN)
			signal(i, SIG_DFL);
}

/* Waits for a question. Returns false when the tool has ended. */
static bool is_asked(int fd)
{
	char question;
	ssize_t n;

	do
		n = read(fd, &question, 1);
	while (n < 0 && errno == EINTR);
	return n == 1;
}

__attribute__((noreturn)) static void serve(int fd)
{
	static struct nvml_answer answer;
	int null = open("/dev/null", O_RDWR);
	bool there;

	catch_nothing();
	/* Drivers print messages of their own. And this tool may itself run under limits, but wants the driver's own
	 * answers. */
	dup2(null, STDIN_FILENO);
	dup2(null, STDOUT_FILENO);
	dup2(null, STDERR_FILENO);
	setenv("GPUARB_DISABLE", "1", 1);
	there = nvml_start() == NULL;
	while (is_asked(fd)) {
		int n = there ? nvml_read(answer.gpus, answer.uses) : 0;

		answer.count = n > 0 ? n : 0;
		if (!send_all(fd, &answer, sizeof(answer)))
			break;
	}
	_exit(0);
}

struct nvml_child *nvml_child_begin(void)
{
	struct nvml_child *c = calloc(1, sizeof(*c));
	int ends[2];

	if (!c || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
		free(c);
		return NULL;
	}
	c->pid = fork();
	if (c->pid == 0) {
		close(ends[0]);
		serve(ends[1]);
	}
	close(ends[1]);
	c->fd = ends[0];
	if (c->pid < 0) {
		close(c->fd);
		free(c);
		return NULL;
	}
	return c;
}

void nvml_child_end(struct nvml_child *c)
{
	if (!c)
		return;
	if (c->fd >= 0)
		close(c->fd);
	kill(c->pid, SIGKILL);
	waitpid(c->pid, NULL, 0);
	free(c);
}

static long now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

static void close_texts(struct nvml_answer *a)
{
	if (a->count < 0 || a->count > NVML_GPUS_MOST)
		a->count = 0;
	for (int i = 0; i < a->count; i++) {
		struct nvml_gpu *g = &a->gpus[i];

		g->index[sizeof(g->index) - 1] = g->uuid[sizeof(g->uuid) - 1] = g->name[sizeof(g->name) - 1] =
			'\0';
	}
}

const struct nvml_answer *nvml_child_ask(struct nvml_child *c, int most_ms)
{
	long until = now_ms() + most_ms;

	if (!c || c->fd < 0)
		return NULL;
	if (!c->asked && !send_all(c->fd, "?", 1))
		return NULL;
	c->asked = true;
	while (c->got < sizeof(c->coming)) {
		struct pollfd ready = {.fd = c->fd, .events = POLLIN};
		long left = until - now_ms();
		ssize_t n;

		if (poll(&ready, 1, left > 0 ? (int)left : 0) <= 0) {
			if (left > 0)
				continue;
			return NULL;
		}
		n = read(c->fd, (char *)&c->coming + c->got, sizeof(c->coming) - c->got);
		if (n <= 0) {
			close(c->fd);
			c->fd = -1;
			return NULL;
		}
		c->got += (size_t)n;
	}
	c->got = 0;
	c->asked = false;
	c->answer = c->coming;
	close_texts(&c->answer);
	return &c->answer;
}

int nvml_child_list(struct nvml_gpu gpus[NVML_GPUS_MOST], int most_ms)
{
	struct nvml_child *c = nvml_child_begin();
	const struct nvml_answer *a = nvml_child_ask(c, most_ms);
	int n = a ? a->count : 0;

	if (a)
		memcpy(gpus, a->gpus, sizeof(a->gpus));
	nvml_child_end(c);
	return n;
}
