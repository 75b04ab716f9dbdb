#include "tools/top/top_model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "units.h"

#include "tools/top/top_text.h"

/* An account that comes back within this time keeps its history. */
#define REMEMBER_NS (120 * SECOND)
/* When a client leaves, a bill may shrink a little. If it shrinks by more than this, it is the bill of another
 * account. */
#define STEP_BACK_NS (2 * SECOND)

const unsigned top_span_s[TOP_SPANS] = {1, 10, 60};

const char *top_state_name(enum top_state state)
{
	static const char *const names[TOP_STATES] = {
		"gone", "idle", "running", "throttled", "waiting", "memory", "pressure", "evicted", "frozen"};

	return state < TOP_STATES ? names[state] : "?";
}

char *top_gpu_text(const struct top_gpu *g, char *to, size_t size)
{
	char uuid[ARB_UUID_BYTES], index[sizeof(g->index)];

	top_text_safe(g->picture->uuid, uuid, sizeof(uuid));
	top_text_safe(g->index, index, sizeof(index));
	snprintf(to, size, *index ? "%s (GPU %s)" : "%s", uuid, index);
	return to;
}

/* Returns the number of the last sample that is at least as old as `at_ns`; 0 if there is none. Samples count from 1.
 */
static uint64_t sample_at(const struct top_gpu *g, uint64_t at_ns)
{
	uint64_t oldest = g->samples > TOP_SAMPLES ? g->samples - TOP_SAMPLES + 1 : 1;
	uint64_t low = oldest, high = g->samples;

	if (!g->samples || g->at_ns[oldest % TOP_SAMPLES] > at_ns)
		return 0;
	while (low < high) {
		uint64_t middle = (low + high + 1) / 2;

		if (g->at_ns[middle % TOP_SAMPLES] <= at_ns)
			low = middle;
		else
			high = middle - 1;
	}
	return low;
}

/* Returns the counter at a moment between two samples; *known is false if there was no sample. */
static double value_at(
	const struct top_gpu *g, const uint64_t *values, uint64_t since, uint64_t at_ns, bool *known)
{
	uint64_t k = sample_at(g, at_ns), t0, t1;

	*known = k != 0;
	if (!k)
		return 0;
	/* There was a sample without the account, so it had used nothing yet. */
	if (k < since)
		return (double)values[since % TOP_SAMPLES];
	t0 = g->at_ns[k % TOP_SAMPLES];
	if (k == g->samples || t0 == at_ns)
		return (double)values[k % TOP_SAMPLES];
	t1 = g->at_ns[(k + 1) % TOP_SAMPLES];
	return (double)values[k % TOP_SAMPLES] +
	       ((double)values[(k + 1) % TOP_SAMPLES] - (double)values[k % TOP_SAMPLES]) *
		       (double)(at_ns - t0) / (double)(t1 - t0);
}

static void share_out(
	const struct top_gpu *g, const uint64_t *values, uint64_t since, struct top_share share[TOP_SPANS])
{
	uint64_t now = g->at_ns[g->samples % TOP_SAMPLES];
	uint64_t oldest = g->samples > TOP_SAMPLES ? g->samples - TOP_SAMPLES + 1 : 1;

	for (int i = 0; i < TOP_SPANS; i++) {
		uint64_t span = top_span_s[i] * SECOND, from = now > span ? now - span : 0, first;
		double then;

		/* Sleeps are not exact: a span that was watched for nearly as long counts as watched. */
		first = g->at_ns[oldest % TOP_SAMPLES];
		if (first > from && now - first >= span - span / 20)
			from = first;
		then = value_at(g, values, since, from, &share[i].known);
		share[i].value =
			share[i].known && now > from
				? ((double)values[g->samples % TOP_SAMPLES] - then) / (double)(now - from)
				: 0;
		if (share[i].value < 0)
			share[i].value = 0;
	}
}

static uint16_t permille(uint64_t used, uint64_t time)
{
	double value = time ? 1000.0 * (double)used / (double)time + 0.5 : 0;

	return value > 1000 ? 1000 : (uint16_t)value;
}

static void push(uint16_t *list, unsigned *count, unsigned most, uint16_t value)
{
	if (*count == most)
		memmove(list, list + 1, (most - 1) * sizeof(*list));
	else
		++*count;
	list[*count - 1] = value;
}

