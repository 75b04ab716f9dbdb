#include "test/tools/top_world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpuarb/config.h"

const struct w_account w_busy[] = {
	{"web", 500000, 416666, 0.4, 0, 0, 3ull << 30, 4ull << 30, 2, "python3",
		"4f1e2d3c4b5a69788796a5b4c3d2e1f00f1e2d3c4b5a69788796a5b4c3d2e1f0", ARB_REASON_NONE, true,
		false, 0, 0, 0, 0},
	{"batch", 400000, 333333, 0.333, 0, 0, 600ull << 20, 0, 1, "ffmpeg", "", ARB_REASON_QUOTA, false,
		false, 0, 0, 0, 0},
	{"nightly-report-of-the-statistics-group", 300000, 250000, 0.1, 0, 0, 0, 0, 1, "hashcat", "",
		ARB_REASON_QUEUE, false, true, 1, 0, 0, 0},
	{"free", 1000000, 1000000, 0.05, 0, 0, 17, 0, 1, "a\x1b[31mb", "", ARB_REASON_NONE, false, false, 0,
		0, 0, 0},
	{"ev\x1b]0;il\x07\xff\"\\\n", 1000000, 1000000, 0, 0, 0, 0, 0, 1, "\xe6\x95\xb0\xe6\x8d\xae", "pod/x",
		ARB_REASON_NONE, false, false, 0, 0, 0, 0},
};
const unsigned w_busy_count = sizeof(w_busy) / sizeof(w_busy[0]);

const struct w_account w_shares[] = {
	{"infer", 1000000, 1000000, 0.1, 0, 0, 1ull << 30, 0, 1, "python3 serve.py", "", ARB_REASON_NONE,
		true, false, 0, 90, 0, 0},
	{"train", 600000, 600000, 0.5, 0, 0, 8ull << 30, 0, 1, "python3 train.py", "", ARB_REASON_ABOVE,
		false, true, 0, 10, 250000, 0},
	{"tune", 1000000, 400000, 0.3, 0, 0, 2ull << 30, 0, 1, "python3 tune.py", "", ARB_REASON_ABOVE, false,
		true, 0, 10, 0, 200},
};
const unsigned w_shares_count = sizeof(w_shares) / sizeof(w_shares[0]);

static double used_s(const struct w_account *a, double second)
{
	double from = a->from_s, to = a->to_s > 0 && a->to_s < second ? a->to_s : second;

	return to > from ? (to - from) * a->share : 0;
}

static void add_client(struct gpuarb_picture *p, const struct w_account *a, unsigned account, bool first)
{
	struct gpuarb_view_client *c = &p->clients[p->nclients];

	memset(c, 0, sizeof(*c));
	c->slot = p->nclients;
	c->generation = 7;
	c->pid = 4000 + p->nclients;
	c->account = account;
	c->priority = a->priority ? a->priority : 50;
	c->reason = a->reason;
	c->running = a->running && first;
	c->waiting = a->waiting && first;
	c->queue_place = first ? a->place : 0;
	c->wait_since_ns = c->waiting ? p->now_ns - 12000000 : 0;
	c->used_ns = c->used_now_ns = p->accounts[account].used_ns / a->clients;
	c->throttled_ns = a->reason == ARB_REASON_QUOTA ? 1500000000 : 0;
	c->in_set_ns = c->used_ns;
	c->estimated_ns = c->used_ns / 50;
	c->mem_bytes = a->mem_used / a->clients;
	c->joined_ns = W_START;
	c->adm_waiting = a->reason == ARB_REASON_PRESSURE;
	c->adm_since_ns = c->adm_waiting ? p->now_ns - 230000000 : 0;
	c->adm_granted = c->adm_waiting ? 9 : 0;
	c->adm_refused = c->adm_waiting ? 2 : 0;
	snprintf(c->adm_class, sizeof(c->adm_class), "%s", c->adm_waiting ? "repair" : "");
	c->counter[ARB_COUNTER_LAUNCHES] = 1200;
	c->counter[ARB_COUNTER_PAST_EXPORT_TABLE] = first && a->running ? 2 : 0;
	snprintf(c->unknown, sizeof(c->unknown), "%s", first && a->running ? "cuNew\x1b cuNewer" : "");
	snprintf(c->command, sizeof(c->command), "%s", a->command ? a->command : "");
	snprintf(c->container, sizeof(c->container), "%s", a->container ? a->container : "");
	p->nrunning += c->running;
	p->nwaiting += c->waiting;
	p->nclients++;
}

