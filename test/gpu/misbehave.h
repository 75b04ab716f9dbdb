/* Looks up functions of the driver behind the one that misbehaves. */
#ifndef TEST_GPU_MISBEHAVE_H
#define TEST_GPU_MISBEHAVE_H

void *misbehave_next(const char *name);

#endif
