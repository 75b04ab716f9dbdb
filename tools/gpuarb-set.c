/* Changes limits and settings while everything runs: all of the changes, or none. */
#include <argp.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "gpuarb/control.h"

#include "cli.h"
#include "cli_gpu.h"
#include "conf_save.h"
#include "config.h"
#include "set_class.h"
#include "set_show.h"

#define CHANGES_MOST 64
#define TARGETS_MOST ARB_SLOTS_MAX

struct options {
	const char *dir, *gpu, *account, *task_class;
	long pid;
	bool all, show, save, without;
	int explain; /* 1: the keys; 2: only their names */
	/* key=value, as given; the '=' becomes a NUL */
	char *keys[CHANGES_MOST], *values[CHANGES_MOST];
	size_t count;
};

/* The names of the accounts that the changes are for; one NULL for a setting of the GPU. */
struct targets {
	char names[TARGETS_MOST][ARB_NAME_BYTES];
	size_t count;
};

static void look(const struct options *o, const char *gpu, struct gpuarb_picture *picture)
{
	struct gpuarb_error err = {0};
	struct gpuarb_view *view;
	int r;

	if (gpuarb_view_open(o->dir, gpu, &view, &err) < 0)
		die("%s", err.text);
	r = gpuarb_view_read(view, picture);
	gpuarb_view_close(view);
	if (r < 0)
		die("the segment of %s cannot be read: %s", gpu, strerror(-r));
}

/* The number that a process has in its own PID namespace, and how many namespaces deep that is. */
static long inner_pid(long pid, int *depth)
{
	char path[64], line[256];
	long inner = 0;
	FILE *file;

	*depth = 0;
	snprintf(path, sizeof(path), "/proc/%ld/status", pid);
	file = fopen(path, "re");
	while (file && fgets(line, sizeof(line), file))
		if (strncmp(line, "NSpid:", 6) == 0)
			for (char *at = strtok(line + 6, "\t \n"); at; at = strtok(NULL, "\t \n")) {
				inner = strtol(at, NULL, 10);
				(*depth)++;
			}
	if (file)
		fclose(file);
	return inner;
}

/* A client knows its number in its own namespace, where it may be 1 like many others; we are told ours. */
static bool is_process(const struct gpuarb_view_client *client, long pid)
{
	char path[64];
	struct stat st;
	int depth;

	if (inner_pid(pid, &depth) != (long)client->pid)
		return false;
	snprintf(path, sizeof(path), "/proc/%ld/ns/pid", pid);
	/* Of other people's processes it is not told; but where there is one number only, it is our own. */
	if (stat(path, &st) != 0 && (depth != 1 || stat("/proc/self/ns/pid", &st) != 0))
		return false;
	return st.st_ino == client->pid_ns;
}

static void find_targets(const struct options *o, const char *gpu, struct targets *t)
{
	static struct gpuarb_picture picture;

	t->count = 0;
	if (o->account) {
		snprintf(t->names[t->count++], ARB_NAME_BYTES, "%s", o->account);
		return;
	}
	if (!o->all && !o->pid)
		return;
	look(o, gpu, &picture);
	if (o->all)
		for (unsigned i = 0; i < picture.naccounts && t->count < TARGETS_MOST; i++)
			memcpy(t->names[t->count++], picture.accounts[i].name, ARB_NAME_BYTES);
	for (unsigned i = 0; o->pid && i < picture.nclients; i++)
		if (is_process(&picture.clients[i], o->pid) &&
			picture.clients[i].account < picture.naccounts) {
			memcpy(t->names[0], picture.accounts[picture.clients[i].account].name,
				ARB_NAME_BYTES);
			t->count = 1;
		}
	if (!t->count && o->all)
		die("nobody uses %s now; name an account with --account", gpu);
	if (!t->count)
		die("process %ld is no client of %s", o->pid, gpu);
}

/* A mistake in what was typed is found before anything is looked at, made or changed. */
static void check(const struct options *o, const char *name, const char *value)
{
	enum arb_key key = arb_config_find(name);
	const char *target = o->account ? "--account" : o->pid ? "--pid" : o->all ? "--all" : NULL;
	struct gpuarb_error err = {0};
	int64_t parsed;

	if (key == ARB_KEY_COUNT) {
		arb_config_unknown(name, "", &err);
		die_usage("%s", err.text);
	}
	if (arb_keys[key].scope == ARB_SCOPE_CREATE)
		die_usage("%s counts when a segment is made; set it in arbiter.conf or as %s", name,
			arb_keys[key].env);
	if (arb_keys[key].scope == ARB_SCOPE_ACCOUNT && !target)
		die_usage("%s is a limit of an account: say which one with --account, --pid or --all", name);
	if (arb_keys[key].scope == ARB_SCOPE_GPU && target)
		die_usage("%s is a setting of the GPU and cannot go with %s; limits of an account are core, mem and "
			  "priority",
			name, target);
	if (*value && arb_config_parse(key, value, o->account ? o->account : target ? target : "GPU", &parsed,
			      &err) < 0)
		die_usage("%s", err.text);
}

