/* SPDX-License-Identifier: MIT */
/*
 * The report: what the processes of a run left behind
 *
 * Each process under the shim writes one line when it exits:
 *
 *      cowshed pid=4711 name=python3 ... bytes_served=123 ... fallback.small=2
 *
 * Keys are the members of struct cow_stats. Unknown keys are skipped, so records
 * of older and newer shims can be read. At the end are the version, the commit and the
 * options (struct cow_settings), with '?' for blanks. The program's own record has the pid
 * that we forked; the others are added up. A parallel make leaves very many
 * records, so lines are read one at a time and not kept.
 *
 * A process that gives up privileges beside relatives writes "cowshed stranger" before.
 *
 * A process that a signal ended wrote no record. The report says so, and shows
 * no zeros.
 */
#include "cli/cli.h"

#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

struct record {
	pid_t pid;
	char name[32];
	struct cow_settings settings;
	struct cow_stats stats;
};

struct harvest {
	struct record own;       /* pid 0: none was found */
	struct cow_stats others;
	uint64_t others_count;
	uint64_t damaged;
	uint64_t strangers; /* processes that gave up privileges beside relatives */
	struct cow_settings settings; /* of the program; else of the first record, or of the first
	                               * that ignored an option */
};

static void copy_text(char *to, size_t room, const char *text)
{
	snprintf(to, room, "%s", text);
}

static void take_pair(struct record *record, char *key, const char *value)
{
	struct cow_settings *s = &record->settings;

	if (strcmp(key, "pid") == 0)
		record->pid = (pid_t)atol(value);
	else if (strcmp(key, "name") == 0)
		snprintf(record->name, sizeof record->name, "%.31s", value);
	else if (strcmp(key, "version") == 0)
		copy_text(s->version, sizeof s->version, value);
	else if (strcmp(key, "commit") == 0)
		copy_text(s->commit, sizeof s->commit, value);
	else if (strcmp(key, "options") == 0)
		copy_text(s->options, sizeof s->options, value);
	else if (strcmp(key, "unknown") == 0)
		copy_text(s->refused, sizeof s->refused, value);
	else
		/* A key of another version is no error. */
		cli_counter_set(&record->stats, key,
		                strtoull(value, NULL, 10));
}

/* Returns whether the line is a whole record. Destroys the line. */
static bool parse_record(char *line, struct record *ret)
{
	size_t length = strlen(line);
	char *word, *rest = line, *equals;

	if (length == 0 || line[length - 1] != '\n')
		return false;
	line[length - 1] = 0;
	memset(ret, 0, sizeof *ret);
	word = strsep(&rest, " ");
	if (strcmp(word, "cowshed") != 0)
		return false;
	while ((word = strsep(&rest, " ")) != NULL) {
		equals = strchr(word, '=');
		if (equals == NULL)
			continue; /* the rest of a name with a space */
		*equals = 0;
		take_pair(ret, word, equals + 1);
	}
	cli_tame(ret->name);
	return ret->pid > 0;
}

static void harvest(FILE *in, pid_t own, struct harvest *ret)
{
	struct record record;
	char *line = NULL;
	size_t room = 0;

	memset(ret, 0, sizeof *ret);
	while (getline(&line, &room, in) > 0) {
		if (strcmp(line, "cowshed stranger\n") == 0) {
			ret->strangers++;
			continue;
		}
		if (!parse_record(line, &record)) {
			ret->damaged++;
			continue;
		}
		if (record.pid == own || ret->settings.version[0] == 0 ||
		    (ret->own.pid == 0 && ret->settings.refused[0] == 0))
			ret->settings = record.settings;
		if (record.pid == own) {
			ret->own = record;
		} else {
			cli_stats_add(&ret->others, &record.stats);
			ret->others_count++;
		}
	}
	free(line);
}

static void print_head(FILE *out, const struct cli_report *report)
{
	int status = report->child->status;

	fprintf(out, "cowshed: %s (pid %ld), ", report->program,
	        (long)report->child->pid);
	if (WIFSIGNALED(status))
		fprintf(out, "ended by signal %d (%s)", WTERMSIG(status),
		        strsignal(WTERMSIG(status)));
	else
		fprintf(out, "exit status %d", WEXITSTATUS(status));
	fprintf(out, " after %s\n", cli_duration(report->wall_ns).s);
}

static void print_no_record(FILE *out, int status)
{
	fprintf(out, "  %-12s", "no record");
	if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL)
		cli_wrap(out, 14, "a process that SIGKILL ends can't write "
		         "one; its counters are lost ('cowshed top' shows "
		         "them while it lives)");
	else if (WIFSIGNALED(status))
		cli_wrap(out, 14, "a signal ended the process before it could "
		         "write one; its counters are lost ('cowshed top' "
		         "shows them while it lives)");
	else
		cli_wrap(out, 14, "the program did not load the shim (it is "
		         "linked statically, uses another libc, is set-user-ID, or "
		         "lost LD_PRELOAD), or it could not write one when it "
		         "ended (it changed its user or root directory, or had no "
		         "free descriptor: ulimit -n)");
}

static void print_strangers(FILE *out, uint64_t strangers)
{
	char text[400];

	if (strangers == 0)
		return;
	snprintf(text, sizeof text, "%s process%s gave up privileges, or entered a sandbox, "
	         "beside relatives: what they shared is copied when it is written",
	         cli_count(strangers).s, strangers == 1 ? "" : "es");
	fprintf(out, "  %-12s", "strangers");
	cli_wrap(out, 14, text);
}

