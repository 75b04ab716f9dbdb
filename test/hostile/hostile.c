/*
 * Attacks of a neighbour on a victim under load: a program with the preload and a limit of 30 percent on the
 * simulated GPU. The share of the victim comes from the GPU's own books, every half second. From one second after the
 * beginning of the attack on it must be its limit again, no more and no less, also while the attack lasts. The victim
 * lives and ends by itself, and its threads use little of a processor. A program that comes after the attack, or while it
 * lasts, gets its share and its memory as well, and an administrator can still set a limit.
 *
 *   hostile BUILD-DIRECTORY [--quick] [--jobs N] [NAME...]
 */
#include "test/hostile/hostile.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gpuarb/control.h"

#include "test/harness.h"

#define GROUP     61000
#define VICTIM    61001
#define NEIGHBOUR 61002
#define STRANGER  61003
#define SLICES    5 /* of half a second each, measured from the beginning of the attack on */
#define SLICE_NS  500000000ull
/* Percent of 30, by half seconds on a machine that does other things as well. */
#define LEAST 24.0
#define MOST  36.0
/* One that comes, over 1.5 s in which it also starts, or first finds the segment's locks held. */
#define LEAST_NEW  18.0
#define MOST_NEW   40.0
#define LEAST_HALF 13.0
/* Percent of a core: without an attack it uses 1 to 2, and wake-ups may cost another 2 (wakeups.h). */
#define MOST_CPU   8.0
#define DEADLINE_S 40
#define ENDS_NS    10000000000ull /* it runs for 7 s */

/* Other programs that run beside the victim where an attack concerns all. */
static const struct {
	const char *name, *command;
} others[] = {
	{"second",
		"GPUARB_ACCOUNT=second GPUARB_CORE_LIMIT=15 LD_PRELOAD=%s/libgpuarb-preload.so exec %s/simload -m 10 -k 1000 -d 5"},
	{"third",
		"GPUARB_ACCOUNT=third GPUARB_CORE_LIMIT=15 LD_PRELOAD=%s/libgpuarb-preload.so exec %s/simload -m 10 -k 1000 -d 5"},
	{"handler",
		"GPUARB_ACCOUNT=handler GPUARB_CORE_LIMIT=15 LD_PRELOAD=%1$s/libgpuarb-preload.so:%1$s/test/libown-handler.so exec %2$s/simload -m 10 -k 1000 -d 5"},
	{"late-handler",
		"OWN_HANDLER_LATE=1 GPUARB_ACCOUNT=late GPUARB_CORE_LIMIT=15 LD_PRELOAD=%1$s/libgpuarb-preload.so:%1$s/test/libown-handler.so exec %2$s/simload -m 10 -k 1000 -d 5"},
	{"top", "exec %s/gpuarb-top --batch --json --interval 100 --count 40; : %s"},
};
#define OTHERS (sizeof(others) / sizeof(others[0]))

/* The result of a case. */
struct outcome {
	double share[SLICES], after, newcomer, cpu;
	bool judged, good;
	char text[400];
};

static const char *build;
static bool quick;

static void become(uid_t uid)
{
	gid_t groups[] = {GROUP};

	if (geteuid() != 0)
		return;
	if (setgroups(uid == STRANGER ? 0 : 1, groups) != 0 || setgid(uid) != 0 || setuid(uid) != 0)
		_exit(126);
}

static pid_t begin(uid_t uid, const char *log, const char *command)
{
	pid_t pid = fork();

	if (pid == 0) {
		int fd = open(log, O_WRONLY | O_CREAT | O_TRUNC, 0666);

		alarm(DEADLINE_S);
		dup2(fd, STDOUT_FILENO);
		dup2(fd, STDERR_FILENO);
		umask(0);
		become(uid);
		execl("/bin/sh", "sh", "-c", command, (char *)NULL);
		_exit(127);
	}
	return pid;
}

/* Returns the seconds that a process had of the GPU, or a negative number if the GPU does not know it. */
static double device_seconds(pid_t pid)
{
	char command[PATH_MAX], line[512];
	double seconds = -1, s;
	FILE *report;
	long id;

	snprintf(command, sizeof(command), "%s/sim/gpusim-report 2>/dev/null", build);
	report = popen(command, "r");
	while (report && fgets(line, sizeof(line), report))
		if (sscanf(line, "%ld simload %*s %lf", &id, &s) == 2 && id == (long)pid)
			seconds = s;
	if (report)
		pclose(report);
	return seconds;
}

