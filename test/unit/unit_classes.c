/* Task classes: read from a file, set at run time; each bad value is refused with a sentence. */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "gpuarb/classes.h"
#include "gpuarb/config.h"

#include "shm/segment/settings.h"

static int load(const char *text, struct gpuarb_config *config, struct gpuarb_error *err)
{
	char path[] = "/tmp/gpuarb-conf-XXXXXX";
	int fd = mkstemp(path), r;

	cr_assert(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
	close(fd);
	r = gpuarb_config_load(config, path, true, err);
	unlink(path);
	return r;
}

Test(classes, a_section_changes_only_what_it_names)
{
	struct gpuarb_config config;
	struct gpuarb_error err = {0};

	cr_assert_eq(
		load("[class asr]\npriority = 90\nmax_wait_ms=0\n[class low]\nmode = SKIP\nqueue_limit = 3\n"
		     "under_pressure = pass\n[class asr]\nqueue_limit = 1024\n",
			&config, &err),
		0, "%s", err.text);
	cr_assert_eq(config.nclasses, 2);
	cr_assert_str_eq(config.classes[0].name, "asr");
	cr_assert(config.classes[0].priority == 90 && config.classes[0].max_wait_ms == 0 &&
		  config.classes[0].queue_limit == 1024 && !config.classes[0].skip &&
		  !config.classes[0].pass);
	cr_assert(config.classes[1].priority == 50 && config.classes[1].max_wait_ms == 2000 &&
		  config.classes[1].queue_limit == 3 && config.classes[1].skip && config.classes[1].pass);
	gpuarb_config_free(&config);
}

Test(classes, a_bad_value_is_one_sentence_with_its_line)
{
	static const struct {
		const char *text, *sentence;
	} bad[] = {{"[class x]\npriority = 0\n", ":2: priority cannot be '0'; allowed: 1 to 100"},
		{"[class x]\npriority = 101\n", "allowed: 1 to 100"}, {"[class x]\npriority = 5x\n", "'5x'"},
		{"[class x]\nmax_wait_ms = -1\n", "allowed: 0 to 3600000"},
		{"[class x]\nmax_wait_ms = 99999999999999999999\n", "allowed: 0 to 3600000"},
		{"[class x]\nmode = wait\n", "allowed: queue or skip"},
		{"[class x]\nunder_pressure = no\n", "allowed: wait or pass"},
		{"[class x]\ncore = 5\n", "'core' is not a setting of a class"},
		{"[class a b]\nmode = skip\n", "'a b' cannot be a class's name"},
		{"[class ]\nmode = skip\n", "cannot be a class's name"},
		{"[class 0123456789012345678901234567890x]\nmode = skip\n", "1 to 31"},
		{"[classes]\nmode = skip\n", ""}};
	struct gpuarb_config config;

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct gpuarb_error err = {0};

		cr_assert_eq(load(bad[i].text, &config, &err), -EINVAL, "%s", bad[i].text);
		cr_assert(strstr(err.text, bad[i].sentence), "%s: %s", bad[i].text, err.text);
	}
}

Test(classes, there_is_room_for_thirty_one_beside_the_default)
{
	char text[4096] = "";
	struct gpuarb_config config;
	struct gpuarb_error err = {0};

	for (int i = 0; i < 31; i++)
		sprintf(text + strlen(text), "[class c%d]\npriority = %d\n", i, i + 1);
	cr_assert_eq(load(text, &config, &err), 0, "%s", err.text);
	cr_assert_eq(config.nclasses, 31);
	gpuarb_config_free(&config);
	strcat(text, "[class one-more]\npriority = 5\n");
	cr_assert_eq(load(text, &config, &err), -ENOSPC);
	cr_assert(strstr(err.text, "more than 31 classes"), "%s", err.text);
}

