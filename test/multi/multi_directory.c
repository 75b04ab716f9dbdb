/* A process holds the lock of the directory and does not go on. A process that needs it waits without holding locks
 * of its own. */
#include <criterion/criterion.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gpuarb.h"
#include "gpuarb/control.h"
#include "units.h"

#include "test/harness.h"

#include "shm/admission/admission.h"
#include "shm/client/client_state.h"
#include "shm/segment/slot.h"

#define GB (1ull << 30)

static struct t_dir dir;
static struct arb_segment seg;
static struct arb_lock directory;
static struct gpuarb_client *client;

static void hold_directory(void)
{
	cr_assert_eq(arb_slot_lock(&seg, ARB_BYTE_DIRECTORY(seg.nslots), &directory), 0);
}

static void open_dir(void)
{
	struct gpuarb_options options;

	t_dir_make(&dir, "usage_sample_ms = 60000\ncache_ttl_ms = 600000\n"
			 "[class top]\npriority = 99\nmax_wait_ms = 30000\n");
	setenv("GPUARB_DIR", dir.path, 1);
	setenv("GPUARB_CONF", dir.conf, 1);
	setenv("GPUARB_GPU", T_GPU, 1);
	options = t_options(&dir, "one");
	options.threads = true;
	cr_assert_eq(gpuarb_client_open(&options, &client, NULL), 0);
	cr_assert_eq(arb_segment_open(&seg, dir.path, T_GPU, true, NULL, NULL), 0);
}

static void close_dir(void)
{
	gpuarb_client_close(client);
	arb_segment_close(&seg);
	t_dir_remove(&dir);
}

TestSuite(directory, .init = open_dir, .fini = close_dir);

static arb_u32 begun;

static void *join_again(void *argument)
{
	int *result = argument;

	arb_store32_release(&begun, 1);
	*result = gpuarb_client_enter(client, NULL);
	return NULL;
}

/* If the waiting thread kept its process's lock meanwhile, this thread would get it only after the other had given
 * up. */
Test(directory, a_thread_that_waits_to_join_holds_up_no_other_thread)
{
	pthread_t other;
	int result = 1;

	/* It has not joined, as after a fork. */
	gpuarb_client_part(client);
	arb_store32(&client->guard->parted, 0);
	hold_directory();
	cr_assert_eq(pthread_create(&other, NULL, join_again, &result), 0);
	while (!arb_load32_acquire(&begun))
		t_sleep_us(1000);
	t_sleep_us(20000);
	arb_lock_take(&client->guard->adm);
	arb_lock_take(&client->guard->lock);
	arb_lock_give(&client->guard->lock);
	arb_lock_give(&client->guard->adm);
	arb_slot_unlock(&directory);
	pthread_join(other, NULL);
	cr_assert_eq(result, 0);
	cr_assert_eq(gpuarb_client_leave(client, 0), 0);
}

static struct {
	arb_u32 ready;
} * say;

static int hold_lease(void *argument)
{
	struct gpuarb_request request = {.task_class = "top"};
	struct gpuarb_lease lease = GPUARB_LEASE_INIT;

	(void)argument;
	if (gpuarb_acquire(NULL, &request, &lease) != GPUARB_OK)
		return 1;
	arb_store32_release(&say->ready, 1);
	for (;;)
		pause();
}

static void sample(unsigned percent)
{
	struct arb_usage_rules rules = {.ttl_ns = 600000 * MS, .high_pct = 85, .low_pct = 78};

	arb_usage_publish(&seg, &rules, percent * 100, ARB_SAMPLE_NVML, arb_os_now_ns());
}

/* Its place and its lease are free at once. Its slot is free when it can be detached from its account. */
Test(directory, a_dead_holder_of_a_lease_is_in_nobodys_way)
{
	struct gpuarb_request request = {.task_class = "top"};
	struct gpuarb_lease lease = GPUARB_LEASE_INIT;
	uint32_t slot;
	pid_t pid;

	say = t_shared(sizeof(*say));
	pid = t_spawn(hold_lease, NULL, 60);
	while (!arb_load32_acquire(&say->ready))
		t_sleep_us(1000);
	slot = arb_admission_next(&seg, seg.header->adm_leased, 0);
	cr_assert_neq(slot, ARB_NONE);
	/* The first call of a process joins. */
	sample(10);
	cr_assert_eq(gpuarb_acquire(NULL, &request, &lease), GPUARB_OK);
	gpuarb_release(&lease);
	sample(100);
	hold_directory();
	kill(pid, SIGKILL);
	cr_assert_eq(t_wait(pid), -SIGKILL);
	/* Under this pressure the class goes only if no lease is held. */
	cr_assert_eq(gpuarb_acquire(NULL, &request, &lease), GPUARB_OK);
	cr_assert_eq(arb_load32(&seg.slots[slot].state), ARB_SLOT_JOINING);
	gpuarb_release(&lease);
	arb_slot_unlock(&directory);
	cr_assert_geq(gpuarb_control_reap(dir.path, T_GPU, NULL, NULL, NULL), 0);
	cr_assert_eq(arb_load32(&seg.slots[slot].state), ARB_SLOT_FREE);
}

/* For a while it belongs to no segment, but it keeps count of its memory. */
Test(directory, memory_is_counted_again_when_the_client_joins_later)
{
	struct gpuarb_client *other;
	uint64_t used, limit;
	char path[PATH_MAX];

	cr_assert_eq(gpuarb_client_mem_reserve(client, 3 * GB), 0);
	t_path(&dir, "state", path);
	cr_assert_eq(unlink(path), 0);
	cr_assert_eq(t_open(&dir, "two", &other), 0, "makes it anew");
	arb_segment_close(&seg);
	cr_assert_eq(arb_segment_open(&seg, dir.path, T_GPU, true, NULL, NULL), 0);
	hold_directory();
	cr_assert_eq(gpuarb_client_rejoin(client, false, NULL), -EBUSY);
	cr_assert_eq(gpuarb_client_mem_release(client, GB), 0);
	arb_slot_unlock(&directory);
	cr_assert_eq(gpuarb_client_mem_read(client, &used, &limit), 0);
	cr_assert_eq(used, 2 * GB);
	gpuarb_client_close(other);
}
