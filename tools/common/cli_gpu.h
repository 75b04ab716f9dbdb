/* Which GPU somebody means, and what it is called. */
#ifndef TOOLS_CLI_GPU_H
#define TOOLS_CLI_GPU_H

#include <stdbool.h>
#include <stddef.h>

#include "gpuarb/abi.h"

#include "tools/common/nvml.h"

#define CLI_GPUS_MOST 64

/*
 * The UUID of the GPU that is meant: by its UUID, by the beginning of one that has a segment, by its number,
 * or NULL, the only one that has a segment. Ends with a sentence if it is none, or not one alone.
 */
const char *cli_gpu(const char *dir, const char *wanted);

/* Is it --gpu all? */
bool cli_gpu_is_all(const char *wanted);

/* The GPUs that somebody names, for tools that take --gpu several times. */
struct cli_gpu_names {
	const char *name[NVML_GPUS_MOST];
	int count;
};
/* Adds one; "all" adds none. Ends with a sentence if there are too many. */
struct argp_state;
void cli_gpu_add(const struct argp_state *state, struct cli_gpu_names *names, const char *wanted);

/* The GPUs that have a segment, in the order of their names; how many. Ends with a sentence if nobody may
 * look. */
int cli_gpu_all(const char *dir, char names[CLI_GPUS_MOST][ARB_UUID_BYTES]);

/* The UUID of that GPU, as the driver counts (0, 1:0) or names them; NULL if it knows none. `count` is how
 * many it knows, negative if there is no driver to ask. */
const char *cli_gpu_known(const char *wanted, int *count);

/*
 * For those that make something for a GPU nobody has used yet: the one that the driver knows by this number,
 * UUID or beginning of it. A GPU that has a segment is believed, and, where no driver can be asked, a whole
 * UUID; those have no index. Ends with a sentence if there is no such GPU.
 */
struct nvml_gpu cli_gpu_must_exist(const char *dir, const char *wanted);

/* "GPU-465b16bc-... (GPU 0)", or the UUID alone where no driver says its number. Asks it once. Returns `to`.
 */
#define CLI_GPU_TEXT (ARB_UUID_BYTES + 40)
const char *cli_gpu_text(const char *uuid, char to[CLI_GPU_TEXT]);

#endif
