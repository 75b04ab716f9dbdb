/* Shows what happens on the GPUs: on a screen, as a table, or for programs. It only looks and never needs root. */
#include <argp.h>
#include <errno.h>
#include <inttypes.h>
#include <langinfo.h>
#include <limits.h>
#include <locale.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "tools/common/cli.h"
#include "tools/common/cli_gpu.h"
#include "tools/common/holders.h"
#include "tools/top/top_draw.h"
#include "tools/top/top_out.h"
#include "tools/top/top_past.h"
#include "tools/top/top_screen.h"
#include "tools/top/top_source.h"
#include "tools/top/top_text.h"
#include "tools/top/top_words.h"

struct options {
	const char *gpu, *dir, *explain, *filter;
	long interval_ms; /* 0: not said */
	long count;       /* of --batch; 0: for ever */
	long width;       /* 0: the terminal's */
	bool once, json, batch, prom, history, each;
	struct top_past past; /* of --history */
	bool ascii, mono, mouse, processes;
	enum top_sort sort;
};

static struct top_source source;

static void pause_ms(long ms)
{
	struct timespec time = {ms / 1000, ms % 1000 * 1000000};

	while (nanosleep(&time, &time) != 0 && errno == EINTR)
		;
}

static bool terminal_is_utf8(void)
{
	return strcmp(nl_langinfo(CODESET), "UTF-8") == 0;
}

static int page_width(const struct options *o)
{
	struct winsize size;
	const char *columns = getenv("COLUMNS");
	int from_env = columns ? atoi(columns) : 0;

	if (o->width)
		return (int)o->width;
	if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col)
		return size.ws_col;
	return from_env >= 40 && from_env <= 1000 ? from_env : 120;
}

/* Reads all GPUs. An empty directory is an answer; a directory that the user may not read is an error. */
static void look(bool must)
{
	struct gpuarb_error err;
	unsigned found = top_source_look(&source, &err);

	if (!err.text[0] || (!must && (err.code == -ENOENT || err.code == -ESTALE)))
		return;
	if (!found)
		die("%s", err.text);
	fprintf(stderr, "%s: %s\n", program_invocation_short_name, err.text);
}

static void print_pages(const struct options *o)
{
	struct top_ui ui = {.sort = o->sort, .all_open = o->processes};

	if (o->filter)
		snprintf(ui.filter, sizeof(ui.filter), "%s", o->filter);
	for (unsigned i = 0; i < source.ngpus; i++) {
		struct top_grid grid;

		if (!source.gpus[i]->picture)
			continue;
		if (!top_grid_make(&grid, page_width(o), top_draw_lines(source.gpus[i], &ui),
			    terminal_is_utf8() && !o->ascii))
			die("out of memory");
		top_draw_page(&grid, source.gpus[i], &ui);
		top_grid_write(&grid, stdout);
		top_grid_free(&grid);
		putchar('\n');
	}
	if (!source.ngpus)
		puts("nobody uses a GPU through gpuarb now");
}

static void print(const struct options *o)
{
	if (o->prom)
		top_out_prom(source.gpus, source.ngpus, stdout);
	else if (o->json)
		top_out_json(source.gpus, source.ngpus, o->batch, o->history ? &o->past : NULL, stdout);
	else
		print_pages(o);
	if (fflush(stdout) != 0)
		die("cannot write: %s", strerror(errno));
}

/* Prints again and again, or once after an interval; for programs that named no interval, at once. */
static void print_all(const struct options *o)
{
	bool at_once = (o->json || o->prom) && !o->batch && !o->interval_ms;
	long interval = o->interval_ms ? o->interval_ms : 1000;
	long count = o->batch ? o->count : 1;

	/* A scheduler may ask before any program uses a GPU: an empty answer is an answer too. */
	look(!o->json && !o->prom && !o->batch);
	for (long i = 0; !count || i < count; i++) {
		if (!at_once) {
			pause_ms(interval);
			look(!o->json && !o->prom && !o->batch);
		}
		print(o);
	}
}

