#include "test/world/windows.h"

#include <string.h>

#include "shm/segment/account.h"
#include "shm/base/atomic.h"
#include "shm/policy/policy.h"
#include "test/world/judge.h"

#define ACCOUNTS 16

static struct {
	uint64_t window; /* the last window that was checked */
	struct {
		uint32_t limit_ppm, generation;
		/* What it has used beyond its limit since from_ns: the least of any window's beginning. */
		int64_t least;
		uint64_t from_ns, used_ns;
	} of[ACCOUNTS];
} windows;

void windows_begin(void)
{
	memset(&windows, 0, sizeof(windows));
}

/*
 * Checks that an account gets no more than its limit between any two moments. Two things may come on top: one window's
 * quota, because it may use a whole quota at the end of one window and another at the beginning of the next; and the
 * work that was under way when its quota was used up.
 */
static void check(uint32_t i, const struct arb_account_snap *a, uint64_t used_ns, uint64_t window_ns)
{
	uint64_t elapsed = world.now_ns - windows.of[i].from_ns;
	int64_t over = (int64_t)(used_ns - windows.of[i].used_ns) -
		       (int64_t)((unsigned __int128)elapsed * a->limit_ppm / ARB_PPM);
	uint64_t allowed = window_ns * a->limit_ppm / ARB_PPM + world_terms.over_ns + world.pauses_ns;

	if (over < windows.of[i].least)
		windows.of[i].least = over;
	if (over - windows.of[i].least > (int64_t)allowed)
		world_fail(
			"account %u has had %.3f ms more than its limit of %u ppm since a window's beginning, "
			"%.3f ms are allowed",
			i, (double)(over - windows.of[i].least) / 1e6, a->limit_ppm, (double)allowed / 1e6);
}

void windows_step(const struct arb_segment *seg, const struct arb_snap *run)
{
	uint32_t high = arb_load32(&seg->header->accounts_high);

	if (!world_terms.over_ns || run->win_number == windows.window)
		return;
	windows.window = run->win_number;
	for (uint32_t i = 0; i < high && i < ACCOUNTS; i++) {
		uint32_t generation = arb_load32(&seg->accounts[i].generation);
		struct arb_account_snap a;
		uint64_t used;

		if (arb_account_read(seg, i, &a) < 0 || !a.limit_ppm || a.limit_ppm >= ARB_PPM)
			continue;
		used = arb_account_usage(seg, run, &a, a.wall, false) / ARB_TICKS_PER_NS;
		if (a.limit_ppm != windows.of[i].limit_ppm || generation != windows.of[i].generation) {
			windows.of[i].limit_ppm = a.limit_ppm;
			windows.of[i].generation = generation;
			windows.of[i].least = 0;
			windows.of[i].from_ns = world.now_ns;
			windows.of[i].used_ns = used;
		}
		check(i, &a, used, run->win_ticks / ARB_TICKS_PER_NS);
	}
}
