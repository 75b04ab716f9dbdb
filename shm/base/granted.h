/*
 * What a container was granted by the tool that started it: its account and its limits. The file (ARB_GRANTED_FILE)
 * is mounted read-only next to the library (gpuarb-runtime does this), so a program in the container cannot change
 * it. It counts before the environment, which every program can change.
 */
#ifndef ARB_GRANTED_H
#define ARB_GRANTED_H

#include <stdbool.h>

/* Is there such a file? A process reads it once. */
bool arb_granted(void);

/*
 * Returns the value of a variable, or NULL. Where there is a grant, the value is the granted one, and the environment
 * counts only for variables that change no limit. Without a grant it is that of secure_getenv(). The text lives as
 * long as the process.
 */
const char *arb_granted_getenv(const char *name);

/* For tests, in a process with one thread: names another file. Texts from an older one are gone. */
void arb_granted_set_file(const char *path);

#endif
