/* A victim dies with a turn at the GPU's memory, on its way to a turn or on the way out; or while memory is promised.
 */
#include "test/crash/crash.h"

#include <errno.h>
#include <unistd.h>

#include "gpuarb/control.h"
#include "gpuarb/promise.h"

#define MUST(call) world_must(call, #call)

/* The room is 1 MiB: two clients of this size never fit. */
#define LARGE   (700u << 10)
#define TURN_NS (20 * MS)

static void large_survivor(struct gpuarb_client *c, uint64_t *bytes)
{
	if (*bytes)
		return;
	MUST(gpuarb_client_mem_reserve(c, LARGE));
	*bytes = LARGE;
}

void turn_others(struct world *w)
{
	large_survivor(w->a, &w->a_bytes);
}

void turn_join(struct world *w)
{
	w->v = world_client(w, "victim", 0, 0);
	MUST(gpuarb_client_mem_reserve(w->v, LARGE));
}

void turn_join_run(struct world *w)
{
	turn_join(w);
	MUST(gpuarb_client_enter(w->v, NULL));
}

/* A turn that is over while another client waits. */
void turn_wait(struct world *w)
{
	MUST(gpuarb_client_wait(w->v, NULL, 1000 * MS));
}

void turn_end(struct world *w)
{
	int r;

	world_clock_skip(TURN_NS);
	r = gpuarb_client_tick(w->v);
	MUST(r == -EAGAIN ? 0 : r);
	MUST(gpuarb_client_leave(w->v, 0));
}

/* The driver's number of bytes in use is told: what exceeds the clients' memory belongs to other programs. */
void turn_say_used(struct world *w)
{
	gpuarb_client_set_used(w->v, 2 * LARGE);
}

void turn_shrink(struct world *w)
{
	MUST(gpuarb_client_mem_release(w->v, LARGE / 2));
}

#define ALL (501ull << 20) /* how much may be promised in all */

static int promise_all(struct world *w, const char *account)
{
	struct gpuarb_promise promise = {account, ALL, 0, 0};
	struct gpuarb_promiser *p;
	int fd = -1, r = gpuarb_promiser_open(w->dir, w->gpu, ALL, &p, NULL);

	if (r < 0)
		return r;
	r = gpuarb_promiser_lock(p, NULL);
	if (r == 0)
		r = gpuarb_promiser_take(p, &promise, false, &fd, NULL);
	gpuarb_promiser_close(p);
	if (fd >= 0)
		close(fd);
	return r;
}

void promise_make(struct world *w)
{
	MUST(promise_all(w, "victim"));
}

/* A client joins that was promised nothing before. */
void promise_join(struct world *w)
{
	w->v = world_client(w, "victim", 0, ALL);
}

void promise_join_little(struct world *w)
{
	w->v = world_client(w, "victim", 0, 1 << 20);
}

void promise_more(struct world *w)
{
	MUST(gpuarb_client_set_limits(w->v, 0, ALL, 0));
}

void promise_set(struct world *w)
{
	struct gpuarb_change change = {"victim", "mem", "501Mi"};

	MUST(gpuarb_control_change(w->dir, w->gpu, &change, 1, NULL));
}

/* Nothing is promised by the dead client or to it any more. */
void promise_after(struct world *w)
{
	int r = promise_all(w, "late");

	if (r < 0)
		world_wrong(w, "what the dead one had promised is still promised (%d)", r);
}
