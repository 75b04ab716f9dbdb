/* What gpuarb-top writes for programs: JSON by its schema, and the text format of Prometheus. */
#include <criterion/criterion.h>
#include <jansson.h>
#include <locale.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tools/top/top_out.h"
#include "tools/top/top_past.h"
#include "test/tools/top_world.h"

static struct top_gpu *busy;

static void begin(void)
{
	setlocale(LC_ALL, "C.UTF-8");
	busy = w_busy_gpu(75);
}

static void end(void)
{
	w_free(busy);
}

TestSuite(out, .init = begin, .fini = end);

static char *json_of(bool compact, bool history)
{
	char *text;
	size_t size;
	FILE *to = open_memstream(&text, &size);

	cr_assert(top_out_json(&busy, 1, compact, history ? &(struct top_past){0} : NULL, to));
	fclose(to);
	return text;
}

/* name, type: o object, a array, s string, i integer, r number with a fraction, b boolean; ? may be null */
struct field {
	const char *name, *type;
};

static const struct field gpu_fields[] = {{"uuid", "s"}, {"index", "s?"}, {"name", "s?"},
	{"time_unix_ns", "i"}, {"consistent", "b"}, {"gpu_admission_state", "s"}, {"gpu_usage", "r?"},
	{"gpu_usage_cache_age_ms", "i?"}, {"gpu_queue_len", "i"}, {"admission", "o"}, {"waiting", "i"},
	{"busy_1s_percent", "r?"}, {"busy_10s_percent", "r?"}, {"busy_60s_percent", "r?"},
	{"history_percent", "a"}, {"busy_ns", "i"}, {"billed_ns", "i"}, {"window", "o"},
	{"limits_sum_percent", "r"}, {"requests_sum_percent", "r"}, {"slots", "i"}, {"slots_reclaimed", "i"},
	{"processes", "i"}, {"running", "i"}, {"memory", "o"}, {"device", "o"}, {"non_clients", "o"},
	{"settings", "o"}, {"accounts", "a"}, {NULL, NULL}};
static const struct field account_fields[] = {{"name", "s"}, {"state", "s"}, {"active", "b"},
	{"limit_percent", "r"}, {"effective_percent", "r"}, {"request_percent", "r"}, {"weight", "i"},
	{"share_1s_percent", "r?"}, {"share_10s_percent", "r?"}, {"share_60s_percent", "r?"},
	{"history_percent", "a"}, {"used_ns", "i"}, {"window_used_ns", "i"}, {"window_left_ns", "i"},
	{"debt_ns", "i"}, {"borrowed_ns", "i"}, {"restored", "i"}, {"throttled_ns", "i"}, {"waited_ns", "i"},
	{"measured_percent", "r?"}, {"queue_position", "i?"}, {"waiting_ms", "i?"}, {"priority", "i"},
	{"memory", "o"}, {"processes", "a"}, {NULL, NULL}};
static const struct field process_fields[] = {{"slot", "i"}, {"generation", "i"}, {"pid", "i"},
	{"host_pid", "i?"}, {"pid_namespace", "i"}, {"uid", "i"}, {"command", "s"}, {"container", "s?"},
	{"state", "s"}, {"share_percent", "r?"}, {"priority", "i"}, {"used_ns", "i"}, {"throttled_ns", "i"},
	{"waited_ns", "i"}, {"measured_percent", "r?"}, {"queue_position", "i?"}, {"waiting_ms", "i?"},
	{"memory_bytes", "i"}, {"memory_turn_ms", "i?"}, {"admission_class", "s?"}, {"leases", "i"},
	{"leases_granted", "i"}, {"leases_refused", "i"}, {"enters", "i"}, {"evictions", "i"},
	{"restored", "i"}, {"age_ms", "i?"}, {"heartbeat_age_ms", "i?"}, {"calls_seen", "o"},
	{"routes_past", "o"}, {"calls_in_no_table", "s?"}, {NULL, NULL}};

static bool is_type(const json_t *value, const char *type)
{
	switch (type[0]) {
	case 'o':
		return json_is_object(value);
	case 'a':
		return json_is_array(value);
	case 's':
		return json_is_string(value);
	case 'i':
		return json_is_integer(value);
	case 'r':
		return json_is_real(value);
	default:
		return json_is_boolean(value);
	}
}

