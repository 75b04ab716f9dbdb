/* An intruder writes over words of others in the segment: how soon do all programs have their own share again? */
#ifndef WORLD_INTRUDER_H
#define WORLD_INTRUDER_H

#include "shm/segment/segment.h"
#include "test/world/cases.h"

/* What is written to: the victim's slot and account. */
struct target {
	struct arb_segment *seg;
	struct arb_slot *slot;
	struct arb_account *entry;
	struct arb_account_record *account; /* the account's record that its head names */
	struct arb_record *record; /* the running set's record that the head names; NULL: there is none */
};

struct intruder_attack {
	const char *name;
	void (*write)(struct target *t); /* NULL: the neighbour does no more than it asks for */
	bool again;                      /* the attack is repeated every millisecond, until the end */
	/* Points by which a share may be larger, and smaller, while such an attack lasts. */
	double gives, takes;
	const char *policy; /* GPUARB_POLICY; NULL: as it is */
	/* What the neighbour asks for: a variable and its value. It has no limit then, and its share is not judged. */
	const char *asks[2];
};

extern const struct intruder_attack intruder_attacks[];
extern const unsigned intruder_nattacks;

/* Runs the intruder-* cases whose names match. Adds their number to *n; returns how many failed. */
int intruder_run(const struct case_options *o, int *n);

#endif
