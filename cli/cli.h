/* SPDX-License-Identifier: MIT */
/*
 * What the files of the command share
 *
 * The command is a client like any other: it uses public headers and libc, and
 * nothing inside the library. main.c finds the command by its name. Each command
 * is a file that ends in a `struct cli_command`:
 *
 *      main.c --> run.c ---> shim.c       finds the preload library
 *             |          |-> elf.c        whether it would load into a program
 *             |          |-> child.c      fork, forward signals, end alike
 *             |          |-> report.c     the records of the processes
 *             |          |-> drop.c     where the processes leave what they counted
 *             |          '-> sample.c, page.c...   profile (cli/profile.h)
 *             |--> stat.c
 *             |--> top.c ---> screen.c    takes the terminal, gives it back
 *             |--> broker.c    (cli/broker.h)
 *             |--> shelf.c        ls, publish, get, rm
 *             |--> doctor.c -> kernel.c, limits.c, cgroup.c, gpu.c
 *             '--> all ----> settings.c   options, and what a process runs with
 *                            counters.c   every counter: name, place, unit
 *                            fallbacks.c  every fallback: meaning, change
 *                            process.c    other processes, from outside
 *                            human.c      numbers and text for people
 *
 * Names begin with cli_ and not with cow__, so the command can be linked with
 * our static library without a clash. A command returns the exit status: 0,
 * CLI_FAILED after a sentence on stderr, or another one that its manual page
 * names. Other functions return 0 or -errno.
 */
#ifndef CLI_H
#define CLI_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* pipe2(), asprintf(); this header comes first */
#endif

#include <cowshed.h>

#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

enum {
	CLI_GO_ON = -1,   /* options parsed, nothing printed yet: go on */
	CLI_FAILED = 2,   /* wrong use, or the command failed */
};

/* ---- main.c ------------------------------------------------------------- */

struct cli_command {
	const char *name;
	const char *summary; /* half a line */
	const char *help;    /* begins with "Usage:" */
	int (*main)(int argc, char **argv); /* argv[0] is the name */
};

extern const struct cli_command cli_run, cli_profile, cli_stat, cli_top, cli_doctor;
extern const struct cli_command cli_broker, cli_ls, cli_publish, cli_get, cli_rm;

