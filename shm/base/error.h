/* How the library says what went wrong: a negative errno, and one sentence for people if they want it. */
#ifndef ARB_ERROR_H
#define ARB_ERROR_H

#include <stdarg.h>
#include <stdio.h>

#include "gpuarb/client.h"

/* Fills in err (may be NULL) and returns code, so that `return arb_fail(err, -EINVAL, "...")` reads well. A sentence
 * may quote text of others: control characters in it become '?', so that it stays one line on any terminal. */
__attribute__((format(printf, 3, 4))) static inline int arb_fail(
	struct gpuarb_error *err, int code, const char *format, ...)
{
	if (err) {
		va_list ap;

		err->code = code;
		va_start(ap, format);
		vsnprintf(err->text, sizeof(err->text), format, ap);
		va_end(ap);
		for (char *c = err->text; *c; c++)
			if ((unsigned char)*c < ' ' || *c == 0x7f)
				*c = '?';
	}
	return code;
}

#endif