/* Returns the text of the man page. */
static const char *manual(void)
{
	static char text[1 << 17];
	FILE *file = text[0] ? NULL : fopen("tools/gpuarb-top.1", "r");

	if (file) {
		cr_assert_lt(fread(text, 1, sizeof(text) - 1, file), sizeof(text) - 1);
		fclose(file);
	}
	cr_assert(text[0], "there is no tools/gpuarb-top.1");
	return text;
}

/* Checks that all these fields are there and no others: a new field has to be added here and in the man page. */
static void check_fields(const json_t *object, const struct field *fields)
{
	size_t n = 0;

	for (; fields[n].name; n++) {
		const json_t *value = json_object_get(object, fields[n].name);

		cr_assert(value, "%s is missing", fields[n].name);
		cr_assert(is_type(value, fields[n].type) || (fields[n].type[1] == '?' && json_is_null(value)),
			"%s is no %s", fields[n].name, fields[n].type);
		cr_assert(strstr(manual(), fields[n].name), "%s is not in the man page", fields[n].name);
	}
	cr_assert_eq(json_object_size(object), n);
}

static json_t *parse(const char *text)
{
	json_error_t error;
	json_t *root = json_loads(text, JSON_REJECT_DUPLICATES, &error);

	cr_assert(root, "%s at line %d", error.text, error.line);
	return root;
}

static json_t *account_named(json_t *gpu, const char *name)
{
	json_t *accounts = json_object_get(gpu, "accounts");

	for (size_t i = 0; i < json_array_size(accounts); i++)
		if (strcmp(json_string_value(json_object_get(json_array_get(accounts, i), "name")), name) ==
			0)
			return json_array_get(accounts, i);
	cr_assert(false, "no account %s", name);
	return NULL;
}

Test(out, json_keeps_to_its_schema)
{
	char *text = json_of(false, false);
	json_t *root = parse(text), *gpu = json_array_get(json_object_get(root, "gpus"), 0), *accounts;

	cr_assert_str_eq(json_string_value(json_object_get(root, "schema")), "gpuarb-top");
	cr_assert_eq(json_integer_value(json_object_get(root, "schema_version")), TOP_JSON_VERSION);
	check_fields(gpu, gpu_fields);
	accounts = json_object_get(gpu, "accounts");
	cr_assert_eq(json_array_size(accounts), w_busy_count);
	for (size_t i = 0; i < json_array_size(accounts); i++) {
		json_t *account = json_array_get(accounts, i),
		       *processes = json_object_get(account, "processes");

		check_fields(account, account_fields);
		for (size_t k = 0; k < json_array_size(processes); k++)
			check_fields(json_array_get(processes, k), process_fields);
	}
	free(text);
	json_decref(root);
}

static const struct field memory_fields[] = {{"physical_bytes", "i?"}, {"used_bytes", "i"},
	{"promised_bytes", "i"}, {"promise_most_bytes", "i?"}, {"non_client_bytes", "i"},
	{"processes_waiting", "i"}, {"programs_waiting_to_start", "i"}, {"first_to_start", "a"},
	{NULL, NULL}};
static const struct field device_fields[] = {{"memory_total_bytes", "i?"}, {"memory_used_bytes", "i?"},
	{"utilisation_percent", "i?"}, {"not_billed_10s_percent", "r?"}, {NULL, NULL}};
static const struct field non_clients_fields[] = {
	{"counted_by", "s?"}, {"memory_bytes", "i?"}, {"processes", "i?"}, {"largest", "a"}, {NULL, NULL}};
static const struct field non_client_fields[] = {
	{"pid", "i"}, {"command", "s?"}, {"memory_bytes", "i?"}, {NULL, NULL}};
static const struct field start_fields[] = {
	{"account", "s"}, {"bytes", "i"}, {"request_percent", "r"}, {"waiting_ms", "i?"}, {NULL, NULL}};
static const struct field admission_fields[] = {{"usage_source", "s"}, {"high_water_percent", "i"},
	{"low_water_percent", "i"}, {"boosted", "b"}, {"leases", "i"}, {"classes", "a"}, {NULL, NULL}};
