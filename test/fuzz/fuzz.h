/* A fuzz target: what libFuzzer calls, AFL++ through it, and main.c for the stored inputs. */
#ifndef FUZZ_H
#define FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A property that every input has to keep. */
#define FUZZ_HOLDS(condition, ...)                                                                           \
	do {                                                                                                 \
		if (!(condition)) {                                                                          \
			fprintf(stderr, "fuzz: " __VA_ARGS__);                                               \
			fprintf(stderr, " (%s:%d: %s)\n", __FILE__, __LINE__, #condition);                   \
			abort();                                                                             \
		}                                                                                            \
	} while (0)

/* The input as text: to be freed. A NUL byte ends it. */
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
