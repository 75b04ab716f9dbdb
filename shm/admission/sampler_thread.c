#include "shm/admission/sampler_thread.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>

#include "gpuarb/abi.h"
#include "gpuarb/control.h"
#include "units.h"

#include "shm/client/control_segment.h"
#include "shm/admission/sampler_nvml.h"
#include "shm/base/forks.h"
#include "shm/base/os.h"
#include "shm/admission/sampler.h"
#include "shm/base/word.h"

#define PATIENCE_NS  (100 * MS)
#define AGAIN_NS     (5 * MS)
#define RELIST_NS    (2000 * MS)
#define LONGEST_NS   (1000 * MS)
#define MANY_WAIT_NS (100 * MS)

static struct {
	struct gpuarb_client *client;
	char gpu[ARB_UUID_BYTES];
} kept[ARB_SHARED_GPUS];
static uint32_t nkept;
static const struct arb_shared_table *kept_by;
static pthread_mutex_t adding = PTHREAD_MUTEX_INITIALIZER;
static bool running;

/* Does what each of the clients needs now; returns for how long there is nothing more to do. */
static uint64_t look_after(uint32_t n)
{
	uint64_t shortest = LONGEST_NS;

	for (uint32_t i = 0; i < n; i++) {
		uint64_t next_ns, tend_ns;

		if (kept_by->due(kept[i].client, &next_ns) &&
			!kept_by->put(kept[i].client, arb_nvml_usage(kept[i].gpu, PATIENCE_NS)))
			next_ns = AGAIN_NS;
		kept_by->tend(kept[i].client, &tend_ns);
		if (tend_ns < next_ns)
			next_ns = tend_ns;
		if (next_ns < shortest)
			shortest = next_ns;
	}
	/* The thread can sleep only on the word of the first client. */
	return n > 1 && shortest > MANY_WAIT_NS ? MANY_WAIT_NS : shortest < MS ? MS : shortest;
}

static void *keep(void *argument)
{
	(void)argument;
	for (;;)
		kept_by->sleep(kept[0].client, look_after(arb_word_load_acquire(&nkept)));
	return NULL;
}

static void forget_sampler(void)
{
	pthread_mutex_init(&adding, NULL);
	nkept = 0;
	running = false;
}

ARB_FORKS_WATCH(arb_sampler_thread_watch, forget_sampler)

void arb_sampler_thread_add(
	const struct arb_shared_table *table, struct gpuarb_client *client, const char *gpu)
{
	uint32_t i = 0;

	arb_sampler_thread_watch();
	pthread_mutex_lock(&adding);
	kept_by = table;
	while (i < nkept && kept[i].client != client)
		i++;
	if (i == nkept && i < ARB_SHARED_GPUS) {
		kept[i].client = client;
		memset(kept[i].gpu, 0, sizeof(kept[i].gpu));
		strncpy(kept[i].gpu, gpu, sizeof(kept[i].gpu) - 1);
		arb_word_store_release(&nkept, i + 1);
	}
	/* Without the thread a lease is taken back after grace_ms where others run; there is no better way. */
	if (!running)
		running = arb_nvml_thread("gpuarb-lease", keep, NULL) == 0;
	pthread_mutex_unlock(&adding);
}
