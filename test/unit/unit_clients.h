/* For unit tests of clients: a directory of their own, clients in one process, a clock and a futex that the test
 * moves. */
#ifndef TEST_UNIT_CLIENTS_H
#define TEST_UNIT_CLIENTS_H

#include "test/unit/unit.h"

#include "shm/client/client_state.h"
#include "gpuarb/control.h"
#include "units.h"

/* The futex. A sleeper lets the test act in its place. If the word then still holds the expected value, the whole
 * timeout passes. */
static struct {
	int nslept, nwoken;
	uint64_t slept_ns; /* in sleeps that nobody ended */
	uint64_t first_timeout_ns;
	arb_u32 *first_woken;
	void (*while_asleep)(void);
} u_futex;

static inline int u_futex_wait(arb_u32 *word, uint32_t value, uint64_t timeout_ns)
{
	if (u_futex.nslept++ == 0)
		u_futex.first_timeout_ns = timeout_ns;
	cr_assert(u_futex.nslept < 1000000, "sleeps for ever");
	if (u_futex.while_asleep)
		u_futex.while_asleep();
	if (arb_load32(word) != value)
		return 0;
	u_futex.slept_ns += timeout_ns;
	u_clock_ns += timeout_ns;
	return -ETIMEDOUT;
}

static inline int u_futex_wake(arb_u32 *word)
{
	if (u_futex.nwoken++ == 0)
		u_futex.first_woken = word;
	return 0;
}

static inline void u_begin(const char *conf)
{
	static const struct arb_os_hooks hooks = {
		.now_ns = u_now, .futex_wait = u_futex_wait, .futex_wake = u_futex_wake};

	t_dir_make(&u_dir, conf);
	memset(&u_futex, 0, sizeof(u_futex));
	arb_os_hooks = &hooks;
}

static inline void u_begin_default(void)
{
	u_begin(NULL);
}

static inline void u_end(void)
{
	u_futex.while_asleep = NULL;
	t_dir_remove(&u_dir);
}

static inline struct gpuarb_client *u_client(const char *account, unsigned core_pct)
{
	struct gpuarb_options o = t_options(&u_dir, account);
	struct gpuarb_client *c;
	struct gpuarb_error err = {0};

	o.core_pct = core_pct;
	cr_assert_eq(gpuarb_client_open(&o, &c, &err), 0, "%s", err.text);
	return c;
}

/* Ends a client as the kernel does at a death: its lock is gone, and nobody uses it any more. The client is
 * remembered, so that a leak checker does not take it for lost. */
static struct gpuarb_client *u_dead[64];

static inline void u_die(struct gpuarb_client *c)
{
	unsigned i = 0;

	while (i < 63 && u_dead[i])
		i++;
	u_dead[i] = c;
	arb_os_unmap(c->lock_page, 0);
}

/* Sets a limit of an account, or a setting, as gpuarb-set does. A value of NULL takes it back. */
static inline void u_limit(const char *account, const char *key, const char *value)
{
	struct gpuarb_change change = {account, key, value};
	struct gpuarb_error err = {0};

	cr_assert_eq(gpuarb_control_change(u_dir.path, T_GPU, &change, 1, &err), 0, "%s", err.text);
}

static inline void u_set(const char *key, const char *value)
{
	u_limit(NULL, key, value);
}

#endif
