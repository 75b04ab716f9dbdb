/* Programs on the GPU that are no clients: which they are, what they use, and what the tools show of them. */
#include <criterion/criterion.h>
#include <jansson.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "units.h"

#include "tools/common/nonclients.h"
#include "tools/common/proc.h"
#include "test/harness.h"

#define FIRST_GPU  "GPU-00000000-0000-0000-0000-00000000000a"
#define SECOND_GPU "GPU-00000000-0000-0000-0000-00000000000b"
/* A larger pid than the kernel gives out. */
#define NOBODY 0x7ffffff0u

static struct t_dir dir, sim;
static char out[1 << 20];
static struct gpuarb_picture picture;

static void begin(void)
{
	char libraries[PATH_MAX];

	t_dir_make(&dir, NULL);
	t_dir_make(&sim, NULL);
	snprintf(libraries, sizeof(libraries), "%s/sim", t_build());
	setenv("GPUARB_DIR", dir.path, 1);
	setenv("GPUARB_CONF", dir.conf, 1);
	setenv("LC_ALL", "C.UTF-8", 1);
	setenv("GPUSIM_DIR", sim.path, 1);
	setenv("GPUSIM_DEVICES", "2", 1);
	setenv("GPUSIM_UUID", FIRST_GPU "," SECOND_GPU, 1);
	setenv("LD_LIBRARY_PATH", libraries, 1);
	unsetenv("CUDA_VISIBLE_DEVICES");
}

static void end(void)
{
	t_dir_remove(&dir);
	t_dir_remove(&sim);
}

TestSuite(nonclients, .init = begin, .fini = end);

/* Starts a program that holds `mib` of the first GPU's memory and works a little; with a prefix, as a client. */
static pid_t start(const char *prefix, unsigned mib)
{
	char command[PATH_MAX];
	pid_t pid;

	snprintf(command, sizeof(command),
		"exec %s%s%s/simload --device 0 --memory %u --duration 50 -p burst >/dev/null",
		*prefix ? t_build() : "", prefix, t_build(), mib);
	pid = fork();
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		execl("/bin/sh", "sh", "-c", command, (char *)NULL);
		_exit(127);
	}
	return pid;
}

