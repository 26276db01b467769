/* SPDX-License-Identifier: MIT */
/*
 * cowshed run: start a program under the shim
 *
 * Two variables of the environment do the work. LD_PRELOAD gets the shim before
 * its old value, so that another allocator there becomes the next one and serves
 * the small requests. COWSHED_OPTIONS gets the options behind its old value: the
 * last value of a key counts. Then this process becomes the program.
 *
 * If the loader of the program can't load the shim, the program gets neither
 * variable: the loader would print errors that explain nothing, or give up. A
 * static program has no loader, and often starts other programs: it gets both.
 *
 * With --report this process stays, runs the program as a child, and waits.
 * Every process under the shim appends a record of its counters to a file when
 * it exits. The file lies in a directory of its own. When the program has ended
 * we remove both and read the open file. A process that outlives the program
 * finds no directory to make the file in, so nothing is left behind.
 */
#include "cli/profile.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char page[] =
	"Usage: cowshed run [OPTION...] [--] PROGRAM [ARGUMENT...]\n"
	"Runs an unmodified program; cowshed serves its large blocks of memory.\n"
	"\n"
	"  --threshold BYTES   serve requests of at least BYTES; K, M, G, T\n"
	"  --backing KIND      memory of new blocks: memfd, anon or auto\n"
	"  --copies MODE       large copies between blocks: off, auto or lazy\n"
	"  -o KEY=VALUE,...    any options, as in COWSHED_OPTIONS\n"
	"  --report[=FILE]     print at the end what was served, cloned and\n"
	"                      copied, on stderr or in FILE\n"
	"  -h, --help          this help\n"
	"\n"
	"The exit status is the program's. If a signal ends the program, the\n"
	"same signal ends cowshed. 127: the program was not found; 126: it was\n"
	"found and can't be run; 2: cowshed itself failed.\n"
	"\n"
	"A process that SIGKILL or another signal ends, or that becomes\n"
	"another program, writes no record for the report.\n"
	"\n"
	"An option that does not exist, or has a wrong value, is an error, also in\n"
	"COWSHED_OPTIONS. Without 'cowshed run' the shim ignores it silently;\n"
	"'cowshed stat', 'top' and 'doctor' name it.\n"
	"\n"
	"A program that is linked statically, uses another libc, is made for\n"
	"another processor (32 bits), or is set-user-ID can't load the shim.\n"
	"cowshed says so on stderr and runs it without the shim. Programs that\n"
	"a static program starts may load it.\n";

struct plan {
	char *options;         /* for COWSHED_OPTIONS; NULL: none */
	bool report, profile;
	const char *report_to; /* NULL: stderr */
	char **argv;
};

static int out_of_memory(void)
{
	return cli_error("There is not enough memory to start the program.");
}

/* *list = *list + separator + text. -ENOMEM. */
static int append_text(char **list, const char *separator, const char *text)
{
	bool first = *list == NULL || **list == 0;
	char *longer;

	if (asprintf(&longer, "%s%s%s", first ? "" : *list,
	             first ? "" : separator, text) < 0)
		return -ENOMEM;
	free(*list);
	*list = longer;
	return 0;
}

/* One option, or a list with commas. */
static int add_option(struct plan *plan, const char *list)
{
	char *report;
	int status;

	status = cli_options_check(list, "the options of the command line");
	if (status != CLI_GO_ON)
		return status;
	report = cli_option_last(list, "report");
	if (report != NULL)
		status = cli_drop_check(report);
	free(report);
	if (status != CLI_GO_ON)
		return status;
	return append_text(&plan->options, ",", list) < 0 ? out_of_memory()
	                                             : CLI_GO_ON;
}

static bool names_report(const char *list)
{
	char *report = cli_option_last(list, "report");

	free(report);
	return report != NULL;
}

static int add_threshold(struct plan *plan, const char *text)
{
	char pair[48];
	uint64_t bytes;

	if (cli_parse_bytes(text, &bytes) < 0)
		return cli_error("'%s' is not a size; write a number of bytes, "
		                 "or 64K, 1M, 2G.", text);
	snprintf(pair, sizeof pair, "threshold=%llu",
	         (unsigned long long)bytes);
	return add_option(plan, pair);
}

static int add_backing(struct plan *plan, const char *kind)
{
	char pair[48];

	if (strcmp(kind, "memfd") != 0 && strcmp(kind, "anon") != 0 &&
	    strcmp(kind, "auto") != 0)
		return cli_error("There is no backing '%s'; write memfd, anon "
		                 "or auto.", kind);
	snprintf(pair, sizeof pair, "backing=%s", kind);
	return add_option(plan, pair);
}

static int add_copies(struct plan *plan, const char *mode)
{
	char pair[48];

	if (strcmp(mode, "off") != 0 && strcmp(mode, "auto") != 0 &&
	    strcmp(mode, "lazy") != 0)
		return cli_error("There is no mode of copies '%s'; write off, "
		                 "auto or lazy.", mode);
	snprintf(pair, sizeof pair, "copies=%s", mode);
	return add_option(plan, pair);
}

