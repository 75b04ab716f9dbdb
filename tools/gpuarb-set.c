/* Changes limits and settings while all programs run: either all of the changes or none. */
#include <argp.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpuarb/config.h"
#include "gpuarb/control.h"

#include "tools/common/cli.h"
#include "tools/common/conf_save.h"
#include "tools/set_class.h"
#include "tools/set_show.h"
#include "tools/set_where.h"

#define CHANGES_MOST 64

struct options {
	const char *dir, *gpu, *account, *task_class;
	long pid;
	bool all, show, save, without;
	int explain; /* 1: the keys; 2: only their names */
	/* key=value, as given; the '=' becomes a NUL */
	char *keys[CHANGES_MOST], *values[CHANGES_MOST];
	size_t count;
};

/* Finds mistakes on the command line before anything is read, made or changed. */
static void check(const struct options *o, const char *name, const char *value)
{
	enum arb_key key = gpuarb_config_find(name);
	const char *target = o->account ? "--account" : o->pid ? "--pid" : o->all ? "--all" : NULL;
	struct gpuarb_error err = {0};
	int64_t parsed;

	if (key == ARB_KEY_COUNT) {
		gpuarb_config_unknown(name, "", &err);
		die_usage("%s", err.text);
	}
	if (gpuarb_keys[key].scope == ARB_SCOPE_CREATE)
		die_usage("%s counts when a segment is made; set it in arbiter.conf or as %s", name,
			gpuarb_keys[key].env);
	if (gpuarb_keys[key].scope == ARB_SCOPE_ACCOUNT && !target)
		die_usage("%s is a limit of an account: say which one with --account, --pid or --all", name);
	if (gpuarb_keys[key].scope == ARB_SCOPE_GPU && target)
		die_usage("%s is a setting of the GPU and cannot go with %s; limits of an account are core, "
			  "mem, "
			  "priority, request, weight and members",
			name, target);
	if (*value && gpuarb_config_parse(key, value,
			      o->account ? o->account
			      : target   ? target
					 : "",
			      &parsed, &err) < 0)
		die_usage("%s", err.text);
}

/* What to call the GPUs that were looked at; `several` if there are several. */
static const char *name_of(const struct set_gpus *gpus, const char *several)
{
	static char name[CLI_GPU_TEXT];

	return gpus->count > 1 ? several : cli_gpu_text(gpus->names[0], name);
}

/* The changes to one GPU, and those that take them back. */
struct work {
	const char *gpu;
	size_t naccounts; /* 0: settings of the GPU */
	char accounts[SET_TARGETS_MOST][ARB_NAME_BYTES];
	size_t count;
	struct gpuarb_change *changes, *before;
	char (*values)[ARB_MEMBERS_BYTES]; /* of `before` */
};

static struct set_who who_of(const struct options *o)
{
	return (struct set_who){o->account, o->pid, o->all};
}

static void *must(void *made)
{
	if (!made)
		die("out of memory");
	return made;
}

/* Plans each key for each account, or once for the GPU. */
static void plan(const struct options *o, struct work *w)
{
	size_t most = o->count * (w->naccounts ? w->naccounts : 1);
	struct gpuarb_error err;

	w->changes = must(calloc(most, sizeof(*w->changes)));
	w->before = must(calloc(most, sizeof(*w->before)));
	w->values = must(calloc(most, sizeof(*w->values)));
	for (size_t i = 0; i < o->count; i++)
		for (size_t k = 0; k < w->naccounts || !k; k++) {
			const char *account = w->naccounts ? w->accounts[k] : NULL;
			size_t n = w->count++;
			bool set = gpuarb_control_get(o->dir, w->gpu, account, o->keys[i], w->values[n],
					   sizeof(w->values[n]), &err) == 0;

			w->changes[n] = (struct gpuarb_change){
				account, o->keys[i], *o->values[i] ? o->values[i] : NULL};
			w->before[n] = (struct gpuarb_change){account, o->keys[i], set ? w->values[n] : NULL};
		}
}

/* Finds whose limits change on which GPUs. A GPU without such an account has no work. */
static size_t find_work(const struct options *o, const struct set_gpus *gpus, struct work *list)
{
	struct set_who who = who_of(o);
	size_t n = 0;

	for (int i = 0; i < gpus->count; i++) {
		struct work *w = &list[n];

		*w = (struct work){.gpu = gpus->names[i]};
		if (o->account || o->pid || o->all)
			w->naccounts = set_where_accounts(o->dir, w->gpu, &who, w->accounts);
		if (w->naccounts || !(o->pid || o->all)) {
			plan(o, w);
			n++;
		}
	}
	if (n)
		return n;
	if (o->all)
		die("nobody uses %s now; name an account with --account", name_of(gpus, "a GPU"));
	die("process %ld is no client of %s", o->pid, name_of(gpus, "any GPU"));
}

