#include "tools/set_where.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "gpuarb/config.h"
#include "gpuarb/control.h"

#include "tools/common/cli.h"

static void look(const char *dir, const char *gpu, struct gpuarb_picture *picture)
{
	struct gpuarb_error err = {0};
	struct gpuarb_view *view;
	int r;

	if (gpuarb_view_open(dir, gpu, &view, &err) < 0)
		die("%s", err.text);
	r = gpuarb_view_read(view, picture);
	gpuarb_view_close(view);
	if (r < 0)
		die("the segment of %s cannot be read: %s", gpu, strerror(-r));
}

/* Returns the number that a process has in its own PID namespace, and how many namespaces deep that is. */
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

/* Whether it is this client's process. A client knows its number in its own namespace, where many are 1; the user
 * gives the number in ours. */
static bool is_process(const struct gpuarb_view_client *client, long pid)
{
	char path[64];
	struct stat st;
	int depth;

	if (inner_pid(pid, &depth) != (long)client->pid)
		return false;
	snprintf(path, sizeof(path), "/proc/%ld/ns/pid", pid);
	/* The namespace of another user's process is hidden; but if it has only one number, the namespace is ours. */
	if (stat(path, &st) != 0 && (depth != 1 || stat("/proc/self/ns/pid", &st) != 0))
		return false;
	return st.st_ino == client->pid_ns;
}

size_t set_where_accounts(const char *dir, const char *gpu, const struct set_who *who,
	char names[SET_TARGETS_MOST][ARB_NAME_BYTES])
{
	static struct gpuarb_picture picture;
	size_t count = 0;

	if (who->account) {
		snprintf(names[0], ARB_NAME_BYTES, "%s", who->account);
		return 1;
	}
	look(dir, gpu, &picture);
	for (unsigned i = 0; who->all && i < picture.naccounts && count < SET_TARGETS_MOST; i++)
		memcpy(names[count++], picture.accounts[i].name, ARB_NAME_BYTES);
	for (unsigned i = 0; who->pid && i < picture.nclients && !count; i++)
		if (is_process(&picture.clients[i], who->pid) &&
			picture.clients[i].account < picture.naccounts)
			memcpy(names[count++], picture.accounts[picture.clients[i].account].name,
				ARB_NAME_BYTES);
	return count;
}

/* Whether a process of the account is there, or is about to be. */
static bool is_on(const char *dir, const char *gpu, const char *account)
{
	static struct gpuarb_picture picture;

	look(dir, gpu, &picture);
	for (unsigned i = 0; i < picture.naccounts; i++)
		if (strcmp(picture.accounts[i].name, account) == 0 &&
			(picture.accounts[i].clients || picture.accounts[i].mem_promised))
			return true;
	for (unsigned i = 0; i < picture.nstarts && i < GPUARB_VIEW_STARTS; i++)
		if (strcmp(picture.starts[i].account, account) == 0)
			return true;
	return false;
}

static bool has_limits(const char *dir, const char *gpu, const char *account)
{
	struct gpuarb_config config;
	bool has = false;

	gpuarb_control_read(dir, gpu, &config, NULL);
	for (size_t i = 0; i < config.nlimits; i++)
		has |= strcmp(config.limits[i].name, account) == 0;
	gpuarb_config_free(&config);
	return has;
}

/* Writes "GPU-a... (GPU 0), GPU-b... (GPU 1)". */
static const char *list(struct set_gpus *gpus, char *text, size_t size)
{
	char name[CLI_GPU_TEXT];
	size_t at = 0;

	cli_gpu_sort(gpus->names, gpus->count);

	*text = '\0';
	for (int i = 0; i < gpus->count && at < size; i++)
		at += (size_t)snprintf(
			text + at, size - at, "%s%s", i ? ", " : "", cli_gpu_text(gpus->names[i], name));
	return text;
}

static void keep(struct set_gpus *gpus, const bool wanted[CLI_GPUS_MOST])
{
	int kept = 0;

	for (int i = 0; i < gpus->count; i++)
		if (wanted[i])
			memmove(gpus->names[kept++], gpus->names[i], ARB_UUID_BYTES);
	gpus->count = kept;
}

/* Keeps the GPUs that the account is on; if it is on none now, those on which limits wait for it. */
static void keep_account(const char *dir, const char *account, struct set_gpus *gpus)
{
	bool wanted[CLI_GPUS_MOST];
	int found = 0;

	for (int i = 0; i < gpus->count; i++)
		found += wanted[i] = is_on(dir, gpus->names[i], account);
	for (int i = 0; i < gpus->count && !found; i++)
		wanted[i] = has_limits(dir, gpus->names[i], account);
	keep(gpus, wanted);
}

static void keep_process(const char *dir, const struct set_who *who, struct set_gpus *gpus)
{
	static char names[SET_TARGETS_MOST][ARB_NAME_BYTES];
	bool wanted[CLI_GPUS_MOST];

	for (int i = 0; i < gpus->count; i++)
		wanted[i] = set_where_accounts(dir, gpus->names[i], who, names) > 0;
	keep(gpus, wanted);
}

/* Chooses a GPU if several have a segment and none was named. */
static void choose(const char *dir, const struct set_who *who, bool looks, struct set_gpus *gpus)
{
	struct set_gpus every = *gpus;
	char text[CLI_GPUS_MOST * CLI_GPU_TEXT / 8], whom[ARB_NAME_BYTES + 32];

	if (who->account)
		keep_account(dir, who->account, gpus);
	else if (who->pid)
		keep_process(dir, who, gpus);
	if (gpus->count == 1 || (gpus->count && looks))
		return;
	if (!who->account && !who->pid)
		die("%d GPUs have a segment: %s; name one with --gpu, or all of them with --gpu all",
			every.count, list(&every, text, sizeof(text)));
	if (who->account)
		snprintf(whom, sizeof(whom), "the account '%s'", who->account);
	else
		snprintf(whom, sizeof(whom), "process %ld", who->pid);
	if (gpus->count)
		die("%s is on %d GPUs: %s; name one with --gpu, or all GPUs with --gpu all", whom,
			gpus->count, list(gpus, text, sizeof(text)));
	if (who->account && looks)
		die("there is no account '%s' on any of %d GPUs: no limit is set for it and no process is in "
		    "it",
			who->account, every.count);
	die("%s is on none of the %d GPUs that have a segment: %s%s", whom, every.count,
		list(&every, text, sizeof(text)),
		who->account ? "; its limits can wait for it: name a GPU with --gpu, or all with --gpu all"
			     : "");
}

void set_where(const char *dir, const char *gpu, const struct set_who *who, bool looks, struct set_gpus *gpus)
{
	bool every = gpu && cli_gpu_is_all(gpu);

	gpus->count = 0;
	if (!gpu || every)
		gpus->count = cli_gpu_all(dir, gpus->names);
	if (gpus->count > 1 && !every)
		choose(dir, who, looks, gpus);
	if (!gpus->count) {
		snprintf(gpus->names[0], ARB_UUID_BYTES, "%s", cli_gpu(dir, every ? NULL : gpu));
		gpus->count = 1;
	}
	if (looks && gpus->count > 1)
		cli_gpu_sort(gpus->names, gpus->count);
}
