#include "set_class.h"

#include <stdio.h>
#include <stdlib.h>

#include "gpuarb/control.h"

#include "admission.h"
#include "classes.h"
#include "cli.h"
#include "control.h"
#include "settings.h"

void set_class(const char *dir, const char *gpu, const char *name, char *const *keys, char *const *values,
	size_t count)
{
	struct gpuarb_class_change *changes = calloc(count + 1, sizeof(*changes));
	struct gpuarb_error err = {0};

	if (!changes)
		die("out of memory");
	changes[0] = (struct gpuarb_class_change){name, NULL, NULL};
	for (size_t i = 0; i < count; i++)
		changes[i] = (struct gpuarb_class_change){name, keys[i], *values[i] ? values[i] : NULL};
	if (gpuarb_control_change_classes(dir, gpu, changes, count ? count : 1, &err) < 0)
		die("%s", err.text);
	free(changes);
}

void set_class_show(const char *dir, const char *gpu)
{
	struct arb_class_rules classes[ARB_CLASSES] = {0};
	struct arb_control_map map;
	char value[64];

	if (arb_control_map_open(&map, arb_control_dir(dir), gpu, false, NULL, NULL, NULL) == 0) {
		arb_settings_classes(map.control, classes);
		arb_control_map_close(&map);
	}
	arb_admission_have_default(classes);
	for (uint32_t i = 0; i < ARB_CLASSES; i++) {
		if (!classes[i].name[0])
			continue;
		printf("  class %s:", classes[i].name);
		for (unsigned k = 0; arb_class_key(k); k++) {
			arb_class_format(&classes[i], arb_class_key(k), value, sizeof(value));
			printf(" %s=%s", arb_class_key(k), value);
		}
		printf("\n");
	}
}
