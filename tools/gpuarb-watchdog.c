/* Cleans up after clients that died, checks the invariants, and reports what it did. Everything works without it,
 * only later: clients do the same for clients that they wait for or run with. */
#include <argp.h>
#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "gpuarb/control.h"

#include "tools/common/cli.h"
#include "tools/common/cli_gpu.h"
#include "tools/common/nonclients.h"
#include "tools/common/nvml_child.h"

#define GPUS_MOST     64
#define FOUND_WRONG   3
#define NVML_EVERY_MS 990
#define NVML_MS       50

struct options {
	const char *dir;
	const char *gpu;
	long interval_ms;
	bool once;
	bool quiet;
};

/* The results of one round over all GPUs. */
struct round {
	const char *gpu;
	bool quiet;
	int reclaimed;
	int repaired;
	int violations;
	int failed;
	char text[4096]; /* what is wrong, a line each */
};

static volatile sig_atomic_t stop;

static void on_signal(int signal)
{
	(void)signal;
	stop = 1;
}

static void say_reclaimed(void *argument, const struct gpuarb_reclaimed *what)
{
	struct round *r = argument;
	char command[ARB_COMMAND_BYTES], account[ARB_NAME_BYTES], freed[32], gpu[CLI_GPU_TEXT];

	r->reclaimed++;
	if (r->quiet)
		return;
	printf("%s: slot %u reclaimed: pid %u (%s) of account %s%s; it had used %.3f s; freed %s\n",
		cli_gpu_text(r->gpu, gpu), what->slot, what->pid,
		cli_safe(what->command, command, sizeof(command)),
		cli_safe(what->account, account, sizeof(account)), what->was_running ? ", while it ran" : "",
		(double)what->used_ns / 1e9, cli_bytes(what->freed_bytes, freed, sizeof(freed)));
}

static void say_repaired(void *argument, const char *sentence)
{
	struct round *r = argument;
	char safe[256], gpu[CLI_GPU_TEXT];

	r->repaired++;
	printf("%s: repaired: %s\n", cli_gpu_text(r->gpu, gpu), cli_safe(sentence, safe, sizeof(safe)));
}

/* Keeps a complaint until the round is over: what was wrong a second ago and still is need not be printed again. */
static void complain(struct round *r, const char *what, const char *sentence)
{
	size_t used = strlen(r->text);
	char safe[512], gpu[CLI_GPU_TEXT];

	snprintf(r->text + used, sizeof(r->text) - used, "%s: %s: %s%s\n", program_invocation_short_name,
		cli_gpu_text(r->gpu, gpu), what, cli_safe(sentence, safe, sizeof(safe)));
}

static void say_violation(void *argument, const char *sentence)
{
	struct round *r = argument;

	r->violations++;
	complain(r, "invariant violated: ", sentence);
}

/* Clients that take turns at a GPU's memory leave room for programs that are no clients. NVML runs in a process of
 * its own; a round does not wait for it if it hangs. */
static void look_at_others(const struct options *o, const char *gpu, const struct nvml_answer *said)
{
	static struct gpuarb_picture picture;
	struct nonclients found;
	struct gpuarb_view *view;
	struct gpuarb_error err;
	int k = 0;

	while (said && k < said->count && strcmp(said->gpus[k].uuid, gpu) != 0)
		k++;
	if (!said || k == said->count || gpuarb_view_open(o->dir, gpu, &view, &err) < 0)
		return;
	if (gpuarb_view_read(view, &picture) == 0) {
		nonclients_find(&picture, &said->uses[k], &found);
		nonclients_tell(o->dir, gpu, &found);
	}
	gpuarb_view_close(view);
}

/* What was seen of this GPU in earlier rounds; NULL: there is no room for one more. */
static struct gpuarb_books *books_of(const char *gpu)
{
	static struct {
		char gpu[ARB_UUID_BYTES];
		struct gpuarb_books *books;
	} all[GPUS_MOST];

	for (int i = 0; i < GPUS_MOST; i++) {
		if (!all[i].books) {
			snprintf(all[i].gpu, sizeof(all[i].gpu), "%s", gpu);
			all[i].books = gpuarb_control_books();
		}
		if (!strcmp(all[i].gpu, gpu))
			return all[i].books;
	}
	return NULL;
}

static void look_after(const struct options *o, const char *gpu, struct round *r)
{
	struct gpuarb_books *books = books_of(gpu);
	struct gpuarb_error err = {0};
	int result;

	r->gpu = gpu;
	/* If slots hold garbage, unused ones may look taken. */
	result = gpuarb_control_repair(o->dir, gpu, say_repaired, r, &err);
	if (result >= 0)
		result = gpuarb_control_reap(o->dir, gpu, say_reclaimed, r, &err);
	/* The dead are out. */
	if (result >= 0 && books)
		result = gpuarb_control_audit(o->dir, gpu, books, say_repaired, r, &err);
	if (result >= 0)
		result = gpuarb_control_check(o->dir, gpu, say_violation, r, &err);
	/* A segment that changes all the time is in use and healthy. */
	if (result < 0 && result != -EBUSY) {
		complain(r, "", err.text);
		r->failed++;
	}
}

