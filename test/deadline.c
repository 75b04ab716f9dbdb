/*
 * deadline [-l LOG] [-p PRESSURE] [-q] [-u USED] SECONDS NAME COMMAND...: runs a part of `make check` and makes sure
 * that it ends.
 *
 * The command gets a session of its own, default signals, an empty standard input, and a pipe for its output, which
 * goes to standard output (unless -q) and to LOG. One line is written to USED: the seconds that the command took, and
 * the seconds of CPU that it and all its descendants used. This process adopts every orphan below it (child
 * subreaper), so a process that has left the session is still found in /proc, as a descendant.
 *
 * At the deadline, or when this process is told to end, all processes below it are listed, asked to end (SIGTERM),
 * and killed 5 s later. A part that is done but leaves processes behind for 10 s has failed. (Neither takes longer
 * than the deadline itself.) PRESSURE is a file like /proc/pressure/cpu: time in which any process of this machine
 * waited for a processor counts only a quarter, so that a busy machine has up to four times as long.
 *
 * The exit status is that of the command (128 + signal if a signal ended it); 124 at the deadline; 125 for processes
 * left behind or an error here; 128 + signal if this process was told to end.
 */
#include <ctype.h>
#include <dirent.h>
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define GRACE_MS                                                                                             \
	5000 /* from SIGTERM to SIGKILL: enough for the trap of a script that removes its directory */
#define LEFT_MS   10000 /* for processes that the part itself has told to end, on a busy machine */
#define KILL_MS   10000 /* for SIGKILL; a process that takes longer cannot be killed */
#define LOOK_MS   100   /* between two looks at the deadline, which moves while the machine is busy */
#define LISTED    30
#define TIMED_OUT 124
#define BROKEN    125

struct process {
	pid_t pid, parent;
	char state;
	bool ours;
};

static struct {
	const char *name;
	pid_t command;
	int status; /* as of waitpid, once `ended` */
	bool ended, childless;
	int output, signals, log;
	bool terminal, ticking, midline, quiet;
	long long began_ms, waited_ms; /* waited_ms: time spent waiting for the reader of our output */
	int told;                      /* the signal that told us to end */
	const char *pressure;
	long long pressed_ms; /* what the file said at the start */
} part = {.log = -1};

static long long now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000LL + ts.tv_nsec / 1000000;
}

/* Returns how long any process has waited for a processor since the machine started; 0 where the kernel does not say.
 */
static long long pressed_ms(void)
{
	FILE *f = part.pressure ? fopen(part.pressure, "re") : NULL;
	long long us = 0;

	if (f && fscanf(f, "some %*s %*s %*s total=%lld", &us) != 1)
		us = 0;
	if (f)
		fclose(f);
	return us / 1000;
}

static long long age_ms(void)
{
	long long age = now_ms() - part.began_ms - part.waited_ms, pressed = pressed_ms() - part.pressed_ms;

	if (pressed < 0)
		pressed = 0;
	return age - (pressed < age ? pressed : age) * 3 / 4;
}

static void write_all(int fd, const char *text, size_t size)
{
	while (size > 0) {
		ssize_t n = write(fd, text, size);

		if (n < 0 && errno != EINTR)
			return;
		text += n > 0 ? n : 0;
		size -= n > 0 ? (size_t)n : 0;
	}
}

static void put(const char *text, size_t size)
{
	long long from = now_ms();

	if (part.ticking)
		write_all(STDOUT_FILENO, "\r\033[K", 4);
	part.ticking = false;
	part.midline = text[size - 1] != '\n';
	if (!part.quiet)
		write_all(STDOUT_FILENO, text, size);
	part.waited_ms += now_ms() - from;
	if (part.log >= 0)
		write_all(part.log, text, size);
}

__attribute__((format(printf, 1, 2))) static void say(const char *format, ...)
{
	char text[1024];
	va_list ap;
	int n;

	if (part.midline)
		put("\n", 1);
	va_start(ap, format);
	n = vsnprintf(text, sizeof(text), format, ap);
	va_end(ap);
	put(text, (size_t)n < sizeof(text) ? (size_t)n : sizeof(text) - 1);
}

/* On a terminal, shows the seconds after a complete last line if the part has been silent for a second. */
static void tick(void)
{
	char text[32];

	if (!part.terminal || part.midline)
		return;
	snprintf(text, sizeof(text), "\r\033[K   %lld s", (now_ms() - part.began_ms) / 1000);
	write_all(STDOUT_FILENO, text, strlen(text));
	part.ticking = true;
}

/* Copies what the part has written; returns false if there was nothing. */
static bool copy(void)
{
	char text[16384];
	ssize_t n = read(part.output, text, sizeof(text));

	if (n > 0)
		put(text, (size_t)n);
	return n > 0;
}

/* Reaps processes that have ended: the command, or orphans that we adopted. */
static void reap(void)
{
	int status;
	pid_t pid;

	while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
		if (pid == part.command) {
			part.ended = true;
			part.status = status;
		}
	}
	part.childless = pid < 0 && errno == ECHILD;
}

