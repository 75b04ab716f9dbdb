/* The public functions. They find the GPU and the client, and say what went wrong. The work is done by the library
 * that holds the client. */
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "gpuarb.h"
#include "gpuarb/control.h"

#include "shm/admission/admission.h"
#include "shm/client/control_segment.h"
#include "shm/base/error.h"
#include "shm/base/granted.h"
#include "shm/admission/sampler_thread.h"
#include "shm/admission/sampler_nvml.h"
#include "shm/base/os.h"
#include "shm/admission/shared.h"
#include "shm/segment/silence.h"
#include "shm/segment/slot.h"
#include "shm/base/word.h"

/* How long a driver has to answer: a driver that no program uses takes a second, a driver
 * that hangs never answers. */
#define KNOWS_NS 2000000000ull

static const struct arb_shared_table *table;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_mutex_t finding = PTHREAD_MUTEX_INITIALIZER;
static char only_gpu[ARB_UUID_BYTES];
static uint32_t only_known;

static struct {
	char gpu[ARB_UUID_BYTES];
	struct gpuarb_client *client;
} clients[ARB_SHARED_GPUS];
static uint32_t nclients;

static __thread struct gpuarb_error last;

const char *gpuarb_version(void)
{
	return GPUARB_VERSION;
}

const char *gpuarb_error_text(void)
{
	return last.text;
}

static void forget_found(void)
{
	pthread_mutex_init(&finding, NULL);
	nclients = 0;
}

/*
 * Runs before there are threads. A handler that is registered while another thread forks is not called in that child,
 * and a lock that was taken just then would stay locked in it for ever.
 */
__attribute__((constructor)) static void watch(void)
{
	pthread_atfork(NULL, NULL, forget_found);
	arb_slot_watch();
	arb_shared_watch();
	arb_sampler_thread_watch();
	arb_nvml_watch();
}

static void find_table(void)
{
	int saved = errno;
	const struct arb_shared_table *found = dlsym(RTLD_DEFAULT, ARB_SHARED_SYMBOL);

	/* The preload is older or newer than this library: two clients are better than a table that is misread. */
	if (found && (found->version != ARB_SHARED_VERSION || found->size < sizeof(*found)))
		found = NULL;
	table = found ? found : &arb_shared_own;
	errno = saved;
}

__attribute__((destructor)) static void at_exit(void)
{
	if (table == &arb_shared_own)
		arb_shared_part();
}

/* Finds the GPU that is meant where none is named. */
static int find_only(struct gpuarb_error *err)
{
	const char *named = arb_granted_getenv("GPUARB_GPU");
	char names[2][ARB_UUID_BYTES];
	int n;

	if (named && *named) {
		if (!gpuarb_gpu_name_ok(named))
			return arb_fail(err, -EINVAL, "GPUARB_GPU: '%.80s' cannot be a GPU's name", named);
		strncpy(only_gpu, named, sizeof(only_gpu) - 1);
		return 0;
	}
	n = gpuarb_control_list(NULL, names, 2, err);
	if (n < 0)
		return n;
	if (n == 0)
		return arb_fail(err, -ENODEV,
			"no GPU has a segment in %s/state yet: 'sudo gpuarb-node' makes it; or name the GPU, or set "
			"GPUARB_GPU",
			gpuarb_control_dir(NULL));
	if (n > 1)
		return arb_fail(err, -ENODEV,
			"which GPU? %d have a segment in %s/state; name one, or set GPUARB_GPU", n,
			gpuarb_control_dir(NULL));
	memcpy(only_gpu, names[0], sizeof(only_gpu));
	return 0;
}

static const char *which(const char *gpu)
{
	int saved = errno, r = 0;

	if (gpu)
		return gpu;
	if (__builtin_expect(arb_word_load_acquire(&only_known), 1))
		return only_gpu;
	pthread_mutex_lock(&finding);
	if (!only_known) {
		r = find_only(&last);
		arb_word_store_release(&only_known, r == 0);
	}
	pthread_mutex_unlock(&finding);
	errno = saved;
	return r == 0 ? only_gpu : NULL;
}

static struct gpuarb_client *known(const char *gpu)
{
	uint32_t n = arb_word_load_acquire(&nclients);

	for (uint32_t i = 0; i < n; i++)
		if (strcmp(clients[i].gpu, gpu) == 0)
			return clients[i].client;
	return NULL;
}

/*
 * If the GPU has not been used yet, a client makes its segment. That is to be done for a GPU that is there, and not
 * for a name with a typing error. Where no driver can be asked, a name that looks like a UUID is believed.
 */
static int exists(const char *gpu)
{
	if (arb_segment_exists(gpuarb_control_dir(NULL), gpu))
		return 0;
	if (!gpuarb_gpu_is_uuid(gpu))
		return arb_fail(&last, -ENODEV,
			"there is no GPU '%.80s': it has no segment in %s/state, and is no UUID of a GPU "
			"(see nvidia-smi -L)",
			gpu, gpuarb_control_dir(NULL));
	if (arb_nvml_knows(gpu, KNOWS_NS) == 0)
		return arb_fail(&last, -ENODEV,
			"there is no GPU '%.80s': the driver knows none with this UUID (see nvidia-smi -L)",
			gpu);
	return 0;
}

