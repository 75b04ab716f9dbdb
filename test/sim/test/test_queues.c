/* Streams that share hardware queues, and priorities between kernels that are ready. */
#include "test/sim/test/simtest.h"

#include <unistd.h>

TestSuite(queues, .fini = sim_remove);

static CUstream with_priority(int priority)
{
	CUstream s;

	OK(cuStreamCreateWithPriority(&s, CU_STREAM_NON_BLOCKING, priority));
	return s;
}

/*
 * Stream a has a kernel of 4 ms, and a kernel of 2 ms that must wait for it. Stream b has a kernel that is submitted
 * last and would fit beside them. With one queue it must wait behind the second kernel of a, which cannot start.
 */
static double end_of_b_ms(const char *connections)
{
	CUstream a, b;
	CUevent begin, end;

	sim_fresh("CUDA_DEVICE_MAX_CONNECTIONS", connections, NULL);
	sim_device();
	a = sim_stream(CU_STREAM_NON_BLOCKING);
	b = sim_stream(CU_STREAM_NON_BLOCKING);
	sim_gate(a);
	begin = sim_mark(a);
	OK(cuStreamWaitEvent(b, begin, 0));
	sim_spin_part(a, 4 * MS, 300);
	sim_spin_part(a, 2 * MS, 300);
	sim_spin_part(b, 1 * MS, 300);
	end = sim_mark(b);
	sim_release();
	return sim_between_us(begin, end) / 1000;
}

Test(queues, streams_that_share_one_run_in_order_of_submission)
{
	cr_assert_float_eq(end_of_b_ms("1"), 5, 0.001);
}

Test(queues, streams_with_queues_of_their_own_pass_each_other)
{
	cr_assert_float_eq(end_of_b_ms("2"), 1, 0.001);
}

Test(queues, a_number_that_makes_no_sense_is_not_used)
{
	cr_assert_float_eq(end_of_b_ms("none"), 1, 0.001);
}

/* Why a preload must not let a stream of its own wait for an event that is not recorded yet: with a shared queue, all
 * streams behind it wait, too. */
Test(queues, a_stream_that_waits_holds_up_those_behind_it)
{
	CUstream a, b, c;
	CUevent begin, end;

	sim_fresh("CUDA_DEVICE_MAX_CONNECTIONS", "1", NULL);
	sim_device();
	a = sim_stream(CU_STREAM_NON_BLOCKING);
	b = sim_stream(CU_STREAM_NON_BLOCKING);
	c = sim_stream(CU_STREAM_NON_BLOCKING);
	sim_gate(a);
	begin = sim_mark(a);
	sim_spin_part(a, 6 * MS, 300);
	OK(cuStreamWaitEvent(b, sim_mark(a), 0));
	sim_spin_part(c, 1 * MS, 300);
	end = sim_mark(c);
	sim_release();
	cr_assert_float_eq(sim_between_us(begin, end), 7000, 0.6);
}

/* Both kernels fill the device. Without priorities each would run at half the speed. */
Test(queues, the_higher_priority_runs_first)
{
	CUstream low, high;
	CUevent begin, end[2];

	sim_fresh(NULL);
	sim_device();
	low = with_priority(0);
	high = with_priority(-1);
	sim_gate(low);
	begin = sim_mark(low);
	OK(cuStreamWaitEvent(high, begin, 0));
	sim_spin(low, 6 * MS);
	end[0] = sim_mark(low);
	sim_spin(high, 2 * MS);
	end[1] = sim_mark(high);
	sim_release();
	cr_assert_float_eq(sim_between_us(begin, end[1]), 2000, 0.6);
	cr_assert_float_eq(sim_between_us(begin, end[0]), 8000, 0.6);
	cr_assert_eq(sim_truth_of(getpid()).device_ns, 8 * MS);
}

/* The kernel with the higher priority fills 0.6 of the device, the other would fill 0.8: it has the remaining 0.4, and
 * runs at half its speed. */
Test(queues, the_lower_priority_has_what_is_left)
{
	CUstream low, high;
	CUevent begin, end[2];

	sim_fresh(NULL);
	sim_device();
	low = with_priority(0);
	high = with_priority(-3);
	sim_gate(low);
	begin = sim_mark(low);
	OK(cuStreamWaitEvent(high, begin, 0));
	sim_spin_part(low, 6 * MS, 800);
	end[0] = sim_mark(low);
	sim_spin_part(high, 4 * MS, 600);
	end[1] = sim_mark(high);
	sim_release();
	cr_assert_float_eq(sim_between_us(begin, end[1]), 4000, 0.6);
	/* 4 ms at half speed, then the other 4 ms of work at full speed. */
	cr_assert_float_eq(sim_between_us(begin, end[0]), 8000, 0.6);
}
