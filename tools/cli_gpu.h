/* Which GPU somebody means. */
#ifndef TOOLS_CLI_GPU_H
#define TOOLS_CLI_GPU_H

/*
 * The UUID of the GPU that is meant: by its UUID, by the beginning of one that has a segment, by its number,
 * or NULL, the only one that has a segment. Ends with a sentence if it is none, or not one alone.
 */
const char *cli_gpu(const char *dir, const char *wanted);

/* The UUID of that GPU, as the driver counts (0, 1:0) or names them; NULL if it knows none. `count` is how
 * many it knows, negative if there is no driver to ask. */
const char *cli_gpu_known(const char *wanted, int *count);

#endif
