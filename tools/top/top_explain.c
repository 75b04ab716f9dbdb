/* Says why an account does not get more, now and lately. */
#include <inttypes.h>
#include <string.h>

#include "gpuarb/config.h"
#include "gpuarb/control.h"

#include "tools/top/top_explain.h"
#include "tools/top/top_past.h"
#include "tools/top/top_text.h"
#include "tools/top/top_words.h"

#define LATELY_NS   10000000000ull
#define JUST_NOW_NS 1200000000ull
#define PROCESSES   8
#define LAST_LINES  5

static bool is_of(const struct story *s, const struct top_event *e)
{
	char name[2 * ARB_NAME_BYTES];

	return strcmp(top_text_safe(e->account, name, sizeof(name)), s->name) == 0;
}

/* Clocks of other processes may be ahead of ours. */
static uint64_t ago(const struct story *s, uint64_t time_ns)
{
	return s->picture->now_ns > time_ns ? s->picture->now_ns - time_ns : 0;
}

/* Returns the event k places back from the newest, or NULL. */
static const struct top_event *event_back(const struct top_gpu *g, uint64_t k)
{
	return k < g->nevents && k < TOP_EVENTS ? &g->events[(g->nevents - 1 - k) % TOP_EVENTS] : NULL;
}

static void say_state(const struct story *s)
{
	const struct top_account *a = s->account;
	char since[32], gpu[ARB_UUID_BYTES + 32];
	uint64_t now = s->picture->now_ns;

	fprintf(s->to, "%s on %s: ", s->name, top_gpu_text(s->gpu, gpu, sizeof(gpu)));
	if (!a || !a->processes) {
		fputs("none of its processes is there now.\n", s->to);
		return;
	}
	switch (a->state) {
	case TOP_RUNNING:
		fputs("it runs just now.\n", s->to);
		break;
	case TOP_THROTTLED:
		fputs("it is throttled: it has used what it may.\n", s->to);
		break;
	case TOP_WAITING:
		if (top_explain_above(s))
			break;
		/* fall through */
	case TOP_MEMORY:
	case TOP_PRESSURE:
		fprintf(s->to, "it waits%s%s%s.\n",
			a->state == TOP_MEMORY     ? " for memory on the GPU"
			: a->state == TOP_PRESSURE ? " until the GPU's utilisation falls"
						   : " for its turn",
			a->wait_since_ns && a->wait_since_ns < now ? ", since " : "",
			a->wait_since_ns && a->wait_since_ns < now
				? top_text_time(now - a->wait_since_ns, since, sizeof(since))
				: "");
		break;
	case TOP_EVICTED:
		fputs("it was stopped for so long that its place was taken.\n", s->to);
		break;
	case TOP_FROZEN:
		fputs("it is frozen by a checkpoint.\n", s->to);
		break;
	default:
		fputs("it has no work on the GPU just now.\n", s->to);
	}
}

/* Returns how long it will be until it may run again, by its record now. */
static uint64_t until_allowed_ns(const struct story *s)
{
	const struct gpuarb_picture *p = s->picture;
	uint64_t end = p->window_start_ns + p->window_ns, debt = s->account->now.debt_ns;
	uint64_t wait = end > p->now_ns ? end - p->now_ns : 0;
	uint64_t grant = gpuarb_view_grant_ns(p, &s->account->now);

	for (int i = 0; i < 100000 && grant; i++) {
		debt = debt / 100 * (uint64_t)p->setting[ARB_KEY_CARRYOVER_PERCENT];
		if (debt < grant)
			break;
		debt -= grant;
		wait += p->window_ns;
	}
	return wait;
}

