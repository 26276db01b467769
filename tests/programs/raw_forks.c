/* SPDX-License-Identifier: MIT */
/*
 * fork by the bare system calls, clone with and without CLONE_VM, deep nesting,
 * and several threads that fork at once
 *
 * A fork by libc's syscall() or clone() runs no fork handlers. Its child can do all that
 * other children can. If the fork goes to the kernel past libc, the child may find a block
 * as its parent had it. Under an allocator that must know of children, SIGSEGV may end the
 * child when it touches the block. It must never see other bytes, nor write into its
 * parent's. An argument: the depth of nesting, if less than usual.
 */
#include "program.h"

#include <linux/sched.h>
#include <malloc.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>

enum { STACK = 256 * KIB, FORKERS = 4, FORKS = 8, DEEP = 200, ROUNDS = 3 };

static int deep = DEEP; /* what the kernel does for each grows with the depth */

static const size_t bytes = 3 * MIB;
static unsigned char *block, *shared_stack;
static uint64_t seed = 1;
static int to_sibling[2], gate[2];
static char own_stack[STACK] __attribute__((aligned(16)));

static pid_t bare_fork(void)
{
#ifdef SYS_fork
	return (pid_t)syscall(SYS_fork);
#else
	return (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
#endif
}

static pid_t bare_clone(void)
{
	return (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
}

static pid_t bare_clone3(void)
{
	struct clone_args args = { .exit_signal = SIGCHLD };

	return (pid_t)syscall(SYS_clone3, &args, sizeof(args));
}

/* No code in this process learns of it before. */
static pid_t past_libc(void)
{
#if defined(__x86_64__)
	long r;

	__asm__ volatile("xor %%edx, %%edx; xor %%r10d, %%r10d; xor %%r8d, %%r8d; syscall"
	                 : "=a"(r)
	                 : "0"((long)SYS_clone), "D"((long)SIGCHLD), "S"(0L)
	                 : "rcx", "rdx", "r8", "r10", "r11", "memory");
	errno = (int)-r;
	return r < 0 ? -1 : (pid_t)r;
#else
	errno = ENOSYS;
	return -1;
#endif
}

static void looks(void *arg)
{
	(void)arg;
	check(holds(block, bytes, seed));
}

static void looks_at(void *p)
{
	check(holds(p, 4 * MIB, seed));
	fill(p, 4 * MIB, seed + 1);
}

static void lives_on(void *arg)
{
	gate_wait(arg);
	looks(NULL);
}

/* In a child: what it inherited, then memory of its own, and children. */
static int lives(void *gate)
{
	unsigned char *p;
	char go;

	if (read(*(int *)gate, &go, 1) != 1 || !holds(block, bytes, seed))
		return 1;
	memset(block, 0xee, bytes);
	p = get_filled(4 * MIB, seed);
	in_child(looks_at, p);
	p = realloc(p, 6 * MIB);
	check(p != NULL && holds(p, 4 * MIB, seed));
	free(p);
	malloc_trim(0);
	return 0;
}

static pid_t by_clone(void)
{
	return clone(lives, own_stack + STACK, SIGCHLD, gate);
}

/* The child finds the right bytes, or none if the fork went past libc. Its writes are not
 * seen here. A `sibling` by fork() shares the memory for a while. */
static void a_bare_one(pid_t (*forks)(void), int sibling)
{
	pid_t child, other = 0;
	int status;

	gate_make(gate);
	if (sibling)
		other = start(lives_on, to_sibling);
	child = forks();
	if (child < 0) /* clone3 may be forbidden */
		check(errno == ENOSYS || errno == EPERM);
	if (child == 0)
		_exit(lives(gate));
	check(holds(block, bytes, seed));
	if (sibling) {
		gate_open(to_sibling);
		finish(other);
	}
	seed++; /* the child has its own */
	fill(block, bytes, seed);
	free(get_filled(bytes, seed));
	gate_open(gate);
	if (child > 0) {
		check(waitpid(child, &status, 0) == child);
		check(status == 0 || (forks == past_libc && WIFSIGNALED(status) &&
		                      WTERMSIG(status) == SIGSEGV));
	}
	check(holds(block, bytes, seed));
	close(gate[0]);
	close(gate[1]);
}

/* The kernel finds out, and says so. */
static void from_nowhere(void)
{
	unsigned char *page = get_pages(2 * PAGE);
	long ways[] = { 8, -4096, (long)page + PAGE - 8 };
	unsigned i;

	check(mprotect(page + PAGE, PAGE, PROT_NONE) == 0);
	for (i = 0; i < COUNT(ways); i++) {
		check(syscall(SYS_clone3, ways[i], sizeof(struct clone_args)) == -1);
		check(errno == EFAULT || errno == ENOSYS || errno == EPERM);
	}
	check(mprotect(page + PAGE, PAGE, PROT_READ | PROT_WRITE) == 0);
}

static void bare_ones(int sibling)
{
	a_bare_one(bare_fork, sibling);
	a_bare_one(bare_clone, sibling);
	a_bare_one(bare_clone3, sibling);
	a_bare_one(by_clone, sibling);
	a_bare_one(past_libc, sibling);
}

/* A process in the same memory: what it writes is written. */
static int fills(void *arg)
{
	fill(block, bytes, *(uint64_t *)arg);
	return 0;
}

static void in_shared_memory(int flags)
{
	int status;
	pid_t child;

	seed++;
	child = clone(fills, shared_stack + 64 * KIB, CLONE_VM | flags | SIGCHLD,
	              &seed);
	check(child > 0);
	check(waitpid(child, &status, 0) == child && status == 0);
	check(holds(block, bytes, seed));
}

/* Each generation has a page of its own in the block. */
static void deeper(void *arg)
{
	int depth = *(int *)arg + 1, i;
	unsigned char *p;

	for (i = 0; i < depth; i++)
		check(holds(block + (size_t)i * PAGE, PAGE, (uint64_t)i));
	if (depth > deep)
		return;
	p = get_filled(100 * KIB, (uint64_t)depth);
	fill(block + (size_t)depth * PAGE, PAGE, (uint64_t)depth);
	in_child(deeper, &depth);
	check(holds(p, 100 * KIB, (uint64_t)depth));
	check(holds(block + (size_t)depth * PAGE, PAGE, (uint64_t)depth));
}

static void *fork_on(void *arg)
{
	uint64_t mine = (uint64_t)(uintptr_t)arg + 100;
	unsigned char *p = get_filled(2 * MIB, mine);
	int n, status;
	pid_t child;

	for (n = 0; n < FORKS; n++) {
		child = fork();
		check(child >= 0);
		if (child == 0) {
			check(holds(p, 2 * MIB, mine));
			looks(NULL);
			fill(p, 2 * MIB, 1);
			free(realloc(p, 4 * MIB));
			_exit(0);
		}
		mine += 100;
		fill(p, 2 * MIB, mine);
		check(waitpid(child, &status, 0) == child && status == 0);
		check(holds(p, 2 * MIB, mine));
	}
	free(p);
	return NULL;
}

static void from_several_threads(void)
{
	pthread_t threads[FORKERS];
	int i;

	for (i = 0; i < FORKERS; i++)
		check(pthread_create(&threads[i], NULL, fork_on,
		                     (void *)(uintptr_t)i) == 0);
	for (i = 0; i < FORKERS; i++)
		pthread_join(threads[i], NULL);
}

int main(int argc, char **argv)
{
	int n, depth = 0;
	pid_t child;

	if (argc > 1)
		deep = atoi(argv[1]);
	check(deep > 0 && deep <= DEEP);
	gate_make(to_sibling);
	shared_stack = get_pages(64 * KIB);
	block = get_filled(bytes, seed);
	from_nowhere();
	for (n = 0; n < ROUNDS; n++) {
		bare_ones(0);
		bare_ones(1);
		in_shared_memory(0);
		in_shared_memory(CLONE_VFORK);
		/* The same with memory that a child shares. */
		child = start(lives_on, to_sibling);
		in_shared_memory(0);
		in_shared_memory(CLONE_VFORK);
		gate_open(to_sibling);
		finish(child);
	}
	fill(block, PAGE, 0);
	in_child(deeper, &depth);
	fill(block, bytes, seed);
	from_several_threads();
	looks(NULL);
	puts("raw_forks: done");
	return 0;
}
