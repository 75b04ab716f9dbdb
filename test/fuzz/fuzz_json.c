/* What gpuarb-top writes for programs: names from shared memory may hold anything, and the output can still be
 * parsed. */
#include "test/fuzz/fuzz.h"

#include <jansson.h>
#include <string.h>

#include "tools/top/top_out.h"
#include "tools/top/top_past.h"
#include "test/tools/top_world.h"

/* The input has three lines: an account's name, a command, a container. The account's name is never empty. */
static const char *line(char **text)
{
	char *begin = *text, *end = strchr(begin, '\n');

	*text = end ? end + 1 : begin + strlen(begin);
	if (end)
		*end = '\0';
	return begin;
}

static void check_json(struct top_gpu *gpu)
{
	struct top_past all = {0};
	json_error_t error;
	json_t *json;
	size_t size;
	char *text;
	FILE *to = open_memstream(&text, &size);

	FUZZ_HOLDS(to && top_out_json(&gpu, 1, true, &all, to), "no JSON was written");
	fclose(to);
	json = json_loadb(text, size, 0, &error);
	FUZZ_HOLDS(json, "%s at %d of %s", error.text, error.position, text);
	FUZZ_HOLDS(!memchr(text, '\n', size - 1), "compact JSON has several lines");
	json_decref(json);
	free(text);
}

static void check_prom(struct top_gpu *gpu)
{
	size_t size;
	char *text;
	FILE *to = open_memstream(&text, &size);

	FUZZ_HOLDS(to, "no memory");
	top_out_prom(&gpu, 1, to);
	fclose(to);
	for (const char *at = text; *at; at = strchr(at, '\n') + 1) {
		FUZZ_HOLDS(strchr(at, '\n'), "the last line does not end");
		FUZZ_HOLDS(*at == '#' || strncmp(at, "gpuarb_", 7) == 0, "a line begins with %.40s", at);
	}
	free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = fuzz_text(data, size < 400 ? size : 400), *rest = text;
	struct w_account account = {
		.limit_ppm = 300000, .quota_ppm = 300000, .share = 0.3, .clients = 2, .running = true};
	struct top_gpu *gpu = calloc(1, sizeof(*gpu));

	if (!gpu)
		abort();
	account.name = line(&rest);
	account.command = line(&rest);
	account.container = line(&rest);
	if (*account.name && strlen(account.name) < ARB_NAME_BYTES) {
		w_run(gpu, &account, 1, 0, 3, 1);
		w_event(gpu, 1, account.name, 0, 2, 1, 2);
		check_json(gpu);
		check_prom(gpu);
	}
	w_free(gpu);
	free(text);
	return 0;
}
