/* Writes all data in the Prometheus text format: each family once, with its help, type and all its samples. */
#include <inttypes.h>
#include <string.h>

#include "gpuarb/config.h"

#include "tools/top/top_out.h"
#include "tools/top/top_text.h"
#include "tools/top/top_words.h"

struct out {
	FILE *to;
	struct top_gpu *const *gpus;
	unsigned ngpus;
};

/* Writes the text of a label. Bad bytes are '?' already; backslash and quote get a backslash. */
static void label(FILE *to, const char *name, const char *value, bool first)
{
	char safe[512];

	fprintf(to, "%s%s=\"", first ? "" : ",", name);
	top_text_safe(value, safe, sizeof(safe));
	for (const char *c = safe; *c; c++) {
		if (*c == '"' || *c == '\\')
			fputc('\\', to);
		fputc(*c, to);
	}
	fputc('"', to);
}

static void seconds(FILE *to, uint64_t ns)
{
	fprintf(to, "%" PRIu64 ".%09u", ns / 1000000000u, (unsigned)(ns % 1000000000u));
}

static void family(FILE *to, const char *name, const char *type, const char *help)
{
	fprintf(to, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

/* The values of a GPU. */

enum unit { COUNT, SECONDS, PPM, FLAG };

static void value_of(FILE *to, enum unit unit, uint64_t value)
{
	if (unit == SECONDS)
		seconds(to, value);
	else if (unit == PPM)
		fprintf(to, "%.6f", (double)value / 1e6);
	else
		fprintf(to, "%" PRIu64, value);
	fputc('\n', to);
}

typedef bool gpu_value(const struct top_gpu *g, uint64_t *value);

#define GPU_VALUE(function, known, expression)                                                               \
	static bool function(const struct top_gpu *g, uint64_t *value)                                       \
	{                                                                                                    \
		const struct gpuarb_picture *p = g->picture;                                                 \
                                                                                                             \
		(void)p;                                                                                     \
		*value = (expression);                                                                       \
		return known;                                                                                \
	}

GPU_VALUE(gpu_busy, true, p->busy_ns)
GPU_VALUE(gpu_billed, true, p->billed_ns)
GPU_VALUE(gpu_window, true, p->window_ns)
GPU_VALUE(gpu_running, true, p->nrunning)
GPU_VALUE(gpu_waiting, true, p->nwaiting)
GPU_VALUE(gpu_clients, true, p->nclients - p->ndead)
GPU_VALUE(gpu_slots, true, p->nslots)
GPU_VALUE(gpu_reclaimed, true, p->reclaimed)
GPU_VALUE(gpu_limits, true, top_gpu_limits_ppm(g))
GPU_VALUE(gpu_mem_physical, p->mem_physical != 0, p->mem_physical)
GPU_VALUE(gpu_mem_used, true, p->mem_used)
GPU_VALUE(gpu_mem_promised, true, p->mem_promised)
GPU_VALUE(gpu_mem_most, p->mem_promise_most != 0, p->mem_promise_most)
GPU_VALUE(gpu_mem_waiting, true, p->nmem_waiting)
GPU_VALUE(gpu_requests, true, (uint64_t)p->requests_pct * 10000)
GPU_VALUE(gpu_start_waiting, true, p->npromises_waiting)
GPU_VALUE(gpu_device_total, g->others.memory_known, g->others.total)
GPU_VALUE(gpu_device_used, g->others.memory_known, g->others.used)
GPU_VALUE(gpu_device_utilisation, g->others.utilisation_known, (uint64_t)g->others.utilisation_pct * 10000)
GPU_VALUE(gpu_unbilled, g->unbilled.known, (uint64_t)(g->unbilled.value * 1e6))
GPU_VALUE(gpu_others_memory, g->others.by != NONCLIENTS_UNKNOWN, g->others.bytes)
GPU_VALUE(gpu_others, g->others.by == NONCLIENTS_BY_PROCESS, g->others.count)
GPU_VALUE(gpu_queue, true, p->admission.queue_len)
GPU_VALUE(gpu_leases, true, p->admission.leases)
GPU_VALUE(gpu_usage, p->admission.usage_known, (uint64_t)p->admission.usage_hundredths * 100)
GPU_VALUE(gpu_usage_age, p->admission.sampled, p->admission.sample_age_ns)
GPU_VALUE(gpu_pressure, true, p->admission.high_pressure)
GPU_VALUE(gpu_high_water, true, (uint64_t)p->admission.high_water * 10000)
GPU_VALUE(gpu_low_water, true, (uint64_t)p->admission.low_water * 10000)

static const struct {
	const char *name, *type, *help;
	enum unit unit;
	gpu_value *value;
} gpu_families[] = {
	{"gpuarb_gpu_busy_seconds_total", "counter", "Time during which at least one client ran.", SECONDS,
		gpu_busy},
	{"gpuarb_gpu_billed_seconds_total", "counter", "All bills together; the same as the busy time.",
		SECONDS, gpu_billed},
	{"gpuarb_gpu_window_seconds", "gauge", "Length of the window in which limits hold.", SECONDS,
		gpu_window},
	{"gpuarb_gpu_running_processes", "gauge", "Processes in the running set.", COUNT, gpu_running},
	{"gpuarb_gpu_waiting_processes", "gauge", "Processes that wait for their turn in the running set.",
		COUNT, gpu_waiting},
	{"gpuarb_gpu_processes", "gauge", "Processes that have joined.", COUNT, gpu_clients},
	{"gpuarb_gpu_slots", "gauge", "Processes that can be clients at the same time.", COUNT, gpu_slots},
	{"gpuarb_gpu_reclaimed_slots_total", "counter", "Slots cleaned up behind processes that died.", COUNT,
		gpu_reclaimed},
	{"gpuarb_gpu_active_limits_ratio", "gauge",
		"Limits of the active accounts added up; above 1 they are scaled.", PPM, gpu_limits},
	{"gpuarb_gpu_memory_physical_bytes", "gauge", "Memory of the GPU.", COUNT, gpu_mem_physical},
	{"gpuarb_gpu_memory_used_bytes", "gauge", "Memory that all accounts have allocated.", COUNT,
		gpu_mem_used},
	{"gpuarb_gpu_memory_promised_bytes", "gauge", "Memory that all quotas promise.", COUNT,
		gpu_mem_promised},
	{"gpuarb_gpu_memory_promise_limit_bytes", "gauge", "What they may add up to.", COUNT, gpu_mem_most},
	{"gpuarb_gpu_memory_waiting_processes", "gauge", "Processes that wait because of memory.", COUNT,
		gpu_mem_waiting},
	{"gpuarb_gpu_memory_waiting_programs", "gauge",
		"Programs that wait for a promise of memory or time to start.", COUNT, gpu_start_waiting},
	{"gpuarb_gpu_requests_ratio", "gauge",
		"Requests of all accounts added up, also of those without processes; at most 1.", PPM,
		gpu_requests},
	{"gpuarb_gpu_device_memory_bytes", "gauge", "Memory of the GPU, as NVML says.", COUNT,
		gpu_device_total},
	{"gpuarb_gpu_device_memory_used_bytes", "gauge",
		"Memory that is in use on the GPU, by clients or not, as NVML says.", COUNT, gpu_device_used},
	{"gpuarb_gpu_device_utilisation_ratio", "gauge",
		"Utilisation of the GPU, by clients or not, as NVML says.", PPM, gpu_device_utilisation},
	{"gpuarb_gpu_not_billed_ratio", "gauge",
		"Utilisation by NVML that no client was billed for, over ten seconds; known while somebody watches.",
		PPM, gpu_unbilled},
	{"gpuarb_gpu_non_client_memory_bytes", "gauge",
		"Memory of processes that are no clients; by difference where pids cannot be compared.",
		COUNT, gpu_others_memory},
	{"gpuarb_gpu_non_client_processes", "gauge",
		"Processes on the GPU that are no clients; absent where pids cannot be compared.", COUNT,
		gpu_others},
	{"gpuarb_gpu_queue_length", "gauge", "Processes that wait to be admitted.", COUNT, gpu_queue},
	{"gpuarb_gpu_leases", "gauge", "Processes that hold an admission.", COUNT, gpu_leases},
	{"gpuarb_gpu_usage_ratio", "gauge", "Utilisation by which tasks are admitted.", PPM, gpu_usage},
	{"gpuarb_gpu_usage_age_seconds", "gauge", "Age of the utilisation's sample.", SECONDS, gpu_usage_age},
	{"gpuarb_gpu_high_pressure", "gauge", "Admission state: 1 under high pressure, 0 normal.", FLAG,
		gpu_pressure},
	{"gpuarb_gpu_high_water_ratio", "gauge", "Utilisation from which there is pressure.", PPM,
		gpu_high_water},
	{"gpuarb_gpu_low_water_ratio", "gauge", "Utilisation at which the pressure is over.", PPM,
		gpu_low_water},
};

static void gpu_metrics(const struct out *o)
{
	char policy[64], billing[64];

	family(o->to, "gpuarb_gpu_info", "gauge", "What the GPU is called and by which rules it is shared.");
	for (unsigned i = 0; i < o->ngpus; i++) {
		const struct gpuarb_picture *p = o->gpus[i]->picture;

		if (!p)
			continue;
		fputs("gpuarb_gpu_info{", o->to);
		label(o->to, "gpu", p->uuid, true);
		label(o->to, "index", o->gpus[i]->index, false);
		label(o->to, "name", o->gpus[i]->name, false);
		label(o->to, "policy", top_words_choice(p, ARB_KEY_POLICY, policy, sizeof(policy)), false);
		label(o->to, "billing", top_words_choice(p, ARB_KEY_BILLING, billing, sizeof(billing)),
			false);
		fputs("} 1\n", o->to);
	}
	for (size_t f = 0; f < sizeof(gpu_families) / sizeof(gpu_families[0]); f++) {
		family(o->to, gpu_families[f].name, gpu_families[f].type, gpu_families[f].help);
		for (unsigned i = 0; i < o->ngpus; i++) {
			uint64_t value;

			if (!o->gpus[i]->picture || !gpu_families[f].value(o->gpus[i], &value))
				continue;
			fprintf(o->to, "%s{", gpu_families[f].name);
			label(o->to, "gpu", o->gpus[i]->picture->uuid, true);
			fputs("} ", o->to);
			value_of(o->to, gpu_families[f].unit, value);
		}
	}
	family(o->to, "gpuarb_gpu_conservation_error_seconds", "gauge",
		"Bills minus busy time; anything but 0 is a defect. Absent while the segment never stood "
		"still.");
	for (unsigned i = 0; i < o->ngpus; i++) {
		const struct gpuarb_picture *p = o->gpus[i]->picture;

		if (!p || !p->consistent)
			continue;
		fputs("gpuarb_gpu_conservation_error_seconds{", o->to);
		label(o->to, "gpu", p->uuid, true);
		fprintf(o->to, "} %.9g\n", (double)(int64_t)(p->billed_ns - p->busy_ns) / 1e9);
	}
}

/* The values of an account. */

typedef bool account_value(const struct top_account *a, uint64_t *value);

#define ACCOUNT_VALUE(function, known, expression)                                                           \
	static bool function(const struct top_account *a, uint64_t *value)                                   \
	{                                                                                                    \
		*value = (expression);                                                                       \
		return known;                                                                                \
	}

ACCOUNT_VALUE(account_limit, true, a->now.limit_ppm)
ACCOUNT_VALUE(account_quota, true, a->now.quota_ppm)
ACCOUNT_VALUE(account_request, true, a->now.request_ppm)
ACCOUNT_VALUE(account_weight, true, a->now.weight)
ACCOUNT_VALUE(account_priority, a->processes != 0, a->priority)
ACCOUNT_VALUE(account_billed, true, a->now.used_ns)
ACCOUNT_VALUE(account_borrowed, true, a->now.borrowed_ns)
ACCOUNT_VALUE(account_debt, true, a->now.debt_ns)
ACCOUNT_VALUE(account_active, true, a->now.active)
ACCOUNT_VALUE(account_mem_used, true, a->now.mem_used)
ACCOUNT_VALUE(account_mem_peak, true, a->now.mem_peak)
ACCOUNT_VALUE(account_mem_limit, a->now.mem_limit != 0, a->now.mem_limit)
ACCOUNT_VALUE(account_restored, true, a->now.restored)
ACCOUNT_VALUE(account_processes, true, a->processes)
ACCOUNT_VALUE(account_running, true, a->running)
ACCOUNT_VALUE(account_waiting, true, a->waiting)
ACCOUNT_VALUE(account_place, a->queue_place != 0, a->queue_place)

static const struct {
	const char *name, *type, *help;
	enum unit unit;
	account_value *value;
} account_families[] = {
	{"gpuarb_account_limit_ratio", "gauge", "Share of the GPU's time that it may use; 1 is no limit.",
		PPM, account_limit},
	{"gpuarb_account_request_ratio", "gauge",
		"Share of the GPU's time that it gets whenever it has work; 0 is none.", PPM,
		account_request},
	{"gpuarb_account_weight", "gauge", "How much it counts where the rest is divided.", COUNT,
		account_weight},
	{"gpuarb_account_priority", "gauge",
		"The highest priority of its processes: those below stop while it has work; absent if it has none.",
		COUNT, account_priority},
	{"gpuarb_account_quota_ratio", "gauge",
		"The effective quota: the limit after scaling, or by requests and weights.", PPM,
		account_quota},
	{"gpuarb_account_billed_seconds_total", "counter", "GPU time billed to the account.", SECONDS,
		account_billed},
	{"gpuarb_account_borrowed_seconds_total", "counter",
		"What of that went beyond its quota without debt.", SECONDS, account_borrowed},
	{"gpuarb_account_debt_seconds", "gauge", "What it has used beyond its quota and owes.", SECONDS,
		account_debt},
	{"gpuarb_account_active", "gauge", "1 if it ran, waited or was refused in this window or the last.",
		FLAG, account_active},
	{"gpuarb_account_memory_used_bytes", "gauge", "Memory that it has allocated.", COUNT,
		account_mem_used},
	{"gpuarb_account_memory_peak_bytes", "gauge", "The most that it ever had.", COUNT, account_mem_peak},
	{"gpuarb_account_memory_limit_bytes", "gauge", "Its memory quota; absent if it has none.", COUNT,
		account_mem_limit},
	{"gpuarb_account_restored_total", "counter",
		"How often it had been written over while nobody used it, and was put right.", COUNT,
		account_restored},
	{"gpuarb_account_processes", "gauge", "Its processes.", COUNT, account_processes},
	{"gpuarb_account_running_processes", "gauge", "Those of them that run.", COUNT, account_running},
	{"gpuarb_account_waiting_processes", "gauge", "Those that wait for their turn.", COUNT,
		account_waiting},
	{"gpuarb_account_queue_position", "gauge", "Place of the first of those in the queue.", COUNT,
		account_place},
};

static void account_metrics(const struct out *o)
{
	for (size_t f = 0; f < sizeof(account_families) / sizeof(account_families[0]); f++) {
		family(o->to, account_families[f].name, account_families[f].type, account_families[f].help);
		for (unsigned i = 0; i < o->ngpus; i++)
			for (unsigned k = 0; k < o->gpus[i]->naccounts; k++) {
				const struct top_account *a = o->gpus[i]->accounts[k];
				uint64_t value;

				if (!a->present || !account_families[f].value(a, &value))
					continue;
				fprintf(o->to, "%s{", account_families[f].name);
				label(o->to, "gpu", o->gpus[i]->picture->uuid, true);
				label(o->to, "account", a->now.name, false);
				fputs("} ", o->to);
				value_of(o->to, account_families[f].unit, value);
			}
	}
}

/* The values of a process. The slot and the slot's generation tell it from all earlier processes, so that no counter
 * ever begins anew. */
static void process_labels(FILE *to, const struct top_gpu *g, const struct gpuarb_view_client *c)
{
	const struct top_account *a = top_gpu_owner(g, c);
	char id[32], pid[16], container[64];

	snprintf(id, sizeof(id), "%u.%u", c->slot, c->generation);
	snprintf(pid, sizeof(pid), "%u", c->pid);
	label(to, "gpu", g->picture->uuid, true);
	label(to, "account", a ? a->now.name : "", false);
	label(to, "process", id, false);
	label(to, "pid", pid, false);
	label(to, "command", c->command, false);
	label(to, "container", top_text_container(c->container, container, sizeof(container)), false);
}

static void process_family(const struct out *o, const char *name, const char *type, const char *help,
	enum unit unit, size_t offset)
{
	family(o->to, name, type, help);
	for (unsigned i = 0; i < o->ngpus; i++)
		for (unsigned k = 0; o->gpus[i]->picture && k < o->gpus[i]->picture->nclients; k++) {
			const struct gpuarb_view_client *c = &o->gpus[i]->picture->clients[k];

			fprintf(o->to, "%s{", name);
			process_labels(o->to, o->gpus[i], c);
			fputs("} ", o->to);
			value_of(o->to, unit, *(const uint64_t *)((const char *)c + offset));
		}
}

static void coverage(
	const struct out *o, const char *name, const char *tag, const char *help, int from, int to)
{
	family(o->to, name, "counter", help);
	for (unsigned i = 0; i < o->ngpus; i++)
		for (unsigned k = 0; o->gpus[i]->picture && k < o->gpus[i]->picture->nclients; k++)
			for (int n = from; n < to; n++) {
				const struct gpuarb_view_client *c = &o->gpus[i]->picture->clients[k];

				fprintf(o->to, "%s{", name);
				process_labels(o->to, o->gpus[i], c);
				label(o->to, tag, top_words_counter_key(n), false);
				fprintf(o->to, "} %" PRIu64 "\n", c->counter[n]);
			}
}

static void process_metrics(const struct out *o)
{
#define FIELD(name) offsetof(struct gpuarb_view_client, name)
	process_family(o, "gpuarb_process_billed_seconds_total", "counter", "GPU time billed to the process.",
		SECONDS, FIELD(used_ns));
	process_family(o, "gpuarb_process_throttled_seconds_total", "counter",
		"Time refused at its gate because the quota was used up.", SECONDS, FIELD(throttled_ns));
	process_family(o, "gpuarb_process_waited_seconds_total", "counter",
		"Time spent in the queue, or while others above it had work.", SECONDS, FIELD(waited_ns));
	process_family(o, "gpuarb_process_running_seconds_total", "counter",
		"Time in the running set, with work on the GPU.", SECONDS, FIELD(in_set_ns));
	process_family(o, "gpuarb_process_estimated_seconds_total", "counter",
		"Of that, what was estimated: no event of the GPU measured when its work ended.", SECONDS,
		FIELD(estimated_ns));
	process_family(o, "gpuarb_process_enters_total", "counter", "How often it entered the running set.",
		COUNT, FIELD(enters));
	process_family(o, "gpuarb_process_evictions_total", "counter",
		"How often it was taken out of the running set because it had stopped.", COUNT,
		FIELD(evictions));
	process_family(o, "gpuarb_process_restored_total", "counter",
		"How often it found words of its own in the segment written over, and put them right.", COUNT,
		FIELD(restored));
	process_family(o, "gpuarb_process_admitted_total", "counter", "Tasks of it that were admitted.",
		COUNT, FIELD(adm_granted));
	process_family(o, "gpuarb_process_refused_total", "counter",
		"Tasks of it that timed out or were skipped.", COUNT, FIELD(adm_refused));
	process_family(o, "gpuarb_process_memory_bytes", "gauge", "Memory that it has allocated.", COUNT,
		FIELD(mem_bytes));
#undef FIELD
	coverage(o, "gpuarb_process_calls_total", "class", "Calls of the program that gpuarb has seen.", 0,
		ARB_COUNTER_PAST);
	coverage(o, "gpuarb_process_bypasses_total", "route",
		"Ways around gpuarb that were noticed; if there are any, limits may not hold.",
		ARB_COUNTER_PAST, ARB_COUNTER_COUNT);
}

void top_out_prom(struct top_gpu *const *gpus, unsigned ngpus, FILE *to)
{
	struct out o = {to, gpus, ngpus};

	gpu_metrics(&o);
	account_metrics(&o);
	process_metrics(&o);
}