static void say_window(const struct story *s)
{
	const struct gpuarb_view_account *a = &s->account->now;
	const struct gpuarb_picture *p = s->picture;
	uint64_t end = p->window_start_ns + p->window_ns, left = end > p->now_ns ? end - p->now_ns : 0;
	uint64_t wait, grant = gpuarb_view_grant_ns(p, a);
	char x[32], y[32], z[32];

	if (a->limit_ppm >= ARB_PPM)
		return;
	fprintf(s->to, "  This window of %s ends in %s. Of its %s the account has used",
		top_text_time(p->window_ns, x, sizeof(x)), top_text_time(left, y, sizeof(y)),
		top_text_time(grant, z, sizeof(z)));
	fprintf(s->to, " %s", top_text_time(a->window_ns, x, sizeof(x)));
	/* What it may use is less than the grant by what it owed when the window began. */
	if (a->window_ns + a->left_ns + grant / 50 < grant + a->debt_ns)
		fprintf(s->to, " (%s paid an older debt)",
			top_text_time(grant + a->debt_ns - a->window_ns - a->left_ns, y, sizeof(y)));
	fputs("; ", s->to);
	if (a->left_ns) {
		fprintf(s->to, "%s are left", top_text_time(a->left_ns, x, sizeof(x)));
		if (a->window_ns + a->left_ns > grant + grant / 50)
			fprintf(s->to,
				" (%s more than a window's, kept while it waited for its turn, or moved on "
				"while nobody else was short)",
				top_text_time(a->window_ns + a->left_ns - grant, y, sizeof(y)));
		fputs(".\n", s->to);
		return;
	}
	wait = until_allowed_ns(s);
	if (a->debt_ns)
		fprintf(s->to, "it owes %s, which the next windows take off. ",
			top_text_time(a->debt_ns, x, sizeof(x)));
	else
		fputs("nothing is left. ", s->to);
	fprintf(s->to, "It may go on in %s, at %s.\n", top_text_time(wait, y, sizeof(y)),
		top_text_clock(p->now_ns + wait + s->gpu->real_minus_mono_ns, z, sizeof(z)));
}

static void say_lately(const struct story *s)
{
	uint64_t held = 0, times = 0, longest = 0;
	const struct top_event *e, *refused = NULL;
	char x[32], y[32], words[256];

	for (uint64_t k = 0; (e = event_back(s->gpu, k)) != NULL; k++) {
		uint64_t age = ago(s, e->e.time_ns);

		if (!is_of(s, e))
			continue;
		if ((e->e.kind == ARB_EVENT_MEM_REFUSED || e->e.kind == ARB_EVENT_MEM_DRIVER) && !refused)
			refused = e;
		if (age > LATELY_NS)
			continue;
		times += e->e.kind == ARB_EVENT_THROTTLED;
		if (e->e.kind == ARB_EVENT_RESUMED)
			held += e->e.a;
		longest = age > longest ? age : longest;
	}
	if (times)
		fprintf(s->to, "  In the last %s it was throttled %" PRIu64 " time%s, for %s in all.\n",
			top_text_time(longest, x, sizeof(x)), times, times == 1 ? "" : "s",
			top_text_time(held, y, sizeof(y)));
	if (s->account && s->account->waited_ns)
		fprintf(s->to,
			"  Its processes have waited for %s in all, for their turns or for those above them.\n",
			top_text_time(s->account->waited_ns, x, sizeof(x)));
	if (refused)
		fprintf(s->to, "  Memory: %s ago it %s.\n",
			top_text_time(ago(s, refused->e.time_ns), x, sizeof(x)),
			top_words_event(s->gpu, refused, words, sizeof(words)));
}

static bool held_back_lately(const struct story *s)
{
	const struct top_event *e;

	for (uint64_t k = 0; (e = event_back(s->gpu, k)) != NULL; k++)
		if (is_of(s, e) && (e->e.kind == ARB_EVENT_THROTTLED || e->e.kind == ARB_EVENT_RESUMED))
			return e->e.time_ns + JUST_NOW_NS > s->picture->now_ns;
	return false;
}

static void say_shares(const struct story *s)
{
	const struct top_account *a = s->account;
	bool any = false;
	char text[16];

	for (int i = 0; i < TOP_SPANS; i++) {
		if (!a->share[i].known)
			continue;
		fprintf(s->to, "%s %s percent over %u s", any ? "," : "  It got",
			top_text_share(a->share[i].value, text, sizeof(text)), top_span_s[i]);
		any = true;
	}
	if (any)
		fprintf(s->to, "; the GPU was busy for %s percent of the last second.\n",
			top_text_share(s->gpu->share[0].value, text, sizeof(text)));
	if (a->in_set_ns && !a->estimated_ns)
		fputs("  All of its bill was measured by the GPU's events.\n", s->to);
	else if (a->in_set_ns)
		fprintf(s->to,
			"  %s percent of its bill was measured by the GPU's events; the rest is estimated.\n",
			top_text_share(top_measured_percent(a->in_set_ns, a->estimated_ns) / 100, text,
				sizeof(text)));
	/* It could get more, and nothing holds it back. */
	if (a->share[0].known && a->processes && a->state != TOP_THROTTLED && !a->waiting &&
		!a->admission_waiting && !held_back_lately(s) && a->now.left_ns && !a->now.debt_ns &&
		a->share[0].value * 1e6 < 0.9 * a->now.quota_ppm)
		fputs(s->gpu->share[0].value > 0.95 ? "  Its quota does not hold it back: the GPU was busy, "
						      "and others that run beside it had "
						      "the rest.\n"
						    : "  Nothing holds it back: it does not ask for more.\n",
			s->to);
}

