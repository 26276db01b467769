/* SPDX-License-Identifier: MIT */
/*
 * cowshed: the command
 *
 * The first argument names a command, which reads the other arguments itself.
 * This file lists the commands, prints their help, and words the errors that
 * they share: one sentence on stderr, exit status 2.
 *
 * At the end main() checks for all commands that stdout could be written. A
 * full disk is an error.
 */
#include "cli/cli.h"

#include <errno.h>
#include <getopt.h>
#include <stdarg.h>
#include <string.h>

static const struct cli_command *const commands[] = {
	&cli_run, &cli_profile, &cli_stat, &cli_top, &cli_doctor,
	&cli_broker, &cli_ls, &cli_publish, &cli_get, &cli_rm,
};

enum { COMMANDS = sizeof commands / sizeof commands[0] };

int cli_error(const char *format, ...)
{
	va_list args;

	fputs("cowshed: ", stderr);
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fputc('\n', stderr);
	return CLI_FAILED;
}

int cli_bad_option(int found, char **argv)
{
	const char *text = argv[optind - 1];
	char letter[3] = {'-', (char)optopt, 0};
	/* Else it may be the argument before a group of letters. */
	bool is_long = strncmp(text, "--", 2) == 0 &&
	               (found == ':' || strchr(text, '=') != NULL);

	if (!is_long && optopt > ' ' && optopt < 127)
		text = letter;
	if (found == ':')
		return cli_error("Option '%s' needs a value; "
		                 "see 'cowshed help %s'.", text, argv[0]);
	return cli_error("There is no option '%s', or it takes no value; "
	                 "see 'cowshed help %s'.", text, argv[0]);
}

int cli_help(const struct cli_command *command)
{
	fputs(command->help, stdout);
	return 0;
}

static const struct cli_command *find_command(const char *name)
{
	for (int i = 0; i < COMMANDS; i++)
		if (strcmp(commands[i]->name, name) == 0)
			return commands[i];
	return NULL;
}

static void overview(FILE *out)
{
	fputs("Usage: cowshed COMMAND ...\n"
	      "Copy-on-write, shareable memory for unmodified programs.\n"
	      "\n", out);
	for (int i = 0; i < COMMANDS; i++)
		fprintf(out, "  %-10s %s\n", commands[i]->name,
		        commands[i]->summary);
	fputs("  version    print the version of the command and of its "
	      "library\n"
	      "  help       print this text, or the help of a command: "
	      "cowshed help COMMAND\n"
	      "\n"
	      "Start with: cowshed run --report -- PROGRAM ...\n", out);
}

static int help_of_version(void)
{
	fputs("Usage: cowshed version\n"
	      "Prints the version of the command, and the version and commit of "
	      "the library\nthat it uses.\n", stdout);
	return 0;
}

static int help_of_help(void)
{
	fputs("Usage: cowshed help [COMMAND]\n"
	      "Lists the commands, or prints the help of one.\n", stdout);
	return 0;
}

static bool asks_for_help(int argc, char **argv)
{
	return argc == 2 && (strcmp(argv[1], "--help") == 0 ||
	                     strcmp(argv[1], "-h") == 0);
}

static int help_main(int argc, char **argv)
{
	const struct cli_command *command;

	if (argc > 2)
		return cli_error("'cowshed help' takes one command: "
		                 "leave out '%s'.", argv[2]);
	if (argc < 2) {
		overview(stdout);
		return 0;
	}
	if (strcmp(argv[1], "version") == 0)
		return help_of_version();
	if (strcmp(argv[1], "help") == 0 || asks_for_help(argc, argv))
		return help_of_help();
	command = find_command(argv[1]);
	if (command == NULL)
		return cli_error("There is no command '%s'; "
		                 "see 'cowshed help'.", argv[1]);
	return cli_help(command);
}

static int version_main(int argc, char **argv)
{
	struct cow_settings own = {.size = sizeof own};

	if (asks_for_help(argc, argv))
		return help_of_version();
	if (argc > 1)
		return cli_error("'cowshed version' takes no arguments: "
		                 "leave out '%s'.", argv[1]);
	(void)cow_settings_read(0, &own);
	printf("cowshed %d.%d.%d (library %s)\ncommit of the library: %s\n", COW_VERSION_MAJOR,
	       COW_VERSION_MINOR, COW_VERSION_PATCH, cow_version(),
	       own.commit[0] != 0 ? own.commit : "unknown");
	return 0;
}

static bool is_one_of(const char *text, const char *a, const char *b,
                      const char *c)
{
	return strcmp(text, a) == 0 || strcmp(text, b) == 0 ||
	       strcmp(text, c) == 0;
}

static int dispatch(int argc, char **argv)
{
	const struct cli_command *command;

	if (argc < 2) {
		overview(stderr);
		return CLI_FAILED;
	}
	argc--;
	argv++;
	if (is_one_of(argv[0], "help", "--help", "-h"))
		return help_main(argc, argv);
	if (is_one_of(argv[0], "version", "--version", "-V"))
		return version_main(argc, argv);
	command = find_command(argv[0]);
	if (command == NULL)
		return cli_error("There is no command '%s'; "
		                 "see 'cowshed help'.", argv[0]);
	opterr = 0;
	return command->main(argc, argv);
}

int main(int argc, char **argv)
{
	int status = dispatch(argc, argv);

	if (fflush(stdout) != 0 || ferror(stdout))
		return cli_error("Standard output could not be written: %s.",
		                 strerror(errno));
	return status;
}
