/*
 * Situations that are difficult on devices that behave like hardware. Each row has the device's settings, the
 * programs, their limits and what each is to get. build/world --case NAME and build/bench_device --case NAME run
 * them.
 */
#ifndef BENCH_DEVICE_ROWS_H
#define BENCH_DEVICE_ROWS_H

#include <math.h>

#include "bench/devices.h"
#include "bench/limits_cases.h"

/* The target is what the client gets alone and without gpuarb, measured before the row. */
#define AS_ALONE (-2.0)

enum device_goal {
	GOAL_SHARE,   /* targets are percent of the GPU's time */
	GOAL_RATE,    /* kernels of each rank a second */
	GOAL_SECONDS, /* seconds from the first launch to the end; bills are compared with the device time */
};

struct device_row {
	const char *name, *says, *settings;
	enum device_goal goal;
	double allowed; /* points, or percent of a target in seconds or kernels a second */
	struct client clients[CLIENTS];
};

/*
 * Returns whether a client missed its goal: what it got, or its bill, which must be its device time (in percent, or
 * in seconds for a client that ends by itself). Ranks are not billed for all of the time in which their kernels wait
 * for a partner whose quota has ended (shm/README.md, "Work that waits for work"), so their bill may be less than
 * their device time.
 */
static inline bool device_row_missed(
	const struct device_row *row, double target, double got, double device, double billed)
{
	double part = row->allowed / 100, switches = device * device_lost_pct(row->settings) / 100;

	if (row->goal == GOAL_SECONDS)
		return !(got <= target * (1 + part)) || !(fabs(billed - device) <= device * part);
	if (!(billed - device <= row->allowed + switches) ||
		(row->goal != GOAL_RATE && !(device - billed <= row->allowed)))
		return true;
	if (target == WHATEVER)
		return false;
	if (row->goal == GOAL_RATE)
		return !(fabs(got - target) <= target * part);
	return !(device_error(row->settings, got, target) <= row->allowed);
}

#define WAITED "--pattern=sync --wait=event"

