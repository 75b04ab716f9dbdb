#include "cli_gpu.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "gpuarb/control.h"

#include "cli.h"
#include "control.h"
#include "nvml.h"
#include "segment.h"

#define GPUS_MOST 64

static struct nvml_gpu known[NVML_GPUS_MOST];

static bool is_uuid(const char *text)
{
	return strncmp(text, "GPU-", 4) == 0 || strncmp(text, "MIG-", 4) == 0;
}

/* In full, as the driver writes it: only then it cannot be half of another's name. */
static bool is_whole_uuid(const char *text)
{
	static const char form[] = "xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx";

	if (!is_uuid(text) || strlen(text) != 4 + strlen(form))
		return false;
	for (size_t i = 0; form[i]; i++)
		if (form[i] == '-' ? text[4 + i] != '-' : !isxdigit((unsigned char)text[4 + i]))
			return false;
	return true;
}

/* Limits may have been set before anybody used it. */
static bool has_settings(const char *dir, const char *gpu)
{
	struct arb_control_map map;

	if (!arb_segment_name_ok(gpu) ||
		arb_control_map_open(&map, arb_control_dir(dir), gpu, false, NULL, NULL, NULL) < 0)
		return false;
	arb_control_map_close(&map);
	return true;
}

static const char *by_number(const char *wanted)
{
	const char *uuid;
	int n;

	uuid = cli_gpu_known(wanted, &n);
	if (n < 0)
		die("GPU %s: numbers are the driver's, and there is none to ask; name it by its UUID",
			wanted);
	if (!uuid)
		die("there is no GPU %s; the driver knows %d, counted from 0", wanted, n);
	return uuid;
}

const char *cli_gpu(const char *dir, const char *wanted)
{
	static char names[GPUS_MOST][ARB_UUID_BYTES];
	struct gpuarb_error err = {0};
	const char *found = NULL;
	int n, matches = 0;

	if (wanted && *wanted >= '0' && *wanted <= '9')
		return by_number(wanted);
	n = gpuarb_control_list(dir, names, GPUS_MOST, &err);
	if (n < 0)
		die("%s", err.text);
	for (int i = 0; i < n && i < GPUS_MOST; i++) {
		if (wanted && strcmp(names[i], wanted) == 0)
			return names[i];
		if (!wanted || strncmp(names[i], wanted, strlen(wanted)) == 0) {
			found = names[i];
			matches++;
		}
	}
	if (matches == 1)
		return found;
	if (matches > 1)
		die("%d GPUs have a segment%s%s, %s among them; name one with --gpu", matches,
			wanted ? " and begin with " : "", wanted ? wanted : "", found);
	if (!wanted)
		die("no GPU has a segment yet; name one with --gpu");
	if (!is_whole_uuid(wanted) && !has_settings(dir, wanted))
		die("there is no GPU '%.70s': a GPU is named by its number or UUID (see nvidia-smi -L), or "
		    "by "
		    "the beginning of one that has a segment",
			wanted);
	return wanted;
}

const char *cli_gpu_known(const char *wanted, int *count)
{
	const char *why;

	*count = nvml_list(known, &why);
	/* The driver takes the beginning of a UUID as well. */
	for (int i = 0; i < *count && i < NVML_GPUS_MOST; i++)
		if (strcmp(known[i].index, wanted) == 0 ||
			(is_uuid(wanted) && strncmp(known[i].uuid, wanted, strlen(wanted)) == 0))
			return known[i].uuid;
	return NULL;
}
