/* Which GPU somebody means. */
#ifndef TOOLS_CLI_GPU_H
#define TOOLS_CLI_GPU_H

/*
 * The UUID of the GPU that is meant: by its UUID, by the beginning of one that has a segment, by its number,
 * or NULL, the only one that has a segment. Ends with a sentence if it is none, or not one alone.
 */
const char *cli_gpu(const char *dir, const char *wanted);

/* Is there such a GPU, as the driver counts or names them? 1: yes, 0: no, -1: nobody can say. */
int cli_gpu_exists(const char *wanted, int *count);

#endif
