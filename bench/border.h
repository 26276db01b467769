/* SPDX-License-Identifier: MIT */
/*
 * What the programs bench/plain_border_*.c share: blocks, workers, what all of them use
 *
 * These programs fork children that give up privileges, as servers do. They are plain
 * programs: they know nothing of cowshed and run with or without the shim.
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
#include <sys/wait.h>

#define NOBODY 65534

/* ---- Blocks -------------------------------------------------------------- */

static char **blocks;
static size_t block_bytes = 16 * MIB, total = 2 * GIB, block_count;
static bool huge;

static inline char *block_new(size_t bytes, int value)
{
	char *p = malloc(bytes);

	if (!p)
		die("malloc of %zu bytes failed", bytes);
	if (huge) {
		uintptr_t at = ((uintptr_t)p + PAGE - 1) & -PAGE;

		madvise((void *)at, ((uintptr_t)p + bytes - at) & -PAGE, MADV_HUGEPAGE);
	}
	memset(p, value, bytes);
	return p;
}

static inline void blocks_fill(int value)
{
	block_count = block_bytes ? total / block_bytes : 0;
	blocks = calloc(block_count + 1, sizeof(*blocks));
	if (!block_count || !blocks)
		die("bad size");
	for (size_t i = 0; i < block_count; i++)
		blocks[i] = block_new(block_bytes, value);
}

static inline void blocks_rewrite(int value)
{
	for (size_t i = 0; i < block_count; i++)
		if (blocks[i])
			memset(blocks[i], value, block_bytes);
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

/* The size of each option that all programs have; false if it is another option. */
static inline bool blocks_option(int c)
{
	switch (c) {
	case 'b': block_bytes = size_parse(optarg); return true;
	case 't': total = size_parse(optarg); return true;
	case 'H': huge = true; return true;
	default: return false;
	}
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

static inline void print_drop(void)
{
	printf(" drop=%s", may_drop() ? "setuid" : "no_new_privs");
}

static inline double us_since(double t0)
{
	return (now_ns() - t0) / 1e3;
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

/* Forks a worker and waits until it has dropped, if it shall. Returns the pause of fork()
 * in microseconds. The worker reads a byte before it answers. */
static inline double worker_start(pid_t *ret, bool drops, int value)
{
	static int ready[2];
	sigset_t set;
	double t0, us;
	char byte;

	if (!ready[1] && pipe(ready))
		die("pipe");
	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigprocmask(SIG_BLOCK, &set, NULL);
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

static inline void child_reap(pid_t pid)
{
	int status;

	if (waitpid(pid, &status, 0) != pid || status)
		die("a child saw wrong bytes, or crashed (status %x)", status);
}

static inline void worker_end(pid_t pid)
{
	kill(pid, SIGTERM);
	child_reap(pid);
}

/* ---- Memory of all processes --------------------------------------------- */

/* plain_measure puts a program into a cgroup of its own, which it names so. */
static inline double charge_mib(void)
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
