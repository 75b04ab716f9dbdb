#include "shm/base/members.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "gpuarb/config.h"

#include "shm/base/groups.h"

/* Above this bit: the kind of the number. Below it: the user, the group, or the first digits of the container's
 * id. */
#define KIND_SHIFT 56
#define USER       0
#define GROUP      1
#define CONTAINER  2
#define SEPARATORS ", \t"
#define DIGITS     12 /* the length to which engines shorten an id */

static int64_t member(int kind, uint64_t number)
{
	return (int64_t)((uint64_t)kind << KIND_SHIFT | number);
}

static bool container_number(const char *id, uint64_t *number)
{
	char digits[DIGITS + 1];

	if (strspn(id, "0123456789abcdef") < DIGITS)
		return false;
	memcpy(digits, id, DIGITS);
	digits[DIGITS] = '\0';
	*number = strtoull(digits, NULL, 16);
	return true;
}

bool arb_members_parse(const char *text, int64_t *value)
{
	const char *digits = text + (*text == '@');
	uint64_t number;
	size_t n = strlen(digits);

	if (!*text) {
		*value = -1;
		return true;
	}
	/* Ten digits hold every user's number, and no container's id is that short. */
	if (n && n <= 10 && strspn(digits, "0123456789") == n) {
		number = strtoull(digits, NULL, 10);
		*value = member(*text == '@' ? GROUP : USER, number);
		return number < UINT32_MAX;
	}
	if (*text == '@') {
		int64_t group = arb_rights_group(digits);

		*value = member(GROUP, (uint64_t)group);
		return group >= 0;
	}
	if (!container_number(text, &number))
		return false;
	*value = member(CONTAINER, number);
	return true;
}

void arb_members_format(int64_t value, char *text, size_t size)
{
	unsigned long long number = (uint64_t)value & ((1ull << KIND_SHIFT) - 1);

	if (value < 0)
		snprintf(text, size, "%s", "");
	else if (value >> KIND_SHIFT == USER)
		snprintf(text, size, "%llu", number);
	else if (value >> KIND_SHIFT == GROUP)
		snprintf(text, size, "@%llu", number);
	else
		snprintf(text, size, "%0*llx", DIGITS, number);
}

bool gpuarb_config_members(const char *text, int64_t members[ARB_MEMBERS])
{
	char one[80];
	unsigned n = 0;

	for (unsigned i = 0; i < ARB_MEMBERS; i++)
		members[i] = -1;
	while (*(text += strspn(text, SEPARATORS))) {
		size_t length = strcspn(text, SEPARATORS);

		if (n == ARB_MEMBERS || length >= sizeof(one))
			return false;
		memcpy(one, text, length);
		one[length] = '\0';
		if (!arb_members_parse(one, &members[n++]))
			return false;
		text += length;
	}
	return true;
}

void gpuarb_config_members_format(const int64_t members[ARB_MEMBERS], char *text)
{
	size_t at = 0;

	text[0] = '\0';
	for (unsigned i = 0; i < ARB_MEMBERS && members[i] >= 0; i++) {
		if (at)
			text[at++] = ',';
		arb_members_format(members[i], text + at, ARB_MEMBERS_BYTES - at);
		at += strlen(text + at);
	}
}

static bool is_it(int64_t value, const struct arb_os_identity *id)
{
	uint64_t number = (uint64_t)value & ((1ull << KIND_SHIFT) - 1), container;

	if (value < 0)
		return false;
	switch (value >> KIND_SHIFT) {
	case USER:
		/* A user's number means nothing in a container. */
		return !id->container[0] && id->uid == number;
	case GROUP:
		return !id->container[0] && arb_rights_is_member((gid_t)number);
	case CONTAINER:
		return container_number(id->container, &container) && container == number;
	}
	return false;
}

bool arb_members_has(const int64_t members[ARB_MEMBERS], const struct arb_os_identity *id)
{
	for (unsigned i = 0; i < ARB_MEMBERS; i++)
		if (is_it(members[i], id))
			return true;
	return false;
}
