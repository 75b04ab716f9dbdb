/* Settings: every key, every kind of value, every sentence about a bad one. */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "gpuarb/config.h"

static int parse(const char *name, const char *text, int64_t *value, struct gpuarb_error *err)
{
	return gpuarb_config_parse(gpuarb_config_find(name), text, "here", value, err);
}

static void write_file(char *path, const char *text)
{
	int fd = mkstemp(path);

	cr_assert(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
	close(fd);
}

static int load(const char *text, struct gpuarb_config *config, struct gpuarb_error *err)
{
	char path[] = "/tmp/gpuarb-conf-XXXXXX";
	int r;

	write_file(path, text);
	r = gpuarb_config_load(config, path, true, err);
	unlink(path);
	return r;
}

Test(config, every_default_is_a_value_that_would_be_accepted)
{
	for (int key = 0; key < ARB_KEY_COUNT; key++) {
		struct gpuarb_error err = {0};
		char text[64];
		int64_t value = -77;

		gpuarb_config_format((enum arb_key)key, gpuarb_keys[key].initial, text, sizeof(text));
		cr_assert_eq(gpuarb_config_parse((enum arb_key)key, text, "", &value, &err), 0, "%s=%s: %s",
			gpuarb_keys[key].name, text, err.text);
		cr_assert_eq(value, gpuarb_keys[key].initial, "%s", gpuarb_keys[key].name);
	}
}

Test(config, ends_of_every_range_are_accepted_and_values_beyond_are_not)
{
	for (int key = 0; key < ARB_KEY_COUNT; key++) {
		const struct gpuarb_key *k = &gpuarb_keys[key];
		struct gpuarb_error err = {0};
		char text[64];
		int64_t value;

		if (k->kind != ARB_KIND_INT && k->kind != ARB_KIND_RATIO && k->kind != ARB_KIND_MODE)
			continue;
		gpuarb_config_format((enum arb_key)key, k->most, text, sizeof(text));
		cr_assert_eq(
			gpuarb_config_parse((enum arb_key)key, text, "", &value, &err), 0, "%s", k->name);
		gpuarb_config_format((enum arb_key)key, k->most + 1, text, sizeof(text));
		cr_assert_eq(gpuarb_config_parse((enum arb_key)key, text, "", &value, &err), -EINVAL, "%s=%s",
			k->name, text);
		cr_assert(strstr(err.text, "allowed"), "%s", err.text);
	}
}

Test(config, bytes_are_read_with_every_suffix)
{
	static const struct {
		const char *text;
		int64_t bytes;
	} good[] = {{"4Gi", 4ll << 30}, {"512Mi", 512ll << 20}, {"1Ki", 1024}, {"2Ti", 2ll << 40},
		{"4G", 4000000000}, {"1K", 1000}, {"3M", 3000000}, {"1T", 1000000000000},
		{"4294967296", 4ll << 30}, {"4GiB", 4ll << 30}, {"0", 0}};
	static const char *bad[] = {
		"", "Gi", "4Xi", "4 Gi", "-1", "99999999999999999999", "9000000Ti", "4Gi4"};
	int64_t value;

	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
		cr_assert_eq(parse("mem", good[i].text, &value, NULL), 0, "%s", good[i].text);
		cr_assert_eq(value, good[i].bytes, "%s", good[i].text);
	}
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		cr_assert_eq(parse("mem", bad[i], &value, NULL), -EINVAL, "'%s'", bad[i]);
}

