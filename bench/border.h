/* SPDX-License-Identifier: MIT */
/*
 * What bench/plain_border.c and bench/plain_border_call.c share: memory, privileges, workers
 *
 * These plain programs know nothing of cowshed and run with or without the shim. TOTAL bytes
 * (-t, 2G) lie in blocks of BLOCK (-b, 16M); -H advises huge pages. To drop is to become the
 * user and group 65534 without other groups. A process that may not do that sets no_new_privs
 * in its place, and the program prints drop=no_new_privs. A worker lives until its parent sends
 * SIGTERM. Then it checks its blocks: they must have the bytes of the fork. If the parent dies
 * first, the kernel kills the worker. Memory is that of all processes together.
 */
#ifndef BENCH_BORDER_H
#define BENCH_BORDER_H

#include "bench/meter.h"

#include <grp.h>
#include <signal.h>
#include <sys/prctl.h>

#define NOBODY 65534

static char **blocks;
static size_t block_bytes = 16 * MIB, total = 2 * GIB, block_count;
static int times = 3; /* -n */
static double seconds = 10; /* -s */
static bool huge;

#define BORDER_OPTIONS \
	{ 't', .size = &total }, { 'b', .size = &block_bytes }, { 'n', .count = &times }, \
	{ 's', .number = &seconds }, { 'H', .flag = &huge }

/* ---- Memory -------------------------------------------------------------- */

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
	return file_number(m.parent, m.v2 ? "memory.current" : "memory.usage_in_bytes") / MIB;
}

static inline double charge_later(void)
{
	sleep_ms((long)(seconds * 1000));
	return charge_mib();
}

static inline void fill(void)
{
	blocks = blocks_of(total, block_bytes, huge, 1, &block_count);
}

/* The first byte of a page of all blocks. */
static inline char *page_at(size_t page)
{
	size_t at = page * PAGE % (block_count * block_bytes);

	return &blocks[at / block_bytes][at % block_bytes];
}

/* Whether a byte in each 16 pages has the value, or another one in the first `part` of each
 * block; freed blocks are left out. */
static inline bool blocks_are(int value, size_t part, int in_part)
{
	for (size_t i = 0; i < block_count; i++)
		for (size_t k = 0; blocks[i] && k < block_bytes; k += 16 * PAGE)
			if (blocks[i][k] != (char)(k < part ? in_part : value))
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
	_exit(blocks_are(value, 0, 0) ? 0 : 121);
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
	double us;

	if (!ready[1])
		pipe_open(ready);
	sigterm_block();
	*ret = forked(&us);
	if (*ret == 0) {
		if (drops)
			drop();
		if (block_count && *page_at(1) != (char)value)
			_exit(121);
		byte_out(ready[1]);
		worker_stay(value);
	}
	byte_in(ready[0]);
	return us;
}

static inline void worker_end(pid_t pid)
{
	kill(pid, SIGTERM);
	reap(pid);
}

#endif
