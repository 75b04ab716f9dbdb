/* What all tools share: a letter has one meaning, -h helps, and a mistake on the command line ends with status 2. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "test/harness.h"

static const char *const tools[] = {"gpuarb-run", "gpuarb-set", "gpuarb-top", "gpuarb-watchdog",
	"gpuarb-node", "gpuarb-cdi", "gpuarb-replay", "gpuarb-runtime"};
#define TOOLS (sizeof(tools) / sizeof(tools[0]))
/* Without gpuarb-runtime, whose command line is that of an OCI runtime. */
#define PLAIN (TOOLS - 1)

static char out[1 << 16];

static int run(const char *tool, const char *arguments)
{
	return t_shell(out, sizeof(out), "%s/%s %s </dev/null", t_build(), tool, arguments);
}

/* Lists the options of a tool as its help does: word[i] belongs to letter[i], which is ' ' if there is none. */
static int listed(const char *tool, char letter[64], char word[64][64])
{
	int n = 0;

	cr_assert_eq(run(tool, "--help"), 0, "%s: %s", tool, out);
	for (char *save, *line = strtok_r(out, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
		bool lettered = !strncmp(line, "  -", 3) && !strncmp(line + 4, ", --", 4);

		if (!lettered && strncmp(line, "      --", 8))
			continue;
		cr_assert_lt(n, 64);
		letter[n] = lettered ? line[3] : ' ';
		snprintf(word[n], sizeof(word[n]), "%.*s", (int)strcspn(line + 8, " =["), line + 8);
		n++;
	}
	return n;
}

Test(options, a_letter_means_the_same_everywhere)
{
	char meaning[256][64] = {{0}}, letter[64], word[64][64];
	int lettered = 0;

	for (unsigned t = 0; t < TOOLS; t++) {
		int n = listed(tools[t], letter, word);

		cr_assert_geq(n, 4, "%s lists %d options", tools[t], n);
		for (int i = 0; i < n; i++) {
			char *known = meaning[(unsigned char)letter[i]];

			if (letter[i] == ' ') {
				/* A word has its letter in all tools or in none. */
				for (int k = 0; k < 256; k++)
					cr_assert_str_neq(meaning[k], word[i], "%s: --%s without -%c",
						tools[t], word[i], k);
				continue;
			}
			cr_assert(!*known || !strcmp(known, word[i]), "%s: -%c is --%s, elsewhere --%s",
				tools[t], letter[i], word[i], known);
			snprintf(known, 64, "%s", word[i]);
			lettered++;
		}
	}
	cr_assert_gt(lettered, 30);
}

Test(options, each_tool_says_how_it_is_used)
{
	for (unsigned t = 0; t < TOOLS; t++) {
		char help[sizeof(out)];

		cr_assert_eq(run(tools[t], "--help"), 0);
		strcpy(help, out);
		cr_assert(strstr(help, "-h, --help") && strstr(help, "-V, --version"), "%s: %s", tools[t],
			help);
		cr_assert_eq(run(tools[t], "-h"), 0, "%s: %s", tools[t], out);
		cr_assert_str_eq(out, help);
		/* Nothing that is not about this tool, and no line that argp has left over. */
		cr_assert_null(strstr(help, "Mandatory or optional"), "%s: %s", tools[t], help);
		cr_assert_null(strstr(help, " \n") || strstr(help, "\n\n\n"), "%s: %s", tools[t], help);
		cr_assert_eq(run(tools[t], "--usage"), 0);
		cr_assert(strncmp(out, "Usage: ", 7) == 0, "%s: %s", tools[t], out);
		cr_assert_eq(run(tools[t], "-V"), 0);
		cr_assert(strstr(out, tools[t]) == out, "%s: %s", tools[t], out);
	}
}

Test(options, what_is_typed_wrong_ends_with_2)
{
	static const struct {
		const char *tool, *arguments, *sentence;
	} wrong[] = {
		{"gpuarb-run", "--core", "requires an argument"},
		{"gpuarb-run", "--core 0 true", "core cannot be '0'"},
		{"gpuarb-run", "-C x --max-wait soon true", "is not a time"},
		{"gpuarb-set", "--pid x core=5", "--pid cannot be 'x'"},
		{"gpuarb-set", "core", "is not key=value"},
		{"gpuarb-set", "--class x", "--class: which settings? Such as priority=10"},
		{"gpuarb-set", "--no-class x priority=1", "--no-class takes a class away"},
		{"gpuarb-set", "--class x --account y priority=1", "do not go with --account"},
		{"gpuarb-run", "--wait 5 --mem 1Gi true", "--wait=5"},
		{"gpuarb-top", "--interval 1", "--interval cannot be '1'; allowed: 100 to 60000 ms"},
		{"gpuarb-top", "word", "there is nothing to do with 'word'"},
		{"gpuarb-watchdog", "word", "there is nothing to do with 'word'"},
		{"gpuarb-node", "word", "there is nothing to do with 'word'"},
		{"gpuarb-replay", "", "no trace to read"},
		{"gpuarb-replay", "one two", "one trace at a time"},
		{"gpuarb-run", "--record '' true", "--record needs the name of a file"},
		{"gpuarb-run", "--record x --print-container-flags", "no --record"},
		{"gpuarb-cdi", "--percents 0", "--percents cannot be '0'"},
		{"gpuarb-cdi", "--gpu GPU-00000000-0000-0000-0000-00000000000a --library relative.so",
			"must be given with its full path"},
	};

	for (unsigned t = 0; t < PLAIN; t++) {
		cr_assert_eq(run(tools[t], "--nonsense"), 2, "%s: %s", tools[t], out);
		cr_assert(strstr(out, "unrecognized option '--nonsense'"), "%s: %s", tools[t], out);
		cr_assert_eq(run(tools[t], "-Z"), 2, "%s: %s", tools[t], out);
	}
	for (unsigned i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		int status = run(wrong[i].tool, wrong[i].arguments);

		cr_assert_eq(status, 2, "%s %s: %d: %s", wrong[i].tool, wrong[i].arguments, status, out);
		cr_assert(
			strstr(out, wrong[i].sentence), "%s %s: %s", wrong[i].tool, wrong[i].arguments, out);
	}
}

Test(options, an_unknown_variable_is_named_once)
{
	static const char sentence[] =
		": the environment variable GPUARB_CORELIMIT is not known and does nothing; "
		"did you mean GPUARB_CORE_LIMIT?\n";

	/* Arguments with which each tool ends at once. */
	static const char *const arguments[PLAIN] = {"--dry-run true", "--keys", "--once --gpu x",
		"--once --gpu x", "--gpu ''", "--gpu GPU-a --dir /no", "/no/such"};

	for (unsigned t = 0; t < PLAIN; t++) {
		char expected[256];
		const char *first;

		t_shell(out, sizeof(out), "GPUARB_CORELIMIT=5 GPUARB_CONF=/dev/null %s/%s %s </dev/null",
			t_build(), tools[t], arguments[t]);
		snprintf(expected, sizeof(expected), "%s%s", tools[t], sentence);
		first = strstr(out, expected);
		cr_assert(first, "%s: %s", tools[t], out);
		cr_assert_null(strstr(first + strlen(expected), "is not known"), "%s: %s", tools[t], out);
		run(tools[t], arguments[t]);
		cr_assert_null(strstr(out, "is not known"), "%s: %s", tools[t], out);
	}
}

Test(options, a_directory_is_no_settings_file)
{
	for (unsigned t = 0; t < PLAIN; t++) {
		cr_assert_eq(
			t_shell(out, sizeof(out), "GPUARB_CONF=/tmp %s/%s %s </dev/null", t_build(), tools[t],
				!strcmp(tools[t], "gpuarb-run")      ? "true"
				: !strcmp(tools[t], "gpuarb-set")    ? "--show"
				: !strcmp(tools[t], "gpuarb-replay") ? "/no/such"
								     : ""),
			1, "%s: %s", tools[t], out);
		cr_assert(strstr(out, "GPUARB_CONF=/tmp is a directory; allowed: the name of a file"),
			"%s: %s", tools[t], out);
	}
}

static unsigned times(const char *sentence)
{
	unsigned n = 0;

	for (const char *at = out; (at = strstr(at, sentence)); at++)
		n++;
	return n;
}

/* It is in the program's own log: once in each process that uses a GPU, however many threads that has. If gpuarb-run
 * has said it already, the program does not. */
Test(options, a_program_is_told_of_it_too)
{
	struct t_dir dir;

	t_dir_make(&dir, NULL);
	cr_assert_eq(t_shell(out, sizeof(out),
			     "GPUARB_CORELIMIT=5 GPUARB_CONF=/dev/null GPUARB_DIR=%s GPUSIM_DIR=%s "
			     "LD_PRELOAD=%s/libgpuarb-"
			     "preload.so LD_LIBRARY_PATH=%s/sim %s/simload -P 2 -t 3 -n 50 -k 10",
			     dir.path, dir.path, t_build(), t_build(), t_build()),
		0, "%s", out);
	cr_assert_eq(
		times("warn preload: the environment variable GPUARB_CORELIMIT is not known"), 2, "%s", out);
	cr_assert_eq(t_shell(out, sizeof(out),
			     "GPUARB_CORELIMIT=5 GPUARB_CONF=/dev/null GPUARB_DIR=%s GPUSIM_DIR=%s "
			     "%s/gpuarb-run --sim -- %s/simload -P 2 -t 3 -n 50 -k 10",
			     dir.path, dir.path, t_build(), t_build()),
		0, "%s", out);
	cr_assert_eq(times("GPUARB_CORELIMIT is not known"), 1, "%s", out);
	t_dir_remove(&dir);
}
