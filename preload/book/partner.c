/*
 * Kernels of a job on several GPUs wait for each other. If the quota of one rank ends a moment before that of another, the last
 * kernel of the other rank waits until the first rank may launch again. If that wait were billed, the other rank would owe it,
 * and would then make the first one wait: the job would run one kernel a window.
 *
 * So while the gate is closed, the time that a kernel takes beyond its usual length is not billed, if the last kernel that took
 * so long has shown what a wait for a partner looks like: it ended when a window began, which lets all ranks launch again at
 * the same moment on every GPU, and the kernels behind it were as short as usual. If it ended at another moment, or the kernels
 * behind it were long too, it was just long, and the next one is billed.
 */
#include "preload/book/parts.h"

/* Returns when the kernel of this fence began: at its submission, or when the work before it had ended. */
static uint64_t begun(const struct book *b, const struct book_fence *f)
{
	return f->begun_ns > b->partner.before_ns ? f->begun_ns : b->partner.before_ns;
}

/*
 * Whether the last long kernel has shown that it waited for a partner. Two ranks that wait for each other from their first
 * window on have no short kernels behind it: that is believed once.
 */
static bool is_believed(const struct book_partner *p)
{
	return p->length_ns && (p->shorts >= PARTNER_SHORTS || !p->once);
}

/* Whether all queued work is in one stream. Kernels in several streams share the GPU, and take longer for that. */
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
		/* The work before it ended at the latest measured end. */
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
	/* The partner launches at the beginning of a window, perhaps not of the next one, if it owes more. */
	if (end >= p->window_end_ns && b->others.window_ns &&
		(end - p->window_end_ns) % b->others.window_ns < QUEUE_CONTENDED_NS)
		p->length_ns = took_ns;
	return p->believed;
}
