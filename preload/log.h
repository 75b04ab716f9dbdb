/*
 * What has to be said, on standard error or in the file that GPUARB_LOG names: one line, one write. Nothing
 * is allocated, errno is kept, and a flood is cut off.
 */
#ifndef PRELOAD_LOG_H
#define PRELOAD_LOG_H

#include <stdbool.h>

enum arb_log_level { ARB_LOG_OFF, ARB_LOG_ERROR, ARB_LOG_WARN, ARB_LOG_INFO, ARB_LOG_DEBUG };

/* GPUARB_LOG: off, error, warn (the default), info, debug, or an absolute path, which gets info. */
void arb_log(enum arb_log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Would a line of this level be written? For lines that take work. */
bool arb_log_wants(enum arb_log_level level);

#endif
