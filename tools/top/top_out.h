/* Writes the model for programs: as JSON and in the Prometheus text format. */
#ifndef TOOLS_TOP_OUT_H
#define TOOLS_TOP_OUT_H

#include <stdbool.h>
#include <stdio.h>

#include "tools/top/top_model.h"

/* Raised when a field changes its meaning or is removed; new fields do not raise it. */
#define TOP_JSON_VERSION 1

struct top_past;

/* Writes one object; `compact` puts it on one line. `past`: with these events; NULL: without. Returns false if memory
 * is short. */
bool top_out_json(
	struct top_gpu *const *gpus, unsigned ngpus, bool compact, const struct top_past *past, FILE *to);
void top_out_prom(struct top_gpu *const *gpus, unsigned ngpus, FILE *to);

#endif
