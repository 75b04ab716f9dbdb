/* Changes limits and settings while everything runs: all of the changes, or none. */
#include <argp.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "gpuarb/control.h"

#include "cli.h"
#include "conf_edit.h"
#include "config.h"
#include "segment.h"
#include "settings.h"

#define GPUS_MOST    64
#define CHANGES_MOST 64
#define TARGETS_MOST ARB_SLOTS_MAX

struct options {
	const char *dir, *gpu, *account;
	long pid;
	bool all, show, save;
	/* key=value, as given; the '=' becomes a NUL */
	char *keys[CHANGES_MOST], *values[CHANGES_MOST];
	size_t count;
};

/* The names of the accounts that the changes are for; one NULL for a setting of the GPU. */
struct targets {
	char names[TARGETS_MOST][ARB_NAME_BYTES];
	size_t count;
};

static bool is_limit(const char *key)
{
	enum arb_key k = arb_config_find(key);

	return k != ARB_KEY_COUNT && arb_keys[k].scope == ARB_SCOPE_ACCOUNT;
}

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
		if (picture.clients[i].pid == o->pid && picture.clients[i].account < picture.naccounts) {
			memcpy(t->names[0], picture.accounts[picture.clients[i].account].name,
				ARB_NAME_BYTES);
			t->count = 1;
		}
	if (!t->count)
		die(o->all ? "nobody uses %s now; name an account with --account"
			   : "no client of %s has pid %ld",
			gpu, o->pid);
}

static void change(const struct options *o, const char *gpu, const struct targets *t)
{
	size_t most = o->count * (t->count ? t->count : 1), n = 0;
	struct gpuarb_change *changes = calloc(most, sizeof(*changes));
	struct gpuarb_error err = {0};

	if (!changes)
		die("out of memory");
	for (size_t i = 0; i < o->count; i++) {
		const char *value = *o->values[i] ? o->values[i] : NULL;

		if (!is_limit(o->keys[i]))
			changes[n++] = (struct gpuarb_change){NULL, o->keys[i], value};
		else if (!t->count)
			die("%s is a limit of an account: say which one with --account, --pid or --all",
				o->keys[i]);
		for (size_t k = 0; is_limit(o->keys[i]) && k < t->count; k++)
			changes[n++] = (struct gpuarb_change){t->names[k], o->keys[i], value};
	}
	if (gpuarb_control_change(o->dir, gpu, changes, n, &err) < 0)
		die("%s", err.text);
	free(changes);
}

static void show(const struct options *o, const char *gpu)
{
	struct arb_control_map map;
	struct gpuarb_error err = {0};
	struct arb_config_limit limit;
	int64_t value[ARB_KEY_COUNT];
	uint64_t epoch;
	char text[64], name[ARB_NAME_BYTES];
	const char *dir = o->dir ? o->dir : secure_getenv("GPUARB_DIR");

	if (arb_control_map_open(&map, dir && *dir ? dir : ARB_DIR_DEFAULT, gpu, false, NULL, NULL, &err) < 0)
		die("%s", err.text);
	if (arb_settings_read(map.control, value, &epoch) < 0)
		die("the settings of %s change all the time", gpu);
	printf("%s\n", gpu);
	for (int key = 0; key < ARB_KEY_COUNT; key++)
		if (arb_keys[key].scope == ARB_SCOPE_GPU) {
			arb_config_format((enum arb_key)key, value[key], text, sizeof(text));
			printf("  %s = %s%s%s\n", arb_keys[key].name, text, *arb_keys[key].unit ? " # " : "",
				arb_keys[key].unit);
		}
	for (uint32_t i = 0; arb_settings_limit_at(map.control, i, &limit) == 1; i++) {
		printf("  account %s:", cli_safe(limit.name, name, sizeof(name)));
		if (limit.set & ARB_LIMIT_CORE)
			printf(" core=%lld", (long long)limit.core_pct);
		if (limit.set & ARB_LIMIT_MEM) {
			arb_config_format(ARB_KEY_MEM, limit.mem_bytes, text, sizeof(text));
			printf(" mem=%s", text);
		}
		if (limit.set & ARB_LIMIT_PRIORITY)
			printf(" priority=%lld", (long long)limit.priority);
		printf("\n");
	}
	arb_control_map_close(&map);
}

static char *read_conf(const char *path)
{
	FILE *file = fopen(path, "re");
	char *text = calloc(1, 1 << 20);

	if (!text)
		die("out of memory");
	if (!file && errno != ENOENT)
		die("cannot read %s: %s", path, strerror(errno));
	if (file && fread(text, 1, (1 << 20) - 1, file) == (1 << 20) - 1)
		die("%s is too large to be an arbiter.conf", path);
	if (file)
		fclose(file);
	return text;
}

