/* For LD_PRELOAD: installs a handler for SIGBUS, as language runtimes do. It ends the program. */
#include <signal.h>
#include <unistd.h>

static void on_bus(int number)
{
	static const char text[] = "the program's own handler was called\n";

	(void)number;
	if (write(STDERR_FILENO, text, sizeof(text) - 1) < 0)
		_exit(4);
	_exit(3);
}

__attribute__((constructor)) static void install(void)
{
	struct sigaction action = {.sa_handler = on_bus};

	sigaction(SIGBUS, &action, NULL);
}
