/* What the files of gpuarb-node share. gpuarb-node.c makes the segments; node_rights.c gives the machine's users the
 * right to use them; node_check.c checks whether everything is there. */
#ifndef TOOLS_NODE_H
#define TOOLS_NODE_H

#include <stdbool.h>
#include <sys/types.h>

#include "tools/common/nvml.h"

struct gpuarb_config;

struct node_group {
	gid_t id;      /* (gid_t)-1: nobody's */
	char name[64]; /* or its number */
};

/*
 * Finds the group whose members may use the GPUs: the one in arbiter.conf; otherwise "gpuarb" if it exists;
 * otherwise, for the machine's own directory, "gpuarb" is made. Only root does this; other users make segments of
 * their own. Ends with a sentence if the group cannot be made.
 */
struct node_group node_group_find(const char *dir, const struct gpuarb_config *config);

/* Makes the directories, and gives what a user made before to root and the group. What root has set up stays; then
 * *group becomes the group that it was set up for. */
void node_rights_directories(const char *dir, struct node_group *group, const struct gpuarb_config *config);
/* Sets the rights of a segment. With `replace`, missing rights and another group are corrected; without it, what root
 * has set stays. */
void node_rights_segments(const char *dir, const char *gpu, const struct node_group *group,
	const struct gpuarb_config *config, bool replace);

/* Prints the next command, for a user who runs this by sudo, or while the group has no members. */
void node_say_next(const struct node_group *group);

/* Returns 0 if everything is there, or 1 if something is missing, after printing the command that helps. */
int node_check(const char *dir, const struct nvml_gpu *gpus, int ngpus, const char *why_none);

#endif
