/* SPDX-License-Identifier: MIT */
/*
 * Options of the shim and of the engine, and what a process runs with
 *
 * The library knows which options there are, and what values they take. Before a program
 * starts, a mistake is an error. In a program that runs it can't be one: the shim ignores the
 * option and remembers it, and the commands that look at the process name it.
 */
#include "cli/cli.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int cli_options_check(const char *list, const char *where)
{
	const char *at;
	size_t bytes;

	if (cow_options_check(list, &at, &bytes) == 0)
		return CLI_GO_ON;
	return cli_error("'%.*s' in %s: %s; see docs/options.md or "
	                 "libcowshed-preload(7).", (int)bytes, at, where,
	                 cow_last_error());
}

/* Calls for each "key=value" of a list, without the blanks around its parts. */
static void each(const char *list,
                 void (*take)(void *arg, const char *pair, const char *value),
                 void *arg)
{
	static const char blanks[] = " \t\n\v\f\r";
	char *copy = strdup(list), *rest = copy, *pair, *value, *end;

	while ((pair = strsep(&rest, ",")) != NULL) {
		pair += strspn(pair, blanks);
		for (end = pair + strlen(pair); end > pair && strchr(blanks, end[-1]);)
			*--end = 0;
		value = strchr(pair, '=');
		if (value != NULL) {
			for (end = value; end > pair && strchr(blanks, end[-1]);)
				--end;
			*end = 0;
			value++;
			value += strspn(value, blanks);
		}
		if (*pair != 0)
			take(arg, pair, value);
	}
	free(copy);
}

struct wanted {
	const char *key;
	char *value;
};

static void take_wanted(void *arg, const char *key, const char *value)
{
	struct wanted *wanted = arg;

	if (value == NULL || strcmp(key, wanted->key) != 0)
		return;
	free(wanted->value);
	wanted->value = strdup(value);
}

char *cli_option_last(const char *list, const char *key)
{
	struct wanted wanted = {key, NULL};

	if (list != NULL)
		each(list, take_wanted, &wanted);
	return wanted.value;
}

struct line {
	char *text;
	size_t room;
};

static void append_text(struct line *line, const char *piece)
{
	size_t used = strlen(line->text);

	snprintf(line->text + used, line->room - used, "%s", piece);
}

static void take_option(void *arg, const char *key, const char *value)
{
	struct line *line = arg;

	if (value != NULL && strcmp(key, "report") == 0)
		return; /* it is how this was found out */
	append_text(line, *line->text != 0 ? ", " : "");
	append_text(line, key);
	append_text(line, value != NULL ? "=" : "");
	append_text(line, value != NULL ? value : "");
}

void cli_options_text(const struct cow_settings *settings, char *ret, size_t bytes)
{
	struct line line = {ret, bytes};

	*ret = 0;
	each(settings->options, take_option, &line);
	cli_tame(ret);
}

static void take_refused(void *arg, const char *key, const char *value)
{
	struct line *line = arg;
	char pair[600];

	snprintf(pair, sizeof pair, "%s%s%s", key, value != NULL ? "=" : "",
	         value != NULL ? value : "");
	append_text(line, *line->text != 0 ? "; " : "");
	append_text(line, "'");
	append_text(line, pair);
	append_text(line, "' was ignored: ");
	if (strcmp(pair, "...") == 0)
		append_text(line, "there is no room for all");
	else if (cow_options_check(pair, NULL, NULL) < 0)
		append_text(line, cow_last_error());
	else
		append_text(line, "it came too late, or that process has another version");
}

static void take_mistake(void *arg, const char *key, const char *value)
{
	char pair[600];

	snprintf(pair, sizeof pair, "%s%s%s", key, value != NULL ? "=" : "",
	         value != NULL ? value : "");
	if (cow_options_check(pair, NULL, NULL) < 0)
		take_refused(arg, key, value);
}

void cli_mistakes_text(const char *list, char *ret, size_t bytes)
{
	struct line line = {ret, bytes};

	*ret = 0;
	each(list, take_mistake, &line);
	cli_tame(ret);
}

void cli_refused_text(const struct cow_settings *settings, char *ret, size_t bytes)
{
	struct line line = {ret, bytes};

	*ret = 0;
	each(settings->refused, take_refused, &line);
	cli_tame(ret);
}

void cli_settings_print(FILE *out, const struct cow_settings *settings)
{
	char text[4096];

	if (settings->version[0] == 0)
		return; /* a record of an older version */
	snprintf(text, sizeof text, "%s, commit %s", settings->version,
	         settings->commit[0] != 0 ? settings->commit : "unknown");
	cli_tame(text);
	fprintf(out, "  %-12s%s\n", "version", text);
	cli_options_text(settings, text, sizeof text);
	fprintf(out, "  %-12s", "options");
	cli_wrap(out, 14, *text != 0 ? text : "none was set");
	cli_refused_text(settings, text, sizeof text);
	if (*text == 0)
		return;
	fprintf(out, "  %-12s", "ignored");
	cli_wrap(out, 14, text);
}
