/* The limits file: what is understood, what is refused, and when a change is seen. */
#include "test/unit/unit_clients.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "shm/base/limits_file.h"

static char place[64];

static void make_place(void)
{
	strcpy(place, "/tmp/gpuarb-limits-XXXXXX");
	cr_assert(mkdtemp(place));
}

static void remove_place(void)
{
	char command[128];

	snprintf(command, sizeof(command), "rm -rf %s", place);
	cr_assert_eq(system(command), 0);
}

static int parse(const char *text, struct arb_limits *limits, struct gpuarb_error *err)
{
	return arb_limits_parse(text, strlen(text), "file", limits, err);
}

static void expect(const char *text, unsigned core, bool has_mem, uint64_t mem)
{
	struct arb_limits limits = {.core_pct = 77};
	struct gpuarb_error err = {0};

	cr_assert_eq(parse(text, &limits, &err), 0, "%s: %s", text, err.text);
	cr_assert_eq(limits.core_pct, core, "%s: %u", text, limits.core_pct);
	cr_assert_eq(limits.has_mem, has_mem, "%s", text);
	cr_assert_eq(limits.mem_bytes, mem, "%s: %llu", text, (unsigned long long)limits.mem_bytes);
}

static void refuse(const char *text, const char *sentence)
{
	struct arb_limits limits = {.core_pct = 77};
	struct gpuarb_error err = {0};

	cr_assert_eq(parse(text, &limits, &err), -EINVAL, "%s", text);
	cr_assert(strstr(err.text, sentence), "%s: %s", text, err.text);
	cr_assert_eq(limits.core_pct, 77, "what was there before stays");
}

Test(limits_parse, what_the_downward_api_writes)
{
	expect("gpuarb.dev/core-limit=\"40\"", 40, false, 0);
	expect("gpuarb.dev/memory-limit=\"4Gi\"\n", 0, true, 4ull << 30);
	expect("a=\"b\"\ngpuarb.dev/core-limit=\"40\"\ngpuarb.dev/memory-limit=\"512Mi\"\nz=\"\"", 40, true,
		512ull << 20);
	expect("nvshare.com/gpu-core-limit=\"30\"\nnvshare.com/gpu-memory-limit=\"0\"", 30, true, 0);
	/* Other annotations hold text that Go has quoted. */
	expect("kubectl.kubernetes.io/"
	       "last-applied-configuration=\"{\\\"a\\\":\\\"x=\\\\\\\"y\\\\\\\"\\\\n\\\"}\\n\"\n"
	       "gpuarb.dev/core-limit=\"7\"",
		7, false, 0);
	expect("a=\"\\u2028\\x7f\\U0001f600 caf\xc3\xa9\"\ngpuarb.dev/core-limit=\"25%\"", 25, false, 0);
	expect("a=\"gpuarb.dev/core-limit=\\\"3\\\"\"", 0, false, 0);
}

Test(limits_parse, a_bare_number_is_the_share)
{
	expect("40", 40, false, 0);
	expect(" 5%\r\n\n", 5, false, 0);
	refuse("0", "core cannot be '0'; allowed: 1 to 100 percent");
	refuse("101", "core cannot be '101'");
	refuse("4Gi", "core cannot be '4Gi'");
	refuse("40 50", "core cannot be '40 50'");
}

Test(limits_parse, nothing_is_no_limit)
{
	expect("", 0, false, 0);
	expect("\n\n  \n", 0, false, 0);
	expect("unrelated=\"1\"", 0, false, 0);
	expect("gpuarb.dev/core-limit=\"\"", 0, false, 0);
	expect("gpuarb.dev/core-limits=\"1\"\nxgpuarb.dev/core-limit=\"2\"", 0, false, 0);
}

