/* SPDX-License-Identifier: MIT */
/*
 * A block of malloc against anonymous memory: advice, protections, locks, NUMA
 * policies, userfaultfd, and other processes that look into it
 */
#include "anonymous.h"

#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#ifndef MADV_DONTNEED_LOCKED
#define MADV_DONTNEED_LOCKED 24
#endif
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif
#ifndef MADV_GUARD_INSTALL
#define MADV_GUARD_INSTALL 102
#define MADV_GUARD_REMOVE 103
#endif

static void advise(int advice)
{
	note("madvise %d: ", advice);
	CALL(madvise(page(FROM), RUN * PAGE, advice));
	CALL(madvise(page(FROM) + 1, PAGE, advice));
	CALL(madvise(page(FROM), 0, advice));
	CALL(madvise(page(FROM), (size_t)-1, advice));
}

/* Each page may be as it was, or zero. */
static void freed(int advice)
{
	unsigned char *q;

	CALL(madvise(page(FROM), RUN * PAGE, advice));
	for (q = page(FROM); q < page(TO); q += PAGE)
		fill(q, PAGE, (size_t)(q - p) / PAGE + 1);
}

static void locked_and_advised(int advice)
{
	CALL(mlock(page(FROM), RUN / 2 * PAGE));
	flags_of(page(FROM));
	flags_of(page(TO - 1));
	CALL(madvise(page(FROM), RUN / 2 * PAGE, advice));
	CALL(munlock(page(FROM), RUN / 2 * PAGE));
	flags_of(page(FROM));
}

static void lasting(int advice)
{
	CALL(madvise(page(FROM), RUN * PAGE, advice));
	in_child(flags_after_a_fork, NULL);
	flags_of(page(FROM));
	flags_of(page(TO));
}

static void protect(int prot)
{
	CALL(mprotect(page(FROM), RUN * PAGE, prot));
	look("protected");
	CALL(mprotect(page(FROM) + 5, PAGE, prot));
	CALL(mprotect(page(FROM), 1, prot));
	CALL(mprotect(page(FROM), 0, prot));
	CALL(mprotect(page(FROM + RUN / 2), PAGE, PROT_READ | PROT_WRITE));
}

static void protect_and_advise(int advice)
{
	CALL(mprotect(page(FROM), RUN / 2 * PAGE, PROT_NONE));
	CALL(mprotect(page(FROM + RUN / 2), RUN / 2 * PAGE, PROT_READ));
	CALL(madvise(page(FROM), RUN * PAGE, advice));
	look("advised");
	CALL(mprotect(page(FROM), RUN * PAGE, PROT_READ | PROT_WRITE));
}

static void pkeys(int prot)
{
	int key = pkey_alloc(0, 0);

	CALL(pkey_mprotect(page(FROM), PAGE, prot, -1));
	CALL(pkey_mprotect(page(FROM + 2), PAGE, prot, 14));
	if (key >= 0) {
		CALL(pkey_mprotect(page(FROM + RUN / 2), PAGE, prot, key));
		look("with a key");
		CALL(pkey_mprotect(page(FROM + RUN / 2), PAGE,
		                   PROT_READ | PROT_WRITE, 0));
		pkey_free(key);
	}
}

static void lock(int flags)
{
	CALL(mlock2(page(FROM) + 7, PAGE, (unsigned)flags));
	flags_of(page(FROM));
	flags_of(page(FROM + 1));
	flags_of(page(FROM + 2));
	in_child(flags_after_a_fork, NULL);
	flags_of(page(FROM));
	CALL(munlock(page(FROM) + 7, PAGE));
	flags_of(page(FROM));
}

static void lock_protected(int value)
{
	(void)value;
	CALL(mprotect(page(FROM), PAGE, PROT_NONE));
	CALL(mlock(page(FROM), 2 * PAGE));
	CALL(munlock(page(FROM), 2 * PAGE));
	CALL(mlock(page(FROM), (size_t)-1 - 4 * PAGE));
	CALL(munlock(page(FROM), (size_t)-1 - 4 * PAGE));
}

