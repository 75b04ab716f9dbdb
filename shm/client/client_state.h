/* Inside a client. */
#ifndef ARB_CLIENT_H
#define ARB_CLIENT_H

/* In place of an account's name: all processes in a container share one account. */
#define ARB_BY_CONTAINER "@container"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>

#include "shm/segment/account.h"
#include "shm/segment/events.h"
#include "shm/segment/ledger.h"
#include "gpuarb/client.h"
#include "shm/base/lock.h"
#include "shm/base/os.h"
#include "shm/base/wakeups.h"
#include "shm/segment/residency.h"
#include "shm/segment/running.h"
#include "shm/admission/sampler.h"
#include "shm/segment/segment.h"
#include "shm/segment/settings.h"
#include "shm/segment/slot.h"

/* How long a client that needs the directory tries again: it is held for microseconds, unless its holder is stopped.
 */
#define ARB_CLIENT_PATIENCE ((struct arb_patience){.length_ns = 2000000000u})

/* In a page of its own that a forked child finds full of zeros. */
struct arb_guard {
	struct arb_process_lock lock; /* one thread at a time acts as the slot; no thread sleeps with it */
	arb_u32 joined;               /* 0 in a child: it must join for itself */
	arb_u32 parted;               /* 1: the process is about to end; it does not join again */
	arb_u32 following;            /* 1: a thread looks at the limits file */
	uint64_t carried;  /* memory held in a segment that was left, counted at the next join; under lock */
	uint64_t promised; /* the quota that this process was promised, bytes; under lock */
	uint32_t promised_request; /* the request that was promised, percent */

	/* Admission. Where both are needed, this lock is taken before `lock`; no thread sleeps while it holds it. */
	struct arb_process_lock adm;
	arb_u32 says_waits, says_holds; /* the values that our bits in the segment should have */
	arb_u64 birth;    /* tells a lease of this process from a lease that it inherited by fork() */
	uint64_t counted; /* the birth that `leases` belongs to; from here on under adm */
	uint32_t leases;  /* leases that its threads hold */
	struct arb_waiter *waiters; /* threads of this process that wait for a lease */
};

struct arb_follow;

/* What its account may use, as far as this client knows. */
struct arb_client_quota {
	uint64_t window;        /* the window that the account has been rolled to */
	uint64_t active_window; /* the window in which the account was last marked active */
	struct arb_terms terms;
	uint64_t sum;         /* the sum of the limits of all active accounts, ppm */
	uint64_t lost_window; /* the window in which `lost_ns` was read */
	uint64_t lost_busy;   /* the busy clock at the beginning of that window */
	uint32_t lost_ns;     /* the header's word at that time */
	uint32_t lost_ppm;    /* what is lost when the GPU is handed over */
	uint64_t outstanding;
	uint32_t request_ppm, weight; /* of the account, in force */
	bool shares;                  /* the quota is one by requests and weights */
};

/* Its turn at the GPU, where the policy gives turns, and its turn at the GPU's memory. */
struct arb_client_turn {
	bool taken;         /* clients take turns: the policy in force says so */
	bool outlasts;      /* its work outlasts its turn: ARB_SLOT_OUTLASTS */
	bool fresh;         /* a turn at the GPU's memory has begun, and the caller has not asked yet */
	bool noted;         /* the event of that turn's begin is written, and that of its end is not */
	bool kept;          /* the client has left, and its place was kept */
	uint64_t kept_busy; /* the busy clock when it left so */
	uint64_t began;     /* ticks; when the set was entered */
	uint64_t from;      /* ns; when its turn at the GPU's memory began; 0: it has none */
};

/* Waiting for quota or for a place; times in ns. */
struct arb_client_wait {
	arb_u32 cancels;
	uint64_t throttled_since;
	uint64_t since;
	uint64_t below_since; /* it is refused while others above it have work */
	uint64_t from;        /* `since` of the first of several waits, one right behind the other */
	uint64_t left;        /* when the last of them was given up */
	struct arb_wakeups wakeups;
};