static void add_account(struct gpuarb_picture *p, const struct w_account *a, unsigned index, double second)
{
	struct gpuarb_view_account *to = &p->accounts[p->naccounts];
	uint64_t grant = (uint64_t)(a->quota_ppm / 1e6 * (double)p->window_ns);

	memset(to, 0, sizeof(*to));
	to->index = index;
	snprintf(to->name, sizeof(to->name), "%s", a->name);
	to->clients = a->clients;
	to->active = a->share > 0;
	to->limit_ppm = a->limit_ppm;
	to->quota_ppm = a->quota_ppm;
	to->request_ppm = a->request_ppm;
	to->weight = a->weight ? a->weight : 100;
	to->used_ns = to->used_now_ns = (uint64_t)(used_s(a, second) * 1e9);
	to->window_ns = a->reason == ARB_REASON_QUOTA ? grant + 2000000 : (uint64_t)(a->share * 60e6);
	to->debt_ns = a->reason == ARB_REASON_QUOTA ? 2000000 : 0;
	to->left_ns = to->debt_ns || to->window_ns > grant ? 0 : grant - to->window_ns;
	to->mem_used = a->mem_used;
	to->mem_peak = a->mem_used + a->mem_used / 4;
	to->mem_limit = a->mem_limit;
	p->naccounts++;
	for (unsigned i = 0; i < a->clients; i++)
		add_client(p, a, p->naccounts - 1, i == 0);
}

void w_picture(struct gpuarb_picture *p, const struct w_account *accounts, unsigned count, double second)
{
	memset(p, 0, offsetof(struct gpuarb_picture, clients));
	memset(&p->admission, 0, sizeof(p->admission));
	p->consistent = true;
	p->now_ns = W_START + (uint64_t)(second * 1e9 + 0.5);
	snprintf(p->uuid, sizeof(p->uuid), "GPU-5f2d7a10-0000-4000-8000-0123456789ab");
	p->nslots = 256;
	p->reserved_slot = -1;
	for (int key = 0; key < ARB_KEY_COUNT; key++)
		p->setting[key] = gpuarb_keys[key].initial;
	p->window_ns = 100000000;
	p->window_number = 1 + p->now_ns / p->window_ns;
	p->window_start_ns = p->now_ns - 60000000;
	p->mem_physical = 16ull << 30;
	p->mem_promise_most = p->mem_physical;
	p->naccounts = p->nclients = 0;
	for (unsigned i = 0; i < count; i++) {
		const struct w_account *a = &accounts[i];

		p->busy_ns += (uint64_t)(used_s(a, second) * 1e9);
		/* A client that has gone is not shown any more. */
		if (second >= a->from_s && (a->to_s <= 0 || second <= a->to_s)) {
			add_account(p, a, i, second);
			p->mem_used += a->mem_used;
			p->mem_promised += a->mem_limit;
			p->requests_pct += a->request_ppm / 10000;
		}
	}
	p->busy_now_ns = p->billed_ns = p->busy_ns;
	p->reclaimed = 3;
	p->admission.usage_known = p->admission.sampled = true;
	p->admission.usage_hundredths = 8830;
	p->admission.source = ARB_SAMPLE_NVML;
	p->admission.sample_age_ns = 400000000;
	p->admission.high_water = 85;
	p->admission.low_water = 78;
	p->admission.nclasses = 1;
	snprintf(p->admission.classes[0].name, sizeof(p->admission.classes[0].name), "repair");
	p->nstarts = p->npromises_waiting = 1;
	p->starts[0] = (struct gpuarb_view_start){.account = "starter",
		.bytes = 14ull << 30,
		.since_ns = p->now_ns - 5 * W_SECOND,
		.ticket = 1};
}

