/* Attacks by programs that ask for what any user may ask for. */
#include <stdio.h>
#include <stdlib.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "test/hostile/hostile.h"

/* A program as any user starts it, with an account's name of its own. */
static void program(struct target *t, const char *account, const char *core, const char *load, bool wait)
{
	pid_t pid = fork();

	if (pid == 0) {
		char command[1024];

		alarm(20);
		prctl(PR_SET_PDEATHSIG, SIGKILL); /* it is killed when the attacker ends */
		setenv("GPUARB_ACCOUNT", account, 1);
		setenv("GPUARB_CORE_LIMIT", core, 1);
		snprintf(command, sizeof(command),
			"LD_PRELOAD=%s/libgpuarb-preload.so exec %s/simload %s >/dev/null 2>&1", t->build,
			t->build, load);
		execl("/bin/sh", "sh", "-c", command, (char *)NULL);
		_exit(127);
	}
	if (wait)
		waitpid(pid, NULL, 0);
}

void attack_join_account(struct target *t)
{
	program(t, "victim", "1", "-k 100 -n 20", true);
}

void attack_stay_in_account(struct target *t)
{
	program(t, "victim", "1", "-k 100 -p burst -b 1:100000 -d 10", false);
}

void attack_join_unlimited(struct target *t)
{
	program(t, "victim", "100", "-k 1000 -d 1.5", false);
}

void attack_many_programs(struct target *t)
{
	for (int i = 0; i < 12; i++)
		program(t, "crowd", "100", "-k 100 -p burst -b 1:100000 -d 6", false);
	sleep(1);
}

void attack_ask_for_priority(struct target *t)
{
	setenv("GPUARB_PRIORITY", "100", 1);
	program(t, "important", "100", "-k 1000 -d 10", false);
}
