/*
 * The table of hooked entry points and where the real ones are. Nothing here takes a lock or allocates:
 * first use may come from a library's constructor, from many threads at once, before our own constructor.
 */
#ifndef PRELOAD_HOOKS_H
#define PRELOAD_HOOKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "preload/hooks/nvml_abi.h"
#include "shm/base/word.h"

enum hook_category {
#define CATEGORY(name, counter, text) CAT_##name,
#include "preload/hooks/categories.def"
#undef CATEGORY
	CAT_COUNT
};

enum hook_id {
#define HOOK(symbol, base, version, variant, category, params, args, facts) HOOK_##symbol,
#include "preload/hooks/hooks.def"
#undef HOOK
	HOOK_CUDA_COUNT,
	HOOK_LAST_CUDA = HOOK_CUDA_COUNT - 1,
#define NVML_HOOK(symbol, params, args) HOOK_##symbol,
#include "preload/hooks/nvml.def"
#undef NVML_HOOK
	HOOK_COUNT
};

enum hook_variant { VARIANT_LEGACY, VARIANT_PTSZ, VARIANT_PTDS };
enum hook_library { LIBRARY_CUDA, LIBRARY_NVML, LIBRARY_COUNT };

struct hook {
	const char *symbol;
	const char *base;
	void *wrapper; /* what a program gets instead of the real function */
	int version;   /* CUDA version from which cuGetProcAddress gives it */
	uint8_t variant;
	uint8_t category;
	uint8_t library;
};

extern const struct hook arb_hooks[HOOK_COUNT];

/* The real functions, filled in at first use. Written once each, always with the same value. */
extern void *arb_real_table[HOOK_COUNT];
/* Where a program that was linked with the driver goes: our wrapper, or somebody else's function of that
 * name. */
extern void *arb_direct_table[HOOK_COUNT];

/* Where the libraries are, and we ourselves; of no size as long as that is not known. */
struct hook_span {
	uintptr_t first, size;
};
extern struct hook_span arb_spans[LIBRARY_COUNT], arb_own_span;

/*
 * A driver may call its own functions by their names, which lead to us. Such a call is a part of the one that
 * the program made, and not a call of the program's. If the driver ended in it, by a jump, it seems to be
 * ours, because it is we who called the driver.
 */
static inline bool arb_is_inside(enum hook_library library, const void *caller)
{
	return (uintptr_t)caller - arb_word_load(&arb_spans[library].first) <
		       arb_word_load(&arb_spans[library].size) ||
	       (uintptr_t)caller - arb_word_load(&arb_own_span.first) < arb_word_load(&arb_own_span.size);
}

/* Is it one of our own functions? */
bool arb_is_ours(const void *address);

/* The hook of an exported name, or NULL. */
const struct hook *arb_hook_find(const char *symbol);
/* Whether this is a name of the driver that nothing has to be done about: it is in our list of all its calls. */
bool arb_hook_knows(const char *symbol);
/* The first of the rows with this base name, and how many there are. */
const struct hook *arb_hook_base(const char *base, unsigned *count);

static inline enum hook_id arb_hook_id(const struct hook *hook)
{
	return (enum hook_id)(hook - arb_hooks);
}

/* The real function, or NULL if the driver has none of that name or there is no driver. Keeps errno. */
void *arb_real_find(enum hook_id id);
/* A function of the driver's that is in no table, for our own use; NULL if there is none, or no driver is
 * loaded. Keeps errno. */
void *arb_driver_symbol(const char *name);
/* What cuGetProcAddress gave although the driver exports no such name. */
void arb_real_adopt(enum hook_id id, void *real);
/* Where a call of the exported name by this caller goes; kept in arb_direct_table[id] if it is the same for
 * all. */
void *arb_direct_find(enum hook_id id, const void *caller);

static inline void *arb_real_get(enum hook_id id)
{
	void *real = arb_word_load(&arb_real_table[id]);

	return __builtin_expect(real != NULL, 1) ? real : arb_real_find(id);
}

/* For our own calls of the driver: arb_real(cuStreamQuery)(stream). NULL if the driver has none. */
#define arb_real(symbol) ((__typeof__(symbol) *)arb_real_get(HOOK_##symbol))

#endif
