#include "shm/segment/settings.h"

#include <errno.h>
#include <string.h>

#include "shm/base/atomic.h"
#include "shm/base/text.h"

#define TRIES 100000

void arb_settings_first(struct arb_control_copy *copy, const struct gpuarb_config *config)
{
	memset(copy, 0, sizeof(*copy));
	for (int key = 0; key < ARB_KEY_COUNT; key++)
		arb_store64(&copy->value[key], (uint64_t)config->value[key]);
	for (size_t i = 0; i < config->nlimits; i++) {
		struct gpuarb_config_limit *l = &config->limits[i];

		for (int key = 0; key < ARB_KEY_COUNT; key++)
			if (gpuarb_keys[key].scope == ARB_SCOPE_ACCOUNT &&
				l->set & gpuarb_config_flag((enum arb_key)key))
				arb_settings_set_limit(copy, l->name, (enum arb_key)key,
					gpuarb_config_value(l, (enum arb_key)key));
	}
	for (uint32_t i = 0; i < config->nclasses; i++)
		arb_settings_set_class(copy, &config->classes[i]);
}

uint64_t arb_settings_epoch(const struct arb_control *control)
{
	return arb_load64(&control->head);
}

static bool unchanged(const struct arb_control *control, uint64_t head)
{
	arb_fence_acquire(); /* pairs SNAPSHOT_REUSE */
	return arb_load64(&control->head) == head;
}

int arb_settings_read(const struct arb_control *control, int64_t value[ARB_KEY_COUNT], uint64_t *epoch)
{
	for (int i = 0; i < TRIES; i++) {
		uint64_t head = arb_load64_acquire(&control->head); /* pairs CONTROL_PUBLISH */
		const struct arb_control_copy *copy = &control->copy[head & 1];

		for (int key = 0; key < ARB_KEY_COUNT; key++) {
			const struct gpuarb_key *k = &gpuarb_keys[key];
			int64_t v = (int64_t)arb_load64(&copy->value[key]);
			int64_t most = k->most;

			if (k->kind == ARB_KIND_CHOICE) {
				most = 0;
				for (const char *p = k->choices; *p; p++)
					most += *p == '|';
			}
			if ((v < k->least || v > most) && !(k->kind == ARB_KIND_AUTO && v == -1))
				v = k->initial;
			value[key] = v;
		}
		if (unchanged(control, head)) {
			*epoch = head;
			return 0;
		}
		arb_pause();
	}
	return -EAGAIN;
}

static void copy_limit(const struct arb_limit *from, struct gpuarb_config_limit *to)
{
	arb_text_load(from->name, ARB_NAME_WORDS, to->name);
	to->set = (uint32_t)arb_load64(&from->set);
	to->core_pct = (int64_t)arb_load64(&from->core_pct);
	to->mem_bytes = (int64_t)arb_load64(&from->mem_bytes);
	to->priority = (int64_t)arb_load64(&from->priority);
	to->request_pct = (int64_t)arb_load64(&from->request_pct);
	to->weight = (int64_t)arb_load64(&from->weight);
	for (unsigned i = 0; i < ARB_MEMBERS; i++)
		to->members[i] = (int64_t)arb_load64(&from->members[i]);
	for (int key = 0; key < ARB_KEY_COUNT; key++) {
		int64_t value;

		if (gpuarb_keys[key].scope != ARB_SCOPE_ACCOUNT)
			continue;
		value = *gpuarb_config_value(to, (enum arb_key)key);
		if (value < gpuarb_keys[key].least || value > gpuarb_keys[key].most)
			to->set &= ~gpuarb_config_flag((enum arb_key)key);
	}
}

static uint32_t limits_in(const struct arb_control_copy *copy)
{
	uint64_t n = arb_load64(&copy->nlimits);

	return n > ARB_CONTROL_LIMITS ? ARB_CONTROL_LIMITS : (uint32_t)n;
}

static uint32_t find(const struct arb_control_copy *copy, const char *name)
{
	uint32_t n = limits_in(copy), i = 0;

	while (i < n && !arb_text_equals(copy->limit[i].name, ARB_NAME_WORDS, name))
		i++;
	return i;
}

