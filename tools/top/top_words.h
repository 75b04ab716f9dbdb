/* Events and states in words; why an account does not get more. Pure: the model in, sentences out. */
#ifndef TOOLS_TOP_WORDS_H
#define TOOLS_TOP_WORDS_H

#include <stdbool.h>
#include <stdio.h>

#include "tools/top/top_model.h"

/* Writes what happened, as the end of a sentence that begins with top_words_subject(). */
char *top_words_event(const struct top_gpu *gpu, const struct top_event *event, char *to, size_t size);

/* Writes the beginning of that sentence: the account, or the GPU. */
const char *top_words_subject(const struct top_event *event, char *to, size_t size);

/* Where an account's limits come from. */
struct top_origin {
	/* Set by an administrator; otherwise the program asked for it, or nobody did. */
	bool core_set, mem_set, priority_set, request_set, weight_set;
};

/* Explains an account, of which there may be only its past. */
void top_words_explain(
	const struct top_gpu *gpu, const char *account, const struct top_origin *origin, FILE *to);

/* Writes a setting as it is named in arbiter.conf. */
const char *top_words_choice(const struct gpuarb_picture *picture, int key, char *to, size_t size);
/* Names of the counters of enum arb_counter: the key for programs, and the text for people. */
const char *top_words_counter_key(int counter);
const char *top_words_counter_text(int counter);

#endif
