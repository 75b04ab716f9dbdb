/* gpuarb-runtime: what its parts know of each other. */
#ifndef TOOLS_RUNTIME_H
#define TOOLS_RUNTIME_H

#include <jansson.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "gpuarb/abi.h"

#define RUNTIME_GPUS_MOST 64

/* "gpuarb-runtime: sentence" on stderr and in the log that the engine reads, then exit(1). */
__attribute__((noreturn, format(printf, 1, 2))) void runtime_fail(const char *format, ...);

/* /etc/gpuarb/runtime.conf, or the file that GPUARB_RUNTIME_CONF names. */
enum runtime_without { RUNTIME_REFUSE, RUNTIME_HIDE, RUNTIME_PASS };
struct runtime_conf {
	char runtime[PATH_MAX];     /* the real one, with its full path */
	char pod_command[PATH_MAX]; /* prints a pod as JSON; empty: annotations are believed */
	char dir[PATH_MAX];         /* of the segments */
	char library[PATH_MAX];
	char run[PATH_MAX]; /* what is kept of containers while they are there */
	enum runtime_without without_share;
	bool memory_by_share; /* no memory asked for: the same part of it as of the time */
	bool selinux_pass; /* whoever runs the machine has seen to it that confined containers may read our files */
};
/* Everything that a container needs to start; ends with a sentence if something is missing or misspelt. */
void runtime_conf_load(struct runtime_conf *conf);
/* For whatever is done to a container that is there: a mistake in the file, or a library that is gone, keeps
 * nobody from killing it. false: there is no real runtime. */
bool runtime_conf_try(struct runtime_conf *conf);

/* The command line of an OCI runtime, as far as it matters here. */
enum runtime_command { RUNTIME_OTHER, RUNTIME_CREATE, RUNTIME_RUN, RUNTIME_EXEC, RUNTIME_DELETE };
struct runtime_args {
	enum runtime_command command;
	const char *root, *log;
	bool log_json;
	const char *bundle;  /* create, run; NULL: here */
	const char *config;  /* the name of the bundle's file, if it has another one */
	const char *process; /* exec; NULL: as the container's */
	const char *id;
	bool detach;
};
/* Never takes a word for another: a command line that it does not understand is refused. */
void runtime_args_read(struct runtime_args *args, int argc, char **argv);
/* From here on runtime_fail() writes into the engine's log as well. */
void runtime_log_to(const struct runtime_args *args);

/* Whose container it is, and what it may use. */
struct runtime_wish {
	char account[ARB_NAME_BYTES];
	char pod[256];      /* namespace/name; empty: no pod's */
	bool sandbox;       /* holds a pod's namespaces and runs nothing of anybody's */
	unsigned share;     /* granted and counted; 0: none */
	unsigned core;      /* limit on each GPU in percent; 0: none */
	unsigned gpus;      /* of how many GPUs the share is */
	uint64_t mem_bytes; /* on each of them; 0: no quota */
	bool mem_granted; /* mem_bytes was granted, or set by who starts the container: not only annotated */
	unsigned request, weight; /* 0: not said */
};
void runtime_wish_read(const struct runtime_conf *conf, const struct runtime_args *args, const json_t *spec,
	struct runtime_wish *wish);
/* The number that an annotation or a resource holds; refused with a sentence if it is none in that range. */
unsigned runtime_number(const char *what, const char *text, unsigned least, unsigned most);
/* The pod as its API server knows it: fills in share and memory. */
void runtime_pod_ask(const struct runtime_conf *conf, const char *namespace, const char *name, char uid[64],
	unsigned *share, unsigned *memory_gib);

/* What is kept of a container as long as it is there. */
struct runtime_grant {
	char key[PATH_MAX / 4]; /* the name of its directory */
	char bundle[PATH_MAX];
	char account[ARB_NAME_BYTES];
	unsigned share, core;
	uint64_t mem_bytes;
	unsigned ngpus;
	char gpu[RUNTIME_GPUS_MOST][ARB_UUID_BYTES];
	gid_t gid; /* 0: none is needed */
};
/* Chooses the GPUs by room and notes it, under a lock: of two containers that start at once the second sees
 * the first. `among` NULL: all, else the UUIDs that may be chosen, with commas. What was taken is free again when
 * this process dies before runtime_grant_begun(). */
void runtime_grant_take(const struct runtime_conf *conf, const struct runtime_args *args,
	const struct runtime_wish *wish, const char *among, struct runtime_grant *grant);
/* The real runtime has made the container: from here on it goes with its bundle. */
void runtime_grant_begun(const struct runtime_conf *conf, const struct runtime_grant *grant);
/* false: nothing is known of this container. */
bool runtime_grant_find(
	const struct runtime_conf *conf, const struct runtime_args *args, struct runtime_grant *grant);
void runtime_grant_drop(const struct runtime_conf *conf, const struct runtime_args *args);
/* Prints one line for each on standard output. */
void runtime_grant_list(const struct runtime_conf *conf);
/* A file of this container; the text of its path. */
const char *runtime_grant_path(
	const struct runtime_conf *conf, const struct runtime_grant *grant, const char *name, char *path);
/* Containers that are granted something, in any order; the caller has the lock. */
int runtime_grant_all(const struct runtime_conf *conf, struct runtime_grant **all);

/* The least room that a container needs, and where there is the most of it: fills in grant->gpu. */
void runtime_room_choose(const struct runtime_conf *conf, const struct runtime_wish *wish, const char *among,
	const struct runtime_grant *others, int nothers, struct runtime_grant *grant);

/* Is everything on this machine that a container needs? Ends with a sentence if not; the group that must be
 * added to a process that is not root. */
gid_t runtime_node_check(const struct runtime_conf *conf, bool user_namespace, bool is_root);
/* How many GPUs have a segment. */
int runtime_node_gpus(const struct runtime_conf *conf);

/* The bundle's config.json, and the process.json of an exec. */
json_t *runtime_bundle_read(const char *path, const char *what);
void runtime_bundle_write(const char *path, json_t *spec);
void runtime_bundle_path(const struct runtime_args *args, char path[PATH_MAX]);
void runtime_bundle_edit(const struct runtime_conf *conf, const struct runtime_grant *grant,
	const struct runtime_wish *wish, json_t *spec);
void runtime_bundle_edit_process(const struct runtime_grant *grant, json_t *process);
/* The list of that name, made if there is none; refused if it is something else. */
json_t *runtime_bundle_array(json_t *object, const char *name);
/* A variable of a process; NULL: it has none. */
const char *runtime_bundle_env(const json_t *process, const char *name);
void runtime_bundle_set(json_t *env, const char *name, const char *value);
void runtime_bundle_unset(json_t *env, const char *name);

/* Which GPUs the engine has given it, with commas: NULL, all. Ends with a sentence where that cannot be said. */
const char *runtime_gpus_given(const json_t *spec, bool several);
/* The driver and NVIDIA's runtime show the container those that were granted alone. */
void runtime_gpus_show(json_t *spec, const struct runtime_grant *grant);
void runtime_gpus_show_process(json_t *process, const struct runtime_grant *grant);
/* A container that was granted nothing gets no GPU. */
void runtime_gpus_hide(json_t *spec);
bool runtime_bundle_has_user_namespace(const json_t *spec);

#endif
