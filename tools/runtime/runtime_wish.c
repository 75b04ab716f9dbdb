/*
 * Whose container it is, and what it may use. For a container of a pod, the pod says so by its shares, from the API
 * server or an annotation, and never by its own environment. Otherwise the user who starts the container says so with
 * annotations or, where the engine knows none, with variables.
 */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpuarb/config.h"
#include "gpuarb/control.h"
#include "gpuarb/spelling.h"
#include "units.h"

#include "tools/runtime/runtime.h"

#define PREFIX "gpuarb.dev/"

/* Our annotations; those of others are ignored. */
static const char *const known[] = {PREFIX "share", PREFIX "memory-gib", PREFIX "core-limit",
	PREFIX "memory-limit", PREFIX "core-request", PREFIX "core-weight"};

static const char *annotation(const json_t *spec, const char *name)
{
	return json_string_value(json_object_get(json_object_get(spec, "annotations"), name));
}

unsigned runtime_number(const char *what, const char *text, unsigned least, unsigned most)
{
	char *end = NULL;
	unsigned long value = strtoul(text, &end, 10);

	if (!isdigit((unsigned char)*text) || *end || value < least || value > most)
		runtime_fail("%s: '%.40s' is no number from %u to %u", what, text, least, most);
	return (unsigned)value;
}

/* Refuses unknown annotations of ours: somebody believes that each sets a limit. */
static void refuse_misspelt(const json_t *spec)
{
	const char *name;
	json_t *value;

	json_object_foreach(json_object_get(spec, "annotations"), name, value)
	{
		struct gpuarb_spelling s;
		const char *meant;
		bool ours = strncmp(name, PREFIX, strlen(PREFIX)) != 0;

		if (!json_is_string(value))
			runtime_fail("the annotation %.80s is not text", name);
		for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
			ours |= !strcmp(name, known[i]);
		if (ours)
			continue;
		gpuarb_spelling_begin(&s, name + strlen(PREFIX));
		for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
			gpuarb_spelling_try(&s, known[i] + strlen(PREFIX));
		meant = gpuarb_spelling_meant(&s);
		runtime_fail("there is no annotation %.80s%s%s%s", name,
			meant ? "; did you mean " PREFIX : "", meant ? meant : "", meant ? "?" : "");
	}
}

/* Finds the pod's uid in kubepods-burstable-pod1234_5678.slice:cri-containerd:ID, or
 * /kubepods/burstable/pod1234-5678/ID. */
static void uid_of_path(const char *path, char uid[64])
{
	const char *at = path ? strstr(path, "kubepods") : NULL;
	size_t n = 0;

	for (; at; at = strstr(at + 1, "pod"))
		if (!strncmp(at, "pod", 3) && isxdigit((unsigned char)at[3]))
			break;
	for (at = at ? at + 3 : ""; (isxdigit((unsigned char)*at) || *at == '-' || *at == '_') && n < 63;
		at++)
		uid[n++] = *at == '_' ? '-' : *at;
	uid[n] = '\0';
}

struct identity {
	bool cri; /* it is a container of a pod */
	const char *type, *name, *namespace;
	char uid[64];
};

/* Reads what containerd and CRI-O write. CRI-O also passes on what the pod's author wrote: if there are annotations
 * of both, one is forged. */
static struct identity identify(const json_t *spec)
{
	const char *containerd = annotation(spec, "io.kubernetes.cri.container-type"),
		   *crio = annotation(spec, "io.kubernetes.cri-o.ContainerType"), *uid;
	struct identity who = {.cri = containerd || crio};

	if (containerd && crio)
		runtime_fail(
			"the container has annotations of both containerd and CRI-O: one of them is forged");
	who.type = crio ? crio : containerd;
	who.name = annotation(spec, crio ? "io.kubernetes.pod.name" : "io.kubernetes.cri.sandbox-name");
	who.namespace = annotation(
		spec, crio ? "io.kubernetes.pod.namespace" : "io.kubernetes.cri.sandbox-namespace");
	uid = annotation(spec, crio ? "io.kubernetes.pod.uid" : "io.kubernetes.cri.sandbox-uid");
	snprintf(who.uid, sizeof(who.uid), "%s", uid ? uid : "");
	if (!*who.uid)
		uid_of_path(json_string_value(json_object_get(json_object_get(spec, "linux"), "cgroupsPath")),
			who.uid);
	return who;
}

/* Returns the limit that an annotation sets, ours or that of another tool, or 0. */
static unsigned core_annotated(const json_t *spec)
{
	const char *ours = annotation(spec, PREFIX "core-limit"),
		   *theirs = annotation(spec, "nvshare.com/gpu-core-limit");

	if (ours)
		return runtime_number(PREFIX "core-limit", ours, 1, 100);
	return theirs ? runtime_number("nvshare.com/gpu-core-limit", theirs, 1, 100) : 0;
}

static uint64_t mem_of(const char *what, const char *text)
{
	struct gpuarb_error err;
	int64_t bytes = 0;

	if (text && gpuarb_config_parse(ARB_KEY_MEM, text, what, &bytes, &err) < 0)
		runtime_fail("%s", err.text);
	return (uint64_t)bytes;
}

static uint64_t mem_annotated(const json_t *spec)
{
	const char *ours = annotation(spec, PREFIX "memory-limit");

	return ours ? mem_of(PREFIX "memory-limit", ours)
		    : mem_of("nvshare.com/gpu-memory-limit",
			      annotation(spec, "nvshare.com/gpu-memory-limit"));
}