Test(config, other_kinds_are_read)
{
	int64_t value;

	cr_assert_eq(parse("core", "40%", &value, NULL), 0);
	cr_assert_eq(value, 40);
	cr_assert_eq(parse("core", "0", &value, NULL), -EINVAL);
	cr_assert_eq(parse("core", "101", &value, NULL), -EINVAL);
	cr_assert_eq(parse("core", "forty", &value, NULL), -EINVAL);
	cr_assert_eq(parse("tail_billing", "auto", &value, NULL), 0);
	cr_assert_eq(value, -1);
	cr_assert_eq(parse("tail_billing", "70", &value, NULL), 0);
	cr_assert_eq(value, 70);
	cr_assert_eq(parse("oversub_ratio", "1.5", &value, NULL), 0);
	cr_assert_eq(value, 1500);
	cr_assert_eq(parse("oversub_ratio", "1,5", &value, NULL), -EINVAL);
	cr_assert_eq(parse("policy", "Fair", &value, NULL), 0);
	cr_assert_eq(value, 3);
	cr_assert_eq(parse("policy", "fai", &value, NULL), -EINVAL);
	cr_assert_eq(parse("prefetch", "on", &value, NULL), 0);
	cr_assert_eq(value, 1);
	cr_assert_eq(parse("group", "root", &value, NULL), 0);
	cr_assert_eq(value, 0);
	cr_assert_eq(parse("group", "no-such-group-here", &value, NULL), -EINVAL);
}

Test(config, a_bad_value_is_one_sentence_with_place_and_range)
{
	struct gpuarb_error err;
	int64_t value = 5;

	cr_assert_eq(gpuarb_config_parse(ARB_KEY_CORE, "300", "GPUARB_CORE_LIMIT", &value, &err), -EINVAL);
	cr_assert_str_eq(err.text, "GPUARB_CORE_LIMIT: core cannot be '300'; allowed: 1 to 100 percent");
	cr_assert_eq(value, 5, "nothing is changed by it");
}

Test(config, a_file_is_read_whole_or_not_at_all)
{
	struct gpuarb_config config;
	struct gpuarb_error err;

	cr_assert_eq(load("# comment\nwindow_ms = 200\n[gpu]\npolicy = exclusive ; why\n[account web]\ncore "
			  "= 30\nmem = 2Gi\n"
			  "[account batch]\npriority=10\n",
			     &config, &err),
		0, "%s", err.text);
	cr_assert_eq(config.value[ARB_KEY_WINDOW_MS], 200);
	cr_assert_eq(config.value[ARB_KEY_POLICY], 1);
	cr_assert_eq(config.nlimits, 2);
	cr_assert_str_eq(config.limits[0].name, "web");
	cr_assert_eq(config.limits[0].set, ARB_LIMIT_CORE | ARB_LIMIT_MEM);
	cr_assert_eq(config.limits[0].core_pct, 30);
	cr_assert_eq(config.limits[1].priority, 10);
	gpuarb_config_free(&config);

	cr_assert_eq(load("window_ms = 200\nwindw_ms = 5\n", &config, &err), -EINVAL);
	cr_assert(strstr(err.text, ":2: there is no setting 'windw_ms'; did you mean 'window_ms'?"), "%s",
		err.text);
	cr_assert_eq(load("\n\nwindow_ms = 5\n", &config, &err), -EINVAL);
	cr_assert(strstr(err.text, ":3: window_ms cannot be '5'; allowed: 10 to 60000 ms"), "%s", err.text);
	cr_assert_eq(load("[acount x]\ncore = 5\n", &config, &err), -EINVAL);
	cr_assert(strstr(err.text, "there is no section [acount x]"), "%s", err.text);
	cr_assert_eq(load("[account x]\nwindow_ms = 100\n", &config, &err), -EINVAL);
	cr_assert(strstr(err.text, "not a setting of an account"), "%s", err.text);
	cr_assert_eq(load("this is no setting\n", &config, &err), -EINVAL);
	cr_assert(strstr(err.text, ":1: "), "%s", err.text);
	cr_assert_eq(load("high_water = 50\nlow_water = 60\n", &config, &err), -EINVAL);
	cr_assert(strstr(err.text, "must not be above"), "%s", err.text);
	cr_assert_eq(load("[account a]\nrequest = 60\n[account b]\nrequest = 40\n[account c]\nrequest = 1\n",
			     &config, &err),
		-EINVAL);
	cr_assert(
		strstr(err.text,
			"the requests of accounts add up to 101 percent, and may to 100 (a has 60, b has 40, "
			"c has 1)"),
		"%s", err.text);
	cr_assert_eq(load("[account a]\nrequest = 60\n[account b]\nrequest = 40\n", &config, &err), 0, "%s",
		err.text);
	gpuarb_config_free(&config);
	cr_assert_eq(gpuarb_config_load(&config, "/no/such/file", true, &err), -ENOENT);
}

