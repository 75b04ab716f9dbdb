/* Reads what a program recorded with GPUARB_TRACE, prints it in words, and has each decision made again. */
#include <argp.h>
#include <errno.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/common/cli.h"
#include "preload/book/codec.h"
#include "preload/book/replay.h"

/* No trace is longer than this: preload/track/trace.h. */
#define FILE_MOST (65ull << 20)

static struct {
	const char *file;
	bool quiet, json;
} options;

static const struct argp_option option_table[] = {
	{CLI_OPTION(QUIET), NULL, 0, "Only say whether all decisions are the same", 0},
	{CLI_OPTION(JSON), NULL, 0, "Print JSON, one object in each line", 0},
	{0},
};

static error_t on_option(int key, char *value, struct argp_state *state)
{
	switch (key) {
	case OPT_QUIET:
		options.quiet = true;
		return 0;
	case OPT_JSON:
		options.json = true;
		return 0;
	case ARGP_KEY_ARG:
		if (options.file)
			argp_error(state, "one trace at a time: what is '%s'?", value);
		options.file = value;
		return 0;
	case ARGP_KEY_END:
		if (!options.file)
			argp_error(state, "no trace to read");
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static uint8_t *read_all(const char *path, size_t *size)
{
	bool standard = !strcmp(path, "-");
	FILE *file = standard ? stdin : fopen(path, "rb");
	uint8_t *data = NULL;
	size_t room = 0, n = 1;

	if (!file)
		die("%s cannot be read: %s", path, strerror(errno));
	for (*size = 0; n && *size <= FILE_MOST; *size += n) {
		if (room < *size + (1u << 20)) {
			room = 2 * room + (1u << 20);
			data = realloc(data, room);
			if (!data)
				die("out of memory");
		}
		n = fread(data + *size, 1, room - *size, file);
	}
	if (ferror(file))
		die("%s cannot be read: %s", path, strerror(errno));
	if (*size > FILE_MOST)
		die("%s is longer than any trace", path);
	if (!standard)
		fclose(file);
	return data;
}

static void print_json(json_t *object)
{
	if (json_dumpf(object, stdout, JSON_COMPACT | JSON_REAL_PRECISION(10)) != 0)
		die("the output cannot be written");
	putchar('\n');
	json_decref(object);
}

static void print_header(const struct trace_header *h)
{
	if (options.quiet)
		return;
	if (options.json)
		print_json(json_pack("{s:s,s:i,s:s,s:s,s:b,s:b}", "program", h->program, "pid", (int)h->pid,
			"gpu", h->gpu, "version", h->version, "limited", h->limited, "same_thresholds",
			h->thresholds == codec_thresholds()));
	else
		printf("# %s, process %u, on %s, recorded by gpuarb %s%s\n", h->program, h->pid, h->gpu,
			h->version, h->limited ? ", limited from the start" : "");
}

static void print_event(const struct replay *p, const struct trace_record *r)
{
	double at_s = (double)(int64_t)(r->event.now_ns - p->header.began_ns) / 1e9;
	char words[256], thread[24] = "tracker";

	if (options.quiet)
		return;
	if (r->thread)
		snprintf(thread, sizeof(thread), "thread %u", r->thread);
	book_words(words, sizeof(words), &r->event, &r->action);
	if (options.json)
		print_json(json_pack("{s:f,s:s,s:s,s:s,s:s,s:b,s:s}", "s", at_s, "who", thread, "event",
			book_event_name(r->event.kind), "decision", book_action_name(r->action.what), "state",
			book_state_name(r->outcome & 7), "open", (r->outcome & 8) != 0, "words", words));
	else
		printf("%12.6f  %-14s  %s [%s%s]\n", at_s, thread, words, book_state_name(r->outcome & 7),
			r->outcome & 8 ? ", open" : "");
}

/* Prints the last line and returns the exit status. */
static int verdict(const struct replay *p)
{
	char why[768];
	bool same = replay_verdict(p, why, sizeof(why));

	if (options.json)
		print_json(json_pack(
			"{s:b,s:I,s:s}", "same", same, "events", (json_int_t)p->events, "verdict", why));
	else
		printf("%s\n", why);
	return same ? 0 : 1;
}

int main(int argc, char **argv)
{
	static const struct argp parser = {option_table, on_option, "FILE",
		"Says in words what a program recorded with GPUARB_TRACE or gpuarb-run --record, and has each "
		"decision made again.\v"
		"  gpuarb-run --record train.trace --core 40 -- python train.py\n"
		"  gpuarb-replay train.trace\n\n"
		"FILE may be -, the standard input. Exit status: 0 all decisions are the same, 1 one is "
		"another or the file is no trace, 2 usage.",
		NULL, NULL, NULL};
	static struct replay p;
	struct trace_record r;
	uint8_t *data;
	size_t size;
	int status;

	cli_parse(&parser, argc, argv, 0, NULL);
	data = read_all(options.file, &size);
	if (!replay_begin(&p, data, size))
		die("%s is no trace of gpuarb, or of another version", options.file);
	print_header(&p.header);
	while (replay_next(&p, &r))
		print_event(&p, &r);
	status = verdict(&p);
	free(data);
	if (fflush(stdout) != 0 || ferror(stdout))
		die("the output cannot be written");
	return status;
}