int arb_settings_limit_in(
	const struct arb_control_copy *copy, const char *name, struct gpuarb_config_limit *limit)
{
	uint32_t at = find(copy, name);
	int found = at < limits_in(copy);

	memset(limit, 0, sizeof(*limit));
	if (found)
		copy_limit(&copy->limit[at], limit);
	return found;
}

int arb_settings_limit(const struct arb_control *control, const char *name, struct gpuarb_config_limit *limit)
{
	for (int i = 0; i < TRIES; i++) {
		uint64_t head = arb_load64_acquire(&control->head); /* pairs CONTROL_PUBLISH */
		int found = arb_settings_limit_in(&control->copy[head & 1], name, limit);

		if (unchanged(control, head))
			return found;
		arb_pause();
	}
	return -EAGAIN;
}

int arb_settings_limit_at_in(
	const struct arb_control_copy *copy, uint32_t i, struct gpuarb_config_limit *limit)
{
	bool found = i < limits_in(copy);

	if (found)
		copy_limit(&copy->limit[i], limit);
	return found;
}

int arb_settings_limit_at(const struct arb_control *control, uint32_t i, struct gpuarb_config_limit *limit)
{
	for (int tries = 0; tries < TRIES; tries++) {
		uint64_t head = arb_load64_acquire(&control->head); /* pairs CONTROL_PUBLISH */
		int found = arb_settings_limit_at_in(&control->copy[head & 1], i, limit);

		if (unchanged(control, head))
			return found;
		arb_pause();
	}
	return -EAGAIN;
}

static struct arb_memory_rules memory_rules(const int64_t value[ARB_KEY_COUNT])
{
	uint64_t fixed_ns = (uint64_t)value[ARB_KEY_SWITCH_FIXED_MS] * 1000000u;

	if (!fixed_ns)
		fixed_ns = (uint64_t)value[ARB_KEY_SWITCH_FIXED_S] * 1000000000u;
	return (struct arb_memory_rules){
		.physical = (uint64_t)value[ARB_KEY_PHYSICAL_MEMORY_MB] << 20,
		.oversub_permille = value[ARB_KEY_OVERSUB_RATIO],
		.fixed = (uint64_t)value[ARB_KEY_RESERVE_FIXED_MB] << 20,
		.percent = (unsigned)value[ARB_KEY_MEMORY_RESERVE_PERCENT],
		.per_client = (uint64_t)value[ARB_KEY_RESERVE_PER_CLIENT_MB] << 20,
		.context = value[ARB_KEY_CONTEXT_MB] > 0 ? (uint64_t)value[ARB_KEY_CONTEXT_MB] << 20 : 0,
		.context_measured = value[ARB_KEY_CONTEXT_MB] < 0,
		.turn_ns = value[ARB_KEY_SWITCH_TIME] == 1 ? fixed_ns : 0,
		.bytes_per_s = (uint64_t)value[ARB_KEY_SWITCH_MB_PER_S] << 20,
		.multiplier = (unsigned)value[ARB_KEY_SWITCH_MULTIPLIER],
		.least_ns = (uint64_t)value[ARB_KEY_SWITCH_MIN_MS] * 1000000u,
		.most_ns = (uint64_t)value[ARB_KEY_SWITCH_MAX_MS] * 1000000u,
		.idle_ns = (uint64_t)value[ARB_KEY_SWITCH_IDLE_MS] * 1000000u,
		.oversubscribe = value[ARB_KEY_OVERSUBSCRIBE] != 0,
		.alone_may_exceed = value[ARB_KEY_SINGLE_OVERSUB] != 0,
		.prefetch = value[ARB_KEY_PREFETCH] != 0,
	};
}

