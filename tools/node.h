/*
 * gpuarb-node: what its files share. gpuarb-node.c makes the segments; node_rights.c sees to it that the machine's users
 * may use them; node_check.c looks whether everything is there.
 */
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
 * The group whose members may use the GPUs: the one of arbiter.conf, else "gpuarb" where there is one, else, for the
 * directory of the machine, "gpuarb" made now. Only for root; who is not root makes segments of his own. Ends with a
 * sentence if it cannot be made.
 */
struct node_group node_group_find(const char *dir, const struct gpuarb_config *config);

/*
 * Makes the directories, and takes over what a user made before: root's and the group's. What root has set up stays;
 * *group is then the group that it was set up for.
 */
void node_rights_directories(const char *dir, struct node_group *group, const struct gpuarb_config *config);
/* replace: rights that a segment lacks, and another group, are put right; without it what root has made of them stays. */
void node_rights_segments(const char *dir, const char *gpu, const struct node_group *group,
	const struct gpuarb_config *config, bool replace);

/* The one next command, for whoever has run this by sudo, or while nobody is in the group. */
void node_say_next(const struct node_group *group);

/* 0: everything is there; 1: something is missing, and was said with the command that mends it. */
int node_check(const char *dir, const struct nvml_gpu *gpus, int ngpus, const char *why_none);

#endif
