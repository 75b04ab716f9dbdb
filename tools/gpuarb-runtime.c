/*
 * An OCI runtime in front of the real one: containers that were granted a share of a GPU become clients, whatever is
 * in them, and their authors write nothing about the machine. There is no daemon: engines start it as they start
 * runc, it edits the bundle, and becomes the real runtime.
 */
#include <argp.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tools/common/cli.h"
#include "tools/runtime/runtime.h"

static struct runtime_args args;
static bool args_read; /* false: a failure is a mistake on the command line */

static const char *log_path;
static bool log_json;

void runtime_log_to(const struct runtime_args *a)
{
	log_path = a->log;
	log_json = a->log_json;
}

/* Writes the sentence as runc does: engines show the last error in this log. */
static void write_log(const char *sentence)
{
	FILE *file = log_path ? fopen(log_path, "ae") : NULL;
	time_t now = time(NULL);
	char when[32];

	if (!file)
		return;
	strftime(when, sizeof(when), "%Y-%m-%dT%H:%M:%SZ", gmtime(&now));
	if (log_json) {
		json_t *line = json_pack("{s:s, s:s, s:s}", "level", "error", "msg", sentence, "time", when);

		if (line)
			json_dumpf(line, file, JSON_COMPACT);
		fputc('\n', file);
		json_decref(line);
	} else {
		fprintf(file, "time=\"%s\" level=error msg=\"", when);
		for (const char *c = sentence; *c; c++)
			fprintf(file, "%s%c", *c == '"' || *c == '\\' ? "\\" : "", *c == '\n' ? ' ' : *c);
		fputs("\"\n", file);
	}
	fclose(file);
}

/* The configuration while a container was granted something and has not begun. */
static const struct runtime_conf *held;

void runtime_fail(const char *format, ...)
{
	const struct runtime_conf *conf = held;
	char text[4096], sentence[4160];
	va_list ap;

	va_start(ap, format);
	vsnprintf(text, sizeof(text), format, ap);
	va_end(ap);
	/* It may quote what the container's author wrote, and is read on a terminal. */
	cli_safe(text, text, sizeof(text));
	snprintf(sentence, sizeof(sentence), "gpuarb-runtime: %s", text);
	write_log(sentence);
	if (!args_read)
		die_usage("%s", text);
	held = NULL;
	if (conf)
		runtime_grant_drop(conf, &args);
	die("%s", text);
}

__attribute__((noreturn)) static void become(const struct runtime_conf *conf, char **argv)
{
	argv[0] = (char *)conf->runtime;
	execv(conf->runtime, argv);
	runtime_fail("%s: %s", conf->runtime, strerror(errno));
}

static volatile sig_atomic_t child;

static void hand_on(int signal)
{
	if (child > 0)
		kill(child, signal);
}

/* Sockets that are passed on (LISTEN_FDS) belong to the process whose pid is named. */
static void pass_sockets(pid_t from)
{
	const char *named = getenv("LISTEN_PID");
	char number[32];

	if (!named || atol(named) != from)
		return;
	snprintf(number, sizeof(number), "%d", (int)getpid());
	setenv("LISTEN_PID", number, 1);
}

static int wait_for_child(pid_t pid)
{
	int status;

	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return 1;
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* Runs the real runtime as a child and waits, because something is left to do afterwards. The child does not outlive
 * us: what is given back then must not start. */
static int wait_for(const struct runtime_conf *conf, char **argv)
{
	static const int signals[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};
	pid_t self = getpid(), pid;
	sigset_t handed, before;

	/* Signals are blocked until the child exists and the handlers are set, so that none is lost or ends only us.
	 */
	sigemptyset(&handed);
	for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++)
		sigaddset(&handed, signals[i]);
	sigprocmask(SIG_BLOCK, &handed, &before);
	pid = fork();
	if (pid < 0)
		runtime_fail("fork: %s", strerror(errno));
	if (pid == 0) {
		sigprocmask(SIG_SETMASK, &before, NULL);
		held = NULL;
		if (args.command == RUNTIME_CREATE && prctl(PR_SET_PDEATHSIG, SIGKILL) == 0 &&
			getppid() != self)
			_exit(1);
		pass_sockets(self);
		become(conf, argv);
	}
	child = pid;
	for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++)
		signal(signals[i], hand_on);
	sigprocmask(SIG_SETMASK, &before, NULL);
	return wait_for_child(pid);
}

