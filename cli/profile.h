/* SPDX-License-Identifier: MIT */
/*
 * cowshed profile: what a program did with its memory, as one page of HTML
 *
 * `run.c` starts the program, as for a report. Meanwhile a process of ours
 * (sample.c) looks at the program and its descendants, again and again. The looks
 * and the records that the processes leave become the page (page.c).
 */
#ifndef CLI_PROFILE_H
#define CLI_PROFILE_H

#include "cli/cli.h"

/* All processes of the program, at one moment. */
struct cli_sample {
	uint64_t ns;        /* since the start */
	uint64_t all;       /* bytes of memory: the next two */
	uint64_t own;       /* anonymous: what forked processes share counts in each */
	uint64_t files;     /* in memfds, which processes can share */
	uint64_t copied;    /* bytes that the library or the kernel copied */
	uint64_t forks;
	uint64_t fork_ns;   /* the longest pause of a last fork */
	uint64_t processes;
};

struct cli_sampler {
	FILE *samples;
	pid_t pid;
	int stop; /* closing it ends the process */
};

/* Starts a process that looks at all other descendants of this one. -errno. */
int cli_sampler_start(struct cli_sampler *ret);

/* Ends it, and returns its samples: the caller frees *ret. -errno. */
ssize_t cli_sampler_stop(struct cli_sampler *sampler, struct cli_sample **ret);

struct cli_page {
	char **argv;
	int status;       /* of waitpid() */
	uint64_t wall_ns;
	const struct cli_sample *samples;
	size_t count;
	struct cow_stats own;     /* of the program's first process */
	struct cow_stats others;  /* of all others, added up */
	struct cow_stats sum;     /* of both */
	uint64_t records;         /* 0: no process left one */
};

extern const char cli_profile_help[];

/* Prints the page. */
void cli_page_print(FILE *out, struct cli_page *page);

#endif
