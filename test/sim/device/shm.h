/* The shared file: finding or creating it, its lock, the slots of its processes. */
#ifndef SIM_SHM_H
#define SIM_SHM_H

#include "test/sim/device/layout.h"

struct sim_shm {
	struct sim_file *file;
	struct sim_op *ops;
	int fd;
	uint32_t slot; /* SIM_NONE for a reader */
	uint32_t ident;
};

extern struct sim_shm sim_shm;

static inline struct sim_op *sim_op_at(uint32_t ring, uint64_t count)
{
	return &sim_shm.ops[(uint64_t)ring * SIM_RING_OPS + (count & (SIM_RING_OPS - 1))];
}

uint64_t sim_clock_ns(void);
/* Stamps what a call submits, which is not a wait. */
uint64_t sim_stamp_ns(void);

/* 0 or -errno. Opening twice is harmless. */
int sim_shm_open(void);
void sim_shm_close(void);

/* Takes a slot for this process, and gives it up (the slot's accounts stay readable). */
int sim_shm_join(void);
void sim_shm_leave(void);

/* In a forked child: drop everything that belongs to the parent without touching the shared state. */
void sim_shm_forget(void);

/* The lock names its holder in the word that is compared and swapped, and the holder's life shows in the lock that it
 * has on a byte of the file. So a lock whose holder died is taken over. */
void sim_lock(void);
void sim_unlock(void);

/* Whether the process of a slot lives. */
bool sim_shm_alive(uint32_t slot);
/* Whether it is stopped by a signal, so that none of its threads answers. */
bool sim_shm_stopped(uint32_t slot);

/* Remembers a futex word that must be woken as soon as the lock is released. */
void sim_wake_later(uint32_t *word);

/* Sleeps while *word == value, until the absolute CLOCK_MONOTONIC time. */
void sim_futex_wait(uint32_t *word, uint32_t value, uint64_t until_ns);
void sim_futex_wake(uint32_t *word);

void sim_settings_read(struct sim_file *file);

#endif
