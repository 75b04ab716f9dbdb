/* What the preload logs, and how often. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "units.h"

#include "preload/process/log.h"

Test(log, a_sentence_that_repeats_is_said_at_once_and_then_once_in_ten_seconds)
{
	struct arb_log_rate rate = {0};
	uint32_t unsaid = 7;

	cr_assert(arb_log_due(&rate, 5 * SECOND, &unsaid));
	cr_assert_eq(unsaid, 0);
	for (int i = 0; i < 1000; i++)
		cr_assert_not(arb_log_due(&rate, 5 * SECOND + (uint64_t)i, &unsaid));
	cr_assert_not(arb_log_due(&rate, 15 * SECOND - 1, &unsaid));
	cr_assert(arb_log_due(&rate, 15 * SECOND, &unsaid));
	cr_assert_eq(unsaid, 1001);
	cr_assert(arb_log_due(&rate, 40 * SECOND, &unsaid));
	cr_assert_eq(unsaid, 0, "each is counted once");
}

static struct arb_log_rate shared;
static unsigned said, counted;

static void *provoke(void *argument)
{
	uint32_t unsaid;

	(void)argument;
	for (uint64_t i = 0; i < 100000; i++)
		if (arb_log_due(&shared, SECOND + i * 1000000, &unsaid)) {
			__atomic_fetch_add(&said, 1, __ATOMIC_RELAXED);
			__atomic_fetch_add(&counted, unsaid, __ATOMIC_RELAXED);
		}
	return NULL;
}

Test(log, when_many_threads_log_one_line_is_written_and_all_are_counted)
{
	pthread_t thread[4];

	for (int i = 0; i < 4; i++)
		cr_assert_eq(pthread_create(&thread[i], NULL, provoke, NULL), 0);
	for (int i = 0; i < 4; i++)
		pthread_join(thread[i], NULL);
	/* The clock that the test moves has advanced by 100 s. */
	cr_assert(said >= 1 && said <= 10, "%u", said);
	cr_assert_eq(said + counted + shared.unsaid, 400000);
}

/* Names of accounts and commands are chosen by others. */
Test(log, a_line_has_no_control_characters)
{
	char path[] = "/tmp/gpuarb-log-XXXXXX", line[256] = "";
	int fd = mkstemp(path);

	cr_assert(fd >= 0);
	setenv("GPUARB_LOG", path, 1);
	arb_log(ARB_LOG_WARN, "account '%s' has all of it", "a\033[2J\nb\177");
	cr_assert(read(fd, line, sizeof(line) - 1) > 0);
	cr_assert(strstr(line, "account 'a?[2J?b?' has all of it\n"), "%s", line);
	close(fd);
	unlink(path);
}