void arb_settings_rules(const int64_t value[ARB_KEY_COUNT], struct arb_rules *rules)
{
	bool oversubscribe = value[ARB_KEY_OVERSUBSCRIBE] != 0;

	*rules = (struct arb_rules){
		/* If clients may have more memory than there is, memory decides which clients run together. */
		.policy = oversubscribe ? ARB_POLICY_MEMORY : (enum arb_policy)value[ARB_KEY_POLICY],
		.alternation = (enum arb_alternation)value[ARB_KEY_ALTERNATION],
		.wall = value[ARB_KEY_BILLING] == 1,
		.borrow = value[ARB_KEY_BORROW] == 1,
		.carryover_pct = (unsigned)value[ARB_KEY_CARRYOVER_PERCENT],
		.win_ms = (uint32_t)value[ARB_KEY_WINDOW_MS],
		.reserve_ns = (uint64_t)value[ARB_KEY_RESERVE_US] * 1000u,
		.max_wait_ns = (uint64_t)value[ARB_KEY_MAX_WAIT_MS] * 1000000u,
		.grace_ns = (uint64_t)value[ARB_KEY_GRACE_MS] * 1000000u,
		.slice_ticks = (uint64_t)value[ARB_KEY_SLICE_MS] * 1000000u * ARB_TICKS_PER_NS,
		.look_ns = value[ARB_KEY_SAMPLE_INTERVAL_MS] > 0
				   ? (uint64_t)value[ARB_KEY_SAMPLE_INTERVAL_MS] * 1000000u
				   : 0,
		.tail_pct = (int)value[ARB_KEY_TAIL_BILLING],
		.user_slots = (int)value[ARB_KEY_SLOTS_PER_USER],
		.memory = memory_rules(value),
		.usage = {.sample_ns = (uint64_t)value[ARB_KEY_USAGE_SAMPLE_MS] * 1000000u,
			.ttl_ns = (uint64_t)value[ARB_KEY_CACHE_TTL_MS] * 1000000u,
			.high_pct = (unsigned)value[ARB_KEY_HIGH_WATER],
			.low_pct = (unsigned)value[ARB_KEY_LOW_WATER],
			.high_boost_pct = (unsigned)value[ARB_KEY_HIGH_WATER_BOOST],
			.low_boost_pct = (unsigned)value[ARB_KEY_LOW_WATER_BOOST],
			.long_task_ms = (uint64_t)value[ARB_KEY_LONG_TASK_MS],
			.boost_ttl_ns = (uint64_t)value[ARB_KEY_BOOST_TTL_MS] * 1000000u},
	};
}

static void store_class(struct arb_class *to, const struct gpuarb_class_rules *from)
{
	arb_text_store(to->name, ARB_CLASS_WORDS, from->name);
	arb_store64(&to->priority, from->priority);
	arb_store64(&to->flags, (from->skip ? ARB_CLASS_SKIP : 0) | (from->pass ? ARB_CLASS_PASS : 0));
	arb_store64(&to->max_wait_ms, from->max_wait_ms);
	arb_store64(&to->queue_limit, from->queue_limit);
}

void arb_settings_load_class(const struct arb_class *from, struct gpuarb_class_rules *to)
{
	uint64_t flags = arb_load64(&from->flags), priority = arb_load64(&from->priority),
		 wait = arb_load64(&from->max_wait_ms), limit = arb_load64(&from->queue_limit);

	*to = gpuarb_class_default;
	arb_text_load(from->name, ARB_CLASS_WORDS, to->name);
	if (to->name[0] && !gpuarb_class_name_ok(to->name))
		to->name[0] = '\0';
	to->skip = flags & ARB_CLASS_SKIP;
	to->pass = flags & ARB_CLASS_PASS;
	if (priority >= 1 && priority <= 100)
		to->priority = (unsigned)priority;
	if (wait <= ARB_CLASS_WAIT_MS_MAX)
		to->max_wait_ms = (unsigned)wait;
	if (limit <= ARB_SLOTS_MAX)
		to->queue_limit = (unsigned)limit;
}

uint32_t arb_settings_classes(
	const struct arb_control *control, struct gpuarb_class_rules classes[ARB_CLASSES])
{
	uint32_t n = 0;

	for (int tries = 0; tries < TRIES; tries++) {
		uint64_t head = arb_load64_acquire(&control->head); /* pairs CONTROL_PUBLISH */

		n = 0;
		for (uint32_t i = 0; i < ARB_CLASSES; i++) {
			arb_settings_load_class(&control->copy[head & 1].classes[i], &classes[i]);
			if (classes[i].name[0])
				n = i + 1;
		}
		if (unchanged(control, head))
			break;
		arb_pause();
	}
	return n;
}

