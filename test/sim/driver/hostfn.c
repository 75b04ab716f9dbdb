/*
 * Host functions: a helper thread of the process calls them when their turn has come, and the stream
 * stands still until they have returned. The same thread waits for values in memory and writes them.
 */
#include "test/sim/driver/driver.h"

#include <signal.h>
#include <sys/prctl.h>

#define POLL_NS      20000  /* time between two looks at a value that a stream waits for */
#define HELD_POLL_NS 200000 /* time between two looks whether a kernel that waits for a value has started */

struct pending {
	struct pending *next;
	uint32_t ring, gen;
	uint64_t index; /* how many ops of its ring come before the op */
	struct task task;
	uint64_t late_ns; /* how long after its turn it is called */
};

static struct pending *list;
static bool running;

/*
 * Returns whether an op, the oldest of its stream, may begin; otherwise sets when to look again. It may have to wait
 * for the slice of its process, and a call comes some time after the work before it has ended.
 */
static bool due(const struct pending *p, const struct sim_ring *r, uint64_t *at_ns)
{
	if (sim_op_at(p->ring, p->index)->kind == SIM_OP_KERNEL) {
		*at_ns = sim_clock_ns() + HELD_POLL_NS;
		return r->held == SIM_HELD_ARRIVED;
	}
	if (!drv.set->slice_events && !p->late_ns)
		return true;
	if (!r->turn_ns) {
		*at_ns = sim_engine_predict(p->ring, p->index + 1);
		return false;
	}
	*at_ns = r->turn_ns + p->late_ns;
	return *at_ns <= sim_clock_ns();
}

/* drv.lock held. Takes the first op that may begin, or sets when to look again. */
static struct pending *ready(uint64_t *look_ns)
{
	struct sim_file *f = sim_shm.file;
	struct pending **p, *found = NULL;

	drv_collect();
	sim_lock();
	sim_engine_advance(sim_clock_ns());
	*look_ns = sim_clock_ns() + 1000000000u;
	for (p = &list; *p;) {
		struct sim_ring *r = &f->ring[(*p)->ring];
		uint64_t at;

		if (r->gen != (*p)->gen) {
			struct pending *gone = *p;

			*p = gone->next;
			free(gone);
			continue;
		}
		if (r->head == (*p)->index && !due(*p, r, &at)) {
			if (at < *look_ns)
				*look_ns = at;
			p = &(*p)->next;
			continue;
		}
		if (r->head == (*p)->index && !drv_memop_met(&(*p)->task)) {
			at = sim_clock_ns() + POLL_NS;
			if (at < *look_ns)
				*look_ns = at;
			p = &(*p)->next;
			continue;
		}
		if (r->head == (*p)->index) {
			found = *p;
			*p = found->next;
			break;
		}
		at = sim_engine_predict((*p)->ring, (*p)->index);
		if (at < *look_ns)
			*look_ns = at;
		p = &(*p)->next;
	}
	sim_unlock();
	return found;
}

static void call(struct pending *p)
{
	struct sim_ring *r = &sim_shm.file->ring[p->ring];

	if (p->task.kind == TASK_MEMOP)
		drv_memop_write(&p->task);
	else if (p->task.host.fn)
		p->task.host.fn(p->task.host.data);
	else
		p->task.host.callback(p->task.host.stream, CUDA_SUCCESS, p->task.host.data);
	r->host_done_ns = sim_clock_ns();
	__atomic_store_n(&r->host_done, p->index + 1, __ATOMIC_SEQ_CST);
	__atomic_store_n(&sim_shm.file->dirty, 1, __ATOMIC_SEQ_CST);
	sim_lock();
	sim_engine_advance(sim_clock_ns());
	sim_unlock();
	free(p);
}

static void *helper(void *arg)
{
	uint32_t *word = &sim_shm.file->proc[sim_shm.slot].host_wake;

	(void)arg;
	prctl(PR_SET_NAME, "cuda-EvtHandlr"); /* the name of the real driver's thread */
	if (drv.callback_most_ns)
		prctl(PR_SET_TIMERSLACK, 1000); /* the default slack would lengthen the delay */
	for (;;) {
		uint32_t value = __atomic_load_n(word, __ATOMIC_ACQUIRE);
		struct pending *p;
		uint64_t look_ns;

		if (!__atomic_load_n(&drv.ready, __ATOMIC_ACQUIRE))
			return NULL;
		drv_lock_always();
		p = ready(&look_ns);
		if (p)
			drv_collect();
		drv_unlock();
		if (p)
			call(p);
		else
			sim_futex_wait(word, value, look_ns);
	}
}

static void start_helper(void)
{
	sigset_t all, old;
	pthread_t thread;

	/* The program's signals belong to its own threads. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	running = pthread_create(&thread, NULL, helper, NULL) == 0;
	if (running)
		pthread_detach(thread);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
}

/* drv.lock held; count is the ring's count after the op. */
void drv_host_add(CUstream s, uint64_t count, const struct task *task)
{
	struct pending **end = &list, *p = calloc(1, sizeof(*p));
	uint32_t *word = &sim_shm.file->proc[sim_shm.slot].host_wake;

	if (!p)
		return;
	p->ring = s->ring;
	p->gen = s->gen;
	p->index = count - 1;
	p->task = *task;
	p->late_ns = task->kind == TASK_HOST ? drv_between(drv.callback_ns, drv.callback_most_ns) : 0;
	while (*end)
		end = &(*end)->next;
	*end = p;
	if (!running)
		start_helper();
	__atomic_fetch_add(word, 1, __ATOMIC_RELEASE);
	sim_futex_wake(word);
}

static CUresult host_func(CUstream handle, CUhostFn fn, void *data)
{
	struct task t = {.kind = TASK_HOST, .host = {.fn = fn, .data = data}};

	if (!fn)
		return CUDA_ERROR_INVALID_VALUE;
	drv_cost(COST_EVENT);
	return drv_issue(handle, &t, false);
}
TWIN(cuLaunchHostFunc, _ptsz, (CUstream hStream, CUhostFn fn, void *userData),
	host_func(PICK(hStream), fn, userData))

static CUresult add_callback(CUstream handle, CUstreamCallback callback, void *data, unsigned flags)
{
	struct task t = {.kind = TASK_HOST, .host = {.callback = callback, .data = data, .stream = handle}};
	CUstream s;
	CUresult rc;

	if (!callback || flags)
		return CUDA_ERROR_INVALID_VALUE;
	drv_lock();
	rc = drv_stream(handle, &s);
	if (rc == CUDA_SUCCESS && s->capture)
		rc = drv_capture_invalidate(s, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	drv_unlock();
	TRY(rc);
	drv_cost(COST_EVENT);
	return drv_issue(handle, &t, false);
}
TWIN(cuStreamAddCallback, _ptsz,
	(CUstream hStream, CUstreamCallback callback, void *userData, unsigned int flags),
	add_callback(PICK(hStream), callback, userData, flags))
