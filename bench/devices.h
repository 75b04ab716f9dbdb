/* Kinds of simulated GPUs on which limits are measured. Their settings are those of test/sim/README.md, on one line
 * of NAME=VALUE separated by blanks. */
#ifndef BENCH_DEVICES_H
#define BENCH_DEVICES_H

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct device {
	const char *suffix; /* of the names of cases on it */
	const char *settings;
	double allowance; /* factor for what a case allows */
	bool by_name;     /* "all" leaves it out */
};

#define SLICES(us)  "GPUSIM_MODE=timeslice GPUSIM_SLICE_US=" #us
#define KIND_EVENTS " GPUSIM_EVENTS=engine GPUSIM_SWITCH_US=0"
/* Events wait for the slice of their process, and a switch between processes costs device time. */
#define UNKIND_EVENTS " GPUSIM_EVENTS=slice GPUSIM_SWITCH_US=100"

/* Kernels of several processes run side by side, as under MPS; a kernel that does not say how wide it is fills the
 * GPU. */
#define SPATIAL "GPUSIM_MODE=spatial" KIND_EVENTS

static const struct device devices[] = {
	{"", "GPUSIM_MODE=share GPUSIM_SLICE_US=2000", 1, false},
	{"-slices", SLICES(2000), 3, false},
	{"-slices1930", SLICES(1930), 3, false},
	{"-slices10", SLICES(10000) KIND_EVENTS, 3, true},
	{"-slices30", SLICES(30000) KIND_EVENTS, 3, true},
	{"-slices2-unkind", SLICES(2000) UNKIND_EVENTS, 3, true},
	{"-slices10-unkind", SLICES(10000) UNKIND_EVENTS, 3, true},
	{"-slices30-unkind", SLICES(30000) UNKIND_EVENTS, 3, true},
	{"-fifo", "GPUSIM_MODE=fifo" KIND_EVENTS, 3, true},
	{"-spatial", SPATIAL, 3, true},
	/* A clock that runs faster than the host's, or slower, and events with the resolution of real drivers. */
	{"-drift", "GPUSIM_MODE=share GPUSIM_DRIFT_PPM=50 GPUSIM_EVENT_NS=500", 1, true},
	{"-drift-slow", "GPUSIM_MODE=share GPUSIM_DRIFT_PPM=-50 GPUSIM_EVENT_NS=500", 1, true},
};

static inline double device_setting(const char *settings, const char *name, double otherwise)
{
	const char *at = strstr(settings, name);

	return at ? atof(at + strlen(name)) : otherwise;
}

/* Returns how much of its time a device can lose by switching between processes at every slice, in percent. */
static inline double device_lost_pct(const char *settings)
{
	double slice = device_setting(settings, "GPUSIM_SLICE_US=", 2000);
	double once = device_setting(settings, "GPUSIM_SWITCH_US=", 0);

	return 100 * once / (slice + once);
}

/* Returns how far a client is from its target, in points. Only the device can tell switches from kernels, so switches
 * are billed to the clients that run: a client may get less than its target by the part that switches take. */
static inline double device_error(const char *settings, double got, double target)
{
	double low = target * (1 - device_lost_pct(settings) / 100);

	return got < low ? low - got : got > target ? got - target : 0;
}

#define DEVICE_SETTINGS 16

/* The environment before a case, so that the case leaves nothing behind for the next. */
struct device_environment {
	char *name[DEVICE_SETTINGS], *value[DEVICE_SETTINGS]; /* value NULL: it was not set */
	unsigned n;
};

static inline void device_settings_apply(struct device_environment *before, const char *settings)
{
	char line[512], *rest;

	before->n = 0;
	snprintf(line, sizeof(line), "%s", settings);
	for (char *word = strtok_r(line, " ", &rest); word; word = strtok_r(NULL, " ", &rest)) {
		char *value = strchr(word, '=');
		const char *old;

		if (!value || before->n == DEVICE_SETTINGS) {
			fprintf(stderr, "settings of a device: '%s' cannot be used\n", word);
			exit(2);
		}
		*value++ = 0;
		old = getenv(word);
		before->name[before->n] = strdup(word);
		before->value[before->n++] = old ? strdup(old) : NULL;
		setenv(word, value, 1);
	}
}

static inline void device_settings_restore(struct device_environment *before)
{
	while (before->n) {
		unsigned i = --before->n;

		if (before->value[i])
			setenv(before->name[i], before->value[i], 1);
		else
			unsetenv(before->name[i]);
		free(before->name[i]);
		free(before->value[i]);
	}
}

#endif