/* Whether the real runtime knows a container of this name. */
static bool is_there(const struct runtime_conf *conf)
{
	const char *words[6] = {conf->runtime};
	int n = 1, null;
	pid_t pid = fork();

	if (pid != 0)
		return pid > 0 && wait_for_child(pid) == 0;
	if (args.root) {
		words[n++] = "--root";
		words[n++] = args.root;
	}
	words[n++] = "state";
	words[n] = args.id;
	null = open("/dev/null", O_RDWR | O_CLOEXEC);
	if (null >= 0 && dup2(null, 1) == 1 && dup2(null, 2) == 2)
		execv(conf->runtime, (char **)words);
	_exit(127);
}

/* Handles a container that was granted nothing. */
static void without_share(
	const struct runtime_conf *conf, const struct runtime_wish *wish, const char *path, json_t *spec)
{
	if (conf->without_share == RUNTIME_REFUSE)
		runtime_fail("%s%s asks for no share of a GPU, and would have no limit: %s",
			*wish->pod ? "pod " : "container ", *wish->pod ? wish->pod : args.id,
			*wish->pod ? "limits: {gpuarb.dev/share: 30} in its resources asks for one"
				   : "the annotation gpuarb.dev/share=30, or GPUARB_CORE_LIMIT=30 in its "
				     "environment, asks for one");
	if (conf->without_share == RUNTIME_HIDE) {
		runtime_gpus_hide(spec);
		runtime_bundle_write(path, spec);
	}
}

static bool is_root(const json_t *spec)
{
	const json_t *user = json_object_get(json_object_get(spec, "process"), "user");

	return json_integer_value(json_object_get(user, "uid")) == 0;
}

static const char *kind_of(const json_t *spec, const char *name)
{
	const json_t *part = json_object_get(spec, name);

	return json_is_object(part) || !part ? NULL : name;
}

/* Refuses a container whose SELinux label may keep it from reading the library or its limits. */
static void refuse_label(const struct runtime_conf *conf, const json_t *spec)
{
	const char *label =
		json_string_value(json_object_get(json_object_get(spec, "process"), "selinuxLabel"));

	if (label && *label && !conf->selinux_pass)
		runtime_fail(
			"the container is confined by SELinux (%.80s), and might not be able to read the "
			"library or its limits; see selinux in gpuarb-runtime(1)",
			label);
}

/* Returns true if the container was granted something. */
static bool make_client(const struct runtime_conf *conf, struct runtime_grant *grant)
{
	struct runtime_wish wish;
	char path[PATH_MAX];
	json_t *spec;

	runtime_bundle_path(&args, path);
	spec = runtime_bundle_read(path, "the bundle's");
	if (!json_is_object(json_object_get(spec, "process")) ||
		!json_is_object(json_object_get(spec, "root")))
		runtime_fail("the bundle's %s has no process or no root", path);
	if (kind_of(spec, "annotations") || kind_of(spec, "linux"))
		runtime_fail(
			"the bundle's %s: its annotations, or its part for Linux, are not an object", path);
	runtime_wish_read(conf, &args, spec, &wish);
	if (wish.sandbox) {
		/* This container only holds the namespaces of a pod and needs no GPU. */
		runtime_gpus_hide(spec);
		runtime_bundle_write(path, spec);
		return false;
	}
	if (!wish.share && !wish.core) {
		without_share(conf, &wish, path, spec);
		return false;
	}
	refuse_label(conf, spec);
	if (runtime_grant_find(conf, &args, grant) && is_there(conf))
		runtime_fail("there is a container %s already", args.id);
	grant->gid = runtime_node_check(conf, runtime_bundle_has_user_namespace(spec), is_root(spec));
	runtime_grant_take(conf, &args, &wish, runtime_gpus_given(spec, runtime_node_gpus(conf) > 1), grant);
	held = conf;
	runtime_bundle_edit(conf, grant, &wish, spec);
	runtime_bundle_write(path, spec);
	json_decref(spec);
	return true;
}

/* For kubectl exec and podman exec: engines make the process anew, from what they know of the container. */
static void edit_exec(const struct runtime_conf *conf)
{
	struct runtime_grant grant;
	json_t *process;

	if (!args.process || !runtime_grant_find(conf, &args, &grant))
		return;
	process = runtime_bundle_read(args.process, "the process of the exec,");
	runtime_bundle_edit_process(&grant, process);
	runtime_bundle_write(args.process, process);
	json_decref(process);
}

