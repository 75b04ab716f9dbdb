/*
 * Admission: which task may start on the GPU now, by its class, the GPU's pressure and the tasks that wait already.
 * The protocol is in shm/README.md. This part has no threads of its own: it runs in the library that holds the
 * process's client, which is the preload if there is one.
 */
#ifndef ARB_ADMISSION_H
#define ARB_ADMISSION_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "gpuarb.h"
#include "gpuarb/classes.h"

#include "shm/base/atomic.h"
#include "shm/segment/running.h"
#include "shm/segment/segment.h"
#include "shm/segment/settings.h"
#include "shm/segment/usage.h"

struct gpuarb_view_admission;
struct gpuarb_client;

/* Returns the next slot from `from` on whose bit is set and that is live; ARB_NONE: there is none. */
static inline uint32_t arb_admission_next(const struct arb_segment *seg, const arb_u64 *bits, uint32_t from)
{
	for (uint32_t w = from / 64; w < seg->nwords; w++) {
		uint64_t word = arb_load64(&bits[w]);

		if (w == from / 64)
			word &= ~0ull << (from % 64);
		while (word) {
			uint32_t i = w * 64 + (uint32_t)__builtin_ctzll(word);

			if (i >= seg->nslots)
				return ARB_NONE;
			if (arb_load32_acquire(&seg->slots[i].state) ==
				ARB_SLOT_LIVE) /* pairs SLOT_PUBLISH */
				return i;
			word &= word - 1;
		}
	}
	return ARB_NONE;
}

/* Is no client running, and has none run in this window? */
static inline bool arb_admission_idle(const struct arb_snap *ahead)
{
	return ahead->weight == 0 && ahead->busy == ahead->win_busy;
}

/* The first place is always the default class. */
static inline void arb_admission_have_default(struct gpuarb_class_rules classes[ARB_CLASSES])
{
	if (strcmp(classes[0].name, gpuarb_class_default.name) != 0)
		classes[0] = gpuarb_class_default;
}

/* Called by the holder of the slot's byte for a client that is gone: takes back its lease and its place in the
 * queue. */
static inline void arb_admission_forget(struct arb_segment *seg, uint32_t slot)
{
	uint64_t bit = 1ull << (slot % 64);

	arb_bit_clear(&seg->header->adm_waiting[slot / 64], bit);
	arb_bit_clear(&seg->header->adm_leased[slot / 64], bit);
	arb_store32(&seg->slots[slot].adm_want, 0);
	arb_store32(&seg->slots[slot].adm_leases, 0);
}

/* After the classes were read; under the client's lock. */
void arb_admission_settle_classes(struct gpuarb_client *c);

/* These do what the functions of gpuarb.h do, for a given client. */
int arb_admission_acquire(
	struct gpuarb_client *c, const struct gpuarb_request *request, struct gpuarb_lease *lease);
int arb_admission_release(struct gpuarb_client *c, struct gpuarb_lease *lease);
int arb_admission_hint(struct gpuarb_client *c, const struct gpuarb_hint *hint);
void arb_admission_cancel(struct gpuarb_client *c);

/* Fills in the picture's part about admission. `control` may be NULL; `ahead` is the snapshot counted on to now. */
void arb_admission_picture(const struct arb_segment *seg, const struct arb_control *control,
	const struct arb_rules *rules, const struct arb_snap *ahead, uint64_t now_ns,
	struct gpuarb_view_admission *a);

/* Returns the enum gpuarb_why that programs see for an enum arb_reason. */
uint32_t arb_admission_reason(uint32_t reason);

#endif
