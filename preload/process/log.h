/*
 * What has to be said, on standard error or in the file that GPUARB_LOG names: one line, one write. Nothing
 * is allocated, errno is kept, and a flood is cut off.
 */
#ifndef PRELOAD_LOG_H
#define PRELOAD_LOG_H

#include <stdbool.h>
#include <stdint.h>

enum arb_log_level { ARB_LOG_OFF, ARB_LOG_ERROR, ARB_LOG_WARN, ARB_LOG_INFO, ARB_LOG_DEBUG };

/* GPUARB_LOG: off, error, warn (the default), info, debug, or an absolute path, which gets info. */
void arb_log(enum arb_log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Would a line of this level be written? For lines that take work. */
bool arb_log_wants(enum arb_log_level level);

/*
 * A sentence that a program can provoke at will: the first at once, then one in so long. False: not now; it
 * is counted. True: *unsaid is how many were not said. For any number of threads; all zeros at the beginning.
 */
#define ARB_LOG_EVERY_NS 10000000000ull

struct arb_log_rate {
	uint64_t next_ns;
	uint32_t unsaid;
};

bool arb_log_due(struct arb_log_rate *rate, uint64_t now_ns, uint32_t *unsaid);

#endif
