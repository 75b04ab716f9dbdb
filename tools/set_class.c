#include "tools/set_class.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpuarb/classes.h"
#include "gpuarb/config.h"
#include "gpuarb/control.h"

#include "tools/common/cli.h"
#include "tools/common/cli_gpu.h"
#include "tools/common/conf_save.h"

#define FIELDS_MOST 16

void set_class_check(const char *name, char *const *keys, char *const *values, size_t count)
{
	struct gpuarb_class_rules rules = gpuarb_class_default;
	struct gpuarb_error err = {0};

	if (!gpuarb_class_name_ok(name))
		die_usage(ARB_CLASS_NAME_SENTENCE, "class", name);
	if (!count && strcmp(name, gpuarb_class_default.name) == 0)
		die_usage(ARB_CLASS_STAYS_SENTENCE, name);
	for (size_t i = 0; i < count; i++) {
		char value[64] = "";

		if (!*values[i])
			gpuarb_class_format(&rules, keys[i], value, sizeof(value));
		if (gpuarb_class_parse(&rules, keys[i], *values[i] ? values[i] : value, name, &err) < 0)
			die_usage("%s", err.text);
	}
}

/* A class as it was on one GPU: all of its settings, or that it did not exist. */
struct before {
	char values[FIELDS_MOST][64];
	struct gpuarb_class_change changes[FIELDS_MOST];
	size_t count;
};

static void remember(const char *dir, const char *gpu, const char *name, struct before *b)
{
	struct gpuarb_error err;

	b->count = 0;
	for (unsigned k = 0; k < FIELDS_MOST && gpuarb_class_key(k); k++)
		if (gpuarb_control_class(dir, gpu, name, gpuarb_class_key(k), b->values[k],
			    sizeof(b->values[k]), &err) == 0)
			b->changes[b->count++] =
				(struct gpuarb_class_change){name, gpuarb_class_key(k), b->values[k]};
	if (!b->count)
		b->changes[b->count++] = (struct gpuarb_class_change){name, NULL, NULL};
}

void set_class(const char *dir, const struct set_gpus *gpus, const char *name, char *const *keys,
	char *const *values, size_t count, bool save)
{
	struct gpuarb_class_change *changes = calloc(count + 1, sizeof(*changes));
	struct before *before = calloc((size_t)gpus->count, sizeof(*before));
	struct conf_save *file = NULL;
	struct gpuarb_error err = {0}, ignored;
	char why[CLI_GPU_SENTENCE];

	if (!changes || !before)
		die("out of memory");
	changes[0] = (struct gpuarb_class_change){name, NULL, NULL};
	for (size_t i = 0; i < count; i++)
		changes[i] = (struct gpuarb_class_change){name, keys[i], *values[i] ? values[i] : NULL};
	if (save)
		file = conf_save_prepare_classes(changes, count ? count : 1);
	for (int i = 0; i < gpus->count; i++) {
		remember(dir, gpus->names[i], name, &before[i]);
		if (gpuarb_control_change_classes(dir, gpus->names[i], changes, count ? count : 1, &err) == 0)
			continue;
		cli_gpu_sentence(gpus->names[i], err.text, why);
		while (i-- > 0)
			gpuarb_control_change_classes(
				dir, gpus->names[i], before[i].changes, before[i].count, &ignored);
		if (file)
			conf_save_abandon(file);
		die("%s", why);
	}
	if (file)
		conf_save_finish(file);
	free(before);
	free(changes);
}

void set_class_show(const char *dir, const char *gpu)
{
	struct gpuarb_config config;
	char value[64];

	/* If nothing has been set, there is the default class. */
	gpuarb_control_read(dir, gpu, &config, NULL);
	for (uint32_t i = 0; i < config.nclasses; i++) {
		const struct gpuarb_class_rules *rules = &config.classes[i];

		if (!rules->name[0])
			continue;
		printf("  class %s:", rules->name);
		for (unsigned k = 0; gpuarb_class_key(k); k++) {
			gpuarb_class_format(rules, gpuarb_class_key(k), value, sizeof(value));
			printf(" %s=%s", gpuarb_class_key(k), value);
		}
		printf("\n");
	}
	gpuarb_config_free(&config);
}
