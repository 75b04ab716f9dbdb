#include "tools/common/conf_edit.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Returns the end of a line: after its newline, or the end of the text. */
static const char *line_end(const char *line)
{
	const char *newline = strchr(line, '\n');

	return newline ? newline + 1 : line + strlen(line);
}

/* Whether this line is "[section]". */
static bool is_section(const char *line, const char *section)
{
	size_t n = strlen(section);

	return line[0] == '[' && strncmp(line + 1, section, n) == 0 && line[n + 1] == ']';
}

/* Whether this line is "key = ...". */
static bool is_key(const char *line, const char *key)
{
	size_t n = strlen(key);

	while (*line == ' ' || *line == '\t')
		line++;
	if (strncmp(line, key, n) != 0)
		return false;
	line += n;
	while (*line == ' ' || *line == '\t')
		line++;
	return *line == '=' || *line == ':';
}

static bool is_blank(const char *line)
{
	while (isspace((unsigned char)*line) && *line != '\n')
		line++;
	return *line == '\n' || *line == '\0';
}

char *conf_edit(const char *text, const char *section, const char *key, const char *value)
{
	bool inside = strcmp(section, "gpu") == 0, found = inside;
	const char *from = NULL, *to = NULL, *behind = inside ? text : NULL;
	char entry[512] = "", header[128] = "", *result;
	size_t size;

	/* Finds the line itself, or otherwise the place after the last line of the section that is not blank. */
	for (const char *line = text; *line; line = line_end(line)) {
		if (line[0] == '[') {
			inside = is_section(line, section);
			found |= inside;
		}
		if (inside && is_key(line, key)) {
			from = line;
			to = line_end(line);
		}
		if (inside && !is_blank(line))
			behind = line_end(line);
	}
	if (value)
		snprintf(entry, sizeof(entry), "%s = %s\n", key, value);
	if (!from) {
		from = to = found && behind ? behind : text + strlen(text);
		if (!found && value)
			snprintf(header, sizeof(header), "%s[%s]\n", *text ? "\n" : "", section);
	}
	/* A last line without a newline must not be joined with what follows. */
	size = strlen(text) + strlen(entry) + strlen(header) + 2;
	result = malloc(size);
	if (result)
		snprintf(result, size, "%.*s%s%s%s%s", (int)(from - text), text,
			from > text && from[-1] != '\n' && (*entry || *header) ? "\n" : "", header, entry,
			to);
	return result;
}

char *conf_drop(const char *text, const char *section)
{
	char *result = malloc(strlen(text) + 1), *to = result;
	bool inside = false;

	if (!result)
		return NULL;
	for (const char *line = text; *line; line = line_end(line)) {
		if (line[0] == '[')
			inside = is_section(line, section);
		if (inside && !is_blank(line) && line[0] != '#' && line[0] != ';')
			continue;
		memcpy(to, line, (size_t)(line_end(line) - line));
		to += line_end(line) - line;
	}
	*to = '\0';
	return result;
}