static const struct device_row device_rows[] = {
	{"device-slices30-30+60", "slices of 30 ms", SLICES(30000), GOAL_SHARE, 1.5,
		{{30, 20, NULL, 30}, {60, 20, NULL, 60}}},
	{"device-slices30-50+60", "slices of 30 ms", SLICES(30000), GOAL_SHARE, 1.5,
		{{50, 20, NULL, 45.4545}, {60, 20, NULL, 54.5455}}},
	{"device-slices30-25+unlimited", "slices of 30 ms", SLICES(30000), GOAL_SHARE, 1.5,
		{{25, 20, NULL, 25}, {0, 20, NULL, 75}}},
	{"device-slices30-unlimited+25", "the same, and the one without a limit is there first",
		SLICES(30000), GOAL_SHARE, 1.5, {{0, 20, NULL, 75}, {25, 20, NULL, 25}}},
	{"device-slices30-50+sync", "the same, and each kernel of the second is waited for", SLICES(30000),
		GOAL_SHARE, 1.5, {{50, 20, NULL, 50}, {50, 20, "--pattern=sync", WHATEVER}}},
	{"device-slices30-unkind-30+60", "and events wait for them, and switches of 100 us",
		SLICES(30000) UNKIND_EVENTS, GOAL_SHARE, 1.5, {{30, 20, NULL, 30}, {60, 20, NULL, 60}}},
	{"device-slices30-unkind-50+60", "the same", SLICES(30000) UNKIND_EVENTS, GOAL_SHARE, 1.5,
		{{50, 20, NULL, 45.4545}, {60, 20, NULL, 54.5455}}},
	{"device-slices30-unkind-25+free", "the same", SLICES(30000) UNKIND_EVENTS, GOAL_SHARE, 1.5,
		{{25, 20, NULL, 25}, {0, 20, NULL, 75}}},
	{"device-waited-3ms", "events wait for slices of 2 ms, each kernel of 3 ms is waited for",
		SLICES(2000) " GPUSIM_EVENTS=slice", GOAL_SHARE, 1.5,
		{{40, 3000, WAITED, 40}, {50, 3000, WAITED, 50}}},
	{"device-waited-5ms", "the same with 5 ms and switches of 100 us", SLICES(2000) UNKIND_EVENTS,
		GOAL_SHARE, 1.5, {{40, 5000, WAITED, 40}, {50, 5000, WAITED, 50}}},
	{"device-lazy", "100 functions that load for 30 ms each, then run for 1 ms",
		SLICES(2000) " GPUSIM_LAZY_US=30000", GOAL_SECONDS, 5,
		{{20, 1000, "--functions=100 --launches=100", AS_ALONE}}},
	{"device-launch-bound", "launches of 4 us, kernels of 2 us",
		SLICES(2000) " GPUSIM_COST_LAUNCH_NS=4000", GOAL_SHARE, 1.5, {{50, 2, NULL, AS_ALONE}}},
	{"device-launch-bound-99", "the same with a limit that does not bind",
		SLICES(2000) " GPUSIM_COST_LAUNCH_NS=4000", GOAL_SHARE, 1.5, {{99, 2, NULL, AS_ALONE}}},
	{"device-launch-bound-free", "the same without a limit", SLICES(2000) " GPUSIM_COST_LAUNCH_NS=4000",
		GOAL_SHARE, 1.5, {{0, 2, NULL, AS_ALONE}}},
	{"device-start-sync-25",
		"work reaches the GPU 4 us after its launch, a query costs 1 us; each kernel is waited for",
		SLICES(2000) " GPUSIM_START_US=4 GPUSIM_COST_QUERY_NS=1000", GOAL_SHARE, 1.5,
		{{25, 20, "--pattern=sync", 25}}},
	{"device-start-30+60", "the same, queued",
		SLICES(2000) " GPUSIM_START_US=4 GPUSIM_COST_QUERY_NS=1000", GOAL_SHARE, 1.5,
		{{30, 20, NULL, 30}, {60, 20, NULL, 60}}},
	{"device-ranks-50+50", "two ranks on two GPUs whose kernels of 1 ms wait for each other",
		"GPUSIM_DEVICES=2 GPUSIM_MODE=share", GOAL_RATE, 3, {{50, 1000, "--ranks=2", 500}}},
	{"device-ranks-30+30", "the same", "GPUSIM_DEVICES=2 GPUSIM_MODE=share", GOAL_RATE, 3,
		{{30, 1000, "--ranks=2", 300}}},
	{"device-ranks-sync-50+50", "the same, each kernel waited for", "GPUSIM_DEVICES=2 GPUSIM_MODE=share",
		GOAL_RATE, 3, {{50, 1000, "--ranks=2 --pattern=sync", 500}}},
	{"device-ranks-sync-30+30", "the same", "GPUSIM_DEVICES=2 GPUSIM_MODE=share", GOAL_RATE, 3,
		{{30, 1000, "--ranks=2 --pattern=sync", 300}}},
	{"device-ranks-40+neighbour", "and one beside them on the first of the GPUs, slices of 2 ms",
		"GPUSIM_DEVICES=2 " SLICES(2000), GOAL_RATE, 3,
		{{40, 1000, "--ranks=2", 400}, {50, 1000, NULL, 500}}},
	{"device-spatial-30+60", "kernels that fill 40 percent, side by side as under MPS", SPATIAL,
		GOAL_SHARE, 1.5, {{30, 20, "--width=40", 30}, {60, 20, "--width=40", 60}}},
	{"device-spatial-full-30+60", "the same with billing = full", SPATIAL " GPUARB_BILLING=full",
		GOAL_SHARE, 1.5, {{30, 20, "--width=40", 30}, {60, 20, "--width=40", 60}}},
	{"device-spatial-full-50+60", "the same, limits above 100 in all", SPATIAL " GPUARB_BILLING=full",
		GOAL_SHARE, 1.5, {{50, 20, "--width=40", 50}, {60, 20, "--width=40", 60}}},
	{"device-spatial-full-25+free", "the same beside one without a limit", SPATIAL " GPUARB_BILLING=full",
		GOAL_SHARE, 1.5, {{25, 20, "--width=40", 25}, {0, 20, "--width=40", 100}}},
};

#undef WAITED

#endif
