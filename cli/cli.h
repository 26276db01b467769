/* SPDX-License-Identifier: MIT */
/*
 * What the files of the command share
 *
 * The command is a client like any other: it knows <cowshed.h> and libc, and
 * nothing of how the library works. main.c finds the command that was asked
 * for; each command is one file that ends in a `struct cli_command`:
 *
 *      main.c --> run.c ---> shim.c       where the preload library is
 *             |          |-> elf.c       whether it would load into a program
 *             |          |-> child.c      fork, forward signals, die alike
 *             |          '-> report.c     what the processes left behind
 *             |--> stat.c
 *             |--> top.c ---> screen.c    the terminal, and giving it back
 *             |--> broker.c    (cli/broker.h)
 *             |--> shelf.c        ls, publish, get, rm
 *             |--> doctor.c -> kernel.c, limits.c, cgroup.c, gpu.c
 *             '--> all ----> counters.c   every counter: name, place, unit
 *                            fallbacks.c  every slow way: meaning, remedy
 *                            process.c    other processes, from outside
 *                            human.c      numbers and text for people
 *
 * Names begin with cli_ and not with cow__, so that the command can be linked
 * with a static library of ours without meeting its names. A command returns
 * the exit status: 0; CLI_FAILED after an error, with a sentence on stderr; or
 * what its page of the manual says. Other functions return 0 or -errno.
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
	CLI_GO_ON = -1,   /* options parsed, nothing said yet: go on */
	CLI_FAILED = 2,   /* wrong use, or it could not be done */
};

/* ---- main.c ------------------------------------------------------------- */

struct cli_command {
	const char *name;
	const char *summary; /* half a line */
	const char *help;    /* the page, from "Usage:" on */
	int (*main)(int argc, char **argv); /* argv[0] is the name */
};

extern const struct cli_command cli_run, cli_stat, cli_top, cli_doctor;
extern const struct cli_command cli_broker, cli_ls, cli_publish, cli_get, cli_rm;

/* Prints "cowshed: sentence" on stderr; returns CLI_FAILED. */
int cli_error(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Explains what getopt_long() refused (`found` is '?' or ':'). */
int cli_bad_option(int found, char **argv);

/* Prints the page of a command on stdout; returns 0. */
int cli_help(const struct cli_command *command);

/* ---- human.c ------------------------------------------------------------ */

/* By value, so that one printf can have several: cli_bytes(n).s */
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

/* Replaces what could steer a terminal, and what is not UTF-8, by '?', in place. */
void cli_tame(char *text);

/* ---- counters.c --------------------------------------------------------- */

struct cli_counter {
	const char *name;  /* the member of struct cow_stats */
	const char *says;  /* for people */
	const char *group; /* a heading; NULL: as the one before */
	size_t offset;
	enum cli_unit unit;
	bool is_max; /* processes together: the largest, not the sum */
};

extern const struct cli_counter cli_counters[];
extern const size_t cli_counters_count;

uint64_t cli_counter_get(const struct cli_counter *counter,
                         const struct cow_stats *stats);
/* Sets the counter (or "fallback.NAME") called `name`. -ENOENT: none is. */
int cli_counter_set(struct cow_stats *stats, const char *name, uint64_t value);

/* Adds the counters of one more process. */
void cli_stats_add(struct cow_stats *sum, const struct cow_stats *more);

/* ---- fallbacks.c -------------------------------------------------------- */

uint64_t cli_fallbacks_total(const struct cow_stats *stats);
const char *cli_fallback_name(int reason); /* never NULL */

/* Those that happened, each with its meaning and what to change. */
void cli_fallbacks_print(FILE *out, const struct cow_stats *stats);

/* ---- process.c ---------------------------------------------------------- */

struct cli_process {
	pid_t pid;
	char name[32]; /* tamed; "?" if it can't be read */
	struct cow_stats stats;
};

/* -errno as cow_stats_read(). */
int cli_process_read(pid_t pid, struct cli_process *ret);

/* All that have statistics and let us look, most bytes live first. The caller
 * frees *ret. Returns how many, or -errno. */
ssize_t cli_process_scan(struct cli_process **ret);

/* ---- shim.c ------------------------------------------------------------- */

/* The path of the preload library. -ENOENT, ...: it is not beside libcowshed. */
int cli_shim_find(char ret[PATH_MAX]);

/* That of the library for lazy copies, which lies beside it. */
int cli_shim_copies(const char *shim, char ret[PATH_MAX]);

/* ---- elf.c -------------------------------------------------------------- */

/* Why the shim can't load into a program (a name as execvp() takes it): the
 * end of a sentence. NULL: it can, as far as one can tell. *ret_harmless:
 * being asked to does not disturb the program. */
const char *cli_elf_refuses(const char *program, bool *ret_harmless);

/* ---- child.c ------------------------------------------------------------ */

struct cli_child {
	pid_t pid;
	int status;    /* as of waitpid() */
	sigset_t mask; /* ours of before */
};

/* Runs a program to its end; forwards INT, TERM, HUP and QUIT to it. Those stay
 * blocked until cli_child_release(), for the caller to clean up. -errno: it
 * did not start (nothing to release). */
int cli_child_run(char **argv, struct cli_child *ret);
void cli_child_release(struct cli_child *child);

/* The exit status to end with; does not return if a signal ended the child. */
int cli_child_mirror(const struct cli_child *child);

/* ---- report.c ----------------------------------------------------------- */

struct cli_report {
	const char *program;
	const struct cli_child *child;
	uint64_t wall_ns;
};

/* Reads the records from `in`, prints what they say on `out`. */
void cli_report_print(FILE *out, FILE *in, const struct cli_report *report);

/* ---- screen.c ----------------------------------------------------------- */

enum cli_event {
	CLI_EVENT_TIME,   /* the time is over */
	CLI_EVENT_REDRAW, /* another size, or back from being stopped */
	CLI_EVENT_QUIT,
};

/* Takes the terminal, unless `batch`. Always followed by cli_screen_close(),
 * which dies of the signal that ended the last wait, if one did. */
void cli_screen_open(bool batch);
void cli_screen_close(void);
void cli_screen_begin(void); /* one frame */
/* One line, cut at the width; false when no more fit. */
bool cli_screen_line(const char *format, ...)
	__attribute__((format(printf, 1, 2)));
void cli_screen_end(void);
enum cli_event cli_screen_wait(uint64_t ns);

/* ---- doctor.c, kernel.c, limits.c, cgroup.c, gpu.c ---------------------- */

enum cli_verdict {
	CLI_OK,
	CLI_NOTE,    /* works, could be better */
	CLI_MISSING, /* needed, and not there */
	CLI_UNKNOWN, /* can't be determined */
};

/* One finding. `brings`: what it is good for; `change`: the command that
 * changes it; either may be NULL. The rest says how things stand. */
void cli_finding(enum cli_verdict verdict, const char *name,
                 const char *brings, const char *change,
                 const char *format, ...)
	__attribute__((format(printf, 5, 6)));

/* The first line of a file, without its newline. -errno. */
int cli_read_line(const char *path, char *ret, size_t bytes);

void cli_doctor_kernel(void);
void cli_doctor_limits(void);
void cli_doctor_cgroup(void);
void cli_doctor_gpu(void);

#endif