static void resident(int value)
{
	unsigned char pages[RUN];
	int n = 0, i;

	(void)value;
	fill_pages(1, 1);
	CALL(mincore(page(FROM), RUN * PAGE, pages));
	for (i = 0; i < RUN; i++)
		n += pages[i] & 1;
	note("%d in memory\n", n);
	CALL(mincore(page(FROM) + 1, PAGE, pages));
	CALL(mincore(page(FROM), PAGE, NULL));
}

static void synchronize(int flags)
{
	CALL(msync(page(FROM), RUN * PAGE, flags));
	CALL(msync(page(FROM) + 1, RUN * PAGE, flags));
	CALL(mlock(page(FROM), PAGE));
	CALL(msync(page(FROM), RUN * PAGE, flags));
	CALL(munlock(page(FROM), PAGE));
}

static void policy(int mode)
{
	unsigned long nodes = 1, got[16] = { 0 };
	int what = -1, status = -1, node = 0;
	void *at = page(FROM);

	CALL(syscall(SYS_mbind, page(FROM), RUN * PAGE, mode,
	             mode ? &nodes : NULL, 64, 0));
	CALL(syscall(SYS_get_mempolicy, &what, got, 1024, page(FROM), 2));
	note("policy %d of %lx\n", what, got[0]);
	CALL(syscall(SYS_get_mempolicy, &what, got, 1024, page(TO), 2));
	note("policy %d of %lx\n", what, got[0]);
	fill(page(FROM), PAGE, FROM + 1);
	CALL(syscall(SYS_move_pages, 0, 1, &at, NULL, &status, 0));
	note("on node %d\n", status);
	CALL(syscall(SYS_move_pages, 0, 1, &at, &node, &status, 2));
	note("on node %d\n", status);
}

static void remapped_file_pages(int value)
{
	(void)value;
	CALL(remap_file_pages(page(FROM), PAGE, 0, 1, 0));
}

/* A fault that a handler answers: here the program itself, by asking. */
static void userfault(int mode)
{
	struct uffdio_api api = { .api = UFFD_API };
	struct uffdio_register reg = {
		.range = { (uintptr_t)page(FROM), RUN * PAGE },
		.mode = (uint64_t)mode
	};
	struct uffdio_zeropage zero = {
		.range = { (uintptr_t)page(FROM), PAGE }
	};
	struct uffdio_writeprotect protect = {
		.range = { (uintptr_t)page(FROM + 1), PAGE },
		.mode = UFFDIO_WRITEPROTECT_MODE_WP
	};
	int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | 1);
	struct uffd_msg message;

	if (fd < 0)
		return;
	check(ioctl(fd, UFFDIO_API, &api) == 0);
	CALL(ioctl(fd, UFFDIO_REGISTER, (void *)8));
	CALL(ioctl(fd, UFFDIO_REGISTER, &reg));
	note("may %llx\n", (unsigned long long)reg.ioctls);
	CALL(madvise(page(FROM), 2 * PAGE, MADV_DONTNEED));
	if (mode == UFFDIO_REGISTER_MODE_MISSING) {
		/* User mode alone: the kernel's own look gets EFAULT. */
		note("there: %d\n", readable(page(FROM)));
		CALL(ioctl(fd, UFFDIO_ZEROPAGE, &zero));
		note("there: %d\n", readable(page(FROM)));
		note("there: %d\n", readable(page(FROM + 1)));
		/* The same over a fork. */
		in_child(flags_after_a_fork, NULL);
		note("there: %d\n", readable(page(FROM + 1)));
	} else {
		fill(page(FROM + 1), PAGE, FROM + 2);
		CALL(ioctl(fd, UFFDIO_WRITEPROTECT, &protect));
		note("may write: %d\n", writable(page(FROM + 1)));
		in_child(flags_after_a_fork, NULL);
		note("may write: %d\n", writable(page(FROM + 1)));
	}
	CALL(read(fd, &message, sizeof(message)));
	close(fd);
}

