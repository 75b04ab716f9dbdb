/*
 * Runs a fuzz target without libFuzzer: over every stored input, and over inputs that a few changes make of these, by
 * a seed.
 *
 *   fuzz_NAME CORPUS [CHANGES_EACH [SEED]]
 */
#include "test/fuzz/fuzz.h"

#include <dirent.h>
#include <limits.h>
#include <string.h>

#define INPUT_MOST (64u << 10)

static uint64_t state;

static uint64_t draw(uint64_t below)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state % below;
}

/* Makes one change in place: alters a byte, copies a piece, leaves a piece out, or doubles it. */
static size_t change(uint8_t *data, size_t size)
{
	static const uint8_t odd[] = {
		0, '\n', '"', '\\', '=', '[', ']', '#', ';', '-', '9', '%', 0x7f, 0x80, 0xff};
	size_t at = size ? draw(size) : 0, piece = 1 + draw(16);

	if (size < 2)
		piece = 1;
	else if (piece > size - at)
		piece = size - at;
	switch (draw(4)) {
	case 0:
		if (size)
			data[at] = odd[draw(sizeof(odd))];
		return size;
	case 1:
		if (size)
			data[at] = (uint8_t)draw(256);
		return size;
	case 2:
		memmove(data + at, data + at + piece, size - at - (size ? piece : 0));
		return size ? size - piece : 0;
	default:
		if (!size || size + piece > INPUT_MOST)
			return size;
		memmove(data + at + piece, data + at, size - at);
		return size + piece;
	}
}

static unsigned try_file(const char *path, unsigned changes)
{
	static uint8_t stored[INPUT_MOST], data[INPUT_MOST];
	FILE *file = fopen(path, "rb");
	size_t size;

	if (!file)
		return 0;
	size = fread(stored, 1, sizeof(stored), file);
	fclose(file);
	LLVMFuzzerTestOneInput(stored, size);
	for (unsigned i = 0; i < changes; i++) {
		size_t length = size;

		memcpy(data, stored, size);
		for (uint64_t n = 1 + draw(6); n > 0; n--)
			length = change(data, length);
		LLVMFuzzerTestOneInput(data, length);
	}
	return 1;
}

int main(int argc, char **argv)
{
	unsigned changes = argc > 2 ? (unsigned)strtoul(argv[2], NULL, 10) : 200, files = 0;
	struct dirent *entry;
	DIR *corpus;

	state = argc > 3 ? strtoull(argv[3], NULL, 10) : 1;
	if (!state)
		state = 1;
	if (argc < 2 || !(corpus = opendir(argv[1]))) {
		fprintf(stderr, "usage: %s CORPUS [CHANGES_EACH [SEED]]\n", argv[0]);
		return 2;
	}
	while ((entry = readdir(corpus))) {
		char path[PATH_MAX];

		if (entry->d_name[0] == '.' ||
			snprintf(path, sizeof(path), "%s/%s", argv[1], entry->d_name) >= (int)sizeof(path))
			continue;
		files += try_file(path, changes);
	}
	closedir(corpus);
	if (!files) {
		fprintf(stderr, "fuzz: %s has no inputs\n", argv[1]);
		return 1;
	}
	printf("fuzz: %s: %u inputs, %u changes of each\n", argv[1], files, changes);
	return 0;
}