/* Whether this GPU has ever had the account. */
static bool knows(unsigned i, const char *account)
{
	const struct top_gpu *g = source.gpus[i];
	char name[ARB_NAME_BYTES];

	for (unsigned k = 0; g->picture && k < g->picture->nstarts && k < GPUARB_VIEW_STARTS; k++)
		if (strcmp(g->picture->starts[k].account, account) == 0)
			return true;
	for (unsigned k = 0; g->picture && k < 2 * ARB_SLOTS_MAX; k++)
		if (gpuarb_view_account_name(source.views[i], k, name) && strcmp(name, account) == 0)
			return true;
	return false;
}

/* Whether the account is known. Limits may be set for an account that never ran. */
static bool is_known(unsigned i, const char *account)
{
	struct top_origin origin;

	top_source_origin(&source, source.uuids[i], account, &origin);
	return knows(i, account) || origin.core_set || origin.mem_set;
}

__attribute__((noreturn)) static void die_unknown(const char *account)
{
	die("no account '%s' is known on any GPU here; gpuarb-top --once lists them", account);
}

/* Prints the history of all GPUs, and says so if there is none. */
static void print_history(const struct options *o)
{
	char name[2 * ARB_NAME_BYTES];
	bool known = !o->past.account;
	int lines = 0;

	for (unsigned i = 0; i < source.ngpus && !known; i++)
		known = is_known(i, o->past.account);
	if (!known)
		die_unknown(o->past.account);
	for (unsigned i = 0; i < source.ngpus; i++) {
		const struct top_gpu *g = source.gpus[i];
		int n;

		if (source.ngpus > 1)
			printf("%s\n", g->picture ? top_gpu_text(g, name, sizeof(name)) : source.uuids[i]);
		if (top_past_is_cut(g, &o->past))
			puts("(what happened before this has been overwritten)");
		n = top_past_print(g, &o->past, o->each, stdout);
		if (n < 0)
			die("out of memory");
		lines += n;
	}
	if (!lines)
		puts("nothing has happened");
}

/* Locks on the bytes of a GPU's locks that none of its clients holds. */
static void read_holders(unsigned i, char path[PATH_MAX], struct holders *to)
{
	const struct gpuarb_picture *p = source.gpus[i]->picture;
	static bool taken[ARB_SLOTS_MAX];

	memset(to, 0, sizeof(*to));
	if (!p)
		return;
	memset(taken, 0, sizeof(taken));
	for (unsigned k = 0; k < p->nclients; k++)
		if (p->clients[k].slot < ARB_SLOTS_MAX)
			taken[p->clients[k].slot] = true;
	snprintf(path, PATH_MAX, "%s/state/.%s.locks", gpuarb_control_dir(source.dir), source.uuids[i]);
	holders_read(path, p->nslots, taken, to);
}

static void say_holders(const char *path, const struct holders *all)
{
	char command[2 * ARB_COMMAND_BYTES];

	for (unsigned i = 0; i < all->n; i++) {
		const struct holder *h = &all->list[i];

		printf("  Bytes %" PRIu64 " to %" PRIu64 " of %s are held by one that owns no slot there",
			h->first, h->last, path);
		if (h->known)
			printf(": pid %u (%s) of user %u.", h->pid,
				top_text_safe(h->command, command, sizeof(command)), h->uid);
		else if (all->hidden)
			printf("; the kernel tells root alone who it is.");
		else
			printf("; the kernel does not say who: it has closed the file, or is in another PID namespace.");
		puts(" Who comes may find no slot, or wait.");
	}
}

static void explain(const struct options *o)
{
	static struct holders before[TOP_GPUS], now;
	struct top_origin origin;
	char path[PATH_MAX];
	bool found = false;

	look(true);
	for (unsigned i = 0; i < source.ngpus; i++)
		read_holders(i, path, &before[i]);
	pause_ms(o->interval_ms ? o->interval_ms : 1000);
	look(true);
	for (unsigned i = 0; i < source.ngpus; i++) {
		top_source_origin(&source, source.uuids[i], o->explain, &origin);
		if (!source.gpus[i]->picture || !is_known(i, o->explain))
			continue;
		if (found)
			putchar('\n');
		top_words_explain(source.gpus[i], o->explain, &origin, stdout);
		read_holders(i, path, &now);
		holders_name(path, &before[i], &now);
		say_holders(path, &now);
		found = true;
	}
	if (!found)
		die_unknown(o->explain);
}