/* Ends a second of the history. */
static void close_bucket(struct top_gpu *g, const struct gpuarb_picture *p)
{
	uint64_t elapsed = p->now_ns - g->bucket_ns;

	if (g->bucket_ns && elapsed < SECOND - SECOND / 20)
		return;
	if (g->bucket_ns) {
		push(g->history.permille, &g->history.count, TOP_BUCKETS,
			permille(p->busy_now_ns - g->bucket_busy, elapsed));
		for (unsigned i = 0; i < g->naccounts; i++) {
			struct top_account *a = g->accounts[i];

			push(a->spark, &a->spark_count, TOP_SPARK,
				a->present && a->now.used_now_ns > a->bucket_used
					? permille(a->now.used_now_ns - a->bucket_used, elapsed)
					: 0);
		}
	}
	for (unsigned i = 0; i < g->naccounts; i++)
		g->accounts[i]->bucket_used = g->accounts[i]->now.used_now_ns;
	g->bucket_ns = p->now_ns;
	g->bucket_busy = p->busy_now_ns;
}

struct top_account *top_gpu_account(const struct top_gpu *g, const char *name)
{
	for (unsigned i = 0; i < g->naccounts; i++)
		if (strcmp(g->accounts[i]->now.name, name) == 0)
			return g->accounts[i];
	return NULL;
}

static struct top_account *add_account(struct top_gpu *g, const struct gpuarb_view_account *now)
{
	struct top_account *a = calloc(1, sizeof(*a));

	if (a && g->naccounts == g->room) {
		unsigned room = g->room ? 2 * g->room : 16;
		struct top_account **more = realloc(g->accounts, room * sizeof(*more));

		if (!more) {
			free(a);
			return NULL;
		}
		g->accounts = more;
		g->room = room;
	}
	if (!a)
		return NULL;
	a->now = *now;
	a->since = g->samples;
	a->bucket_used = now->used_now_ns;
	g->accounts[g->naccounts++] = a;
	return a;
}

static void forget(struct top_gpu *g, uint64_t now_ns)
{
	unsigned kept = 0;

	for (unsigned i = 0; i < g->naccounts; i++) {
		if (g->accounts[i]->present || now_ns - g->accounts[i]->seen_ns < REMEMBER_NS) {
			g->accounts[kept++] = g->accounts[i];
		} else {
			for (unsigned k = 0; k < 2 * ARB_SLOTS_MAX; k++)
				if (g->by_index[k] == g->accounts[i])
					g->by_index[k] = NULL;
			free(g->accounts[i]);
		}
	}
	g->naccounts = kept;
}

static bool take_accounts(struct top_gpu *g, const struct gpuarb_picture *p)
{
	for (unsigned i = 0; i < g->naccounts; i++)
		g->accounts[i]->present = false;
	for (unsigned i = 0; i < p->naccounts; i++) {
		const struct gpuarb_view_account *now = &p->accounts[i];
		struct top_account *a = g->by_index[now->index % (2 * ARB_SLOTS_MAX)];

		if (!a || strcmp(a->now.name, now->name) != 0)
			a = top_gpu_account(g, now->name);
		/* It has used less than before: this is a new account of that name, or another clock. */
		if (a && now->used_now_ns + STEP_BACK_NS < a->now.used_now_ns) {
			a->since = g->samples;
			a->bucket_used = now->used_now_ns;
		}
		if (!a)
			a = add_account(g, now);
		if (!a)
			return false;
		a->now = *now;
		a->present = true;
		a->seen_ns = p->now_ns;
		g->by_index[now->index % (2 * ARB_SLOTS_MAX)] = a;
	}
	for (unsigned i = 0; i < g->naccounts; i++)
		g->accounts[i]->used[g->samples % TOP_SAMPLES] = g->accounts[i]->now.used_now_ns;
	forget(g, p->now_ns);
	return true;
}

struct top_account *top_gpu_owner(const struct top_gpu *g, const struct gpuarb_view_client *c)
{
	return c->account < g->picture->naccounts
		       ? g->by_index[g->picture->accounts[c->account].index % (2 * ARB_SLOTS_MAX)]
		       : NULL;
}

/* Returns since when it has been refused for quota, by the events; 0: it is not, or the events are too old. */
static uint64_t throttled_since(const struct top_gpu *g, const struct gpuarb_view_client *c)
{
	return c->reason == ARB_REASON_QUOTA && !c->running && g->slot[c->slot].generation == c->generation
		       ? g->slot[c->slot].throttled_since_ns
		       : 0;
}

