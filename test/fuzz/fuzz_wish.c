/* gpuarb-runtime: what a container asks for in its annotations and variables, which anybody writes who may start one. Any
 * config.json is refused with a sentence, or says a share that can be granted. */
#include "test/fuzz/fuzz.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include "gpuarb/config.h"
#include "tools/runtime/runtime.h"

static jmp_buf refused;

/* Takes the place of the one that ends gpuarb-runtime. */
void runtime_fail(const char *format, ...)
{
	char text[8192];
	va_list ap;

	va_start(ap, format);
	vsnprintf(text, sizeof(text), format, ap);
	va_end(ap);
	FUZZ_HOLDS(text[0], "refused without a sentence");
	longjmp(refused, 1);
}

/* Whether the spec has this annotation, whatever its value. */
static bool is_annotated(const json_t *spec, const char *name)
{
	return json_is_string(json_object_get(json_object_get(spec, "annotations"), name));
}

static void check(const json_t *spec, const struct runtime_wish *w)
{
	struct gpuarb_error err = {0};
	bool cri = is_annotated(spec, "io.kubernetes.cri.container-type") ||
		   is_annotated(spec, "io.kubernetes.cri-o.ContainerType");

	FUZZ_HOLDS(w->gpus >= 1 && w->gpus <= RUNTIME_GPUS_MOST, "%u GPUs", w->gpus);
	FUZZ_HOLDS(w->share <= 100 && w->core <= 100 && w->request <= 100 && w->weight <= 10000,
		"share %u, limit %u, request %u, weight %u", w->share, w->core, w->request, w->weight);
	FUZZ_HOLDS(!w->share || (w->core && w->core <= w->share), "limit %u of a share of %u", w->core,
		w->share);
	FUZZ_HOLDS(!w->request || !w->core || w->request <= w->core, "request %u of %u", w->request, w->core);
	FUZZ_HOLDS((int64_t)w->mem_bytes >= 0, "%llu bytes", (unsigned long long)w->mem_bytes);
	if (w->sandbox)
		return;
	FUZZ_HOLDS(gpuarb_config_account(w->account, "here", &err) >= 0, "%s", err.text);
	FUZZ_HOLDS(cri == (w->pod[0] != '\0'), "a pod '%s' of account '%s'", w->pod, w->account);
	/* A pod's own variables say nothing. */
	if (cri && !w->share)
		FUZZ_HOLDS(!w->core && !w->mem_bytes, "a pod without a share has a limit of %u", w->core);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct runtime_conf conf;
	static const struct runtime_args args = {.command = RUNTIME_CREATE, .id = "fuzz"};
	static struct runtime_wish wish;
	static json_t *volatile spec;

	spec = json_loadb((const char *)data, size, 0, NULL);
	if (!json_is_object(spec)) {
		json_decref(spec);
		return 0;
	}
	if (setjmp(refused) == 0) {
		runtime_wish_read(&conf, &args, spec, &wish);
		check(spec, &wish);
	}
	json_decref(spec);
	return 0;
}
