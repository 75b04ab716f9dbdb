/* What the Criterion tests with several processes share. */
#ifndef TEST_MULTI_H
#define TEST_MULTI_H

#include <criterion/criterion.h>

#include "test/harness.h"

#include "shm/segment/check.h"

/* Ends a test that cannot be made here. Criterion does not print the reason of a skip, and does not call the suite's
 * .fini. */
#define t_skip_test(dir, why)                                                                                \
	do {                                                                                                 \
		t_dir_remove(dir);                                                                           \
		printf("skipped: %s\n", why);                                                                \
		fflush(stdout);                                                                              \
		cr_skip_test(why);                                                                           \
	} while (0)

static inline struct gpuarb_client *must_open(const struct t_dir *dir, const char *account)
{
	struct gpuarb_options o = t_options(dir, account);
	struct gpuarb_error err = {0};
	struct gpuarb_client *c;
	int r = gpuarb_client_open(&o, &c, &err);

	cr_assert_eq(r, 0, "%s", err.text);
	return c;
}

static inline void must_hold(const struct t_dir *dir)
{
	struct arb_segment seg;

	cr_assert_eq(arb_segment_open(&seg, dir->path, T_GPU, false, NULL, NULL), 0);
	cr_assert_eq(arb_check(&seg, t_say, NULL), 0);
	arb_segment_close(&seg);
}

#endif
