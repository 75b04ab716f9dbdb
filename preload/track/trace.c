#include "preload/track/trace.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "gpuarb.h"

#include "preload/book/codec.h"
#include "preload/process/log.h"
#include "preload/process/own.h"
#include "preload/track/track.h"
#include "shm/base/os.h"
#include "shm/base/word.h"

/* A record has about ten bytes. At 200,000 events a second the tracker has a tenth of a second to write one half. */
#define HALF (256u << 10)
/* Records are written when there are this many bytes, or this long after the last time. A kill loses at most that. */
#define DUE_BYTES (16u << 10)
#define DUE_NS    (20 * MS)
#define NAMES     256

struct trace {
	char path[PATH_MAX]; /* empty: only the log is wanted */
	bool logs;           /* GPUARB_LOG=debug */
	uint8_t outcome;     /* codec_outcome() after the last event */
	bool stopped;        /* no more is recorded */
	uint64_t bytes;      /* of the header and all records so far */
	uint64_t written_ns;
	unsigned filling; /* the half that records go into; the other one is empty or waits to be written */
	uint32_t used[2];
	uint32_t busy; /* a thread is recording, or the program has ended */
	struct codec codec;
	uint8_t half[2][HALF];
};

static const char *reason(int error)
{
	return strerror(-error);
}

/* Creates the file under the first name that is not taken. 0 or -errno. */
static int create(struct trace *t, const char *file, const uint8_t *header, size_t size)
{
	int r = -EEXIST;

	for (unsigned i = 0; r == -EEXIST && i < NAMES; i++) {
		int n = i == 0   ? snprintf(t->path, sizeof(t->path), "%s", file)
			: i == 1 ? snprintf(t->path, sizeof(t->path), "%s.%d", file, (int)getpid())
				 : snprintf(t->path, sizeof(t->path), "%s.%d.%u", file, (int)getpid(), i - 1);

		r = n < (int)sizeof(t->path) ? arb_os_append(t->path, true, header, size) : -ENAMETOOLONG;
	}
	return r;
}

/* Makes the path absolute, because the program may change its directory later. 0 or -errno. */
static int whole_path(const char *file, char *path, size_t size)
{
	long n = 0;

	if (*file != '/') {
		n = syscall(SYS_getcwd, path, size);
		if (n <= 0)
			return -errno;
		path[n - 1] = '/';
	}
	return snprintf(path + n, size - (size_t)n, "%s", file) < (int)(size - (size_t)n) ? 0 : -ENAMETOOLONG;
}

static bool open_file(struct trace *t, const struct arb_device *device, const char *file, bool limited)
{
	struct trace_header h = {.thresholds = codec_thresholds(),
		.began_ns = track_now(),
		.pid = (uint32_t)getpid(),
		.limited = limited};
	uint8_t header[CODEC_MOST];
	char path[PATH_MAX];
	int r = whole_path(file, path, sizeof(path));

	snprintf(h.version, sizeof(h.version), "%s", GPUARB_VERSION);
	snprintf(h.program, sizeof(h.program), "%s", program_invocation_short_name);
	snprintf(h.gpu, sizeof(h.gpu), "%s", device->name);
	codec_begin(&t->codec, &h);
	t->bytes = codec_put_header(header, &h);
	t->written_ns = h.began_ns;
	if (!r)
		r = create(t, path, header, t->bytes);
	if (!r)
		return true;
	arb_log(ARB_LOG_WARN, "%s: the trace cannot be written to %s (%s): nothing is recorded", device->name,
		file, reason(r));
	t->path[0] = '\0';
	return false;
}

