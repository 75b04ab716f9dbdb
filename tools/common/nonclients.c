#include "tools/common/nonclients.h"

#include <string.h>
#include <sys/stat.h>

#include "gpuarb/config.h"

#include "tools/common/proc.h"

/* The inode of the first PID namespace, a constant of the kernel. In this namespace our pids are the host's. */
#define FIRST_PID_NAMESPACE 0xeffffffcu

static bool in_first_namespace(void)
{
	struct stat own;

	return stat("/proc/self/ns/pid", &own) == 0 && own.st_ino == FIRST_PID_NAMESPACE;
}

static bool is_client(const struct gpuarb_picture *p, const struct proc *proc)
{
	for (unsigned i = 0; p && i < p->nclients; i++)
		if (p->clients[i].pid == proc->inner_pid && p->clients[i].start_time == proc->start_time)
			return true;
	return false;
}

static void add(struct nonclients *to, const struct nvml_process *process, bool named)
{
	unsigned at = to->nlisted < NONCLIENTS_LISTED ? to->nlisted : NONCLIENTS_LISTED - 1;
	uint64_t bytes = process->bytes == NVML_BYTES_UNKNOWN ? 0 : process->bytes;

	to->count++;
	to->bytes += bytes;
	if (to->nlisted == NONCLIENTS_LISTED && to->list[at].bytes != NVML_BYTES_UNKNOWN &&
		to->list[at].bytes >= bytes)
		return;
	if (to->nlisted < NONCLIENTS_LISTED)
		to->nlisted++;
	for (; at > 0 && (to->list[at - 1].bytes == NVML_BYTES_UNKNOWN || to->list[at - 1].bytes < bytes);
		at--)
		to->list[at] = to->list[at - 1];
	to->list[at].pid = process->pid;
	to->list[at].bytes = process->bytes;
	to->list[at].command[0] = '\0';
	if (named)
		proc_command(process->pid, to->list[at].command, sizeof(to->list[at].command));
}

/* Finds NVML's processes that are no clients. Returns false if they cannot be told apart. */
static bool by_process(const struct gpuarb_picture *p, const struct nvml_use *use, struct nonclients *to)
{
	bool client[NVML_PROCESSES_MOST] = {false}, hidden = false, holds = false;
	unsigned matched = 0, living = 0;

	if (!use->processes_known || use->nprocesses > NVML_PROCESSES_MOST)
		return false;
	for (unsigned i = 0; p && i < p->nclients; i++) {
		living += !p->clients[i].dead;
		holds |= !p->clients[i].dead && p->clients[i].mem_bytes > 0;
	}
	for (unsigned i = 0; i < use->nprocesses; i++) {
		struct proc proc;

		if (!proc_read(use->processes[i].pid, &proc))
			hidden = true;
		else
			client[i] = is_client(p, &proc);
		matched += client[i];
	}
	/* A process that is hidden from us may be a client. If a client has memory and yet no client is found among
	 * NVML's processes, NVML's pids belong to another namespace. Without clients no process can be one. */
	if (living && (hidden || (holds && !matched)))
		return false;
	for (unsigned i = 0; i < use->nprocesses; i++)
		if (!client[i])
			add(to, &use->processes[i], matched > 0 || in_first_namespace());
	to->by = NONCLIENTS_BY_PROCESS;
	return true;
}

/* Where NVML does not say how much a process has, the difference includes it. */
static void by_difference(const struct gpuarb_picture *p, const struct nvml_use *use, struct nonclients *to)
{
	uint64_t context = p ? (uint64_t)p->setting[ARB_KEY_RESERVE_PER_CLIENT_MB] << 20 : 0, clients = 0;

	if (!use->memory_known)
		return;
	for (unsigned i = 0; p && i < p->nclients; i++)
		if (!p->clients[i].dead)
			clients += p->clients[i].mem_bytes + context;
	if (!to->by)
		to->by = NONCLIENTS_BY_DIFFERENCE;
	to->bytes = use->used > clients ? use->used - clients : 0;
}

void nonclients_find(const struct gpuarb_picture *p, const struct nvml_use *use, struct nonclients *to)
{
	bool unsaid = false;

	memset(to, 0, sizeof(*to));
	if (!use)
		return;
	to->memory_known = use->memory_known;
	to->total = use->total;
	to->used = use->used;
	to->utilisation_known = use->utilisation_known;
	to->utilisation_pct = use->utilisation_pct;
	if (by_process(p, use, to))
		for (unsigned i = 0; i < to->nlisted; i++)
			unsaid |= to->list[i].bytes == NVML_BYTES_UNKNOWN;
	if (!to->by || unsaid)
		by_difference(p, use, to);
}

void nonclients_tell(const char *dir, const char *gpu, const struct nonclients *found)
{
	struct gpuarb_error err;

	/* This fails for a user who may not write there; then the watchdog or a client will write it. */
	if (found->by)
		gpuarb_control_foreign(dir, gpu, found->used,
			found->by == NONCLIENTS_BY_PROCESS ? &found->bytes : NULL, &err);
}
