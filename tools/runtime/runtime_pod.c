/* The pod as the API server knows it. The scheduler counts extended resources, and they are neither in the
 * container's bundle nor in its environment, so a pod's author cannot forge them. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tools/runtime/runtime.h"

/* An object of the API server has at most 1.5 MiB (etcd's limit for a request). */
#define POD_BYTES_MOST (4u << 20)
/* The kubelet waits two minutes for a container to be made; this is less. */
#define POD_SECONDS 30

static double now_s(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

static pid_t begin(const char *command, const char *namespace, const char *name, const char *uid, int *from)
{
	int ends[2];
	pid_t pid;

	if (pipe(ends) != 0)
		runtime_fail("pipe: %s", strerror(errno));
	pid = fork();
	if (pid < 0)
		runtime_fail("fork: %s", strerror(errno));
	if (pid == 0) {
		/* Its error messages go to the engine's log. */
		if (dup2(ends[1], 1) == 1 && close(ends[0]) == 0 && close(ends[1]) == 0)
			execl(command, command, namespace, name, uid, (char *)NULL);
		fprintf(stderr, "%s: %s\n", command, strerror(errno));
		_exit(127);
	}
	close(ends[1]);
	*from = ends[0];
	return pid;
}

/* Reads all that it prints, until its end or the deadline. */
static size_t read_all(int fd, char *text, size_t most, double until)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};
	size_t length = 0;
	ssize_t n = 1;

	while (n > 0 && length < most && now_s() < until)
		if (poll(&p, 1, 100) > 0) {
			n = read(fd, text + length, most - length);
			length += n > 0 ? (size_t)n : 0;
		}
	return n == 0 ? length : 0;
}

/* Reads a quantity of an extended resource, which is a whole number, such as "30"; Kubernetes shortens 1000 to "1k".
 */
static unsigned quantity(const json_t *container, const char *resource)
{
	const json_t *limits = json_object_get(json_object_get(container, "resources"), "limits"),
		     *value = json_object_get(limits, resource);
	char text[32];
	size_t n;

	if (!value)
		return 0;
	if (json_is_integer(value))
		snprintf(text, sizeof(text), "%lld", (long long)json_integer_value(value));
	else
		snprintf(text, sizeof(text), "%s", json_string_value(value) ? json_string_value(value) : "");
	n = strlen(text);
	if (n && n < sizeof(text) - 3 && text[n - 1] == 'k')
		memcpy(text + n - 1, "000", 4);
	return runtime_number(resource, text, 0, 1u << 20);
}

/* Adds up as the scheduler does: all containers together, or an init container if that has more. */
static unsigned granted(const json_t *pod, const char *resource)
{
	const json_t *spec = json_object_get(pod, "spec"), *container;
	unsigned sum = 0, most = 0;
	size_t i;

	json_array_foreach(json_object_get(spec, "containers"), i, container) sum +=
		quantity(container, resource);
	json_array_foreach(json_object_get(spec, "initContainers"), i, container)
	{
		const char *policy = json_string_value(json_object_get(container, "restartPolicy"));
		unsigned one = quantity(container, resource);

		if (policy && !strcmp(policy, "Always"))
			sum += one;
		else if (one > most)
			most = one;
	}
	return sum > most ? sum : most;
}

void runtime_pod_ask(const struct runtime_conf *conf, const char *namespace, const char *name, char uid[64],
	unsigned *share, unsigned *memory_gib)
{
	static char text[POD_BYTES_MOST];
	double until = now_s() + POD_SECONDS;
	json_error_t error;
	const char *its;
	size_t length;
	int fd, status;
	pid_t pid = begin(conf->pod_command, namespace, name, uid, &fd);
	json_t *pod;

	length = read_all(fd, text, sizeof(text), until);
	close(fd);
	if (!length)
		kill(pid, SIGKILL);
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	if (status != 0 || !length)
		runtime_fail("pod %s/%s: %s has not said what the pod was granted (%s)", namespace, name,
			conf->pod_command,
			now_s() >= until ? "it took longer than 30 s" : "it failed, or printed nothing");
	pod = json_loadb(text, length, 0, &error);
	its = json_string_value(json_object_get(json_object_get(pod, "metadata"), "uid"));
	if (!its)
		runtime_fail("pod %s/%s: what %s prints is not a pod", namespace, name, conf->pod_command);
	/* Another pod may have taken its name. */
	if (*uid && strcmp(uid, its) != 0)
		runtime_fail("pod %s/%s: it has the uid %.60s now, this container belongs to %s", namespace,
			name, its, uid);
	snprintf(uid, 64, "%s", its);
	*share = granted(pod, "gpuarb.dev/share");
	*memory_gib = granted(pod, "gpuarb.dev/memory-gib");
	json_decref(pod);
}
