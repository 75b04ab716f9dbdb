#include "bench/clients.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char directory[64], build[4096];
static const char *bench = "clients";

void clients_die(const char *what)
{
	fprintf(stderr, "bench_%s: %s: %s\n", bench, what, strerror(errno));
	exit(1);
}

const char *clients_build(void)
{
	return build;
}

void clients_begin(const char *name)
{
	char libraries[4200], *slash;
	ssize_t length = readlink("/proc/self/exe", build, sizeof(build) - 1);

	bench = name;
	if (length < 0)
		clients_die("/proc/self/exe");
	build[length] = 0;
	if ((slash = strrchr(build, '/')))
		*slash = 0;
	setenv("GPUARB_CONF", "/dev/null", 1);
	snprintf(directory, sizeof(directory), "/dev/shm/gpuarb-%s-XXXXXX", name);
	if (!mkdtemp(directory))
		clients_die("/dev/shm");
	snprintf(libraries, sizeof(libraries), "%s/sim", build);
	setenv("LD_LIBRARY_PATH", libraries, 1);
}

void clients_end(void)
{
	char command[128];

	snprintf(command, sizeof(command), "rm -rf %s", directory);
	if (system(command) != 0)
		fprintf(stderr, "bench_%s: %s was not removed\n", bench, directory);
}

void clients_prepare(struct clients *c, const char *name)
{
	memset(c, 0, sizeof(*c));
	snprintf(c->sim, sizeof(c->sim), "%s/sim.%s", directory, name);
	snprintf(c->arb, sizeof(c->arb), "%s/arb.%s", directory, name);
	setenv("GPUSIM_DIR", c->sim, 1);
	setenv("GPUARB_DIR", c->arb, 1);
	mkdir(c->sim, 0700);
	mkdir(c->arb, 0700);
}

static void out_path(char *path, size_t size, unsigned index)
{
	snprintf(path, size, "%s/out.%u", directory, index);
}

static void run(const struct client *what, unsigned index, double seconds, bool arbitrated)
{
	char *argv[24], kernel[64], duration[64], account[32], limit[16], path[256], program[4200],
		preload[4200];
	char more[4400] = "", *rest;
	int argc = 0, fd;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	setpgid(0, 0);
	out_path(path, sizeof(path), index);
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
	if (fd < 0 || dup2(fd, STDOUT_FILENO) < 0)
		clients_die(path);
	snprintf(account, sizeof(account), "client%u", index);
	snprintf(limit, sizeof(limit), "%u", what->limit ? what->limit : 100);
	snprintf(preload, sizeof(preload), "%s/libgpuarb-preload.so", build);
	setenv("GPUARB_ACCOUNT", account, 1);
	setenv("GPUARB_CORE_LIMIT", limit, 1);
	if (arbitrated)
		setenv("LD_PRELOAD", preload, 1);
	snprintf(program, sizeof(program), "%s/simload", build);
	snprintf(kernel, sizeof(kernel), "--kernel-us=%g", what->kernel_us);
	snprintf(duration, sizeof(duration), "--duration=%g", seconds);
	argv[argc++] = program;
	argv[argc++] = kernel;
	argv[argc++] = duration;
	if (what->more)
		snprintf(more, sizeof(more), "%s", what->more);
	for (char *word = strtok_r(more, " ", &rest); word && argc < 23; word = strtok_r(NULL, " ", &rest))
		if (!strncmp(word, "GPUARB_", 7))
			putenv(word);
		else
			argv[argc++] = word;
	argv[argc] = NULL;
	execv(program, argv);
	clients_die(program);
}

void clients_start(struct clients *c, const struct client *what, double seconds, bool arbitrated)
{
	char path[256];
	pid_t pid;

	out_path(path, sizeof(path), c->n);
	unlink(path);
	pid = fork();
	if (pid < 0)
		clients_die("fork");
	if (!pid)
		run(what, c->n, seconds, arbitrated);
	setpgid(pid, pid);
	c->pid[c->n++] = pid;
}

void clients_find(struct clients *c)
{
	for (unsigned i = 0; i < c->n; i++) {
		unsigned n = 1;
		char path[64];
		FILE *file;

		memset(c->process[i], 0, sizeof(c->process[i]));
		c->process[i][0] = c->pid[i];
		snprintf(path, sizeof(path), "/proc/%d/task/%d/children", (int)c->pid[i], (int)c->pid[i]);
		file = fopen(path, "re");
		while (file && n < CLIENT_PROCESSES && fscanf(file, "%d", &c->process[i][n]) == 1)
			n++;
		if (file)
			fclose(file);
	}
}

void clients_stop(struct clients *c, bool kill_them)
{
	for (unsigned i = 0; i < c->n; i++) {
		if (kill_them)
			kill(-c->pid[i], SIGKILL);
		waitpid(c->pid[i], NULL, 0);
	}
}

json_t *clients_output(unsigned index)
{
	char path[256];
	json_error_t error;

	out_path(path, sizeof(path), index);
	return json_load_file(path, 0, &error);
}

json_t *clients_report(const char *option)
{
	char command[8192];
	json_error_t error;
	json_t *root;
	FILE *pipe;

	snprintf(command, sizeof(command), "%s/sim/gpusim-report --json %s", build, option);
	pipe = popen(command, "re");
	root = pipe ? json_loadf(pipe, 0, &error) : NULL;
	if (!pipe || pclose(pipe) != 0 || !root)
		clients_die(command);
	return root;
}

double clients_number(const json_t *object, const char *key)
{
	return json_number_value(json_object_get(object, key));
}

double clients_sum(
	const struct clients *c, unsigned index, const json_t *report, const char *key, unsigned devices)
{
	json_t *process;
	double sum = 0;
	size_t i;

	for (unsigned d = 0; d < devices; d++) {
		const json_t *device = json_array_get(json_object_get(report, "devices"), d);

		json_array_foreach(json_object_get(device, "processes"), i, process)
		{
			for (unsigned k = 0; k < CLIENT_PROCESSES && c->process[index][k]; k++)
				if (clients_number(process, "pid") == c->process[index][k])
					sum += clients_number(process, key);
		}
	}
	return sum;
}

void clients_device(struct clients *c, const json_t *report)
{
	const json_t *device = json_array_get(json_object_get(report, "devices"), 0);

	snprintf(c->uuid, sizeof(c->uuid), "%s", json_string_value(json_object_get(device, "uuid")));
}

void clients_look(struct clients *c, struct gpuarb_picture *picture)
{
	struct gpuarb_error err = {0};
	struct gpuarb_view *view;

	if (gpuarb_view_open(c->arb, c->uuid, &view, &err) < 0) {
		fprintf(stderr, "bench_%s: %s\n", bench, err.text);
		exit(1);
	}
	gpuarb_view_read(view, picture);
	gpuarb_view_close(view);
}

double clients_account_ns(const struct gpuarb_picture *p, unsigned index)
{
	char name[32];

	snprintf(name, sizeof(name), "client%u", index);
	for (unsigned i = 0; i < p->naccounts; i++)
		if (!strcmp(p->accounts[i].name, name))
			return (double)p->accounts[i].used_now_ns;
	return 0;
}

double clients_billed(const struct clients *c, unsigned index)
{
	return 100 * (clients_account_ns(&c->after, index) - clients_account_ns(&c->before, index)) /
	       (double)(c->after.now_ns - c->before.now_ns);
}
