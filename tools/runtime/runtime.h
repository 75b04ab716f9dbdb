/* What the parts of gpuarb-runtime share. */
#ifndef TOOLS_RUNTIME_H
#define TOOLS_RUNTIME_H

#include <jansson.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "gpuarb/abi.h"

#define RUNTIME_GPUS_MOST 64

/* Prints "gpuarb-runtime: sentence" on stderr and into the log that the engine reads, then exits with status 1. */
__attribute__((noreturn, format(printf, 1, 2))) void runtime_fail(const char *format, ...);

/* The settings in /etc/gpuarb/runtime.conf, or in the file that GPUARB_RUNTIME_CONF names. */
enum runtime_without { RUNTIME_REFUSE, RUNTIME_HIDE, RUNTIME_PASS };
struct runtime_conf {
	char runtime[PATH_MAX];     /* the full path of the real runtime */
	char pod_command[PATH_MAX]; /* prints a pod as JSON; empty: annotations are believed */
	char dir[PATH_MAX];         /* of the segments */
	char library[PATH_MAX];
	char run[PATH_MAX]; /* directory for notes about containers while they exist */
	enum runtime_without without_share;
	bool memory_by_share; /* a container that asks for no memory gets the same part of it as of the time */
	bool selinux_pass; /* whoever runs the machine has seen to it that confined containers may read our files */
};
/* Reads the settings and checks all that a container needs to start; ends with a sentence if something is missing or
 * misspelt. */
void runtime_conf_load(struct runtime_conf *conf);
/* Reads the settings for operations on a container that exists: a mistake in the file, or a library that is gone,
 * must not prevent killing it. Returns false if there is no real runtime. */
bool runtime_conf_try(struct runtime_conf *conf);

/* The command line of an OCI runtime, as far as it is needed here. */
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
/* Reads the command line. One that it does not understand is refused, so that no word is taken for another. */
void runtime_args_read(struct runtime_args *args, int argc, char **argv);
/* From here on runtime_fail() writes into the engine's log as well. */
void runtime_log_to(const struct runtime_args *args);

/* Whose container it is, and what it may use. */
struct runtime_wish {
	char account[ARB_NAME_BYTES];
	char pod[256];      /* namespace/name; empty: it belongs to no pod */
	bool sandbox;       /* only holds a pod's namespaces */
	unsigned share;     /* granted and counted; 0: none */
	unsigned core;      /* limit on each GPU in percent; 0: none */
	unsigned gpus;      /* number of GPUs that the share is divided among */
	uint64_t mem_bytes; /* on each of them; 0: no quota */
	bool mem_granted; /* mem_bytes was granted or set by the user who starts the container, not only annotated */
	unsigned request, weight; /* 0: not said */
};
void runtime_wish_read(const struct runtime_conf *conf, const struct runtime_args *args, const json_t *spec,
	struct runtime_wish *wish);
/* Reads the number in an annotation or a resource; ends with a sentence if it is none in that range. */
unsigned runtime_number(const char *what, const char *text, unsigned least, unsigned most);
/* Asks for the pod as its API server knows it, and fills in share and memory. */
void runtime_pod_ask(const struct runtime_conf *conf, const char *namespace, const char *name, char uid[64],
	unsigned *share, unsigned *memory_gib);

/* The note about a container, which is kept while the container exists. */
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
/*
 * Chooses the GPUs by room and notes this, under a lock: of two containers that start at once the second sees the
 * first. `among`: the UUIDs that may be chosen, with commas, or NULL for all. What was taken is free again if this
 * process dies before runtime_grant_begun().
 */
void runtime_grant_take(const struct runtime_conf *conf, const struct runtime_args *args,
	const struct runtime_wish *wish, const char *among, struct runtime_grant *grant);
/* The real runtime has made the container: from here on the grant lasts as long as its bundle. */
void runtime_grant_begun(const struct runtime_conf *conf, const struct runtime_grant *grant);
/* Finds the note about a container. Returns false if there is none. */
bool runtime_grant_find(
	const struct runtime_conf *conf, const struct runtime_args *args, struct runtime_grant *grant);
void runtime_grant_drop(const struct runtime_conf *conf, const struct runtime_args *args);
/* Prints one line for each grant on standard output. */
void runtime_grant_list(const struct runtime_conf *conf);
/* Returns the path of a file of this container. */
const char *runtime_grant_path(
	const struct runtime_conf *conf, const struct runtime_grant *grant, const char *name, char *path);
/* Reads all notes, and removes those of containers that are gone. Returns how many there are; the caller frees *all. */
int runtime_grant_all(const struct runtime_conf *conf, struct runtime_grant **all);

/* Fills in grant->gpu with the GPUs that have the most room; ends with a sentence if the container has no room there. */
void runtime_room_choose(const struct runtime_conf *conf, const struct runtime_wish *wish, const char *among,
	const struct runtime_grant *others, int nothers, struct runtime_grant *grant);

/* Checks all that a container needs on this machine; ends with a sentence if something is missing. Returns the group
 * that must be added to a process that is not root. */
gid_t runtime_node_check(const struct runtime_conf *conf, bool user_namespace, bool is_root);
/* Returns how many GPUs have a segment. */
int runtime_node_gpus(const struct runtime_conf *conf);

/* Read and write the bundle's config.json, and the process.json of an exec. */
json_t *runtime_bundle_read(const char *path, const char *what);
void runtime_bundle_write(const char *path, json_t *spec);
void runtime_bundle_path(const struct runtime_args *args, char path[PATH_MAX]);
void runtime_bundle_edit(const struct runtime_conf *conf, const struct runtime_grant *grant,
	const struct runtime_wish *wish, json_t *spec);
void runtime_bundle_edit_process(const struct runtime_grant *grant, json_t *process);
/* Returns the list of that name, which is made if there is none; ends with a sentence if it is no list. */
json_t *runtime_bundle_array(json_t *object, const char *name);
/* Returns a variable of a process, or NULL if it has none. */
const char *runtime_bundle_env(const json_t *process, const char *name);
void runtime_bundle_set(json_t *env, const char *name, const char *value);
void runtime_bundle_unset(json_t *env, const char *name);

/* Returns which GPUs the engine has given the container, with commas; NULL: all. Ends with a sentence if that cannot
 * be told. */
const char *runtime_gpus_given(const json_t *spec, bool several);
/* Lets the driver and NVIDIA's runtime show the container only the GPUs that were granted. */
void runtime_gpus_show(json_t *spec, const struct runtime_grant *grant);
void runtime_gpus_show_process(json_t *process, const struct runtime_grant *grant);
/* Hides all GPUs from a container that was granted nothing. */
void runtime_gpus_hide(json_t *spec);
bool runtime_bundle_has_user_namespace(const json_t *spec);

#endif