static void print_memory(FILE *out, const struct cow_stats *s)
{
	fprintf(out, "  %-12s%s in %s block%s\n", "served",
	        cli_bytes(cli_bytes_served(s)).s, cli_count(cli_blocks_served(s)).s,
	        cli_blocks_served(s) == 1 ? "" : "s");
	fprintf(out, "  %-12s%s\n", "peak", cli_bytes(s->bytes_peak).s);
	fprintf(out, "  %-12s%s", "recycled", cli_bytes(s->bytes_recycled).s);
	if (cli_bytes_served(s) > 0)
		fprintf(out, " (%.0f %% of what was served)",
		        100.0 * (double)s->bytes_recycled /
		        (double)cli_bytes_served(s));
	fprintf(out, "\n  %-12s%s into huge pages, ahead of the program\n",
	        "collapsed", cli_bytes(s->bytes_collapsed).s);
	fprintf(out, "  %-12s%s to the kernel, and %s of old frozen pages\n",
	        "returned", cli_bytes(s->bytes_returned).s,
	        cli_bytes(s->bytes_shadow_returned).s);
}

static void print_copies(FILE *out, const struct cow_stats *s)
{
	fprintf(out, "  %-12s%s by reference, %s by freezing, %s by copying; "
	        "%s stolen\n", "clones", cli_count(s->clones_lazy).s,
	        cli_count(s->clones_paged).s, cli_count(s->clones_eager).s,
	        cli_count(s->steals).s);
	fprintf(out, "  %-12s%s by the library; %s saved\n", "copied",
	        cli_bytes(s->bytes_copied).s,
	        cli_bytes(s->bytes_not_copied).s);
	/* Most programs never count: 0 would say too much. */
	if (s->pages_private > 0)
		fprintf(out, "  %-12s%s pages when written, as a fork last "
		        "counted\n", "", cli_count(s->pages_private).s);
	fprintf(out, "  %-12s%s extents, %s\n", "freezes",
	        cli_count(s->freezes).s, cli_bytes(s->bytes_frozen).s);
	fprintf(out, "  %-12s%s extents, %s, %s pages written back\n", "thaws",
	        cli_count(s->thaws).s, cli_bytes(s->bytes_thawed).s,
	        cli_count(s->pages_written_back).s);
	fprintf(out, "  %-12s%s", "forks", cli_count(s->forks).s);
	if (s->forks > 0)
		fprintf(out, ", pause of the last %s, the longest %s",
		        cli_duration(s->fork_ns_last).s,
		        cli_duration(s->fork_ns_max).s);
	fputc('\n', out);
}

static void print_others(FILE *out, const struct harvest *harvest)
{
	const struct cow_stats *s = &harvest->others;
	uint64_t clones = s->clones_lazy + s->clones_paged + s->clones_eager;
	char text[640];

	if (harvest->others_count == 0)
		return;
	snprintf(text, sizeof text, "%s more, together: %s served, peak of "
	         "the largest %s, %s recycled, %s clones, "
	         "%s forks (longest pause %s), %s frozen, %s thawed",
	         cli_count(harvest->others_count).s,
	         cli_bytes(cli_bytes_served(s)).s, cli_bytes(s->bytes_peak).s,
	         cli_bytes(s->bytes_recycled).s, cli_count(clones).s,
	         cli_count(s->forks).s,
	         cli_duration(s->fork_ns_max).s, cli_bytes(s->bytes_frozen).s,
	         cli_bytes(s->bytes_thawed).s);
	fprintf(out, "  %-12s", "processes");
	cli_wrap(out, 14, text);
}

/* A wrapper, as a shell, asks for nothing large: then its children tell. */
static void print_nothing_served(FILE *out, const struct harvest *harvest)
{
	bool others = cli_blocks_served(&harvest->others) > 0;

	if (harvest->own.pid == 0 || cli_blocks_served(&harvest->own.stats) > 0)
		return;
	fprintf(out, "  %-12s", "note");
	cli_wrap(out, 14, others ? "the program itself asked for nothing as large as the "
	         "threshold; what processes that it started were served is below, after "
	         "'processes'" :
	         "no process asked for anything as large as the threshold, or memfds are "
	         "slow here (cowshed doctor); set --threshold");
}

static void print_fallbacks(FILE *out, const struct harvest *harvest)
{
	struct cow_stats all = harvest->others;

	cli_stats_add(&all, &harvest->own.stats);
	fprintf(out, "  %-12s", "fallbacks");
	if (cli_fallbacks_total(&all) == 0)
		fprintf(out, "none: nothing was done the slow way\n");
	else
		fprintf(out, "in %s, done the slow way:\n",
		        harvest->others_count > 0 ? "all processes"
		                                  : "the program");
	cli_fallbacks_print(out, &all);
}

uint64_t cli_report_read(FILE *in, pid_t pid, struct cow_stats *ret_own,
                         struct cow_stats *ret_others)
{
	struct harvest found;

	harvest(in, pid, &found);
	*ret_own = found.own.stats;
	*ret_others = found.others;
	return found.others_count + (found.own.pid != 0);
}

void cli_report_print(FILE *out, FILE *in, const struct cli_report *report)
{
	struct harvest found;
	const struct record *own = &found.own;

	harvest(in, report->child->pid, &found);
	print_head(out, report);
	cli_settings_print(out, &found.settings);
	print_strangers(out, found.strangers);
	if (own->pid == 0)
		print_no_record(out, report->child->status);
	print_nothing_served(out, &found);
	if (own->pid != 0) {
		print_memory(out, &own->stats);
		print_copies(out, &own->stats);
	}
	print_others(out, &found);
	if (own->pid != 0 || found.others_count > 0)
		print_fallbacks(out, &found);
	if (found.damaged > 0)
		fprintf(out, "  %-12s%s records could not be read\n", "damaged",
		        cli_count(found.damaged).s);
}