static bool find_victim(struct target *t, const char *gpu, pid_t pid)
{
	static struct gpuarb_picture picture;
	struct gpuarb_view *view;
	struct gpuarb_error err;
	bool found = false;

	if (gpuarb_view_open(t->dir, gpu, &view, &err) < 0)
		return false;
	if (gpuarb_view_read(view, &picture) == 0)
		for (unsigned i = 0; i < picture.nclients && !found; i++)
			if (picture.clients[i].pid == (uint32_t)pid &&
				picture.clients[i].account < picture.naccounts) {
				t->slot = picture.clients[i].slot;
				t->account = picture.accounts[picture.clients[i].account].index;
				found = true;
			}
	gpuarb_view_close(view);
	return found;
}

static void read_log(const char *path, char *text, size_t size)
{
	FILE *f = fopen(path, "r");
	size_t n = f ? fread(text, 1, size - 1, f) : 0;

	text[n] = '\0';
	if (f)
		fclose(f);
}

/* Attacks from a process of its own, which writes into the segment and may be killed. */
static pid_t attack(const struct attack *a, struct target *t, const char *gpu)
{
	pid_t pid = fork();

	if (pid == 0) {
		alarm(DEADLINE_S);
		if (a->who != CONTAINER)
			become(a->who == LOOKER ? STRANGER : NEIGHBOUR);
		if (arb_segment_open(&t->seg, t->dir, gpu, true, NULL, NULL) < 0)
			t->seg.header = NULL;
		if (!t->seg.header && a->who == MEMBER)
			_exit(1);
		if (a->once)
			a->once(t);
		while (a->again) {
			a->again(t);
			usleep(1000);
		}
		pause();
	}
	return pid;
}

/* Returns the seconds of processor time that the threads of a process have used. */
static double cpu_seconds(pid_t pid)
{
	char path[300];
	double seconds = 0, ns;
	struct dirent *entry;
	DIR *tasks;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
	tasks = opendir(path);
	while (tasks && (entry = readdir(tasks))) {
		snprintf(path, sizeof(path), "/proc/%d/task/%.16s/schedstat", (int)pid, entry->d_name);
		f = *entry->d_name != '.' ? fopen(path, "r") : NULL;
		if (f && fscanf(f, "%lf", &ns) == 1)
			seconds += ns / 1e9;
		if (f)
			fclose(f);
	}
	if (tasks)
		closedir(tasks);
	return seconds;
}

static void wait_until(uint64_t ns)
{
	uint64_t now = t_now_ns();

	if (now < ns)
		t_sleep_us((unsigned)((ns - now) / 1000));
}

static double share_until(pid_t victim, double *before, uint64_t *at, uint64_t until)
{
	double seconds, share;
	uint64_t now;

	wait_until(until);
	seconds = device_seconds(victim);
	now = t_now_ns();
	share = 100 * (seconds - *before) / ((double)(now - *at) / 1e9);
	*before = seconds;
	*at = now;
	return share;
}

static void note(struct outcome *o, const char *what)
{
	o->good = false;
	snprintf(o->text + strlen(o->text), sizeof(o->text) - strlen(o->text), "; %s", what);
}

/* An administrator asks who it is that holds bytes of the locks. */
static void judge_named(pid_t attacker, const char *place, struct outcome *o)
{
	char command[2 * PATH_MAX], log[64], text[8192], who[64];

	snprintf(log, sizeof(log), "%s/explain", place);
	snprintf(command, sizeof(command), "%s/gpuarb-top --explain victim >%s 2>&1", build, log);
	if (system(command) != 0)
		note(o, "gpuarb-top cannot explain");
	read_log(log, text, sizeof(text));
	snprintf(who, sizeof(who), "pid %d (hostile) of user %d.", (int)attacker, NEIGHBOUR);
	if (!strstr(text, "are held by one that owns no slot there") || !strstr(text, who))
		note(o, "gpuarb-top does not name it");
}