static void show_screen(const struct options *o)
{
	struct top_ui ui = {.sort = o->sort, .all_open = o->processes};
	struct top_screen how = {.interval_ms = o->interval_ms ? o->interval_ms : 1000,
		.utf8 = terminal_is_utf8() && !o->ascii,
		.colour = !o->mono && !getenv("NO_COLOR"),
		.mouse = o->mouse};
	const char *why;

	if (o->filter)
		snprintf(ui.filter, sizeof(ui.filter), "%s", o->filter);
	why = top_screen_run(&source, &ui, &how);
	if (why)
		die("%s", why);
}

static const struct argp_option option_table[] = {
	{NULL, 0, NULL, 0, "Instead of the screen:", 1},
	{CLI_OPTION(ONCE), NULL, 0, "Watch for an interval, print one table, exit", 1},
	{CLI_OPTION(BATCH), NULL, 0, "Print a table after every interval; with --json one line each", 1},
	{CLI_OPTION(JSON), NULL, 0, "Print everything as JSON: at once, or with --interval after that time",
		1},
	{CLI_OPTION(PROM), NULL, 0, "Print everything in the text format of Prometheus", 1},
	{CLI_OPTION(EXPLAIN), "ACCOUNT", 0, "Say in words why the account does not get more", 1},
	{CLI_OPTION(HISTORY), NULL, 0,
		"Print what happened lately, also after all programs have died; repeats are one line; also with "
		"--json",
		1},
	{NULL, 0, NULL, 0, "What is shown, and how:", 2},
	{CLI_OPTION(GPU), "GPU", 0,
		"Show this GPU alone: its number, its UUID, or the beginning of its UUID (default: all)", 2},
	CLI_OPTION_DIR(2),
	{CLI_OPTION(INTERVAL), "MS", 0, "Time between two looks, 100 to 60000 ms (default: 1000)", 2},
	{CLI_OPTION(COUNT), "N", 0, "End --batch after this many tables", 2},
	{CLI_OPTION(FILTER), "TEXT", 0,
		"Show only accounts with this text in their name, commands, containers, pids or state", 2},
	{CLI_OPTION(ACCOUNT), "ACCOUNT", 0, "With --history: only events of this account", 2},
	{CLI_OPTION(SINCE), "TIME", 0,
		"With --history: only what happened since then: 10s, 5m, 2h or 3d (ago), 14:30, 2026-11-18 or "
		"'2026-11-18 14:30'",
		2},
	{CLI_OPTION(EACH), NULL, 0, "With --history: each repeat on a line of its own", 2},
	{CLI_OPTION(SORT), "COLUMN", 0, "Sort by share, name, limit, memory, throttled, debt or queue", 2},
	{CLI_OPTION(PROCESSES), NULL, 0, "Also show the processes of each account", 2},
	{CLI_OPTION(ASCII), NULL, 0, "Print nothing but ASCII (default: the locale decides)", 2},
	{CLI_OPTION(MONO), NULL, 0, "No colours; NO_COLOR in the environment does the same", 2},
	{CLI_OPTION(MOUSE), NULL, 0, "Let the mouse select accounts, and show and hide processes", 2},
	{CLI_OPTION(WIDTH), "N", 0,
		"Columns of a table, 40 to 1000 (default: the terminal's, else COLUMNS or 120)", 2},
	{0},
};

static enum top_sort sort_of(struct argp_state *state, const char *text)
{
	for (int i = 0; i < TOP_SORTS; i++)
		if (strcmp(top_sort_name((enum top_sort)i), text) == 0)
			return (enum top_sort)i;
	argp_error(state,
		"--sort cannot be '%s'; allowed: share, name, limit, memory, throttled, debt, queue", text);
	return TOP_BY_SHARE;
}