/* Prepares the changes for arbiter.conf, each once, because a limit there does not belong to a single GPU. */
static struct conf_save *prepare_save(const struct work *list, size_t n)
{
	struct gpuarb_change *all;
	size_t count = 0;
	struct conf_save *save;

	for (size_t i = 0; i < n; i++)
		count += list[i].count;
	all = must(calloc(count, sizeof(*all)));
	count = 0;
	for (size_t i = 0; i < n; i++)
		for (size_t k = 0; k < list[i].count; k++) {
			const struct gpuarb_change *c = &list[i].changes[k];
			size_t at = 0;

			while (at < count && (strcmp(all[at].key, c->key) != 0 ||
						     strcmp(all[at].account ? all[at].account : "",
							     c->account ? c->account : "") != 0))
				at++;
			all[at] = *c;
			count += at == count;
		}
	save = conf_save_prepare(all, count);
	free(all);
	return save;
}

/* Changes all GPUs or none: if a change fails, those before it are taken back. */
static void change(const struct options *o, const struct set_gpus *gpus)
{
	struct work *list = must(calloc((size_t)gpus->count, sizeof(*list)));
	size_t n = find_work(o, gpus, list);
	struct conf_save *save = o->save ? prepare_save(list, n) : NULL;
	struct gpuarb_error err = {0}, stays = {0};
	char why[CLI_GPU_SENTENCE];

	for (size_t i = 0; i < n; i++) {
		if (gpuarb_control_change(o->dir, list[i].gpu, list[i].changes, list[i].count, &err) == 0)
			continue;
		cli_gpu_sentence(list[i].gpu, err.text, why);
		/* A limit that was lowered is not taken back if its memory was promised to another account since. */
		while (i-- > 0)
			gpuarb_control_change(o->dir, list[i].gpu, list[i].before, list[i].count, &stays);
		if (save)
			conf_save_abandon(save);
		die("%s%s%s", why, *stays.text ? "; what was changed before stays: " : "", stays.text);
	}
	if (save)
		conf_save_finish(save);
	for (size_t i = 0; i < n; i++) {
		free(list[i].changes);
		free(list[i].before);
		free(list[i].values);
	}
	free(list);
}

static void show(const struct options *o, const struct set_gpus *gpus)
{
	static char names[SET_TARGETS_MOST][ARB_NAME_BYTES];
	struct set_who who = {o->account, o->pid, false};
	bool one = o->account || o->pid, any = false;

	for (int i = 0; i < gpus->count; i++) {
		if (one && !set_where_accounts(o->dir, gpus->names[i], &who, names))
			continue;
		any |= set_show(o->dir, gpus->names[i], one ? names[0] : NULL, gpus->count > 1);
		if (!one)
			set_class_show(o->dir, gpus->names[i]);
	}
	/* After a change nothing may be left to show: that was the user's wish. */
	if (any || o->count || !one)
		return;
	if (o->pid)
		die("process %ld is no client of %s", o->pid, name_of(gpus, "any GPU"));
	die("there is no account '%s' on %s: no limit is set for it and no process is in it; --show without "
	    "--account lists those that there are",
		o->account, name_of(gpus, "any GPU"));
}

static const struct argp_option option_table[] = {
	{NULL, 0, NULL, 0, "What is changed (without these: settings of the GPU):", 1},
	{CLI_OPTION(ACCOUNT), "NAME", 0, "Set limits of this account, which need not exist yet", 1},
	{CLI_OPTION(PID), "PID", 0, "Set limits of the account of this process", 1},
	{CLI_OPTION(ALL), NULL, 0, "Set limits of all accounts that have processes", 1},
	{CLI_OPTION(CLASS), "NAME", 0, "Change this task class, which is made if it does not exist", 1},
	{CLI_OPTION(NO_CLASS), "NAME", 0, "Remove this task class", 1},
	{NULL, 0, NULL, 0, "Where:", 2},
	{CLI_OPTION(GPU), "GPU", 0,
		"The GPU: its number, its UUID, the beginning of its UUID, or all (default: the only GPU that has "
		"a segment, or the GPU that the account or process is on)",
		2},
	CLI_OPTION_DIR(2),
	{CLI_OPTION(SAVE), NULL, 0, "Write the changes to arbiter.conf (GPUARB_CONF) as well", 2},
	{NULL, 0, NULL, 0, "What is shown:", 3},
	{CLI_OPTION(SHOW), NULL, 0, "Show the settings and limits in force", 3},
	{CLI_OPTION(KEYS), NULL, 0, "Show every key with its allowed values and meaning", 3},
	{CLI_OPTION(COMPLETE), NULL, OPTION_HIDDEN, NULL, 0},
	{0},
};

