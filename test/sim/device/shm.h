/* The shared file: how it is found or created, its lock, the slots of its processes. */
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
/* Returns the time for what a call submits. Unlike sim_clock_ns() it is not called by a thread that waits. */
uint64_t sim_stamp_ns(void);

/* Returns 0 or -errno. Opening twice is harmless. */
int sim_shm_open(void);
void sim_shm_close(void);

/* Takes a slot for this process, and gives it up (the slot's accounts stay readable). */
int sim_shm_join(void);
void sim_shm_leave(void);

/* In a forked child: drops everything that belongs to the parent, without a change to the shared file. */
void sim_shm_forget(void);

/* Takes the file's lock. The word that is compared and swapped names the holder, and a live holder has a lock on a byte
 * of the file. So the lock of a holder that died is taken over. */
void sim_lock(void);
void sim_unlock(void);

/* Returns whether the process of a slot lives. */
bool sim_shm_alive(uint32_t slot);
/* Returns whether the process is stopped by a signal, so that none of its threads answers. */
bool sim_shm_stopped(uint32_t slot);

/* Remembers a futex word that must be woken as soon as the lock is released. */
void sim_wake_later(uint32_t *word);

/* Sleeps while *word == value, until the absolute CLOCK_MONOTONIC time. */
void sim_futex_wait(uint32_t *word, uint32_t value, uint64_t until_ns);
void sim_futex_wake(uint32_t *word);

void sim_settings_read(struct sim_file *file);

#endif