struct arb_client_memory {
	uint64_t limit;
	uint64_t held;                        /* bytes counted for this process, by its own books */
	uint32_t pending, settled;            /* its calls that may need less than they reserved */
	enum arb_refusal refusal;             /* of the last reservation that was refused */
	struct arb_repeat refused, by_driver; /* events that a program can repeat at will; under lock */
	uint64_t most; /* bytes of the GPU that it may have at most, whatever the quota; 0: no such bound */
	uint64_t physical;      /* bytes of the GPU, as the driver told us; 0: it did not */
	arb_u32 oversubscribes; /* the setting, for callers that ask without the lock */
	arb_u32 turns;          /* the policy is memory, for callers that ask without the lock */
	uint64_t unanswered_ns; /* when a member last failed to say whether it is checkpointed */
	arb_u64 used_ns;        /* when it last said how much of the GPU is in use */
};

/* Leases; what is not under guard->lock is under guard->adm or read without a lock. */
struct arb_client_admission {
	struct gpuarb_class_rules classes[ARB_CLASSES];
	unsigned highest; /* the highest priority of a class */
	struct arb_sampler sampler;
	bool leasing;           /* a thread asks whether there is a place for a lease, without a launch */
	bool tracked;           /* the preload enters and leaves the running set for it */
	arb_u32 class_priority; /* the highest priority of its waits and leases; 0: none */
	arb_u32 base_priority;  /* the account's */
	struct arb_repeat skipped, timeouts; /* under guard->lock */
	/* Under guard->adm: when its tasks last looked, and since when waiters of others were ahead at every look. */
	uint64_t behind_looked_ns, behind_since_ns;
	struct arb_wakeups wakeups;
};

/* How it looks after the segment and its other clients. */
struct arb_client_patrol {
	uint64_t checked_ns;
	uint32_t scrubbed; /* the slot that was scrubbed last; ARB_NONE: begin again */
	struct arb_busy looked;
	uint64_t kicked_ns;
	uint32_t slot,
		set_slot; /* looked at last, of all slots and of the set's; ARB_NONE: from the first on */
};

/* Its standing in an account that belongs to another owner, and what was refused. */
struct arb_client_standing {
	bool guest;                      /* it is a guest in its account: its limits bind only itself */
	uint64_t window, cap;            /* of a guest: the window, and how far its usage may go in it */
	struct gpuarb_error turned_away; /* code 0: it was not turned away */
	/* Why its quota could not be promised, after -EDQUOT; or how many slots its owner has, after -EUSERS. */
	struct gpuarb_error denied;
};

/* What the client gets while others hold it up: floor.c. Times are in ns, the usage of its account in ticks. */
struct arb_client_floor {
	uint64_t since_ns, used;         /* when the measurement began; 0: none has begun */
	uint64_t looked_ns, looked_used; /* at the last look */
	uint64_t stopped_ns;             /* when it was last held up, or would have been */
	uint64_t held_ns;                /* for how long it was held up since the measurement began */
	uint64_t missed_ns;              /* what it has missed so far */
	uint64_t queued_ns, waited_ns;   /* since when it stands in the queue, and its last look from there */
	uint64_t bound_ns;               /* how long it waits there at most, found once for each wait */
	uint64_t vain_ns;                /* since when it counts waits for nothing (arb_floor_in_vain) */
	unsigned vain;                   /* how many such waits there were since then */
	uint64_t quiet_ns;               /* for how long it goes on after it was last held up */
	bool stopped;                    /* it was held up at the last look */
	bool by_turn;                    /* since the measurement began it has waited for its turn, */
	bool cut;                        /* and a turn of its own was cut short */
	uint32_t highest;                /* the highest priority of others since the measurement began */
	uint32_t level_with;             /* the priority with which it waits for its turns; 0: its own */
	bool keeps;                      /* it goes on although others come before it */
	uint32_t ppm;                    /* its part if no client came before another */
};

/* What this client asks for; 0: nothing. */
struct arb_client_asked {
	unsigned core_pct, request_pct, weight, priority;
	uint64_t mem_bytes;
};

