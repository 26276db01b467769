/* SPDX-License-Identifier: MIT */
/*
 * Calls that are tried under a filter that came with exec (memfd/gate.h)
 *
 *   process --clone--> lodger: a child with the process's memory. It makes the calls in turn
 *                        |  dies at one
 *                        v
 *   process --clone--> child --clone--> one that goes on behind that call
 *                        ^                    |  dies at another
 *                        +--- the next one <--+
 *
 * The filter can't be read, and it ends the process that makes a forbidden call. Most filters
 * answer with errors, so the lodger is enough, and no page table is copied. After the first death
 * a child with a copy makes others, on its own memory. Before Linux 5.16 there is no lodger, because
 * a core dump ended all processes with the same memory. The lodger forbids core files for all who
 * have this memory, so the process allows them again.
 *
 * None of them sends a signal when it ends, and wait() does not find them, so the program notices
 * nothing. The process waits in clone() (CLONE_VFORK). It reaps its children only if one of them
 * could make that call. If there can be no child, or if one of the first calls ended it, which
 * the library can't do without, there is nothing more to try: no memory is taken from the library.
 *
 * The calls have arguments with which they do nothing.
 */
#include "memfd/gate.h"
#include "memfd/probe.h"
#include "memfd/sys.h"
#include "memfd/thread.h"

#include <linux/sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#define STACK ((size_t)32 << 10)

struct try {
	short nr;
	signed char key; /* the argument that tells the call from others of that number; -1: none */
	long a, b, c, d, e;
};

#define CALL(name) { SYS_##name, -1, 0, 0, 0, 0, 0 }
#define FILE_CALL(name) { SYS_##name, -1, -1, 0, 0, 0, 0 }
#define FCNTL(command) { SYS_fcntl, 1, -1, command, 0, 0, 0 }
#define ADVICE(number) { SYS_madvise, 2, 0, 0, number, 0, 0 }
#define REMAP(flags) { SYS_mremap, 3, 0, 0, 0, flags, 0 }

enum { WAIT, DUMPABLE };
#define NEEDED 12 /* so many, the first, can't be done without */

