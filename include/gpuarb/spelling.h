/* Finds the known word that a user may have meant. */
#ifndef GPUARB_SPELLING_H
#define GPUARB_SPELLING_H

#include "gpuarb/client.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Keeps the nearest of the words that it is shown. */
struct gpuarb_spelling {
	const char *wrong;
	const char *best;
	unsigned least;
};

GPUARB_API void gpuarb_spelling_begin(struct gpuarb_spelling *s, const char *wrong);
GPUARB_API void gpuarb_spelling_try(struct gpuarb_spelling *s, const char *known);
/* Returns the nearest of the known words, or NULL if none is near. */
GPUARB_API const char *gpuarb_spelling_meant(const struct gpuarb_spelling *s);

#ifdef __cplusplus
}
#endif

#endif