/* How it was opened, in case it has to open again. */
struct arb_client_opened {
	bool closed;               /* on_error */
	struct arb_follow *follow; /* NULL: there is no limits file */
	bool own_account;
	bool by_container; /* the account's name is that of the container */
	bool unbiased;
	bool ignore_env;
	uint64_t return_ns; /* while it is alone: when it looks again whether the segment can be used */
	/* The limit that it asked for before it went on alone, and the limit that was in force then and that it
	 * keeps; 0: the two are equal. */
	unsigned core_before, core_kept;
	uint64_t mem_before, mem_kept;
	char *conf;
	char name[ARB_NAME_BYTES];
	char gpu[ARB_UUID_BYTES];
	char dir[PATH_MAX];
};

/* How it compares the segment with what it knows of itself, and what it has restored there: restore.c. */
struct arb_client_restoring {
	uint64_t looked_ns;     /* when it last compared */
	uint32_t times;         /* how often it found a difference */
	uint32_t told_times;    /* the value of `times` when it was last asked for the words */
	uint32_t what;          /* ARB_RESTORED_*: what differed since then */
	struct arb_repeat told; /* the event of that */
};

struct gpuarb_client {
	/* What a transition needs, close together: a client that was asleep finds its caches cold. */
	struct arb_guard *guard;
	struct arb_actor me;
	uint32_t account;
	uint32_t epoch;
	uint32_t joins; /* how often it has joined: tells its slots apart, also in another segment */
	uint64_t control_epoch;
	struct arb_move move; /* for the next transition; mostly as for the last one */
	bool have_control;
	bool running;
	enum arb_policy policy; /* in force: that of the rules, or turns where the GPU alternates */
	struct arb_client_quota quota;
	struct arb_client_turn turn;
	struct arb_client_wait wait;
	struct arb_client_floor floor;
	struct arb_client_patrol patrol;
	struct arb_client_memory mem;
	struct arb_rules rules;

	struct arb_client_admission admission;
	struct arb_client_standing standing;
	struct arb_client_restoring restoring;
	struct arb_ledger ledger;
	struct arb_client_asked asked;
	struct arb_client_opened opened;

	void *lock_page; /* as long as it is mapped, the slot is ours */
	int *lock_fd;    /* where to put the descriptor as well; NULL: it is not wanted */
	struct arb_segment seg;
	struct arb_control_map control;
};

/*
 * All of these are called under the lock, and none sleeps: -EBUSY if another process holds the directory, which has
 * to be locked to join and to repair garbage. A caller that can wait for the directory does
 *
 *	do r = ...; while (r == -EBUSY && arb_client_breathe(c, &patience));
 *
 * After each arb_client_breathe() the caller finds the client as other threads have left it.
 */
int arb_client_join(struct gpuarb_client *c);
/*
 * If both can be promised, asks in the client's slot for a quota of `bytes` and a request of `request_pct` percent
 * (0: none). -EDQUOT: there is no room, c->denied says why, and nothing has changed; -EBUSY: another process makes
 * promises now.
 */
int arb_client_promise(struct gpuarb_client *c, uint64_t bytes, unsigned request_pct);
/* Promises what the client has asked for already, if the GPU's memory was not known when it asked. */
int arb_client_promise_again(struct gpuarb_client *c);
/* Maps the control segment, which may be made or replaced while clients run. */
void arb_client_find_control(struct gpuarb_client *c);
/* Reads what the account may have; called when it may have changed. */
void arb_client_follow_account(struct gpuarb_client *c);
/* Reads settings and limits again, and applies them. */
int arb_client_refresh(struct gpuarb_client *c);
/*
 * If the client was stopped while in the set, and no other client was there to evict it, takes it out as of its last
 * heartbeat and grace_ms. A bill must not depend on neighbours: a client that was stopped for a night would owe
 * hours. Called before its next heartbeat.
 */
void arb_client_leave_as_hung(struct gpuarb_client *c);
/*
 * Brings the window and the account's caps up to date, as of `at_ns` (0: now). Every transition that finds
 * itself in another window than c->quota.window comes here first, so that an account has been rolled before any of
 * its members changes its usage in the new window.
 */
int arb_client_roll(
	struct gpuarb_client *c, uint64_t at_ns, struct arb_snap *snap, struct arb_account_snap *acct);

