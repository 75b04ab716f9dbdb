/* The table, looked up by name; the driver's and NVML's own functions, found at first use. */
#include "preload/hooks/hooks.h"

#include <dlfcn.h>
#include <errno.h>
#include <string.h>

#include "preload/hooks/elf.h"
#include "preload/hooks/symbols.h"
#include "preload/hooks/wrappers.h"
#include "shm/base/word.h"

#define ROW(symbol_, base_, version_, variant_, category_, library_)                                         \
	{                                                                                                    \
		.symbol = #symbol_,                                                                          \
		.base = #base_,                                                                              \
		.wrapper = (void *)wrap_##symbol_,                                                           \
		.version = version_,                                                                         \
		.variant = VARIANT_##variant_,                                                               \
		.category = CAT_##category_,                                                                 \
		.library = LIBRARY_##library_,                                                               \
	},

const struct hook arb_hooks[HOOK_COUNT] = {
#define HOOK(symbol, base, version, variant, category, params, args, facts)                                  \
	ROW(symbol, base, version, variant, category, CUDA)
#include "preload/hooks/hooks.def"
#undef HOOK
#define NVML_HOOK(symbol, params, args) ROW(symbol, symbol, 0, LEGACY, NVML, NVML)
#include "preload/hooks/nvml.def"
#undef NVML_HOOK
};

struct hook_span arb_spans[LIBRARY_COUNT], arb_own_span;
void *arb_real_table[HOOK_COUNT];
void *arb_direct_table[HOOK_COUNT];

const struct hook *arb_hook_base(const char *base, unsigned *count)
{
	unsigned low = 0, high = HOOK_CUDA_COUNT;

	*count = 0;
	while (low < high) {
		unsigned middle = low + (high - low) / 2;

		if (strcmp(arb_hooks[middle].base, base) < 0)
			low = middle + 1;
		else
			high = middle;
	}
	for (high = low; high < HOOK_CUDA_COUNT && !strcmp(arb_hooks[high].base, base); high++)
		++*count;
	return *count ? &arb_hooks[low] : NULL;
}

/* Finds the row of an exported name. Its base name ends at the first underscore: cuMemcpyHtoD_v2_ptds has cuMemcpyHtoD. */
static const struct hook *find_cuda(const char *symbol)
{
	char base[64];
	size_t length = strcspn(symbol, "_");
	const struct hook *row;
	unsigned count;

	if (length >= sizeof(base))
		return NULL;
	memcpy(base, symbol, length);
	base[length] = 0;
	row = arb_hook_base(base, &count);
	for (; count; count--, row++)
		if (!strcmp(row->symbol, symbol))
			return row;
	return NULL;
}

const struct hook *arb_hook_find(const char *symbol)
{
	if (symbol[0] == 'c')
		return find_cuda(symbol);
	for (unsigned i = HOOK_CUDA_COUNT; i < HOOK_COUNT; i++)
		if (!strcmp(arb_hooks[i].symbol, symbol))
			return &arb_hooks[i];
	return NULL;
}

bool arb_hook_knows(const char *symbol)
{
	static const char *const names[] = {
#define CU_CALL(name, params, args) #name,
#include "cuda_abi/calls.def"
#include "cuda_abi/interop.def"
#include "cuda_abi/newer.def"
#undef CU_CALL
		"cuMemGetLocationInfo", /* of CUDA 13.4; a query */
	};

	for (unsigned i = 0; i < sizeof(names) / sizeof(*names); i++)
		if (!strcmp(names[i], symbol))
			return true;
	return false;
}

static const struct {
	const char *prefix; /* every file name and soname of the library begins with it */
	const char *file;
} libraries[LIBRARY_COUNT] = {
	[LIBRARY_CUDA] = {"libcuda.so", "libcuda.so.1"},
	[LIBRARY_NVML] = {"libnvidia-ml.so", "libnvidia-ml.so.1"},
};

enum { UNKNOWN, BEING_WRITTEN, KNOWN };

static struct {
	int state;
	struct elf_object object;
} known[LIBRARY_COUNT];

static void set_span(struct hook_span *span, const struct elf_object *object)
{
	arb_word_store(&span->first, object->first);
	arb_word_store(&span->size, object->end - object->first);
}

bool arb_is_ours(const void *address)
{
	struct elf_object ours;

	if (!arb_word_load(&arb_own_span.size) && arb_elf_at((const void *)arb_is_ours, &ours))
		set_span(&arb_own_span, &ours);
	return (uintptr_t)address - arb_own_span.first < arb_own_span.size;
}

bool arb_library_loaded(enum hook_library library, struct elf_object *object)
{
	arb_dlopen_fn *open;
	int unknown = UNKNOWN;

	if (arb_word_load_acquire(&known[library].state) == KNOWN) {
		*object = known[library].object;
		return true;
	}
	if (!arb_elf_named(libraries[library].prefix, object))
		return false;
	/* Keeps the library loaded for good, even if the program closes it: its addresses are in our table. */
	open = arb_libc_dlopen();
	if (open)
		open(object->path, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE);
	/* A second thread that comes meanwhile uses what it found itself, which is the same. So no thread waits. */
	if (arb_word_cas(&known[library].state, &unknown, BEING_WRITTEN)) {
		known[library].object = *object;
		set_span(&arb_spans[library], object);
		arb_is_ours(object); /* finds our own span, because the driver may call us from now on */
		arb_word_store_release(&known[library].state, KNOWN);
	}
	return true;
}