static void by_vm_calls(pid_t parent, unsigned char *mine)
{
	struct iovec here = { mine, PAGE }, there = { page(FROM), PAGE };

	errno = 0;
	result("readv", process_vm_readv(parent, &here, 1, &there, 1, 0));
	look_at(mine, FROM);
	fill(mine, PAGE, FROM + 2001);
	result("writev", process_vm_writev(parent, &here, 1, &there, 1, 0));
	there.iov_base = page(FROM + 3); /* a guard */
	result("readv", process_vm_readv(parent, &here, 1, &there, 1, 0));
	result("writev", process_vm_writev(parent, &here, 1, &there, 1, 0));
}

static void by_mem_file(pid_t parent, unsigned char *mine)
{
	char path[64];
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/mem", parent);
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0)
		return;
	result("pread", pread(fd, mine, PAGE, (off_t)(uintptr_t)page(FROM + 1)));
	look_at(mine, FROM + 1);
	fill(mine, PAGE, FROM + 2002);
	result("pwrite", pwrite(fd, mine, PAGE, (off_t)(uintptr_t)page(FROM + 1)));
	/* Past the guard, as a debugger may. */
	result("pread", pread(fd, mine, PAGE, (off_t)(uintptr_t)page(FROM + 3)));
	look_at(mine, FROM + 3);
	fill(mine, PAGE, FROM + 2004);
	result("pwrite", pwrite(fd, mine, PAGE, (off_t)(uintptr_t)page(FROM + 3)));
	/* Past a read-only page. */
	fill(mine, PAGE, FROM + 2005);
	result("pwrite", pwrite(fd, mine, PAGE, (off_t)(uintptr_t)page(FROM + 4)));
	close(fd);
}

static void by_ptrace(pid_t parent)
{
	int status;

	if (ptrace(PTRACE_ATTACH, parent, NULL, NULL) != 0)
		return;
	check(waitpid(parent, &status, __WALL) == parent);
	errno = 0;
	note("peek %lx %d\n",
	     (unsigned long)ptrace(PTRACE_PEEKDATA, parent, page(FROM + 2), NULL), errno);
	result("poke", ptrace(PTRACE_POKEDATA, parent, page(FROM + 2), (void *)0x1234567));
	result("detach", ptrace(PTRACE_DETACH, parent, NULL, NULL));
}

static void from_outside(void *arg)
{
	unsigned char mine[PAGE];
	pid_t parent = getppid();

	(void)arg;
	by_vm_calls(parent, mine);
	by_mem_file(parent, mine);
	by_ptrace(parent);
}

static void meddled_with(int value)
{
	(void)value;
	CALL(mprotect(page(FROM + 3), PAGE, PROT_NONE));
	CALL(mprotect(page(FROM + 4), PAGE, PROT_READ));
	in_child(from_outside, NULL);
	note("poked %x\n", *(unsigned *)page(FROM + 2));
	CALL(mprotect(page(FROM + 3), 2 * PAGE, PROT_READ | PROT_WRITE));
}

/* read() and write() stop at pages that may not be touched. */
static void partial_io(int prot)
{
	int fd = memfd_create("anonymous", MFD_CLOEXEC);

	check(fd >= 0 && ftruncate(fd, 8 * PAGE) == 0);
	CALL(mprotect(page(FROM + 2), PAGE, prot));
	CALL(pwrite(fd, page(FROM), 4 * PAGE, 0));
	CALL(pwrite(fd, page(FROM + 2), PAGE, 0));
	CALL(pread(fd, page(FROM), 4 * PAGE, 0));
	CALL(pread(fd, page(FROM + 2), PAGE, 0));
	CALL(mprotect(page(FROM + 2), PAGE, PROT_READ | PROT_WRITE));
	close(fd);
}

/* The system calls themselves, without the names of libc. */
static void raw(int advice)
{
	CALL(syscall(SYS_madvise, page(FROM), PAGE, advice));
	if (advice == MADV_FREE)
		fill(page(FROM), PAGE, FROM + 1);
	CALL(syscall(SYS_mprotect, page(FROM + 4), PAGE, PROT_NONE));
	CALL(syscall(SYS_munmap, page(FROM + 6), PAGE));
}

static void advised_from_outside(int advice)
{
	int fd = (int)syscall(SYS_pidfd_open, getpid(), 0);
	struct iovec there[2] = { { page(FROM), PAGE },
		                  { page(FROM + 2), PAGE } };

	if (fd < 0)
		return;
	CALL(process_madvise(fd, there, 2, advice, 0));
	close(fd);
}