Test(limits_parse, our_own_name_counts_more_whatever_the_order)
{
	expect("gpuarb.dev/core-limit=\"40\"\nnvshare.com/gpu-core-limit=\"30\"", 40, false, 0);
	expect("nvshare.com/gpu-core-limit=\"30\"\ngpuarb.dev/core-limit=\"40\"", 40, false, 0);
	expect("nvshare.com/gpu-core-limit=\"30\"\ngpuarb.dev/memory-limit=\"1Mi\"", 30, true, 1 << 20);
}

Test(limits_parse, a_mistake_gets_a_sentence_and_changes_nothing)
{
	refuse("gpuarb.dev/core-limit=\"lots\"",
		"file: gpuarb.dev/core-limit: core cannot be 'lots'; allowed: 1 to 100 percent");
	refuse("gpuarb.dev/core-limit=\"40\"\nnvshare.com/gpu-memory-limit=\"-1\"",
		"nvshare.com/gpu-memory-limit: mem cannot be '-1'");
	refuse("gpuarb.dev/core-limit=40",
		"file:1: 'gpuarb.dev/core-limit=40' is neither key=\"value\" nor a number");
	refuse("a=\"b\"\nhello", "file:2: 'hello' is neither");
	refuse("a=\"b", "neither");
	refuse("a=\"b\\", "neither");
	refuse("a=\"b\" c", "neither");
	refuse("=\"b\"", "neither");
	refuse("a=\"b\nc\"", "file:1:");
	refuse("\x1b[2J\x07", "'?[2J?' is neither");
	refuse("gpuarb.dev/core-limit=\"4\\n0\"", "cannot be '4?0'");
}

/* Changes any byte, or the length: the text is understood or refused, nothing else, and no byte beyond it is read. */
Test(limits_parse, garbage_is_refused_and_never_read_beyond)
{
	static const char sample[] = "a=\"\\\"x\\\\\"\ngpuarb.dev/core-limit=\"40\"\n"
				     "gpuarb.dev/memory-limit=\"4Gi\"\nnvshare.com/gpu-core-limit=\"30\"";
	static const char odd[] = "\"\\=\n\0 0194GiZ\xff\x1b";
	uint64_t seed = t_seed_of_today();
	struct t_random r = t_seeded(seed);

	printf("seed %llu\n", (unsigned long long)seed);
	for (int i = 0; i < 60000; i++) {
		struct arb_limits limits = {0};
		struct gpuarb_error err = {0};
		size_t n = t_below(&r, sizeof(sample));
		char *text =
			malloc(n ? n : 1); /* exact size: the sanitizer reports a read of one byte more */
		int result;

		memcpy(text, sample, n);
		for (uint32_t k = t_below(&r, 8); k && n; k--)
			text[t_below(&r, (uint32_t)n)] = odd[t_below(&r, sizeof(odd))];
		result = arb_limits_parse(text, n, "file", &limits, &err);
		cr_assert(result == 0 || (result == -EINVAL && err.text[0]));
		cr_assert(limits.core_pct <= 100 && limits.mem_bytes <= INT64_MAX);
		for (const char *p = err.text; *p; p++)
			cr_assert((unsigned char)*p >= ' ' && *p != 0x7f, "in a log: %s", err.text);
		free(text);
	}
}

TestSuite(limits_file, .init = make_place, .fini = remove_place);

static void write_text(const char *name, const char *text)
{
	char path[256];
	FILE *file;

	snprintf(path, sizeof(path), "%s/%s", place, name);
	file = fopen(path, "w");
	cr_assert(file && fputs(text, file) >= 0 && fclose(file) == 0);
}

/* Replaces the file as the kubelet's AtomicWriter does: a new directory, a link to it under another name, a rename.
 */