static const struct field class_fields[] = {{"name", "s"}, {"priority", "i"}, {"skip", "b"}, {"pass", "b"},
	{"max_wait_ms", "i"}, {"queue_limit", "i?"}, {"waiting", "i"}, {NULL, NULL}};

Test(out, json_of_memory_and_admission)
{
	char *text = json_of(false, false);
	json_t *root = parse(text), *gpu = json_array_get(json_object_get(root, "gpus"), 0);
	json_t *memory = json_object_get(gpu, "memory"), *admission = json_object_get(gpu, "admission"),
	       *start;

	check_fields(memory, memory_fields);
	cr_assert_eq(json_integer_value(json_object_get(memory, "programs_waiting_to_start")), 1);
	start = json_array_get(json_object_get(memory, "first_to_start"), 0);
	check_fields(start, start_fields);
	cr_assert_str_eq(json_string_value(json_object_get(start, "account")), "starter");
	cr_assert_eq(json_integer_value(json_object_get(start, "waiting_ms")), 5000);
	check_fields(admission, admission_fields);
	check_fields(json_array_get(json_object_get(admission, "classes"), 0), class_fields);
	free(text);
	json_decref(root);
}

Test(out, json_of_the_device_and_of_those_that_are_no_clients)
{
	char *text = json_of(false, false);
	json_t *root = parse(text), *gpu = json_array_get(json_object_get(root, "gpus"), 0), *others, *list;

	check_fields(json_object_get(gpu, "device"), device_fields);
	cr_assert(json_is_null(json_object_get(gpu, "index")));
	cr_assert(json_is_null(json_object_get(json_object_get(gpu, "non_clients"), "counted_by")));
	free(text);
	json_decref(root);
	w_others(busy);
	text = json_of(false, false);
	root = parse(text);
	gpu = json_array_get(json_object_get(root, "gpus"), 0);
	others = json_object_get(gpu, "non_clients");
	cr_assert_str_eq(json_string_value(json_object_get(gpu, "index")), "1:0");
	cr_assert_eq(json_integer_value(json_object_get(json_object_get(gpu, "device"), "memory_used_bytes")),
		15ll << 30);
	check_fields(others, non_clients_fields);
	cr_assert_str_eq(json_string_value(json_object_get(others, "counted_by")), "processes");
	list = json_object_get(others, "largest");
	cr_assert_eq(json_array_size(list), 2);
	check_fields(json_array_get(list, 0), non_client_fields);
	cr_assert(json_is_null(json_object_get(json_array_get(list, 1), "memory_bytes")));
	free(text);
	json_decref(root);
}

Test(out, json_says_what_is_so)
{
	char *text = json_of(true, true);
	json_t *root = parse(text), *gpu = json_array_get(json_object_get(root, "gpus"), 0), *web, *process,
	       *events;

	cr_assert_null(strchr(text, '\n')[1] ? text : NULL, "compact is one line");
	cr_assert_str_eq(json_string_value(json_object_get(gpu, "gpu_admission_state")), "NORMAL");
	cr_assert_float_eq(json_real_value(json_object_get(gpu, "gpu_usage")), 88.3, 1e-9);
	cr_assert_eq(json_integer_value(json_object_get(gpu, "gpu_usage_cache_age_ms")), 400);
	cr_assert_eq(json_integer_value(json_object_get(gpu, "busy_ns")),
		json_integer_value(json_object_get(gpu, "billed_ns")));
	cr_assert_float_eq(json_real_value(json_object_get(gpu, "limits_sum_percent")), 120, 1e-9);
	cr_assert_str_eq(
		json_string_value(json_object_get(json_object_get(gpu, "settings"), "policy")), "concurrent");
	web = account_named(gpu, "web");
	cr_assert_float_eq(json_real_value(json_object_get(web, "share_60s_percent")), 40, 1e-3);
	cr_assert_eq(json_integer_value(json_object_get(json_object_get(web, "memory"), "quota_bytes")),
		4ll << 30);
	process = json_array_get(json_object_get(web, "processes"), 0);
	cr_assert_eq(json_integer_value(json_object_get(json_object_get(process, "calls_seen"), "launches")),
		1200);
	cr_assert_eq(json_integer_value(
			     json_object_get(json_object_get(process, "routes_past"), "past_export_table")),
		2);
	cr_assert_str_eq(
		json_string_value(json_object_get(process, "calls_in_no_table")), "cuNew\x1b cuNewer");
	/* A name is printed as it is, except for bytes that are no text. */
	account_named(gpu, "ev\x1b]0;il\x07\xef\xbf\xbd\"\\\n");
	events = json_object_get(gpu, "events");
	cr_assert_eq(json_array_size(events), 7);
	cr_assert_eq(json_integer_value(json_object_get(json_array_get(events, 0), "time_unix_ns")),
		1794830400250000000ll);
	for (const char *c = text; *c; c++)
		cr_assert((*c >= ' ' && *c < 0x7f) || *c == '\n', "%d in the text", *c);
	free(text);
	json_decref(root);
}

