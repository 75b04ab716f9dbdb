#include "shm/admission/shared.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>

#include "units.h"

#include "shm/admission/admission.h"
#include "shm/client/client_state.h"
#include "shm/base/forks.h"
#include "shm/base/os.h"
#include "shm/admission/sampler.h"
#include "shm/client/watch.h"
#include "shm/base/word.h"

/* The time between two signs of life of a holder of leases, which then probes its neighbour as well. */
#define TEND_NS (10 * MS)
/* The time between two looks without a lease: short enough that a client which has just acquired a lease is not taken
 * for hung. */
#define IDLE_NS (200 * MS)

static struct {
	char gpu[ARB_UUID_BYTES];
	struct gpuarb_client *client;
} known[ARB_SHARED_GPUS];
static uint32_t nknown;
static pthread_mutex_t joining = PTHREAD_MUTEX_INITIALIZER;
static uint32_t parted;        /* the process is about to end */
static struct arb_watch watch; /* of the thread that looks after the leases */

/* Forgets the parent's clients, which are not the child's. Their mappings stay, because a thread may be reading them.
 */
static void forget_clients(void)
{
	pthread_mutex_init(&joining, NULL);
	nknown = 0;
	memset(&watch, 0, sizeof(watch));
}

ARB_FORKS_WATCH(arb_shared_watch, forget_clients)

static struct gpuarb_client *find(const char *gpu)
{
	uint32_t n = arb_word_load_acquire(&nknown);

	for (uint32_t i = 0; i < n; i++)
		if (strcmp(known[i].gpu, gpu) == 0)
			return known[i].client;
	return NULL;
}

int gpuarb_client_shared(const struct gpuarb_options *options, bool tracked, struct gpuarb_client **client,
	struct gpuarb_error *err)
{
	const char *gpu = options->gpu;
	int r = 0;

	*client = find(gpu);
	if (*client)
		return 0;
	arb_shared_watch();
	pthread_mutex_lock(&joining);
	*client = find(gpu);
	if (!*client) {
		r = nknown < ARB_SHARED_GPUS ? gpuarb_client_open(options, client, err) : -EMFILE;
		if (r == 0) {
			(*client)->admission.tracked = tracked;
			/* It fits: the segment has this name. */
			strncpy(known[nknown].gpu, gpu, sizeof(known[0].gpu) - 1);
			known[nknown].client = *client;
			arb_word_store_release(&nknown, nknown + 1);
		}
	}
	pthread_mutex_unlock(&joining);
	return r;
}

void arb_shared_part(void)
{
	uint32_t n = arb_word_load_acquire(&nknown);

	arb_word_store(&parted, 1);
	for (uint32_t i = 0; i < n; i++)
		if (gpuarb_client_free(known[i].client))
			gpuarb_client_part(known[i].client);
}

static int own_client(const char *gpu, struct gpuarb_client **client, struct gpuarb_error *err)
{
	/* The thread that looks after the leases uses the client as well. */
	return gpuarb_client_shared(
		&(struct gpuarb_options){.gpu = gpu, .threads = true}, false, client, err);
}

int arb_shared_status(struct gpuarb_client *c, struct gpuarb_status *to)
{
	struct gpuarb_client_status from;
	int r = gpuarb_client_status(c, &from);

	if (r < 0)
		return r;
	to->core_limit = from.core_pct;
	to->quota = from.quota_ppm / 100;
	to->reason = from.running ? GPUARB_WHY_NONE : arb_admission_reason(from.reason);
	to->window_ns = from.window_ns;
	to->window_used_ns = from.used_ns;
	to->debt_ns = from.debt_ns;
	to->total_ns = from.total_ns;
	to->throttled_ns = from.throttled_ns;
	to->mem_used = from.mem_used;
	to->mem_limit = from.mem_limit;
	return 0;
}

uint32_t arb_shared_leases(struct gpuarb_client *c)
{
	uint32_t n;

	arb_lock_take(&c->guard->adm);
	n = c->guard->leases;
	arb_lock_give(&c->guard->adm);
	return n;
}

bool arb_shared_due(struct gpuarb_client *c, uint64_t *next_ns)
{
	bool due = false;

	*next_ns = IDLE_NS;
	arb_lock_take(&c->guard->lock);
	if (arb_load32(&c->guard->joined))
		due = arb_sampler_due(
			&c->admission.sampler, &c->seg, &c->rules.usage, arb_os_now_ns(), next_ns);
	arb_lock_give(&c->guard->lock);
	return due;
}

bool arb_shared_put(struct gpuarb_client *c, int hundredths)
{
	bool done = true;

	arb_lock_take(&c->guard->lock);
	if (arb_load32(&c->guard->joined))
		done = arb_sampler_put(&c->admission.sampler, &c->seg, &c->rules.usage, c->rules.win_ms,
			hundredths, arb_os_now_ns());
	arb_lock_give(&c->guard->lock);
	return done;
}

/* The file was removed or replaced: the other clients are in the new one, or will be soon. */
static void move_on(struct gpuarb_client *c)
{
	arb_lock_take(&c->guard->lock);
	arb_sampler_stop(&c->admission.sampler);
	arb_lock_give(&c->guard->lock);
	gpuarb_client_rejoin(c, false, NULL);
}

void arb_shared_tend(struct gpuarb_client *c, uint64_t *next_ns)
{
	uint64_t grace;
	int r;

	*next_ns = IDLE_NS;
	if (c->admission.tracked) {
		/* The preload's thread does all this. */
		*next_ns = UINT64_MAX;
		return;
	}
	if (arb_word_load(&parted))
		return;
	/* Without quota the client runs into debt, and its next lease waits; the lease that it has cannot be taken
	 * back. */
	r = gpuarb_client_tick(c);
	arb_lock_take(&c->guard->adm);
	if (c->guard->leases) {
		/* The client was taken for hung, or lost its place when garbage was replaced. */
		if (!c->running)
			arb_client_enter_now(c);
		*next_ns = TEND_NS;
	} else if (c->running && !c->guard->waiters && arb_client_leave_now(c) == -EBUSY) {
		/* Its last lease ended where there was garbage that could not be repaired at that moment. */
		*next_ns = TEND_NS;
	}
	arb_lock_give(&c->guard->adm);
	if (r == -ESTALE)
		move_on(c);
	arb_lock_take(&c->guard->lock);
	grace = c->rules.grace_ns;
	arb_lock_give(&c->guard->lock);
	if (*next_ns > grace / 2)
		*next_ns = grace / 2;
}

void arb_shared_sleep(struct gpuarb_client *c, uint64_t ns)
{
	struct gpuarb_client *clients[ARB_SHARED_GPUS];
	uint32_t seen, all = arb_word_load_acquire(&nknown);
	unsigned n = 0;
	arb_u32 *word;

	/* With the preload, its own thread watches for the clients; and a process that is about to end is not watched
	 * any more. */
	for (uint32_t i = 0; i < all && !arb_word_load(&parted); i++)
		if (!known[i].client->admission.tracked)
			clients[n++] = known[i].client;
	arb_lock_take(&c->guard->adm);
	word = &c->seg.header->adm_wake;
	seen = arb_load32(word);
	arb_lock_give(&c->guard->adm);
	/* The word may be unmapped by now, because the segment was replaced: then the thread does not sleep this
	 * time. */
	arb_watch_park_shared(&watch, clients, n, word, seen, ns);
}

const struct arb_shared_table arb_shared_own = ARB_SHARED_TABLE(own_client);
