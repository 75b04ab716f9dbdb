/*
 * The preload is a guest in another program: whatever the program does with its descriptors, threads, children,
 * contexts and rights works as it would without the preload. Each case is a process of its own, with the preload, on
 * the simulated GPU.
 */
#include "test/preload/preload_host.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "shm/segment/slot.h"
#include "test/sim/device/model.h"

static struct t_dir arb, sim;
static char messages[160];

CUcontext host_context(int device)
{
	CUcontext context;

	OK(cuInit(0));
	OK(cuCtxCreate_v2(&context, 0, device));
	return context;
}

static CUfunction spin(void)
{
	CUfunction function;
	CUmodule module;

	OK(cuModuleLoadData(&module, "any"));
	OK(cuModuleGetFunction(&function, module, "gpusim_spin"));
	return function;
}

void host_launch(CUstream stream, unsigned count, unsigned us)
{
	CUfunction function = spin();
	void *params[] = {&us};

	while (count--)
		OK(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL));
}

void host_work(void)
{
	host_launch(NULL, 20, 50);
	OK(cuCtxSynchronize());
}

void host_flood(CUstream stream)
{
	host_launch(stream, 4, 20000000);
}

const char *host_uuid(int device)
{
	static struct sim_device_info info[4];

	if (!*info[device].uuid)
		T_CHECK(!sim_open() && !sim_device_info(device, &info[device]), "no simulation");
	return info[device].uuid;
}

const struct gpuarb_picture *host_picture(int device)
{
	static struct gpuarb_picture picture;
	struct gpuarb_error err = {0};
	struct gpuarb_view *view;

	T_CHECK(!gpuarb_view_open(arb.path, host_uuid(device), &view, &err), "%s", err.text);
	T_CHECK(!gpuarb_view_read(view, &picture), "no picture");
	gpuarb_view_close(view);
	return &picture;
}

void host_must_leave(int device)
{
	uint64_t end = t_now_ns() + 10000000000ull;

	while (host_picture(device)->nrunning && t_now_ns() < end)
		t_sleep_us(2000);
	T_CHECK(!host_picture(device)->nrunning, "it stays in the set");
}

unsigned host_clients(int device)
{
	struct arb_segment seg;
	unsigned n = 0;

	if (arb_segment_open(&seg, arb.path, host_uuid(device), false, NULL, NULL) < 0)
		return 0;
	for (uint32_t i = 0; i < seg.nslots; i++)
		n += arb_slot_alive(&seg, i) == 1;
	arb_segment_close(&seg);
	return n;
}

unsigned host_lines(const char *with)
{
	FILE *file = fopen(messages, "re");
	char line[1024];
	unsigned n = 0;

	T_CHECK(file, "no messages");
	while (fgets(line, sizeof(line), file))
		n += strstr(line, "gpuarb[") && strstr(line, with);
	fclose(file);
	return n;
}

static void show_messages(void)
{
	char text[4096];
	int fd = open(messages, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? 0 : read(fd, text, sizeof(text));

	if (n > 0 && write(STDERR_FILENO, text, (size_t)n) != n)
		t_failed();
	close(fd);
}

static int one(void *argument)
{
	const struct host_case *c = argument;
	int fd = open(messages, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);

	T_CHECK(fd >= 0 && dup2(fd, STDERR_FILENO) == STDERR_FILENO && !close(fd), "no messages");
	c->run();
	/* This is how a program ends that returns from main. */
	exit(0);
}

static void begin(const struct host_case *c)
{
	t_dir_make(&sim, NULL);
	t_dir_make(&arb, "segment_mode = 0666\n");
	T_CHECK(!chmod(sim.path, 0755) && !chmod(arb.path, 0777) && !chmod(arb.conf, 0644), "chmod");
	snprintf(messages, sizeof(messages), "%s/messages", sim.path);
	setenv("GPUSIM_DIR", sim.path, 1);
	setenv("GPUSIM_COST", "0", 1);
	setenv("GPUSIM_CTX_MB", "0", 1);
	setenv("GPUSIM_DEVICES", "3", 1);
	setenv("GPUARB_DIR", arb.path, 1);
	setenv("GPUARB_CONF", arb.conf, 1);
	setenv("GPUARB_ACCOUNT", HOST_ACCOUNT, 1);
	/* If a driver writes down its calls, each program has a file of its own. */
	if (getenv("FORWARD_LOG"))
		T_CHECK(!truncate(getenv("FORWARD_LOG"), 0), "no log");
	if (c->limit)
		setenv("GPUARB_CORE_LIMIT", c->limit, 1);
	else
		unsetenv("GPUARB_CORE_LIMIT");
}

static unsigned run(const struct host_case *cases, const char *only, unsigned *failed)
{
	unsigned n = 0;

	for (const struct host_case *c = cases; c->name; c++) {
		int status;

		if (!strstr(c->name, only))
			continue;
		n++;
		begin(c);
		status = t_run(one, (void *)c, 60);
		if (status != c->status && status != T_SKIP) {
			fprintf(stderr, "host: failed: %s (status %d)\n", c->name, status);
			show_messages();
			++*failed;
		}
		if (status == T_SKIP)
			printf("host: skipped: %s: not permitted here\n", c->name);
		t_dir_remove(&arb);
		t_dir_remove(&sim);
	}
	return n;
}

/* With an argument: runs the cases whose names contain it. */
int main(int argc, char **argv)
{
	const char *only = argc > 1 ? argv[1] : "";
	unsigned failed = 0, n;

	unsetenv("CUDA_VISIBLE_DEVICES");
	unsetenv("GPUARB_LOG");
	n = run(host_process_cases, only, &failed);
	n += run(host_driver_cases, only, &failed);
	n += run(host_gate_cases, only, &failed);
	n += run(host_callback_cases, only, &failed);
	n += run(host_queue_cases, only, &failed);
	n += run(host_newer_cases, only, &failed);
	n += run(host_slow_cases, only, &failed);
	n += run(host_peers_cases, only, &failed);
	n += run(host_sandbox_cases, only, &failed);
	printf("host: the preload was a guest in %u programs: %u suffered\n", n, failed);
	return failed != 0;
}
