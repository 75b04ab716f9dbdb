/* The harness that the tests stand on. */
#include <criterion/criterion.h>
#include <signal.h>
#include <unistd.h>

#include "test/harness.h"

static int hears_no_alarm(void *argument)
{
	(void)argument;
	signal(SIGALRM, SIG_IGN);
	while (pause() < 0)
		;
	return 0;
}

Test(harness, a_child_that_ignores_its_alarm_is_killed)
{
	cr_assert_eq(t_run(hears_no_alarm, NULL, 1), -SIGKILL);
}

static int hangs(void *argument)
{
	(void)argument;
	while (pause() < 0)
		;
	return 0;
}

Test(harness, a_child_that_hangs_dies_of_its_alarm)
{
	cr_assert_eq(t_run(hangs, NULL, 1), -SIGALRM);
}

static int returns(void *argument)
{
	return *(int *)argument;
}

Test(harness, a_child_ends_with_what_it_returns)
{
	int r = 7;

	cr_assert_eq(t_run(returns, &r, 20), 7);
}

/* Criterion's own timeout is not used: harness.c says why. */
Test(harness, a_test_has_an_alarm, .signal = SIGALRM)
{
	unsigned left = alarm(1);

	cr_assert(left > 0 && left <= 120, "%u s", left);
	while (pause() < 0)
		;
}