/* A task asks for a lease while the attack lasts. */
static void judge_lease(const char *place, struct outcome *o)
{
	char command[2 * PATH_MAX];

	snprintf(command, sizeof(command), "timeout 1 %s/gpuarb-run --class default -- true >%s/lease 2>&1",
		build, place);
	if (system(command) != 0)
		note(o, "a task got no lease");
}

static void judge(const struct attack *a, struct outcome *o, int status, const char *log, const char *said)
{
	double least = a->least > 0 ? a->least : LEAST, most = a->most > 0 ? a->most : MOST;
	double cpu = a->cpu > 0 ? a->cpu : MOST_CPU;
	double after = a->alone ? LEAST_HALF : LEAST, newcomer = a->alone ? LEAST_HALF : LEAST_NEW;
	char text[64];

	o->good = !*o->text;
	for (int i = 2; i < SLICES && !a->others && !a->stops; i++)
		if (o->share[i] < least || o->share[i] > most) {
			snprintf(text, sizeof(text), "%.1f percent after %.1f s", o->share[i], (i + 1) / 2.0);
			note(o, text);
			break;
		}
	if (!a->others && (o->after < after || o->after > MOST)) {
		snprintf(text, sizeof(text), "%.1f percent afterwards", o->after);
		note(o, text);
	}
	if (!a->others && (o->newcomer < newcomer || o->newcomer > MOST_NEW))
		note(o, "a newcomer has not its share");
	if (o->cpu > cpu)
		note(o, "the victim's threads have work without end");
	if (strstr(said, "\"error\":0") == NULL)
		note(o, "a newcomer failed");
	if (status != 0)
		note(o, "the victim died");
	else if (!strstr(log, "\"error\":0"))
		note(o, "the victim's program failed");
}

static void start_others(const char *place, pid_t pids[OTHERS])
{
	char log[64], command[2 * PATH_MAX];

	for (size_t i = 0; i < OTHERS; i++) {
		snprintf(log, sizeof(log), "%s/%s", place, others[i].name);
		snprintf(command, sizeof(command), others[i].command, build, build);
		pids[i] = begin(VICTIM, log, command);
	}
}

/* Checks that the others end by themselves and without an error; gpuarb-top may say that there is nothing to see. */
static void judge_others(const char *place, const pid_t pids[OTHERS], uint64_t until, struct outcome *o)
{
	char log[64], text[4096], sentence[64];

	for (size_t i = 0; i < OTHERS; i++) {
		bool program = strcmp(others[i].name, "top") != 0;
		int status = 0;

		while (waitpid(pids[i], &status, WNOHANG) == 0 && t_now_ns() < until)
			t_sleep_us(20000);
		if (t_now_ns() >= until) {
			kill(pids[i], SIGKILL);
			waitpid(pids[i], &status, 0);
		}
		snprintf(log, sizeof(log), "%s/%s", place, others[i].name);
		read_log(log, text, sizeof(text));
		if (WIFEXITED(status) && (program ? WEXITSTATUS(status) == 0 && strstr(text, "\"error\":0")
						  : WEXITSTATUS(status) <= 1))
			continue;
		snprintf(sentence, sizeof(sentence), "'%s' beside it died (%x)", others[i].name,
			(unsigned)status);
		note(o, sentence);
	}
}