static int take_option(int found, char **argv, struct plan *plan)
{
	switch (found) {
	case 't':
		return add_threshold(plan, optarg);
	case 'b':
		return add_backing(plan, optarg);
	case 'c':
		return add_copies(plan, optarg);
	case 'o':
		if (plan->report && names_report(optarg))
			break;
		return add_option(plan, optarg);
	case 'r':
		plan->report = true;
		plan->report_to = optarg;
		if (optarg != NULL && *optarg == 0)
			return cli_error("'--report=' needs a file name; "
			                 "'--report' alone prints on stderr.");
		if (names_report(plan->options))
			break;
		return CLI_GO_ON;
	case 'f':
		plan->report_to = optarg;
		return CLI_GO_ON;
	case 'h':
		return cli_help(plan->profile ? &cli_profile : &cli_run);
	default:
		return cli_bad_option(found, argv);
	}
	return cli_error("'--report' reads the records and removes them, "
	                 "'-o report=FILE' keeps them: give one of the two.");
}

static int parse_options(int argc, char **argv, struct plan *plan)
{
	const struct option options[] = {
		{"threshold", required_argument, NULL, 't'},
		{"backing", required_argument, NULL, 'b'},
		{"copies", required_argument, NULL, 'c'},
		{"option", required_argument, NULL, 'o'},
		{"help", no_argument, NULL, 'h'},
		{plan->profile ? "output" : "report",
		 plan->profile ? required_argument : optional_argument, NULL,
		 plan->profile ? 'f' : 'r'},
		{0},
	};
	int found, status = CLI_GO_ON;

	while (status == CLI_GO_ON &&
	       (found = getopt_long(argc, argv, "+:o:h", options, NULL)) != -1)
		status = take_option(found, argv, plan);
	if (status != CLI_GO_ON)
		return status;
	if (optind >= argc)
		return cli_error("There is no program to run; "
		                 "see 'cowshed help %s'.", argv[0]);
	plan->argv = argv + optind;
	return CLI_GO_ON;
}

static bool list_has(const char *list, const char *path)
{
	size_t length = strlen(path);

	while (*list != 0) {
		size_t part = strcspn(list, " :");

		if (part == length && strncmp(list, path, part) == 0)
			return true;
		list += part;
		list += strspn(list, " :");
	}
	return false;
}

/* Appends `text` to the value of the variable. -ENOMEM. */
static int extend_variable(const char *name, const char *separator,
                           const char *text)
{
	const char *present = getenv(name);
	char *value = present != NULL ? strdup(present) : NULL;
	int r = 0;

	if (present != NULL && value == NULL)
		return -ENOMEM;
	r = append_text(&value, separator, text);
	if (r == 0 && setenv(name, value, 1) < 0)
		r = -ENOMEM;
	free(value);
	return r;
}

/* Puts a library before the value of LD_PRELOAD. -ENOMEM. */
static int preload_first(const char *shim)
{
	const char *present = getenv("LD_PRELOAD");
	char *value;
	int r;

	if (present != NULL && list_has(present, shim))
		return 0;
	value = strdup(shim);
	r = value != NULL ? 0 : -ENOMEM;
	if (r == 0 && present != NULL && *present != 0)
		r = append_text(&value, ":", present);
	if (r == 0 && setenv("LD_PRELOAD", value, 1) < 0)
		r = -ENOMEM;
	free(value);
	return r;
}

/* Do the options ask for lazy copies, so that memcpy must be ours, too? */
static bool wants_copies(const char *options)
{
	char *mode = cli_option_last(options, "copies");
	bool wanted = mode != NULL && strcmp(mode, "off") != 0;

	free(mode);
	return wanted;
}

static int set_environment(const struct plan *plan)
{
	char shim[PATH_MAX], copies[PATH_MAX];
	const char *why, *options = getenv("COWSHED_OPTIONS");
	bool harmless = false, lazy;

	why = cli_elf_refuses(plan->argv[0], &harmless);
	if (why != NULL)
		cli_error("'%s' runs without cowshed, because %s.",
		          plan->argv[0], why);
	if (why != NULL && !harmless)
		return CLI_GO_ON;
	if (cli_shim_find(shim) < 0)
		return cli_error("There is no libcowshed-preload.so beside "
		                 "libcowshed.so.0; install it there.");
	if (strpbrk(shim, " :") != NULL)
		return cli_error("The shim can't be preloaded from '%s', for "
		                 "the loader splits names at spaces and "
		                 "colons; install cowshed elsewhere.", shim);
	if (options != NULL &&
	    cli_options_check(options, "COWSHED_OPTIONS") != CLI_GO_ON)
		return CLI_FAILED;
	if (plan->options != NULL &&
	    extend_variable("COWSHED_OPTIONS", ",", plan->options) < 0)
		return out_of_memory();
	lazy = wants_copies(getenv("COWSHED_OPTIONS"));
	if (lazy && cli_shim_copies(shim, copies) < 0)
		return cli_error("There is no libcowshed-copies.so beside "
		                 "'%s'; install it there.", shim);
	if ((lazy && preload_first(copies) < 0) || preload_first(shim) < 0)
		return out_of_memory();
	return CLI_GO_ON;
}

