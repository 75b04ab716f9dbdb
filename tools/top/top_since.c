/* --since: a moment as people write it. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "units.h"

#include "tools/top/top_past.h"

static bool duration(const char *text, uint64_t now_ns, uint64_t *since_ns)
{
	static const struct {
		const char *unit;
		uint64_t ns;
	} units[] = {{"ms", SECOND / 1000}, {"s", SECOND}, {"m", 60 * SECOND}, {"min", 60 * SECOND},
		{"h", 3600 * SECOND}, {"d", 86400 * SECOND}};
	unsigned long long number;
	uint64_t ns;
	char *end;

	if (*text < '0' || *text > '9')
		return false;
	errno = 0;
	number = strtoull(text, &end, 10);
	if (errno)
		return false;
	for (unsigned i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
		if (strcmp(end, units[i].unit) != 0)
			continue;
		/* If it is longer ago than a date can say, all events are wanted. */
		if (__builtin_mul_overflow((uint64_t)number, units[i].ns, &ns) || ns >= now_ns)
			ns = now_ns - 1;
		*since_ns = now_ns - ns;
		return true;
	}
	return false;
}

/* Reads text that has exactly this form. */
static bool reads(const char *text, const char *form, struct tm *tm)
{
	const char *end = strptime(text, form, tm);

	return end && !*end;
}

/* mktime changes 31 June to 1 July; such a date is refused. */
static bool moment(struct tm *tm, time_t *when)
{
	struct tm same = *tm;

	tm->tm_isdst = -1;
	*when = mktime(tm);
	return *when != (time_t)-1 && tm->tm_mday == same.tm_mday && tm->tm_mon == same.tm_mon;
}

static bool time_of_day(const char *text, time_t now, time_t *when)
{
	struct tm tm;

	if (!localtime_r(&now, &tm))
		return false;
	tm.tm_sec = 0;
	if (!reads(text, "%H:%M:%S", &tm)) {
		localtime_r(&now, &tm);
		tm.tm_sec = 0;
		if (!reads(text, "%H:%M", &tm))
			return false;
	}
	if (!moment(&tm, when))
		return false;
	if (*when > now) {
		tm.tm_mday--;
		tm.tm_isdst = -1;
		*when = mktime(&tm);
	}
	return *when != (time_t)-1;
}

static bool day(const char *text, time_t now, time_t *when)
{
	static const char *const forms[] = {
		"%Y-%m-%d", "%Y-%m-%d %H:%M", "%Y-%m-%d %H:%M:%S", "%Y-%m-%dT%H:%M", "%Y-%m-%dT%H:%M:%S"};

	for (unsigned i = 0; i < sizeof(forms) / sizeof(forms[0]); i++) {
		struct tm tm = {0};

		if (reads(text, forms[i], &tm))
			return moment(&tm, when) && *when <= now;
	}
	return false;
}

bool top_past_since(const char *text, uint64_t now_ns, uint64_t *since_ns)
{
	time_t now = (time_t)(now_ns / SECOND), when;

	if (duration(text, now_ns, since_ns))
		return true;
	if ((!time_of_day(text, now, &when) && !day(text, now, &when)) || when < 0)
		return false;
	*since_ns = when ? (uint64_t)when * SECOND : 1;
	return true;
}
