/*
 * From a call to the model. An op is written into the stream's ring without any shared lock, with the
 * time of its submission. This process carries out its effect on memory when it notices that the op is
 * complete, in the order in which the model completed ops.
 */
#include "test/sim/driver/driver.h"

#include <sys/prctl.h>

#define SPIN_NS      8000
#define LATE_MAX_NS  40000
#define LATE_SEEN_NS 200000
#define BATCH_NS     200000
#define ROOM         8 /* ops that one call may push without looking again */

static void announce(CUstream s)
{
	struct sim_file *f = sim_shm.file;

	if (__atomic_load_n(&s->r->listed, __ATOMIC_SEQ_CST))
		return;
	__atomic_fetch_or(&f->announced[s->ring / 64], 1ULL << (s->ring % 64), __ATOMIC_SEQ_CST);
	__atomic_store_n(&f->dirty, 1, __ATOMIC_SEQ_CST);
}

/* Waits for a free place in the ring: a place is used again once the effect of its op has been collected. */
static void make_room(CUstream s)
{
	while (s->tail - s->fx_head > SIM_RING_OPS - ROOM) {
		drv_collect();
		if (s->tail - s->fx_head <= SIM_RING_OPS - ROOM)
			return;
		drv_unlock();
		drv_wait_count(s->ring, s->gen, s->fx_head + 64);
		drv_lock();
	}
}

static uint64_t push_raw(CUstream s, const struct sim_op *op, struct effect fx)
{
	struct sim_op *at;

	if (s->tail - s->fx_head > SIM_RING_OPS - ROOM)
		make_room(s);
	at = sim_op_at(s->ring, s->tail);
	s->work += op->work;
	*at = *op;
	at->cum_work = s->work;
	at->submit_ns = sim_stamp_ns() + drv.start_ns;
	s->fx[s->tail & (SIM_RING_OPS - 1)] = fx;
	if (fx.kind != FX_NONE) {
		s->fx_pending++;
		drv.fx_pending++;
	}
	__atomic_store_n(&s->r->pushed_work, s->work, __ATOMIC_RELAXED);
	s->tail++;
	__atomic_store_n(&s->r->tail, s->tail, __ATOMIC_SEQ_CST);
	announce(s);
	return s->tail;
}

void drv_push_wait(CUstream s, uint32_t ring, uint32_t gen, uint64_t count)
{
	struct sim_op op = {.kind = SIM_OP_WAIT, .wait = {.ring = ring, .gen = gen, .seq = count}};

	if (ring == s->ring)
		return;
	push_raw(s, &op, (struct effect){0});
}

/*
 * The legacy default stream waits for all work that was submitted before to the blocking streams of its
 * context, and later work in these streams waits for it.
 */
static void order(CUstream s)
{
	CUcontext ctx = s->ctx;
	CUstream legacy = ctx->legacy_stream;

	if (s->legacy) {
		for (CUstream t = drv.streams; t; t = t->next) {
			if (t->ctx != ctx || !t->touched)
				continue;
			t->touched = false;
			if (__atomic_load_n(&t->r->head, __ATOMIC_ACQUIRE) < t->tail)
				drv_push_wait(s, t->ring, t->gen, t->tail);
		}
		ctx->touched = false;
		return;
	}
	if (!s->touched) {
		s->touched = true;
		ctx->touched = true;
	}
	if (legacy && legacy->tail > s->legacy_tail) {
		s->legacy_tail = legacy->tail;
		if (__atomic_load_n(&legacy->r->head, __ATOMIC_ACQUIRE) < legacy->tail)
			drv_push_wait(s, legacy->ring, legacy->gen, legacy->tail);
	}
}

static inline uint64_t push(CUstream s, const struct sim_op *op, struct effect fx)
{
	if (s->blocking && (!s->legacy || s->ctx->touched))
		order(s);
	return push_raw(s, op, fx);
}

