#include "test/world/program.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "test/sim/device/model.h"
#include "test/world/judge.h"

/* Settings of the GPU that each process reads from its own environment. They are copied from the environment in which
 * the world was started. */
static const char *const host_settings[] = {"GPUSIM_LAZY_US", "GPUSIM_CALLBACK_US", "GPUSIM_COST_LAUNCH_NS",
	"GPUSIM_COST_QUERY_NS", "GPUSIM_START_US", "CUDA_DEVICE_MAX_CONNECTIONS", "GPUSIM_WIDTH",
	"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"};

void program_set(struct program *p, const char *name, const char *value)
{
	p->environment[p->n++] = name;
	p->environment[p->n++] = value;
	p->environment[p->n] = NULL;
}

void program_prepare(struct program *p, const char *account, unsigned core_pct, const char *line)
{
	char *argv[40], copy[256], *rest, *words[4];
	int argc = 0, nwords = 0;

	memset(p, 0, sizeof(*p));
	snprintf(p->line, sizeof(p->line), "%s", line);
	snprintf(p->account, sizeof(p->account), "%s", account);
	snprintf(copy, sizeof(copy), "simload %s", line);
	/* GPUARB_NAME=VALUE among the options is a variable of the program's environment. */
	for (char *word = strtok_r(copy, " ", &rest); word && argc < 39; word = strtok_r(NULL, " ", &rest))
		if (!strncmp(word, "GPUARB_", 7) && strchr(word, '=') && nwords < 4)
			words[nwords++] = word;
		else
			argv[argc++] = word;
	argv[argc] = NULL;
	simload_parse(&p->load, argc, argv);
	p->load.library = "libcuda.so.1";
	p->load.kernel = NULL;
	if (p->load.lease) {
		snprintf(p->lease, sizeof(p->lease), "%s", p->load.lease);
		p->load.lease = p->lease;
	}
	if (p->load.processes > PROGRAM_PROCESSES)
		p->load.processes = PROGRAM_PROCESSES;
	if (p->load.ranks > p->load.processes)
		p->load.ranks = p->load.processes;
	if (!p->load.group)
		p->load.group = world.nprocesses + 1;
	p->load.pace = &p->pace;
	p->core_pct = core_pct;
	program_set(p, "GPUARB_DIR", WORLD_DIR);
	program_set(p, "GPUARB_CONF", "/dev/null");
	program_set(p, "GPUARB_ACCOUNT", p->account);
	program_set(p, "GPUARB_LOG", "off");
	program_set(p, "GPUSIM_SEED", "1");
	for (int i = 0; i < nwords; i++) {
		char *equals = strchr(words[i], '=');

		*equals = '\0';
		snprintf(p->words[i], sizeof(p->words[i]), "%s", words[i]);
		snprintf(p->values[i], sizeof(p->values[i]), "%s", equals + 1);
		program_set(p, p->words[i], p->values[i]);
	}
	for (size_t i = 0; i < sizeof(host_settings) / sizeof(host_settings[0]); i++)
		if (getenv(host_settings[i]))
			program_set(p, host_settings[i], getenv(host_settings[i]));
	if (core_pct) {
		snprintf(p->limit, sizeof(p->limit), "%u", core_pct);
		program_set(p, "GPUARB_CORE_LIMIT", p->limit);
	}
}

static void *run(void *argument)
{
	struct program *p = argument;
	unsigned i = 0;

	while (p->process[i] != world.current->process)
		i++;
	simload_run(&p->load, i, &p->result[i]);
	world_exit();
}

void program_start(struct program *p, uint64_t at_ns)
{
	p->started_ns = at_ns;
	for (unsigned i = 0; i < p->load.processes; i++) {
		p->process[i] = world_process_new(p->environment);
		p->process[i]->script = p;
		world_thread_new(p->process[i], "program", at_ns, run, p);
	}
}

/* Adds up what the program's processes got on one GPU. */
static void add_up(const struct program *p, int device, uint64_t *ns, uint64_t *kernels)
{
	static struct sim_process_state list[SIM_MAX_PROCS];
	int n = sim_snapshot(device, NULL, true, list, SIM_MAX_PROCS);

	for (unsigned k = 0; k < p->load.processes; k++)
		for (int j = 0; p->process[k] && j < n; j++)
			if (list[j].pid == (int)(1000 + p->process[k]->number)) {
				*ns += list[j].device_ns;
				*kernels += list[j].launches;
			}
}

uint64_t program_device_ns(const struct program *p)
{
	uint64_t ns = 0, kernels = 0;

	add_up(p, 0, &ns, &kernels);
	return ns;
}

uint64_t program_kernels(const struct program *p)
{
	uint64_t ns = 0, kernels = 0;

	for (int device = 0; device < sim_device_count(); device++)
		add_up(p, device, &ns, &kernels);
	return kernels;
}

static void *metronome(void *argument)
{
	while (!world.failed)
		world_sleep(WORLD_MS);
	return argument;
}

void program_metronome(const struct program *p)
{
	world_thread_new(world_process_new(p->environment), "metronome", world.now_ns, metronome, NULL);
}