/* Restores the client's own words if another process has written over them; compares them every 100 ms at most. The client
 * has joined. */
void arb_client_restore(struct gpuarb_client *c, uint64_t now_ns);

/* Called when another client should have handed over by now: probes whether the clients that it waits for still
 * live. */
int arb_client_patrol(struct gpuarb_client *c);
/* Probes a few slots, each time from where the last look ended. */
void arb_client_scrub(struct gpuarb_client *c);
/* Cleans up behind dead members of its own account: what a dead member asked for must not bind the living. */
void arb_client_members(struct gpuarb_client *c);
/* Probes the next member of the set. */
int arb_client_neighbour(struct gpuarb_client *c, const struct arb_snap *snap, uint64_t now_ns);

/* Releases the lock for a moment. False: the time is over, or trying again would be in vain. */
bool arb_client_breathe(struct gpuarb_client *c, struct arb_patience *patience);

/* Work as gpuarb_client_enter and gpuarb_client_leave, but return -EBUSY instead of sleeping, for callers that hold
 * the admission lock. */
int arb_client_enter_now(struct gpuarb_client *c);
int arb_client_leave_now(struct gpuarb_client *c);

/* Writes the name of the account that @container stands for. */
void arb_client_container_name(const struct arb_os_identity *id, char name[ARB_NAME_BYTES]);
/* Writes the name of the account of a client with own_account into c->name. */
void arb_client_own_name(struct gpuarb_client *c, const struct arb_os_identity *id);

/* Finds out what the options and the settings say, and where the segments are, before anything is opened. */
int arb_client_describe(struct gpuarb_client *c, const struct gpuarb_options *o,
	const struct gpuarb_config *config, struct gpuarb_error *err);
const char *arb_client_dir(const struct gpuarb_options *o);

/* Before joining: takes the first look at the limits file. Afterwards it is looked at from time to time, without the
 * lock. */
int arb_client_follow_open(struct gpuarb_client *c, const char *path, struct gpuarb_error *err);
void arb_client_follow_look(struct gpuarb_client *c, uint64_t now_ns);

static inline void arb_client_follow(struct gpuarb_client *c)
{
	if (__builtin_expect(c->opened.follow != NULL, 0))
		arb_client_follow_look(c, arb_os_now_ns());
}

/* Works as gpuarb_client_wait, until a time of arb_os_now_ns(), however long it takes to get that far; without the
 * lock. for_lease: the caller writes the event if the wait is in vain. */
int arb_client_wait_until(
	struct gpuarb_client *c, const struct gpuarb_work *work, uint64_t until_ns, bool for_lease);

/* Ticks as of at_ns (0: now): gpuarb_client_tick_status says what that means. */
int arb_client_tick(struct gpuarb_client *c, uint64_t at_ns);

/* Writes events that were held back because they repeat: those that are due, or all `now`. */
void arb_client_note_rest(struct gpuarb_client *c, bool now);

/* Called after memory was freed: there may be room for a waiter. */
void arb_client_memory_freed(struct gpuarb_client *c);
/* Completes the rules by what is known of the GPU. */
void arb_client_know_memory(struct gpuarb_client *c);
/* No GPU has more bytes than this: a larger value is garbage. */
#define ARB_PHYSICAL_MOST (1ull << 50)
/* Fills in limit and left from the other fields; `most`: c->mem_most. */
void arb_client_tell_memory(struct gpuarb_client_memory *memory, uint64_t most);

/* Where memory decides: what the decision depends on, and the turns at the memory, which begin after the set was
 * entered and end before it is left. */
static inline struct arb_residency arb_turn_residency(
	const struct gpuarb_client *c, const struct arb_snap *snap, uint64_t now_ns)
{
	return (struct arb_residency){&c->seg, &c->rules, snap, now_ns};
}
void arb_turn_begin(struct gpuarb_client *c, const struct arb_snap *snap);
void arb_turn_end(struct gpuarb_client *c);