uint64_t drv_push(CUstream s, struct sim_op op, struct effect fx)
{
	return push(s, &op, fx);
}

uint64_t drv_marker(CUstream s)
{
	return drv_push(s, (struct sim_op){.kind = SIM_OP_NOP}, (struct effect){0});
}

/* Blocks while the stream has its full number of unfinished launches. */
void drv_launch_room(CUstream s)
{
	while (s->launches - __atomic_load_n(&s->r->launches_done, __ATOMIC_RELAXED) >= SIM_MAX_QUEUED) {
		uint64_t head = __atomic_load_n(&s->r->head, __ATOMIC_ACQUIRE);
		uint64_t done = sim_op_at(s->ring, head)->cum_work, count = head + 1;
		uint32_t ring = s->ring, gen = s->gen;

		/* One sleep for several short kernels keeps the queue long and saves wake-ups. */
		while (count < head + 64 && count + 1 < s->tail &&
			sim_op_at(ring, count)->cum_work - done < (uint64_t)BATCH_NS * SIM_UNIT)
			count++;
		drv_unlock();
		drv_wait_count(ring, gen, count);
		drv_lock();
	}
}

static struct effect keep(const struct task *t)
{
	struct task *copy = malloc(sizeof(*copy));

	if (!copy)
		return (struct effect){0};
	*copy = *t;
	return (struct effect){FX_TASK, copy};
}

/* Submits a kernel that waits on the device before its work begins. */
static CUresult push_waiting(
	CUstream s, struct sim_op *op, const struct builtin *builtin, const uint64_t *args)
{
	struct task value = {.kind = TASK_MEMOP,
		.memop = {.addr = args[1], .value = args[2], .how = CU_STREAM_WAIT_VALUE_GEQ, .wait = true}};

	if (builtin->waits == WAITS_FOR_RANKS) {
		if (!args[3] || args[3] > SIM_MAX_RANKS || args[2] >= args[3])
			return CUDA_ERROR_INVALID_VALUE;
		op->flags |= SIM_OP_MEET;
		op->meet.group = args[1];
		op->meet.rank = (uint16_t)args[2];
		op->meet.ranks = (uint16_t)args[3];
		s->launches++;
		drv_push(s, *op, (struct effect){0});
		return CUDA_SUCCESS;
	}
	if (!args[1] || args[1] % 4 || !drv_alloc_find(args[1]))
		return CUDA_ERROR_INVALID_VALUE;
	op->flags |= SIM_OP_VALUE;
	s->launches++;
	drv_host_add(s, drv_push(s, *op, (struct effect){0}), &value);
	return CUDA_SUCCESS;
}

/* Returns what this process must do when a kernel that computes or faults has ended. */
static struct effect keep_kernel(CUfunction fn, const uint64_t *args)
{
	struct task t = {.kind = TASK_KERNEL, .kernel = {.fn = fn}};

	memcpy(t.kernel.args, args, sizeof(t.kernel.args));
	return keep(&t);
}

CUresult drv_kernel(CUstream s, CUfunction fn, const uint64_t *args, unsigned flags)
{
	const struct builtin *b = fn->builtin;
	unsigned occupancy;
	uint64_t work = drv_kernel_work(fn, args, &occupancy);
	struct sim_op op = {.kind = SIM_OP_KERNEL,
		.flags = (uint16_t)(flags | SIM_OP_LAUNCH),
		.work = work,
		.occupancy = (uint16_t)occupancy};
	struct effect fx = {0};

	if (b && b->waits != RUNS_AT_ONCE)
		return push_waiting(s, &op, b, args);
	if (b && (b->run || b->faults))
		fx = keep_kernel(fn, args);
	s->launches++;
	push(s, &op, fx);
	return CUDA_SUCCESS;
}