static const struct call calls[] = {
	WITH(advise, MADV_NORMAL),
	WITH(advise, MADV_RANDOM),
	WITH(advise, MADV_SEQUENTIAL),
	WITH(advise, MADV_WILLNEED),
	WITH(advise, MADV_DONTNEED),
	WITH(advise, 5),
	WITH(freed, MADV_FREE),
	WITH(advise, MADV_REMOVE),
	WITH(lasting, MADV_DONTFORK),
	WITH(lasting, MADV_DOFORK),
	WITH(advise, MADV_MERGEABLE),
	WITH(advise, MADV_UNMERGEABLE),
	WITH(advise, MADV_HUGEPAGE),
	WITH(advise, MADV_NOHUGEPAGE),
	WITH(lasting, MADV_DONTDUMP),
	WITH(lasting, MADV_DODUMP),
	WITH(lasting, MADV_WIPEONFORK),
	WITH(lasting, MADV_KEEPONFORK),
	WITH(advise, MADV_COLD),
	WITH(advise, MADV_PAGEOUT),
	WITH(advise, MADV_POPULATE_READ),
	WITH(advise, MADV_POPULATE_WRITE),
	WITH(advise, MADV_DONTNEED_LOCKED),
	WITH(advise, 26),
	WITH(advise, 104),
	WITH(advise, -1),
	WITH(advise, MADV_GUARD_INSTALL),
	WITH(advise, MADV_GUARD_REMOVE),
	WITH(locked_and_advised, MADV_DONTNEED),
	WITH(locked_and_advised, MADV_DONTNEED_LOCKED),
	WITH(locked_and_advised, MADV_FREE),
	WITH(locked_and_advised, MADV_COLD),
	WITH(locked_and_advised, MADV_REMOVE),
	WITH(locked_and_advised, MADV_GUARD_INSTALL),
	WITH(protect, PROT_NONE),
	WITH(protect, PROT_READ),
	WITH(protect, PROT_WRITE),
	WITH(protect, PROT_READ | PROT_EXEC),
	WITH(protect, PROT_READ | PROT_WRITE | PROT_EXEC),
	WITH(protect, 8),
	WITH(protect, 0x40),
	WITH(protect, PROT_GROWSDOWN),
	WITH(protect, PROT_GROWSUP | PROT_GROWSDOWN),
	WITH(protect_and_advise, MADV_DONTNEED),
	WITH(protect_and_advise, MADV_POPULATE_READ),
	WITH(protect_and_advise, MADV_POPULATE_WRITE),
	WITH(protect_and_advise, MADV_GUARD_INSTALL),
	WITH(pkeys, PROT_NONE),
	WITH(pkeys, PROT_READ),
	WITH(lock, 0),
	WITH(lock, 1),
	WITH(lock, 2),
	WITH(lock, -1),
	WITH(lock_protected, 0),
	WITH(resident, 0),
	WITH(synchronize, MS_SYNC),
	WITH(synchronize, MS_ASYNC),
	WITH(synchronize, MS_INVALIDATE),
	WITH(synchronize, MS_SYNC | MS_ASYNC),
	WITH(policy, 0),
	WITH(policy, 1),
	WITH(policy, 2),
	WITH(policy, 3),
	WITH(policy, 77),
	WITH(remapped_file_pages, 0),
	WITH(userfault, UFFDIO_REGISTER_MODE_MISSING),
	WITH(userfault, UFFDIO_REGISTER_MODE_WP),
	WITH(meddled_with, 0),
	WITH(partial_io, PROT_NONE),
	WITH(partial_io, PROT_READ),
	WITH(raw, MADV_DONTNEED),
	WITH(raw, MADV_FREE),
	WITH(raw, MADV_WIPEONFORK),
	WITH(advised_from_outside, MADV_COLD),
	WITH(advised_from_outside, MADV_DONTNEED),
	WITH(advised_from_outside, MADV_GUARD_INSTALL),
	WITH(advised_from_outside, 12345),
};

int main(int argc, char **argv)
{
	return compare(calls, COUNT(calls), argc, argv);
}
