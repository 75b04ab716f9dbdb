/* The files of a GPU as administrators see them: whether they may be used, what they hold, how they are made. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "gpuarb/config.h"
#include "gpuarb/control.h"

#include "shm/admission/admission.h"
#include "shm/base/error.h"
#include "shm/client/control_segment.h"
#include "shm/segment/file.h"
#include "shm/segment/segment.h"
#include "shm/segment/settings.h"

uint64_t gpuarb_control_bytes(unsigned slots)
{
	return arb_segment_size(slots, arb_segment_accounts_for(slots), ARB_EVENTS) +
	       sizeof(struct arb_control);
}

unsigned gpuarb_control_lock_mode(unsigned state)
{
	return arb_segment_lock_mode(state);
}

bool gpuarb_control_exists(const char *dir, const char *gpu)
{
	return arb_segment_exists(gpuarb_control_dir(dir), gpu);
}

int gpuarb_control_try_state(const char *dir, const char *gpu, unsigned *slots, struct gpuarb_error *err)
{
	struct arb_segment seg;
	int r = arb_segment_open(&seg, gpuarb_control_dir(dir), gpu, true, NULL, err);

	if (r < 0)
		return r;
	*slots = seg.nslots;
	arb_segment_close(&seg);
	return 0;
}

int gpuarb_control_try_settings(const char *dir, const char *gpu, struct gpuarb_error *err)
{
	struct arb_control_map map;
	int r = arb_control_map_open(&map, gpuarb_control_dir(dir), gpu, false, NULL, NULL, err);

	if (r == 0)
		arb_control_map_close(&map);
	return r;
}

int gpuarb_control_directories(const char *dir, const struct gpuarb_config *config, struct gpuarb_error *err)
{
	int r = arb_file_directories(
		dir, "state", (mode_t)config->value[ARB_KEY_SEGMENT_MODE], (gid_t)-1, err);

	return r < 0 ? r
		     : arb_file_directories(
			       dir, "control", (mode_t)config->value[ARB_KEY_CONTROL_MODE], (gid_t)-1, err);
}

int arb_control_make(struct arb_control_map *map, const char *dir, const char *gpu, bool writable,
	const struct gpuarb_config *config, struct gpuarb_error *err)
{
	struct arb_create create = {
		0, (mode_t)config->value[ARB_KEY_CONTROL_MODE], (gid_t)config->value[ARB_KEY_GROUP]};
	struct arb_control_copy *first = aligned_alloc(_Alignof(struct arb_control_copy), sizeof(*first));
	int r;

	if (!first)
		return arb_fail(err, -ENOMEM, "out of memory");
	arb_settings_first(first, config);
	r = arb_control_map_open(map, dir, gpu, writable, &create, first, err);
	free(first);
	return r;
}

/* The state segment is made first, as clients do it: a process that sees settings then sees what they are for. */
int gpuarb_control_create(const char *dir, const char *gpu, const struct gpuarb_config *config,
	unsigned *slots, struct gpuarb_error *err)
{
	struct arb_create create = {(uint32_t)config->value[ARB_KEY_SLOTS],
		(mode_t)config->value[ARB_KEY_SEGMENT_MODE], (gid_t)config->value[ARB_KEY_GROUP]};
	struct arb_control_map control;
	struct arb_segment state;
	int r;

	dir = gpuarb_control_dir(dir);
	r = arb_segment_open(&state, dir, gpu, true, &create, err);
	if (r < 0)
		return r;
	*slots = state.nslots;
	arb_segment_close(&state);
	r = arb_control_make(&control, dir, gpu, false, config, err);
	if (r == 0)
		arb_control_map_close(&control);
	return r;
}

static int read_all(const struct arb_control *control, const char *gpu, struct gpuarb_config *config,
	struct gpuarb_error *err)
{
	uint64_t epoch;

	if (arb_settings_read(control, config->value, &epoch) < 0)
		return arb_fail(err, -EAGAIN, "the settings of %s change all the time", gpu);
	config->limits = calloc(ARB_CONTROL_LIMITS, sizeof(*config->limits));
	if (!config->limits)
		return arb_fail(err, -ENOMEM, "out of memory");
	while (config->nlimits < ARB_CONTROL_LIMITS &&
		arb_settings_limit_at(control, (uint32_t)config->nlimits, &config->limits[config->nlimits]) ==
			1)
		config->nlimits++;
	config->nclasses = arb_settings_classes(control, config->classes);
	return 0;
}

int gpuarb_control_read(
	const char *dir, const char *gpu, struct gpuarb_config *config, struct gpuarb_error *err)
{
	struct arb_control_map map;
	int r;

	memset(config, 0, sizeof(*config));
	for (int key = 0; key < ARB_KEY_COUNT; key++)
		config->value[key] = gpuarb_keys[key].initial;
	r = arb_control_map_open(&map, gpuarb_control_dir(dir), gpu, false, NULL, NULL, err);
	if (r == 0) {
		r = read_all(map.control, gpu, config, err);
		arb_control_map_close(&map);
	}
	arb_admission_have_default(config->classes);
	if (!config->nclasses)
		config->nclasses = 1;
	return r;
}