static uint32_t find_class(const struct arb_control_copy *copy, const char *name)
{
	uint32_t i = 0;

	while (i < ARB_CLASSES && !arb_text_equals(copy->classes[i].name, ARB_CLASS_WORDS, name))
		i++;
	return i;
}

int arb_settings_set_class(struct arb_control_copy *draft, const struct gpuarb_class_rules *rules)
{
	uint32_t at = find_class(draft, rules->name);

	/* The first place belongs to the default class, whether or not it was ever changed. */
	if (strcmp(rules->name, gpuarb_class_default.name) == 0)
		at = 0;
	else if (at == ARB_CLASSES)
		for (at = 1; at < ARB_CLASSES && arb_load64(&draft->classes[at].name[0]); at++)
			;
	if (at == ARB_CLASSES)
		return -ENOSPC;
	store_class(&draft->classes[at], rules);
	return 0;
}

bool arb_settings_drop_class(struct arb_control_copy *draft, const char *name)
{
	uint32_t at = find_class(draft, name);

	if (at == ARB_CLASSES)
		return false;
	memset(&draft->classes[at], 0, sizeof(draft->classes[at]));
	return true;
}

int arb_settings_begin(const struct arb_control *control, struct arb_control_copy *draft)
{
	/* We are the only writer, so nothing changes while we copy. */
	*draft = control->copy[arb_load64_acquire(&control->head) & 1];
	return arb_load64(&draft->nlimits) <= ARB_CONTROL_LIMITS ? 0 : -EBADMSG;
}

int arb_settings_set_limit(
	struct arb_control_copy *draft, const char *name, enum arb_key key, const int64_t *value)
{
	uint32_t at = find(draft, name), n = limits_in(draft);
	uint64_t flag = gpuarb_config_flag(key);
	struct arb_limit *limit = &draft->limit[at];
	uint64_t set;

	if (at == n) {
		if (!value)
			return 0;
		if (n >= ARB_CONTROL_LIMITS)
			return -ENOSPC;
		memset(limit, 0, sizeof(*limit));
		arb_text_store(limit->name, ARB_NAME_WORDS, name);
		arb_store64(&draft->nlimits, n + 1);
	}
	for (unsigned i = 0; value && key == ARB_KEY_MEMBERS && i < ARB_MEMBERS; i++)
		arb_store64(&limit->members[i], (uint64_t)value[i]);
	if (value && key != ARB_KEY_MEMBERS)
		arb_store64(key == ARB_KEY_CORE       ? &limit->core_pct
			    : key == ARB_KEY_MEM      ? &limit->mem_bytes
			    : key == ARB_KEY_PRIORITY ? &limit->priority
			    : key == ARB_KEY_REQUEST  ? &limit->request_pct
						      : &limit->weight,
			(uint64_t)*value);
	set = arb_load64(&limit->set);
	set = value ? set | flag : set & ~flag;
	arb_store64(&limit->set, set);
	/* An entry without any limit is removed: the last entry takes its place. */
	if (!set) {
		n = limits_in(draft);
		*limit = draft->limit[n - 1];
		memset(&draft->limit[n - 1], 0, sizeof(*limit));
		arb_store64(&draft->nlimits, n - 1);
	}
	return 0;
}

void arb_settings_publish(struct arb_control *control, const struct arb_control_copy *draft)
{
	uint64_t head = arb_load64_acquire(&control->head);
	arb_u64 *to = (arb_u64 *)&control->copy[!(head & 1)];
	const arb_u64 *from = (const arb_u64 *)draft;

	arb_fence_release(); /* SNAPSHOT_REUSE: a late reader of this copy sees that the head moved on */
	for (size_t i = 0; i < sizeof(*draft) / sizeof(arb_u64); i++)
		arb_store64(&to[i], arb_load64(&from[i]));
	arb_store64_release(&control->head, ((head >> 1) + 1) << 1 | !(head & 1)); /* CONTROL_PUBLISH */
}
