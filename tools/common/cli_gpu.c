#include "tools/common/cli_gpu.h"

#include <argp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpuarb/control.h"

#include "tools/common/cli.h"
#include "tools/common/nvml_child.h"

/* The longest wait for the driver when only a number beside a name depends on it. */
#define NUMBER_MS 2000

static struct nvml_gpu known[NVML_GPUS_MOST];

static bool is_uuid(const char *text)
{
	return strncmp(text, "GPU-", 4) == 0 || strncmp(text, "MIG-", 4) == 0;
}

/* Limits may have been set before any client used the GPU. */
static bool has_settings(const char *dir, const char *gpu)
{
	return gpuarb_gpu_name_ok(gpu) && gpuarb_control_try_settings(dir, gpu, NULL) == 0;
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

static int by_name(const void *a, const void *b)
{
	return strcmp(a, b);
}

bool cli_gpu_is_all(const char *wanted)
{
	return strcmp(wanted, "all") == 0;
}

void cli_gpu_add(const struct argp_state *state, struct cli_gpu_names *names, const char *wanted)
{
	if (cli_gpu_is_all(wanted))
		return;
	if (names->count == NVML_GPUS_MOST)
		argp_error(state, "more than %d GPUs", NVML_GPUS_MOST);
	names->name[names->count++] = wanted;
}

int cli_gpu_all(const char *dir, char names[CLI_GPUS_MOST][ARB_UUID_BYTES])
{
	struct gpuarb_error err = {0};
	int n = gpuarb_control_list(dir, names, CLI_GPUS_MOST, &err);

	if (n < 0)
		die("%s", err.text);
	n = n > CLI_GPUS_MOST ? CLI_GPUS_MOST : n;
	qsort(names, (size_t)n, sizeof(names[0]), by_name);
	return n;
}

const char *cli_gpu(const char *dir, const char *wanted)
{
	static char names[CLI_GPUS_MOST][ARB_UUID_BYTES];
	const char *found = NULL;
	int n, matches = 0;

	if (wanted && *wanted >= '0' && *wanted <= '9')
		return by_number(wanted);
	n = cli_gpu_all(dir, names);
	for (int i = 0; i < n; i++) {
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
		die("no GPU has a segment yet: 'sudo gpuarb-node' or the first program makes it; or name a GPU with --gpu");
	if (has_settings(dir, wanted))
		return wanted;
	if (!gpuarb_gpu_is_uuid(wanted))
		die("there is no GPU '%.70s': a GPU is named by its number or UUID (see nvidia-smi -L), or "
		    "by "
		    "the beginning of one that has a segment",
			wanted);
	if (!cli_gpu_known(wanted, &n) && n >= 0)
		die("there is no GPU '%.70s': it has no segment, and the driver knows none with this UUID "
		    "(see nvidia-smi -L)",
			wanted);
	return wanted;
}

static const struct nvml_gpu *find(const char *wanted, int *count)
{
	const char *why;

	*count = nvml_list(known, &why);
	/* The driver accepts the beginning of a UUID as well. */
	for (int i = 0; i < *count && i < NVML_GPUS_MOST; i++)
		if (strcmp(known[i].index, wanted) == 0 ||
			(is_uuid(wanted) && strncmp(known[i].uuid, wanted, strlen(wanted)) == 0))
			return &known[i];
	return NULL;
}

const char *cli_gpu_known(const char *wanted, int *count)
{
	const struct nvml_gpu *gpu = find(wanted, count);

	return gpu ? gpu->uuid : NULL;
}

struct nvml_gpu cli_gpu_must_exist(const char *dir, const char *wanted)
{
	struct nvml_gpu gpu = {.index = ""};
	const struct nvml_gpu *driver;
	int count;

	driver = find(wanted, &count);
	if (driver)
		return *driver;
	if (!gpuarb_gpu_name_ok(wanted) || !gpuarb_control_exists(dir, wanted)) {
		if (count >= 0)
			die("there is no GPU '%.70s'; the driver knows %d, by number and UUID: see "
			    "gpuarb-node "
			    "--list",
				wanted, count);
		if (!gpuarb_gpu_is_uuid(wanted))
			die("there is no GPU '%.70s': without a driver to ask, a GPU is named by its whole "
			    "UUID",
				wanted);
	}
	snprintf(gpu.uuid, sizeof(gpu.uuid), "%s", wanted);
	return gpu;
}

/* Returns the place of a GPU in the driver's list, which is asked for once. Without a place: a number behind all. */
static int place_of(const char *uuid, const struct nvml_gpu **list)
{
	static struct nvml_gpu gpus[NVML_GPUS_MOST];
	static int count = -1;
	int i = 0;

	if (count < 0)
		count = nvml_child_list(gpus, NUMBER_MS);
	*list = gpus;
	while (i < count && strcmp(gpus[i].uuid, uuid) != 0)
		i++;
	return i < count ? i : NVML_GPUS_MOST;
}

static int by_place(const void *a, const void *b)
{
	const struct nvml_gpu *list;
	int left = place_of(a, &list), right = place_of(b, &list);

	return left != right ? left - right : strcmp(a, b);
}

void cli_gpu_sort(char names[CLI_GPUS_MOST][ARB_UUID_BYTES], int count)
{
	qsort(names, (size_t)count, sizeof(names[0]), by_place);
}

const char *cli_gpu_text(const char *uuid, char to[CLI_GPU_TEXT])
{
	const struct nvml_gpu *list;
	int place = place_of(uuid, &list);

	if (place < NVML_GPUS_MOST)
		snprintf(to, CLI_GPU_TEXT, "%s (GPU %s)", uuid, list[place].index);
	else
		snprintf(to, CLI_GPU_TEXT, "%s", uuid);
	return to;
}

const char *cli_gpu_sentence(const char *uuid, const char *sentence, char to[CLI_GPU_SENTENCE])
{
	const char *at = sentence;
	char name[CLI_GPU_TEXT];
	size_t n = strlen(uuid);

	/* Not where it is the name of a file, nor where its number stands already. */
	while ((at = strstr(at, uuid)) &&
		((at > sentence && at[-1] == '/') || strncmp(at + n, " (GPU ", 6) == 0))
		at += n;
	if (at)
		snprintf(to, CLI_GPU_SENTENCE, "%.*s%s%s", (int)(at - sentence), sentence,
			cli_gpu_text(uuid, name), at + n);
	else
		snprintf(to, CLI_GPU_SENTENCE, "%s", sentence);
	return to;
}