/* A share of more than one GPU is divided equally among them. */
static void divide(struct runtime_wish *w, unsigned memory_gib)
{
	w->gpus = w->share > 100 ? (w->share + 99) / 100 : 1;
	if (w->share % w->gpus || memory_gib % w->gpus)
		runtime_fail("%u shares%s are those of %u GPUs, and cannot be divided equally among them",
			w->share, memory_gib ? ", or their memory," : "", w->gpus);
	w->share /= w->gpus;
	w->mem_bytes = memory_gib * GIB / w->gpus;
	w->mem_granted = memory_gib > 0;
}

static uint64_t lesser(uint64_t granted, uint64_t asked)
{
	return asked && (!granted || asked < granted) ? asked : granted;
}

static void limits(const json_t *spec, struct runtime_wish *w)
{
	w->core = (unsigned)lesser(w->share, core_annotated(spec));
	w->mem_bytes = lesser(w->mem_bytes, mem_annotated(spec));
}

/* Called when the limit is known: a request cannot be more than that. */
static void requests(const json_t *spec, struct runtime_wish *w)
{
	const char *request = annotation(spec, PREFIX "core-request"),
		   *weight = annotation(spec, PREFIX "core-weight");

	if (request)
		w->request = runtime_number(PREFIX "core-request", request, 1, w->core ? w->core : 100);
	if (weight)
		w->weight = runtime_number(PREFIX "core-weight", weight, 1, 10000);
}

static void of_pod(
	const struct runtime_conf *conf, const json_t *spec, struct identity *who, struct runtime_wish *w)
{
	const char *share = annotation(spec, PREFIX "share"), *memory = annotation(spec, PREFIX "memory-gib");
	unsigned memory_gib = 0;

	if (!who->name || !who->namespace)
		runtime_fail("the engine does not say which pod this container belongs to");
	snprintf(w->pod, sizeof(w->pod), "%s/%s", who->namespace, who->name);
	if (*conf->pod_command) {
		runtime_pod_ask(conf, who->namespace, who->name, who->uid, &w->share, &memory_gib);
	} else {
		w->share = share ? runtime_number(PREFIX "share", share, 1, 100 * RUNTIME_GPUS_MOST) : 0;
		memory_gib = memory ? runtime_number(PREFIX "memory-gib", memory, 1, 1u << 20) : 0;
	}
	if (!*who->uid)
		runtime_fail("the engine does not say the uid of pod %s", w->pod);
	snprintf(w->account, sizeof(w->account), "pod-%.50s", who->uid);
	if (!w->share)
		return;
	divide(w, memory_gib);
	limits(spec, w);
	requests(spec, w);
}

/* Engines show the first twelve digits of an id, and containers by CDI are named so. A name that a user chose counts
 * as a whole: train-job-0001 is not train-job-0002. */
static void name_account(const char *id, char account[ARB_NAME_BYTES])
{
	size_t n = strlen(id);
	uint32_t hash = 2166136261u;

	if (n == 64 && strspn(id, "0123456789abcdef") == n) {
		snprintf(account, ARB_NAME_BYTES, "%.12s", id);
	} else if (n < ARB_NAME_BYTES) {
		memcpy(account, id, n + 1);
	} else {
		for (const char *c = id; *c; c++)
			hash = (hash ^ (unsigned char)*c) * 16777619u;
		snprintf(account, ARB_NAME_BYTES, "%.*s-%08x", ARB_NAME_BYTES - 10, id, hash);
	}
}

static void of_others(const struct runtime_args *args, const json_t *spec, struct runtime_wish *w)
{
	const json_t *process = json_object_get(spec, "process");
	const char *share = annotation(spec, PREFIX "share"), *memory = annotation(spec, PREFIX "memory-gib"),
		   *core = runtime_bundle_env(process, "GPUARB_CORE_LIMIT"),
		   *mem = runtime_bundle_env(process, "GPUARB_MEM_LIMIT");
	unsigned memory_gib = memory ? runtime_number(PREFIX "memory-gib", memory, 1, 1u << 20) : 0;

	w->share = share ? runtime_number(PREFIX "share", share, 1, 100 * RUNTIME_GPUS_MOST) : 0;
	name_account(args->id, w->account);
	divide(w, memory_gib);
	limits(spec, w);
	if (!w->core && core && *core)
		w->core = runtime_number("GPUARB_CORE_LIMIT", core, 1, 100);
	if (!w->mem_bytes && mem && *mem) {
		w->mem_bytes = mem_of("GPUARB_MEM_LIMIT", mem);
		w->mem_granted = true;
	}
	requests(spec, w);
}

void runtime_wish_read(const struct runtime_conf *conf, const struct runtime_args *args, const json_t *spec,
	struct runtime_wish *w)
{
	struct identity who = identify(spec);
	struct gpuarb_error err;

	*w = (struct runtime_wish){.gpus = 1};
	w->sandbox = who.cri && !strcmp(who.type, "sandbox");
	if (w->sandbox)
		return;
	if (who.cri && strcmp(who.type, "container") != 0)
		runtime_fail(
			"the engine says that this is a '%.40s', which is neither a sandbox nor a container",
			who.type);
	refuse_misspelt(spec);
	if (who.cri)
		of_pod(conf, spec, &who, w);
	else
		of_others(args, spec, w);
	if (gpuarb_config_account(w->account, "the account", &err) < 0)
		runtime_fail("%s", err.text);
}
