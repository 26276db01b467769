/* SPDX-License-Identifier: MIT */
/*
 * mlockall(), for present and for future memory, also under a limit on locked memory
 *
 * All mappings become resident and count against the limit, touched or not, unless the user
 * is root. A small program is below the limit that the kernel gives to all users, and must
 * stay below it. Freed memory must not be locked.
 */
#include "program.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#define BLOCKS 10

/* Resident memory in MiB: `what` of /proc/self/status. */
static size_t resident(const char *what)
{
	FILE *f = fopen("/proc/self/status", "r");
	char line[128];
	size_t kib = 0;

	while (f && fgets(line, sizeof(line), f))
		if (strncmp(line, what, strlen(what)) == 0)
			kib = strtoul(line + strlen(what), NULL, 10);
	if (f)
		fclose(f);
	return kib / 1024;
}

static void is_small(size_t most)
{
	size_t mib = resident("VmRSS:");

	if (mib > most) {
		dprintf(2, "%zu MiB are resident, %zu of them shared\n", mib,
		        resident("RssShmem:"));
		_exit(1);
	}
}

/* As root: without one. */
static void lift_limit(void)
{
	struct rlimit none = { RLIM_INFINITY, RLIM_INFINITY };

	(void)!setrlimit(RLIMIT_MEMLOCK, &none);
}

/* Free memory stays free. A part is free for so long that its pages were given back. */
static void what_is_there(void *arg)
{
	unsigned char *p[BLOCKS];
	size_t i;

	(void)arg;
	lift_limit();
	for (i = 0; i < BLOCKS; i++)
		p[i] = get_filled(40 * MIB, i);
	for (i = 0; i < BLOCKS; i++)
		free(p[i]);
	free(get_filled(4 * MIB, 1));
	if (mlockall(MCL_CURRENT) < 0)
		return; /* we may not */
	is_small(60);
	for (i = 0; i < BLOCKS; i++)
		p[i] = get(8 * MIB);
	for (i = 0; i < BLOCKS; i++)
		free(p[i]);
}

/* After a fork, memory that only one process writes has no second copy. */
static void what_comes(void *arg)
{
	struct rlimit most;
	unsigned char *kept;
	pid_t child;
	int gate[2];

	(void)arg;
	lift_limit();
	if (getrlimit(RLIMIT_MEMLOCK, &most) < 0 || most.rlim_cur < 256 * MIB ||
	    mlockall(MCL_CURRENT | MCL_FUTURE) < 0)
		return;
	kept = get_filled(64 * MIB, 1);
	gate_make(gate);
	child = fork();
	check(child >= 0);
	if (child == 0) {
		gate_wait(gate);
		_exit(!holds(kept, 64 * MIB, 1));
	}
	is_small(100);
	kept[0]++;
	is_small(100);
	gate_open(gate);
	finish(child);
	kept[0]--;
	check(holds(kept, 64 * MIB, 1));
	free(kept);
}

static void nothing(void *arg)
{
	(void)arg;
}

/* Unlocked memory is not locked again when a fork maps it anew. */
static void all_unlocked(void *arg)
{
	const size_t bytes = 4 * MIB;
	unsigned char *p = aligned_alloc(PAGE, bytes);

	(void)arg;
	check(p != NULL);
	fill(p, bytes, 3);
	if (mlock(p, bytes) < 0)
		return;
	check(resident("VmLck:") == 4);
	check(munlockall() == 0);
	in_child(nothing, NULL);
	check(resident("VmLck:") == 0 && holds(p, bytes, 3));
	check(madvise(p, bytes, MADV_DONTNEED) == 0 && all(p, bytes, 0));
	check(mlock(p, bytes) == 0 && syscall(SYS_munlockall) == 0);
	check(madvise(p, bytes, MADV_DONTNEED) == 0);
	free(p);
}

int main(void)
{
	struct rlimit most = { 512 * MIB, 512 * MIB };
	unsigned char *p;

	in_child(what_is_there, NULL);
	in_child(what_comes, NULL);
	in_child(all_unlocked, NULL);
	p = get_filled(MIB, 1);
	/* As much as it may have. */
	if (setrlimit(RLIMIT_MEMLOCK, &most) < 0)
		check(getrlimit(RLIMIT_MEMLOCK, &most) == 0);
	most.rlim_cur = most.rlim_max;
	if (most.rlim_max < 8 * MIB) {
		puts("skip locked: the limit on locked memory is too low");
		return 77;
	}
	check(setrlimit(RLIMIT_MEMLOCK, &most) == 0);
	if (getuid() == 0)
		check(setuid(65534) == 0);
	free(p);
	check(mlockall(MCL_CURRENT) == 0);
	check(munlockall() == 0);
	p = get_filled(40 * MIB, 2);
	check(holds(p, 40 * MIB, 2));
	free(p);
	puts("locked: done");
	return 0;
}
