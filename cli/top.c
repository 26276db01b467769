/* SPDX-License-Identifier: MIT */
/*
 * cowshed top: all processes that use cowshed, live, from outside
 *
 * One line a process, most live bytes first. The help explains the columns,
 * which fit into 80 characters.
 */
#include "cli/cli.h"

#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const char page[] =
	"Usage: cowshed top [-b] [-d SECONDS] [-n COUNT]\n"
	"Shows all processes that use cowshed, most memory first. q quits.\n"
	"\n"
	"  -d, --delay SECONDS  time between two updates (2)\n"
	"  -n, --count COUNT    end after this many updates\n"
	"  -b, --batch          plain lines, for files and pipes\n"
	"  -h, --help           this help\n"
	"\n"
	"  LIVE    memory that is handed out and not freed\n"
	"  PEAK    the highest value of LIVE\n"
	"  WARM    memory that is freed and kept for the next request\n"
	"  COPIED  bytes that the library copied\n"
	"  SAVED   bytes that an eager library would have copied in addition\n"
	"  FORKS   the number of forks\n"
	"  PAUSE   the longest pause of a fork\n"
	"  SLOW    how often something was done the slow way;\n"
	"          'cowshed stat PID' tells what and why\n"
	"\n"
	"Below a process: its options, those that were ignored, and its version\n"
	"if it is another one than that of the command. A process that has the\n"
	"shim and was served nothing comes last.\n";

struct view {
	bool batch;
	double delay;
	uint64_t count; /* 0: for ever */
};

static struct cli_text version_text(const struct cow_settings *s)
{
	struct cli_text text;

	snprintf(text.s, sizeof text.s, "%.15s, commit %.12s", s->version,
	         s->commit[0] != 0 ? s->commit : "unknown");
	cli_tame(text.s);
	return text;
}

static bool draw_mistakes(pid_t pid)
{
	char mistakes[2048];

	cli_process_mistakes(pid, mistakes, sizeof mistakes);
	return mistakes[0] == 0 || cli_screen_line("        %s", mistakes);
}

/* What is not as it is by default: one line below the process. */
static bool draw_settings(const struct cow_settings *s)
{
	struct cow_settings own = {.size = sizeof own};
	char options[2048], refused[4096], version[64] = "";
	struct cli_text theirs = version_text(s);

	if (s->version[0] != 0 && cow_settings_read(0, &own) == 0 &&
	    strcmp(theirs.s, version_text(&own).s) != 0)
		snprintf(version, sizeof version, "version %s", theirs.s);
	cli_options_text(s, options, sizeof options);
	cli_refused_text(s, refused, sizeof refused);
	if (*version == 0 && *options == 0 && *refused == 0)
		return true;
	return cli_screen_line("        %s%s%s%s%s", refused,
	                       *refused != 0 && (*version != 0 || *options != 0) ? "; " : "",
	                       version, *version != 0 && *options != 0 ? "; " : "",
	                       options);
}

static void draw_head(const struct cli_process *list, ssize_t count)
{
	uint64_t live = 0, warm = 0;
	time_t now = time(NULL);
	struct cow_settings own = {.size = sizeof own};
	struct tm local;
	char when[16] = "";

	(void)cow_settings_read(0, &own);
	for (ssize_t i = 0; i < count; i++) {
		live += list[i].stats.bytes_live;
		warm += list[i].stats.bytes_warm;
	}
	if (localtime_r(&now, &local) != NULL)
		strftime(when, sizeof when, "%H:%M:%S", &local);
	cli_screen_line("cowshed top  %s  %zd process%s, %s live, %s warm",
	                when, count, count == 1 ? "" : "es",
	                cli_bytes(live).s, cli_bytes(warm).s);
	cli_screen_line("version %s", version_text(&own).s);
	cli_screen_line("%7s %-14s%7s%7s%7s%7s%7s%7s%7s%7s", "PID", "COMMAND",
	                "LIVE", "PEAK", "WARM", "COPIED", "SAVED", "FORKS",
	                "PAUSE", "SLOW");
}

