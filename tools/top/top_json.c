/* Writes all data as JSON. The schema is in gpuarb-top.1. */
#include <jansson.h>
#include <string.h>
#include <time.h>

#include "gpuarb/config.h"

#include "tools/top/top_out.h"
#include "tools/top/top_past.h"
#include "tools/top/top_text.h"
#include "tools/top/top_words.h"

static json_t *text(const char *from)
{
	char safe[512];

	return json_string(top_text_utf8(from, safe, sizeof(safe)));
}

static json_t *text_or_null(const char *from)
{
	return from && *from ? text(from) : json_null();
}

/* The library's integers are signed; a count that does not fit is garbage. */
static json_t *number(uint64_t value)
{
	return json_integer(value > INT64_MAX ? INT64_MAX : (json_int_t)value);
}

static json_t *number_or_null(uint64_t value)
{
	return value ? number(value) : json_null();
}

/* Rounds to a thousandth of a percent, which is enough and keeps the text short. */
static json_t *percent(double value)
{
	return json_real((double)(long long)(value * 1000 + 0.5) / 1000);
}

static json_t *share(const struct top_share *s)
{
	return s->known ? percent(100 * s->value) : json_null();
}

static json_t *measured(uint64_t in_set_ns, uint64_t estimated_ns)
{
	double value = top_measured_percent(in_set_ns, estimated_ns);

	return value < 0 ? json_null() : percent(value);
}

static json_t *elapsed_ms(uint64_t since_ns, uint64_t now_ns)
{
	return since_ns && since_ns < now_ns ? number((now_ns - since_ns) / 1000000) : json_null();
}

static void set(json_t *object, const char *key, json_t *value)
{
	json_object_set_new(object, key, value);
}

static json_t *list_of(const uint16_t *permille, unsigned count)
{
	json_t *list = json_array();

	for (unsigned i = 0; i < count; i++)
		json_array_append_new(list, percent(permille[i] / 10.0));
	return list;
}

static json_t *process(const struct top_gpu *g, unsigned i)
{
	const struct gpuarb_view_client *c = &g->picture->clients[i];
	uint64_t now = g->picture->now_ns;
	json_t *o = json_object(), *seen = json_object(), *past = json_object();

	set(o, "slot", number(c->slot));
	set(o, "generation", number(c->generation));
	set(o, "pid", number(c->pid));
	set(o, "host_pid", number_or_null(g->slot[c->slot].host_pid));
	set(o, "pid_namespace", number(c->pid_ns));
	set(o, "uid", number(c->uid));
	set(o, "command", text(c->command));
	set(o, "container", text_or_null(c->container));
	set(o, "state", json_string(top_state_name(g->client_state[i])));
	set(o, "share_percent", share(&g->client_share[i]));
	set(o, "priority", number(c->priority));
	set(o, "used_ns", number(c->used_ns));
	set(o, "throttled_ns", number(top_client_throttled_ns(g, c)));
	set(o, "waited_ns", number(c->waited_ns));
	set(o, "measured_percent", measured(c->in_set_ns, c->estimated_ns));
	set(o, "queue_position", number_or_null(c->queue_place));
	set(o, "waiting_ms", elapsed_ms(top_client_wait_since_ns(c), now));
	set(o, "admission_class", text_or_null(c->adm_class));
	set(o, "leases", number(c->adm_leases));
	set(o, "leases_granted", number(c->adm_granted));
	set(o, "leases_refused", number(c->adm_refused));
	set(o, "memory_bytes", number(c->mem_bytes));
	set(o, "memory_turn_ms", elapsed_ms(c->turn_since_ns, now));
	set(o, "enters", number(c->enters));
	set(o, "evictions", number(c->evictions));
	set(o, "restored", number(c->restored));
	set(o, "age_ms", elapsed_ms(c->joined_ns, now));
	set(o, "heartbeat_age_ms", elapsed_ms(c->heartbeat_ns, now));
	for (int k = 0; k < ARB_COUNTER_COUNT && k < ARB_COUNTERS; k++)
		set(k < ARB_COUNTER_PAST ? seen : past, top_words_counter_key(k), number(c->counter[k]));
	set(o, "calls_seen", seen);
	set(o, "routes_past", past);
	set(o, "calls_in_no_table", text_or_null(c->unknown));
	return o;
}

