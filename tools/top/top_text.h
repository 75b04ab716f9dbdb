/* Text of gpuarb-top: what came from shared memory is made safe, numbers are made short. Pure. */
#ifndef TOOLS_TOP_TEXT_H
#define TOOLS_TOP_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Reads one code point of UTF-8 and moves *text on. Returns 0xfffd if the bytes are none, 0 at the end. */
uint32_t top_text_decode(const char **text);

/* Writes a code point as up to 4 bytes, without a NUL. Returns how many. */
size_t top_text_encode(uint32_t code, char *to);

/* Returns whether a terminal would do something else with it than show it: controls, direction marks, invisible
 * characters. */
bool top_text_hides(uint32_t code);

/* Returns how many columns it takes: 1 or 2. What cannot be shown takes 1, for a '?'. */
int top_text_columns(uint32_t code);

/* Makes text safe for a terminal or a label: valid UTF-8 without control characters; bad bytes become '?'. Returns
 * `to`. */
char *top_text_safe(const char *from, char *to, size_t size);
/* Makes text safe for JSON, whose writer escapes controls itself: valid UTF-8; bad bytes become U+FFFD. */
char *top_text_utf8(const char *from, char *to, size_t size);

/* Writes a size in at most 6 columns: 17B 1.2K 640M 4.0G 12T. */
char *top_text_bytes(uint64_t bytes, char *to, size_t size);
/* Writes a time in at most 6 columns: 0, 850us, 3.2ms, 47ms, 3.21s, 47.3s, 12m04s, 3h07m, 12d03h. */
char *top_text_time(uint64_t ns, char *to, size_t size);
/* Writes a share in percent, in at most 5 columns: 0.4983 as 49.8, 1 as 100. */
char *top_text_share(double share, char *to, size_t size);
/* Writes parts per million as a short percentage: 30, 33.3. */
char *top_text_ppm(unsigned ppm, char *to, size_t size);
/* Writes the time of day of a moment, to the millisecond. */
char *top_text_clock(uint64_t real_ns, char *to, size_t size);

/* Writes a container's id as tools show it: the first 12 digits of a long one. */
char *top_text_container(const char *id, char *to, size_t size);

#endif