static bool draw_process(const struct cli_process *process)
{
	const struct cow_stats *s = &process->stats;
	uint64_t slow = cli_fallbacks_total(s);

	if (process->unserved)
		return cli_screen_line("%7ld %-14.14s   asked for nothing as large as the threshold",
		                       (long)process->pid, process->name);
	return cli_screen_line("%7ld %-14.14s%7s%7s%7s%7s%7s%7s%7s%7s",
	                       (long)process->pid, process->name,
	                       cli_short(s->bytes_live, CLI_BYTES).s,
	                       cli_short(s->bytes_peak, CLI_BYTES).s,
	                       cli_short(s->bytes_warm, CLI_BYTES).s,
	                       cli_short(s->bytes_copied, CLI_BYTES).s,
	                       cli_short(s->bytes_not_copied, CLI_BYTES).s,
	                       cli_short(s->forks, CLI_COUNT).s,
	                       s->forks == 0 ? "-" :
	                       cli_short(s->fork_ns_max, CLI_NS).s,
	                       cli_short(slow, CLI_COUNT).s);
}

static int draw(void)
{
	struct cli_process *list = NULL;
	ssize_t count = cli_process_scan(&list);

	if (count < 0)
		return (int)count;
	cli_screen_begin();
	draw_head(list, count);
	for (ssize_t i = 0; i < count; i++)
		if (!draw_process(&list[i]) ||
		    !(list[i].unserved ? draw_mistakes(list[i].pid)
		                       : draw_settings(&list[i].settings)))
			break;
	if (count == 0)
		cli_screen_line("no process that you may look at uses cowshed");
	cli_screen_end();
	free(list);
	return 0;
}

/* Draws until told otherwise. Returns -errno if /proc can't be read. */
static int watch(const struct view *view)
{
	const uint64_t ns = (uint64_t)(view->delay * 1e9);
	enum cli_event event = CLI_EVENT_TIME;
	uint64_t looks = 0;

	while (event != CLI_EVENT_QUIT) {
		int r = draw();

		if (r < 0)
			return r;
		if (ferror(stdout))
			return 0; /* main says so */
		/* A redraw for another size is not one of the count. */
		if (event == CLI_EVENT_TIME && ++looks == view->count)
			return 0;
		event = cli_screen_wait(ns);
	}
	return 0;
}

static int parse_delay(const char *text, double *ret)
{
	char *end;
	double seconds = strtod(text, &end);

	if (end == text || *end != 0 || !isfinite(seconds) || seconds < 0.1 ||
	    seconds > 1e6)
		return -EINVAL;
	*ret = seconds;
	return 0;
}

static int parse_count(const char *text, uint64_t *ret)
{
	char *end;
	long long count;

	errno = 0;
	count = strtoll(text, &end, 10);
	if (errno != 0 || end == text || *end != 0 || count < 1)
		return -EINVAL;
	*ret = (uint64_t)count;
	return 0;
}

static int parse_options(int argc, char **argv, struct view *view)
{
	static const struct option options[] = {
		{"delay", required_argument, NULL, 'd'},
		{"count", required_argument, NULL, 'n'},
		{"batch", no_argument, NULL, 'b'},
		{"help", no_argument, NULL, 'h'},
		{0},
	};
	int found;

	while ((found = getopt_long(argc, argv, ":d:n:bh", options,
	                            NULL)) != -1)
		switch (found) {
		case 'd':
			if (parse_delay(optarg, &view->delay) == 0)
				break;
			return cli_error("'%s' is not a delay; write seconds "
			                 "from 0.1 to 1000000.", optarg);
		case 'n':
			if (parse_count(optarg, &view->count) == 0)
				break;
			return cli_error("'%s' is not a count of updates; "
			                 "write a number from 1 on.", optarg);
		case 'b':
			view->batch = true;
			break;
		case 'h':
			return cli_help(&cli_top);
		default:
			return cli_bad_option(found, argv);
		}
	if (optind < argc)
		return cli_error("'cowshed top' takes no arguments: "
		                 "leave out '%s'.", argv[optind]);
	return CLI_GO_ON;
}

static int top_main(int argc, char **argv)
{
	struct view view = {.delay = 2};
	int r = parse_options(argc, argv, &view);

	if (r != CLI_GO_ON)
		return r;
	cli_screen_open(view.batch);
	r = watch(&view);
	cli_screen_close();
	if (r == -ENOENT)
		return cli_error("/proc is not mounted; 'cowshed top' finds "
		                 "the processes there.");
	if (r < 0)
		return cli_error("/proc can't be read: %s; 'cowshed top' finds "
		                 "the processes there.", strerror(-r));
	return 0;
}

const struct cli_command cli_top = {
	"top", "show all processes that use cowshed, live", page, top_main,
};