/* The slow way, for the first call of this process for this GPU. */
static int join(const char *gpu, struct gpuarb_client **client)
{
	int saved = errno, r = 0;

	if (!gpuarb_gpu_name_ok(gpu))
		return arb_fail(&last, -EINVAL, "'%.80s' cannot be a GPU's name", gpu);
	pthread_mutex_lock(&finding);
	*client = known(gpu);
	if (!*client) {
		r = exists(gpu);
		if (r == 0)
			r = nclients < ARB_SHARED_GPUS
				    ? table->client(gpu, client, &last)
				    : arb_fail(&last, -EMFILE, "more than %d GPUs in one process",
					      ARB_SHARED_GPUS);
		if (r == 0) {
			strncpy(clients[nclients].gpu, gpu, sizeof(clients[0].gpu) - 1);
			clients[nclients].client = *client;
			arb_word_store_release(&nclients, nclients + 1);
			arb_sampler_thread_add(table, *client, gpu);
		}
	}
	pthread_mutex_unlock(&finding);
	errno = saved;
	return r;
}

static int client_of(const char *gpu, struct gpuarb_client **client)
{
	pthread_once(&once, find_table);
	gpu = which(gpu);
	if (!gpu)
		return last.code;
	*client = known(gpu);
	return __builtin_expect(*client != NULL, 1) ? 0 : join(gpu, client);
}

static int explain(int r, const struct gpuarb_request *request)
{
	if (r == -ENOENT)
		return arb_fail(&last, r,
			"there is no task class '%.60s'; add [class NAME] to arbiter.conf or use "
			"gpuarb-set --class",
			request && request->task_class ? request->task_class : "");
	if (r == -EALREADY)
		return arb_fail(&last, r, "this lease is held already; a task needs one of its own");
	if (r == -ECANCELED)
		return arb_fail(&last, r, "the wait was cancelled");
	return arb_fail(&last, r, "cannot use the segment: %s", strerror(-r));
}

int gpuarb_acquire(const char *gpu, const struct gpuarb_request *request, struct gpuarb_lease *lease)
{
	struct gpuarb_client *client;
	int r;

	if (!lease)
		return arb_fail(&last, -EINVAL, "gpuarb_acquire: no lease to fill in");
	r = client_of(gpu, &client);
	if (r < 0) {
		lease->birth = 0;
		return r;
	}
	/* Stored before it waits, so that gpuarb_cancel knows which client to wake. */
	arb_word_store_full(&lease->client, (void *)client);
	r = table->acquire(client, request, lease);
	return __builtin_expect(r >= 0, 1) ? r : explain(r, request);
}

int gpuarb_release(struct gpuarb_lease *lease)
{
	if (!lease || !lease->client || !lease->birth)
		return 0;
	return table->release(lease->client, lease);
}

void gpuarb_cancel(struct gpuarb_lease *lease)
{
	struct gpuarb_client *client;

	if (!lease)
		return;
	arb_word_store_full(&lease->cancelled, 1);
	client = arb_word_load_full(&lease->client);
	if (client)
		table->cancel(client);
}

int gpuarb_hint(const char *gpu, const struct gpuarb_hint *hint)
{
	struct gpuarb_client *client;
	int r;

	if (!hint)
		return arb_fail(&last, -EINVAL, "gpuarb_hint: no hint");
	r = client_of(gpu, &client);
	if (r < 0)
		return r;
	r = table->hint(client, hint);
	return r >= 0 ? r : explain(r, NULL);
}

static uint32_t milliseconds(uint64_t ns)
{
	return (uint32_t)((ns + 999999) / 1000000);
}

static int read_status(const char *gpu, struct gpuarb_status *status)
{
	struct gpuarb_view_admission a;
	struct arb_control_map control;
	struct arb_segment seg;
	struct arb_rules rules;
	struct arb_snap snap;
	uint64_t now;
	bool have_control;
	int r = arb_os_clock_init();

	if (r < 0)
		return arb_fail(
			&last, r, "this time namespace's clock cannot be compared with that of the clients");
	r = arb_segment_open(&seg, gpuarb_control_dir(NULL), gpu, false, NULL, &last);
	if (r < 0)
		return r;
	have_control =
		arb_control_map_open(&control, gpuarb_control_dir(NULL), gpu, false, NULL, NULL, NULL) == 0;
	arb_control_rules(gpuarb_control_dir(NULL), gpu, &rules);
	r = arb_running_read(&seg, &snap);
	now = arb_os_now_ns();
	if (r == 0) {
		arb_silence_advance(&seg, &snap, now, rules.win_ms);
		arb_admission_picture(&seg, have_control ? control.control : NULL, &rules, &snap, now, &a);
		*status = (struct gpuarb_status){.state = a.high_pressure,
			.usage = a.usage_known ? (int32_t)a.usage_hundredths : -1,
			.usage_age_ms = a.source ? (int64_t)(a.sample_age_ns / 1000000) : -1,
			.high_water = a.high_water,
			.low_water = a.low_water,
			.boost_left_ms = a.boost_until_ns > now ? milliseconds(a.boost_until_ns - now) : 0,
			.queue_len = a.queue_len,
			.leases = a.leases};
	} else {
		arb_fail(&last, r, "the segment of %s cannot be read: %s", gpu, strerror(-r));
	}
	if (have_control)
		arb_control_map_close(&control);
	arb_segment_close(&seg);
	return r;
}

int gpuarb_status(const char *gpu, struct gpuarb_status *status)
{
	struct gpuarb_client *client;
	int saved = errno, r;

	pthread_once(&once, find_table);
	gpu = which(gpu);
	if (!gpu || !status)
		return gpu ? arb_fail(&last, -EINVAL, "gpuarb_status: nothing to fill in") : last.code;
	r = read_status(gpu, status);
	client = known(gpu);
	if (r == 0 && client) {
		status->own_leases = table->leases(client);
		r = table->status(client, status);
	}
	errno = saved;
	return r;
}
