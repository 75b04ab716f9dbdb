/*
 * What a client would be told of the GPU's memory, for a program that only looks: both segments are mapped
 * read-only, for the moment of the call.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "gpuarb/client.h"

#include "shm/segment/account.h"
#include "shm/base/atomic.h"
#include "shm/client/client_state.h"
#include "shm/policy/memory_fit.h"
#include "shm/base/os.h"
#include "shm/segment/settings.h"
#include "shm/base/text.h"

/* Opens the segments that exist already. If a client could not use one of them, it is left out here, too. */
static void open_readable(struct gpuarb_client *c, const char *dir, const char *gpu)
{
	int r = arb_segment_open(&c->seg, dir, gpu, false, NULL, NULL);

	if (r == 0 || r == -ENOENT)
		c->have_control = arb_control_map_open(&c->control, dir, gpu, false, NULL, NULL, NULL) == 0;
}

/* Reads what is set for the GPU and for the account. Where there is no control segment, reads what a new one would
 * hold; then the rules are those of arbiter.conf already. */
static struct gpuarb_config_limit read_settings(struct gpuarb_client *c, const struct gpuarb_config *config)
{
	struct gpuarb_config_limit set = {.set = 0};
	int64_t value[ARB_KEY_COUNT];

	if (c->have_control) {
		if (arb_settings_read(c->control.control, value, &c->control_epoch) == 0)
			arb_settings_rules(value, &c->rules);
		if (arb_settings_limit(c->control.control, c->opened.name, &set) < 0)
			set.set = 0;
		return set;
	}
	for (size_t i = 0; i < config->nlimits; i++)
		if (!strcmp(config->limits[i].name, c->opened.name))
			set = config->limits[i];
	return set;
}

static uint32_t find_account(const struct gpuarb_client *c)
{
	uint32_t high = c->seg.header ? arb_load32_acquire(&c->seg.header->accounts_high) : 0;

	if (high > c->seg.naccounts)
		high = c->seg.naccounts;
	for (uint32_t a = 0; a < high; a++)
		if (arb_text_equals(c->seg.accounts[a].name, ARB_NAME_WORDS, c->opened.name))
			return a;
	return ARB_NONE;
}

/*
 * Reads what the account's living members have counted, and asked for. Dead members are not cleaned up here, so what
 * they held is left out. A client that joins an account without members finds nothing asked for.
 */
static void read_account(const struct gpuarb_client *c, uint64_t *used, struct arb_asked *asked)
{
	uint32_t a = find_account(c);
	struct arb_account_snap acct;
	uint64_t dead = 0;
	int fd;

	if (a == ARB_NONE || arb_account_read(&c->seg, a, &acct) < 0)
		return;
	fd = arb_segment_locks(&c->seg, O_RDONLY);
	for (uint32_t i = arb_bits_next(acct.attached, c->seg.nwords, 0); i != ARB_NONE;
		i = arb_bits_next(acct.attached, c->seg.nwords, i + 1))
		if (fd >= 0 && arb_os_is_locked(fd, ARB_BYTE_SLOT(i)) == 0)
			dead += arb_load64(&c->seg.slots[i].mem_now);
		else
			arb_asked_add(asked, &c->seg, i);
	if (fd >= 0)
		arb_os_close(fd);
	*used = acct.mem_used > dead ? acct.mem_used - dead : 0;
}

static void know_memory(struct gpuarb_client *c, uint64_t physical)
{
	struct arb_memory_rules *m = &c->rules.memory;

	if (!m->physical && c->seg.header)
		m->physical = arb_load64(&c->seg.header->mem_physical);
	if (!m->physical)
		m->physical = physical;
	if (m->physical > ARB_PHYSICAL_MOST)
		m->physical = 0;
	c->mem.most = arb_memory_most(m);
}

static void read_memory(struct gpuarb_client *c, const struct gpuarb_config *config, uint64_t physical,
	struct gpuarb_client_memory *memory)
{
	struct gpuarb_config_limit set = read_settings(c, config);
	struct arb_asked asked = {0};
	uint64_t used = 0;

	know_memory(c, physical);
	read_account(c, &used, &asked);
	/* The strictest limits count among those that members ask for; this program would be a member. */
	if (c->asked.mem_bytes && (!asked.mem || c->asked.mem_bytes < asked.mem))
		asked.mem = c->asked.mem_bytes;
	*memory = (struct gpuarb_client_memory){.used = used,
		.quota = set.set & ARB_LIMIT_MEM ? (uint64_t)set.mem_bytes : asked.mem,
		.physical = c->rules.memory.physical,
		.context = c->rules.memory.context,
		.context_measured = c->rules.memory.context_measured && !c->rules.memory.oversubscribe,
		.oversubscribe = c->rules.memory.oversubscribe,
		.prefetch = c->rules.memory.prefetch};
	arb_client_tell_memory(memory, c->mem.most);
}

int gpuarb_client_look(
	const struct gpuarb_options *options, uint64_t physical, struct gpuarb_client_memory *memory)
{
	struct gpuarb_client *c = calloc(1, sizeof(*c));
	struct arb_os_identity id;
	struct gpuarb_config config;
	int saved = errno, loaded, r;

	if (!c)
		return -ENOMEM;
	loaded = gpuarb_config_load(&config, options->conf, options->ignore_env, NULL);
	r = arb_client_describe(c, options, &config, NULL);
	if (r == 0) {
		if (c->opened.own_account) {
			arb_os_identify(&id);
			arb_client_own_name(c, &id);
		}
		/* A client with settings that make no sense would go on alone, without the segments. */
		if (loaded == 0)
			open_readable(c, arb_client_dir(options), options->gpu);
		read_memory(c, &config, physical, memory);
	}
	gpuarb_config_free(&config);
	gpuarb_client_close(c);
	errno = saved;
	return r;
}