Test(config, the_environment_stands_above_the_file_and_knows_the_old_names)
{
	static const struct {
		const char *variable, *value, *key;
		int64_t expected;
	} cases[] = {{"NVSHARE_COMPUTE_WINDOW_MS", "2000", "window_ms", 2000},
		{"NVSHARE_QUOTA_SAMPLE_INTERVAL_MS", "50", "sample_interval_ms", 50},
		{"NVSHARE_QUOTA_CARRYOVER_PERCENT", "25", "carryover_percent", 25},
		{"NVSHARE_DROP_TAIL_BILLING_PERCENT", "70", "tail_billing", 70},
		{"NVSHARE_SWITCH_TIME_MODE", "fixed", "switch_time", 1},
		{"NVSHARE_SWITCH_TIME_FIXED", "90", "switch_fixed_s", 90},
		{"NVSHARE_SWITCH_TIME_MULTIPLIER", "7", "switch_multiplier", 7},
		{"NVSHARE_MEMORY_RESERVE_PERCENT", "10", "memory_reserve_percent", 10},
		{"NVSHARE_GPU_MEMORY_LIMIT", "4Gi", "mem", 4ll << 30},
		{"NVSHARE_GPU_MEMORY_OVERSUB_RATIO", "1.5", "oversub_ratio", 1500},
		{"NVSHARE_GPU_PHYSICAL_MEMORY_MB", "16384", "physical_memory_mb", 16384},
		{"GPUARB_CORE_LIMIT", "40", "core", 40}, {"GPUARB_MEM_LIMIT", "512Mi", "mem", 512ll << 20},
		{"GPUARB_PRIORITY", "9", "priority", 9}};
	char path[] = "/tmp/gpuarb-conf-XXXXXX";
	struct gpuarb_config config;
	struct gpuarb_error err;

	write_file(path, "window_ms = 500\n");
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		setenv(cases[i].variable, cases[i].value, 1);
		cr_assert_eq(gpuarb_config_load(&config, path, false, &err), 0, "%s", err.text);
		cr_assert_eq(config.value[gpuarb_config_find(cases[i].key)], cases[i].expected, "%s",
			cases[i].variable);
		cr_assert(config.given[gpuarb_config_find(cases[i].key)]);
		gpuarb_config_free(&config);
		cr_assert_eq(gpuarb_config_load(&config, path, true, &err), 0);
		cr_assert_neq(config.value[gpuarb_config_find(cases[i].key)], cases[i].expected,
			"ignored: %s", cases[i].variable);
		gpuarb_config_free(&config);
		unsetenv(cases[i].variable);
	}
	setenv("GPUARB_WINDOW_MS", "ten", 1);
	cr_assert_eq(gpuarb_config_load(&config, path, false, &err), -EINVAL);
	cr_assert(strstr(err.text, "GPUARB_WINDOW_MS"), "%s", err.text);
	unlink(path);
}

Test(config, names_of_accounts_can_be_stored_and_shown)
{
	char name[ARB_NAME_BYTES + 2];

	memset(name, 'x', sizeof(name));
	name[ARB_NAME_BYTES - 1] = '\0';
	cr_assert(gpuarb_config_name_ok(name));
	name[ARB_NAME_BYTES - 1] = 'x';
	name[ARB_NAME_BYTES] = '\0';
	cr_assert_not(gpuarb_config_name_ok(name));
	cr_assert_not(gpuarb_config_name_ok(""));
	cr_assert_not(gpuarb_config_name_ok("two words"));
	cr_assert_not(gpuarb_config_name_ok("esc\033"));
	cr_assert(gpuarb_config_name_ok("pod/träning-7"));
}