double top_measured_percent(uint64_t in_set_ns, uint64_t estimated_ns)
{
	if (!in_set_ns)
		return -1;
	/* The two values were read while both grew. */
	return estimated_ns < in_set_ns ? 100 - 100 * (double)estimated_ns / (double)in_set_ns : 0;
}

uint64_t top_client_throttled_ns(const struct top_gpu *g, const struct gpuarb_view_client *c)
{
	uint64_t since = throttled_since(g, c), now = g->picture->now_ns;

	return c->throttled_ns + (since && now > since ? now - since : 0);
}

uint64_t top_client_wait_since_ns(const struct gpuarb_view_client *c)
{
	return c->waiting && c->wait_since_ns ? c->wait_since_ns : c->adm_since_ns;
}

/* The reason stays in the slot after a wait was given up: it counts only while the client is at its gate. */
static enum top_state client_state(const struct top_gpu *g, const struct gpuarb_view_client *c)
{
	bool queued = c->waiting || c->adm_waiting;
	bool spent = c->account < g->picture->naccounts && !g->picture->accounts[c->account].left_ns;

	if (c->dead)
		return TOP_GONE;
	if (c->running)
		return TOP_RUNNING;
	if (c->evicted)
		return TOP_EVICTED;
	if (c->frozen != ARB_FROZEN_NOT)
		return TOP_FROZEN;
	if (c->reason == ARB_REASON_QUOTA && (queued || spent || throttled_since(g, c)))
		return TOP_THROTTLED;
	if (c->reason == ARB_REASON_MEMORY && queued)
		return TOP_MEMORY;
	if (c->reason == ARB_REASON_PRESSURE && queued)
		return TOP_PRESSURE;
	return queued ? TOP_WAITING : TOP_IDLE;
}

/* An account shows the state of its liveliest process. */
static int liveliness(enum top_state state)
{
	static const int order[TOP_STATES] = {[TOP_GONE] = 0,
		[TOP_IDLE] = 1,
		[TOP_FROZEN] = 2,
		[TOP_EVICTED] = 3,
		[TOP_PRESSURE] = 4,
		[TOP_MEMORY] = 5,
		[TOP_WAITING] = 6,
		[TOP_THROTTLED] = 7,
		[TOP_RUNNING] = 8};

	return order[state];
}

static void add_client(struct top_gpu *g, struct top_account *a, const struct gpuarb_view_client *c)
{
	enum top_state state = client_state(g, c);
	uint64_t since = top_client_wait_since_ns(c);

	if (liveliness(state) > liveliness(a->state))
		a->state = state;
	a->command = a->processes && a->command && strcmp(a->command, c->command) ? NULL : c->command;
	a->container =
		a->processes && a->container && strcmp(a->container, c->container) ? NULL : c->container;
	a->processes += !c->dead;
	a->running += c->running;
	a->waiting += c->waiting;
	if (c->priority > a->priority)
		a->priority = c->priority;
	if (c->queue_place && (!a->queue_place || c->queue_place < a->queue_place))
		a->queue_place = c->queue_place;
	if (since && (!a->wait_since_ns || since < a->wait_since_ns))
		a->wait_since_ns = since;
	a->admission_waiting += c->adm_waiting;
	a->throttled_ns += top_client_throttled_ns(g, c);
	a->waited_ns += c->waited_ns;
	a->in_set_ns += c->in_set_ns;
	a->estimated_ns += c->estimated_ns;
}

static void take_clients(struct top_gpu *g, const struct gpuarb_picture *p)
{
	for (unsigned i = 0; i < g->naccounts; i++) {
		struct top_account *a = g->accounts[i];

		a->state = TOP_GONE;
		a->processes = a->running = a->waiting = a->admission_waiting = a->queue_place = a->priority =
			0;
		a->throttled_ns = a->waited_ns = a->wait_since_ns = a->in_set_ns = a->estimated_ns = 0;
		a->command = a->container = NULL;
	}
	for (unsigned i = 0; i < p->nclients; i++) {
		const struct gpuarb_view_client *c = &p->clients[i];
		struct top_account *a = top_gpu_owner(g, c);

		if (c->slot >= ARB_SLOTS_MAX)
			continue;
		if (g->slot[c->slot].generation != c->generation) {
			memset(&g->slot[c->slot], 0, sizeof(g->slot[0]));
			g->slot[c->slot].generation = c->generation;
		}
		g->client_state[i] = client_state(g, c);
		g->client_share[i] = (struct top_share){0};
		if (g->slot[c->slot].at_ns && p->now_ns > g->slot[c->slot].at_ns)
			g->client_share[i] = (struct top_share){
				true, c->used_now_ns > g->slot[c->slot].used_ns
					      ? (double)(c->used_now_ns - g->slot[c->slot].used_ns) /
							(double)(p->now_ns - g->slot[c->slot].at_ns)
					      : 0};
		g->slot[c->slot].used_ns = c->used_now_ns;
		g->slot[c->slot].at_ns = p->now_ns;
		if (a)
			add_client(g, a, c);
	}
}