static void kubelet_writes(const char *text)
{
	static int version;
	char from[192], to[192], name[64], old[64] = "";
	ssize_t n;

	snprintf(to, sizeof(to), "%s/..data", place);
	n = readlink(to, old, sizeof(old) - 1);
	old[n > 0 ? n : 0] = '\0';
	snprintf(name, sizeof(name), "..2026_11_16_%d", ++version);
	snprintf(from, sizeof(from), "%s/%s", place, name);
	cr_assert_eq(mkdir(from, 0755), 0);
	snprintf(from, sizeof(from), "%s/annotations", name);
	write_text(from, text);
	snprintf(from, sizeof(from), "%s/..data_tmp", place);
	cr_assert_eq(symlink(name, from), 0);
	cr_assert_eq(rename(from, to), 0);
	snprintf(to, sizeof(to), "%s/annotations", place);
	if (symlink("..data/annotations", to) != 0)
		cr_assert_eq(errno, EEXIST);
	if (old[0]) {
		snprintf(from, sizeof(from), "%s/%s/annotations", place, old);
		cr_assert_eq(unlink(from), 0);
		snprintf(from, sizeof(from), "%s/%s", place, old);
		cr_assert_eq(rmdir(from), 0);
	}
}

static struct arb_limits_file *limits_file(const char *name)
{
	static struct arb_limits_file f;

	memset(&f, 0, sizeof(f));
	snprintf(f.path, sizeof(f.path), "%s/%s", place, name);
	return &f;
}

Test(limits_file, the_kubelets_swap_is_seen_at_the_next_look)
{
	struct arb_limits_file *f = limits_file("annotations");
	struct gpuarb_error err = {0};
	char text[64];

	for (unsigned core = 1; core <= 100; core++) {
		snprintf(text, sizeof(text), "gpuarb.dev/core-limit=\"%u\"", core);
		kubelet_writes(text);
		cr_assert_eq(arb_limits_look(f, &err), 1, "%s", err.text);
		cr_assert_eq(f->limits.core_pct, core);
		cr_assert_eq(arb_limits_look(f, &err), 0, "and nothing is new then");
	}
}

Test(limits_file, a_file_that_is_written_over_is_seen_however_often)
{
	struct arb_limits_file *f = limits_file("limits");

	/* All versions have the same length and follow each other faster than the file system's clock ticks. */
	for (int i = 0; i < 300; i++) {
		write_text("limits", i % 2 ? "10" : "20");
		cr_assert_eq(arb_limits_look(f, NULL), 1, "round %d", i);
		cr_assert_eq(f->limits.core_pct, i % 2 ? 10 : 20);
	}
}

Test(limits_file, garbage_is_said_once_and_the_last_limits_stay)
{
	struct arb_limits_file *f = limits_file("annotations");
	struct gpuarb_error err = {0};

	kubelet_writes("gpuarb.dev/core-limit=\"40\"");
	cr_assert_eq(arb_limits_look(f, &err), 1);
	kubelet_writes("gpuarb.dev/core-limit=\"fourty\"");
	cr_assert_eq(arb_limits_look(f, &err), -EINVAL);
	cr_assert(strstr(err.text, "/annotations: gpuarb.dev/core-limit: core cannot be 'fourty'"), "%s",
		err.text);
	cr_assert_eq(arb_limits_look(f, &err), 0, "said once");
	cr_assert_eq(f->limits.core_pct, 40);
	kubelet_writes("{}");
	cr_assert_eq(arb_limits_look(f, &err), -EINVAL, "another mistake is another sentence");
	kubelet_writes("gpuarb.dev/core-limit=\"40\"");
	cr_assert_eq(arb_limits_look(f, &err), 0, "the same limits as before");
	kubelet_writes("gpuarb.dev/core-limit=\"41\"");
	cr_assert_eq(arb_limits_look(f, &err), 1);
}

