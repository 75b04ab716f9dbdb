/* Attacks of a neighbour on a segment that it may open, or on its directory. */
#ifndef TEST_HOSTILE_H
#define TEST_HOSTILE_H

#include <stdbool.h>

#include "shm/segment/segment.h"

/* What an attack is given. */
struct target {
	const char *dir;        /* GPUARB_DIR */
	const char *state;      /* path of the state segment */
	const char *build;      /* where the programs are */
	struct arb_segment seg; /* mapped read-write; header is NULL if the attacker may not write */
	uint32_t slot;          /* the victim's slot */
	uint32_t account;       /* the victim's account */
};

enum who {
	MEMBER,    /* another user of the group, who may write the segment */
	LOOKER,    /* another user, who may only read the segment */
	CONTAINER, /* root in the directory of the segments, as root of a container is */
};

struct attack {
	const char *name;
	const char *what; /* in words */
	enum who who;
	/* `once` attacks once; `again` is called every millisecond until the end of the attack. */
	void (*once)(struct target *t);
	void (*again)(struct target *t);
	const char *conf; /* arbiter.conf; NULL: nothing */
	bool replace;     /* the administrator runs gpuarb-node --replace afterwards */
	bool quick;       /* part of the short run */
	/* Four more programs run, two with a handler of their own for SIGBUS, and gpuarb-top: all must live. Their
	 * shares are not judged here. */
	bool others;
	/* The segment stays unusable, so all are alone with their limits: two whose windows begin at the same moments have
	 * the GPU at the same times, and each gets half as much as long as both have work. */
	bool alone;
	bool joins;   /* a newcomer comes while the attack lasts, not after it */
	bool leases;  /* a task that asks for a lease meanwhile gets it within a second */
	bool company; /* an honest program without a limit runs beside the victim */
	bool named;   /* gpuarb-top --explain says who it is */
	double least; /* percent that the victim must have during the attack; 0: as usual */
	bool ends;    /* what it started by `once` is killed before the newcomer comes */
	double most;  /* percent that it may have at most; 0: as usual */
	double cpu;   /* percent of a core that the victim may use; 0: as usual */
	bool stops;   /* the victim has nothing while it lasts: the policy says so */
};

/* Writes the path of the file of the locks to `path` and returns it. */
const char *locks_of(const struct target *t, char path[PATH_MAX]);

/* Attacks on the files. */
void attack_truncate_all(struct target *t);
void attack_truncate_half(struct target *t);
void attack_grow(struct target *t);
void attack_punch(struct target *t);
void attack_unlink_it(struct target *t);
void attack_fifo(struct target *t);
void attack_link_elsewhere(struct target *t);
void attack_directory(struct target *t);
void attack_closed(struct target *t);
void attack_unlink_locks(struct target *t);
void attack_fifo_locks(struct target *t);
void attack_closed_locks(struct target *t);

/* By programs. */
void attack_join_account(struct target *t);
void attack_stay_in_account(struct target *t);
void attack_join_unlimited(struct target *t);
void attack_many_programs(struct target *t);
void attack_ask_for_priority(struct target *t);

/* By locks. */
void attack_lock_all(struct target *t);
void attack_lock_directory(struct target *t);
void attack_lock_control(struct target *t);

/* On words of the segment. */
void attack_bill_raised(struct target *t);
void attack_bill_lowered(struct target *t);
void attack_base_lowered(struct target *t);
void attack_folded_raised(struct target *t);
void attack_cap_lowered(struct target *t);
void attack_cap_raised(struct target *t);
void attack_quota_lowered(struct target *t);
void attack_slots_zeroed(struct target *t);
void attack_accounts_zeroed(struct target *t);
void attack_asked(struct target *t);
void attack_asked_nothing(struct target *t);
void attack_weight(struct target *t);
void attack_out_of_the_set(struct target *t);
void attack_head_anywhere(struct target *t);
void attack_clock_jumps(struct target *t);
void attack_time_ahead(struct target *t);
void attack_window_long(struct target *t);
void attack_crowd(struct target *t);
void attack_entries(struct target *t);
void attack_promised(struct target *t);
void attack_name_changed(struct target *t);
void attack_slot_freed(struct target *t);
void attack_flood(struct target *t);
void attack_mem_counted(struct target *t);
void attack_not_attached(struct target *t);
void attack_last_events(struct target *t);
void attack_header(struct target *t);
void attack_hints(struct target *t);
void attack_everything(struct target *t);

/* By claims: who comes before others, who lives, who was evicted. */
void attack_level(struct target *t);
void attack_level_impossible(struct target *t);
void attack_in_request(struct target *t);
void attack_limits(struct target *t);
void attack_lease(struct target *t);
void attack_waits(struct target *t);
void attack_top(struct target *t);
void attack_gate(struct target *t);
void attack_heartbeat_old(struct target *t);
void attack_heartbeat_ahead(struct target *t);
void attack_evicted(struct target *t);
void attack_number(struct target *t);
void attack_overflow(struct target *t);
void attack_lost(struct target *t);
void attack_frozen(struct target *t);
void attack_alternates(struct target *t);
void attack_life(struct target *t);
void attack_home(struct target *t);
void attack_flags(struct target *t);
void attack_share_hints(struct target *t);
void attack_silent(struct target *t);
void attack_lease_inside(struct target *t);
void attack_resident(struct target *t);
void attack_lease_waits(struct target *t);
void attack_drift(struct target *t);
void attack_live_crowd(struct target *t);

/* Without a pause. */
void attack_head_storm(struct target *t);
void attack_account_storm(struct target *t);
void attack_gate_storm(struct target *t);
void attack_wake_storm(struct target *t);
void attack_epoch_storm(struct target *t);
void attack_ring_storm(struct target *t);
void attack_life_storm(struct target *t);
void attack_ask_storm(struct target *t);
void attack_requeue_storm(struct target *t);

extern const struct attack attacks[];
extern const unsigned nattacks;

#endif
