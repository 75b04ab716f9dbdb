/* For unit tests of the segment: one mapped segment, several slots that one process plays, a clock that the test
 * moves. */
#ifndef TEST_UNIT_H
#define TEST_UNIT_H

#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

#include "shm/segment/account.h"
#include "shm/base/atomic.h"
#include "shm/segment/check.h"
#include "shm/base/os.h"
#include "shm/segment/running.h"
#include "shm/segment/segment.h"
#include "test/harness.h"

#define U_MS (1000000ull * ARB_TICKS_PER_NS)

static struct t_dir u_dir;
static struct arb_segment u_seg;
static uint64_t u_clock_ns = 1000000000000ull;

static uint64_t u_now(void)
{
	return u_clock_ns;
}

static const struct arb_os_hooks u_hooks = {.now_ns = u_now};

static inline void u_open(uint32_t nslots)
{
	struct arb_create create = {nslots, 0600, (gid_t)-1};
	struct gpuarb_error err = {0};

	arb_os_hooks = &u_hooks;
	t_dir_make(&u_dir, NULL);
	cr_assert_eq(arb_segment_open(&u_seg, u_dir.path, T_GPU, true, &create, &err), 0, "%s", err.text);
}

static inline void u_close(void)
{
	arb_segment_close(&u_seg);
	t_dir_remove(&u_dir);
}

static inline uint64_t u_ticks(void)
{
	return u_clock_ns * ARB_TICKS_PER_NS;
}

static inline struct arb_move u_move(void)
{
	struct arb_snap s;

	cr_assert_eq(arb_running_read(&u_seg, &s), 0);
	return (struct arb_move){.now = u_ticks(),
		.at = u_ticks(),
		.win_ms = 100,
		.window = s.win_number,
		.asked = u_ticks(), /* all are alive */
		.weight = ARB_WEIGHT_ONE,
		.reserve_ns = 5000000,
		.next = ARB_NONE};
}

/* Makes a transition as a client does that has rolled its account to this window already. */
static inline int u_step(int (*step)(const struct arb_actor *, struct arb_move *, struct arb_snap *),
	uint32_t slot, struct arb_move *m, struct arb_snap *s)
{
	struct arb_actor me = {&u_seg, slot};
	int r = step(&me, m, s);

	if (r == -EXDEV) {
		cr_assert_eq(arb_running_roll(&me, m, s), 0);
		m->window = s->win_number;
		r = step(&me, m, s);
	}
	return r;
}

static inline void u_enter(uint32_t slot, uint32_t weight)
{
	struct arb_move m = u_move();
	struct arb_snap s;

	m.weight = weight;
	cr_assert_eq(u_step(arb_running_enter, slot, &m, &s), 0);
}

static inline void u_leave(uint32_t slot)
{
	struct arb_move m = u_move();
	struct arb_snap s;

	cr_assert_eq(u_step(arb_running_leave, slot, &m, &s), 0);
}

static inline uint64_t u_usage(uint32_t slot)
{
	struct arb_snap s;

	cr_assert_eq(arb_running_read(&u_seg, &s), 0);
	arb_running_advance(&s, u_ticks(), 100);
	return arb_running_usage(&u_seg, &s, slot);
}

/* Checks that what was billed is the busy time, and every other invariant of arb_check(). */
static inline void u_check(void)
{
	cr_assert_eq(arb_check(&u_seg, t_say, NULL), 0);
}

#endif
