#include "shm/base/environment.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/auxv.h>
#include <unistd.h>

#include "gpuarb/client.h"
#include "gpuarb/config.h"
#include "gpuarb/spelling.h"

#define PREFIX "GPUARB_"

/* GPUARB_CDI is set by gpuarb-cdi in containers, GPUARB_GID and GPUARB_GPUS belong to the job that sets up a
 * node of Kubernetes, GPUARB_LIBRARY to gpuarb.py, GPUARB_TOP to the exporter for Prometheus. GPUARB_SAID:
 * below. */
static const char *const others[] = {"GPUARB_ACCOUNT", "GPUARB_CALLBACK", "GPUARB_CDI", "GPUARB_CONF",
	"GPUARB_DEEPBIND", "GPUARB_DIR", "GPUARB_DISABLE", "GPUARB_GID", "GPUARB_GPU", "GPUARB_GPUS",
	"GPUARB_LIBRARY", "GPUARB_LIMITS_FILE", "GPUARB_LOG", "GPUARB_RUNTIME_CONF", "GPUARB_SAID",
	"GPUARB_TOP", "GPUARB_TRACE"};
#define OTHERS (sizeof(others) / sizeof(others[0]))

/* Kubernetes tells every pod where each service is; for a service called gpuarb by GPUARB_PORT_80_TCP_ADDR. */
static bool of_a_service(const char *name)
{
	const char *port = strstr(name, "_PORT");

	return strstr(name, "_SERVICE_") ||
	       (port && (!port[5] || (port[5] == '_' && port[6] >= '0' && port[6] <= '9')));
}

bool arb_environment_knows(const char *name)
{
	for (size_t i = 0; i < OTHERS; i++)
		if (strcmp(others[i], name) == 0)
			return true;
	for (int key = 0; key < ARB_KEY_COUNT; key++)
		if (strcmp(gpuarb_keys[key].env, name) == 0)
			return true;
	return of_a_service(name);
}

const char *arb_environment_meant(const char *name)
{
	const char *wrong = name + strlen(PREFIX), *meant;
	struct gpuarb_spelling s;

	/* A setting's variable is not always called as the setting: GPUARB_CORE for GPUARB_CORE_LIMIT. */
	for (int key = 0; key < ARB_KEY_COUNT; key++)
		if (strcasecmp(gpuarb_keys[key].name, wrong) == 0)
			return gpuarb_keys[key].env;
	/* All names begin with this, so it does not make one of them nearer. */
	gpuarb_spelling_begin(&s, wrong);
	for (size_t i = 0; i < OTHERS; i++)
		gpuarb_spelling_try(&s, others[i] + strlen(PREFIX));
	for (int key = 0; key < ARB_KEY_COUNT; key++)
		gpuarb_spelling_try(&s, gpuarb_keys[key].env + strlen(PREFIX));
	meant = gpuarb_spelling_meant(&s);
	return meant ? meant - strlen(PREFIX) : NULL;
}

static void describe(const char *entry, char *sentence, size_t size)
{
	const char *meant;
	char name[64];
	size_t n = 0;

	for (; entry[n] && entry[n] != '=' && n < sizeof(name) - 1; n++)
		name[n] = entry[n] > ' ' && entry[n] < 0x7f ? entry[n] : '?';
	name[n] = '\0';
	meant = arb_environment_meant(name);
	if (meant)
		snprintf(sentence, size,
			"the environment variable %s is not known and does nothing; did you mean %s?", name,
			meant);
	else
		snprintf(sentence, size,
			"the environment variable %s is not known and does nothing; those of settings are in "
			"arbiter.conf.example",
			name);
}

/* gpuarb-run has named this variable already, for all processes of its program: GPUARB_SAID is a list, with spaces in
 * between. */
static bool was_said(const char *name)
{
	const char *list = getenv("GPUARB_SAID"), *at = list;
	size_t n = strlen(name);

	for (; at && (at = strstr(at, name)); at += n)
		if ((at == list || at[-1] == ' ') && (!at[n] || at[n] == ' '))
			return true;
	return false;
}

int gpuarb_client_environment(void (*say)(void *argument, const char *sentence), void *argument)
{
	char name[64], sentence[256];
	int unknown = 0;

	/* A program with raised privileges reads none of them. */
	if (getauxval(AT_SECURE))
		return 0;
	for (char **entry = environ; entry && *entry; entry++) {
		size_t n = strcspn(*entry, "=");

		if (strncmp(*entry, PREFIX, strlen(PREFIX)) != 0)
			continue;
		snprintf(name, sizeof(name), "%.*s", n < sizeof(name) ? (int)n : (int)sizeof(name) - 1,
			*entry);
		if (n < sizeof(name) && (arb_environment_knows(name) || was_said(name)))
			continue;
		describe(*entry, sentence, sizeof(sentence));
		say(argument, sentence);
		unknown++;
	}
	return unknown;
}

void gpuarb_environment_unknown(char *names, size_t size)
{
	size_t used = 0;

	for (char **entry = environ; entry && *entry; entry++) {
		size_t n = strcspn(*entry, "=");
		char name[64];

		if (strncmp(*entry, PREFIX, strlen(PREFIX)) != 0 || n >= sizeof(name) || used + n + 2 > size)
			continue;
		snprintf(name, sizeof(name), "%.*s", (int)n, *entry);
		if (!arb_environment_knows(name))
			used += (size_t)snprintf(names + used, size - used, "%s%s", used ? " " : "", name);
	}
	if (!used && size)
		names[0] = '\0';
}