Test(config, a_name_that_is_too_long_is_refused_and_not_cut)
{
	struct gpuarb_error err = {0};
	struct gpuarb_config config;
	char name[65] = "", text[128];

	memset(name, 'n', 64);
	snprintf(text, sizeof(text), "window_ms = 50\n[account %s]\ncore = 30\n", name);
	cr_assert_eq(load(text, &config, &err), -EINVAL);
	cr_assert(
		strstr(err.text, ":3: 'nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn...' (64 bytes) cannot be an "
				 "account's name; allowed: 1 to 63 bytes"),
		"%s", err.text);
	cr_assert_eq(config.nlimits, 0);
}

Test(config, a_directory_is_no_file_of_settings)
{
	struct gpuarb_error err = {0};
	struct gpuarb_config config;

	cr_assert_eq(gpuarb_config_load(&config, "/etc", true, &err), -EISDIR);
	cr_assert_str_eq(err.text, "cannot read /etc: Is a directory");
	cr_assert_eq(gpuarb_config_load(&config, "/dev/null", true, &err), 0, "an empty one is");
	gpuarb_config_free(&config);
}

Test(config, a_wrong_name_is_told_the_nearest_right_one)
{
	cr_assert_str_eq(gpuarb_config_nearest("polcy"), "policy");
	cr_assert_str_eq(gpuarb_config_nearest("highwater"), "high_water");
	cr_assert_null(gpuarb_config_nearest("completely_different"));
	cr_assert_null(gpuarb_config_nearest("frob"), "three of four letters are others");
}

/* arbiter.conf.example names every setting, with its default. */
Test(config, the_example_documents_every_setting)
{
	FILE *file = fopen("arbiter.conf.example", "r");
	char text[65536], entry[128], value[64];
	size_t n;

	cr_assert(file, "run from the top of the tree");
	n = fread(text, 1, sizeof(text) - 1, file);
	text[n] = '\0';
	fclose(file);
	for (int key = 0; key < ARB_KEY_COUNT; key++) {
		gpuarb_config_format((enum arb_key)key, gpuarb_keys[key].initial, value, sizeof(value));
		snprintf(entry, sizeof(entry), "\n#%s = %s\n", gpuarb_keys[key].name, value);
		cr_assert(strstr(text, entry), "arbiter.conf.example has no line '#%s = %s'",
			gpuarb_keys[key].name, value);
	}
}

Test(config, the_longest_name_and_the_last_account_have_all_their_limits)
{
	static char text[ARB_CONTROL_LIMITS * 100];
	struct gpuarb_config config;
	struct gpuarb_error err = {0};
	size_t used = 0;
	int r;

	for (unsigned i = 0; i < ARB_CONTROL_LIMITS; i++)
		used += (size_t)snprintf(
			text + used, sizeof(text) - used, "[account %063u]\ncore = 40\npriority = 7\n", i);
	r = load(text, &config, &err);
	cr_assert_eq(r, 0, "%s", err.text);
	cr_assert_eq(config.nlimits, ARB_CONTROL_LIMITS);
	for (unsigned i = 0; i < ARB_CONTROL_LIMITS; i++) {
		char name[ARB_NAME_BYTES];

		snprintf(name, sizeof(name), "%063u", i);
		cr_assert_str_eq(config.limits[i].name, name);
		cr_assert_eq(config.limits[i].set, ARB_LIMIT_CORE | ARB_LIMIT_PRIORITY);
	}
	gpuarb_config_free(&config);
	snprintf(text + used, sizeof(text) - used, "[account one-more]\ncore = 40\n");
	cr_assert_eq(load(text, &config, &err), -ENOSPC);
}
