/* The clock of a device: it gives the times of events, at a speed other than the host's clock, and in steps. */
#include "test/sim/test/simtest.h"

#include <math.h>
#include <stdlib.h>
#include <unistd.h>

TestSuite(clock, .fini = sim_remove);

/* Measures a kernel of `ns` by events, in us. */
static double measured_us(int device, uint64_t ns)
{
	CUcontext ctx;
	CUevent a, b;
	CUstream s;
	double us;

	OK(cuInit(0));
	OK(cuCtxCreate_v2(&ctx, 0, device));
	s = sim_stream(CU_STREAM_NON_BLOCKING);
	sim_gate(s);
	a = sim_mark(s);
	sim_spin(s, ns);
	b = sim_mark(s);
	sim_release();
	us = sim_between_us(a, b);
	OK(cuCtxDestroy_v2(ctx));
	return us;
}

/* 50 ppm of 400 ms are 20 us; a float of ms resolves 0.03 us there. */
Test(clock, drifts_against_the_hosts)
{
	sim_fresh("GPUSIM_DEVICES", "3", "GPUSIM_DRIFT_PPM", "50,-20,0", "GPUSIM_EVENT_NS", "1", NULL);
	cr_assert_float_eq(measured_us(0, 400 * MS), 400020, 0.1);
	cr_assert_float_eq(measured_us(1, 400 * MS), 399992, 0.1);
	cr_assert_float_eq(measured_us(2, 400 * MS), 400000, 0.1);
}

Test(clock, has_steps)
{
	sim_fresh("GPUSIM_EVENT_NS", "500", NULL);
	for (int i = 0; i < 20; i++) {
		double us = measured_us(0, 100300 + 17 * (uint64_t)i), steps = us / 0.5;

		cr_assert_float_eq(us, 100.3 + 0.017 * i, 0.51);
		cr_assert_float_eq(steps, round(steps), 0.01, "%.4f us", us);
	}
}

/* The ground truth follows the host's clock, not the device's. */
Test(clock, does_not_change_the_ground_truth)
{
	sim_fresh("GPUSIM_DRIFT_PPM", "50", "GPUSIM_EVENT_NS", "500", NULL);
	measured_us(0, 100 * MS);
	cr_assert_eq(sim_truth_of(getpid()).device_ns, 100 * MS);
}

Test(clock, a_drift_that_makes_no_sense_is_none)
{
	sim_fresh("GPUSIM_DRIFT_PPM", "fast", "GPUSIM_EVENT_NS", "1", NULL);
	cr_assert_float_eq(measured_us(0, 100 * MS), 100000, 0.1);
}
