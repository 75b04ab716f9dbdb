/* The victim closes the gates of those below it, lets them go on, or stops for a client above it. */
#include "test/crash/crash.h"

#include <errno.h>

#include "shm/admission/admission.h"
#include "gpuarb/control.h"

#define MUST(call) world_must(call, #call)

static void set(struct world *w, const char *key, const char *value)
{
	struct gpuarb_change change = {"victim", key, value};

	MUST(gpuarb_control_change(w->dir, w->gpu, &change, 1, NULL));
}

/* The survivors have the default priority, and one of them has work. */
void above_high(struct world *w)
{
	set(w, "priority", "90");
	MUST(gpuarb_client_enter(w->a, NULL));
}

void above_low(struct world *w)
{
	set(w, "priority", "10");
}

void above_request(struct world *w)
{
	set(w, "request", "20");
	MUST(gpuarb_client_enter(w->a, NULL));
}

/* The victim gets a class of a higher priority, and a client below it has work. */
void above_class(struct world *w)
{
	struct gpuarb_class_change change = {"top", "priority", "90"};

	MUST(gpuarb_control_change_classes(w->dir, w->gpu, &change, 1, NULL));
	lease_normal(w);
	MUST(gpuarb_client_enter(w->a, NULL));
}

void above_comes(struct world *w)
{
	MUST(gpuarb_client_enter(w->a, NULL));
}

/* A client is above the victim: its tick says so, it leaves, and it is refused. */
void above_stop(struct world *w)
{
	int r = gpuarb_client_tick(w->v);

	MUST(r == -EAGAIN || (r == 0 && crash_pausing) ? 0 : -EPROTO);
	MUST(gpuarb_client_leave(w->v, 0));
	r = gpuarb_client_enter(w->v, NULL);
	MUST(r == -EAGAIN || (r == 0 && crash_pausing) ? 0 : -EPROTO);
}

void above_lease(struct world *w)
{
	struct gpuarb_request request = {.task_class = "top"};
	struct gpuarb_lease lease = GPUARB_LEASE_INIT;

	MUST(arb_admission_acquire(w->v, &request, &lease));
	MUST(arb_admission_release(w->v, &lease));
}