static json_t *account(const struct top_gpu *g, const struct top_account *a)
{
	json_t *o = json_object(), *memory = json_object(), *processes = json_array();

	set(o, "name", text(a->now.name));
	set(o, "state", json_string(top_state_name(a->state)));
	set(o, "active", json_boolean(a->now.active));
	set(o, "limit_percent", percent(a->now.limit_ppm / 1e4));
	set(o, "effective_percent", percent(a->now.quota_ppm / 1e4));
	set(o, "request_percent", percent(a->now.request_ppm / 1e4));
	set(o, "weight", number(a->now.weight));
	set(o, "share_1s_percent", share(&a->share[0]));
	set(o, "share_10s_percent", share(&a->share[1]));
	set(o, "share_60s_percent", share(&a->share[2]));
	set(o, "history_percent", list_of(a->spark, a->spark_count));
	set(o, "used_ns", number(a->now.used_ns));
	set(o, "window_used_ns", number(a->now.window_ns));
	set(o, "window_left_ns", number(a->now.left_ns));
	set(o, "debt_ns", number(a->now.debt_ns));
	set(o, "borrowed_ns", number(a->now.borrowed_ns));
	set(o, "restored", number(a->now.restored));
	set(o, "throttled_ns", number(a->throttled_ns));
	set(o, "waited_ns", number(a->waited_ns));
	set(o, "measured_percent", measured(a->in_set_ns, a->estimated_ns));
	set(o, "queue_position", number_or_null(a->queue_place));
	set(o, "waiting_ms", elapsed_ms(a->wait_since_ns, g->picture->now_ns));
	set(o, "priority", number(a->priority));
	set(memory, "used_bytes", number(a->now.mem_used));
	set(memory, "peak_bytes", number(a->now.mem_peak));
	set(memory, "quota_bytes", number_or_null(a->now.mem_limit));
	set(memory, "promised_bytes", number(a->now.mem_promised));
	set(o, "memory", memory);
	for (unsigned i = 0; i < g->picture->nclients; i++)
		if (top_gpu_owner(g, &g->picture->clients[i]) == a)
			json_array_append_new(processes, process(g, i));
	set(o, "processes", processes);
	return o;
}

static json_t *settings(const struct gpuarb_picture *p)
{
	json_t *o = json_object();
	char value[64];

	for (int key = 0; key < ARB_KEY_COUNT; key++)
		if (gpuarb_keys[key].scope == ARB_SCOPE_GPU)
			set(o, gpuarb_keys[key].name, text(top_words_choice(p, key, value, sizeof(value))));
	return o;
}

static json_t *events(const struct top_gpu *g, const struct top_past *past)
{
	uint64_t first = g->nevents > TOP_EVENTS ? g->nevents - TOP_EVENTS : 0;
	json_t *list = json_array();
	char words[256];

	for (uint64_t k = first; k < g->nevents; k++) {
		const struct top_event *e = &g->events[k % TOP_EVENTS];
		json_t *o;

		if (!top_past_wants(g, past, e))
			continue;
		o = json_object();
		set(o, "time_unix_ns", number(e->e.time_ns + g->real_minus_mono_ns));
		set(o, "kind", json_string(e->e.name ? e->e.name : "unknown"));
		set(o, "account", text_or_null(e->account));
		set(o, "slot", number(e->e.slot));
		set(o, "generation", number(e->e.generation));
		set(o, "a", number(e->e.a));
		set(o, "b", number(e->e.b));
		set(o, "c", number(e->e.c));
		set(o, "why", number(e->e.why));
		set(o, "times", number(e->e.times));
		set(o, "text", text(top_words_event(g, e, words, sizeof(words))));
		json_array_append_new(list, o);
	}
	return list;
}