/* Prints "cowshed: sentence" on stderr; returns CLI_FAILED. */
int cli_error(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Says which option getopt_long() refused (`found` is '?' or ':'). */
int cli_bad_option(int found, char **argv);

/* Prints the help of a command on stdout; returns 0. */
int cli_help(const struct cli_command *command);

/* ---- human.c ------------------------------------------------------------ */

/* Returned by value, so that one printf can have several: cli_bytes(n).s */
struct cli_text {
	char s[40];
};

enum cli_unit {
	CLI_COUNT,
	CLI_BYTES,
	CLI_NS,
};

struct cli_text cli_count(uint64_t count); /* "3 210" */
struct cli_text cli_bytes(uint64_t bytes); /* "1.50 GiB" */
struct cli_text cli_duration(uint64_t ns); /* "85.0 us" */
struct cli_text cli_value(uint64_t value, enum cli_unit unit);

/* At most six characters, for columns: "3.2k", "1.50G", "85.0us". */
struct cli_text cli_short(uint64_t value, enum cli_unit unit);

/* "64K", "1.5G", "4096": bytes. -EINVAL: not a size; -ERANGE: too large. */
int cli_parse_bytes(const char *text, uint64_t *ret);

/* Prints words so that lines end before column 80. The cursor is at column
 * `indent`, where later lines begin too. Ends with a newline. */
void cli_wrap(FILE *out, int indent, const char *text);

/* Replaces control characters, and bytes that are not UTF-8, by '?', in place. */
void cli_tame(char *text);

/* The time since some moment in the past, which never goes back: ns. */
uint64_t cli_now_ns(void);

/* ---- counters.c --------------------------------------------------------- */

struct cli_counter {
	const char *name;  /* the member of struct cow_stats */
	const char *says;  /* for people */
	const char *group; /* a heading; NULL: the counter before has it */
	size_t offset;
	enum cli_unit unit;
	bool is_max; /* several processes: the largest, not the sum */
};

extern const struct cli_counter cli_counters[];
extern const size_t cli_counters_count;

uint64_t cli_counter_get(const struct cli_counter *counter,
                         const struct cow_stats *stats);
/* Sets the counter `name`, or "fallback.NAME". -ENOENT: there is none. */
int cli_counter_set(struct cow_stats *stats, const char *name, uint64_t value);

/* Adds the counters of another process. */
void cli_stats_add(struct cow_stats *sum, const struct cow_stats *more);

/* What was handed out after the fork that made a process: the rest its parent counts, too. */
uint64_t cli_bytes_served(const struct cow_stats *stats);
uint64_t cli_blocks_served(const struct cow_stats *stats);

/* ---- settings.c --------------------------------------------------------- */

/* Are all options of a list known and valid? `where` it is from, for the sentence.
 * CLI_GO_ON, or CLI_FAILED after a sentence. */
int cli_options_check(const char *list, const char *where);

/* The last value of a key in a list of options, or NULL. The caller frees it. */
char *cli_option_last(const char *list, const char *key);

/* For people: the options that hold, and each one that was ignored with the reason;
 * "": none. What does not fit is cut off. */
void cli_options_text(const struct cow_settings *settings, char *ret, size_t bytes);
void cli_refused_text(const struct cow_settings *settings, char *ret, size_t bytes);

/* As cli_refused_text(), of a whole list: the options that no process would understand. */
void cli_mistakes_text(const char *list, char *ret, size_t bytes);

/* Lines of a report: version, options, what was ignored. */
void cli_settings_print(FILE *out, const struct cow_settings *settings);

/* ---- fallbacks.c -------------------------------------------------------- */

uint64_t cli_fallbacks_total(const struct cow_stats *stats);
const char *cli_fallback_name(int reason); /* never NULL */
/* What it means, and what to change; NULL: nothing. */
void cli_fallback_advice(int reason, const char **ret_means, const char **ret_change);

/* Prints those that happened, each with its meaning and what to change. */
void cli_fallbacks_print(FILE *out, const struct cow_stats *stats);

/* ---- process.c ---------------------------------------------------------- */

struct cli_process {
	pid_t pid;
	char name[32]; /* tamed; "?" if it can't be read */
	bool unserved; /* it has the shim, and asked for nothing as large as the threshold */
	struct cow_stats stats;       /* zero if unserved */
	struct cow_settings settings; /* the same */
};

/* -errno as cow_stats_read(). */
int cli_process_read(pid_t pid, struct cli_process *ret);

/* For a process without counters: is the shim loaded into it? */
bool cli_process_has_shim(pid_t pid);

/* As cli_mistakes_text(), of COWSHED_OPTIONS at its start, since without counters it tells nothing.
 * Empty: there are none, or its environment may not be read. */
void cli_process_mistakes(pid_t pid, char *ret, size_t bytes);

/* All processes whose statistics we may read, and those that the shim serves nothing (started with
 * LD_PRELOAD), most live bytes first. The caller frees *ret. Returns their number, or -errno. */
ssize_t cli_process_scan(struct cli_process **ret);

/* ---- shim.c ------------------------------------------------------------- */

/* The path of the preload library. -ENOENT, ...: it is not beside libcowshed. */
int cli_shim_find(char ret[PATH_MAX]);

/* The path of libcowshed-copies.so, which lies beside the shim. -ENOENT, ... */
int cli_shim_copies(const char *shim, char ret[PATH_MAX]);

/* ---- elf.c -------------------------------------------------------------- */

/* Why the shim can't load into a program (a name as execvp() takes it): the
 * end of a sentence. NULL: it can, or the file does not tell. *ret_harmless:
 * LD_PRELOAD does not disturb the program. */
const char *cli_elf_refuses(const char *program, bool *ret_harmless);

/* ---- child.c ------------------------------------------------------------ */

struct cli_child {
	pid_t pid;
	int status;    /* of waitpid() */
	sigset_t mask; /* our signal mask before */
};

/* Runs a program to its end; forwards all signals to it. These stay blocked until
 * cli_child_release(), so that the caller can clean up. -errno: it
 * did not start, and there is nothing to release. */
int cli_child_run(char **argv, struct cli_child *ret);
void cli_child_release(struct cli_child *child);

/* Returns the exit status to end with. If a signal ended the child, raises it. */
int cli_child_mirror(const struct cli_child *child);

/* ---- drop.c --------------------------------------------------------------- */

/* Where the processes of a program leave records, and count call sites. */
struct cli_drop {
	char directory[PATH_MAX - 16];
	char path[PATH_MAX], sites_path[PATH_MAX];
	FILE *in;
	int sites; /* -1: none */
};

/* Makes a directory with empty files. -errno. */
int cli_drop_make(struct cli_drop *drop, bool sites);

/* Removes them. What is open here can still be read. */
void cli_drop_remove(struct cli_drop *drop);
void cli_drop_close(struct cli_drop *drop);

/* Can processes write their records to this file? "": they write none. They would say
 * nothing. CLI_GO_ON, or CLI_FAILED after a sentence. */
int cli_drop_check(const char *path);

/* ---- report.c ----------------------------------------------------------- */

struct cli_report {
	const char *program;
	const struct cli_child *child;
	uint64_t wall_ns;
};

/* Reads the records from `in`, prints the report on `out`. */
void cli_report_print(FILE *out, FILE *in, const struct cli_report *report);
/* Reads the records: that of `pid`, and the sum of all others. Returns how many. */
uint64_t cli_report_read(FILE *in, pid_t pid, struct cow_stats *ret_own,
                         struct cow_stats *ret_others);

/* ---- screen.c ----------------------------------------------------------- */

enum cli_event {
	CLI_EVENT_TIME,   /* the time is over */
	CLI_EVENT_REDRAW, /* the size changed, or we were stopped and go on */
	CLI_EVENT_QUIT,
};

/* Takes the terminal, unless `batch`. cli_screen_close() must follow: it gives
 * the terminal back. If a signal ended the last wait, it raises that again. */
void cli_screen_open(bool batch);
void cli_screen_close(void);
void cli_screen_begin(void); /* of a frame */
/* One line, cut at the width; false when no more fit. */
bool cli_screen_line(const char *format, ...)
	__attribute__((format(printf, 1, 2)));
void cli_screen_end(void);
enum cli_event cli_screen_wait(uint64_t ns);

/* ---- doctor.c, kernel.c, limits.c, cgroup.c, gpu.c ---------------------- */

enum cli_verdict {
	CLI_OK,
	CLI_NOTE,    /* works without it, or could do better */
	CLI_MISSING, /* needed, and not there */
	CLI_UNKNOWN, /* can't be determined */
};

/* Prints a finding. `brings` is its use, `change` the command that changes it;
 * either may be NULL. `format` and the rest describe the present state. */
void cli_finding(enum cli_verdict verdict, const char *name,
                 const char *brings, const char *change,
                 const char *format, ...)
	__attribute__((format(printf, 5, 6)));

/* Reads the first line of a file, without its newline. -errno. */
int cli_read_line(const char *path, char *ret, size_t bytes);

void cli_doctor_kernel(void);
void cli_doctor_limits(void);
void cli_doctor_cgroup(void);
void cli_doctor_gpu(void);

#endif