Test(out, json_of_garbage_is_still_json)
{
	static struct gpuarb_picture p;
	char *text;

	w_picture(&p, w_busy, w_busy_count, 76);
	memset(p.accounts[0].name, 0x9b, sizeof(p.accounts[0].name) - 1);
	p.accounts[1].used_ns = p.accounts[1].mem_used = UINT64_MAX;
	p.clients[0].used_ns = p.clients[0].wait_since_ns = p.clients[0].joined_ns = UINT64_MAX;
	p.admission.source = 77;
	p.admission.nclasses = 1000000;
	cr_assert(top_gpu_update(busy, &p));
	text = json_of(false, true);
	json_decref(parse(text));
	free(text);
}

static char *prom_text(void)
{
	char *text;
	size_t size;
	FILE *to = open_memstream(&text, &size);

	top_out_prom(&busy, 1, to);
	fclose(to);
	return text;
}

/* Checks the metrics by the rules of the format itself, without promtool. */
Test(out, metrics_are_well_formed)
{
	char *text = prom_text(), *rest = text, *line, family[128] = "", seen[100][128];
	unsigned families = 0, samples = 0;

	while ((line = strsep(&rest, "\n")) && *line) {
		char name[128], type[32];

		if (sscanf(line, "# HELP %127s", name) == 1) {
			for (unsigned i = 0; i < families; i++)
				cr_assert(strcmp(seen[i], name) != 0, "%s comes twice", name);
			snprintf(seen[families++], sizeof(seen[0]), "%s", name);
			snprintf(family, sizeof(family), "%s", name);
			cr_assert_eq(line[strlen(line) - 1], '.', "%s", line);
			cr_assert(strstr(manual(), name), "%s is not in the man page", name);
		} else if (sscanf(line, "# TYPE %127s %31s", name, type) == 2) {
			size_t n = strlen(name);
			bool total = n > 6 && strcmp(name + n - 6, "_total") == 0;

			cr_assert_str_eq(name, family);
			cr_assert_eq(total, strcmp(type, "counter") == 0, "%s", line);
		} else {
			char *labels_end = strrchr(line, '}');

			samples++;
			cr_assert(strncmp(line, family, strlen(family)) == 0 && line[strlen(family)] == '{',
				"%s", line);
			cr_assert(labels_end && labels_end[1] == ' ', "%s", line);
			cr_assert_eq(
				strspn(labels_end + 2, "0123456789.e+-"), strlen(labels_end + 2), "%s", line);
			for (const char *c = line; *c; c++)
				cr_assert((unsigned char)*c >= ' ' && *c != 0x7f, "%s", line);
		}
	}
	cr_assert_gt(families, 40);
	cr_assert_gt(samples, 100);
	free(text);
}

static void expect_line(const char *text, const char *line)
{
	const char *found = strstr(text, line);

	cr_assert(found && (found == text || found[-1] == '\n') && found[strlen(line)] == '\n',
		"'%s' is not in\n%s", line, text);
}

