/* SPDX-License-Identifier: MIT */
/*
 * What the programs bench/plain_border_*.c share: options, blocks, workers
 *
 * These programs fork children that give up privileges, as servers do. They are plain
 * programs: they know nothing of cowshed and run with or without the shim. All take the
 * same options, and use some of them:
 *
 *      -b BLOCK -t TOTAL   TOTAL bytes (2G) in blocks of BLOCK (16M); -H: advise huge pages
 *      -m MODE -n TIMES -s SECONDS -p PERCENT
 *      -c -d -k            what the program says
 *
 * drop() becomes the user and group 65534 without other groups. A process that may not do
 * that sets no_new_privs in its place, and the program prints drop=no_new_privs.
 * A worker lives until its parent sends SIGTERM. Then it checks its blocks: they must have
 * the bytes of the fork. If the parent dies first, the kernel kills the worker.
 */
#ifndef BENCH_BORDER_H
#define BENCH_BORDER_H

#include "bench/meter.h"

#include <grp.h>
#include <signal.h>
#include <sys/prctl.h>

#define NOBODY 65534

/* ---- Options ------------------------------------------------------------- */

static char **blocks;
static size_t block_bytes = 16 * MIB, total = 2 * GIB, block_count;
static bool huge, given[128]; /* by the letter of an option */
static const char *mode = "";
static double seconds = 10, percent = 100;

static double charge_mib(void);

/* Reads the options, and notes what memory was used before; *times is -n. */
static inline void options(int argc, char **argv, int *times)
{
	int c;

	(void)charge_mib();
	while ((c = getopt(argc, argv, "b:t:m:n:s:p:cdkH")) != -1) {
		switch (c) {
		case 'b': block_bytes = size_parse(optarg); break;
		case 't': total = size_parse(optarg); break;
		case 'm': mode = optarg; break;
		case 'n': *times = atoi(optarg); break;
		case 's': seconds = atof(optarg); break;
		case 'p': percent = atof(optarg); break;
		case 'H': huge = true; break;
		case '?': die("usage: see the heads of bench/border.h and bench/%s.c",
		              program_invocation_short_name);
		}
		given[c] = true;
	}
}

/* ---- Blocks -------------------------------------------------------------- */

static inline void blocks_fill(int value)
{
	blocks = blocks_of(total, block_bytes, huge, value, &block_count);
}

/* The first byte of a page of all blocks. */
static inline char *page_at(size_t page)
{
	size_t at = page * PAGE % (block_count * block_bytes);

	return &blocks[at / block_bytes][at % block_bytes];
}

/* Whether a byte in each 16 pages has the value; freed blocks are left out. */
static inline bool blocks_are(int value)
{
	for (size_t i = 0; i < block_count; i++)
		for (size_t k = 0; blocks[i] && k < block_bytes; k += 16 * PAGE)
			if (blocks[i][k] != (char)value)
				return false;
	return true;
}

/* ---- Processes ----------------------------------------------------------- */

static inline bool may_drop(void)
{
	return geteuid() == 0;
}

static inline void drop(void)
{
	if (may_drop() ? setgroups(0, NULL) || setgid(NOBODY) || setuid(NOBODY) :
	                 prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
		_exit(120);
}

/* Ends a line of figures. */
static inline void print_drop(void)
{
	printf(" drop=%s\n", may_drop() ? "setuid" : "no_new_privs");
	fflush(stdout);
}

/* Waits for SIGTERM, which is blocked, and checks all blocks then. */
__attribute__((noreturn)) static inline void worker_stay(int value)
{
	sigset_t set;
	int got;

	prctl(PR_SET_PDEATHSIG, SIGKILL); /* a change of the user clears this */
	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigwait(&set, &got);
	_exit(blocks_are(value) ? 0 : 121);
}

static inline void sigterm_block(void)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigprocmask(SIG_BLOCK, &set, NULL);
}

/* Forks a worker and waits until it has dropped, if it shall. Returns the pause of fork()
 * in microseconds. The worker reads a byte before it answers. */
static inline double worker_start(pid_t *ret, bool drops, int value)
{
	static int ready[2];
	double t0, us;
	char byte;

	if (!ready[1] && pipe(ready))
		die("pipe");
	sigterm_block();
	t0 = now_ns();
	*ret = fork();
	us = us_since(t0);
	if (*ret < 0)
		die("fork: %s", strerror(errno));
	if (*ret == 0) {
		if (drops)
			drop();
		if (block_count && *page_at(1) != (char)value)
			_exit(121);
		if (write(ready[1], "", 1) != 1)
			_exit(1);
		worker_stay(value);
	}
	if (read(ready[0], &byte, 1) != 1)
		die("a worker ended early");
	return us;
}

/* The pause of a fork whose child exits at once, in microseconds; it is reaped. */
static inline double fork_once(void)
{
	double t0 = now_ns(), us;
	pid_t pid = fork();

	if (pid == 0)
		_exit(0);
	us = us_since(t0);
	if (pid < 0)
		die("fork: %s", strerror(errno));
	reap(pid);
	return us;
}

static inline void workers_start(pid_t *pids, int n, bool drops)
{
	for (int i = 0; i < n; i++)
		worker_start(&pids[i], drops, 1);
}

static inline void worker_end(pid_t pid)
{
	kill(pid, SIGTERM);
	reap(pid);
}

static inline void workers_end(const pid_t *pids, int n)
{
	for (int i = 0; i < n; i++)
		worker_end(pids[i]);
}

/* ---- Memory of all processes --------------------------------------------- */

/* plain_measure puts a program into a cgroup of its own, which it names so. */
static double charge_mib(void)
{
	static struct meter m;
	static bool known, grouped;
	static double before;

	if (!known) {
		known = true;
		grouped = meter_parent(&m) && strstr(m.parent, "/cowshed-bench.");
		before = system_used();
	}
	if (!grouped)
		return (system_used() - before) / MIB;
	return file_number(m.parent, m.v2 ? "memory.current" :
	                                    "memory.usage_in_bytes") / MIB;
}

#endif
