/*
 * The command line of an OCI runtime. runc, crun and similar runtimes have the same commands and nearly the same
 * options. An unknown word is refused, because a command that is taken for another would let a container start
 * without limits.
 */
#include <stdio.h>
#include <string.h>

#include "tools/runtime/runtime.h"

/* Options before the command that take a value as a word of its own. */
static const char *const global_values[] = {
	"--root", "--log", "--log-format", "--log-level", "--criu", "--rootless", "--cgroup-manager"};
static const char *const global_flags[] = {
	"--debug", "--systemd-cgroup", "--systemd-cgroup=true", "--systemd-cgroup=false"};
/* Options of create, run, restore, exec and delete that take a value. */
static const char *const values[] = {"-b", "--bundle", "-f", "--config", "--console-socket", "--pid-file",
	"--preserve-fds", "-p", "--process", "--cwd", "-e", "--env", "-u", "--user", "-g",
	"--additional-gids", "--process-label", "--apparmor", "-c", "--cap", "--cgroup", "--image-path",
	"--work-path", "--manage-cgroups-mode", "--empty-ns", "--lsm-profile", "--lsm-mount-context",
	"--parent-path", "--status-fd"};
static const char *const flags[] = {"--no-pivot", "--no-new-keyring", "-d", "--detach", "-t", "--tty",
	"--no-subreaper", "--keep", "--tcp-established", "--ext-unix-sk", "--shell-job", "--file-locks",
	"--auto-dedup", "--lazy-pages"};

static const struct {
	const char *name;
	enum runtime_command command;
} commands[] = {
	{"create", RUNTIME_CREATE},
	{"run", RUNTIME_RUN},
	/* A container that continues from a checkpoint is made from a bundle, too. */
	{"restore", RUNTIME_CREATE},
	{"exec", RUNTIME_EXEC},
	{"delete", RUNTIME_DELETE},
	{"start", RUNTIME_OTHER},
	{"kill", RUNTIME_OTHER},
	{"state", RUNTIME_OTHER},
	{"list", RUNTIME_OTHER},
	{"ps", RUNTIME_OTHER},
	{"events", RUNTIME_OTHER},
	{"pause", RUNTIME_OTHER},
	{"resume", RUNTIME_OTHER},
	{"update", RUNTIME_OTHER},
	{"checkpoint", RUNTIME_OTHER},
	{"spec", RUNTIME_OTHER},
	{"features", RUNTIME_OTHER},
	{"mounts", RUNTIME_OTHER},
	{"help", RUNTIME_OTHER},
};

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static bool among(const char *word, const char *const *list, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (!strcmp(word, list[i]))
			return true;
	return false;
}

/* Returns the value of --name=value or --name value, and how many words that took. */
static const char *value_of(const char *name, char **argv, int left, int *words)
{
	size_t n = strlen(name);

	*words = 1;
	if (!strncmp(argv[0], name, n) && argv[0][n] == '=')
		return argv[0] + n + 1;
	if (strcmp(argv[0], name) != 0)
		return NULL;
	if (left < 2)
		runtime_fail("the option %s has no value", name);
	*words = 2;
	return argv[1];
}

static int global_option(struct runtime_args *a, char **argv, int left)
{
	const char *value;
	int words;

	for (size_t i = 0; i < COUNT(global_values); i++) {
		value = value_of(global_values[i], argv, left, &words);
		if (!value)
			continue;
		if (!strcmp(global_values[i], "--root"))
			a->root = value;
		else if (!strcmp(global_values[i], "--log"))
			a->log = !strncmp(value, "file:", 5) ? value + 5 : value;
		else if (!strcmp(global_values[i], "--log-format"))
			a->log_json = !strcmp(value, "json");
		return words;
	}
	if (!among(argv[0], global_flags, COUNT(global_flags)))
		runtime_fail("the option %s is not known, so that nothing can be said about the container",
			argv[0]);
	return 1;
}

static void own_option(struct runtime_args *a, const char *name, const char *value)
{
	if (!strcmp(name, "-b") || !strcmp(name, "--bundle"))
		a->bundle = value;
	else if (a->command != RUNTIME_EXEC && (!strcmp(name, "-f") || !strcmp(name, "--config")))
		a->config = value;
	else if (a->command == RUNTIME_EXEC && (!strcmp(name, "-p") || !strcmp(name, "--process")))
		a->process = value;
}

/* Reads the words after the command: options, then the container's name, then what is executed in it. */
static void command_words(struct runtime_args *a, int argc, char **argv, int at)
{
	while (at < argc && argv[at][0] == '-') {
		const char *value = NULL;
		int words = 1;

		if (!strcmp(argv[at], "--")) {
			at++;
			break;
		}
		/* With delete, -f means to force and takes no value. */
		for (size_t i = 0; i < COUNT(values) && !value && a->command != RUNTIME_DELETE; i++) {
			value = value_of(values[i], argv + at, argc - at, &words);
			if (value)
				own_option(a, values[i], value);
		}
		if (!value && (!strcmp(argv[at], "--detach") || !strcmp(argv[at], "-d")))
			a->detach = true;
		/* The next word might be the option's value and not the container. */
		if (!value && (a->command == RUNTIME_CREATE || a->command == RUNTIME_RUN) &&
			!among(argv[at], flags, COUNT(flags)))
			runtime_fail(
				"the option %s is not known, so that nothing can be said about the container",
				argv[at]);
		at += words;
	}
	a->id = at < argc ? argv[at] : NULL;
	if (!a->id)
		runtime_fail("the command line names no container");
}

void runtime_args_read(struct runtime_args *a, int argc, char **argv)
{
	int at = 1;

	*a = (struct runtime_args){0};
	while (at < argc && argv[at][0] == '-')
		at += global_option(a, argv + at, argc - at);
	runtime_log_to(a);
	if (at == argc)
		runtime_fail("the command line has no command");
	for (size_t i = 0; i < COUNT(commands); i++)
		if (!strcmp(argv[at], commands[i].name)) {
			a->command = commands[i].command;
			if (a->command != RUNTIME_OTHER)
				command_words(a, argc, argv, at + 1);
			return;
		}
	runtime_fail("'%s' is no command of an OCI runtime that is known here; create, start, exec, delete "
		     "and the like are",
		argv[at]);
}