Test(out, metrics_say_what_is_so)
{
#define GPU "gpu=\"GPU-5f2d7a10-0000-4000-8000-0123456789ab\""
	char *text;

	w_others(busy);
	text = prom_text();
	expect_line(text, "gpuarb_gpu_device_memory_used_bytes{" GPU "} 16106127360");
	expect_line(text, "gpuarb_gpu_device_utilisation_ratio{" GPU "} 0.970000");
	expect_line(text, "gpuarb_gpu_non_client_memory_bytes{" GPU "} 9663676416");
	expect_line(text, "gpuarb_gpu_non_client_processes{" GPU "} 2");
	expect_line(text, "gpuarb_gpu_info{" GPU ",index=\"1:0\",name=\"NVIDIA Imaginary "
			  "16GB\",policy=\"concurrent\",billing=\"weighted\"} 1");
	expect_line(text, "gpuarb_gpu_conservation_error_seconds{" GPU "} 0");
	expect_line(text, "gpuarb_gpu_reclaimed_slots_total{" GPU "} 3");
	expect_line(text, "gpuarb_gpu_usage_ratio{" GPU "} 0.883000");
	expect_line(text, "gpuarb_gpu_high_pressure{" GPU "} 0");
	expect_line(text, "gpuarb_account_limit_ratio{" GPU ",account=\"web\"} 0.500000");
	expect_line(text, "gpuarb_account_quota_ratio{" GPU ",account=\"web\"} 0.416666");
	expect_line(text, "gpuarb_account_billed_seconds_total{" GPU ",account=\"web\"} 30.000000000");
	expect_line(text, "gpuarb_account_memory_limit_bytes{" GPU ",account=\"web\"} 4294967296");
	expect_line(text, "gpuarb_account_queue_position{" GPU
			  ",account=\"nightly-report-of-the-statistics-group\"} 1");
	expect_line(text, "gpuarb_process_throttled_seconds_total{" GPU
			  ",account=\"batch\",process=\"2.7\",pid=\"4002\",command=\"ffmpeg\",container=\"\"}"
			  " 1.500000000");
	expect_line(text, "gpuarb_process_running_seconds_total{" GPU
			  ",account=\"batch\",process=\"2.7\",pid=\"4002\",command=\"ffmpeg\",container=\"\"}"
			  " 24.975000000");
	expect_line(text, "gpuarb_process_estimated_seconds_total{" GPU
			  ",account=\"batch\",process=\"2.7\",pid=\"4002\",command=\"ffmpeg\",container=\"\"}"
			  " 0.499500000");
	expect_line(text, "gpuarb_process_calls_total{" GPU
			  ",account=\"batch\",process=\"2.7\",pid=\"4002\",command=\"ffmpeg\",container=\"\","
			  "class=\"launches\"} 1200");
	expect_line(text,
		"gpuarb_process_bypasses_total{" GPU ",account=\"web\",process=\"0.7\",pid=\"4000\",command="
		"\"python3\",container=\"4f1e2d3c4b5a\","
		"route=\"past_export_table\"} 2");
	expect_line(text, "gpuarb_account_active{" GPU ",account=\"ev?]0;il??\\\"\\\\?\"} 0");
	cr_assert_null(strstr(text, "gpuarb_account_memory_limit_bytes{" GPU ",account=\"batch\"}"));
	/* It shows if bills do not add up to the busy time. */
	((struct gpuarb_picture *)busy->picture)->billed_ns -= 1500000000;
	free(text);
	text = prom_text();
	expect_line(text, "gpuarb_gpu_conservation_error_seconds{" GPU "} -1.5");
	((struct gpuarb_picture *)busy->picture)->consistent = false;
	free(text);
	text = prom_text();
	cr_assert_null(strstr(text, "gpuarb_gpu_conservation_error_seconds{"));
	free(text);
}

Test(out, promtool_has_nothing_to_say)
{
	FILE *pipe;

	if (system("command -v promtool >/dev/null 2>&1") != 0) {
		printf("skipped: promtool has nothing to say: there is no promtool (package prometheus)\n");
		fflush(stdout);
		cr_skip_test("no promtool");
	}
	pipe = popen("promtool check metrics", "w");
	cr_assert(pipe);
	top_out_prom(&busy, 1, pipe);
	cr_assert_eq(WEXITSTATUS(pclose(pipe)), 0);
}
