/* The contents of the control segment: two whole copies and one head word (CONTROL_PUBLISH). */
#ifndef ARB_SETTINGS_H
#define ARB_SETTINGS_H

#include <stdbool.h>
#include <stdint.h>

#include "gpuarb/classes.h"
#include "gpuarb/config.h"

#include "shm/policy/memory_fit.h"
#include "shm/policy/policy.h"
#include "shm/segment/segment.h"
#include "shm/segment/usage.h"

/* The GPU-wide settings in the units that the code uses. */
struct arb_rules {
	enum arb_policy policy;
	enum arb_alternation alternation;
	bool wall; /* billing = full */
	bool borrow;
	unsigned carryover_pct;
	uint32_t win_ms;
	uint64_t reserve_ns;
	uint64_t max_wait_ns;
	uint64_t grace_ns;
	uint64_t slice_ticks;
	uint64_t look_ns; /* sample_interval_ms; 0: as often as it matters */
	int tail_pct;     /* tail_billing; -1: as measured */
	int user_slots;   /* slots_per_user; -1: a quarter, 0: no bound */
	struct arb_memory_rules memory;
	struct arb_usage_rules usage;
};

/* What a new control segment holds: the settings and the [account] sections of arbiter.conf. */
void arb_settings_first(struct arb_control_copy *copy, const struct gpuarb_config *config);

/* Reads all settings, and the epoch that they belong to. A setting that is out of range counts as its default. */
int arb_settings_read(const struct arb_control *control, int64_t value[ARB_KEY_COUNT], uint64_t *epoch);
/* Reads the limits of an account: 1 found, 0 not found. */
int arb_settings_limit(
	const struct arb_control *control, const char *name, struct gpuarb_config_limit *limit);
/* Reads the limits of an account in a draft that is not published: 1 found, 0 not found. */
int arb_settings_limit_in(
	const struct arb_control_copy *copy, const char *name, struct gpuarb_config_limit *limit);
/* Reads entry i of the list: 1, or 0 past the end. The first function does it in a draft. */
int arb_settings_limit_at_in(
	const struct arb_control_copy *copy, uint32_t i, struct gpuarb_config_limit *limit);
int arb_settings_limit_at(const struct arb_control *control, uint32_t i, struct gpuarb_config_limit *limit);
/* Reads the classes, and checks each; returns how many places there are (the index of the last with a name, + 1). */
uint32_t arb_settings_classes(
	const struct arb_control *control, struct gpuarb_class_rules classes[ARB_CLASSES]);
uint64_t arb_settings_epoch(const struct arb_control *control);

void arb_settings_rules(const int64_t value[ARB_KEY_COUNT], struct arb_rules *rules);

/* Called by an administrator who holds the writer's byte: begins a private copy, which is edited and then published.
 * A writer that dies in between leaves the settings as they were. */
int arb_settings_begin(const struct arb_control *control, struct arb_control_copy *draft);
/* Sets a limit of an account in the draft. value NULL: as if it had never been set. -ENOSPC: there is no room for
 * another account. */
int arb_settings_set_limit(
	struct arb_control_copy *draft, const char *name, enum arb_key key, const int64_t *value);
/* Reads one class. A value that is out of range counts as the default's. */
void arb_settings_load_class(const struct arb_class *from, struct gpuarb_class_rules *to);
/* Sets the class in the draft, and adds it if it is not there; -ENOSPC: there is no room for another. */
int arb_settings_set_class(struct arb_control_copy *draft, const struct gpuarb_class_rules *rules);
/* Removes the class; the default class is set back to its defaults. False: there is no such class. */
bool arb_settings_drop_class(struct arb_control_copy *draft, const char *name);
void arb_settings_publish(struct arb_control *control, const struct arb_control_copy *draft);

#endif
