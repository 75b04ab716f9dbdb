/*
 * A program that uses nothing but NVML, as nvidia-smi, pynvml and nvtop do: it is shown its account's quota, loads no
 * driver, and does not become a client. It runs with the preload loaded. Each case is a process of its own, and so is
 * the neighbour, the only process that loads the driver.
 */
#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cuda_abi.h"
#include "gpuarb/control.h"
#include "units.h"
#include "test/harness.h"
#include "preload/hooks/nvml_hooks.h"

#include "test/sim/device/model.h"

#define ACCOUNT "tenant"
#define WHOLE   (16384 * MIB)

/* The functions come from linking with NVML, or from dlopen and dlsym. */
#ifdef LINKED
int nvmlInit_v2(void);
int nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice_t *device);
#define NVML(type, name) name
#else
static void *nvml(const char *name)
{
	void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
	void *found = library ? dlsym(library, name) : NULL;

	T_CHECK(found, "no %s", name);
	return found;
}
#define NVML(type, name) ((int(*) type)nvml(#name))
#endif

static struct t_dir dir, sim;

static const char *uuid_of(int device)
{
	static struct sim_device_info info;

	T_CHECK(!sim_open() && !sim_device_info(device, &info), "no simulation");
	return info.uuid;
}

static void set_for(const char *account, const char *key, const char *value)
{
	struct gpuarb_change change = {account, key, value};
	struct gpuarb_error err = {0};

	T_CHECK(!gpuarb_control_change(NULL, uuid_of(0), &change, 1, &err), "%s", err.text);
}

static void set(const char *key, const char *value)
{
	set_for(ACCOUNT, key, value);
}

static unsigned clients(void)
{
	static struct gpuarb_picture picture;
	struct gpuarb_error err = {0};
	struct gpuarb_view *view;

	T_CHECK(!gpuarb_view_open(NULL, uuid_of(0), &view, &err), "%s", err.text);
	T_CHECK(!gpuarb_view_read(view, &picture), "no picture");
	gpuarb_view_close(view);
	return picture.nclients;
}

static bool has_segment(const char *sub)
{
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "%s/%s/%s", dir.path, sub, uuid_of(0));
	return access(path, F_OK) == 0;
}

static bool driver_is_loaded(void)
{
	FILE *maps = fopen("/proc/self/maps", "r");
	char line[4096];
	bool found = false;

	T_CHECK(maps, "no maps");
	while (fgets(line, sizeof(line), maps))
		found |= strstr(line, "libcuda.so") != NULL;
	fclose(maps);
	return found;
}

/* Checks both forms of the call, and that asking leaves no trace. */
static void shows(unsigned index, uint64_t total, uint64_t left, uint64_t used)
{
	struct nvml_memory m = {0};
	struct nvml_memory_v2 m2 = {.version = sizeof(m2) | 2 << 24};
	nvmlDevice_t device;

	T_CHECK(!NVML((void), nvmlInit_v2)(), "no NVML");
	T_CHECK(!NVML((unsigned, nvmlDevice_t *), nvmlDeviceGetHandleByIndex_v2)(index, &device), "no GPU");
	errno = ETIME;
	T_CHECK(!NVML((nvmlDevice_t, struct nvml_memory *), nvmlDeviceGetMemoryInfo)(device, &m), "no");
	T_CHECK(!NVML((nvmlDevice_t, struct nvml_memory_v2 *), nvmlDeviceGetMemoryInfo_v2)(device, &m2),
		"no");
	T_CHECK(errno == ETIME, "errno %d", errno);
	T_CHECK(m.total == total && m.free == left && m.used == used, "%llu %llu %llu", m.total >> 20,
		m.free >> 20, m.used >> 20);
	T_CHECK(m2.total == total && m2.free == left && m2.used == used, "%llu %llu %llu", m2.total >> 20,
		m2.free >> 20, m2.used >> 20);
	T_CHECK(!driver_is_loaded(), "libcuda was loaded");
}

/* A process that has 100 MiB of GPU 0 until it is told to end, or killed. */
struct neighbour {
	pid_t pid;
	int come[2], go[2];
	const char *account, *quota;
};

static int has_memory(void *argument)
{
	struct neighbour *n = argument;
	void *cuda = dlopen("libcuda.so.1", RTLD_NOW);
	CUcontext context;
	CUdeviceptr p;
	char c;

	setenv("GPUARB_ACCOUNT", n->account, 1);
	if (n->quota)
		setenv("GPUARB_MEM_LIMIT", n->quota, 1);
	T_CHECK(cuda, "%s", dlerror());
	T_CHECK(!((__typeof__(cuInit) *)dlsym(cuda, "cuInit"))(0), "no driver");
	T_CHECK(!((__typeof__(cuCtxCreate_v2) *)dlsym(cuda, "cuCtxCreate_v2"))(&context, 0, 0), "no context");
	T_CHECK(!((__typeof__(cuMemAlloc_v2) *)dlsym(cuda, "cuMemAlloc_v2"))(&p, 100 * MIB), "no memory");
	close(n->go[1]);
	return write(n->come[1], "x", 1) != 1 || read(n->go[0], &c, 1) != 1;
}

static void comes(struct neighbour *n)
{
	T_CHECK(!pipe(n->come) && !pipe(n->go), "no pipes");
	n->pid = t_spawn(has_memory, n, 30);
	close(n->come[1]);
	T_CHECK(read(n->come[0], &(char){0}, 1) == 1, "the neighbour failed");
}

