/* Says why an account has the quota that it has, and who stops for whom. */
#include <stdlib.h>

#include "gpuarb/config.h"

#include "tools/top/top_explain.h"
#include "tools/top/top_text.h"

#define ACCOUNTS         12
#define USUAL_PRIORITY   ((unsigned)gpuarb_keys[ARB_KEY_PRIORITY].initial)
#define BY_ADMINISTRATOR "set by an administrator (gpuarb-set)"

bool top_explain_above(const struct story *s)
{
	const struct gpuarb_picture *p = s->picture;
	const struct top_account *first = NULL;
	char name[2 * ARB_NAME_BYTES], text[16];
	bool above = false;

	for (unsigned i = 0; i < p->nclients; i++) {
		const struct gpuarb_view_client *c = &p->clients[i];
		const struct top_account *owner = top_gpu_owner(s->gpu, c);

		above |= owner == s->account && c->waiting && c->reason == ARB_REASON_ABOVE;
		if (owner && owner != s->account && c->running &&
			(owner->priority > s->account->priority || owner->now.request_ppm) &&
			(!first || owner->priority > first->priority))
			first = owner;
	}
	if (!above)
		return false;
	fputs("it waits while one above it has work", s->to);
	if (first && first->priority > s->account->priority)
		fprintf(s->to, ": %s, of priority %u", top_text_safe(first->now.name, name, sizeof(name)),
			first->priority);
	else if (first)
		fprintf(s->to, ": %s, within its request of %s percent",
			top_text_safe(first->now.name, name, sizeof(name)),
			top_text_ppm(first->now.request_ppm, text, sizeof(text)));
	fputs(".\n", s->to);
	return true;
}

/* Lists the accounts whose priority is higher, or lower, than this one's: "web 90, asr 80". *most: the highest of them. */
static unsigned list(const struct story *s, bool higher, unsigned *most, FILE *to)
{
	char name[2 * ARB_NAME_BYTES];
	unsigned n = 0;

	*most = 0;
	for (unsigned i = 0; i < s->gpu->naccounts; i++) {
		const struct top_account *other = s->gpu->accounts[i];

		if (!other->present || !other->processes ||
			(higher ? other->priority <= s->account->priority
				: other->priority >= s->account->priority))
			continue;
		*most = other->priority > *most ? other->priority : *most;
		if (n++ < ACCOUNTS)
			fprintf(to, "%s %s %u", n == 1 ? "" : ",",
				top_text_safe(other->now.name, name, sizeof(name)), other->priority);
	}
	if (n > ACCOUNTS)
		fprintf(to, " and %u more", n - ACCOUNTS);
	return n;
}

static void say_above(const struct story *s, const char *names)
{
	fprintf(s->to, " It launches nothing%s while one above it has work:%s.",
		s->account->now.request_ppm ? " beyond its request" : "", names);
	if (s->account->priority >= USUAL_PRIORITY)
		fprintf(s->to,
			" Its own is not below %u, so it does that for a second at most, unless an administrator "
			"has set theirs.",
			USUAL_PRIORITY);
}

static void say_below(const struct story *s, const char *names, unsigned highest)
{
	fprintf(s->to, " While it has work those below it launch nothing beyond their requests:%s.", names);
	if (highest >= USUAL_PRIORITY && !s->origin->priority_set)
		fprintf(s->to,
			" Those that are not below %u do that for a second at most, because no administrator has set "
			"its priority.",
			USUAL_PRIORITY);
}

static void say_priority(const struct story *s)
{
	char *names = NULL;
	size_t size, second;
	FILE *to = open_memstream(&names, &size);
	unsigned higher, lower, most;

	if (!to)
		return;
	higher = list(s, true, &most, to);
	fputc('\0', to);
	fflush(to);
	second = size;
	lower = list(s, false, &most, to);
	fclose(to);
	if (higher || lower)
		fprintf(s->to, "  Priority: %u, %s.", s->account->priority,
			s->origin->priority_set ? BY_ADMINISTRATOR
						: "as its program asked (gpuarb-run --priority, "
						  "GPUARB_PRIORITY), or by default");
	if (higher)
		say_above(s, names);
	if (lower)
		say_below(s, names + second, most);
	if (higher || lower)
		fputc('\n', s->to);
	free(names);
}

