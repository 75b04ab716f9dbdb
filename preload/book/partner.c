/*
 * Kernels of a job on several GPUs wait for each other. If the quota of one rank ends a moment before the other's, the
 * other's last kernel waits until the first may launch again, and would be billed for that, owe it, and then make the
 * first one wait: one kernel a window. So time that a kernel spends beyond its usual length while the gate is closed is
 * not billed, if the last such kernel ended when a window, which begins at the same moment on every GPU, let everybody
 * launch again, and those behind it were short as usual. One that ends at another moment, or has long ones behind it,
 * was just long: the next one is billed.
 */
#include "preload/book/parts.h"

static uint64_t begun(const struct book *b, const struct book_fence *f)
{
	return f->begun_ns > b->partner.before_ns ? f->begun_ns : b->partner.before_ns;
}

/*
 * The last one ended when a window began, and those behind it were short. Two ranks that wait for each other from their
 * first window on have none behind it: that is believed once.
 */
static bool is_believed(const struct book_partner *p)
{
	return p->length_ns && (p->shorts >= PARTNER_SHORTS || !p->once);
}

/* Kernels in several streams of one process share the GPU, and take longer for that. */
static bool one_stream(const struct book *b)
{
	const struct book_fence *first = fence_of(b, 0);

	for (unsigned i = 1; i < b->queue.count; i++)
		if (fence_of(b, i)->stream != first->stream || fence_of(b, i)->ctx != first->ctx)
			return false;
	return first->stream != BOOK_PER_THREAD || b->queue.count == 1;
}

bool partner_waits(struct book *b, uint64_t now)
{
	const struct book_fence *f = b->queue.count ? fence_of(b, 0) : NULL;
	struct book_partner *p = &b->partner;

	if (!f || !one_stream(b) || b->state != BOOK_DRAINING || b->others.turns || f->launches != 1 ||
		!f->expected_ns || others_contended(b, now))
		return false;
	if (f->recorded_ns != p->fence_ns) {
		/* The one before it has ended at the latest measured end. */
		p->before_ns = b->queue.last_end_ns;
		if (now < begun(b, f) + 2 * f->expected_ns + LONG_NS)
			return false;
		p->fence_ns = f->recorded_ns;
		p->window_end_ns = b->others.window_end_ns;
		p->believed = is_believed(p);
		p->once |= p->believed && p->shorts < PARTNER_SHORTS;
	}
	return p->believed;
}

uint64_t partner_end(const struct book *b)
{
	return begun(b, fence_of(b, 0)) + fence_of(b, 0)->expected_ns;
}

bool partner_passed(struct book *b, const struct book_fence *f, uint64_t end, uint64_t took_ns)
{
	struct book_partner *p = &b->partner;

	if (!p->fence_ns || f->recorded_ns != p->fence_ns) {
		p->shorts += took_ns < p->length_ns / PARTNER_SHORTS;
		return false;
	}
	p->fence_ns = p->length_ns = 0;
	p->shorts = 0;
	/* Whoever launches first in a new window does so at once. The partner may have owed several windows. */
	if (end >= p->window_end_ns && b->others.window_ns &&
		(end - p->window_end_ns) % b->others.window_ns < QUEUE_CONTENDED_NS)
		p->length_ns = took_ns;
	return p->believed;
}
