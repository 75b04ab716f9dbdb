/*
 * Log lines, on standard error or in the file that GPUARB_LOG names. Each line is one write. Nothing is allocated, errno is
 * kept, and a flood of lines is cut off.
 */
#ifndef PRELOAD_LOG_H
#define PRELOAD_LOG_H

#include <stdbool.h>
#include <stdint.h>

enum arb_log_level { ARB_LOG_OFF, ARB_LOG_ERROR, ARB_LOG_WARN, ARB_LOG_INFO, ARB_LOG_DEBUG };

/* Writes a line, if GPUARB_LOG asks for its level: off, error, warn (the default), info or debug. An absolute path there names
 * a file, which gets level info. */
void arb_log(enum arb_log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Whether a line of this level would be written: to be asked before a line that takes work. */
bool arb_log_wants(enum arb_log_level level);

/*
 * Limits how often a line is written that a program can provoke at will: the first at once, then one in
 * ARB_LOG_EVERY_NS. True: write it now; *unsaid is how many were left out before it. False: leave it out; it is
 * counted. Any number of threads may call it. A rate is all zeros at the beginning.
 */
#define ARB_LOG_EVERY_NS 10000000000ull

struct arb_log_rate {
	uint64_t next_ns;
	uint32_t unsaid;
};

bool arb_log_due(struct arb_log_rate *rate, uint64_t now_ns, uint32_t *unsaid);

#endif