static void run_case(const struct attack *a, struct outcome *o)
{
	char place[] = "/dev/shm/gpuarb-hostile-XXXXXX", dir[64], gpudir[64], conf[64], log[64],
	     command[2 * PATH_MAX], state[PATH_MAX], gpu[1][ARB_UUID_BYTES], text[4096], said[4096];
	struct target t = {.build = build};
	struct gpuarb_error err;
	pid_t victim, attacker, newcomer, company = 0, beside[OTHERS];
	uint64_t began, at;
	double before;
	FILE *f;
	char *p;

	if (!mkdtemp(place)) {
		note(o, "no directory");
		return;
	}
	chmod(place, 0777);
	snprintf(dir, sizeof(dir), "%s/arb", place);
	snprintf(gpudir, sizeof(gpudir), "%s/gpu", place);
	snprintf(conf, sizeof(conf), "%s/conf", place);
	mkdir(gpudir, 0777);
	chmod(gpudir, 0777);
	f = fopen(conf, "w");
	fprintf(f, "%s%s", geteuid() == 0 ? "group = 61000\n" : "", a->conf ? a->conf : "");
	fclose(f);
	setenv("GPUARB_DIR", dir, 1);
	setenv("GPUARB_CONF", conf, 1);
	setenv("GPUSIM_DIR", gpudir, 1);
	setenv("GPUSIM_MODE", "share", 1);
	snprintf(command, sizeof(command), "%s/sim", build);
	setenv("LD_LIBRARY_PATH", command, 1);
	/* Makes the directories as an administrator does who sets up a machine. */
	umask(0);
	snprintf(command, sizeof(command), "%s/gpuarb-node >%s/node 2>&1", build, place);
	if (system(command) != 0 || gpuarb_control_list(dir, gpu, 1, &err) < 1) {
		note(o, "gpuarb-node failed");
		goto out;
	}
	snprintf(state, sizeof(state), "%s/state/%s", dir, gpu[0]);
	t.dir = dir;
	t.state = state;
	snprintf(log, sizeof(log), "%s/victim", place);
	snprintf(command, sizeof(command),
		"GPUARB_ACCOUNT=victim GPUARB_CORE_LIMIT=30 LD_PRELOAD=%s/libgpuarb-preload.so exec %s/simload -m 100 -k 1000 -d 7",
		build, build);
	victim = begin(VICTIM, log, command);
	for (began = t_now_ns(); device_seconds(victim) < 0.1 || !find_victim(&t, gpu[0], victim);
		t_sleep_us(20000))
		if (t_now_ns() - began > 5000000000ull) {
			note(o, "the victim does not run");
			kill(victim, SIGKILL);
			waitpid(victim, NULL, 0);
			goto out;
		}
	o->judged = true;
	if (a->others) {
		start_others(place, beside);
		/* Until our handler is in front again of one that a program has installed late. */
		t_sleep_us(1800000);
	}
	if (a->company) {
		snprintf(log, sizeof(log), "%s/company", place);
		snprintf(command, sizeof(command),
			"GPUARB_ACCOUNT=company LD_PRELOAD=%s/libgpuarb-preload.so exec %s/simload -m 10 -k 1000 -d 3",
			build, build);
		company = begin(VICTIM, log, command);
		t_sleep_us(500000);
	}
	began = at = t_now_ns();
	before = device_seconds(victim);
	o->cpu = cpu_seconds(victim);
	attacker = attack(a, &t, gpu[0]);
	for (int i = 0; i < SLICES; i++) {
		o->share[i] = share_until(victim, &before, &at, began + (uint64_t)(i + 1) * SLICE_NS);
		if (i == 0 && a->replace) {
			snprintf(command, sizeof(command), "%s/gpuarb-node --replace >%s/replace 2>&1", build,
				place);
			if (system(command) != 0 && !a->again)
				note(o, "gpuarb-node --replace cannot mend it");
		}
		if (i == 1 && a->leases)
			judge_lease(place, o);
	}
	o->cpu = 100 * (cpu_seconds(victim) - o->cpu) / ((double)(t_now_ns() - began) / 1e9);
	if ((a->again || a->ends) && !a->joins) {
		kill(attacker, SIGKILL);
		waitpid(attacker, NULL, 0);
		/* Words that others have not put right yet may deny it its memory. */
		if (a->others)
			t_sleep_us(200000);
	}
	snprintf(log, sizeof(log), "%s/newcomer", place);
	snprintf(command, sizeof(command),
		"GPUARB_ACCOUNT=newcomer GPUARB_CORE_LIMIT=30 GPUARB_MEM_LIMIT=1Gi LD_PRELOAD=%s/libgpuarb-preload.so exec %s/simload -m 50 -k 1000 -d 1.5",
		build, build);
	newcomer = begin(VICTIM, log, command);
	if (a->joins) {
		waitpid(newcomer, NULL, 0);
		kill(attacker, SIGKILL);
		waitpid(attacker, NULL, 0);
		at = t_now_ns();
	}
	wait_until(at + SLICE_NS);
	before = device_seconds(victim);
	at = t_now_ns();
	o->after = share_until(victim, &before, &at, at + 2 * SLICE_NS);
	if (!a->joins)
		waitpid(newcomer, NULL, 0);
	read_log(log, said, sizeof(said));
	p = strstr(said, "\"kernel_seconds\":");
	if (p && strstr(said, "],\"kernel_us\""))
		o->newcomer = 100 * strtod(p + 17, NULL) / 1.5;
	snprintf(command, sizeof(command), "timeout 5 %s/gpuarb-set --account other core=40 >%s/set 2>&1",
		build, place);
	if (a->who != CONTAINER && system(command) != 0)
		note(o, "gpuarb-set cannot set a limit");
	if (a->named)
		judge_named(attacker, place, o);
	{
		int status = 0;

		/* It ends by itself, at most a second after its last launch was let through. */
		while (waitpid(victim, &status, WNOHANG) == 0 && t_now_ns() < began + ENDS_NS)
			t_sleep_us(20000);
		if (t_now_ns() >= began + ENDS_NS) {
			kill(victim, SIGKILL);
			waitpid(victim, NULL, 0);
			note(o, "the victim hangs");
		}
		snprintf(log, sizeof(log), "%s/victim", place);
		read_log(log, text, sizeof(text));
		judge(a, o, status, text, said);
		if (a->others)
			judge_others(place, beside, began + ENDS_NS + 2 * SLICE_NS, o);
		if (a->conf && strstr(said, "as if it were alone"))
			note(o, "a newcomer runs alone");
		if (getenv("HOSTILE_SHOW"))
			fprintf(stderr, "--- %s\nvictim: %snewcomer: %s\n", a->name, text, said);
	}
	if (!a->again) {
		kill(attacker, SIGKILL);
		waitpid(attacker, NULL, 0);
	}
	if (company)
		waitpid(company, NULL, 0);
out:
	snprintf(command, sizeof(command), "rm -rf %s", place);
	if (system(command) != 0)
		note(o, "cannot clean up");
}

