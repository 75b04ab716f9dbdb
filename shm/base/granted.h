/*
 * What a container was granted by the tool that started it: its account and its limits. The file (ARB_GRANTED_FILE)
 * is mounted read-only next to the library (gpuarb-runtime does this), so a program in the container cannot change
 * it. It counts before the environment, which every program can change.
 */
#ifndef ARB_GRANTED_H
#define ARB_GRANTED_H

#include <stdbool.h>

/* Is there such a file? It is read once in a process. */
bool arb_granted(void);

/*
 * The value of a variable, or NULL: as granted where there is a grant, and then the environment counts only
 * for what changes no limit. Without a grant it is secure_getenv(). The text lives as long as the process.
 */
const char *arb_granted_getenv(const char *name);

/* For tests, before anything asks: another file. */
void arb_granted_set_file(const char *path);

#endif
