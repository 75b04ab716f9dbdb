#include "tools/set_show.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "gpuarb/config.h"
#include "gpuarb/control.h"

#include "tools/common/cli.h"
#include "tools/common/cli_gpu.h"

static unsigned show_set(const struct gpuarb_config *config, const char *account)
{
	char text[64], members[ARB_MEMBERS_BYTES], name[ARB_NAME_BYTES];
	unsigned shown = 0;

	for (size_t i = 0; i < config->nlimits; i++) {
		const struct gpuarb_config_limit *limit = &config->limits[i];

		if (account && strcmp(limit->name, account) != 0)
			continue;
		shown++;
		printf("  account %s:", cli_safe(limit->name, name, sizeof(name)));
		if (limit->set & ARB_LIMIT_CORE)
			printf(" core=%lld", (long long)limit->core_pct);
		if (limit->set & ARB_LIMIT_MEM) {
			gpuarb_config_format(ARB_KEY_MEM, limit->mem_bytes, text, sizeof(text));
			printf(" mem=%s", text);
		}
		if (limit->set & ARB_LIMIT_PRIORITY)
			printf(" priority=%lld", (long long)limit->priority);
		if (limit->set & ARB_LIMIT_REQUEST)
			printf(" request=%lld", (long long)limit->request_pct);
		if (limit->set & ARB_LIMIT_WEIGHT)
			printf(" weight=%lld", (long long)limit->weight);
		if (limit->set & ARB_LIMIT_MEMBERS) {
			gpuarb_config_members_format(limit->members, members);
			printf(" members=%s", members);
		}
		printf("\n");
	}
	return shown;
}

/* Prints the limits in force, also those that nobody set with this tool: a program's own, from its environment or its
 * limits file. */
static unsigned show_in_force(const char *dir, const char *gpu, const char *account)
{
	static struct gpuarb_picture picture;
	struct gpuarb_error err = {0};
	struct gpuarb_view *view;
	char text[64], name[ARB_NAME_BYTES];
	unsigned shown = 0;

	if (gpuarb_view_open(dir, gpu, &view, &err) < 0) {
		if (err.code != -ENOENT)
			fprintf(stderr, "%s: what is in force cannot be seen: %s\n",
				program_invocation_short_name, err.text);
		return 0;
	}
	if (gpuarb_view_read(view, &picture) < 0)
		picture.naccounts = 0;
	gpuarb_view_close(view);
	for (unsigned i = 0; i < picture.naccounts; i++) {
		const struct gpuarb_view_account *a = &picture.accounts[i];

		if (!a->clients || (account && strcmp(a->name, account) != 0))
			continue;
		shown++;
		printf("  in force for %s: core=%u", cli_safe(a->name, name, sizeof(name)),
			a->limit_ppm / 10000);
		if (a->mem_limit) {
			gpuarb_config_format(ARB_KEY_MEM, (int64_t)a->mem_limit, text, sizeof(text));
			printf(" mem=%s", text);
		}
		if (a->request_ppm)
			printf(" request=%u", a->request_ppm / 10000);
		if (a->weight != ARB_SHARE_WEIGHT)
			printf(" weight=%u", a->weight);
		printf(" # %u %s\n", a->clients, a->clients == 1 ? "process" : "processes");
	}
	return shown;
}

bool set_show(const char *dir, const char *gpu, const char *account, bool several)
{
	struct gpuarb_config config;
	struct gpuarb_error err = {0};
	char text[64], name[CLI_GPU_TEXT], why[CLI_GPU_SENTENCE];
	unsigned shown;
	int r;

	r = gpuarb_control_read(dir, gpu, &config, &err);
	if (r == -ENOENT)
		die("%s has no settings yet: 'sudo gpuarb-node' or the first program makes them",
			cli_gpu_text(gpu, name));
	if (r < 0)
		die("%s", cli_gpu_sentence(gpu, err.text, why));
	if (!account || several)
		printf("%s\n", cli_gpu_text(gpu, name));
	for (int key = 0; key < ARB_KEY_COUNT && !account; key++)
		if (gpuarb_keys[key].scope == ARB_SCOPE_GPU) {
			gpuarb_config_format((enum arb_key)key, config.value[key], text, sizeof(text));
			printf("  %s = %s%s%s\n", gpuarb_keys[key].name, text,
				*gpuarb_keys[key].unit ? " # " : "", gpuarb_keys[key].unit);
		}
	shown = show_set(&config, account);
	gpuarb_config_free(&config);
	shown += show_in_force(dir, gpu, account);
	return shown > 0;
}

void set_show_keys(int names_only)
{
	char allowed[160], initial[64];

	for (int key = 0; key < ARB_KEY_COUNT; key++) {
		const struct gpuarb_key *k = &gpuarb_keys[key];

		if (k->scope == ARB_SCOPE_CREATE)
			continue;
		gpuarb_config_allowed((enum arb_key)key, allowed, sizeof(allowed));
		gpuarb_config_format((enum arb_key)key, k->initial, initial, sizeof(initial));
		if (names_only)
			printf("%s\t%s\n", k->name, k->choices ? k->choices : "");
		else if (k->scope == ARB_SCOPE_ACCOUNT)
			printf("%s (of an account)\n        %s\n        %s\n", k->name, allowed, k->help);
		else
			printf("%s\n        %s (default: %s)\n        %s\n", k->name, allowed, initial,
				k->help);
	}
}