/* Waits until something happens, at most `ms`. */
static void wait_for(long long ms)
{
	struct pollfd fds[2] = {{part.output, POLLIN, 0}, {part.signals, POLLIN, 0}};
	struct signalfd_siginfo info;
	bool heard = false;

	if (poll(fds, 2, ms > 1000 ? 1000 : (int)ms) < 0 && errno != EINTR)
		err(BROKEN, "poll");
	if (fds[0].revents & (POLLIN | POLLHUP))
		heard = copy();
	/* All processes have closed it: nothing more will come, and there is nothing to poll. */
	if (!heard && (fds[0].revents & POLLHUP)) {
		close(part.output);
		part.output = -1;
	}
	if (fds[1].revents & POLLIN && read(part.signals, &info, sizeof(info)) == sizeof(info) &&
		info.ssi_signo != SIGCHLD && !part.told)
		part.told = (int)info.ssi_signo;
	reap();
	if (!heard && !part.ended)
		tick();
}

static bool read_process(const char *pid, struct process *p)
{
	char path[64], text[512], *after;
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), "/proc/%.20s/stat", pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	n = read(fd, text, sizeof(text) - 1);
	close(fd);
	text[n > 0 ? n : 0] = '\0';
	/* The name, in parentheses, may contain any character. */
	after = strrchr(text, ')');
	p->pid = (pid_t)atoi(pid);
	p->ours = false;
	return after && sscanf(after + 1, " %c %d", &p->state, &p->parent) == 2;
}

/* Lists all descendants of this process; the caller frees the list. */
static struct process *descendants(size_t *count)
{
	struct process *all = NULL, *grown;
	size_t n = 0, room = 0, kept = 0;
	struct dirent *e;
	DIR *proc = opendir("/proc");
	bool more = true;

	while (proc && (e = readdir(proc))) {
		if (!isdigit((unsigned char)e->d_name[0]))
			continue;
		if (n == room) {
			room = room ? 2 * room : 256;
			grown = realloc(all, room * sizeof(*all));
			if (!grown)
				break;
			all = grown;
		}
		n += read_process(e->d_name, &all[n]);
	}
	if (proc)
		closedir(proc);
	while (more) {
		more = false;
		for (size_t i = 0; i < n; i++) {
			bool below = all[i].parent == getpid();

			for (size_t k = 0; k < n && !below && !all[i].ours; k++)
				below = all[k].ours && all[k].pid == all[i].parent;
			if (below && !all[i].ours)
				all[i].ours = more = true;
		}
	}
	for (size_t i = 0; i < n; i++)
		if (all[i].ours)
			all[kept++] = all[i];
	*count = kept;
	return all;
}

static size_t read_word(pid_t pid, const char *file, char *text, size_t size)
{
	char path[64];
	ssize_t n = -1;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, file);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd >= 0) {
		n = read(fd, text, size - 1);
		close(fd);
	}
	n = n > 0 ? n : 0;
	text[n] = '\0';
	return (size_t)n;
}

/* Prints each process that is left, its state, where in the kernel it is, and its command. */
static void list(void)
{
	size_t n;
	struct process *all = descendants(&n);

	for (size_t i = 0; i < n && i < LISTED; i++) {
		char command[160], where[64];
		size_t size = read_word(all[i].pid, "cmdline", command, sizeof(command));

		for (size_t k = 0; k + 1 < size; k++)
			if ((unsigned char)command[k] < ' ')
				command[k] = ' ';
		if (size == 0)
			read_word(all[i].pid, "comm", command, sizeof(command)),
				command[strcspn(command, "\n")] = '\0';
		read_word(all[i].pid, "wchan", where, sizeof(where));
		say("    pid %d, state %c, in %s: %s\n", (int)all[i].pid, all[i].state,
			*where && strcmp(where, "0") != 0 ? where : "user code", command);
	}
	if (n > LISTED)
		say("    and %zu more\n", n - LISTED);
	free(all);
}

static void signal_all(int signal)
{
	size_t n;
	struct process *all = descendants(&n);

	for (size_t i = 0; i < n; i++)
		kill(all[i].pid, signal);
	free(all);
}

/* Ends all processes below this one; returns false if one could not be killed. */
static bool end_all(long long grace_ms)
{
	long long from = now_ms();

	signal_all(SIGTERM);
	signal_all(SIGCONT);
	while (reap(), !part.childless && now_ms() - from < grace_ms)
		wait_for(50);
	from = now_ms();
	/* It looks again and again, because a process may have been forking. */
	while (reap(), !part.childless && now_ms() - from < KILL_MS) {
		signal_all(SIGKILL);
		wait_for(20);
	}
	return part.childless;
}

static int finish(int status)
{
	for (int i = 0; part.output >= 0 && i < 64 && copy(); i++)
		;
	if (part.midline)
		put("\n", 1);
	if (part.ticking)
		write_all(STDOUT_FILENO, "\r\033[K", 4);
	return status;
}

