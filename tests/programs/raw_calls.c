/* SPDX-License-Identifier: MIT */
/*
 * Memory calls by syscall()
 *
 * Runtimes make their own system calls, and may make them on malloc's memory. These calls must
 * do the same as the functions of libc, before a fork and after it.
 */
#include "pages.h"

#include <linux/mempolicy.h>
#include <sys/syscall.h>
#include <sys/uio.h>

static const size_t bytes = 4 * MIB;
static unsigned char *p, *elsewhere;

static void looks(void *arg)
{
	(void)arg;
	check(holds(p, MIB, 2) && holds(p + 3 * MIB, MIB, 5));
}

static void make(int forked)
{
	p = get_pages(bytes);
	for (size_t i = 0; i < 4; i++)
		fill(p + i * MIB, MIB, 2 + i);
	if (forked)
		in_child(looks, NULL);
}

/* Moved memory stays private, and the memory that was at its new place is gone. */
static void writes_elsewhere(void *arg)
{
	looks(arg);
	check(holds(elsewhere, MIB, 3));
	fill(elsewhere, MIB, 9);
}

static void mapped(int forked)
{
	make(forked);
	elsewhere = (void *)syscall(SYS_mmap, NULL, MIB, PROT_READ | PROT_WRITE,
	                            MAP_PRIVATE | MAP_ANONYMOUS, -1, 0L);
	check(elsewhere != MAP_FAILED);
	check(syscall(SYS_mremap, p + MIB, MIB, MIB, MREMAP_MAYMOVE | MREMAP_FIXED,
	              elsewhere) == (long)elsewhere);
	check(!readable(p + MIB));
	in_child(writes_elsewhere, NULL);
	check(holds(elsewhere, MIB, 3));
	check(syscall(SYS_munmap, p + 2 * MIB, PAGE) == 0);
	in_child(looks, NULL);
	check(!readable(p + 2 * MIB) && readable(p + 2 * MIB + PAGE));
	check(syscall(SYS_mmap, p + MIB, MIB + PAGE, PROT_READ | PROT_WRITE,
	              MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1,
	              0L) == (long)(p + MIB));
	in_child(looks, NULL);
	check(all(p + MIB, MIB + PAGE, 0));
	check(syscall(SYS_munmap, elsewhere, MIB) == 0);
	looks(NULL);
	free(p);
}

/* A mapping that replaces some of the pages stays when a fork remaps the others. */
static void replaced(int forked)
{
	make(forked);
	check(syscall(SYS_mmap, p + MIB, MIB, PROT_READ | PROT_WRITE,
	              MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1,
	              0L) == (long)(p + MIB));
	in_child(looks, NULL);
	check(all(p + MIB, MIB, 0) && holds(p + 2 * MIB, MIB, 4));
	looks(NULL);
	free(p);
}

static void cannot_write(void *arg)
{
	looks(arg);
	check(readable(p + MIB) && !writable(p + MIB));
	check(readable(p + 2 * MIB) && !writable(p + 2 * MIB));
}

static void protected(int forked)
{
	make(forked);
	check(syscall(SYS_mprotect, p + MIB, MIB, PROT_READ) == 0);
	/* Key -1: as mprotect(), also where there are no keys. */
	check(syscall(SYS_pkey_mprotect, p + 2 * MIB, MIB, PROT_READ, -1) == 0);
	in_child(cannot_write, NULL);
	cannot_write(NULL);
	check(syscall(SYS_mprotect, p, bytes, PROT_READ | PROT_WRITE) == 0);
	check(writable(p + MIB) && holds(p + MIB, MIB, 3));
	check(syscall(SYS_madvise, p + MIB, MIB, MADV_DONTNEED) == 0);
	check(all(p + MIB, MIB, 0) && holds(p + 2 * MIB, MIB, 4));
	looks(NULL);
	free(p);
}

static void is_locked(int yes)
{
	check((madvise(p + MIB, PAGE, MADV_DONTNEED) < 0) == yes);
	check(all(p + MIB, PAGE, 0) == !yes);
	fill(p + MIB, MIB, 3);
}

/* Locked memory can't be given back; that shows that it is locked. */
static void locked(int forked)
{
	make(forked);
	if (syscall(SYS_mlock, p + MIB, MIB) == 0) {
		is_locked(1);
		check(syscall(SYS_munlock, p + MIB, MIB) == 0);
		is_locked(0);
		check(syscall(SYS_mlock2, p + MIB, MIB, 1 /* MLOCK_ONFAULT */) == 0);
		is_locked(1);
		check(syscall(SYS_munlockall) == 0);
		is_locked(0);
		check(syscall(SYS_mlockall, 8 /* none */) < 0 && errno == EINVAL);
	}
	looks(NULL);
	free(p);
}

/* A pipe has pages of the block. They keep their bytes. */
static void spliced(int forked)
{
	char got[PAGE];
	struct iovec part;
	int pipe_[2];

	make(forked);
	/* Before the pipe's pages are the block's alone: private memory has no file's pages. */
	check(syscall(SYS_remap_file_pages, p, PAGE, 0, 1, 0) < 0 && errno == EINVAL);
	looks(NULL);
	part = (struct iovec){ p, PAGE };
	check(pipe(pipe_) == 0);
	check(syscall(SYS_vmsplice, pipe_[1], &part, 1L, 0) == (long)PAGE);
	in_child(looks, NULL);
	check(read(pipe_[0], got, PAGE) == (long)PAGE);
	check(memcmp(got, p, PAGE) == 0);
	looks(NULL);
	close(pipe_[0]);
	close(pipe_[1]);
	free(p);
}

/* A policy places the pages of a range, or of a thread. Some containers deny it. */
static void placed(int forked)
{
	unsigned long node = 1;

	make(forked);
	(void)!syscall(SYS_mbind, p, 2 * MIB, MPOL_PREFERRED, &node, 64L, 0);
	looks(NULL);
	in_child(looks, NULL);
	(void)!syscall(SYS_set_mempolicy, MPOL_BIND, &node, 64L);
	fill(p + MIB, 2 * MIB, 7);
	in_child(looks, NULL);
	check(holds(p + MIB, 2 * MIB, 7));
	free(p);
	make(1);
	looks(NULL);
	(void)!syscall(SYS_set_mempolicy, MPOL_DEFAULT, NULL, 0L);
	free(p);
}

int main(void)
{
	pages_init();
	for (int forked = 0; forked < 2; forked++) {
		mapped(forked);
		replaced(forked);
		protected(forked);
		locked(forked);
		spliced(forked);
		placed(forked);
	}
	puts("raw_calls: done");
	return 0;
}