/* Returns what decides the order of those that wait. */
static inline struct arb_order arb_turn_order(const struct gpuarb_client *c, uint64_t now_ns)
{
	return (struct arb_order){now_ns, c->rules.max_wait_ns, c->rules.grace_ns};
}
/* Returns how long its turn lasts while others wait for theirs; UINT64_MAX: no other client waits. */
uint64_t arb_turn_left_ns(const struct gpuarb_client *c, const struct arb_snap *snap, uint64_t now_ns);
/* Returns how many members a client has to wait for, where turns are taken. Members whose work outlasts their turns do not
 * count. Where turns are taken only because the GPU alternates, stopped members do not count either: those that were not
 * heard of for ARB_ABOVE_HEARD_NS. */
uint32_t arb_turn_in_the_way(const struct gpuarb_client *c, const struct arb_snap *snap, uint64_t now_ns);
/* Is its turn over, because others wait or a client is above it? */
bool arb_turn_over(const struct gpuarb_client *c, const struct arb_snap *snap, uint64_t now_ns);
/* Returns for how long its place may be kept after it has left: no longer than its quota and its turn last. */
uint64_t arb_turn_keep_ns(struct gpuarb_client *c, uint64_t keep_ns);
/* Marks its account active in this window. */
void arb_turn_active(struct gpuarb_client *c);

/* The functions of struct arb_move. */
arb_choose_fn arb_turn_choose;
arb_admit_fn arb_turn_admit;

static inline struct arb_slot *arb_client_slot(struct gpuarb_client *c)
{
	return &c->seg.slots[c->me.slot];
}

/* The priority of a client that names none. */
#define ARB_PRIORITY 50u

/* Others need not wait for a client whose work outlasts its turn, nor for one that does not take turns. */
static inline void arb_client_show_outlasts(struct gpuarb_client *c)
{
	arb_u32 *flags = &arb_client_slot(c)->flags;
	bool on = c->turn.outlasts || c->floor.keeps;

	arb_store32(flags, (arb_load32(flags) & ~ARB_SLOT_OUTLASTS) | (on ? ARB_SLOT_OUTLASTS : 0));
}

/* From now on all clients of this GPU look at levels, requests and weights. */
static inline void arb_client_ranks(struct gpuarb_client *c)
{
	if (!arb_hint32(&c->seg.header->ranks)) {
		arb_store32(&c->seg.header->ranks, 1);
		arb_add32_full(&c->seg.header->epoch, 1);
	}
}

/* A task's class stands above the account's priority. */
static inline uint32_t arb_client_priority(struct gpuarb_client *c)
{
	uint32_t of_class = arb_load32(&c->admission.class_priority);

	return of_class ? of_class : arb_load32(&c->admission.base_priority);
}

/* Shows the priority by which the client waits for its turn. The level by which it stops others follows its own
 * priority alone. */
static inline void arb_client_show_priority(struct gpuarb_client *c)
{
	uint32_t priority = arb_client_priority(c);

	if (priority < c->floor.level_with)
		priority = c->floor.level_with;
	arb_store32(&arb_client_slot(c)->priority, priority);
	if (priority != ARB_PRIORITY)
		arb_client_ranks(c);
}

/* Fills in what changes from one transition to the next; the rest is set where the settings are read. */
static inline struct arb_move *arb_client_move(struct gpuarb_client *c, uint64_t at_ns)
{
	uint64_t now = arb_os_now_ns();

	/* A client may date a transition back to what it measured, never ahead. */
	if (!at_ns || at_ns > now)
		at_ns = now;
	c->move.now = now * ARB_TICKS_PER_NS;
	c->move.at = at_ns * ARB_TICKS_PER_NS;
	c->move.window = c->quota.window;
	return &c->move;
}

/* Joins if need be, and follows what an administrator or other accounts have changed. */
static inline int arb_client_ensure(struct gpuarb_client *c)
{
	if (__builtin_expect(!arb_load32(&c->guard->joined), 0))
		return arb_load32(&c->guard->parted) ? -ESHUTDOWN : arb_client_join(c);
	if (__builtin_expect(
		    arb_load32(&c->seg.header->epoch) != c->epoch ||
			    (c->have_control && arb_settings_epoch(c->control.control) != c->control_epoch),
		    0))
		return arb_client_refresh(c);
	return 0;
}

#endif