static const struct try tries[] = {
	[WAIT] = { SYS_wait4, -1, -1, 0, WNOHANG, 0, 0 },
	/* So that the end of a child writes no core file. */
	[DUMPABLE] = { SYS_prctl, 0, PR_SET_DUMPABLE, 0, 0, 0, 0 },
	CALL(rt_sigprocmask), CALL(getpid),
	{ SYS_memfd_create, -1, 0, -1, 0, 0, 0 },
	FILE_CALL(ftruncate), FCNTL(F_DUPFD_CLOEXEC), FCNTL(F_ADD_SEALS), FCNTL(F_OFD_SETLK),
	ADVICE(MADV_DONTFORK), ADVICE(MADV_DOFORK), ADVICE(MADV_REMOVE),
	{ SYS_prctl, 0, PR_GET_DUMPABLE, 0, 0, 0, 0 },
	{ SYS_prctl, 0, COW__PR_GET_MEMORY_MERGE, 0, 0, 0, 0 },
	CALL(gettid), CALL(geteuid), CALL(sched_yield), CALL(capget),
	CALL(sched_getaffinity), CALL(sigaltstack), CALL(nanosleep),
	{ SYS_rt_sigaction, -1, 64, 0, 0, sizeof(uint64_t), 0 },
	{ SYS_tgkill, -1, -1, -1, 0, 0, 0 },
	{ SYS_rt_tgsigqueueinfo, -1, -1, -1, 0, 0, 0 },
	{ SYS_unshare, -1, CLONE_VM, 0, 0, 0, 0 },
	CALL(membarrier), /* a question: to register takes ms beside the other child */
	{ SYS_userfaultfd, -1, -1, 0, 0, 0, 0 },
	FCNTL(F_GETFL), FCNTL(F_SETFL), FCNTL(F_GET_SEALS), FCNTL(F_OFD_GETLK),
	FCNTL(F_OFD_SETLKW), FILE_CALL(fallocate), FILE_CALL(lseek), FILE_CALL(getdents64),
	FILE_CALL(fstat), FILE_CALL(newfstatat), FILE_CALL(readlinkat), FILE_CALL(ioctl),
	FILE_CALL(fstatfs), FILE_CALL(fchmod), FILE_CALL(write), FILE_CALL(pwrite64),
	FILE_CALL(fsync), FILE_CALL(fadvise64),
	ADVICE(MADV_DONTNEED), ADVICE(MADV_HUGEPAGE), ADVICE(MADV_DONTDUMP), ADVICE(MADV_DODUMP),
	ADVICE(MADV_WIPEONFORK), ADVICE(22), ADVICE(23), ADVICE(25), ADVICE(-1),
	REMAP(MREMAP_MAYMOVE), REMAP(MREMAP_MAYMOVE | MREMAP_FIXED),
	REMAP(MREMAP_MAYMOVE | MREMAP_FIXED | 4),
	CALL(mincore), CALL(mlock2), CALL(munlock), CALL(mbind), CALL(prlimit64),
	{ SYS_eventfd2, -1, 0, -1, 0, 0, 0 },
	{ SYS_socket, -1, -1, 0, 0, 0, 0 },
	{ SYS_socketpair, -1, -1, 0, 0, 0, 0 },
	FILE_CALL(connect), FILE_CALL(sendmsg), FILE_CALL(recvmsg), FILE_CALL(setsockopt),
	FILE_CALL(getsockopt),
	{ SYS_ppoll, -1, 0, -1, 0, 0, 0 },
	FILE_CALL(renameat2), FILE_CALL(unlinkat),
	CALL(process_vm_readv),
	CALL(io_uring_setup), FILE_CALL(io_uring_enter), FILE_CALL(io_uring_register),
	/* The last one: after its death no child with a copy of the memory has to be made, which is
	 * what such a filter ends the process for. */
	{ SYS_clone, 0, COW__FORKS, 0, 0, 0, 0 },
};

#define COUNT (sizeof(tries) / sizeof(tries[0]))

static bool killed[COUNT];

/* What the process has in common with its children. */
static struct shared {
	uint32_t at; /* the call that is made just now */
	bool begun;  /* the child with the process's memory makes calls */
	bool failed; /* there can be no child, or nothing is gained by one */
	bool killed[COUNT];
	char stacks[2][STACK] __attribute__((aligned(64)));
} *shared;

static void
make_call(void)
{
	const struct try *t = &tries[__atomic_load_n(&shared->at, __ATOMIC_RELAXED)];

	(void)cow__syscall(t->nr, t->a, t->b, t->c, t->d, t->e, 0);
	__atomic_fetch_add(&shared->at, 1, __ATOMIC_RELAXED);
}

static bool
is_done(void)
{
	return __atomic_load_n(&shared->at, __ATOMIC_RELAXED) >= COUNT;
}

static void
note_killed(void)
{
	if (shared->at < NEEDED && shared->at != DUMPABLE)
		shared->failed = true;
	shared->killed[shared->at] = true;
	__atomic_fetch_add(&shared->at, 1, __ATOMIC_RELAXED);
}

static void
try_main(void)
{
	while (!is_done())
		make_call();
}

static void
child_main(void)
{
	long pid;

	if (shared->at == WAIT)
		try_main();
	else if (!shared->killed[DUMPABLE]) /* not copied from a child that has died */
		(void)cow__syscall(SYS_prctl, PR_SET_DUMPABLE, 0, 0, 0, 0, 0);
	while (!is_done() && !shared->failed) {
		pid = cow__thread_clone(CLONE_VM | CLONE_VFORK, shared->stacks[1] + STACK - 64,
		                        try_main);
		shared->failed = pid < 0;
		(void)cow__syscall(SYS_wait4, pid, 0, __WALL, 0, 0, 0);
		if (!is_done() && !shared->failed)
			note_killed();
	}
}

