/* A driver that takes long to answer a question of ours: no thread waits for that, except one that destroys what the
 * question is about. */
#include "test/preload/preload_host.h"

#include <dlfcn.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "test/preload/preload_forward.h"

#define SOON_MS        5000
#define UNDISTURBED_MS 50

/* NULL: it is another driver, which cannot be held. */
static struct forward_control *driver(void)
{
	struct forward_control *(*get)(void) =
		(struct forward_control * (*)(void)) dlsym(RTLD_DEFAULT, "forward_control");

	return get ? get() : NULL;
}

static bool is_held(struct forward_control *d)
{
	return __atomic_load_n(&d->held, __ATOMIC_ACQUIRE);
}

static unsigned destroyed(struct forward_control *d)
{
	return __atomic_load_n(&d->destroyed, __ATOMIC_ACQUIRE);
}

/* Launches work for the GPU, and waits until the tracker is in the driver, asking about it. */
static void be_asked(struct forward_control *d, CUstream stream)
{
	d->mine = pthread_self();
	host_launch(stream, 1, 100000);
	__atomic_store_n(&d->armed, 1, __ATOMIC_RELEASE);
	for (int i = 0; !is_held(d) && i < SOON_MS; i++)
		usleep(1000);
	T_CHECK(is_held(d), "nobody asked about the work");
}

static void let_go(struct forward_control *d)
{
	__atomic_store_n(&d->armed, 0, __ATOMIC_RELEASE);
}

static void launches(void)
{
	struct forward_control *d = driver();

	host_context(0);
	if (!d)
		return;
	be_asked(d, NULL);
	/* It waits at the gate until there is room, and finds out by itself that there is. */
	host_launch(NULL, 3, 100);
	T_CHECK(is_held(d), "a launch waited for another thread's question");
	let_go(d);
	OK(cuCtxSynchronize());
	host_must_leave(0);
}

struct end {
	CUcontext ctx;
	CUstream stream; /* NULL: the context itself */
};

static void *destroys(void *argument)
{
	const struct end *end = argument;

	OK(cuCtxSetCurrent(end->ctx));
	if (end->stream)
		OK(cuStreamDestroy_v2(end->stream));
	else
		OK(cuCtxDestroy_v2(end->ctx));
	return NULL;
}

static void destroys_meanwhile(bool stream)
{
	struct forward_control *d = driver();
	struct end end = {.ctx = host_context(0)};
	CUstream works;
	pthread_t thread;

	if (!d)
		return;
	OK(cuStreamCreate(&works, CU_STREAM_NON_BLOCKING));
	end.stream = stream ? works : NULL;
	be_asked(d, works);
	T_CHECK(!pthread_create(&thread, NULL, destroys, &end), "no thread");
	usleep(UNDISTURBED_MS * 1000);
	T_CHECK(is_held(d) && !destroyed(d), "it was destroyed while the driver was asked about it");
	let_go(d);
	pthread_join(thread, NULL);
	T_CHECK(destroyed(d) == 1, "destroyed %u times", destroyed(d));
	host_must_leave(0);
}

static void destroys_its_stream(void)
{
	destroys_meanwhile(true);
}

static void destroys_its_context(void)
{
	destroys_meanwhile(false);
}

const struct host_case host_slow_cases[] = {
	{"slow: launches while another thread asks", launches, "90", 0},
	{"slow: destroys its stream while another thread asks", destroys_its_stream, "90", 0},
	{"slow: destroys its context while another thread asks", destroys_its_context, "90", 0},
	{NULL, NULL, NULL, 0},
};