static error_t on_option(int key, char *text, struct argp_state *state)
{
	struct options *o = state->input;
	char *equals;

	switch (key) {
	case OPT_ACCOUNT:
		o->account = cli_account("--account", text);
		return 0;
	case OPT_PID:
		o->pid = cli_number("--pid", text, 1, 1 << 22, "");
		return 0;
	case OPT_ALL:
		o->all = true;
		return 0;
	case OPT_CLASS:
	case OPT_NO_CLASS:
		o->task_class = text;
		o->without = key == OPT_NO_CLASS;
		return 0;
	case OPT_SHOW:
		o->show = true;
		return 0;
	case OPT_SAVE:
		o->save = true;
		return 0;
	case OPT_KEYS:
		o->explain = 1;
		return 0;
	case OPT_COMPLETE:
		o->explain = 2;
		return 0;
	case ARGP_KEY_ARG:
		equals = strchr(text, '=');
		if (!equals || equals == text)
			argp_error(state, "'%s' is not key=value", text);
		if (o->count == CHANGES_MOST)
			argp_error(state, "more than %d changes at once", CHANGES_MOST);
		*equals = '\0';
		o->keys[o->count] = text;
		o->values[o->count++] = equals + 1;
		return 0;
	case ARGP_KEY_END:
		if (o->task_class && (o->account || o->pid || o->all))
			argp_error(state, "--class and --no-class do not go with --account, --pid and --all");
		if (o->task_class && !o->without && !o->count)
			argp_error(state, "--class: which settings? Such as priority=10 mode=skip");
		if (o->task_class && o->without && o->count)
			argp_error(state, "--no-class takes a class away, and has no settings");
		if (!o->count && !o->show && !o->explain && !o->without)
			argp_error(state, "nothing to change: give key=value, --show or --keys");
		if (o->save && !o->count && !o->without)
			argp_error(state, "--save writes changes, and there are none");
		if (!!o->account + !!o->pid + o->all > 1)
			argp_error(state, "--account, --pid and --all exclude each other");
		return 0;
	default:
		return cli_option(key, text, state, &o->dir, &o->gpu);
	}
}

int main(int argc, char **argv)
{
	static const struct argp parser = {option_table, on_option, "KEY=VALUE...",
		"Changes limits and settings of gpuarb while everything runs.\v"
		"Limits of an account: core (1 to 100 percent), mem (such as 2Gi), priority (1 to 100), "
		"request (0 to 100 percent), weight (1 to 10000). An empty value (core=) removes a limit. "
		"Settings of the GPU: see --keys. Several changes take hold together or not at all. Every client "
		"notices them at once, also a client that sleeps.\n\n"
		"  gpuarb-set --account training core=30 mem=8Gi\n"
		"  gpuarb-set window_ms=200 policy=fair\n"
		"  gpuarb-set --class asr priority=90 max_wait_ms=8000\n\n"
		"Exit status: 0 done, 1 failed and nothing changed, 2 usage.",
		NULL, NULL, NULL};
	static struct set_gpus gpus;
	struct options o = {0};
	struct set_who who;

	cli_parse(&parser, argc, argv, 0, &o);
	if (o.explain) {
		set_show_keys(o.explain == 2);
		return 0;
	}
	if (o.task_class)
		set_class_check(o.task_class, o.keys, o.values, o.count);
	for (size_t i = 0; i < o.count && !o.task_class; i++)
		check(&o, o.keys[i], o.values[i]);
	who = who_of(&o);
	if (!o.count && !o.without)
		cli_dir_exists(o.dir);
	set_where(o.dir, o.gpu, &who, !o.count && !o.without, &gpus);
	if (o.task_class)
		set_class(o.dir, &gpus, o.task_class, o.keys, o.values, o.count, o.save);
	else if (o.count)
		change(&o, &gpus);
	if (o.show)
		show(&o, &gpus);
	return 0;
}
