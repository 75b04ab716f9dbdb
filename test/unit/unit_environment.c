/* Environment variables: every variable that the product reads is known, and a misspelt name is answered with the
 * nearest right one. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpuarb/client.h"

#include "shm/base/environment.h"

static void expect(const char *wrong, const char *meant)
{
	const char *got = arb_environment_meant(wrong);

	cr_assert_not(arb_environment_knows(wrong), "%s", wrong);
	cr_assert(meant ? got && !strcmp(got, meant) : !got, "%s: %s", wrong, got ? got : "nothing");
}

Test(environment, a_misspelt_name_is_answered_with_the_right_one)
{
	expect("GPUARB_CORELIMIT", "GPUARB_CORE_LIMIT");
	expect("GPUARB_CORE", "GPUARB_CORE_LIMIT");
	expect("GPUARB_MEM", "GPUARB_MEM_LIMIT");
	expect("GPUARB_MEMORY_LIMIT", "GPUARB_MEM_LIMIT");
	expect("GPUARB_ACOUNT", "GPUARB_ACCOUNT");
	expect("GPUARB_CONFIG", "GPUARB_CONF");
	expect("GPUARB_DISABLED", "GPUARB_DISABLE");
	expect("GPUARB_WINDOW", "GPUARB_WINDOW_MS");
	expect("GPUARB_SOMETHING_ELSE_ALTOGETHER", NULL);
	expect("GPUARB_", NULL);
}

/* Every quoted "GPUARB_..." in the sources of the library, the preload and the tools is the name of a variable. */
Test(environment, every_variable_that_is_read_is_known)
{
	FILE *pipe = popen("grep -hoE '\"GPUARB_[A-Z_]+\"' -r --include='*.c' shm preload tools "
			   "tools/python/*.py include/gpuarb/keys.def",
		"r");
	char name[128];
	unsigned n = 0;

	cr_assert(pipe);
	while (fscanf(pipe, "\"%127[A-Z_]\" ", name) == 1) {
		if (!strcmp(name, "GPUARB_"))
			continue;
		cr_assert(arb_environment_knows(name), "%s is not in shm/base/environment.c", name);
		n++;
	}
	cr_assert_eq(pclose(pipe), 0);
	cr_assert_gt(n, 40);
}

static char said[1024];

static void note(void *argument, const char *sentence)
{
	(void)argument;
	strcat(strcat(said, sentence), "\n");
}

Test(environment, only_our_variables_are_looked_at_and_each_is_reported_once)
{
	char longest[128] = "GPUARB_", names[64];

	clearenv();
	setenv("GPUARB_CORE_LIMIT", "5", 1);
	setenv("GPUARB_LOG", "off", 1);
	setenv("PATH", "/bin", 1);
	setenv("NOT_GPUARB_CORE", "1", 1);
	/* Kubernetes sets these for services that are called gpuarb and gpuarb-metrics. */
	setenv("GPUARB_PORT", "tcp://10.0.0.1:80", 1);
	setenv("GPUARB_PORT_80_TCP_ADDR", "10.0.0.1", 1);
	setenv("GPUARB_SERVICE_HOST", "10.0.0.1", 1);
	setenv("GPUARB_METRICS_SERVICE_PORT_HTTP", "80", 1);
	cr_assert_eq(gpuarb_client_environment(note, NULL), 0, "%s", said);
	setenv("GPUARB_CORELIMIT", "5", 1);
	cr_assert_eq(gpuarb_client_environment(note, NULL), 1);
	cr_assert_str_eq(said,
		"the environment variable GPUARB_CORELIMIT is not known and does nothing; did you "
		"mean GPUARB_CORE_LIMIT?\n");
	/* Variables that gpuarb-run has reported are not reported again; all others are. */
	setenv("GPUARB_SAID", "GPUARB_CORELIMITS GPUARB_CORE", 1);
	cr_assert_eq(gpuarb_client_environment(note, NULL), 1);
	setenv("GPUARB_SAID", "GPUARB_CORELIMITS GPUARB_CORELIMIT", 1);
	cr_assert_eq(gpuarb_client_environment(note, NULL), 0);
	unsetenv("GPUARB_SAID");
	setenv("GPUARB_MEMO", "5", 1);
	gpuarb_environment_unknown(names, sizeof(names));
	cr_assert(strcmp(names, "GPUARB_CORELIMIT GPUARB_MEMO") == 0 ||
			  strcmp(names, "GPUARB_MEMO GPUARB_CORELIMIT") == 0,
		"%s", names);
	gpuarb_environment_unknown(names, 15);
	cr_assert_str_eq(names, "GPUARB_MEMO", "only whole names");
	unsetenv("GPUARB_MEMO");
	unsetenv("GPUARB_CORELIMIT");
	gpuarb_environment_unknown(names, sizeof(names));
	cr_assert_str_eq(names, "");
	said[0] = '\0';
	memset(longest + 7, 'X', 100);
	longest[20] = '\033';
	setenv(longest, "1", 1);
	cr_assert_eq(gpuarb_client_environment(note, NULL), 1);
	cr_assert(strstr(said, "GPUARB_XXXXXXXXXXXXX?XXX") && strlen(said) < 250, "%s", said);
}
