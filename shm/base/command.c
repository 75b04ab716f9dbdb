#include "shm/base/command.h"

#include <stdbool.h>
#include <string.h>

/*
 * Programs that are known by what they run, and the letters of their options that matter here. Versions may
 * follow the name: python3.11.
 */
static const struct interpreter {
	const char *name;
	const char *code;  /* what follows is the program itself, as text: it may hold anything */
	const char *value; /* what follows is not the program */
	char module;       /* what follows is the program's name */
} interpreters[] = {
	{"python", "c", "XW", 'm'},
	{"pypy", "c", "XW", 'm'},
	{"perl", "eE", "IM", 0},
	{"ruby", "e", "rI", 0},
	{"node", "ep", "r", 0},
	{"julia", "eE", "LJpt", 0},
	{"java", "", "", 0},
	{"lua", "e", "l", 0},
	{"php", "r", "dc", 0},
	{"Rscript", "e", "", 0},
	{"sh", "c", "oO", 0},
	{"bash", "c", "oO", 0},
	{"dash", "c", "oO", 0},
	{"zsh", "c", "oO", 0},
	{"ksh", "c", "oO", 0},
};
/* Options that are whole words: those that carry code, and those that take a value. */
static const char *const words_with_code[] = {"--eval", "--print"};
static const char *const words_with_value[] = {
	"-cp", "-classpath", "--class-path", "--module-path", "--require", "--rcfile"};

#define COUNT(list) (sizeof(list) / sizeof((list)[0]))

struct words {
	const char *at, *end;
};

/* Returns the next word, or NULL. The text ends in a NUL, whatever a program has written into its command line. */
static const char *next(struct words *w)
{
	const char *word = w->at;

	if (word >= w->end)
		return NULL;
	w->at = word + strlen(word) + 1;
	return word;
}

static bool is_one_of(const char *word, const char *const *list, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (strcmp(word, list[i]) == 0)
			return true;
	return false;
}

static const struct interpreter *find(const char *name)
{
	for (size_t i = 0; i < COUNT(interpreters); i++) {
		size_t n = strlen(interpreters[i].name);

		if (strncmp(name, interpreters[i].name, n) == 0 && !name[n + strspn(name + n, "0123456789.")])
			return &interpreters[i];
	}
	return NULL;
}

/* Returns the name without its directories. A program that has renamed itself, "server: worker 1/4", has no
 * directories in its name. */
static const char *base(const char *word)
{
	const char *slash = strrchr(word, '/');

	if (!slash || !slash[1] || (strchr(word, ' ') && *word != '/' && *word != '.'))
		return word;
	return slash + 1;
}

/* Appends as much as there is room for; the last character is appended whole or not at all. */
static void append(char *to, size_t size, const char *word)
{
	size_t used = strlen(to), n = strlen(word);

	if (n > size - 1 - used)
		for (n = size - 1 - used; n && ((unsigned char)word[n] & 0xc0) == 0x80;)
			n--;
	for (size_t i = 0; i < n; i++)
		to[used + i] = (char)((unsigned char)word[i] < ' ' || word[i] == 0x7f ? '?' : word[i]);
	to[used + n] = '\0';
}

enum step { GO_ON, DONE };

/* Reads an option, which may be several letters behind one dash. */
static enum step option(
	const struct interpreter *in, const char *word, struct words *words, char *to, size_t size)
{
	if (is_one_of(word, words_with_code, COUNT(words_with_code)))
		return DONE;
	if (is_one_of(word, words_with_value, COUNT(words_with_value))) {
		next(words);
		return GO_ON;
	}
	for (const char *p = word + 1; *p && word[1] != '-'; p++) {
		if (strchr(in->code, *p))
			return DONE;
		if (in->module && *p == in->module) {
			word = p[1] ? p + 1 : next(words);
			append(to, size, " -m ");
			append(to, size, word ? word : "");
			return DONE;
		}
		if (strchr(in->value, *p)) {
			if (!p[1])
				next(words);
			return GO_ON;
		}
	}
	return GO_ON;
}

void arb_command_name(const char *text, size_t length, char *to, size_t size)
{
	struct words words = {text, text + length};
	const char *word = next(&words);
	const struct interpreter *in;

	to[0] = '\0';
	if (!word || !*word)
		return;
	append(to, size, base(word));
	in = find(base(word));
	while (in && (word = next(&words)) != NULL) {
		if (*word == '-' && word[1]) {
			if (option(in, word, &words, to, size) == DONE)
				return;
		} else if (*word) {
			append(to, size, " ");
			append(to, size, base(word));
			return;
		}
	}
}