static int as_runtime(int argc, char **argv)
{
	static struct runtime_conf conf;
	struct runtime_grant grant;
	int status;

	runtime_args_read(&args, argc, argv);
	args_read = true;
	if (args.command == RUNTIME_CREATE || args.command == RUNTIME_RUN)
		runtime_conf_load(&conf);
	else if (!runtime_conf_try(&conf))
		runtime_fail("the real runtime is not there: %s",
			*conf.runtime ? conf.runtime : "neither nvidia-container-runtime nor runc nor crun");
	switch (args.command) {
	case RUNTIME_CREATE:
	case RUNTIME_RUN:
		if (!make_client(&conf, &grant))
			break;
		if (args.command == RUNTIME_RUN)
			runtime_grant_begun(&conf, &grant);
		status = wait_for(&conf, argv);
		if (status != 0 || (args.command == RUNTIME_RUN && !args.detach))
			runtime_grant_drop(&conf, &args);
		else if (args.command == RUNTIME_CREATE)
			runtime_grant_begun(&conf, &grant);
		return status;
	case RUNTIME_EXEC:
		edit_exec(&conf);
		break;
	case RUNTIME_DELETE:
		status = wait_for(&conf, argv);
		/* The container may have been gone before. */
		if (status == 0 || !is_there(&conf))
			runtime_grant_drop(&conf, &args);
		return status;
	case RUNTIME_OTHER:
		break;
	}
	become(&conf, argv);
}

static const struct argp_option option_table[] = {
	{CLI_OPTION(CHECK), NULL, 0,
		"Say whether containers could be started under limits here, and by which runtime", 0},
	{CLI_OPTION(LIST), NULL, 0,
		"List what containers were granted, one line for each of their GPUs: UUID, shares, limit, "
		"memory, "
		"account, container",
		0},
	{0},
};

static error_t on_option(int key, char *text, struct argp_state *state)
{
	static struct runtime_conf conf;

	(void)text;
	args_read = true;
	switch (key) {
	case OPT_LIST:
		runtime_conf_load(&conf);
		runtime_grant_list(&conf);
		exit(0);
	case OPT_CHECK:
		runtime_conf_load(&conf);
		runtime_node_check(&conf, false, true);
		printf("runtime %s, library %s, segments of %d GPU(s) in %s\n", conf.runtime, conf.library,
			runtime_node_gpus(&conf), conf.dir);
		exit(runtime_node_gpus(&conf) > 0 ? 0 : 1);
	case ARGP_KEY_NO_ARGS:
		argp_usage(state);
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

int main(int argc, char **argv)
{
	static const struct argp parser = {option_table, on_option, "create|start|exec|delete ...",
		"Stands in front of runc, crun or nvidia-container-runtime, and holds containers to their "
		"share of a GPU.\v"
		"Engines start it with the command line of an OCI runtime: a RuntimeClass of Kubernetes, "
		"podman --runtime, "
		"docker --runtime. Settings: /etc/gpuarb/runtime.conf, see gpuarb-runtime(1).\n\n"
		"  podman --runtime gpuarb-runtime run --annotation gpuarb.dev/share=30 IMAGE\n\n"
		"Exit status: that of the real runtime; 1 failed, 2 usage.",
		NULL, NULL, NULL};
	static const char *const own[] = {
		"--help", "-h", "-?", "--usage", "--version", "-V", "--check", "--list", "-l"};
	bool mine = argc < 2;

	for (size_t i = 0; i < sizeof(own) / sizeof(own[0]) && !mine; i++)
		mine = !strcmp(argv[1], own[i]);
	/* Engines ask for the runtime's version, and read what the real runtime prints. */
	if (argc == 2 && (!strcmp(argv[1], "--version") || !strcmp(argv[1], "-v"))) {
		static struct runtime_conf conf;

		printf("gpuarb-runtime " GPUARB_VERSION "\n");
		fflush(stdout);
		if (runtime_conf_try(&conf))
			become(&conf, argv);
		return 0;
	}
	if (!mine)
		return as_runtime(argc, argv);
	cli_parse(&parser, argc, argv, 0, NULL);
	return 0;
}
