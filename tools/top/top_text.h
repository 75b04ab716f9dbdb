/* Text of gpuarb-top: what came out of shared memory made safe, and numbers made short. Pure. */
#ifndef TOOLS_TOP_TEXT_H
#define TOOLS_TOP_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* One code point out of UTF-8; moves *text on. 0xfffd where the bytes are none; 0 at the end. */
uint32_t top_text_decode(const char **text);

/* The other way round: up to 4 bytes, without a NUL. Returns how many. */
size_t top_text_encode(uint32_t code, char *to);

/* Does a terminal do something else with it than show it? Controls, direction marks, invisible characters. */
bool top_text_hides(uint32_t code);

/* How many columns it takes: 1 or 2. What cannot be shown takes one, for a '?'. */
int top_text_columns(uint32_t code);

/* For a terminal or a label: valid UTF-8, no control characters; what is bad becomes '?'. Returns `to`. */
char *top_text_safe(const char *from, char *to, size_t size);
/* For JSON, whose writer escapes controls by itself: valid UTF-8, what is bad becomes U+FFFD. */
char *top_text_utf8(const char *from, char *to, size_t size);

/* At most 6 columns: 17B 1.2K 640M 4.0G 12T. */
char *top_text_bytes(uint64_t bytes, char *to, size_t size);
/* At most 6 columns: 0, 850us, 3.2ms, 47ms, 3.21s, 47.3s, 12m04s, 3h07m, 12d03h. */
char *top_text_time(uint64_t ns, char *to, size_t size);
/* A share of 0.4983 as 49.8, one of all as 100; no more than 5 columns. */
char *top_text_share(double share, char *to, size_t size);
/* Parts per million as a percentage, short: 30, 33.3. */
char *top_text_ppm(unsigned ppm, char *to, size_t size);
/* The time of day of a moment, to the millisecond. */
char *top_text_clock(uint64_t real_ns, char *to, size_t size);

/* A container's id as people know it: the first 12 digits of a long one. */
char *top_text_container(const char *id, char *to, size_t size);

#endif
