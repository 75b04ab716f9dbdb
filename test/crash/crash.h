/* Kills a client at every instruction: what the victim does (crash_ops.c), which processes survive it and what must
 * then hold for them (crash_world.c), and the loop over all boundaries between instructions (crash_kill.c). */
#ifndef CRASH_H
#define CRASH_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "shm/client/client_state.h"
#include "gpuarb/client.h"
#include "units.h"

/* The time in which a survivor must have the lease: a reservation and a few looks, far less than an eviction takes.
 */
#define LEASE_BOUND_NS (100 * MS)

/* What happens when a victim or a corpse goes to sleep on its futex. */
enum crash_sleep {
	SLEEP_TIMES_OUT, /* returns at once, with the clock moved on */
	SLEEP_BEGINS,    /* the stretch that is stepped begins when it wakes up */
	SLEEP_ENDS,      /* ... or ends where it falls asleep */
	SLEEP_STOPS,     /* a corpse: stopped there, and killed later */
};

struct world;

/*
 * One operation, and steps that bring about the state in which it happens: `arrange` (done by the survivors),
 * `corpse` (a process that stops, sees `between` happen around it and is killed), `prepare` (the victim, not
 * stepped), `before` (the survivors, while the victim stands at the beginning of `operate`).
 */
struct crash_op {
	const char *name;
	const char *policy;    /* concurrent if NULL */
	const char *b_account; /* of a second survivor */
	unsigned slots;        /* 6 if 0 */
	enum crash_sleep sleep, corpse_sleep;
	unsigned corpse_steps; /* it dies at random, at most this many instructions after its stepper_begin */
	bool forgets; /* accounts change their names, so no account has what was used under the old names */
	bool waits;   /* the second survivor waits for the lease while the victim is killed */
	bool is_long; /* takes long: tried only with --all */
	bool has_many; /* tens of thousands of instructions: with --pause tried only if --all is given as well */
	bool borrows; /* borrow = idle */
	bool moves;   /* while the victim is held up the second survivor goes to another account, and back */
	bool creates; /* there is no segment before, and no survivor */
	bool real;    /* real clock and futex */
	bool asleep;  /* killed at any time while it goes on freely, mostly inside the kernel */
	void (*arrange)(struct world *w);
	void (*corpse)(struct world *w);
	void (*between)(struct world *w);
	void (*prepare)(struct world *w);
	void (*before)(struct world *w);
	void (*operate)(struct world *w);
	/* Before anything is checked in this segment: puts right what only the dead could have. */
	void (*mend)(struct world *w, struct arb_segment *seg);
	void (*each)(struct world *w);  /* what must hold at each boundary */
	void (*after)(struct world *w); /* what must hold afterwards, besides what must always hold */
};

/* Checks for some operations, besides those that always apply (crash_after.c). */
void each_settings(struct world *w);
void after_settings(struct world *w);
void after_event(struct world *w);
void after_eviction(struct world *w);
void after_memory(struct world *w);
void after_limits(struct world *w);
void after_naming(struct world *w);
void after_creation(struct world *w);
/* Leases (crash_admission.c). */
void lease_normal(struct world *w);
void lease_pressure(struct world *w);
void lease_join(struct world *w);
void lease_join_hold(struct world *w);
void lease_join_wait(struct world *w);
void lease_acquire(struct world *w);
void lease_release(struct world *w);
void lease_wait_in_vain(struct world *w);
void lease_wait(struct world *w);
void lease_held(struct world *w);
void lease_let_go(struct world *w);
void lease_sample(struct world *w);
void lease_hint(struct world *w);
void lease_after(struct world *w);
/* Priorities and requests (crash_above.c). */
void above_high(struct world *w);
void above_low(struct world *w);
void above_request(struct world *w);
void above_class(struct world *w);
void above_comes(struct world *w);
void above_stop(struct world *w);
void above_lease(struct world *w);
/* Words that somebody else wrote over (crash_restore.c). */
void restore_slot_forged(struct world *w);
void restore_slot_mend(struct world *w, struct arb_segment *seg);
void restore_record_forged(struct world *w);
void restore_record_mend(struct world *w, struct arb_segment *seg);
/* Turns at the GPU's memory, and promises of it (crash_memory.c). */
void turn_others(struct world *w);
void turn_join(struct world *w);
void turn_join_run(struct world *w);
void turn_wait(struct world *w);
void turn_end(struct world *w);
void turn_shrink(struct world *w);
void turn_say_used(struct world *w);
void promise_make(struct world *w);
void promise_join(struct world *w);
void promise_join_little(struct world *w);
void promise_more(struct world *w);
void promise_set(struct world *w);
void promise_after(struct world *w);
/* A pair of settings that belong together, so that a mixture of two copies shows. */
#define CRASH_RESERVE_US(odd) ((odd) ? 2000 : 1000)
#define CRASH_CORE_PCT(odd)   ((odd) ? 20 : 10)
void crash_draft(struct world *w);
int crash_publish(struct world *w);

extern const struct crash_op crash_ops[];
extern const unsigned crash_nops;

/* What main reports of an operation, in memory that all processes share. */
struct crash_tally {
	uint64_t boundaries; /* instructions of the operation, and its end */
	uint64_t kills;      /* SIGKILLs at distinct boundaries */
	uint64_t drifted;    /* kills where the child had taken another path than the recorded one */
	uint64_t states;     /* copies of the segment that were recovered */
	uint64_t violations;
	bool done;
};

struct world {
	const struct crash_op *op;
	struct crash_tally *tally;
	char dir[256];
	char gpu[64];
	unsigned serial;
	struct gpuarb_client *a, *b; /* survivors */
	uint64_t a_bytes, b_bytes;   /* memory they hold */
	struct gpuarb_client *v;     /* in the victim: itself */
	struct arb_segment copy;
	struct arb_control_map admin; /* in an administrator */
	struct arb_control_copy *draft;
	uint64_t events_before;
	unsigned runs;
	/* For messages. */
	size_t step;
	uint64_t address;
	unsigned said;
	bool broken;
};

/* Starts the clock that all processes of a test see. Each reading moves it by a microsecond. */
void world_clock_start(void);
void world_clock_skip(uint64_t ns);
uint64_t world_clock_now(void);
void world_clock_set(uint64_t ns);

/* Opens a client in this world. A failure is fatal in the victim and in corpses. */
struct gpuarb_client *world_client(
	struct world *w, const char *account, unsigned core_pct, uint64_t mem_bytes);
void world_must(int r, const char *what);

void world_open(struct world *w);
void world_close(struct world *w);
void world_remove(const char *dir);
/* Puts all survivors at the same point of a window, idle. */
void world_align(struct world *w);
/* Lets another process die before the victim comes. */
void world_bury(struct world *w);
void world_child(void *world);

/* Checks all that must hold after a kill. */
void world_recover(struct world *w);
/* Lets a survivor wait; calls `meanwhile` as soon as it sleeps. */
void world_wait(struct world *w, void (*meanwhile)(struct world *w));
/* Lets the survivors do something while the victim is held up. */
void world_disturb(struct world *w);
/* True while victims are held up (--pause). Then an operation may end otherwise than it would alone. */
extern bool crash_pausing;
/* Copies the segment as it is now and recovers the copy, in which every client is dead. */
void world_recover_copy(struct world *w);

__attribute__((format(printf, 2, 3))) void world_wrong(struct world *w, const char *format, ...);

#endif