static uint64_t since_of(struct argp_state *state, const char *text)
{
	struct timespec now;
	uint64_t since_ns = 0;

	clock_gettime(CLOCK_REALTIME, &now);
	if (!top_past_since(text, (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec, &since_ns))
		argp_error(state,
			"--since cannot be '%s'; allowed: how long ago, such as 500ms, 10s, 5m, 2h or 3d, a "
			"time "
			"of day, such as 14:30 or 14:30:05, or a day that has come, such as 2026-11-18 or "
			"'2026-11-18 14:30'",
			text);
	return since_ns;
}

static error_t on_option(int key, char *text, struct argp_state *state)
{
	struct options *o = state->input;

	switch (key) {
	case OPT_ONCE:
		o->once = true;
		return 0;
	case OPT_BATCH:
		o->batch = true;
		return 0;
	case OPT_JSON:
		o->json = true;
		return 0;
	case OPT_PROM:
		o->prom = true;
		return 0;
	case OPT_EXPLAIN:
		o->explain = text;
		return 0;
	case OPT_HISTORY:
		o->history = true;
		return 0;
	case OPT_INTERVAL:
		o->interval_ms = cli_number("--interval", text, 100, 60000, "ms");
		return 0;
	case OPT_COUNT:
		o->count = cli_number("--count", text, 1, 1000000000, "");
		return 0;
	case OPT_FILTER:
		o->filter = o->past.filter = text;
		return 0;
	case OPT_ACCOUNT:
		o->past.account = cli_account("--account", text);
		return 0;
	case OPT_SINCE:
		o->past.since_ns = since_of(state, text);
		return 0;
	case OPT_EACH:
		o->each = true;
		return 0;
	case OPT_SORT:
		o->sort = sort_of(state, text);
		return 0;
	case OPT_PROCESSES:
		o->processes = true;
		return 0;
	case OPT_ASCII:
		o->ascii = true;
		return 0;
	case OPT_MONO:
		o->mono = true;
		return 0;
	case OPT_MOUSE:
		o->mouse = true;
		return 0;
	case OPT_WIDTH:
		o->width = cli_number("--width", text, 40, 1000, "columns");
		return 0;
	case ARGP_KEY_END:
		if (o->prom + o->json + (o->explain != NULL) > 1)
			argp_error(state, "--json, --prom and --explain exclude each other");
		if (o->once && o->batch)
			argp_error(state, "--once and --batch exclude each other");
		if (!o->history && (o->past.account || o->past.since_ns || o->each))
			argp_error(state, "--account, --since and --each go with --history");
		if (o->count && !o->batch)
			argp_error(state, "--count goes with --batch");
		if (o->batch && (o->prom || o->explain || (o->history && !o->json)))
			argp_error(state, "--batch goes with tables and --json alone");
		return 0;
	default:
		return cli_option(key, text, state, &o->dir, &o->gpu);
	}
}

int main(int argc, char **argv)
{
	static const struct argp parser = {option_table, on_option, NULL,
		"Shows who uses the GPUs that gpuarb shares, how much, and why not more.\v"
		"Without an option from the first group it is a live screen, where '?' lists the keys; on a "
		"terminal that cannot show it (TERM=dumb) it prints one table. It changes nothing, except limits: "
		"users who may do that can change them by keys.\n\n"
		"Exit status: 0 done, 1 failed, 2 usage.",
		NULL, NULL, NULL};
	struct options o = {0};

	setlocale(LC_ALL, "");
	cli_parse(&parser, argc, argv, 0, &o);
	cli_dir_exists(o.dir);
	source.dir = o.dir;
	source.gpu = o.gpu && !cli_gpu_is_all(o.gpu) ? cli_gpu(o.dir, o.gpu) : NULL;
	/* A single answer, often for a program, does not wait long for a driver that hangs. */
	source.nvml_ms = (o.json || o.prom || o.history || o.explain) && !o.batch ? 300 : 2000;
	if (o.explain) {
		explain(&o);
	} else if (o.history && !o.json) {
		look(true);
		print_history(&o);
	} else if (o.once || o.batch || o.json || o.prom || top_screen_is_plain()) {
		print_all(&o);
	} else {
		show_screen(&o);
	}
	top_source_close(&source);
	return 0;
}