void top_gpu_event(struct top_gpu *g, const struct gpuarb_event *e, const char *account)
{
	struct top_event *to = &g->events[g->nevents++ % TOP_EVENTS];

	to->e = *e;
	strncpy(to->account, account, sizeof(to->account) - 1);
	to->account[sizeof(to->account) - 1] = '\0';
	if (e->slot >= ARB_SLOTS_MAX)
		return;
	if (g->slot[e->slot].generation != e->generation) {
		memset(&g->slot[e->slot], 0, sizeof(g->slot[0]));
		g->slot[e->slot].generation = e->generation;
	}
	if (e->kind == ARB_EVENT_THROTTLED)
		g->slot[e->slot].throttled_since_ns = e->time_ns;
	else if (e->kind == ARB_EVENT_RESUMED)
		g->slot[e->slot].throttled_since_ns = 0;
}

/* Compares the bills with the device: work that no launch causes, calls that are in no table, and programs that are
 * no clients show here. */
static void compare_with_device(struct top_gpu *g, uint64_t before_ns, uint64_t before)
{
	uint64_t now = g->at_ns[g->samples % TOP_SAMPLES];
	struct top_share device[TOP_SPANS];

	if (!g->others.utilisation_known || !before_ns)
		g->device_since_ns = g->others.utilisation_known ? now : 0;
	g->device[g->samples % TOP_SAMPLES] =
		before +
		(g->others.utilisation_known ? (now - before_ns) * g->others.utilisation_pct / 100 : 0);
	share_out(g, g->device, 0, device);
	g->unbilled.known = g->device_since_ns &&
			    now - g->device_since_ns >= TOP_UNBILLED_S * SECOND * 19 / 20 &&
			    device[1].known && g->share[1].known;
	g->unbilled.value = device[1].value > g->share[1].value ? device[1].value - g->share[1].value : 0;
}

bool top_gpu_update(struct top_gpu *g, const struct gpuarb_picture *p)
{
	uint64_t before_ns = g->at_ns[g->samples % TOP_SAMPLES], before = g->device[g->samples % TOP_SAMPLES];

	/* The newest sample is replaced until it is a tenth of a second later than the one before, so there is always
	 * room for a minute. */
	if (g->samples < 2 || g->at_ns[g->samples % TOP_SAMPLES] - g->at_ns[(g->samples - 1) % TOP_SAMPLES] >=
				      SECOND / 10 - SECOND / 200)
		g->samples++;
	g->at_ns[g->samples % TOP_SAMPLES] = p->now_ns;
	g->busy[g->samples % TOP_SAMPLES] = p->busy_now_ns;
	g->picture = p;
	if (!take_accounts(g, p))
		return false;
	take_clients(g, p);
	share_out(g, g->busy, 0, g->share);
	compare_with_device(g, before_ns, before);
	for (unsigned i = 0; i < g->naccounts; i++)
		share_out(g, g->accounts[i]->used, g->accounts[i]->since, g->accounts[i]->share);
	close_bucket(g, p);
	return true;
}

void top_gpu_clear(struct top_gpu *g)
{
	for (unsigned i = 0; i < g->naccounts; i++)
		free(g->accounts[i]);
	free(g->accounts);
	memset(g, 0, sizeof(*g));
}

uint64_t top_gpu_limits_ppm(const struct top_gpu *g)
{
	uint64_t sum = 0;

	for (unsigned i = 0; i < g->picture->naccounts; i++)
		if (g->picture->accounts[i].active && g->picture->accounts[i].limit_ppm < 1000000)
			sum += g->picture->accounts[i].limit_ppm;
	return sum;
}