static void stop(pid_t pid)
{
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

static void run(const char *command)
{
	int status = t_shell(out, sizeof(out), "exec %s/%s", t_build(), command);

	cr_assert_eq(status, 0, "%s: %d: %s", command, status, out);
}

/* Returns what gpuarb-top says about the first GPU. */
static json_t *look(void)
{
	json_error_t error;
	json_t *root, *gpu;

	run("gpuarb-top --json --interval 100 --gpu " FIRST_GPU);
	root = json_loads(out, 0, &error);
	cr_assert(root, "%s: %s", error.text, out);
	gpu = json_incref(json_array_get(json_object_get(root, "gpus"), 0));
	json_decref(root);
	return gpu;
}

static long long number(const json_t *gpu, const char *object, const char *key)
{
	return json_integer_value(json_object_get(json_object_get(gpu, object), key));
}

/* Waits until the device has this much in use. */
static json_t *look_until(unsigned long long bytes)
{
	for (int i = 0; i < 300; i++) {
		json_t *gpu = look();

		if (number(gpu, "device", "memory_used_bytes") >= (long long)bytes)
			return gpu;
		json_decref(gpu);
		t_sleep_us(50000);
	}
	cr_assert_fail("it never had its memory: %s", out);
	return NULL;
}

Test(nonclients, a_program_that_is_no_client_is_seen)
{
	pid_t stranger, client;
	json_t *gpu, *others, *one;
	char line[64];

	run("gpuarb-node --gpu 0");
	stranger = start("", 14 * 1024);
	gpu = look_until(14 * GIB);
	cr_assert_eq(number(gpu, "device", "memory_total_bytes"), 16 * GIB);
	cr_assert_eq(number(gpu, "memory", "used_bytes"), 0, "the clients have nothing");
	cr_assert_geq(number(gpu, "non_clients", "memory_bytes"), (long long)(14 * GIB));
	cr_assert_eq(number(gpu, "non_clients", "processes"), 1);
	json_decref(gpu);

	client = start("/gpuarb-run --sim --account web -- ", 1024);
	gpu = look_until(15 * GIB);
	others = json_object_get(gpu, "non_clients");
	cr_assert_str_eq(json_string_value(json_object_get(others, "counted_by")), "processes");
	cr_assert_eq(number(gpu, "non_clients", "processes"), 1, "the client is not one of them: %s", out);
	cr_assert_geq(number(gpu, "non_clients", "memory_bytes"), (long long)(14 * GIB));
	cr_assert_lt(number(gpu, "non_clients", "memory_bytes"), (long long)(15 * GIB));
	one = json_array_get(json_object_get(others, "largest"), 0);
	cr_assert_eq(json_integer_value(json_object_get(one, "pid")), stranger);
	cr_assert_str_eq(json_string_value(json_object_get(one, "command")), "simload");
	json_decref(gpu);

	run("gpuarb-top --once --interval 300 --gpu 0");
	cr_assert(strstr(out, FIRST_GPU " (GPU 0)"), "%s", out);
	cr_assert(strstr(out, "of 16G in use") && strstr(out, "utilisation "), "%s", out);
	snprintf(line, sizeof(line), "not clients: 1 process, 14G \u00b7 %d simload 14G", (int)stranger);
	cr_assert(strstr(out, line), "'%s' is not in %s", line, out);
	/* It waits for NVML only for a short time, and a busy machine may not have answered. */
	for (int i = 0; i < 50 && !strstr(out, "\ngpuarb_gpu_non_client_processes{"); i++)
		run("gpuarb-top --prom --gpu 0");
	cr_assert(strstr(out, "\ngpuarb_gpu_non_client_processes{gpu=\"" FIRST_GPU "\"} 1\n"), "%s", out);
	cr_assert(strstr(out, "\ngpuarb_gpu_device_memory_used_bytes{gpu=\"" FIRST_GPU "\"} 1"), "%s", out);
	stop(client);
	stop(stranger);
}

static void expect_run(const char *arguments, int status, const char *sentence)
{
	int got = t_shell(out, sizeof(out), "exec %s/gpuarb-run --sim %s", t_build(), arguments);

	cr_assert_eq(got, status, "%s: %d: %s", arguments, got, out);
	cr_assert(strstr(out, sentence), "%s: %s", arguments, out);
}

#define WHERE " sh -c 'echo $CUDA_VISIBLE_DEVICES'"

Test(nonclients, auto_chooses_the_gpu_where_they_leave_room)
{
	pid_t stranger;

	run("gpuarb-node");
	stranger = start("", 14 * 1024);
	json_decref(look_until(14 * GIB));
	expect_run("--gpu auto" WHERE, 0, SECOND_GPU);
	expect_run("--gpu auto --mem 9Gi" WHERE, 0, SECOND_GPU);
	expect_run("--gpu auto --mem 1Gi" WHERE, 0, SECOND_GPU);
	expect_run("--verbose --gpu auto true", 0,
		"gpuarb-run: --gpu auto: " SECOND_GPU " (GPU 1) has the most room\n");
	/* If the other GPU is full as well, the sentence says which programs have taken this one. */
	expect_run("--account full --gpu 1 --mem 15Gi sh -c 'unset CUDA_VISIBLE_DEVICES; exec $0/gpuarb-run "
		   "--sim --account web --gpu "
		   "auto --mem 9Gi true' $T_BUILD",
		1, "are taken by processes that are no clients (");
	cr_assert(strstr(out, " simload)"), "%s", out);
	/* A user who names a GPU gets it, with a warning. */
	expect_run("--gpu 0 --mem 4Gi --account web" WHERE, 0, FIRST_GPU);
	cr_assert(strstr(out, FIRST_GPU " (GPU 0): 14") && strstr(out, "what is promised may not be there"),
		"%s", out);
	/* Where memory can move, there is room for clients that wait for their turn. */
	run("gpuarb-set --gpu 0 oversubscribe=on oversub_ratio=2");
	expect_run("--gpu 0 --mem 4Gi --account web true", 0, "");
	cr_assert_str_empty(out, "%s", out);
	stop(stranger);
	expect_run("--gpu auto --mem 16Gi" WHERE, 0, "");
}

/* What clients that take turns leave to other programs, by the segment. */
static uint64_t counted(void)
{
	struct gpuarb_view *view;
	struct gpuarb_error err = {0};
	int r;

	cr_assert_eq(gpuarb_view_open(dir.path, FIRST_GPU, &view, &err), 0, "%s", err.text);
	r = gpuarb_view_read(view, &picture);
	gpuarb_view_close(view);
	cr_assert_eq(r, 0);
	return picture.mem_foreign;
}

static bool comes(bool (*is)(uint64_t bytes))
{
	for (int i = 0; i < 1200; i++) {
		if (is(counted()))
			return true;
		t_sleep_us(25000);
	}
	return false;
}

static bool is_theirs(uint64_t bytes)
{
	return bytes >= 6 * GIB && bytes < 7 * GIB;
}

static bool is_none(uint64_t bytes)
{
	return bytes == 0;
}

Test(nonclients, the_watchdog_counts_them_for_those_who_take_turns)
{
	pid_t watchdog, stranger;
	char command[PATH_MAX];

	run("gpuarb-node --gpu 0");
	snprintf(command, sizeof(command), "%s/gpuarb-watchdog", t_build());
	watchdog = fork();
	if (watchdog == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		execl(command, command, "--interval", "50", (char *)NULL);
		_exit(127);
	}
	stranger = start("", 6 * 1024);
	cr_assert(comes(is_theirs), "%llu", (unsigned long long)counted());
	stop(stranger);
	cr_assert(comes(is_none), "%llu", (unsigned long long)counted());
	stop(watchdog);
}

/* No other process looks: the client knows what the driver has free. */
Test(nonclients, a_client_counts_them_when_it_allocates)
{
	pid_t stranger, client;

	run("gpuarb-node --gpu 0");
	run("gpuarb-set --gpu 0 policy=memory");
	stranger = start("", 6 * 1024);
	json_decref(look_until(6 * GIB));
	cr_assert_eq(counted(), 0);
	client = start("/gpuarb-run --sim --account web -- ", 1024);
	cr_assert(comes(is_theirs), "%llu", (unsigned long long)counted());
	stop(client);
	stop(stranger);
}

/* The clients' 10 of 16 GiB fit together, but not beside 6 GiB that do not move. */
Test(nonclients, clients_that_would_fit_without_them_take_turns)
{
	pid_t stranger, clients[2];
	bool waits = false;

	run("gpuarb-node --gpu 0");
	run("gpuarb-set --gpu 0 oversubscribe=on switch_time=fixed switch_fixed_s=600");
	stranger = start("", 6 * 1024);
	json_decref(look_until(6 * GIB));
	clients[0] = start("/gpuarb-run --sim --account a -- ", 5 * 1024);
	clients[1] = start("/gpuarb-run --sim --account b -- ", 5 * 1024);
	for (int i = 0; i < 300 && !waits; i++) {
		json_t *gpu = look();

		waits = number(gpu, "memory", "processes_waiting") == 1;
		json_decref(gpu);
		t_sleep_us(50000);
	}
	cr_assert(waits, "%s", out);
	stop(clients[0]);
	stop(clients[1]);
	stop(stranger);
}

/* A process of our own, as its slot would describe it. */
static struct gpuarb_view_client myself(uint64_t bytes)
{
	struct proc proc;

	cr_assert(proc_read((unsigned)getpid(), &proc));
	return (struct gpuarb_view_client){
		.pid = proc.inner_pid, .start_time = proc.start_time, .mem_bytes = bytes};
}

static struct nvml_use use;
static struct nonclients found;

Test(nonclients, processes_are_told_apart_by_pid_and_start)
{
	use = (struct nvml_use){.memory_known = true,
		.processes_known = true,
		.used = 9 * GIB,
		.nprocesses = 2,
		.processes = {{(unsigned)getpid(), 3 * GIB}, {(unsigned)getppid(), 6 * GIB}}};
	picture.nclients = 1;
	picture.clients[0] = myself(3 * GIB);
	nonclients_find(&picture, &use, &found);
	cr_assert_eq(found.by, NONCLIENTS_BY_PROCESS);
	cr_assert_eq(found.count, 1);
	cr_assert_eq(found.bytes, 6 * GIB);
	cr_assert_eq(found.list[0].pid, (unsigned)getppid());
	cr_assert(found.list[0].command[0]);
	/* Another process had this number before. */
	picture.clients[0].start_time--;
	picture.clients[0].mem_bytes = 0;
	nonclients_find(&picture, &use, &found);
	cr_assert_eq(found.count, 2);
	cr_assert_eq(found.bytes, 9 * GIB);
	cr_assert_eq(found.list[0].bytes, 6 * GIB, "the largest first");
}

Test(nonclients, where_pids_cannot_be_compared_it_is_the_difference)
{
	picture.nclients = 2;
	picture.clients[0] = picture.clients[1] = myself(3 * GIB);
	picture.clients[1].dead = true;
	picture.setting[ARB_KEY_RESERVE_PER_CLIENT_MB] = 1024;
	/* One of the processes that NVML counts is hidden from us. */
	use = (struct nvml_use){.memory_known = true,
		.processes_known = true,
		.used = 9 * GIB,
		.nprocesses = 2,
		.processes = {{(unsigned)getpid(), 3 * GIB}, {NOBODY, 6 * GIB}}};
	nonclients_find(&picture, &use, &found);
	cr_assert_eq(found.by, NONCLIENTS_BY_DIFFERENCE);
	cr_assert_eq(found.bytes, 5 * GIB, "without the memory and the context of the one that lives");
	cr_assert_eq(found.nlisted, 0);
	/* It shows processes, but not the client that must be there: the pids belong to another namespace. */
	use.nprocesses = 1;
	use.processes[0].pid = (unsigned)getppid();
	nonclients_find(&picture, &use, &found);
	cr_assert_eq(found.by, NONCLIENTS_BY_DIFFERENCE);
	/* Without clients none of the processes is one, whatever their namespace. */
	use.nprocesses = 2;
	nonclients_find(NULL, &use, &found);
	cr_assert_eq(found.by, NONCLIENTS_BY_PROCESS);
	cr_assert_eq(found.count, 2);
	cr_assert_eq(found.bytes, 9 * GIB);
	/* More is counted for clients than is in use: nothing is left for other programs. */
	use = (struct nvml_use){.memory_known = true, .used = GIB};
	nonclients_find(&picture, &use, &found);
	cr_assert_eq(found.by, NONCLIENTS_BY_DIFFERENCE);
	cr_assert_eq(found.bytes, 0);
}

Test(nonclients, what_nvml_does_not_say_is_not_known)
{
	use = (struct nvml_use){.memory_known = true,
		.processes_known = true,
		.used = 9 * GIB,
		.nprocesses = 1,
		.processes = {{NOBODY, NVML_BYTES_UNKNOWN}}};
	nonclients_find(NULL, &use, &found);
	cr_assert_eq(found.by, NONCLIENTS_BY_PROCESS);
	cr_assert_eq(found.count, 1);
	cr_assert_eq(found.bytes, 9 * GIB, "by difference");
	nonclients_find(NULL, NULL, &found);
	cr_assert_eq(found.by, NONCLIENTS_UNKNOWN);
	cr_assert(!found.memory_known && !found.utilisation_known);
	use = (struct nvml_use){.utilisation_known = true, .utilisation_pct = 7};
	nonclients_find(NULL, &use, &found);
	cr_assert_eq(found.by, NONCLIENTS_UNKNOWN);
	cr_assert_eq(found.utilisation_pct, 7);
}