void trace_begin(struct track *track, const struct arb_device *device, bool limited)
{
	/* A program with raised privileges must not be made to write files. */
	const char *file = secure_getenv("GPUARB_TRACE");
	bool logs = arb_log_wants(ARB_LOG_DEBUG);
	struct trace *t;
	int saved = errno;

	if (!(file && *file) && !logs)
		return;
	t = mmap(NULL, sizeof(*t), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (t == MAP_FAILED)
		goto out;
	t->logs = logs;
	t->stopped = !(file && *file && open_file(t, device, file, limited));
	if (t->stopped && !logs)
		munmap(t, sizeof(*t));
	else
		track->trace = t;
out:
	errno = saved;
}

static uint32_t thread_number(void)
{
	if (arb_mine.is_tracker)
		return 0;
	if (!arb_mine.number)
		arb_mine.number = (uint32_t)syscall(SYS_gettid);
	return arb_mine.number;
}

/* Logs what the book decided, and its state, if there was an action or the state has changed. */
static void log_decision(
	struct track *track, const struct book_event *e, const struct book_action *act, uint8_t outcome)
{
	char words[256];

	if (e->kind == EVENT_TIMER || (act->what == ACT_NONE && outcome == track->trace->outcome))
		return;
	book_words(words, sizeof(words), e, act);
	arb_log(ARB_LOG_DEBUG, "%s: %s [%s%s]", track->device->name, words,
		book_state_name(track->book.state), track->book.open ? ", open" : "");
}

static void put(struct trace *t, const struct trace_record *r)
{
	uint32_t *used = &t->used[t->filling];
	size_t n = codec_put(&t->codec, t->half[t->filling] + *used, r);

	*used += (uint32_t)n;
	t->bytes += n;
}

/* Writes the last record. There is always room for it. */
static void stop(struct trace *t, enum trace_note note)
{
	const struct trace_record r = {.note = (uint8_t)note};

	put(t, &r);
	t->stopped = true;
}

static void record(struct trace *t, const struct trace_record *r)
{
	if (t->bytes + 2 * CODEC_MOST > TRACE_MOST) {
		stop(t, TRACE_FULL);
		return;
	}
	if (t->used[t->filling] + 2 * CODEC_MOST > HALF) {
		if (t->used[!t->filling]) {
			stop(t, TRACE_SLOW);
			return;
		}
		t->filling = !t->filling;
		tracker_ring();
	}
	put(t, r);
}

void trace_told(struct track *track, const struct book_event *e, const struct book_action *act)
{
	struct trace *t = track->trace;
	struct trace_record r;
	uint8_t outcome = codec_outcome(&track->book);

	if (t->logs)
		log_decision(track, e, act, outcome);
	t->outcome = outcome;
	if (t->stopped || arb_word_exchange_acquire(&t->busy, 1))
		return;
	memset(&r, 0, sizeof(r));
	r.outcome = outcome;
	r.thread = thread_number();
	r.event = *e;
	r.action = *act;
	record(t, &r);
	arb_word_store_release(&t->busy, 0);
}

/* Returns the half to write, and sends the next records into the other one. -1: none is due. */
static int take_half(struct trace *t, bool all, uint64_t now)
{
	unsigned i = t->filling;

	if (t->used[!i])
		return (int)!i;
	if (!t->used[i] || (!all && t->used[i] < DUE_BYTES && now - t->written_ns < DUE_NS))
		return -1;
	t->filling = !i;
	return (int)i;
}

/* False: the file cannot be written, so recording has to end. */
static bool write_half(const struct track *track, const struct trace *t, int half)
{
	int r = arb_os_append(t->path, false, t->half[half], t->used[half]);

	if (r < 0)
		arb_log(ARB_LOG_WARN, "%s: the trace %s cannot be written any more (%s): it ends here",
			track->device->name, t->path, reason(r));
	return r == 0;
}

/* With the track's lock held, unless the program has ended. */
static void half_is_written(struct trace *t, int half, bool good)
{
	t->used[half] = 0;
	if (good)
		return;
	t->stopped = true;
	t->used[!half] = 0;
	t->path[0] = '\0';
}

void trace_write(struct track *track)
{
	struct trace *t = track->trace;
	uint64_t now = track_now();
	bool good;
	int half;

	if (!t->path[0])
		return;
	track_lock(track);
	half = take_half(t, false, now);
	track_unlock(track);
	if (half < 0)
		return;
	good = write_half(track, t, half);
	track_lock(track);
	half_is_written(t, half, good);
	t->written_ns = now;
	track_unlock(track);
}

void trace_end(struct track *track)
{
	struct trace *t = track->trace;
	int half;

	/* `busy` stays set, so nothing is recorded from here on. If it was set already, the handler that ends the program has
	 * interrupted a thread that records: then the trace stays as it is. */
	if (!t->path[0] || arb_word_exchange_acquire(&t->busy, 1))
		return;
	if (!t->stopped)
		stop(t, TRACE_ENDED);
	while ((half = take_half(t, true, 0)) >= 0)
		half_is_written(t, half, write_half(track, t, half));
}
