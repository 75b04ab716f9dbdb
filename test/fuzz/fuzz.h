/* A fuzz target: libFuzzer calls it, AFL++ does through libFuzzer's interface, and main.c runs it over stored inputs.
 */
#ifndef FUZZ_H
#define FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Stops with a message if a property does not hold that every input must keep. */
#define FUZZ_HOLDS(condition, ...)                                                                           \
	do {                                                                                                 \
		if (!(condition)) {                                                                          \
			fprintf(stderr, "fuzz: " __VA_ARGS__);                                               \
			fprintf(stderr, " (%s:%d: %s)\n", __FILE__, __LINE__, #condition);                   \
			abort();                                                                             \
		}                                                                                            \
	} while (0)

/* Returns the input as text, which the caller frees. A NUL byte ends it. */
static inline char *fuzz_text(const uint8_t *data, size_t size)
{
	char *text = malloc(size + 1);

	if (!text)
		abort();
	for (size_t i = 0; i < size; i++)
		text[i] = (char)data[i];
	text[size] = '\0';
	return text;
}

#endif