void w_run(struct top_gpu *g, const struct w_account *accounts, unsigned count, double from, double to,
	double step)
{
	static struct gpuarb_picture *pictures;

	if (!pictures)
		pictures = calloc(2, sizeof(*pictures));
	for (unsigned i = 0; from + i * step <= to + 1e-9; i++) {
		struct gpuarb_picture *next = &pictures[g->picture == pictures];

		w_picture(next, accounts, count, from + i * step);
		if (!top_gpu_update(g, next))
			abort();
	}
}

void w_event(struct top_gpu *g, unsigned kind, const char *account, unsigned slot, double second, uint64_t a,
	uint64_t b)
{
	struct gpuarb_event e = {.time_ns = W_START + (uint64_t)(second * 1e9),
		.name = "made-up",
		.kind = kind,
		.slot = slot,
		.generation = 7,
		.a = a,
		.b = b,
		.c = kind == ARB_EVENT_MEM_REFUSED ? 3ull << 30 : 0,
		.why = kind == ARB_EVENT_MEM_REFUSED ? ARB_REFUSAL_QUOTA : 0,
		.times = 1};

	top_gpu_event(g, &e, account);
}

struct top_gpu *w_busy_gpu(double seconds)
{
	struct top_gpu *g = calloc(1, sizeof(*g));

	snprintf(g->name, sizeof(g->name), "NVIDIA Imaginary 16GB");
	/* The clock shows 12:00:00 at the beginning. */
	g->real_minus_mono_ns = 1794830400 * W_SECOND - W_START;
	w_event(g, ARB_EVENT_JOINED, "web", 0, 0.25, 4000, 1000);
	w_event(g, ARB_EVENT_MEM_REFUSED, "web", 0, seconds - 3, 2ull << 30, 4ull << 30);
	w_event(g, ARB_EVENT_LIMIT_CHANGED, "batch", 2, seconds - 2.5, 300000, 400000);
	w_event(g, ARB_EVENT_RECLAIMED, "gone\x1b[2J", 9, seconds - 2, 16 * 1500000000ull, 1ull << 30);
	w_event(g, ARB_EVENT_THROTTLED, "batch", 2, seconds - 1.3, 0, 0);
	w_event(g, ARB_EVENT_RESUMED, "batch", 2, seconds - 1.2, 60000000, 0);
	w_event(g, ARB_EVENT_THROTTLED, "batch", 2, seconds - 0.02, 0,
		W_START + (uint64_t)((seconds + 0.04) * 1e9));
	w_run(g, w_busy, w_busy_count, 0, seconds, 1);
	return g;
}

struct top_gpu *w_shares_gpu(double seconds)
{
	struct top_gpu *g = calloc(1, sizeof(*g));

	g->real_minus_mono_ns = 1794830400 * W_SECOND - W_START;
	w_run(g, w_shares, w_shares_count, 0, seconds, 1);
	return g;
}

void w_others(struct top_gpu *g)
{
	snprintf(g->index, sizeof(g->index), "1:0");
	g->others = (struct nonclients){.memory_known = true,
		.utilisation_known = true,
		.total = 16ull << 30,
		.used = 15ull << 30,
		.utilisation_pct = 97,
		.by = NONCLIENTS_BY_PROCESS,
		.bytes = 9ull << 30,
		.count = 2,
		.nlisted = 2,
		.list = {{4711, 9ull << 30, "py\x1b[2Jthon"}, {12, NVML_BYTES_UNKNOWN, ""}}};
}

void w_free(struct top_gpu *g)
{
	top_gpu_clear(g);
	free(g);
}
