/* SPDX-License-Identifier: MIT */
/*
 * cowshed stat: the counters of one process, once
 *
 * People get groups and units. Programs get JSON (--json): every counter under
 * the name of its member, as a plain number. Zeros are printed too, so that a
 * reader need not guess what an absent counter means.
 */
#include "cli/cli.h"

#include <errno.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char page[] =
	"Usage: cowshed stat [--json] PID\n"
	"Prints the version, options and counters of a process that uses\n"
	"cowshed, once.\n"
	"\n"
	"  --json      as JSON, numbers in bytes, nanoseconds and counts\n"
	"  -h, --help  this help\n"
	"\n"
	"The process does not notice. It must be yours, or you must be root.\n";

static void print_text(const struct cli_process *process)
{
	printf("%s (pid %ld)\n", process->name, (long)process->pid);
	cli_settings_print(stdout, &process->settings);
	for (size_t i = 0; i < cli_counters_count; i++) {
		const struct cli_counter *c = &cli_counters[i];
		uint64_t value = cli_counter_get(c, &process->stats);

		if (c->group != NULL)
			printf("\n%s\n", c->group);
		printf("  %-24s %14s  %s\n", c->name,
		       cli_value(value, c->unit).s, c->says);
	}
	printf("\nfallbacks\n");
	if (cli_fallbacks_total(&process->stats) == 0)
		printf("  none: nothing was done the slow way\n");
	cli_fallbacks_print(stdout, &process->stats);
}

static void print_json_string(const char *text)
{
	putchar('"');
	for (; *text != 0; text++) {
		if (*text == '"' || *text == '\\')
			putchar('\\');
		/* A name may have any bytes, and not only valid UTF-8. */
		putchar((unsigned char)*text < 127 && (unsigned char)*text >= ' '
		                ? *text : '?');
	}
	putchar('"');
}

static void print_json_fallbacks(const char *name, const uint64_t *all)
{
	const char *comma = "";

	printf(",\n \"%s\": {", name);
	for (int i = 0; i < COW_FALLBACKS; i++) {
		/* A row without a reason has no name. */
		if (i > COW_FALLBACK_REMAPPED && all[i] == 0)
			continue;
		printf("%s\n  \"%s\": %llu", comma, cli_fallback_name(i),
		       (unsigned long long)all[i]);
		comma = ",";
	}
	printf("}");
}

static void print_json_settings(const struct cow_settings *s)
{
	const struct { const char *name, *text; } all[] = {
		{"version", s->version}, {"commit", s->commit},
		{"options", s->options}, {"refused", s->refused},
	};

	for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
		printf(",\n \"%s\": ", all[i].name);
		print_json_string(all[i].text);
	}
}

static void print_json(const struct cli_process *process)
{
	printf("{\"pid\": %ld, \"name\": ", (long)process->pid);
	print_json_string(process->name);
	print_json_settings(&process->settings);
	for (size_t i = 0; i < cli_counters_count; i++)
		printf(",\n \"%s\": %llu", cli_counters[i].name,
		       (unsigned long long)cli_counter_get(&cli_counters[i],
		                                           &process->stats));
	print_json_fallbacks("fallbacks", process->stats.fallbacks);
	print_json_fallbacks("fallback_bytes", process->stats.fallback_bytes);
	printf("}\n");
}

/* A process that was served nothing has no counters. A mistake in an option may be why. */
static int explain_shim(pid_t pid)
{
	char mistakes[2048];

	cli_process_mistakes(pid, mistakes, sizeof mistakes);
	return cli_error("Process %ld has no counters: it has the shim, but asked for nothing "
	                 "as large as the threshold%s%s.", (long)pid,
	                 mistakes[0] != 0 ? "; " : "", mistakes);
}

static int explain(pid_t pid, int error)
{
	switch (error) {
	case -ENOENT:
		if (cli_process_has_shim(pid))
			return explain_shim(pid);
		return cli_error("Process %ld has no counters: it does not use "
		                 "cowshed, or has allocated nothing large yet.",
		                 (long)pid);
	case -EPERM:
	case -EACCES:
		return cli_error("You may not read the counters of process "
		                 "%ld; try as its user, or as root.", (long)pid);
	case -ESRCH:
		if (access("/proc/self", F_OK) < 0)
			return cli_error("/proc is not mounted; 'cowshed stat' "
			                 "finds the process there.");
		return cli_error("There is no process %ld.", (long)pid);
	}
	return cli_error("The counters of process %ld can't be read: %s.",
	                 (long)pid, strerror(-error));
}

static int parse_pid(const char *text, pid_t *ret)
{
	char *end;
	long number;

	errno = 0;
	number = strtol(text, &end, 10);
	if (errno != 0 || end == text || *end != 0 || number <= 0 ||
	    number > INT_MAX)
		return -EINVAL;
	*ret = (pid_t)number;
	return 0;
}

static int stat_main(int argc, char **argv)
{
	static const struct option options[] = {
		{"json", no_argument, NULL, 'j'},
		{"help", no_argument, NULL, 'h'},
		{0},
	};
	struct cli_process process;
	bool json = false;
	pid_t pid;
	int found, r;

	while ((found = getopt_long(argc, argv, ":jh", options, NULL)) != -1)
		switch (found) {
		case 'j':
			json = true;
			break;
		case 'h':
			return cli_help(&cli_stat);
		default:
			return cli_bad_option(found, argv);
		}
	if (argc - optind != 1)
		return cli_error("'cowshed stat' takes one process id, not %d; "
		                 "see 'cowshed help stat'.", argc - optind);
	if (parse_pid(argv[optind], &pid) < 0)
		return cli_error("'%s' is not a process id; write a number "
		                 "from 1 to %d.", argv[optind], INT_MAX);
	r = cli_process_read(pid, &process);
	if (r < 0)
		return explain(pid, r);
	if (json)
		print_json(&process);
	else
		print_text(&process);
	return 0;
}

const struct cli_command cli_stat = {
	"stat", "print the counters of one process", page, stat_main,
};