static json_t *memory_of(const struct gpuarb_picture *p)
{
	json_t *o = json_object(), *starts = json_array();

	set(o, "physical_bytes", number_or_null(p->mem_physical));
	set(o, "used_bytes", number(p->mem_used));
	set(o, "promised_bytes", number(p->mem_promised));
	set(o, "promise_most_bytes", number_or_null(p->mem_promise_most));
	set(o, "non_client_bytes", number(p->mem_foreign));
	set(o, "processes_waiting", number(p->nmem_waiting));
	set(o, "programs_waiting_to_start", number(p->npromises_waiting));
	for (unsigned i = 0; i < p->nstarts && i < GPUARB_VIEW_STARTS; i++) {
		json_t *one = json_object();

		set(one, "account", text(p->starts[i].account));
		set(one, "bytes", number(p->starts[i].bytes));
		set(one, "request_percent", percent(p->starts[i].request_pct));
		set(one, "waiting_ms", elapsed_ms(p->starts[i].since_ns, p->now_ns));
		json_array_append_new(starts, one);
	}
	set(o, "first_to_start", starts);
	return o;
}

static json_t *window_of(const struct gpuarb_picture *p)
{
	uint64_t into = p->now_ns > p->window_start_ns ? p->now_ns - p->window_start_ns : 0;
	json_t *o = json_object();

	set(o, "number", number(p->window_number));
	set(o, "length_ns", number(p->window_ns));
	set(o, "busy_ns", number(p->window_busy_ns));
	set(o, "left_ns", number(p->window_ns > into ? p->window_ns - into : 0));
	return o;
}

/* The first four fields are what a scheduler asks for; their names are older than this program. */
static void admission(json_t *o, const struct gpuarb_view_admission *a)
{
	static const char *const sources[] = {
		[ARB_SAMPLE_NONE] = "none", [ARB_SAMPLE_NVML] = "nvml", [ARB_SAMPLE_BUSY] = "busy"};
	json_t *details = json_object(), *classes = json_array();

	set(o, "gpu_admission_state", json_string(a->high_pressure ? "HIGH_PRESSURE" : "NORMAL"));
	set(o, "gpu_usage", a->usage_known ? percent(a->usage_hundredths / 100.0) : json_null());
	set(o, "gpu_usage_cache_age_ms", a->sampled ? number(a->sample_age_ns / 1000000) : json_null());
	set(o, "gpu_queue_len", number(a->queue_len));
	set(details, "usage_source", json_string(a->source <= ARB_SAMPLE_BUSY ? sources[a->source] : "none"));
	set(details, "high_water_percent", number(a->high_water));
	set(details, "low_water_percent", number(a->low_water));
	set(details, "boosted", json_boolean(a->boost_until_ns != 0));
	set(details, "leases", number(a->leases));
	for (unsigned i = 0; i < a->nclasses && i < ARB_CLASSES; i++) {
		const struct gpuarb_view_class *c = &a->classes[i];
		json_t *class = json_object();

		set(class, "name", text(c->name));
		set(class, "priority", number(c->priority));
		set(class, "skip", json_boolean(c->skip));
		set(class, "pass", json_boolean(c->pass));
		set(class, "max_wait_ms", number(c->max_wait_ms));
		set(class, "queue_limit", number_or_null(c->queue_limit));
		set(class, "waiting", number(c->waiting));
		json_array_append_new(classes, class);
	}
	set(details, "classes", classes);
	set(o, "admission", details);
}

static json_t *bytes_or_null(bool known, uint64_t bytes)
{
	return known && bytes != NVML_BYTES_UNKNOWN ? number(bytes) : json_null();
}

