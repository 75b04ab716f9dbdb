/* Finds the GPU that a user means, and what it is called. */
#ifndef TOOLS_CLI_GPU_H
#define TOOLS_CLI_GPU_H

#include <stdbool.h>
#include <stddef.h>

#include "gpuarb/abi.h"
#include "gpuarb/client.h"

#include "tools/common/nvml.h"

#define CLI_GPUS_MOST 64

/*
 * Returns the UUID of the GPU that is meant: by its UUID, by the beginning of a UUID that has a segment, by its
 * number, or, if `wanted` is NULL, the only GPU that has a segment. Ends with a sentence if there is none, or more
 * than one.
 */
const char *cli_gpu(const char *dir, const char *wanted);

/* Whether --gpu all was given. */
bool cli_gpu_is_all(const char *wanted);

/* The GPUs that a user names, for tools that take --gpu several times. */
struct cli_gpu_names {
	const char *name[NVML_GPUS_MOST];
	int count;
};
/* Adds a GPU; "all" adds none. Ends with a sentence if there are too many. */
struct argp_state;
void cli_gpu_add(const struct argp_state *state, struct cli_gpu_names *names, const char *wanted);

/* Lists the GPUs that have a segment, in the order of their names, and returns how many. Ends with a sentence if the
 * user may not look. */
int cli_gpu_all(const char *dir, char names[CLI_GPUS_MOST][ARB_UUID_BYTES]);

/* Returns the UUID of that GPU, as the driver counts (0, 1:0) or names it; NULL if the driver knows none. `count` is
 * how many it knows; negative: there is no driver to ask. */
const char *cli_gpu_known(const char *wanted, int *count);

/*
 * For tools that make something for a GPU that nobody has used yet: finds the GPU that the driver knows by this
 * number, UUID or beginning of a UUID. A GPU that has a segment is accepted without the driver, and so is a whole
 * UUID where there is no driver to ask; these have no index. Ends with a sentence if there is no such GPU.
 */
struct nvml_gpu cli_gpu_must_exist(const char *dir, const char *wanted);

/* Sorts GPUs by the driver's numbers; those that have none are last. The driver is asked, so this may take a while. */
void cli_gpu_sort(char names[CLI_GPUS_MOST][ARB_UUID_BYTES], int count);

/* Writes "GPU-465b16bc-... (GPU 0)", or only the UUID where no driver tells its number. The driver is asked once.
 * Returns `to`. */
#define CLI_GPU_TEXT (ARB_UUID_BYTES + 40)
const char *cli_gpu_text(const char *uuid, char to[CLI_GPU_TEXT]);

/* Writes a sentence of the library, with the number of this GPU behind its UUID. Returns `to`. */
#define CLI_GPU_SENTENCE (sizeof(((struct gpuarb_error *)0)->text) + CLI_GPU_TEXT)
const char *cli_gpu_sentence(const char *uuid, const char *sentence, char to[CLI_GPU_SENTENCE]);

#endif
