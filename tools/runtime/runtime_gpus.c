/* Which GPUs a container sees: those that the engine gave it, those that it was granted, or none. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "tools/runtime/runtime.h"

/* Where NVIDIA's device plugin mounts an empty file for each GPU, if it passes GPUs on as volumes. */
#define VOLUMES "/var/run/nvidia-container-devices/"

static bool is_uuid(const char *text)
{
	return !strncmp(text, "GPU-", 4) || !strncmp(text, "MIG-", 4);
}

/* Whether it is a node of a GPU, /dev/nvidia0, or of all GPUs: /dev/nvidiactl, /dev/nvidia-uvm, /dev/nvidia-caps/...
 */
static bool is_node(const json_t *device, bool gpus_alone)
{
	const char *path = json_string_value(json_object_get(device, "path"));

	return path && !strncmp(path, "/dev/nvidia", 11) && (!gpus_alone || isdigit((unsigned char)path[11]));
}

/* Lists the GPUs that are given as volumes, with commas; NULL: none are. */
static const char *by_volumes(const json_t *spec, char *list, size_t size)
{
	const json_t *mount;
	size_t i, length = 0;

	json_array_foreach(json_object_get(spec, "mounts"), i, mount)
	{
		const char *to = json_string_value(json_object_get(mount, "destination"));

		if (!to || strncmp(to, VOLUMES, strlen(VOLUMES)) != 0 || !is_uuid(to + strlen(VOLUMES)))
			continue;
		length += (size_t)snprintf(
			list + length, size - length, "%s%s", length ? "," : "", to + strlen(VOLUMES));
		if (length >= size)
			runtime_fail("the container has more GPUs mounted than a machine can have");
	}
	return length ? list : NULL;
}

const char *runtime_gpus_given(const json_t *spec, bool several)
{
	static char list[RUNTIME_GPUS_MOST * ARB_UUID_BYTES];
	const char *given = runtime_bundle_env(json_object_get(spec, "process"), "NVIDIA_VISIBLE_DEVICES"),
		   *mounted = by_volumes(spec, list, sizeof(list));
	const json_t *device;
	size_t i;

	json_array_foreach(json_object_get(json_object_get(spec, "linux"), "devices"), i, device)
	{
		if (several && is_node(device, true))
			runtime_fail("the engine has put %s into the container, and which of this machine's "
				     "GPUs that is cannot be said; leave the choice to gpuarb-runtime",
				json_string_value(json_object_get(device, "path")));
	}
	if (mounted)
		return mounted;
	if (!given || !*given || !strcmp(given, "all") || !strcmp(given, "void") || !strcmp(given, "none") ||
		*given == '/')
		return NULL;
	if (!is_uuid(given) && several)
		runtime_fail("NVIDIA_VISIBLE_DEVICES=%.60s: name the GPU by its UUID, or say all", given);
	return is_uuid(given) ? given : NULL;
}

static void show(json_t *env, const struct runtime_grant *grant, bool nvidia)
{
	char list[RUNTIME_GPUS_MOST * ARB_UUID_BYTES] = "";
	json_t *process = json_pack("{s:O}", "env", env);
	size_t length = 0;

	if (!process)
		runtime_fail("out of memory");
	for (unsigned i = 0; i < grant->ngpus && length < sizeof(list); i++)
		length += (size_t)snprintf(
			list + length, sizeof(list) - length, "%s%s", i ? "," : "", grant->gpu[i]);
	runtime_bundle_set(env, "CUDA_VISIBLE_DEVICES", list);
	if (nvidia)
		runtime_bundle_set(env, "NVIDIA_VISIBLE_DEVICES", list);
	if (nvidia && !runtime_bundle_env(process, "NVIDIA_DRIVER_CAPABILITIES"))
		runtime_bundle_set(env, "NVIDIA_DRIVER_CAPABILITIES", "compute,utility");
	json_decref(process);
}

void runtime_gpus_show_process(json_t *process, const struct runtime_grant *grant)
{
	show(runtime_bundle_array(process, "env"), grant, false);
}

static bool is_granted(const char *uuid, const struct runtime_grant *grant)
{
	for (unsigned i = 0; i < grant->ngpus; i++)
		if (!strcmp(grant->gpu[i], uuid))
			return true;
	return false;
}

/* Removes the volumes of GPUs that were not granted; returns whether a volume is left. */
static bool volumes_stay(json_t *mounts, const struct runtime_grant *grant)
{
	bool stays = false;

	for (size_t i = json_array_size(mounts); i-- > 0;) {
		const char *to = json_string_value(json_object_get(json_array_get(mounts, i), "destination"));

		if (!to || strncmp(to, VOLUMES, strlen(VOLUMES) - 1) != 0)
			continue;
		if (to[strlen(VOLUMES) - 1] == '/' && is_granted(to + strlen(VOLUMES), grant))
			stays = true;
		else
			json_array_remove(mounts, i);
	}
	return stays;
}

/* NVIDIA's runtime would give a GPU that was not granted to a container that says "void" and gets no GPU by another
 * way, for example by a volume "all". */
void runtime_gpus_show(json_t *spec, const struct runtime_grant *grant)
{
	bool other_way = volumes_stay(json_object_get(spec, "mounts"), grant);
	json_t *process = json_object_get(spec, "process"), *device;
	size_t i;

	json_array_foreach(json_object_get(json_object_get(spec, "linux"), "devices"), i, device) other_way |=
		is_node(device, true);
	show(runtime_bundle_array(process, "env"), grant, !other_way);
}

/* Whether a rule of the control group allows this device and no other. */
static bool is_rule_of(const json_t *rule, const json_t *device)
{
	const json_t *major = json_object_get(rule, "major"), *minor = json_object_get(rule, "minor");

	return json_is_true(json_object_get(rule, "allow")) && json_is_integer(major) &&
	       json_is_integer(minor) && json_equal(major, json_object_get(device, "major")) &&
	       json_equal(minor, json_object_get(device, "minor"));
}

static void remove_rules(json_t *rules, const json_t *device)
{
	for (size_t i = json_array_size(rules); i-- > 0;)
		if (is_rule_of(json_array_get(rules, i), device))
			json_array_remove(rules, i);
}

void runtime_gpus_hide(json_t *spec)
{
	json_t *env = runtime_bundle_array(json_object_get(spec, "process"), "env"),
	       *linux_part = json_object_get(spec, "linux"),
	       *devices = json_object_get(linux_part, "devices"),
	       *rules = json_object_get(json_object_get(linux_part, "resources"), "devices"),
	       *mounts = json_object_get(spec, "mounts");

	runtime_bundle_set(env, "NVIDIA_VISIBLE_DEVICES", "void");
	runtime_bundle_set(env, "CUDA_VISIBLE_DEVICES", "");
	for (size_t i = json_array_size(devices); i-- > 0;)
		if (is_node(json_array_get(devices, i), false)) {
			remove_rules(rules, json_array_get(devices, i));
			json_array_remove(devices, i);
		}
	/* Nodes may be bind-mounted as well, and volumes may ask for GPUs. */
	for (size_t i = json_array_size(mounts); i-- > 0;) {
		const char *to = json_string_value(json_object_get(json_array_get(mounts, i), "destination"));

		if (to && (!strncmp(to, "/dev/nvidia", 11) || !strncmp(to, VOLUMES, strlen(VOLUMES) - 1)))
			json_array_remove(mounts, i);
	}
}