/* The process's memory is this child's. So it may forbid core files only if that can be undone. */
static void
lodger_main(void)
{
	shared->begun = cow__syscall(SYS_prctl, PR_GET_DUMPABLE, 0, 0, 0, 0, 0) == 1 &&
	                cow__syscall(SYS_prctl, PR_SET_DUMPABLE, 1, 0, 0, 0, 0) == 0;
	if (shared->begun)
		try_main();
}

/* Returns its number, or -errno. */
static long
begin_lodger(void)
{
	long pid = cow__thread_clone(CLONE_VM | CLONE_VFORK, shared->stacks[0] + STACK - 64,
	                             lodger_main);

	if (shared->begun)
		(void)cow__syscall(SYS_prctl, PR_SET_DUMPABLE, 1, 0, 0, 0, 0);
	if (shared->begun && !is_done())
		note_killed();
	return pid;
}

/* False: the rest can't be tried. */
static bool
begin_child(void)
{
	long pid = cow__thread_clone(CLONE_VFORK, shared->stacks[0] + STACK - 64, child_main);

	if (pid < 0 || shared->at == WAIT)
		return false;
	(void)cow__syscall(SYS_wait4, pid, 0, __WALL, 0, 0, 0);
	return !shared->failed;
}

/* A signal for all of the process's group must not run a handler of the program in a child. */
static bool
run(bool handlers, bool lodgers)
{
	const uint64_t all = UINT64_MAX;
	bool goes_on;
	long lodger = -1;
	uint64_t old;

	if (handlers)
		(void)cow__syscall(SYS_rt_sigprocmask, SIG_BLOCK, (long)&all, (long)&old,
		                   sizeof(all), 0, 0);
	if (lodgers)
		lodger = begin_lodger();
	goes_on = !shared->failed;
	while (goes_on && !is_done()) {
		goes_on = begin_child();
		if (goes_on && !is_done())
			note_killed(); /* with the one that tried */
	}
	if (lodger > 0 && shared->at > WAIT && !shared->killed[WAIT])
		(void)cow__syscall(SYS_wait4, lodger, 0, __WALL, 0, 0, 0);
	if (handlers)
		(void)cow__syscall(SYS_rt_sigprocmask, SIG_SETMASK, (long)&old, 0, sizeof(old),
		                   0, 0);
	return goes_on && !shared->failed;
}

/* Directly: the gate does not lead here yet. */
enum cow__gate
cow__tries_make(bool handlers, bool lodgers)
{
	long at = cow__syscall(SYS_mmap, 0, sizeof(*shared), PROT_READ | PROT_WRITE,
	                       MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	enum cow__gate found = COW__GATE_OPEN;

#if defined(COW_SANITIZED)
	return found; /* their runtimes can't handle such a child */
#endif
	if (at < 0 && at > -4096)
		return COW__GATE_LIBC;
	shared = (struct shared *)at;
	if (!run(handlers, lodgers))
		found = COW__GATE_LIBC;
	for (unsigned i = 0; found != COW__GATE_LIBC && i < COUNT; i++) {
		killed[i] = shared->killed[i];
		found = killed[i] ? COW__GATE_TRIED : found;
	}
	(void)cow__syscall(SYS_munmap, at, sizeof(*shared), 0, 0, 0, 0);
	shared = NULL;
	return found;
}

bool
cow__tries_killed(long nr, long a, long b, long c, long d)
{
	const long given[] = { a, b, c, d };

	for (unsigned i = 0; i < COUNT; i++) {
		const struct try *t = &tries[i];
		const long wanted[] = { t->a, t->b, t->c, t->d };

		if (killed[i] && t->nr == nr &&
		    (t->key < 0 || (int)given[t->key] == (int)wanted[t->key]))
			return true;
	}
	return false;
}
