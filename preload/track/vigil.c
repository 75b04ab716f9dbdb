#include "preload/track/vigil.h"

#include <sys/prctl.h>

#include "gpuarb/client.h"

#include "preload/process/device.h"
#include "preload/process/own.h"
#include "preload/process/threads.h"
#include "shm/client/watch.h"
#include "shm/base/word.h"

/* The tracker takes the place over with its first sleep. If it has not done so in this time, there is no tracker. */
#define RELIEVED_NS 1000000000ull
#define POLL_NS     500000ull
/* The argument of the thread: the number of the GPU in the low bits, the number of the vigil above them. */
#define ORDINAL_BITS 6
_Static_assert(ARB_DEVICES <= 1 << ORDINAL_BITS, "a number of a GPU has six bits");

static void *keep(void *argument)
{
	struct arb_device *d = &arb_own.devices[(uintptr_t)argument % ARB_DEVICES];
	uint32_t number = (uint32_t)((uintptr_t)argument >> ORDINAL_BITS);
	struct arb_watch watch = {0};
	uint64_t end;

	prctl(PR_SET_NAME, "gpuarb");
	while (arb_word_load_acquire(&d->vigil) == number)
		arb_watch_park(&watch, &d->client, 1, &d->vigil, number, 0);
	end = arb_os_now_ns() + RELIEVED_NS;
	while (arb_word_load(&d->had_context) && arb_watch_stands(&watch, d->client) && arb_os_now_ns() < end)
		arb_os_sleep_ns(POLL_NS);
	arb_watch_end(&watch);
	return NULL;
}

void vigil_begin(CUdevice ordinal)
{
	struct arb_device *d = arb_device_known(ordinal);
	uint32_t none = 0, number;

	if (!d || arb_word_load(&d->had_context) || !arb_own.watch || gpuarb_client_is_alone(d->client))
		return;
	number = arb_word_add_then_load(&d->vigils, 1);
	if (!number || !arb_word_cas_acq_rel(&d->vigil, &none, number))
		return;
	if (!act_thread_start(keep, (void *)((uintptr_t)number << ORDINAL_BITS | (uintptr_t)ordinal)))
		arb_word_store_release(&d->vigil, 0);
}

void vigil_end(CUdevice ordinal, bool made)
{
	struct arb_device *d = arb_device_known(ordinal);

	if (!d || arb_word_load(&d->had_context))
		return;
	if (made)
		arb_word_store_release(&d->had_context, 1);
	if (arb_word_exchange_acq_rel(&d->vigil, 0))
		arb_os_unpark(&d->vigil);
}