/* Ends the neighbour. The simulated GPU takes a moment to see that it has died. */
static void goes(struct neighbour *n)
{
	struct sim_device_state state;

	T_CHECK(write(n->go[1], "x", 1) == 1 && t_wait(n->pid) == 0, "the neighbour failed");
	do {
		t_sleep_us(1000);
		T_CHECK(!sim_open() && !sim_device_state(0, &state), "no simulation");
	} while (state.memory_used_bytes);
}

static int nobody_there(void *unused)
{
	(void)unused;
	shows(0, 256 * MIB, 256 * MIB, 0);
	shows(1, 256 * MIB, 256 * MIB, 0);
	T_CHECK(!has_segment("state") && !has_segment("control"), "a segment was made");
	/* The segment by which other programs have limits is looked for before any of them has made it. */
	unsetenv("GPUARB_MEM_LIMIT");
	setenv("GPUARB_ACCOUNT", "of-the-file", 1);
	shows(0, 64 * MIB, 64 * MIB, 0);
	return 0;
}

static int account_is_seen(void *unused)
{
	struct neighbour n = {.account = ACCOUNT};

	(void)unused;
	comes(&n);
	shows(0, 256 * MIB, 156 * MIB, 100 * MIB);
	/* On the other GPU the account has nothing. */
	shows(1, 256 * MIB, 256 * MIB, 0);
	T_CHECK(clients() == 1, "%u clients", clients());
	set("mem", "120Mi");
	shows(0, 120 * MIB, 20 * MIB, 100 * MIB);
	/* The quota is set below what is used; then to more than there is. */
	set("mem", "60Mi");
	shows(0, 60 * MIB, 0, 60 * MIB);
	set_for(NULL, "oversub_ratio", "100");
	set("mem", "1Ti");
	shows(0, WHOLE, WHOLE - 100 * MIB, 100 * MIB);
	set("mem", "0");
	shows(0, WHOLE, WHOLE - 100 * MIB, 100 * MIB);
	set("mem", NULL);
	shows(0, 256 * MIB, 156 * MIB, 100 * MIB);
	goes(&n);
	shows(0, 256 * MIB, 256 * MIB, 0);
	return 0;
}

/* No process has cleaned up after the dead one, and this program does not either. */
static int dead_have_nothing(void *unused)
{
	struct neighbour n = {.account = ACCOUNT};

	(void)unused;
	comes(&n);
	shows(0, 256 * MIB, 156 * MIB, 100 * MIB);
	T_CHECK(!kill(n.pid, SIGKILL) && t_wait(n.pid) == -SIGKILL, "it lives");
	shows(0, 256 * MIB, 256 * MIB, 0);
	T_CHECK(clients() == 1, "%u clients", clients());
	return 0;
}

/* The quota that another member of the account asked for counts as long as that member exists. */
static int quota_of_a_member(void *unused)
{
	struct neighbour n = {.account = ACCOUNT, .quota = "512Mi"};

	(void)unused;
	shows(0, WHOLE, WHOLE, 0);
	comes(&n);
	shows(0, 512 * MIB, 412 * MIB, 100 * MIB);
	goes(&n);
	shows(0, WHOLE, WHOLE, 0);
	return 0;
}

static int account_of_its_own(void *unused)
{
	struct neighbour n = {.account = ACCOUNT};

	(void)unused;
	unsetenv("GPUARB_ACCOUNT");
	comes(&n);
	shows(0, 256 * MIB, 256 * MIB, 0);
	goes(&n);
	return 0;
}

/* Without a limit it is shown what the driver says, which includes other programs. */
static int no_limit(void *unused)
{
	struct neighbour n = {.account = "other", .quota = "256Mi"};

	(void)unused;
	shows(0, WHOLE, WHOLE, 0);
	comes(&n);
	shows(0, WHOLE, WHOLE - 100 * MIB, 100 * MIB);
	goes(&n);
	return 0;
}

static int disabled(void *unused)
{
	(void)unused;
	setenv("GPUARB_DISABLE", "1", 1);
	shows(0, WHOLE, WHOLE, 0);
	return 0;
}

static void run(const char *name, int (*fn)(void *), const char *quota)
{
	int r;

	t_dir_make(&sim, NULL);
	t_dir_make(&dir, "[account of-the-file]\nmem = 64Mi\n");
	setenv("GPUSIM_DIR", sim.path, 1);
	setenv("GPUSIM_CTX_MB", "0", 1);
	setenv("GPUSIM_DEVICES", "2", 1);
	setenv("GPUARB_DIR", dir.path, 1);
	setenv("GPUARB_CONF", dir.conf, 1);
	setenv("GPUARB_ACCOUNT", ACCOUNT, 1);
	if (quota)
		setenv("GPUARB_MEM_LIMIT", quota, 1);
	else
		unsetenv("GPUARB_MEM_LIMIT");
	r = t_run(fn, NULL, 60);
	t_dir_remove(&dir);
	t_dir_remove(&sim);
	T_CHECK(r == 0, "%s failed (%d)", name, r);
	printf("nvml only: %s\n", name);
}

int main(void)
{
	run("nobody there yet", nobody_there, "256Mi");
	run("what the account has", account_is_seen, "256Mi");
	run("what the dead had", dead_have_nothing, "256Mi");
	run("a quota that another member asked for", quota_of_a_member, NULL);
	run("an account of its own", account_of_its_own, "256Mi");
	run("no limit", no_limit, NULL);
	run("disabled", disabled, "256Mi");
	return 0;
}
