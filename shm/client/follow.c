/* How a client follows its limits file. No lock is held meanwhile: a mark says that a thread is doing it. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpuarb/client.h"

#include "shm/base/atomic.h"
#include "shm/client/client_state.h"
#include "shm/base/error.h"
#include "shm/base/granted.h"
#include "shm/base/limits_file.h"
#include "shm/base/os.h"

/* A change is to be felt within 100 ms; a look is a system call or two. */
#define LOOK_NS 30000000ull
/* A quota that cannot be promised is asked for again, because others leave. */
#define ASK_AGAIN_NS 1000000000ull

struct arb_follow {
	arb_u64 next_ns;
	/* The limits that the client asks for where the file says nothing. */
	unsigned core_pct;
	uint64_t mem_bytes;
	bool most; /* these limits are also the most that the file may give */
	unsigned request_pct, weight;
	/* Used only by the thread that has the mark. */
	struct arb_limits_file file;
	struct gpuarb_error unsaid; /* an error that no caller has been told of; code 0: none */
	uint64_t ask_again_ns;      /* when to ask again; 0: what the file says is in force */
	uint64_t denied;            /* bytes that could not be promised and were reported; 0: none */
	unsigned denied_request;    /* percent of a request that could not be promised and was reported */
};

/* Looks at the file. Only the last error is worth telling, and only while it lasts. */
static int look(struct arb_follow *f)
{
	struct gpuarb_error err = {0};
	int r = arb_limits_look(&f->file, &err);

	if (r < 0)
		f->unsaid = err;
	else if (!f->file.said.code)
		f->unsaid.code = 0;
	return r;
}

static unsigned core_of(const struct arb_follow *f)
{
	unsigned core = f->file.limits.core_pct ? f->file.limits.core_pct : f->core_pct;

	return f->most && f->core_pct && core > f->core_pct ? f->core_pct : core;
}

static uint64_t mem_of(const struct arb_follow *f)
{
	uint64_t mem = f->file.limits.has_mem ? f->file.limits.mem_bytes : f->mem_bytes;

	/* Returns the quota to ask for; 0 is no quota. */
	return f->most && f->mem_bytes && (!mem || mem > f->mem_bytes) ? f->mem_bytes : mem;
}

static unsigned request_of(const struct arb_follow *f)
{
	unsigned request = f->file.limits.has_request ? f->file.limits.request_pct : f->request_pct;

	return f->most && request > f->request_pct ? f->request_pct : request;
}

static unsigned weight_of(const struct arb_follow *f)
{
	unsigned weight = f->file.limits.weight ? f->file.limits.weight : f->weight;
	unsigned most = f->weight ? f->weight : ARB_SHARE_WEIGHT;

	return f->most && weight > most ? most : weight;
}

int arb_client_follow_open(struct gpuarb_client *c, const char *path, struct gpuarb_error *err)
{
	struct arb_follow *f = calloc(1, sizeof(*f));

	if (!f)
		return arb_fail(err, -ENOMEM, "out of memory");
	if (strlen(path) >= sizeof(f->file.path)) {
		free(f);
		return arb_fail(
			err, -ENAMETOOLONG, "limits file '%.60s...': %s", path, strerror(ENAMETOOLONG));
	}
	snprintf(f->file.path, sizeof(f->file.path), "%s", path);
	f->core_pct = c->asked.core_pct;
	f->mem_bytes = c->asked.mem_bytes;
	f->most = !c->opened.ignore_env && arb_granted();
	f->request_pct = c->asked.request_pct;
	f->weight = c->asked.weight;
	c->opened.follow = f;
	look(f);
	c->asked.core_pct = core_of(f);
	c->asked.mem_bytes = mem_of(f);
	c->asked.request_pct = request_of(f);
	c->asked.weight = weight_of(f);
	arb_store64(&f->next_ns, arb_os_now_ns() + LOOK_NS);
	return 0;
}

