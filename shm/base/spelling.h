/* The known word that somebody may have meant. */
#ifndef ARB_SPELLING_H
#define ARB_SPELLING_H

/* Keeps the nearest of the words that it is shown. */
struct arb_spelling {
	const char *wrong;
	const char *best;
	unsigned least;
};

void arb_spelling_begin(struct arb_spelling *s, const char *wrong);
void arb_spelling_try(struct arb_spelling *s, const char *known);
/* The nearest one, or NULL if none is near. */
const char *arb_spelling_meant(const struct arb_spelling *s);

#endif