static int cannot_start(const char *program, int error)
{
	bool absent = error == -ENOENT;

	cli_error("The program '%s' can't be run: %s.", program,
	          strerror(-error));
	return absent ? 127 : 126;
}

/* Runs the program, and prints the page. */
static int run_profiled(const struct plan *plan, struct cli_drop *drop, FILE *out)
{
	struct cli_page shown = {.argv = plan->argv};
	struct cli_sample *samples = NULL;
	struct cli_site *sites = NULL;
	struct cli_sampler sampler;
	struct cli_child child;
	ssize_t count = cli_sampler_start(&sampler), n;
	bool watched = count == 0;
	uint64_t start = cli_now_ns();
	int r = cli_child_run(plan->argv, &child);

	shown.wall_ns = cli_now_ns() - start;
	cli_drop_remove(drop);
	if (watched)
		count = cli_sampler_stop(&sampler, &samples);
	if (r < 0) {
		free(samples);
		return cannot_start(plan->argv[0], r);
	}
	cli_child_release(&child);
	if (count < 0)
		cli_error("The memory could not be watched: %s.",
		          strerror((int)-count));
	shown.status = child.status;
	shown.samples = samples;
	shown.count = count < 0 ? 0 : (size_t)count;
	shown.records = cli_report_read(drop->in, child.pid, &shown.own,
	                                &shown.others);
	n = cli_sites_read(drop->sites, &sites);
	if (n < 0)
		cli_error("The call sites can't be read: %s.", strerror((int)-n));
	shown.sites = sites;
	shown.sites_count = n < 0 ? 0 : (size_t)n;
	if (ftruncate(fileno(out), 0) < 0 && errno != EINVAL) /* a device */
		cli_error("The old page stays before the new one.");
	cli_page_print(out, &shown);
	free(samples);
	free(sites);
	if (fflush(out) != 0)
		cli_error("The page could not be written: %s.", strerror(errno));
	else
		fprintf(stderr, "cowshed: the profile is in %s\n",
		        plan->report_to);
	return cli_child_mirror(&child);
}

static int run_with_drop(const struct plan *plan, struct cli_drop *drop, FILE *out)
{
	struct cli_report report = {.program = plan->argv[0]};
	struct cli_child child;
	uint64_t start = cli_now_ns();
	int r = cli_child_run(plan->argv, &child);

	cli_drop_remove(drop);
	if (r < 0)
		return cannot_start(plan->argv[0], r);
	cli_child_release(&child);
	report.child = &child;
	report.wall_ns = cli_now_ns() - start;
	cli_report_print(out, drop->in, &report);
	if (fflush(out) != 0)
		cli_error("The report could not be written: %s.",
		          strerror(errno));
	return cli_child_mirror(&child);
}

static int report_to(struct plan *plan, FILE *out)
{
	char pair[PATH_MAX + 8];
	struct cli_drop drop;
	int status, r = cli_drop_make(&drop, plan->profile);

	if (r < 0)
		return cli_error("A directory for the records of the report, "
		                 "'%s', can't be made: %s; set TMPDIR.",
		                 drop.directory, strerror(-r));
	snprintf(pair, sizeof pair, "report=%s", drop.path);
	status = add_option(plan, pair);
	if (status == CLI_GO_ON)
		status = set_environment(plan);
	if (status == CLI_GO_ON)
		status = (plan->profile ? run_profiled : run_with_drop)(
			plan, &drop, out);
	else
		cli_drop_remove(&drop);
	cli_drop_close(&drop);
	return status;
}

static int run_with_report(struct plan *plan)
{
	FILE *out;
	int status;

	if (plan->report_to == NULL)
		return report_to(plan, stderr);
	/* An old page stays until there is a new one. */
	out = fopen(plan->report_to, plan->profile ? "ae" : "we");
	if (out == NULL)
		return cli_error("The report can't be written to '%s': %s.",
		                 plan->report_to, strerror(errno));
	status = report_to(plan, out);
	fclose(out);
	return status;
}

static int become(const struct plan *plan)
{
	int status = set_environment(plan);

	if (status != CLI_GO_ON)
		return status;
	execvp(plan->argv[0], plan->argv);
	return cannot_start(plan->argv[0], -errno);
}

static int run_main(int argc, char **argv)
{
	struct plan plan = {0};
	int status = parse_options(argc, argv, &plan);

	if (status == CLI_GO_ON)
		status = plan.report ? run_with_report(&plan)
		                     : become(&plan);
	free(plan.options);
	return status;
}

static int profile_main(int argc, char **argv)
{
	struct plan plan = {.report = true, .profile = true,
	                    .report_to = "cowshed-profile.html"};
	int status = parse_options(argc, argv, &plan);

	if (status == CLI_GO_ON)
		status = run_with_report(&plan);
	free(plan.options);
	return status;
}

const struct cli_command cli_profile = {
	"profile", "run a program, and write a page about its memory",
	cli_profile_help, profile_main,
};

const struct cli_command cli_run = {
	"run", "run a program whose memory cowshed serves", page, run_main,
};
