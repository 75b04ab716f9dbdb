/* The name that a process is shown by: from any command line, text that ends and has no control characters. */
#include "test/fuzz/fuzz.h"

#include <string.h>

#include "shm/base/command.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char name[48], *text = fuzz_text(data, size);

	memset(name, 'x', sizeof(name));
	arb_command_name(text, size, name, sizeof(name));
	FUZZ_HOLDS(memchr(name, '\0', sizeof(name)), "the name does not end");
	for (const char *c = name; *c; c++)
		FUZZ_HOLDS((unsigned char)*c >= ' ' && *c != 0x7f, "a control character in '%s'", name);
	free(text);
	return 0;
}