Test(limits_file, a_directory_may_vanish_and_come_back)
{
	struct arb_limits_file *f = limits_file("volume/limits");
	struct gpuarb_error err = {0};
	char path[128];

	snprintf(path, sizeof(path), "%s/volume", place);
	cr_assert_eq(arb_limits_look(f, &err), -ENOENT);
	cr_assert(strstr(err.text, "/volume/limits: No such file"), "%s", err.text);
	cr_assert_eq(arb_limits_look(f, &err), 0);
	cr_assert_eq(mkdir(path, 0755), 0);
	cr_assert_eq(arb_limits_look(f, &err), 0);
	write_text("volume/limits", "15");
	cr_assert_eq(arb_limits_look(f, &err), 1);
	cr_assert_eq(f->limits.core_pct, 15);
	remove_place();
	cr_assert_eq(arb_limits_look(f, &err), -ENOENT);
	cr_assert_eq(arb_limits_look(f, &err), 0);
	cr_assert_eq(f->limits.core_pct, 15);
	cr_assert_eq(mkdir(place, 0755), 0);
	write_text("volume", "not a directory any more");
	cr_assert_eq(arb_limits_look(f, &err), -ENOTDIR);
}

Test(limits_file, a_path_that_is_no_file_holds_nobody_up)
{
	struct arb_limits_file *f = limits_file("pipe");
	struct gpuarb_error err = {0};
	char path[128];

	snprintf(path, sizeof(path), "%s/pipe", place);
	cr_assert_eq(mkfifo(path, 0600), 0);
	cr_assert_eq(arb_limits_look(f, &err), -EISDIR);
	cr_assert(strstr(err.text, "it is not a file"), "%s", err.text);
	snprintf(f->path, sizeof(f->path), "%s", place);
	cr_assert_eq(arb_limits_look(f, &err), -EISDIR);
	snprintf(f->path, sizeof(f->path), "/dev/zero");
	cr_assert_eq(arb_limits_look(f, &err), -EISDIR);
	snprintf(path, sizeof(path), "%s/huge", place);
	write_text("huge", "5");
	cr_assert_eq(truncate(path, 64 << 20), 0);
	snprintf(f->path, sizeof(f->path), "%s", path);
	cr_assert_eq(arb_limits_look(f, &err), -EFBIG);
}

/* Clients, with a clock that the test moves. */
static struct gpuarb_client *client(const char *name, unsigned core, uint64_t mem)
{
	struct gpuarb_options o = t_options(&u_dir, "pod");
	struct gpuarb_error err = {0};
	struct gpuarb_client *c;
	static char path[128];

	snprintf(path, sizeof(path), "%s/%s", place, name);
	o.limits_file = path;
	o.core_pct = core;
	o.mem_bytes = mem;
	cr_assert_eq(gpuarb_client_open(&o, &c, &err), 0, "%s", err.text);
	return c;
}

static struct gpuarb_client_status status_of(struct gpuarb_client *c)
{
	struct gpuarb_client_status status;

	cr_assert_eq(gpuarb_client_status(c, &status), 0);
	return status;
}

static void later(unsigned ms)
{
	u_clock_ns += ms * MS;
}

static void open_both(void)
{
	make_place();
	u_begin(NULL);
}

static void close_both(void)
{
	t_dir_remove(&u_dir);
	remove_place();
}

TestSuite(follow, .init = open_both, .fini = close_both);

Test(follow, a_client_has_the_files_limits_from_the_start_and_follows_them)
{
	struct gpuarb_client *c;
	uint64_t next = 0;

	kubelet_writes("gpuarb.dev/core-limit=\"40\"\ngpuarb.dev/memory-limit=\"4Mi\"");
	c = client("annotations", 70, 0);
	cr_assert_eq(status_of(c).core_pct, 40, "the file stands above the environment");
	cr_assert_eq(status_of(c).mem_limit, 4 << 20);
	kubelet_writes("gpuarb.dev/core-limit=\"20\"\ngpuarb.dev/memory-limit=\"2Mi\"");
	cr_assert_eq(gpuarb_client_follow(c, &next, NULL), 0);
	cr_assert(next > 0 && next <= 100000000, "again after %llu ns", (unsigned long long)next);
	u_clock_ns += next;
	cr_assert_eq(gpuarb_client_follow(c, &next, NULL), 1);
	cr_assert_eq(status_of(c).core_pct, 20);
	cr_assert_eq(gpuarb_client_mem_reserve(c, 3 << 20), -ENOMEM);
	kubelet_writes("unrelated=\"x\"");
	later(100);
	cr_assert_eq(gpuarb_client_mem_reserve(c, 3 << 20), 0, "the quota was taken back");
	cr_assert_eq(status_of(c).core_pct, 70, "what the environment said counts again");
	cr_assert_eq(status_of(c).mem_limit, 0);
	gpuarb_client_close(c);
}

