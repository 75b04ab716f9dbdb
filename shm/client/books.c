/* What a watchdog remembers, from look to look, of accounts that have no members, and what it corrects there:
 * segment/audit.h. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpuarb/control.h"

#include "shm/base/atomic.h"
#include "shm/base/error.h"
#include "shm/base/text.h"
#include "shm/client/control_segment.h"
#include "shm/segment/audit.h"
#include "shm/segment/events.h"
#include "shm/segment/slot.h"

#define DIRECTORY_PATIENCE_NS 500000000ull

struct gpuarb_books {
	uint64_t dev, ino; /* of the segment */
	uint32_t n;
	uint64_t law; /* by how much the bills differed from the busy clock */
	struct arb_audit_seen *seen;
};

/* Says what was found, and counts it. */
struct report {
	void (*say)(void *argument, const char *sentence);
	void *argument;
	int count;
};

struct gpuarb_books *gpuarb_control_books(void)
{
	return calloc(1, sizeof(struct gpuarb_books));
}

void gpuarb_control_books_free(struct gpuarb_books *books)
{
	if (books)
		free(books->seen);
	free(books);
}

/* Were these books kept about this segment? Books about another segment are of no use. */
static bool is_of(struct gpuarb_books *books, const struct arb_segment *seg)
{
	if (books->seen && books->dev == seg->file.dev && books->ino == seg->file.ino &&
		books->n == seg->naccounts)
		return true;
	free(books->seen);
	*books = (struct gpuarb_books){.dev = seg->file.dev,
		.ino = seg->file.ino,
		.n = seg->naccounts,
		.seen = calloc(seg->naccounts, sizeof(struct arb_audit_seen))};
	return books->seen != NULL;
}

static void report(struct report *to, const char *sentence)
{
	to->count++;
	if (to->say)
		to->say(to->argument, sentence);
}

static int audit_accounts(struct arb_segment *seg, struct gpuarb_books *books, struct report *to)
{
	for (uint32_t a = 0; a < seg->naccounts; a++) {
		char name[ARB_NAME_BYTES], what[200] = "", text[400];
		struct arb_lock directory;
		size_t length = 0;
		int found;

		if (arb_audit_is_as_seen(seg, a, &books->seen[a]))
			continue;
		found = arb_slot_lock_wait(
			seg, ARB_BYTE_DIRECTORY(seg->nslots), DIRECTORY_PATIENCE_NS, &directory);
		if (found < 0)
			return found;
		found = arb_audit_account(seg, a, &books->seen[a]);
		arb_slot_unlock(&directory);
		if (found <= 0)
			continue;
#define ARB_RESTORED_ADD(name, words)                                                                        \
	if ((uint32_t)found & ARB_RESTORED_##name && length < sizeof(what))                                  \
		length += (size_t)snprintf(                                                                  \
			what + length, sizeof(what) - length, "%s" words, length ? ", " : "");
		ARB_RESTORED_LIST(ARB_RESTORED_ADD)
#undef ARB_RESTORED_ADD
		arb_text_load(seg->accounts[a].name, ARB_NAME_WORDS, name);
		snprintf(text, sizeof(text),
			"account '%.60s', which nobody uses, had been written over: %s; put right", name,
			what);
		report(to, text);
	}
	return 0;
}

/*
 * Corrects a difference between the bills and the busy clock. If a process writes over a client's bill, and the
 * client dies before it can restore it, the wrong bill stays in the slot for good. No order of honest steps makes a
 * difference, and clients restore their own words before the next look. So a difference that two looks find is taken
 * off the bill of a free slot: its next owner begins with whatever stands there.
 */
static int mend_law(struct arb_segment *seg, struct gpuarb_books *books, struct report *to)
{
	uint64_t difference = arb_audit_law(seg), before = books->law;
	struct arb_lock lock;
	char text[128];

	books->law = difference;
	if (!difference || difference != before)
		return 0;
	for (uint32_t i = seg->nslots; i-- > 0;) {
		struct arb_slot *slot = &seg->slots[i];
		struct arb_snap run;
		bool mine;
		int r;

		if (arb_load32(&slot->state) != ARB_SLOT_FREE)
			continue;
		r = arb_slot_lock(seg, ARB_BYTE_SLOT(i), &lock);
		if (r == -EAGAIN)
			continue;
		if (r < 0)
			return r;
		mine = arb_load32(&slot->state) == ARB_SLOT_FREE && arb_running_read(seg, &run) == 0 &&
		       (i / 64 >= run.words ||
			       (!arb_bit_test(run.running, i) && !arb_bit_test(run.evicted, i)));
		if (mine)
			arb_store64(&slot->total, arb_load64(&slot->total) - difference);
		arb_slot_unlock(&lock);
		if (!mine)
			continue;
		arb_events_write(seg, ARB_EVENT_CORRUPT, i, ARB_NONE, 3, difference);
		snprintf(text, sizeof(text), "bills did not add up to the busy clock: %lld ticks put right",
			(long long)difference);
		report(to, text);
		books->law = 0;
		break;
	}
	return 0;
}

int gpuarb_control_audit(const char *dir, const char *gpu, struct gpuarb_books *books,
	void (*say)(void *argument, const char *sentence), void *argument, struct gpuarb_error *err)
{
	struct report to = {say, argument, 0};
	struct arb_segment seg;
	int r;

	dir = gpuarb_control_dir(dir);
	r = arb_control_segment(&seg, dir, gpu, true, err);
	if (r < 0)
		return r;
	if (!is_of(books, &seg))
		r = arb_fail(err, -ENOMEM, "out of memory");
	if (r >= 0) {
		r = audit_accounts(&seg, books, &to);
		if (r >= 0)
			r = mend_law(&seg, books, &to);
		if (r < 0)
			arb_fail(err, r, "cannot audit %s/state/%s: %s", dir, gpu, strerror(-r));
	}
	arb_segment_close(&seg);
	return r < 0 ? r : to.count;
}