static void say_request(const struct story *s)
{
	const struct gpuarb_view_account *a = &s->account->now;
	char text[16];

	if (a->request_ppm)
		fprintf(s->to, "  Request: %s percent of the GPU's time whenever it has work, %s.\n",
			top_text_ppm(a->request_ppm, text, sizeof(text)),
			s->origin->request_set
				? BY_ADMINISTRATOR
				: "as its program asked (gpuarb-run --request, GPUARB_REQUEST)");
	if (a->weight && a->weight != ARB_SHARE_WEIGHT)
		fprintf(s->to,
			"  Weight: %u (others: %u unless they say so) where the rest is divided, %s.\n",
			a->weight, ARB_SHARE_WEIGHT,
			s->origin->weight_set ? BY_ADMINISTRATOR
					      : "as its program asked (gpuarb-run --weight, GPUARB_WEIGHT)");
}

/* Explains a quota that follows from requests and weights. Returns false if no active account has any. */
static bool say_share(const struct story *s)
{
	const struct gpuarb_view_account *a = &s->account->now;
	char text[16], name[2 * ARB_NAME_BYTES];
	unsigned told = 0, any = 0;

	for (unsigned i = 0; i < s->picture->naccounts; i++) {
		const struct gpuarb_view_account *other = &s->picture->accounts[i];

		any += other->active &&
		       (other->request_ppm || (other->weight && other->weight != ARB_SHARE_WEIGHT));
	}
	if (!any || a->quota_ppm >= ARB_PPM)
		return false;
	fprintf(s->to,
		"  Effective quota: %s percent. Each active account gets its request, and what is left goes by "
		"weight. Request and weight:",
		top_text_ppm(a->quota_ppm, text, sizeof(text)));
	for (unsigned i = 0; i < s->picture->naccounts; i++) {
		const struct gpuarb_view_account *other = &s->picture->accounts[i];

		if (!other->active || told++ >= ACCOUNTS)
			continue;
		fprintf(s->to, "%s %s %s, %u", told == 1 ? "" : ";",
			top_text_safe(other->name, name, sizeof(name)),
			top_text_ppm(other->request_ppm, text, sizeof(text)), other->weight);
	}
	if (told > ACCOUNTS)
		fprintf(s->to, " and %u more", told - ACCOUNTS);
	fputs(". What one of them does not use is lent.\n", s->to);
	return true;
}

void top_explain_quota(const struct story *s)
{
	const struct gpuarb_view_account *a = &s->account->now;
	uint64_t sum = top_gpu_limits_ppm(s->gpu);
	char text[16], name[2 * ARB_NAME_BYTES];
	unsigned told = 0;

	say_priority(s);
	say_request(s);
	if (a->limit_ppm >= ARB_PPM) {
		fputs("  Limit: none. It gets what the others leave, or as much as it asks for.\n", s->to);
		say_share(s);
		return;
	}
	fprintf(s->to, "  Limit: %s percent of the GPU's time, %s.\n",
		top_text_ppm(a->limit_ppm, text, sizeof(text)),
		s->origin->core_set ? BY_ADMINISTRATOR
				    : "as its program asked (gpuarb-run --core, GPUARB_CORE_LIMIT)");
	if (say_share(s) || a->quota_ppm >= a->limit_ppm)
		return;
	fprintf(s->to, "  Effective quota: %s percent. ", top_text_ppm(a->quota_ppm, text, sizeof(text)));
	/* What is lost where clients take turns: of limits that leave less than that. */
	if (sum <= ARB_PPM && sum + ARB_LOST_PPM_MOST > ARB_PPM) {
		fprintf(s->to,
			"The limits of the active accounts add up to %s, and some of the GPU's time is lost "
			"when it is handed over from one to the next.\n",
			top_text_ppm((unsigned)sum, text, sizeof(text)));
		return;
	}
	/* An account is scaled when it next does something; this one has not done so. */
	if (sum <= ARB_PPM) {
		fputs("It is what it was when the account was last active.\n", s->to);
		return;
	}
	fprintf(s->to, "The limits of the active accounts add up to %s:",
		top_text_ppm((unsigned)sum, text, sizeof(text)));
	for (unsigned i = 0; i < s->picture->naccounts; i++) {
		const struct gpuarb_view_account *other = &s->picture->accounts[i];

		if (!other->active || other->limit_ppm >= ARB_PPM)
			continue;
		if (told++ < ACCOUNTS)
			fprintf(s->to, "%s %s %s", told == 1 ? "" : " +",
				top_text_safe(other->name, name, sizeof(name)),
				top_text_ppm(other->limit_ppm, text, sizeof(text)));
	}
	if (told > ACCOUNTS)
		fprintf(s->to, " and %u more", told - ACCOUNTS);
	fputs(". Each gets its part of that while one that has not had its own wants the GPU.\n", s->to);
}