/* Tells about tasks that asked for a lease before they began. */
static void say_admission(const struct story *s, const struct gpuarb_view_client *c)
{
	char since[32], class[64];

	if (c->adm_waiting)
		fprintf(s->to, "    waits to be admitted, class %s, since %s\n",
			top_text_safe(c->adm_class, class, sizeof(class)),
			top_text_time(ago(s, c->adm_since_ns), since, sizeof(since)));
	if (c->adm_granted || c->adm_refused)
		fprintf(s->to, "    tasks: %u admitted now, %" PRIu64 " ever, %" PRIu64 " refused\n",
			c->adm_leases, c->adm_granted, c->adm_refused);
}

static void say_queue(const struct story *s)
{
	const struct gpuarb_picture *p = s->picture;
	char policy[64], name[2 * ARB_NAME_BYTES];
	unsigned told = 0;

	if (!s->account->queue_place)
		return;
	fprintf(s->to, "  Queue: place %u of %u. Policy %s; running now:", s->account->queue_place,
		p->nwaiting, top_words_choice(p, ARB_KEY_POLICY, policy, sizeof(policy)));
	for (unsigned i = 0; i < p->nclients && told < 4; i++) {
		const struct top_account *owner = top_gpu_owner(s->gpu, &p->clients[i]);

		if (!p->clients[i].running)
			continue;
		fprintf(s->to, "%s %s (pid %u)", told ? "," : "",
			owner ? top_text_safe(owner->now.name, name, sizeof(name)) : "?", p->clients[i].pid);
		told++;
	}
	fprintf(s->to, "%s%s.\n", told ? "" : " nobody", p->nrunning > told ? " and others" : "");
}

static void say_memory(const struct story *s)
{
	const struct gpuarb_view_account *a = &s->account->now;
	const struct gpuarb_picture *p = s->picture;
	char x[32], y[32], z[32];

	fprintf(s->to, "  Memory: %s in use", top_text_bytes(a->mem_used, x, sizeof(x)));
	if (a->mem_limit)
		fprintf(s->to, " of a quota of %s (%s)", top_text_bytes(a->mem_limit, y, sizeof(y)),
			s->origin->mem_set ? "set by an administrator" : "as its program asked");
	fprintf(s->to, ", at most %s so far.\n", top_text_bytes(a->mem_peak, z, sizeof(z)));
	if (s->account->state == TOP_MEMORY && p->mem_physical)
		fprintf(s->to,
			"  The GPU has %s, of which all accounts use %s; those that do not fit together take "
			"turns.\n",
			top_text_bytes(p->mem_physical, x, sizeof(x)),
			top_text_bytes(p->mem_used, y, sizeof(y)));
	if (s->account->state == TOP_MEMORY && s->gpu->others.by && s->gpu->others.bytes)
		fprintf(s->to, "  Processes that are no clients have %s%s of it.\n",
			s->gpu->others.by == NONCLIENTS_BY_DIFFERENCE ? "about " : "",
			top_text_bytes(s->gpu->others.bytes, x, sizeof(x)));
}

static void say_pressure(const struct story *s)
{
	const struct gpuarb_view_admission *a = &s->picture->admission;

	if (!a->high_pressure)
		return;
	if (a->usage_known)
		fprintf(s->to,
			"  Admission: HIGH_PRESSURE, utilisation %u.%u percent (high water %u, low water "
			"%u): "
			"tasks of low classes are refused, others wait.\n",
			a->usage_hundredths / 100, a->usage_hundredths % 100 / 10, a->high_water,
			a->low_water);
	else
		fputs("  Admission: HIGH_PRESSURE, because the utilisation is not known.\n", s->to);
}

