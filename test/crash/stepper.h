/*
 * Runs a child to any instruction boundary of a stretch of code and kills it there. The stretch is marked
 * by stepper_begin() and stepper_end(); it is stepped through once to learn its path, later runs go to a
 * boundary by way of a breakpoint near it, because a step costs a hundred times what a breakpoint skips.
 */
#ifndef STEPPER_H
#define STEPPER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* What the stretch executes, one entry for each instruction (and each turn of a repeated one). */
struct stepper_path {
	uint64_t *rip;
	uint32_t *anchor; /* where to put the breakpoint: the index of a step not after this one */
	uint32_t *turn;   /* how often that address has been executed before the anchor */
	uint32_t *cost;   /* stops that it takes to get here by way of the anchor */
	size_t length;    /* boundary n is before instruction n; boundary `length` is the end */
	size_t room;
};

/* In the child. */
void stepper_begin(void);
void stepper_end(void);

/* May a process be traced here? */
bool stepper_possible(void);

/* Forks; the child runs body(argument), which calls stepper_begin. -1: it did not get there. */
pid_t stepper_spawn(void (*body)(void *argument), void *argument);

/*
 * Steps a child that stands at its begin to its end. each(argument, n) is called at each boundary; inside
 * string instructions as well, at each of their turns, if `repeats`.
 */
int stepper_record(pid_t child, struct stepper_path *path, bool repeats,
	void (*each)(void *argument, size_t n), void *argument);

/* Goes to boundary n. Returns the boundary's address, 0 if the child went another way and is at its end or
 * gone. */
uint64_t stepper_go(pid_t child, const struct stepper_path *path, size_t n);
/* By single steps alone. */
uint64_t stepper_walk(pid_t child, size_t n);

/* Lets it go on to its end: false if it ended before, and is reaped. */
bool stepper_finish(pid_t child);

/* Lets a child that stands somewhere go on freely, under the tracer. */
void stepper_release(pid_t child);
/* Kills and reaps it: false if something else had ended it. */
bool stepper_kill(pid_t child);

void stepper_free(struct stepper_path *path);

/* "function+0x1c" of an address in this program. */
void stepper_name(uint64_t address, char *text, size_t size);

#endif