CUresult drv_task(CUstream s, const struct task *t, unsigned flags)
{
	struct sim_op op = {.flags = (uint16_t)flags};
	struct effect fx = {0};

	switch (t->kind) {
	case TASK_KERNEL:
		return drv_kernel(s, t->kernel.fn, t->kernel.args, flags);
	case TASK_COPY:
		drv_copy_cost(t, &op);
		fx = keep(t);
		break;
	case TASK_MEMSET:
		op.kind = SIM_OP_KERNEL;
		op.flags |= SIM_OP_MEMSET;
		op.occupancy = 1000;
		op.bytes = t->set.width * t->set.elementSize * t->set.height;
		op.work = (uint64_t)(((double)op.bytes / drv.set->mem_gbps + 1000) * SIM_UNIT);
		fx = keep(t);
		break;
	case TASK_MIGRATE:
		op.kind = t->migrate.in ? SIM_OP_H2D : SIM_OP_D2H;
		op.flags |= SIM_OP_MIGRATE;
		op.bytes = t->migrate.bytes;
		op.work = (uint64_t)((double)op.bytes / drv.set->page_gbps * SIM_UNIT);
		break;
	case TASK_MEMOP:
	case TASK_HOST:
		op.kind = SIM_OP_HOST;
		drv_host_add(s, drv_push(s, op, fx), t);
		return CUDA_SUCCESS;
	case TASK_RECORD:
		drv_event_record(t->event, s);
		return CUDA_SUCCESS;
	case TASK_WAIT:
		if (t->event->recorded && !t->event->done)
			drv_push_wait(s, t->event->ring, t->event->gen, t->event->count);
		return CUDA_SUCCESS;
	case TASK_CHILD:
		return CUDA_ERROR_INVALID_VALUE; /* children are flattened when a graph is instantiated */
	case TASK_FREE:
	case TASK_PUT:
		fx = keep(t);
		break;
	default:
		break;
	}
	push(s, &op, fx);
	return CUDA_SUCCESS;
}

static void run_effect(CUstream s, uint64_t count, struct effect fx)
{
	CUevent e = fx.what;
	struct task *t = fx.what;

	if (fx.kind == FX_EVENT) {
		if (e->ring == s->ring && e->gen == s->gen && e->count == count + 1) {
			e->end_ns = sim_op_at(s->ring, count)->end_ns;
			e->done = true;
		}
		drv_event_put(e);
		return;
	}
	switch (t->kind) {
	case TASK_KERNEL:
		if (t->kernel.fn->builtin->faults)
			s->ctx->sticky = CUDA_ERROR_ILLEGAL_ADDRESS;
		else
			t->kernel.fn->builtin->run(t->kernel.args);
		break;
	case TASK_COPY:
		drv_copy_run(t);
		free(t->copy.staged);
		break;
	case TASK_MEMSET:
		drv_memset_run(&t->set);
		break;
	case TASK_FREE:
		drv_pool_freed(t->free);
		break;
	case TASK_PUT:
		drv_graphmem_put(t->free);
		break;
	default:
		break;
	}
	free(t);
}

/* Finds the next effect of a stream whose op is complete; skips ops without effects. */
static bool next_effect(CUstream s, uint64_t *order_seq)
{
	uint64_t head = __atomic_load_n(&s->r->head, __ATOMIC_ACQUIRE);

	if (!s->fx_pending) {
		s->fx_head = head;
		return false;
	}
	while (s->fx_head < head && s->fx[s->fx_head & (SIM_RING_OPS - 1)].kind == FX_NONE)
		s->fx_head++;
	if (s->fx_head == head)
		return false;
	*order_seq = sim_op_at(s->ring, s->fx_head)->done_seq;
	return true;
}

