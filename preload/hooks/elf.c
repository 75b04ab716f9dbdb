#include "preload/hooks/elf.h"

#include <stdint.h>
#include <string.h>

struct tables {
	const ElfW(Sym) * symbols;
	const char *strings;
	const uint32_t *gnu_hash;
	const uint32_t *hash;
	const char *soname;
};

/* glibc has relocated these pointers in place, musl and the vdso have not. */
static const void *at(const struct elf_object *object, ElfW(Addr) value)
{
	return (const void *)(value < object->base ? object->base + value : value);
}

static bool read_tables(const struct elf_object *object, struct tables *t)
{
	size_t soname = 0;

	memset(t, 0, sizeof(*t));
	if (!object->dynamic)
		return false;
	for (const ElfW(Dyn) *d = object->dynamic; d->d_tag != DT_NULL; d++) {
		switch (d->d_tag) {
		case DT_SYMTAB:
			t->symbols = at(object, d->d_un.d_ptr);
			break;
		case DT_STRTAB:
			t->strings = at(object, d->d_un.d_ptr);
			break;
		case DT_GNU_HASH:
			t->gnu_hash = at(object, d->d_un.d_ptr);
			break;
		case DT_HASH:
			t->hash = at(object, d->d_un.d_ptr);
			break;
		case DT_SONAME:
			soname = d->d_un.d_val;
			break;
		}
	}
	if (!t->symbols || !t->strings)
		return false;
	if (soname)
		t->soname = t->strings + soname;
	return true;
}

static void *definition(
	const struct elf_object *object, const struct tables *t, uint32_t index, const char *name)
{
	const ElfW(Sym) *s = &t->symbols[index];
	unsigned type = s->st_info & 0xf;

	if (s->st_shndx == SHN_UNDEF || !s->st_value)
		return NULL;
	if (type != STT_FUNC && type != STT_OBJECT && type != STT_NOTYPE)
		return NULL;
	return strcmp(t->strings + s->st_name, name) ? NULL : (void *)(object->base + s->st_value);
}

static void *by_gnu_hash(const struct elf_object *object, const struct tables *t, const char *name)
{
	const uint32_t *h = t->gnu_hash;
	uint32_t buckets = h[0], first = h[1], words = h[2], shift = h[3];
	const ElfW(Addr) *filter = (const ElfW(Addr) *)(h + 4);
	const uint32_t *bucket = (const uint32_t *)(filter + words);
	const uint32_t *chain = bucket + buckets;
	const unsigned bits = sizeof(ElfW(Addr)) * 8;
	uint32_t hash = 5381, i;
	ElfW(Addr) mask;

	for (const unsigned char *c = (const unsigned char *)name; *c; c++)
		hash = hash * 33 + *c;
	mask = (ElfW(Addr))1 << hash % bits | (ElfW(Addr))1 << (hash >> shift) % bits;
	if (!buckets || !words || (filter[hash / bits % words] & mask) != mask)
		return NULL;
	i = bucket[hash % buckets];
	if (i < first)
		return NULL;
	for (;; i++) {
		uint32_t other = chain[i - first];

		if ((other | 1) == (hash | 1)) {
			void *found = definition(object, t, i, name);

			if (found)
				return found;
		}
		if (other & 1)
			return NULL;
	}
}

static void *by_hash(const struct elf_object *object, const struct tables *t, const char *name)
{
	uint32_t buckets = t->hash[0], hash = 0;
	const uint32_t *bucket = t->hash + 2, *chain = bucket + buckets;

	for (const unsigned char *c = (const unsigned char *)name; *c; c++) {
		uint32_t high;

		hash = (hash << 4) + *c;
		high = hash & 0xf0000000u;
		hash ^= high >> 24;
		hash &= ~high;
	}
	if (!buckets)
		return NULL;
	for (uint32_t i = bucket[hash % buckets]; i; i = chain[i]) {
		void *found = definition(object, t, i, name);

		if (found)
			return found;
	}
	return NULL;
}

void *arb_elf_symbol(const struct elf_object *object, const char *name)
{
	struct tables t;

	if (!read_tables(object, &t))
		return NULL;
	if (t.gnu_hash)
		return by_gnu_hash(object, &t, name);
	return t.hash ? by_hash(object, &t, name) : NULL;
}

static void describe(const struct dl_phdr_info *info, struct elf_object *object)
{
	object->base = info->dlpi_addr;
	object->path = info->dlpi_name ? info->dlpi_name : "";
	object->dynamic = NULL;
	object->first = object->end = 0;
	for (unsigned i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *p = &info->dlpi_phdr[i];
		ElfW(Addr) start = info->dlpi_addr + p->p_vaddr;

		if (p->p_type == PT_DYNAMIC)
			object->dynamic = (const ElfW(Dyn) *)start;
		if (p->p_type != PT_LOAD)
			continue;
		if (!object->end || start < object->first)
			object->first = start;
		if (start + p->p_memsz > object->end)
			object->end = start + p->p_memsz;
	}
}

static bool contains(const struct dl_phdr_info *info, uintptr_t address)
{
	for (unsigned i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *p = &info->dlpi_phdr[i];

		if (p->p_type == PT_LOAD && address - (info->dlpi_addr + p->p_vaddr) < p->p_memsz)
			return true;
	}
	return false;
}

bool arb_elf_is(const struct elf_object *object, const char *name)
{
	const char *file = strrchr(object->path, '/');
	size_t length = strlen(name);
	struct tables t;

	if (!strncmp(file ? file + 1 : object->path, name, length))
		return true;
	return read_tables(object, &t) && t.soname && !strncmp(t.soname, name, length);
}

struct search {
	uintptr_t address;
	const char *name;
	struct elf_object object;
	bool passed;
	void *symbol;
};

static int look_at(struct dl_phdr_info *info, size_t size, void *argument)
{
	struct search *s = argument;

	(void)size;
	if (!contains(info, s->address))
		return 0;
	describe(info, &s->object);
	return 1;
}

bool arb_elf_at(const void *address, struct elf_object *object)
{
	struct search s = {.address = (uintptr_t)address};

	if (!dl_iterate_phdr(look_at, &s))
		return false;
	*object = s.object;
	return true;
}

static int look_for_name(struct dl_phdr_info *info, size_t size, void *argument)
{
	struct search *s = argument;

	(void)size;
	describe(info, &s->object);
	return arb_elf_is(&s->object, s->name);
}

bool arb_elf_named(const char *name, struct elf_object *object)
{
	struct search s = {.name = name};

	if (!dl_iterate_phdr(look_for_name, &s))
		return false;
	*object = s.object;
	return true;
}

static int look_behind(struct dl_phdr_info *info, size_t size, void *argument)
{
	struct search *s = argument;

	(void)size;
	if (!s->passed) {
		s->passed = contains(info, s->address);
		return 0;
	}
	describe(info, &s->object);
	s->symbol = arb_elf_symbol(&s->object, s->name);
	return s->symbol != NULL;
}

void *arb_elf_next(const void *address, const char *name)
{
	struct search s = {.address = (uintptr_t)address, .name = name};

	dl_iterate_phdr(look_behind, &s);
	return s.symbol;
}
