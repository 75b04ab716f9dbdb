/*
 * Included once by each program of Criterion tests, so that a test that hangs ends and fails.
 *
 * Criterion (2.4.1) runs each test in a process of its own, and after it has killed one for its own --timeout or
 * .timeout it waits for ever. So a test sets an alarm, which ends it. The alarm is set only in the process of a test,
 * where Criterion has left this variable; forked children do not inherit it and have deadlines of their own.
 */
#ifndef TEST_ALARM_H
#define TEST_ALARM_H

#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

/* The slowest test takes 10 s on an idle machine; this leaves room for a machine with ten times too much to do. */
#define TEST_ALARM_S 120

static void test_too_late(int signal_number)
{
	static const char sentence[] = "harness: this test took longer than it may and ends here\n";
	ssize_t n = write(STDERR_FILENO, sentence, sizeof(sentence) - 1);

	(void)n;
	signal(signal_number, SIG_DFL);
	raise(signal_number);
}

__attribute__((constructor)) static void test_begin(void)
{
	if (!getenv("BXFI_MAP"))
		return;
	signal(SIGALRM, test_too_late);
	alarm(TEST_ALARM_S);
}

#endif