static json_t *device(const struct top_gpu *g)
{
	const struct nonclients *n = &g->others;
	json_t *o = json_object();

	set(o, "memory_total_bytes", bytes_or_null(n->memory_known, n->total));
	set(o, "memory_used_bytes", bytes_or_null(n->memory_known, n->used));
	set(o, "utilisation_percent", n->utilisation_known ? number(n->utilisation_pct) : json_null());
	set(o, "not_billed_10s_percent", share(&g->unbilled));
	return o;
}

static json_t *non_clients(const struct nonclients *n)
{
	static const char *const by[] = {
		[NONCLIENTS_BY_PROCESS] = "processes", [NONCLIENTS_BY_DIFFERENCE] = "difference"};
	json_t *o = json_object(), *list = json_array();

	set(o, "counted_by", n->by ? json_string(by[n->by]) : json_null());
	set(o, "memory_bytes", bytes_or_null(n->by, n->bytes));
	set(o, "processes", n->by == NONCLIENTS_BY_PROCESS ? number(n->count) : json_null());
	for (unsigned i = 0; i < n->nlisted; i++) {
		json_t *one = json_object();

		set(one, "pid", number(n->list[i].pid));
		set(one, "command", text_or_null(n->list[i].command));
		set(one, "memory_bytes", bytes_or_null(true, n->list[i].bytes));
		json_array_append_new(list, one);
	}
	set(o, "largest", list);
	return o;
}

static json_t *gpu(const struct top_gpu *g, const struct top_past *past)
{
	const struct gpuarb_picture *p = g->picture;
	json_t *o = json_object(), *accounts = json_array();

	set(o, "uuid", text(p->uuid));
	set(o, "index", text_or_null(g->index));
	set(o, "name", text_or_null(g->name));
	set(o, "time_unix_ns", number(p->now_ns + g->real_minus_mono_ns));
	set(o, "consistent", json_boolean(p->consistent));
	admission(o, &p->admission);
	set(o, "waiting", number(p->nwaiting));
	set(o, "busy_1s_percent", share(&g->share[0]));
	set(o, "busy_10s_percent", share(&g->share[1]));
	set(o, "busy_60s_percent", share(&g->share[2]));
	set(o, "history_percent", list_of(g->history.permille, g->history.count));
	set(o, "busy_ns", number(p->busy_ns));
	set(o, "billed_ns", number(p->billed_ns));
	set(o, "window", window_of(p));
	set(o, "limits_sum_percent", percent((double)top_gpu_limits_ppm(g) / 1e4));
	set(o, "requests_sum_percent", percent(p->requests_pct));
	set(o, "slots", number(p->nslots));
	set(o, "slots_reclaimed", number(p->reclaimed));
	set(o, "processes", number(p->nclients - p->ndead));
	set(o, "running", number(p->nrunning));
	set(o, "memory", memory_of(p));
	set(o, "device", device(g));
	set(o, "non_clients", non_clients(&g->others));
	set(o, "settings", settings(p));
	for (unsigned i = 0; i < g->naccounts; i++)
		if (g->accounts[i]->present)
			json_array_append_new(accounts, account(g, g->accounts[i]));
	set(o, "accounts", accounts);
	if (past)
		set(o, "events", events(g, past));
	return o;
}

bool top_out_json(
	struct top_gpu *const *gpus, unsigned ngpus, bool compact, const struct top_past *past, FILE *to)
{
	json_t *root = json_object(), *list = json_array();
	int r;

	set(root, "schema", json_string("gpuarb-top"));
	set(root, "schema_version", json_integer(TOP_JSON_VERSION));
	for (unsigned i = 0; i < ngpus; i++)
		if (gpus[i]->picture)
			json_array_append_new(list, gpu(gpus[i], past));
	set(root, "gpus", list);
	/* The output is ASCII only, so no name can act on a terminal. */
	r = json_dumpf(root, to,
		JSON_ENSURE_ASCII | JSON_REAL_PRECISION(9) | (compact ? JSON_COMPACT : JSON_INDENT(2)));
	json_decref(root);
	fputc('\n', to);
	return r == 0;
}
