/*
 * The device model as a reader sees it: which devices exist, how much memory is used, how long each process ran.
 *
 * Every call first advances the model to the present, so a figure is exact at the moment of the call. A reader needs
 * no slot in the shared file, and changes only the model's clock.
 */
#ifndef SIM_MODEL_H
#define SIM_MODEL_H

#include <stdbool.h>
#include <stdint.h>

#define SIM_MAX_DEVICES 8
#define SIM_MAX_PROCS   256
#define SIM_SAMPLES     128

struct sim_device_info {
	char name[64];
	char uuid[48]; /* "GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx" */
	uint8_t uuid_bytes[16];
	char pci_bus_id[32]; /* "00000000:01:00.0" */
	uint32_t pci_domain;
	uint32_t pci_bus;
	uint32_t pci_device;
	uint64_t memory_bytes;
	uint32_t multiprocessors;
	uint32_t clock_mhz;
};

/*
 * busy_ns is the time in which the compute engine was busy: exactly the sum of device_ns of all processes, dead ones
 * included. In spatial, where processes run side by side, the sum may be larger: busy_ns is the time in which any ran.
 */
struct sim_device_state {
	uint64_t now_ns;   /* CLOCK_MONOTONIC of this snapshot */
	uint64_t since_ns; /* CLOCK_MONOTONIC of the last reset (or of the file's creation) */
	uint64_t memory_total_bytes;
	uint64_t memory_used_bytes;
	uint64_t busy_ns;
	uint64_t copy_ns[2]; /* host to device, device to host */
	uint64_t paging_ns;  /* the part of busy_ns spent moving managed pages */
	uint64_t width_ns;   /* sum of width_ns of all processes: never more than busy_ns */
	uint64_t
		switch_ns; /* spent on switches between processes: charged to no process, and no part of busy_ns */
	uint64_t switches;
	uint64_t launches;
	uint64_t copies;
	uint64_t copied_bytes;
};

/* One process on one device. util_pct is its share of the last whole sample period. */
struct sim_process_state {
	uint64_t serial; /* unique in the file, while a pid may be used again */
	int32_t pid;     /* as the process itself sees it */
	char command[16];
	bool alive;
	bool has_context; /* has a context on this device now */
	uint64_t started_ns;
	uint64_t memory_bytes; /* on the device now; of managed memory, what is resident */
	uint64_t away_bytes;   /* its managed memory that is not on the device */
	uint64_t memory_peak_bytes;
	uint64_t device_ns; /* time on the device; in spatial, at the speed that it would have alone */
	uint64_t width_ns;  /* device_ns times the part of the device that its kernels filled */
	uint64_t copy_ns;
	uint64_t paging_ns;
	uint64_t launches;
	uint64_t graph_launches;
	uint64_t copies;
	uint64_t copied_bytes;
	uint64_t memsets;
	uint64_t sample_ns; /* CLOCK_MONOTONIC at the end of the last sample period */
	uint32_t util_pct;
	uint32_t copy_util_pct;
};

/* A whole sample period of a device that ended at end_ns (CLOCK_MONOTONIC). */
struct sim_sample {
	uint64_t end_ns;
	uint32_t util_pct;
	uint32_t copy_util_pct;
};

/* These functions return 0 or -errno unless said otherwise. sim_open() creates the simulation if there is none; calling
 * it twice is harmless. */
int sim_open(void);
void sim_close(void);
int sim_device_count(void);
int sim_device_info(int device, struct sim_device_info *info);
int sim_device_state(int device, struct sim_device_state *state);

/* Fills in at most `max` processes of a device; returns how many there are. Lists dead ones only if `with_dead`. */
int sim_processes(int device, bool with_dead, struct sim_process_state *list, int max);

/* Gives the device's state and its processes at one moment, so that the parts add up to the sums. */
int sim_snapshot(
	int device, struct sim_device_state *state, bool with_dead, struct sim_process_state *list, int max);

/* Give the last whole sample period; and the periods that ended after `after_ns`, oldest first (returns how many). */
int sim_last_sample(int device, struct sim_sample *sample);
int sim_samples_after(int device, uint64_t after_ns, struct sim_sample *list, int max);
uint64_t sim_sample_period_ns(void);

/* Sets all ground truth to zero and forgets dead processes. */
int sim_reset(void);

#endif