static bool wanted(const struct attack *a, int argc, char **argv)
{
	bool named = false;

	for (int i = 2; i < argc; i++) {
		if (!strcmp(argv[i], "--jobs")) {
			i++;
			continue;
		}
		if (argv[i][0] == '-')
			continue;
		named = true;
		if (!strcmp(argv[i], a->name))
			return true;
	}
	return !named && (!quick || a->quick);
}

static void print(const struct attack *a, const struct outcome *o)
{
	printf("%-16s %5.1f %5.1f %5.1f %5.1f %5.1f  %5.1f %5.1f %5.1f  %s%s\n", a->name, o->share[0],
		o->share[1], o->share[2], o->share[3], o->share[4], o->after, o->newcomer, o->cpu,
		o->good ? "ok" : "HARMED", o->text);
	fflush(stdout);
}

int main(int argc, char **argv)
{
	struct outcome *outcomes = t_shared(nattacks * sizeof(*outcomes));
	unsigned jobs = 4, running = 0, harmed = 0, tried = 0;
	pid_t pids[128] = {0};

	T_CHECK(argc > 1, "Usage: hostile BUILD-DIRECTORY [--quick] [--jobs N] [NAME...]");
	build = realpath(argv[1], NULL);
	T_CHECK(build, "%s", argv[1]);
	for (int i = 2; i < argc; i++) {
		quick |= !strcmp(argv[i], "--quick");
		if (!strcmp(argv[i], "--jobs") && i + 1 < argc)
			jobs = (unsigned)atoi(argv[i + 1]);
	}
	if (geteuid() != 0) {
		printf("skipped: only root can be several users\n");
		return T_SKIP;
	}
	printf("%-16s %s  %s\n", "attack", "percent of 30 in each half second", "after   new   cpu");
	for (unsigned next = 0; next < nattacks || running;) {
		int status;
		pid_t pid;

		while (next < nattacks && running < jobs) {
			if (wanted(&attacks[next], argc, argv)) {
				fflush(stdout);
				pids[next] = fork();
				if (pids[next] == 0) {
					run_case(&attacks[next], &outcomes[next]);
					_exit(0);
				}
				running++;
			}
			next++;
		}
		if (!running)
			break;
		pid = wait(&status);
		for (unsigned i = 0; i < nattacks; i++)
			if (pids[i] == pid) {
				running--;
				tried++;
				harmed += !outcomes[i].good;
				print(&attacks[i], &outcomes[i]);
			}
	}
	printf("hostile: %u attacks, %u did harm\n", tried, harmed);
	return harmed != 0;
}
