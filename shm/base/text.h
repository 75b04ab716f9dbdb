/* Text in shared words: always ends in a NUL, whatever the words hold. */
#ifndef ARB_TEXT_H
#define ARB_TEXT_H

#include <string.h>

#include "shm/base/atomic.h"

static inline void arb_text_store(arb_u64 *words, size_t nwords, const char *text)
{
	size_t length = 0;

	while (length < 8 * nwords - 1 && text[length])
		length++;
	/* The first word goes first and comes last: a death in between leaves an empty text, not half of one.
	 */
	arb_store64(&words[0], 0);
	for (size_t i = nwords; i-- > 0;) {
		uint64_t word = 0;

		if (length > 8 * i)
			memcpy(&word, text + 8 * i, length - 8 * i < 8 ? length - 8 * i : 8);
		arb_store64(&words[i], word);
	}
}

static inline void arb_text_load(const arb_u64 *words, size_t nwords, char *text)
{
	for (size_t i = 0; i < nwords; i++) {
		uint64_t word = arb_load64(&words[i]);

		memcpy(text + 8 * i, &word, 8);
	}
	text[8 * nwords - 1] = '\0';
}

static inline uint64_t arb_text_hash(const char *text)
{
	uint64_t hash = 0xcbf29ce484222325ull; /* FNV-1a */

	for (; *text; text++)
		hash = (hash ^ (unsigned char)*text) * 0x100000001b3ull;
	return hash;
}

static inline int arb_text_equals(const arb_u64 *words, size_t nwords, const char *text)
{
	char copy[ARB_NAME_BYTES];

	arb_text_load(words, nwords, copy);
	return strncmp(copy, text, 8 * nwords - 1) == 0;
}

#endif
