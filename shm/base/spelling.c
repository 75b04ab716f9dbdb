#include "gpuarb/spelling.h"

#include <string.h>

#define WORD_MOST 64

/* Returns the number of edits that turn one word into another: the fewer, the nearer. */
static unsigned distance(const char *a, const char *b)
{
	unsigned row[WORD_MOST], previous, above;
	size_t n = strlen(b);

	if (n >= WORD_MOST || strlen(a) >= WORD_MOST)
		return WORD_MOST;
	for (size_t j = 0; j <= n; j++)
		row[j] = (unsigned)j;
	for (size_t i = 1; a[i - 1]; i++) {
		previous = row[0];
		row[0] = (unsigned)i;
		for (size_t j = 1; j <= n; j++) {
			unsigned best = previous + (a[i - 1] != b[j - 1]);

			above = row[j];
			if (above + 1 < best)
				best = above + 1;
			if (row[j - 1] + 1 < best)
				best = row[j - 1] + 1;
			previous = above;
			row[j] = best;
		}
	}
	return row[n];
}

void gpuarb_spelling_begin(struct gpuarb_spelling *s, const char *wrong)
{
	*s = (struct gpuarb_spelling){.wrong = wrong, .least = WORD_MOST};
}

void gpuarb_spelling_try(struct gpuarb_spelling *s, const char *known)
{
	unsigned d = distance(s->wrong, known);

	if (d < s->least) {
		s->least = d;
		s->best = known;
	}
}

const char *gpuarb_spelling_meant(const struct gpuarb_spelling *s)
{
	size_t n = strlen(s->wrong);

	/* More than half of the word is another word. */
	return s->least <= 2 + n / 4 && 2 * s->least <= n ? s->best : NULL;
}