/* Helps with "the limit does not work": what was seen of the program, and what may have gone past gpuarb. */
static void say_coverage(const struct story *s, const struct gpuarb_view_client *c)
{
	char names[2 * ARB_UNKNOWN_BYTES];
	bool any = false, past = false;

	for (int k = 0; k < ARB_COUNTER_PAST; k++) {
		if (!c->counter[k])
			continue;
		fprintf(s->to, "%s %" PRIu64 " %s", any ? "," : "    seen:", c->counter[k],
			top_words_counter_text(k));
		any = true;
	}
	fputs(any ? "\n" : "    seen: none of its calls yet\n", s->to);
	for (int k = ARB_COUNTER_PAST; k < ARB_COUNTER_COUNT; k++) {
		if (!c->counter[k])
			continue;
		fprintf(s->to, "%s %" PRIu64 " %s", past ? "," : "    may go past gpuarb:", c->counter[k],
			top_words_counter_text(k));
		past = true;
	}
	if (past)
		fputs("\n", s->to);
	if (c->unknown[0])
		fprintf(s->to, "    calls in no table: %s\n",
			top_text_safe(c->unknown, names, sizeof(names)));
}

static void say_processes(const struct story *s)
{
	char command[2 * ARB_COMMAND_BYTES], container[64], used[32], held[32], inside[32];
	unsigned told = 0, host;

	for (unsigned i = 0; i < s->picture->nclients; i++) {
		const struct gpuarb_view_client *c = &s->picture->clients[i];

		if (top_gpu_owner(s->gpu, c) != s->account || told++ >= PROCESSES)
			continue;
		top_text_container(c->container, container, sizeof(container));
		host = s->gpu->slot[c->slot].host_pid;
		*inside = '\0';
		if (host && host != c->pid)
			snprintf(inside, sizeof(inside), " (%u there)", c->pid);
		fprintf(s->to, "  pid %u%s %s%s%s: %s, used %s, throttled %s\n", host ? host : c->pid, inside,
			top_text_safe(c->command, command, sizeof(command)),
			*container ? " in container " : "", container,
			top_state_name(s->gpu->client_state[i]),
			top_text_time(c->used_ns, used, sizeof(used)),
			top_text_time(top_client_throttled_ns(s->gpu, c), held, sizeof(held)));
		say_admission(s, c);
		say_coverage(s, c);
	}
	if (told > PROCESSES)
		fprintf(s->to, "  and %u more processes\n", told - PROCESSES);
}

/* The program has not begun: it waits for memory or time that other accounts were promised. */
static void say_starts(const struct story *s)
{
	const struct gpuarb_picture *p = s->picture;
	char name[2 * ARB_NAME_BYTES], bytes[32], since[32], most[32], promised[32];

	for (unsigned i = 0; i < p->nstarts && i < GPUARB_VIEW_STARTS; i++) {
		const struct gpuarb_view_start *one = &p->starts[i];

		if (strcmp(top_text_safe(one->account, name, sizeof(name)), s->name) != 0)
			continue;
		fprintf(s->to, "  A program of it waits to start, since %s, place %u of %u:",
			top_text_time(ago(s, one->since_ns), since, sizeof(since)), i + 1,
			p->npromises_waiting);
		if (one->bytes)
			fprintf(s->to, " it needs %s, and %s of %s are promised",
				top_text_bytes(one->bytes, bytes, sizeof(bytes)),
				top_text_bytes(p->mem_promised, promised, sizeof(promised)),
				top_text_bytes(p->mem_promise_most, most, sizeof(most)));
		if (one->request_pct)
			fprintf(s->to, "%s it needs %u percent of the GPU's time, and %u of 100 are promised",
				one->bytes ? ";" : "", one->request_pct, p->requests_pct);
		fputs(".\n", s->to);
	}
}

void top_words_explain(
	const struct top_gpu *g, const char *account, const struct top_origin *origin, FILE *to)
{
	char name[2 * ARB_NAME_BYTES];
	struct top_account *found = top_gpu_account(g, account);
	struct story s = {g, g->picture, found && found->present ? found : NULL,
		top_text_safe(account, name, sizeof(name)), origin, to};

	say_state(&s);
	if (s.account) {
		top_explain_quota(&s);
		say_window(&s);
		say_shares(&s);
		say_queue(&s);
		say_pressure(&s);
		say_memory(&s);
	} else if (origin->core_set || origin->mem_set || origin->priority_set || origin->request_set ||
		   origin->weight_set) {
		fputs("  Limits set by an administrator wait for it: gpuarb-set --show.\n", to);
	}
	say_starts(&s);
	say_lately(&s);
	if (s.account)
		say_processes(&s);
	top_past_last(g, account, "Last events:", LAST_LINES, to);
}