/* Writes the time that the part took. We adopt orphans, so their time is included. */
static void write_used(const char *path)
{
	struct rusage used;
	FILE *f = fopen(path, "we");

	if (!f || getrusage(RUSAGE_CHILDREN, &used) != 0)
		err(BROKEN, "%s", path);
	fprintf(f, "%lld %ld\n", (now_ms() - part.began_ms + 500) / 1000,
		(long)(used.ru_utime.tv_sec + used.ru_stime.tv_sec));
	fclose(f);
}

static int run_until(long long deadline_ms)
{
	long long from, grace_ms = deadline_ms < GRACE_MS ? deadline_ms : GRACE_MS,
			left_ms = deadline_ms < LEFT_MS ? deadline_ms : LEFT_MS;

	while (!part.ended && !part.told && age_ms() < deadline_ms) {
		long long left = deadline_ms - age_ms();

		wait_for(left > LOOK_MS ? left : LOOK_MS);
	}
	if (!part.ended) {
		if (!part.told)
			say("deadline: %s was not done after %lld s and is killed, with all that it has "
			    "running:\n",
				part.name, deadline_ms / 1000);
		if (!part.told)
			list();
		if (!end_all(grace_ms)) {
			say("deadline: %s has processes that cannot be killed:\n", part.name);
			list();
		}
		return finish(part.told ? 128 + part.told : TIMED_OUT);
	}
	from = now_ms();
	while (!part.childless && !part.told && now_ms() - from < left_ms)
		wait_for(50);
	if (!part.childless) {
		if (!part.told) {
			say("deadline: %s is done and left processes behind, which are killed:\n", part.name);
			list();
		}
		end_all(grace_ms);
		return finish(part.told ? 128 + part.told : BROKEN);
	}
	return finish(WIFEXITED(part.status) ? WEXITSTATUS(part.status) : 128 + WTERMSIG(part.status));
}

static void start(char **command)
{
	int ends[2];
	pid_t parent = getpid();
	sigset_t none;

	if (pipe2(ends, O_CLOEXEC) != 0)
		err(BROKEN, "pipe");
	part.command = fork();
	if (part.command < 0)
		err(BROKEN, "fork");
	if (part.command == 0) {
		int empty = open("/dev/null", O_RDONLY);

		setsid();
		prctl(PR_SET_PDEATHSIG, SIGTERM);
		if (getppid() != parent)
			_exit(BROKEN);
		/* Resets all that our caller ignores or blocks (nohup, a job in the background). */
		for (int s = 1; s < NSIG; s++)
			signal(s, SIG_DFL);
		sigemptyset(&none);
		sigprocmask(SIG_SETMASK, &none, NULL);
		dup2(empty, STDIN_FILENO);
		dup2(ends[1], STDOUT_FILENO);
		dup2(ends[1], STDERR_FILENO);
		if (empty > STDERR_FILENO)
			close(empty);
		execvp(command[0], command);
		warn("%s", command[0]);
		_exit(127);
	}
	close(ends[1]);
	part.output = ends[0];
	fcntl(part.output, F_SETFL, O_NONBLOCK);
}

/* Listens for the signals that tell us to end, except those that our caller wants to be ignored. */
static void listen_for_signals(void)
{
	static const int told[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGCHLD);
	for (size_t i = 0; i < sizeof(told) / sizeof(*told); i++) {
		struct sigaction action;

		if (sigaction(told[i], NULL, &action) == 0 && action.sa_handler != SIG_IGN)
			sigaddset(&set, told[i]);
	}
	signal(SIGCHLD, SIG_DFL);
	signal(SIGPIPE, SIG_IGN);
	sigprocmask(SIG_BLOCK, &set, NULL);
	part.signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	if (part.signals < 0)
		err(BROKEN, "signalfd");
}

int main(int argc, char **argv)
{
	const char *log = NULL, *used = NULL;
	char *end = NULL;
	long seconds;
	int option, status;

	while ((option = getopt(argc, argv, "+l:p:qu:")) != -1 && option != '?') {
		if (option == 'l')
			log = optarg;
		else if (option == 'p')
			part.pressure = optarg;
		else if (option == 'u')
			used = optarg;
		else
			part.quiet = true;
	}
	seconds = optind < argc ? strtol(argv[optind], &end, 10) : 0;
	if (option != -1 || argc - optind < 3 || *end || seconds <= 0 || seconds > 1000000) {
		fprintf(stderr,
			"usage: deadline [-l LOG] [-p PRESSURE] [-q] [-u USED] SECONDS NAME COMMAND...\n");
		return 2;
	}
	if (log) {
		part.log = open(log, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
		if (part.log < 0)
			err(BROKEN, "%s", log);
	}
	part.name = argv[optind + 1];
	part.terminal = !part.quiet && isatty(STDOUT_FILENO);
	part.began_ms = now_ms();
	part.pressed_ms = pressed_ms();
	/* If the process that runs the parts is killed, this one ends. */
	if (prctl(PR_SET_CHILD_SUBREAPER, 1) != 0 || prctl(PR_SET_PDEATHSIG, SIGTERM) != 0)
		err(BROKEN, "prctl");
	listen_for_signals();
	start(argv + optind + 2);
	status = run_until(seconds * 1000LL);
	if (used)
		write_used(used);
	return status;
}
