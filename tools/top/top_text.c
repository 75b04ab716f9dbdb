#include "tools/top/top_text.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <wchar.h>

#define BAD 0xfffdu

uint32_t top_text_decode(const char **text)
{
	const unsigned char *s = (const unsigned char *)*text;
	static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
	unsigned length = s[0] < 0x80       ? 1
			  : s[0] >> 5 == 6  ? 2
			  : s[0] >> 4 == 14 ? 3
			  : s[0] >> 3 == 30 ? 4
					    : 0;
	uint32_t code = length == 1 ? s[0] : s[0] & (0x7fu >> length);

	if (!s[0])
		return 0;
	for (unsigned i = 1; i < length; i++) {
		if (s[i] >> 6 != 2)
			length = 0;
		else
			code = code << 6 | (s[i] & 0x3f);
	}
	/* Bytes that are no character are skipped one at a time, so that the next good character is found. */
	if (!length || code < least[length] || code > 0x10ffff || (code >= 0xd800 && code < 0xe000)) {
		*text += 1;
		return BAD;
	}
	*text += length;
	return code;
}

bool top_text_hides(uint32_t code)
{
	return code < 0x20 || (code >= 0x7f && code < 0xa0) || code == 0xad ||
	       (code >= 0x200b && code <= 0x200f) || (code >= 0x2028 && code <= 0x202e) ||
	       (code >= 0x2060 && code <= 0x206f) || code == 0x61c || code == 0xfeff ||
	       (code >= 0xfff0 && code <= 0xfffc) || (code >= 0xe0000 && code <= 0xe0fff);
}

int top_text_columns(uint32_t code)
{
	return wcwidth((wchar_t)code) == 2 ? 2 : 1;
}

size_t top_text_encode(uint32_t code, char *to)
{
	if (code < 0x80) {
		to[0] = (char)code;
		return 1;
	}
	if (code < 0x800) {
		to[0] = (char)(0xc0 | code >> 6);
		to[1] = (char)(0x80 | (code & 0x3f));
		return 2;
	}
	if (code < 0x10000) {
		to[0] = (char)(0xe0 | code >> 12);
		to[1] = (char)(0x80 | (code >> 6 & 0x3f));
		to[2] = (char)(0x80 | (code & 0x3f));
		return 3;
	}
	to[0] = (char)(0xf0 | code >> 18);
	to[1] = (char)(0x80 | (code >> 12 & 0x3f));
	to[2] = (char)(0x80 | (code >> 6 & 0x3f));
	to[3] = (char)(0x80 | (code & 0x3f));
	return 4;
}

static char *clean(const char *from, char *to, size_t size, bool keep_controls)
{
	size_t n = 0;
	uint32_t code;

	while (n + 5 <= size && (code = top_text_decode(&from)) != 0) {
		if (keep_controls)
			n += top_text_encode(code, to + n);
		else
			n += top_text_encode(code == BAD || top_text_hides(code) ? '?' : code, to + n);
	}
	to[n] = '\0';
	return to;
}

char *top_text_safe(const char *from, char *to, size_t size)
{
	return clean(from, to, size, false);
}

char *top_text_utf8(const char *from, char *to, size_t size)
{
	return clean(from, to, size, true);
}

char *top_text_bytes(uint64_t bytes, char *to, size_t size)
{
	static const char units[] = "BKMGTPE";
	double value = (double)bytes;
	int unit = 0;

	/* 1023.6 would round to a fourth digit. */
	while (value >= 999.5 && unit < 6) {
		value /= 1024;
		unit++;
	}
	snprintf(to, size, unit && value < 9.95 ? "%.1f%c" : "%.0f%c", value, units[unit]);
	return to;
}

char *top_text_time(uint64_t ns, char *to, size_t size)
{
	double s = (double)ns / 1e9;
	uint64_t whole = ns / 1000000000u;

	if (ns == 0)
		snprintf(to, size, "0");
	else if (ns < 999500)
		snprintf(to, size, "%.0fus", s * 1e6);
	else if (s < 0.00995)
		snprintf(to, size, "%.1fms", s * 1e3);
	else if (s < 0.9995)
		snprintf(to, size, "%.0fms", s * 1e3);
	else if (s < 9.995)
		snprintf(to, size, "%.2fs", s);
	else if (s < 99.95)
		snprintf(to, size, "%.1fs", s);
	else if (s < 6000)
		snprintf(to, size, "%um%02us", (unsigned)(whole / 60), (unsigned)(whole % 60));
	else if (s < 100 * 3600)
		snprintf(to, size, "%uh%02um", (unsigned)(whole / 3600), (unsigned)(whole / 60 % 60));
	else
		snprintf(to, size, "%ud%02uh", (unsigned)(whole / 86400), (unsigned)(whole / 3600 % 24));
	return to;
}

char *top_text_share(double share, char *to, size_t size)
{
	double percent = 100 * share;

	snprintf(to, size, percent < 99.95 ? "%.1f" : "%.0f", percent < 0.05 ? 0.0 : percent);
	return to;
}

char *top_text_ppm(unsigned ppm, char *to, size_t size)
{
	snprintf(to, size, ppm % 10000 ? "%.1f" : "%.0f", (double)ppm / 1e4);
	return to;
}

char *top_text_clock(uint64_t real_ns, char *to, size_t size)
{
	time_t seconds = (time_t)(real_ns / 1000000000u);
	struct tm tm;
	char text[16];

	if (!localtime_r(&seconds, &tm) || !strftime(text, sizeof(text), "%H:%M:%S", &tm))
		snprintf(text, sizeof(text), "?");
	snprintf(to, size, "%s.%03u", text, (unsigned)(real_ns / 1000000u % 1000));
	return to;
}

char *top_text_container(const char *id, char *to, size_t size)
{
	char safe[256];
	size_t digits = 0;

	top_text_safe(id, safe, sizeof(safe));
	while (isxdigit((unsigned char)safe[digits]))
		digits++;
	/* docker, podman and crictl show the first 12 digits. */
	if (digits >= 32 && !safe[digits])
		safe[12] = '\0';
	snprintf(to, size, "%s", safe);
	return to;
}
