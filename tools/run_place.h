/* Chooses the GPU of a program, and has memory promised there before the program starts. */
#ifndef TOOLS_RUN_PLACE_H
#define TOOLS_RUN_PLACE_H

#include <stdbool.h>

struct run_place {
	const char *gpu;       /* NULL: what the environment shows; "auto"; else CUDA_VISIBLE_DEVICES */
	const char *libraries; /* where the driver is looked for first, or NULL */
	const char *dir;
	const char *account;
	const char *mem; /* as on the command line, or NULL: as the environment or arbiter.conf says */
	const char *core;
	const char *request;
	double wait_s;       /* < 0: do not wait */
	bool only_look;      /* promise nothing */
	char chosen[64];     /* out: the UUID of a GPU that was chosen */
	char name[104];      /* out: that UUID with the driver's number, if it is known */
	char unpromised[64]; /* out: a GPU whose segment cannot be opened */
};

/* Makes the promises, or ends with a sentence. Descriptors that hold promises are left open for the program. */
void run_place(struct run_place *place);

#endif