void drv_collect(void)
{
	for (;;) {
		CUstream first = NULL;
		uint64_t lowest = UINT64_MAX, seq;
		struct effect *fx;

		for (CUstream s = drv.streams; s; s = s->next) {
			if (next_effect(s, &seq) && seq < lowest) {
				lowest = seq;
				first = s;
			}
		}
		if (!first)
			return;
		fx = &first->fx[first->fx_head & (SIM_RING_OPS - 1)];
		run_effect(first, first->fx_head, *fx);
		fx->kind = FX_NONE;
		first->fx_head++;
		first->fx_pending--;
		drv.fx_pending--;
	}
}

bool drv_reached(uint32_t ring, uint32_t gen, uint64_t count)
{
	struct sim_file *f = sim_shm.file;
	struct sim_ring *r = &f->ring[ring];
	uint64_t now;

	if (__atomic_load_n(&r->head, __ATOMIC_ACQUIRE) >= count || r->gen != gen)
		return true;
	now = sim_clock_ns();
	if (now < __atomic_load_n(&f->next_ns, __ATOMIC_RELAXED) &&
		!__atomic_load_n(&f->dirty, __ATOMIC_ACQUIRE))
		return false;
	sim_lock();
	sim_engine_advance(sim_clock_ns());
	sim_unlock();
	return __atomic_load_n(&r->head, __ATOMIC_ACQUIRE) >= count || r->gen != gen;
}

/*
 * A sleep ends late by the time that the machine takes to wake a thread. If that time is short, the sleep is shortened
 * by it and the rest is spun. If it is long, the CPU is needed for other work.
 */
static void sleep_until(uint32_t *word, uint32_t value, uint64_t until_ns)
{
	static __thread double late_ns;
	static __thread bool exact;
	uint64_t now = sim_clock_ns();
	uint64_t lead = late_ns < LATE_MAX_NS ? (uint64_t)late_ns : 0;

	/* The default slack of 50 us would be added to every wait for a kernel. */
	if (!exact) {
		prctl(PR_SET_TIMERSLACK, 1000);
		exact = true;
	}
	if (until_ns > now + lead + SPIN_NS) {
		uint64_t alarm_ns = until_ns - lead;

		sim_futex_wait(word, value, alarm_ns);
		now = sim_clock_ns();
		if (now >= alarm_ns)
			late_ns += ((double)(now - alarm_ns < LATE_SEEN_NS ? now - alarm_ns : LATE_SEEN_NS) -
					   late_ns) /
				   8;
		if (now < alarm_ns)
			return; /* woken: the caller looks again */
	}
	while (sim_clock_ns() < until_ns && __atomic_load_n(word, __ATOMIC_RELAXED) == value)
		;
}

void drv_wait_count(uint32_t ring, uint32_t gen, uint64_t count)
{
	struct sim_ring *r = &sim_shm.file->ring[ring];

	while (__atomic_load_n(&r->head, __ATOMIC_ACQUIRE) < count && r->gen == gen) {
		uint64_t until;
		uint32_t value;

		sim_lock();
		sim_engine_advance(sim_clock_ns());
		if (r->head >= count || r->gen != gen) {
			sim_unlock();
			return;
		}
		value = r->wake;
		if (!r->waited || r->waited > count)
			r->waited = count;
		until = sim_engine_predict(ring, count);
		sim_unlock();
		sleep_until(&r->wake, value, until);
	}
}

CUresult drv_issue(CUstream handle, const struct task *task, bool wait)
{
	CUstream s;
	CUresult rc;
	uint64_t count;

	drv_lock();
	rc = drv_stream(handle, &s);
	if (rc != CUDA_SUCCESS)
		goto out;
	if (s->capture) {
		rc = wait ? drv_capture_invalidate(s, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)
			  : drv_capture_task(s, task);
		goto out;
	}
	rc = drv_task(s, task, 0);
	if (rc != CUDA_SUCCESS || !wait)
		goto out;
	count = s->tail;
	drv_unlock();
	drv_wait_count(s->ring, s->gen, count);
	drv_lock();
	drv_collect();
	rc = s->ctx->sticky;
out:
	drv_unlock();
	return rc;
}
