/*
 * The table of hooked entry points, and the addresses of the real functions. Nothing here takes a lock or allocates,
 * because the first use may come from a library's constructor, before our own, and from many threads at once.
 */
#ifndef PRELOAD_HOOKS_H
#define PRELOAD_HOOKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "preload/hooks/nvml_hooks.h"
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
	int version;   /* the CUDA version from which cuGetProcAddress gives it */
	uint8_t variant;
	uint8_t category;
	uint8_t library;
};

extern const struct hook arb_hooks[HOOK_COUNT];

/* The real functions, filled in at first use. If several threads write an entry, they write the same value. */
extern void *arb_real_table[HOOK_COUNT];
/* Where a call by an exported name goes, in a program that was linked with the driver: to our wrapper, or to another library's
 * function of that name. */
extern void *arb_direct_table[HOOK_COUNT];

/* Where in memory the two libraries are, and this library itself. `size` is 0 as long as that is not known. */
struct hook_span {
	uintptr_t first, size;
};
extern struct hook_span arb_spans[LIBRARY_COUNT], arb_own_span;

/*
 * Whether a call comes from the driver itself. A driver may call its own functions by their exported names, which lead to
 * us. Such a call is a part of the call that the program made, and is not counted again. If the driver ends in it by a
 * jump, the caller seems to be this library, because this library called the driver.
 */
static inline bool arb_is_inside(enum hook_library library, const void *caller)
{
	return (uintptr_t)caller - arb_word_load(&arb_spans[library].first) <
		       arb_word_load(&arb_spans[library].size) ||
	       (uintptr_t)caller - arb_word_load(&arb_own_span.first) < arb_word_load(&arb_own_span.size);
}

/* Whether this is the address of a function of this library. */
bool arb_is_ours(const void *address);

/* Returns the row of an exported name, or NULL. */
const struct hook *arb_hook_find(const char *symbol);
/* Whether the name is in our list of all calls of the driver. If it has no row, nothing has to be done about that call. */
bool arb_hook_knows(const char *symbol);
/* Returns the first of the rows with this base name, and how many there are. */
const struct hook *arb_hook_base(const char *base, unsigned *count);

static inline enum hook_id arb_hook_id(const struct hook *hook)
{
	return (enum hook_id)(hook - arb_hooks);
}

/* Returns the real function, or NULL if the driver has none of that name or there is no driver. Keeps errno. */
void *arb_real_find(enum hook_id id);
/* Returns a function of the driver that is not hooked, for our own use. NULL: there is none, or no driver is loaded. Keeps
 * errno. */
void *arb_driver_symbol(const char *name);
/* Takes what cuGetProcAddress gave as the real function, if none is known: the driver need not export it. */
void arb_real_adopt(enum hook_id id, void *real);
/* Returns where a call of the exported name by this caller goes. Keeps it in arb_direct_table[id] if it is the same for all
 * callers. */
void *arb_direct_find(enum hook_id id, const void *caller);

static inline void *arb_real_get(enum hook_id id)
{
	void *real = arb_word_load(&arb_real_table[id]);

	return __builtin_expect(real != NULL, 1) ? real : arb_real_find(id);
}

/* For our own calls of the driver: arb_real(cuStreamQuery)(stream). NULL if the driver has none. */
#define arb_real(symbol) ((__typeof__(symbol) *)arb_real_get(HOOK_##symbol))

#endif
