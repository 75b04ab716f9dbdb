/*
 * Runs a child to any instruction boundary of a stretch of code and kills it there. stepper_begin() and stepper_end()
 * mark the stretch. It is stepped through once to learn its path. Later runs go to a boundary through a breakpoint
 * near it, because a single step costs a hundred times as much as an instruction that runs freely.
 */
#ifndef STEPPER_H
#define STEPPER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* What the stretch executes: one entry for each instruction, and for each turn of a repeated instruction. */
struct stepper_path {
	uint64_t *rip;
	uint32_t *anchor; /* where to put the breakpoint: the index of a step not after this one */
	uint32_t *turn;   /* how often that address has been executed before the anchor */
	uint32_t *cost;   /* stops that it takes to get here by way of the anchor */
	size_t length;    /* boundary n is before instruction n; boundary `length` is the end */
	size_t room;
};

/* Mark the stretch, in the child. */
void stepper_begin(void);
void stepper_end(void);

/* Whether processes may be traced here. */
bool stepper_possible(void);

/* Forks a child that runs body(argument), which calls stepper_begin. Returns -1 if it did not get there. */
pid_t stepper_spawn(void (*body)(void *argument), void *argument);

/* Steps a child from the beginning of its stretch to the end and calls each(argument, n) at each boundary; if
 * `repeats`, also between the turns of a repeated string instruction. */
int stepper_record(pid_t child, struct stepper_path *path, bool repeats,
	void (*each)(void *argument, size_t n), void *argument);

/* Goes to boundary n and returns its address. Returns 0 if the child took another path and is at its end or gone. */
uint64_t stepper_go(pid_t child, const struct stepper_path *path, size_t n);
/* Goes there by single steps only. */
uint64_t stepper_walk(pid_t child, size_t n);

/* Lets the child run to its end. Returns false if it had ended before; it is reaped then. */
bool stepper_finish(pid_t child);

/* Lets a child that is stopped run freely, still traced. */
void stepper_release(pid_t child);
/* Kills and reaps the child. Returns false if something else had ended it. */
bool stepper_kill(pid_t child);

void stepper_free(struct stepper_path *path);

/* Writes "function+0x1c" for an address in this program. */
void stepper_name(uint64_t address, char *text, size_t size);

#endif
