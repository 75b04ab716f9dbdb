/*
 * For LD_PRELOAD: installs a handler for SIGBUS, as language runtimes do. It ends the program. With OWN_HANDLER_LATE it
 * does so when the program has long come to the GPU.
 */
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

static void on_bus(int number)
{
	static const char text[] = "the program's own handler was called\n";

	(void)number;
	if (write(STDERR_FILENO, text, sizeof(text) - 1) < 0)
		_exit(4);
	_exit(3);
}

static void *install(void *late)
{
	struct sigaction action = {.sa_handler = on_bus};

	if (late)
		usleep(300000);
	sigaction(SIGBUS, &action, NULL);
	return NULL;
}

__attribute__((constructor)) static void begin(void)
{
	pthread_t thread;

	if (!getenv("OWN_HANDLER_LATE"))
		install(NULL);
	else if (pthread_create(&thread, NULL, install, "late") != 0)
		_exit(5);
}