/* GPUs come and go, so each round looks for them. */
static void one_round(const struct options *o, const struct nvml_answer *said, struct round *r)
{
	static char gpus[GPUS_MOST][ARB_UUID_BYTES];
	struct gpuarb_error err = {0};
	int n;

	*r = (struct round){.quiet = o->quiet};
	if (o->gpu) {
		look_after(o, o->gpu, r);
		look_at_others(o, o->gpu, said);
	} else {
		n = gpuarb_control_list(o->dir, gpus, GPUS_MOST, &err);
		if (n < 0)
			die("%s", err.text);
		for (int i = 0; i < n && i < GPUS_MOST; i++) {
			look_after(o, gpus[i], r);
			look_at_others(o, gpus[i], said);
		}
	}
	fflush(stdout);
}

/* Asks NVML at most once a second, however short the rounds are. NULL: nothing new. */
static const struct nvml_answer *ask(struct nvml_child *nvml)
{
	static struct timespec last;
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	if (last.tv_sec &&
		(now.tv_sec - last.tv_sec) * 1000 + (now.tv_nsec - last.tv_nsec) / 1000000 < NVML_EVERY_MS)
		return NULL;
	last = now;
	return nvml_child_ask(nvml, NVML_MS);
}

static const struct argp_option option_table[] = {
	{CLI_OPTION(GPU), "GPU", 0, "Look after this GPU alone (default: all that have a segment)", 0},
	CLI_OPTION_DIR(0),
	{CLI_OPTION(INTERVAL), "MS", 0, "Time between two rounds, 10 to 3600000 ms (default: 1000)", 0},
	{CLI_OPTION(ONCE), NULL, 0, "Make one round, then exit", 0},
	{CLI_OPTION(QUIET), NULL, 0, "Do not report reclaimed slots", 0},
	{0},
};

static error_t on_option(int key, char *text, struct argp_state *state)
{
	struct options *o = state->input;

	switch (key) {
	case OPT_INTERVAL:
		o->interval_ms = cli_number("--interval", text, 10, 3600000, "ms");
		return 0;
	case OPT_ONCE:
		o->once = true;
		return 0;
	case OPT_QUIET:
		o->quiet = true;
		return 0;
	default:
		return cli_option(key, text, state, &o->dir, &o->gpu);
	}
}

int main(int argc, char **argv)
{
	static const struct argp parser = {option_table, on_option, NULL,
		"Cleans up behind clients of gpuarb that died, and checks their segments.\v"
		"Reports each reclaimed slot with its process, its account and what was freed, and each record "
		"that it repaired. Without --once it says what is wrong when that begins, and when it is over. "
		"Everything also works without the watchdog, only later.\n\n"
		"Exit status: 0 all is well, 1 a segment could not be read or cleaned, 2 usage, 3 an invariant is "
		"violated.",
		NULL, NULL, NULL};
	static struct round rounds[2], *now = rounds, *before = rounds + 1, *other;
	struct options o = {.interval_ms = 1000};
	struct sigaction action = {.sa_handler = on_signal};
	struct gpuarb_error err = {0};
	struct nvml_child *nvml;
	int violations = 0;

	cli_parse(&parser, argc, argv, 0, &o);
	cli_dir_exists(o.dir);
	if (o.gpu)
		o.gpu = cli_gpu_is_all(o.gpu) ? NULL : cli_gpu(o.dir, o.gpu);
	/* The child is started before there are threads. */
	nvml = o.once ? NULL : nvml_child_begin();
	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
	/* Admission depends on the GPU's utilisation. While the watchdog runs, clients leave the sampling to it. */
	if (!o.once && gpuarb_control_sample(o.dir, o.gpu, &err) < 0)
		fprintf(stderr, "%s: utilisation is not sampled: %s\n", program_invocation_short_name,
			err.text);
	do {
		struct timespec pause = {o.interval_ms / 1000, o.interval_ms % 1000 * 1000000};

		one_round(&o, ask(nvml), now);
		violations += now->violations;
		if (strcmp(now->text, before->text) != 0)
			fputs(*now->text ? now->text : "gpuarb-watchdog: all is well again\n", stderr);
		other = before;
		before = now;
		now = other;
		if (!o.once && !stop)
			nanosleep(&pause, NULL);
	} while (!o.once && !stop);
	nvml_child_end(nvml);
	/* In a loop GPUs may come and go; the result of the last round counts. */
	return violations ? FOUND_WRONG : before->failed ? 1 : 0;
}
