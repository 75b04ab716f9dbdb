/* What the parts of an explanation share. */
#ifndef TOOLS_TOP_EXPLAIN_H
#define TOOLS_TOP_EXPLAIN_H

#include <stdbool.h>
#include <stdio.h>

#include "tools/top/top_model.h"
#include "tools/top/top_words.h"

struct story {
	const struct top_gpu *gpu;
	const struct gpuarb_picture *picture;
	const struct top_account *account; /* NULL: it is not there */
	const char *name;                  /* safe to show */
	const struct top_origin *origin;
	FILE *to;
};

/* Says who has work and comes before the account, which waits. Returns false if it waits for another reason. */
bool top_explain_above(const struct story *s);
/* Explains the account's priority, request, weight, limit and effective quota. */
void top_explain_quota(const struct story *s);

#endif
