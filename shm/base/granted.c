#include "shm/base/granted.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpuarb/places.h"

#include "shm/base/word.h"

struct granted {
	size_t length;
	char text[ARB_GRANTED_BYTES_MAX + 1]; /* lines; each newline has become a NUL */
};

static const char *file_name = ARB_GRANTED_FILE;
static struct granted none;
/* NULL: not looked up yet. Written once; a later thread takes what the first has read. */
static struct granted *known;

/* Variables that change no limit: they say what is logged, how libraries are found, where a pod's annotations are. */
static const char *const free_names[] = {
	"GPUARB_DEEPBIND", "GPUARB_GPU", "GPUARB_LIMITS_FILE", "GPUARB_LOG", "GPUARB_LIBRARY"};

static struct granted *read_file(void)
{
	struct granted *g;
	int saved = errno;
	FILE *file = fopen(file_name, "re");

	if (!file) {
		errno = saved;
		return &none;
	}
	g = calloc(1, sizeof(*g));
	if (g) {
		g->length = fread(g->text, 1, ARB_GRANTED_BYTES_MAX, file);
		for (size_t i = 0; i < g->length; i++)
			if (g->text[i] == '\n')
				g->text[i] = '\0';
	}
	fclose(file);
	errno = saved;
	return g;
}

static const struct granted *granted(void)
{
	struct granted *g = arb_word_load_acquire(&known), *first = NULL;

	if (g)
		return g;
	g = read_file();
	if (!g)
		return NULL;
	if (arb_word_cas_acq_rel(&known, &first, g))
		return g;
	if (g != &none)
		free(g);
	return first;
}

bool arb_granted(void)
{
	return granted() != &none;
}

const char *arb_granted_getenv(const char *name)
{
	const struct granted *g = granted();
	size_t n = strlen(name);

	if (g == &none)
		return secure_getenv(name);
	if (g)
		for (size_t at = 0; at < g->length; at += strlen(g->text + at) + 1)
			if (strncmp(g->text + at, name, n) == 0 && g->text[at + n] == '=')
				return g->text + at + n + 1;
	for (size_t i = 0; i < sizeof(free_names) / sizeof(free_names[0]); i++)
		if (strcmp(free_names[i], name) == 0)
			return secure_getenv(name);
	return NULL;
}

void arb_granted_set_file(const char *path)
{
	struct granted *g = arb_word_load_acquire(&known);

	file_name = path;
	arb_word_store_release(&known, NULL);
	if (g && g != &none)
		free(g);
}