/* Finds the library, and loads it if it is not loaded yet: a linked program may call our exported names before. */
static bool load(enum hook_library library, struct elf_object *object)
{
	arb_dlopen_fn *open;

	if (arb_library_loaded(library, object))
		return true;
	open = arb_libc_dlopen();
	return open && open(libraries[library].file, RTLD_LAZY) && arb_library_loaded(library, object);
}

/* Functions that the driver does not have. It is never unloaded, so it will never have them. */
static bool absent[HOOK_COUNT];

/* Asks the driver's own look-up. NULL: the driver has no such function, or gave one of ours. */
static void *ask(const struct elf_object *driver, const char *base, int version, cuuint64_t flags)
{
	__typeof__(cuGetProcAddress) *plain =
		(__typeof__(cuGetProcAddress) *)arb_elf_symbol(driver, "cuGetProcAddress");
	__typeof__(cuGetProcAddress_v2) *newer =
		(__typeof__(cuGetProcAddress_v2) *)arb_elf_symbol(driver, "cuGetProcAddress_v2");
	void *found = NULL;
	CUresult r = newer   ? newer(base, &found, version, flags, NULL)
		     : plain ? plain(base, &found, version, flags)
			     : CUDA_ERROR_NOT_FOUND;

	return r == CUDA_SUCCESS && !arb_is_ours(found) ? found : NULL;
}

/* Whether the driver exports its functions. A driver need export nothing but its look-up; one that exports this function is
 * taken to export all that it has. */
static bool exports(const struct elf_object *driver)
{
	return arb_elf_symbol(driver, "cuLaunchKernel") != NULL;
}

/* Asks the driver for the function of a row. If it gives the same one for the version before, that is an older function, and
 * the row has none. */
static void *ask_for(const struct elf_object *driver, const struct hook *hook)
{
	cuuint64_t flags = hook->variant == VARIANT_LEGACY ? CU_GET_PROC_ADDRESS_LEGACY_STREAM
							   : CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
	void *found = ask(driver, hook->base, hook->version, flags);

	return found && ask(driver, hook->base, hook->version - 1, flags) != found ? found : NULL;
}

static void *find_real(const struct elf_object *object, const struct hook *hook)
{
	void *real = arb_elf_symbol(object, hook->symbol);

	if (!real && hook->library == LIBRARY_CUDA && !exports(object))
		real = ask_for(object, hook);
	return real;
}

void *arb_driver_symbol(const char *name)
{
	struct elf_object driver;
	void *found = NULL;
	int saved = errno;

	if (arb_library_loaded(LIBRARY_CUDA, &driver)) {
		found = arb_elf_symbol(&driver, name);
		if (!found && !exports(&driver))
			found = ask(&driver, name, CUDA_VERSION, CU_GET_PROC_ADDRESS_DEFAULT);
	}
	errno = saved;
	return found;
}

void *arb_real_find(enum hook_id id)
{
	struct elf_object object;
	void *real = NULL;
	int saved = errno;

	if (arb_word_load(&absent[id]))
		return NULL;
	if (load(arb_hooks[id].library, &object)) {
		real = find_real(&object, &arb_hooks[id]);
		arb_word_store(&absent[id], !real);
	}
	if (real)
		arb_word_store(&arb_real_table[id], real);
	errno = saved;
	return real;
}

void arb_real_adopt(enum hook_id id, void *real)
{
	void *none = NULL;

	if (arb_is_ours(real))
		return;
	arb_word_cas(&arb_real_table[id], &none, real);
}

bool arb_library_owns(enum hook_library library, const void *address)
{
	struct elf_object object;

	return arb_elf_at(address, &object) && arb_elf_is(&object, libraries[library].prefix);
}

/* Returns the function of this name that the caller's own library defines, or NULL. */
static void *own_definition(const struct hook *hook, const void *caller)
{
	struct elf_object object;

	if (!arb_elf_at(caller, &object) || arb_is_ours(caller))
		return NULL;
	return arb_elf_symbol(&object, hook->symbol);
}

/*
 * Calls of a program that was linked with the driver come to our exported names. If the next definition
 * is not the driver's (another preloaded layer, a library with functions of its own by these names), the
 * call is meant for that definition, and comes back to us when that layer calls the driver.
 */
void *arb_direct_find(enum hook_id id, const void *caller)
{
	const struct hook *hook = &arb_hooks[id];
	void *target = hook->wrapper, *next, *own;
	bool same_for_all = true;
	int saved = errno;

	next = arb_elf_next((const void *)arb_direct_find, hook->symbol);
	if (next && !arb_library_owns(hook->library, next)) {
		/* A definition in the global scope is meant by all callers, any other only by the library that has it. */
		next = arb_libc_dlsym() ? arb_libc_dlsym()(RTLD_NEXT, hook->symbol) : NULL;
		if (next && !arb_library_owns(hook->library, next)) {
			target = next;
		} else {
			own = own_definition(hook, caller);
			if (own)
				target = own;
			same_for_all = false;
		}
	}
	if (same_for_all)
		arb_word_store(&arb_direct_table[id], target);
	errno = saved;
	return target;
}
