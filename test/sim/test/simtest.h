/* What the tests of the simulated GPU share: a new simulation, a device, children with a deadline. */
#ifndef SIMTEST_H
#define SIMTEST_H

#include "cuda_abi.h"
#include "units.h"
#include "test/sim/device/model.h"

#include <criterion/criterion.h>
#include <stdbool.h>
#include <sys/types.h>

#define OK(call)          cr_assert_eq((call), CUDA_SUCCESS, "%s", #call)
#define GIVES(call, code) cr_assert_eq((call), (code), "%s gives not %s", #call, #code)

/* Makes a new simulation directory, with pairs of setting and value that NULL ends. Calls cost no time. */
void sim_fresh(const char *setting, ...);
void sim_remove(void);

/* Calls cuInit and makes a context on device 0, which becomes current. */
CUcontext sim_device(void);
CUfunction sim_kernel(const char *name);
void sim_spin(CUstream s, uint64_t ns);
void sim_spin_part(CUstream s, uint64_t ns, unsigned permille);
CUstream sim_stream(unsigned flags);
CUevent sim_mark(CUstream s);

/*
 * Holds the stream until sim_release(), so that work which is submitted meanwhile runs without gaps, however
 * slow the machine is. There is one gate at a time.
 */
void sim_gate(CUstream s);
void sim_release(void);

double sim_between_us(CUevent a, CUevent b);
double sim_wall_s(void);

/* Runs fn in a new process that has no driver yet. It ends by itself after a deadline. */
pid_t sim_child(void (*fn)(void *), void *arg);
int sim_join(pid_t pid); /* returns the exit status, or -signal */

/* Reads the ground truth with a reader of its own. */
void sim_truth(struct sim_device_state *state, struct sim_process_state *list, int *n);
struct sim_process_state sim_truth_of(pid_t pid);

#endif
