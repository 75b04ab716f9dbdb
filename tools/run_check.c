#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "gpuarb/config.h"
#include "gpuarb/control.h"

#include "tools/common/cli.h"
#include "tools/common/cli_gpu.h"
#include "tools/run.h"

#define GPUS_MOST 64

const char *run_check_gpu(const struct run_options *o)
{
	const char *uuid;
	int count;

	if (strcmp(o->gpu, "auto") == 0)
		return o->gpu;
	uuid = cli_gpu_known(o->gpu, &count);
	if (!uuid && count >= 0)
		die("there is no GPU %.70s; the driver knows %d, see gpuarb-node --list", o->gpu, count);
	/* Without a driver to ask, the program's own driver will report a wrong name. */
	return uuid ? uuid : o->gpu;
}

static void compare(const char *dir, const char *gpu, const char *wanted)
{
	struct gpuarb_error err;
	char now[64], name[CLI_GPU_TEXT];

	if (gpuarb_control_get(dir, gpu, NULL, "policy", now, sizeof(now), &err) == 0 && strcmp(now, wanted))
		die("the policy of %s is %s already; for everybody on it, 'gpuarb-set --gpu %s policy=%s' "
		    "changes it",
			cli_gpu_text(gpu, name), now, gpu, wanted);
}

void run_check_policy(const struct run_options *o)
{
	static char names[GPUS_MOST][ARB_UUID_BYTES];
	struct gpuarb_error err;
	char wanted[64];
	int64_t value;
	int n;

	/* The policy is compared in the form in which it is shown, however it was written. */
	if (gpuarb_config_parse(ARB_KEY_POLICY, o->policy, "", &value, &err) < 0)
		die("%s", err.text);
	gpuarb_config_format(ARB_KEY_POLICY, value, wanted, sizeof(wanted));
	if (o->gpu && gpuarb_gpu_name_ok(o->gpu)) {
		compare(o->dir, o->gpu, wanted);
		return;
	}
	n = gpuarb_control_list(o->dir, names, GPUS_MOST, &err);
	for (int i = 0; i < n && i < GPUS_MOST; i++)
		compare(o->dir, names[i], wanted);
}

/* Of two programs of an account with different limits the stricter one counts: a user who asks for another limit than
 * the running programs have is told. */
static void compare_limit(const char *account, const char *option, const char *unit, enum arb_key key,
	const char *text, int64_t there)
{
	char mine[64], theirs[64];
	struct gpuarb_error err;
	int64_t wanted;

	if (!text || !there || gpuarb_config_parse(key, text, option, &wanted, &err) < 0 || wanted == there)
		return;
	gpuarb_config_format(key, wanted, mine, sizeof(mine));
	gpuarb_config_format(key, there, theirs, sizeof(theirs));
	fprintf(stderr,
		"%s: account %s: a program that runs already asked for %s%s, this one asks for %s%s: the stricter "
		"limit counts for both, %s%s\n",
		program_invocation_short_name, account, theirs, unit, mine, unit,
		wanted < there ? mine : theirs, unit);
}

static void compare_account(const struct run_options *o, const char *gpu, const char *account)
{
	static struct gpuarb_picture picture;
	struct gpuarb_error err;
	struct gpuarb_view *view;
	char text[64];

	if (gpuarb_view_open(o->dir, gpu, &view, NULL) < 0)
		return;
	if (gpuarb_view_read(view, &picture) == 0)
		for (unsigned i = 0; i < picture.naccounts; i++) {
			const struct gpuarb_view_account *a = &picture.accounts[i];

			if (!a->clients || strcmp(a->name, account) != 0)
				continue;
			/* What an administrator set counts before both. */
			if (gpuarb_control_get(o->dir, gpu, account, "core", text, sizeof(text), &err) < 0)
				compare_limit(account, "--core", " percent", ARB_KEY_CORE, o->core,
					a->limit_ppm < 1000000 ? a->limit_ppm / 10000 : 0);
			if (gpuarb_control_get(o->dir, gpu, account, "mem", text, sizeof(text), &err) < 0)
				compare_limit(
					account, "--mem", "", ARB_KEY_MEM, o->mem, (int64_t)a->mem_limit);
		}
	gpuarb_view_close(view);
}

void run_check_account(const struct run_options *o, const char *account)
{
	static char names[GPUS_MOST][ARB_UUID_BYTES];
	struct gpuarb_error err;
	int n;

	if (o->gpu && gpuarb_gpu_name_ok(o->gpu)) {
		compare_account(o, o->gpu, account);
		return;
	}
	n = gpuarb_control_list(o->dir, names, GPUS_MOST, &err);
	for (int i = 0; i < n && i < GPUS_MOST; i++)
		compare_account(o, names[i], account);
}
