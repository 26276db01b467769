/* SPDX-License-Identifier: MIT */
/*
 * cowshed profile: what a program did with its memory, as one page of HTML
 *
 * `run.c` starts the program, as for a report. Meanwhile a process of ours
 * (sample.c) looks at the program and its descendants, again and again (look.c).
 * The Python package counts clones by call site in a file that all processes map
 * (sites.c). The looks, the sites and the records that the processes leave become
 * the page (page.c, picture.c, words.c).
 */
#ifndef CLI_PROFILE_H
#define CLI_PROFILE_H

#include "cli/cli.h"

/* All processes of the program, at one moment. */
struct cli_sample {
	uint64_t ns;        /* since the start */
	uint64_t all;       /* bytes of memory: the next three */
	uint64_t alone;     /* pages that one process maps */
	uint64_t shared;    /* pages that several processes map, each once */
	uint64_t unmapped;  /* in memfds, where no process maps it */
	uint64_t copied;    /* bytes, so far: by the library, and pages that forks counted */
	uint64_t forks;     /* so far */
	uint64_t fork_ns;   /* the longest pause of those since the last look */
	uint64_t processes;
	uint64_t walk_ns;   /* the longest look at the page tables of one process */
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

/* ---- A look (look.c) -------------------------------------------------------- */

/* A process of the program, as the last look saw it. A new process may get the number of
 * one that ended, but not the time of its start. */
struct cli_known {
	pid_t pid;
	uint64_t started;
	uint64_t forks, fork_ns_max, copied, pages;
};

/* The memfds that were seen in this look: their memory counts once. */
struct cli_seen {
	dev_t device;
	ino_t file;
};

struct cli_look {
	struct cli_sample sum;
	uint64_t memfds, mapped; /* bytes in memfds, and those that are mapped */
	struct cli_seen *seen;
	size_t count, room;
	bool incomplete; /* there was no memory to look at everything */
};

/* Adds the memory of known->pid, and what it did since `known` was as it is. */
void cli_look_at(struct cli_look *look, struct cli_known *known);

/* ---- Call sites (sites.c) ----------------------------------------------------- */

enum { CLI_SITES = 4096, CLI_SITE_TEXT = 208 };

/*
 * A slot of the file. python/_cowshed/sites.c has the same struct. All processes of the
 * program map the file, so what a process counted is there after any end of it.
 */
struct cli_site {
	uint32_t state; /* CLI_SITE_READY: the text is there */
	uint32_t unused;
	uint64_t calls;
	uint64_t shared; /* bytes that were not copied */
	uint64_t copied; /* bytes that were copied by the call itself */
	uint64_t ns;     /* of all calls */
	char text[CLI_SITE_TEXT]; /* "file:line function" */
};

enum { CLI_SITE_READY = 2 };

/* Makes the file, and puts its name into the environment. Returns a descriptor, or -errno. */
int cli_sites_make(const char *path);

/* Reads it: the sites that copied most are the first. Returns their number, and the caller
 * frees *ret. -errno. */
ssize_t cli_sites_read(int fd, struct cli_site **ret);

/* ---- The page (page.c) ---------------------------------------------------------- */

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
	const struct cli_site *sites;
	size_t sites_count;
};

extern const char cli_profile_help[];

/* Prints the page. */
void cli_page_print(FILE *out, struct cli_page *page);

/* Prints text of the program's, which must not become markup. */
void cli_page_text(FILE *out, const char *text);

/* The largest member of all samples: offsetof() in struct cli_sample. */
uint64_t cli_page_most(const struct cli_page *page, size_t offset);

#define CLI_MOST(page, member) \
	cli_page_most(page, offsetof(struct cli_sample, member))

/* The pictures (picture.c). There are at least two samples. */
void cli_page_memory(FILE *out, const struct cli_page *page);
void cli_page_forks(FILE *out, const struct cli_page *page);

/* What to try next, call sites, and what was done the slow way (words.c). */
void cli_page_advice(FILE *out, const struct cli_page *page);
void cli_page_sites(FILE *out, const struct cli_page *page);
void cli_page_fallbacks(FILE *out, const struct cli_page *page);

#endif