/* Applies what the file says. A limit that the file no longer names is taken back; where it never named one, other
 * members of the account decide. */
static int apply(struct gpuarb_client *c)
{
	unsigned core = core_of(c->opened.follow);
	uint64_t mem = mem_of(c->opened.follow);
	unsigned request = request_of(c->opened.follow), weight = weight_of(c->opened.follow);
	bool share;
	int r = 0, shared = 0;

	arb_lock_take(&c->guard->lock);
	share = request != c->asked.request_pct ||
		(weight ? weight : ARB_SHARE_WEIGHT) !=
			(c->asked.weight ? c->asked.weight : ARB_SHARE_WEIGHT);
	if (!core && c->asked.core_pct)
		core = 100;
	if (!mem && c->asked.mem_bytes)
		mem = GPUARB_MEM_UNLIMITED;
	arb_lock_give(&c->guard->lock);
	if (share)
		shared = gpuarb_client_set_share(c, request, weight ? weight : ARB_SHARE_WEIGHT);
	if (core || mem)
		r = gpuarb_client_set_limits(c, core, mem, 0);
	return r < 0 ? r : shared;
}

/* Reports a quota that cannot be promised: once for each quota that is asked for. */
static void say_denied(struct gpuarb_client *c)
{
	struct arb_follow *f = c->opened.follow;

	if (f->denied == mem_of(f) && f->denied_request == request_of(f))
		return;
	arb_lock_take(&c->guard->lock);
	arb_fail(&f->unsaid, -EDQUOT, "%.380s: what it has stays until there is room",
		c->standing.denied.text);
	arb_lock_give(&c->guard->lock);
}

/* Sets the mark. A fork wipes it in the child, which lacks the thread that set it. */
static bool begin(struct gpuarb_client *c)
{
	return arb_cas32_full(&c->guard->following, 0, 1);
}

static void end(struct gpuarb_client *c)
{
	arb_store32_release(&c->guard->following, 0);
}

static int look_and_apply(struct gpuarb_client *c, uint64_t now_ns)
{
	struct arb_follow *f = c->opened.follow;
	int r;

	arb_store64(&f->next_ns, now_ns + LOOK_NS);
	r = look(f);
	if (r <= 0 && (!f->ask_again_ns || now_ns < f->ask_again_ns))
		return 0;
	r = apply(c);
	f->ask_again_ns = r == -EDQUOT ? now_ns + ASK_AGAIN_NS : 0;
	if (r == -EDQUOT)
		say_denied(c);
	else if (r < 0)
		/* The client has not joined now, or the segment cannot be used: the file is read again when that has
		 * changed. */
		f->file.read = false;
	else
		f->denied = f->denied_request = 0;
	return r == 0;
}

void arb_client_follow_look(struct gpuarb_client *c, uint64_t now_ns)
{
	if (now_ns < arb_load64(&c->opened.follow->next_ns) || !begin(c))
		return;
	look_and_apply(c, now_ns);
	end(c);
}

int gpuarb_client_follow(struct gpuarb_client *c, uint64_t *next_ns, struct gpuarb_error *err)
{
	uint64_t now, next;
	int r = 0;

	if (next_ns)
		*next_ns = c->opened.follow ? LOOK_NS : 0;
	if (!c->opened.follow || !begin(c))
		return 0;
	now = arb_os_now_ns();
	if (now >= arb_load64(&c->opened.follow->next_ns))
		r = look_and_apply(c, now);
	next = arb_load64(&c->opened.follow->next_ns);
	if (next_ns)
		*next_ns = next > now ? next - now : 1;
	if (c->opened.follow->unsaid.code) {
		r = c->opened.follow->unsaid.code;
		if (err)
			*err = c->opened.follow->unsaid;
		if (r == -EDQUOT) {
			c->opened.follow->denied = mem_of(c->opened.follow);
			c->opened.follow->denied_request = request_of(c->opened.follow);
		}
		c->opened.follow->unsaid.code = 0;
	}
	end(c);
	return r;
}