/* Each key for each account, or once for the GPU. */
static struct gpuarb_change *list_changes(const struct options *o, const struct targets *t, size_t *count)
{
	size_t most = o->count * (t->count ? t->count : 1), n = 0;
	struct gpuarb_change *changes = calloc(most, sizeof(*changes));

	if (!changes)
		die("out of memory");
	for (size_t i = 0; i < o->count; i++) {
		const char *value = *o->values[i] ? o->values[i] : NULL;

		if (!t->count)
			changes[n++] = (struct gpuarb_change){NULL, o->keys[i], value};
		for (size_t k = 0; k < t->count; k++)
			changes[n++] = (struct gpuarb_change){t->names[k], o->keys[i], value};
	}
	*count = n;
	return changes;
}

static void change(const struct options *o, const char *gpu, const struct targets *t)
{
	struct gpuarb_error err = {0};
	struct conf_save *save = NULL;
	struct gpuarb_change *changes;
	size_t count;

	changes = list_changes(o, t, &count);
	if (o->save)
		save = conf_save_prepare(changes, count);
	if (gpuarb_control_change(o->dir, gpu, changes, count, &err) < 0) {
		if (save)
			conf_save_abandon(save);
		die("%s", err.text);
	}
	if (save)
		conf_save_finish(save);
	free(changes);
}

static void show(const struct options *o, const char *gpu, struct targets *t)
{
	const char *account = NULL;

	if (o->account || o->pid) {
		find_targets(o, gpu, t);
		account = t->names[0];
	}
	/* After a change there may be nothing left of it: that was the wish. */
	if (!set_show(o->dir, gpu, account) && account && !o->count)
		die("there is no account '%s' on %s: no limit is set for it and no process is in it; --show without "
		    "--account lists those that there are",
			account, gpu);
	if (!account)
		set_class_show(o->dir, gpu);
}

static const struct argp_option option_table[] = {
	{CLI_OPTION(GPU), "GPU", 0,
		"The GPU, by its number, its UUID or the beginning of that (default: the only one that has a "
		"segment)",
		0},
	CLI_OPTION_DIR(0),
	{CLI_OPTION(ACCOUNT), "NAME", 0, "Limits of this account; it need not exist yet", 0},
	{CLI_OPTION(PID), "PID", 0, "Limits of the account of this process", 0},
	{CLI_OPTION(ALL), NULL, 0, "Limits of every account that is there now", 0},
	{CLI_OPTION(CLASS), "NAME", 0, "Settings of this task class, which is made if there is none", 0},
	{CLI_OPTION(NO_CLASS), "NAME", 0, "Take this task class away", 0},
	{CLI_OPTION(SHOW), NULL, 0, "Show the settings and limits in force", 0},
	{CLI_OPTION(SAVE), NULL, 0, "Write the changes to arbiter.conf (GPUARB_CONF) as well", 0},
	{CLI_OPTION(KEYS), NULL, 0, "Show every key, what it may be and what it means", 0},
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
		o->pid = cli_number("--pid", text, 1, 1 << 22);
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
		if (o->task_class && (o->account || o->pid || o->all || o->without != !o->count))
			argp_error(state,
				"--class takes its own settings, --no-class none, and neither accounts");
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
		"Limits of an account: core (1 to 100 percent), mem (such as 2Gi), priority (1 to 100). An "
		"empty value (core=) takes a limit back. Settings of the GPU: see --keys. Several changes "
		"take "
		"hold together or not at all; every client notices at once, also one that sleeps.\n\n"
		"  gpuarb-set --account training core=30 mem=8Gi\n"
		"  gpuarb-set window_ms=200 policy=fair\n"
		"  gpuarb-set --class asr priority=90 max_wait_ms=8000\n\n"
		"Exit status: 0 done, 1 failed and nothing changed, 2 usage.",
		NULL, NULL, NULL};
	static struct targets targets;
	struct options o = {0};
	const char *gpu;

	cli_parse(&parser, argc, argv, 0, &o);
	if (o.explain) {
		set_show_keys(o.explain == 2);
		return 0;
	}
	if (o.task_class)
		set_class_check(o.task_class, o.keys, o.values, o.count);
	for (size_t i = 0; i < o.count && !o.task_class; i++)
		check(&o, o.keys[i], o.values[i]);
	gpu = cli_gpu(o.dir, o.gpu);
	if (o.task_class) {
		set_class(o.dir, gpu, o.task_class, o.keys, o.values, o.count, o.save);
	} else if (o.count) {
		find_targets(&o, gpu, &targets);
		change(&o, gpu, &targets);
	}
	if (o.show)
		show(&o, gpu, &targets);
	return 0;
}