Test(follow, without_a_file_there_is_nothing_to_do)
{
	struct gpuarb_client *c;
	uint64_t next = 5;

	cr_assert_eq(t_open(&u_dir, "pod", &c), 0);
	cr_assert_eq(gpuarb_client_follow(c, &next, NULL), 0);
	cr_assert_eq(next, 0);
	gpuarb_client_close(c);
}

Test(follow, what_an_administrator_set_stands_above)
{
	struct gpuarb_client *c;

	kubelet_writes("gpuarb.dev/core-limit=\"40\"\ngpuarb.dev/memory-limit=\"4Mi\"");
	c = client("annotations", 0, 0);
	u_limit("pod", "core", "30");
	cr_assert_eq(status_of(c).core_pct, 30);
	kubelet_writes("gpuarb.dev/core-limit=\"90\"\ngpuarb.dev/memory-limit=\"8Mi\"");
	later(100);
	cr_assert_eq(gpuarb_client_tick(c), 0);
	cr_assert_eq(status_of(c).core_pct, 30);
	cr_assert_eq(status_of(c).mem_limit, 8 << 20, "what the administrator did not set follows the file");
	u_limit("pod", "core", NULL);
	cr_assert_eq(status_of(c).core_pct, 90, "taken back: the file's counts");
	gpuarb_client_close(c);
}

Test(follow, trouble_is_told_once_whichever_call_looked_first)
{
	struct gpuarb_error err = {0};
	struct gpuarb_client *c = client("annotations", 60, 0);

	cr_assert_eq(status_of(c).core_pct, 60, "no file yet");
	cr_assert_eq(gpuarb_client_follow(c, NULL, &err), -ENOENT);
	cr_assert_eq(gpuarb_client_follow(c, NULL, &err), 0);
	kubelet_writes("?");
	later(100);
	cr_assert_eq(gpuarb_client_tick(c), 0, "garbage stops no client");
	cr_assert_eq(gpuarb_client_follow(c, NULL, &err), -EINVAL);
	cr_assert(strstr(err.text, "'?' is neither"), "%s", err.text);
	later(100);
	cr_assert_eq(gpuarb_client_follow(c, NULL, &err), 0);
	kubelet_writes("9");
	later(100);
	cr_assert_eq(gpuarb_client_follow(c, NULL, &err), 1);
	cr_assert_eq(status_of(c).core_pct, 9);
	gpuarb_client_close(c);
}

static void kubelet_swaps(void)
{
	u_futex.while_asleep = NULL;
	kubelet_writes("100");
}

Test(follow, a_new_file_wakes_a_client_that_sleeps_without_quota)
{
	struct gpuarb_client *c;
	uint64_t began;

	kubelet_writes("1");
	c = client("annotations", 0, 0);
	cr_assert_eq(gpuarb_client_enter(c, NULL), 0);
	later(500);
	cr_assert_eq(gpuarb_client_leave(c, 0), 0);
	cr_assert_eq(gpuarb_client_enter(c, NULL), -EAGAIN, "in debt for a long time");
	u_futex.while_asleep = kubelet_swaps;
	began = u_clock_ns;
	cr_assert_eq(gpuarb_client_wait(c, NULL, 30000000000ull), 0);
	cr_assert_leq(u_clock_ns - began, 100000000ull, "%llu ns", (unsigned long long)(u_clock_ns - began));
	gpuarb_client_close(c);
}