/* Written beside it and moved into place: a reader sees the old file or the new one. */
static void save(const struct options *o, const struct targets *t)
{
	const char *path = secure_getenv("GPUARB_CONF");
	char temporary[PATH_MAX], section[ARB_NAME_BYTES + 16], *text, *edited;
	FILE *file;

	if (!path || !*path)
		path = ARB_CONF_DEFAULT;
	text = read_conf(path);
	for (size_t i = 0; i < o->count; i++)
		for (size_t k = 0; k < (is_limit(o->keys[i]) ? t->count : 1); k++) {
			snprintf(section, sizeof(section), is_limit(o->keys[i]) ? "account %s" : "gpu",
				t->names[k]);
			edited = conf_edit(text, section, o->keys[i], *o->values[i] ? o->values[i] : NULL);
			free(text);
			text = edited;
			if (!text)
				die("out of memory");
		}
	snprintf(temporary, sizeof(temporary), "%s.new-%ld", path, (long)getpid());
	file = fopen(temporary, "we");
	if (!file || fputs(text, file) == EOF || fclose(file) == EOF || rename(temporary, path) != 0) {
		int code = errno;

		unlink(temporary);
		die("the change holds, but %s could not be written: %s", path, strerror(code));
	}
	free(text);
}

static const struct argp_option option_table[] = {
	{"gpu", 'g', "GPU", 0, "The GPU, by its UUID (default: the only one that has a segment)", 0},
	{"dir", 'd', "DIR", 0, "Directory of the segments (default: GPUARB_DIR, else /dev/shm/gpuarb)", 0},
	{"account", 'a', "NAME", 0, "Limits of this account; it need not exist yet", 0},
	{"pid", 'p', "PID", 0, "Limits of the account of this process", 0},
	{"all", 'A', NULL, 0, "Limits of every account that is there now", 0},
	{"show", 's', NULL, 0, "Show the settings and limits in force", 0},
	{"save", 'S', NULL, 0, "Write the changes to arbiter.conf (GPUARB_CONF) as well", 0},
	{0},
};

static error_t on_option(int key, char *text, struct argp_state *state)
{
	struct options *o = state->input;
	char *equals;

	switch (key) {
	case 'g':
		o->gpu = text;
		return 0;
	case 'd':
		o->dir = text;
		return 0;
	case 'a':
		o->account = text;
		return 0;
	case 'p':
		o->pid = cli_number("--pid", text, 1, 1 << 22);
		return 0;
	case 'A':
		o->all = true;
		return 0;
	case 's':
		o->show = true;
		return 0;
	case 'S':
		o->save = true;
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
		if (!o->count && !o->show)
			argp_error(state, "nothing to change: give key=value, or --show");
		if (!!o->account + !!o->pid + o->all > 1)
			argp_error(state, "--account, --pid and --all exclude each other");
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static const char *the_gpu(const struct options *o)
{
	static char names[GPUS_MOST][ARB_UUID_BYTES];
	struct gpuarb_error err = {0};
	int n;

	if (o->gpu)
		return o->gpu;
	n = gpuarb_control_list(o->dir, names, GPUS_MOST, &err);
	if (n < 0)
		die("%s", err.text);
	if (n == 0)
		die("no GPU has a segment yet; name one with --gpu");
	if (n > 1)
		die("%d GPUs have a segment, %s among them; name one with --gpu", n, names[0]);
	return names[0];
}

const char *argp_program_version = "gpuarb-set " GPUARB_VERSION;

int main(int argc, char **argv)
{
	static const struct argp parser = {option_table, on_option, "KEY=VALUE...",
		"Changes limits and settings of gpuarb while everything runs.\v"
		"Limits of an account: core (1 to 100 percent), mem (such as 2Gi), priority (1 to 100). An "
		"empty value\n"
		"(core=) takes a limit back. Settings of the GPU: see arbiter.conf.example or --show. "
		"Several changes\n"
		"take hold together or not at all; every client notices at once, also one that sleeps.\n\n"
		"  gpuarb-set --account training core=30 mem=8Gi\n"
		"  gpuarb-set window_ms=200 policy=fair\n\n"
		"Exit status: 0 done, 1 failed and nothing changed, 2 usage.",
		NULL, NULL, NULL};
	static struct targets targets;
	struct options o = {0};
	const char *gpu;

	argp_err_exit_status = 2;
	argp_parse(&parser, argc, argv, 0, NULL, &o);
	gpu = the_gpu(&o);
	if (o.count) {
		find_targets(&o, gpu, &targets);
		change(&o, gpu, &targets);
		if (o.save)
			save(&o, &targets);
	}
	if (o.show)
		show(&o, gpu);
	return 0;
}
