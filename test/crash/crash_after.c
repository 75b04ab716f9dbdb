/* What must hold after some operations, besides what must always hold. */
#include "gpuarb/config.h"

#include "test/crash/crash.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "shm/base/atomic.h"
#include "shm/segment/events.h"
#include "shm/base/os.h"
#include "shm/segment/settings.h"
#include "shm/base/text.h"

#define MUST(call) world_must(call, #call)

static void open_admin(struct world *w)
{
	if (w->admin.control)
		return;
	MUST(arb_control_map_open(&w->admin, w->dir, w->gpu, true, NULL, NULL, NULL));
	if (!w->draft)
		w->draft = malloc(sizeof(*w->draft));
	MUST(w->draft ? 0 : -ENOMEM);
}

void crash_draft(struct world *w)
{
	int64_t pct = CRASH_CORE_PCT(w->runs & 1);

	open_admin(w);
	MUST(arb_settings_begin(w->admin.control, w->draft));
	arb_store64(&w->draft->value[ARB_KEY_RESERVE_US], CRASH_RESERVE_US(w->runs & 1));
	MUST(arb_settings_set_limit(w->draft, "alpha", ARB_KEY_CORE, &pct));
}

int crash_publish(struct world *w)
{
	int fd = arb_file_open(&w->admin.file, O_RDWR), r;

	if (fd < 0)
		return fd;
	r = arb_os_lock(fd, ARB_BYTE_CONTROL_WRITER);
	if (r == 0) {
		arb_settings_publish(w->admin.control, w->draft);
		arb_os_unlock(fd, ARB_BYTE_CONTROL_WRITER);
	}
	arb_os_close(fd);
	return r;
}

void each_settings(struct world *w)
{
	int64_t value[ARB_KEY_COUNT];
	struct gpuarb_config_limit limit;
	uint64_t epoch;
	bool odd;

	open_admin(w);
	MUST(arb_settings_read(w->admin.control, value, &epoch));
	odd = value[ARB_KEY_RESERVE_US] == CRASH_RESERVE_US(true);
	if (epoch >> 1 && (arb_settings_limit(w->admin.control, "alpha", &limit) != 1 ||
				  limit.core_pct != CRASH_CORE_PCT(odd) ||
				  value[ARB_KEY_RESERVE_US] != CRASH_RESERVE_US(odd)))
		world_wrong(w, "settings are a mixture of two");
}

void after_settings(struct world *w)
{
	each_settings(w);
	crash_draft(w);
	if (crash_publish(w) < 0)
		world_wrong(w, "the next administrator cannot write");
}

void after_event(struct world *w)
{
	struct arb_segment *seg = &w->a->seg;
	struct arb_event_copy event;
	uint64_t first, end, lost = 0;

	arb_events_range(seg, &first, &end);
	for (uint64_t i = w->events_before > first ? w->events_before : first; i < end; i++)
		if (arb_events_read(seg, i, &event) < 0)
			lost++;
		else if (event.kind == ARB_EVENT_NONE ||
			 (event.kind == ARB_EVENT_WINDOW && (event.a != 1 || event.b != 2)))
			world_wrong(w, "an event that was half written is shown");
	if (lost > 1)
		world_wrong(w, "%llu events were lost by one death", (unsigned long long)lost);
}

/* An evicted client must find its gate closed when it looks, if not earlier. */
void after_eviction(struct world *w)
{
	struct gpuarb_client *b = w->b;
	struct arb_snap snap;

	MUST(gpuarb_client_tick(b));
	MUST(arb_running_read(&b->seg, &snap));
	if (arb_load32(&b->seg.slots[b->me.slot].gate) != arb_bit_test(snap.running, b->me.slot))
		world_wrong(w, "the gate of slot %u is %s", b->me.slot,
			arb_bit_test(snap.running, b->me.slot) ? "closed while it runs"
							       : "open after it was evicted");
	MUST(gpuarb_client_leave(b, 0));
}

/* Another member of the victim's account gets the memory that the victim left behind. */
void after_memory(struct world *w)
{
	int r = gpuarb_client_mem_reserve(w->b, 3000);

	if (r < 0)
		world_wrong(
			w, "a member of the dead one's account does not get its memory: %s", strerror(-r));
	else
		MUST(gpuarb_client_mem_release(w->b, 3000));
}

void after_naming(struct world *w)
{
	const struct arb_segment *seg = &w->a->seg;
	char name[ARB_NAME_BYTES];

	for (uint32_t i = 0; i < seg->naccounts; i++) {
		arb_text_load(seg->accounts[i].name, ARB_NAME_WORDS, name);
		if (name[0] && strcmp(name, "alpha") != 0 && strcmp(name, "late") != 0 &&
			(strncmp(name, "an-account-of-run-", 18) != 0 || strlen(name) != 26))
			world_wrong(w, "account %u has half a name: %s", i, name);
	}
}

/* However far the change got, all members of the account have the same limits. */
void after_limits(struct world *w)
{
	struct gpuarb_client *c = world_client(w, "victim", 0, 0);
	struct gpuarb_client_status one, other;

	MUST(gpuarb_client_status(c, &one));
	MUST(gpuarb_client_status(w->b, &other));
	if (one.core_pct != other.core_pct || one.mem_limit != other.mem_limit)
		world_wrong(w, "one member has limits of %u %% and %llu bytes, another of %u %% and %llu",
			one.core_pct, (unsigned long long)one.mem_limit, other.core_pct,
			(unsigned long long)other.mem_limit);
	gpuarb_client_close(c);
}

static void mode_is(struct world *w, const char *sub, mode_t mode)
{
	char path[512];
	struct stat st;

	snprintf(path, sizeof(path), "%s%s", w->dir, sub);
	if (stat(path, &st) != 0 || (st.st_mode & 07777) != mode)
		world_wrong(w, "%s has mode %o instead of %o", sub, st.st_mode & 07777, mode);
}

void after_creation(struct world *w)
{
	mode_is(w, "", 0755);
	mode_is(w, "/state", 01770);
	mode_is(w, "/control", 0755);
}
