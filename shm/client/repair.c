/* Repairs records that break their own invariants, as a client would: for a tool, where no client does it. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "gpuarb/control.h"

#include "shm/segment/account.h"
#include "shm/base/atomic.h"
#include "shm/client/control_segment.h"
#include "shm/base/error.h"
#include "shm/segment/events.h"
#include "shm/base/os.h"
#include "shm/segment/running.h"
#include "shm/segment/segment.h"
#include "shm/segment/settings.h"
#include "shm/segment/slot.h"
#include "shm/base/text.h"

#define DIRECTORY_PATIENCE_NS 500000000ull

/* Only the holder of a slot's byte may publish from its buffers. Any free slot will do. */
static int repair_set(struct arb_segment *seg, const struct arb_rules *rules)
{
	uint64_t now = arb_os_now_ns() * ARB_TICKS_PER_NS;
	struct arb_lock lock;
	struct arb_snap snap;

	if (arb_running_read(seg, &snap) != -EBADMSG && (int64_t)(snap.t - now) <= 0)
		return 0;
	for (uint32_t i = 0; i < seg->nslots; i++) {
		struct arb_actor me = {seg, i};
		int r = arb_slot_lock(seg, ARB_BYTE_SLOT(i), &lock);

		if (r == -EAGAIN)
			continue;
		if (r < 0)
			return r;
		r = arb_running_repair(&me, arb_os_now_ns() * ARB_TICKS_PER_NS, rules->win_ms);
		if (r == 1)
			arb_events_write(seg, ARB_EVENT_CORRUPT, i, ARB_NONE, 1, 0);
		arb_slot_unlock(&lock);
		return r;
	}
	return 0; /* every slot has its client: one of these repairs it */
}

static int repair_accounts(
	struct arb_segment *seg, void (*say)(void *argument, const char *sentence), void *argument)
{
	uint32_t high = arb_load32_acquire(&seg->header->accounts_high);
	struct arb_account_snap acct;
	int count = 0;

	for (uint32_t a = 0; a < high && a < seg->naccounts; a++) {
		struct arb_lock directory;
		char text[128], name[ARB_NAME_BYTES];
		int r;

		if (arb_account_read(seg, a, &acct) != -EBADMSG)
			continue;
		r = arb_slot_lock_wait(
			seg, ARB_BYTE_DIRECTORY(seg->nslots), DIRECTORY_PATIENCE_NS, &directory);
		if (r < 0)
			return r;
		r = arb_account_repair(seg, a);
		arb_slot_unlock(&directory);
		if (r < 0)
			return r;
		if (r == 0)
			continue;
		count++;
		arb_events_write(seg, ARB_EVENT_CORRUPT, 0, a, 2, 0);
		arb_text_load(seg->accounts[a].name, ARB_NAME_WORDS, name);
		snprintf(text, sizeof(text),
			"the record of account '%.60s' was garbage; its window begins anew", name);
		if (say)
			say(argument, text);
	}
	return count;
}

int gpuarb_control_repair(const char *dir, const char *gpu, void (*say)(void *argument, const char *sentence),
	void *argument, struct gpuarb_error *err)
{
	struct arb_segment seg;
	struct arb_rules rules;
	int r, accounts;

	dir = gpuarb_control_dir(dir);
	r = arb_control_segment(&seg, dir, gpu, true, err);
	if (r < 0)
		return r;
	arb_control_rules(dir, gpu, &rules);
	r = repair_set(&seg, &rules);
	if (r == 1 && say)
		say(argument, "the record of the running set was garbage; the law holds again from here on");
	accounts = r < 0 ? r : repair_accounts(&seg, say, argument);
	arb_segment_close(&seg);
	if (accounts < 0)
		return arb_fail(
			err, accounts, "cannot repair %s/state/%s: %s", dir, gpu, strerror(-accounts));
	return r + accounts;
}
