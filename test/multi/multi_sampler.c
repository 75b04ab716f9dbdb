/* Who reads the GPU's utilisation: a client that dies, leaves or is stopped is replaced, and the watchdog goes first. */
#include <criterion/criterion.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "test/multi/multi_leases.h"

TestSuite(sampler, .init = open_dir, .fini = close_dir);

/* Waits for two new samples. */
static void until_sampled(void)
{
	for (int i = 0; i < 2; i++) {
		uint64_t word = arb_load64(&seg.header->adm_sample) >> ARB_SAMPLE_TIME_SHIFT;

		while (arb_load64(&seg.header->adm_sample) >> ARB_SAMPLE_TIME_SHIFT == word)
			t_sleep_us(1000);
	}
}

static bool somebody_samples(void)
{
	void *page;

	if (arb_slot_hold(&seg, ARB_BYTE_SAMPLER, &page) < 0)
		return true;
	arb_os_unmap(page, 0);
	return false;
}

static int use_and_stay(void *argument)
{
	struct gpuarb_lease lease = GPUARB_LEASE_INIT;

	(void)argument;
	if (acquire("asr", &lease) != GPUARB_OK)
		return 1;
	gpuarb_release(&lease);
	arb_add32_full(&say->ready, 1);
	until(&say->go);
	return 0;
}

Test(sampler, a_sampler_that_dies_or_leaves_is_replaced)
{
	pid_t pid[3];

	set("usage_sample_ms", "50");
	say = t_shared(sizeof(*say));
	for (int i = 0; i < 3; i++) {
		pid[i] = t_spawn(use_and_stay, NULL, 60);
		while (arb_load32_acquire(&say->ready) != (uint32_t)i + 1)
			t_sleep_us(500);
		until_sampled(); /* so that the first child is elected */
	}
	kill(pid[0], SIGKILL);
	cr_assert_eq(t_wait(pid[0]), -SIGKILL);
	until_sampled();
	cr_assert(somebody_samples());
	/* Either of them may be the sampler: one dies, the other leaves. */
	kill(pid[1], SIGKILL);
	cr_assert_eq(t_wait(pid[1]), -SIGKILL);
	until_sampled();
	cr_assert(somebody_samples());
	arb_store32_release(&say->go, 1);
	cr_assert_eq(t_wait(pid[2]), 0);
	cr_assert_not(somebody_samples());
	arb_store32(&say->go, 0);
	arb_store32(&say->ready, 0);
	pid[0] = t_spawn(use_and_stay, NULL, 60);
	until(&say->ready);
	until_sampled();
	arb_store32_release(&say->go, 1);
	cr_assert_eq(t_wait(pid[0]), 0);
}

Test(sampler, a_stopped_sampler_is_helped_out)
{
	pid_t pid[2];

	set("usage_sample_ms", "50");
	set("cache_ttl_ms", "200");
	say = t_shared(sizeof(*say));
	for (int i = 0; i < 2; i++) {
		pid[i] = t_spawn(use_and_stay, NULL, 60);
		while (arb_load32_acquire(&say->ready) != (uint32_t)i + 1)
			t_sleep_us(500);
		until_sampled();
	}
	kill(pid[0], SIGSTOP);
	until_sampled();
	cr_assert(somebody_samples(), "it still has the byte");
	kill(pid[0], SIGCONT);
	arb_store32_release(&say->go, 1);
	cr_assert_eq(t_wait(pid[0]), 0);
	cr_assert_eq(t_wait(pid[1]), 0);
}

static pid_t start_watchdog(void)
{
	char path[PATH_MAX];
	pid_t pid = fork();

	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		snprintf(path, sizeof(path), "%s/gpuarb-watchdog", t_build());
		execl(path, path, "--quiet", "--dir", dir.path, (char *)NULL);
		_exit(127);
	}
	return pid;
}

Test(sampler, the_watchdog_samples_while_it_runs)
{
	pid_t client, watchdog;

	set("usage_sample_ms", "50");
	say = t_shared(sizeof(*say));
	client = t_spawn(use_and_stay, NULL, 60);
	until_sampled();
	cr_assert_eq(arb_load32(&seg.header->adm_watchdog), 0);
	watchdog = start_watchdog();
	until(&seg.header->adm_watchdog);
	until_sampled();
	/* The client leaves the sampler's byte to the watchdog: when the client is gone there is still a sampler. */
	kill(client, SIGKILL);
	cr_assert_eq(t_wait(client), -SIGKILL);
	until_sampled();
	cr_assert(somebody_samples());
	arb_store32(&say->ready, 0);
	client = t_spawn(use_and_stay, NULL, 60);
	until(&say->ready);
	kill(watchdog, SIGKILL);
	cr_assert_eq(t_wait(watchdog), -SIGKILL);
	until_sampled();
	cr_assert(somebody_samples());
	arb_store32_release(&say->go, 1);
	cr_assert_eq(t_wait(client), 0);
}