/* Reads the example as a user would who takes the comment signs of the classes away. */
Test(classes, those_of_the_example_are_as_it_says)
{
	static char text[32768], line[256];
	struct gpuarb_config config;
	struct gpuarb_error err = {0};
	bool inside = false;
	FILE *file = fopen("arbiter.conf.example", "r");

	cr_assert(file);
	while (fgets(line, sizeof(line), file)) {
		inside |= strncmp(line, "#[class ", 8) == 0;
		if (inside && line[0] == '#' && line[1] != ' ' && line[1] != '\n')
			strcat(text, line + 1);
	}
	fclose(file);
	cr_assert_eq(load(text, &config, &err), 0, "%s", err.text);
	cr_assert_eq(config.nclasses, 5);
	/* The example has every setting of a class, at its default, for the class "default". */
	cr_assert_eq(memcmp(&config.classes[0], &gpuarb_class_default, sizeof(gpuarb_class_default)), 0);
	for (unsigned k = 0; gpuarb_class_key(k); k++)
		cr_assert(strstr(text, gpuarb_class_key(k)), "%s is not in the example", gpuarb_class_key(k));
	cr_assert_str_eq(config.classes[1].name, "asr");
	cr_assert(config.classes[1].priority > config.classes[2].priority &&
		  config.classes[2].priority > config.classes[3].priority &&
		  config.classes[3].priority > config.classes[4].priority);
	cr_assert_str_eq(config.classes[4].name, "repair");
	cr_assert(config.classes[4].skip && !config.classes[3].skip);
	gpuarb_config_free(&config);
}

static struct arb_control_copy draft;

static struct gpuarb_class_rules rules(const char *name, unsigned priority)
{
	struct gpuarb_class_rules r = gpuarb_class_default;

	snprintf(r.name, sizeof(r.name), "%s", name);
	r.priority = priority;
	return r;
}

static uint32_t place(const char *name)
{
	struct gpuarb_class_rules r;

	for (uint32_t i = 0; i < ARB_CLASSES; i++) {
		arb_settings_load_class(&draft.classes[i], &r);
		if (strcmp(r.name, name) == 0)
			return i;
	}
	return ARB_NONE;
}

Test(classes, each_keeps_its_place_while_others_come_and_go)
{
	struct gpuarb_class_rules a = rules("a", 1), b = rules("b", 2), c = rules("c", 3),
				  d = rules("default", 4);

	cr_assert_eq(arb_settings_set_class(&draft, &a), 0);
	cr_assert_eq(arb_settings_set_class(&draft, &b), 0);
	cr_assert_eq(place("a"), 1, "the first place is the default's");
	cr_assert_eq(place("b"), 2);
	cr_assert(arb_settings_drop_class(&draft, "a"));
	cr_assert_eq(place("b"), 2);
	cr_assert_eq(place("a"), ARB_NONE);
	cr_assert_eq(arb_settings_set_class(&draft, &c), 0);
	cr_assert_eq(place("c"), 1);
	cr_assert_eq(arb_settings_set_class(&draft, &d), 0);
	cr_assert_eq(place("default"), 0);
	cr_assert(arb_settings_drop_class(&draft, "default"), "as by default");
	cr_assert_not(arb_settings_drop_class(&draft, "nonsense"));
	for (int i = 0; i < 29; i++) {
		char name[16];

		snprintf(name, sizeof(name), "x%d", i);
		a = rules(name, 5);
		cr_assert_eq(arb_settings_set_class(&draft, &a), 0);
	}
	a = rules("late", 5);
	cr_assert_eq(arb_settings_set_class(&draft, &a), -ENOSPC);
}

Test(classes, garbage_in_the_segment_is_the_default)
{
	struct gpuarb_class_rules r;

	memset(&draft, 0xff, sizeof(draft));
	arb_settings_load_class(&draft.classes[3], &r);
	cr_assert_eq(r.name[0], '\0', "a name that cannot be one");
	cr_assert(r.priority == 50 && r.max_wait_ms == 2000 && r.queue_limit == 0);
}
