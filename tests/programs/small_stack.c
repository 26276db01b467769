/* SPDX-License-Identifier: MIT */
/*
 * Calls that block, on stacks that have little room
 *
 * Memory was rewritten after a fork and is still frozen, so that an allocator would work on it
 * wherever a thread blocks. A signal handler on a small stack writes to a pipe, another one
 * waits for children there, and a coroutine talks to itself. Each stack has a page in front
 * that can't be touched.
 */
#include "program.h"

#include <signal.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <ucontext.h>

#ifndef AT_MINSIGSTKSZ
#define AT_MINSIGSTKSZ 51
#endif
#define BYTES (8 * MIB)
#define ROOM (4608) /* beside what the kernel writes for a signal */

static int self[2];
static unsigned char *block;
static volatile sig_atomic_t reaped, ticks;
static ucontext_t caller, coroutine;

static size_t stack_bytes(void)
{
	size_t least = getauxval(AT_MINSIGSTKSZ);

	return (least ? least : 2048) + ROOM;
}

static void *get_stack(size_t bytes)
{
	char *p = mmap(NULL, 4 * PAGE + bytes, PROT_READ | PROT_WRITE,
	               MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	check(p != MAP_FAILED && mprotect(p, 2 * PAGE, PROT_NONE) == 0);
	return p + 2 * PAGE;
}

static void talk(void)
{
	char byte;

	check(write(self[1], "x", 1) == 1 && read(self[0], &byte, 1) == 1);
}

static void on_tick(int sig)
{
	(void)sig;
	talk();
	ticks++;
}

static void on_child(int sig)
{
	int status;

	(void)sig;
	while (waitpid(-1, &status, WNOHANG) > 0)
		reaped++;
}

/* Rewrites for a fifth of a second. */
static void rewrite(void (*also)(void))
{
	struct timespec begin, now;

	clock_gettime(CLOCK_MONOTONIC, &begin);
	do {
		for (size_t at = 0; at < BYTES; at += PAGE)
			block[at]++;
		if (also)
			also();
		clock_gettime(CLOCK_MONOTONIC, &now);
	} while ((now.tv_sec - begin.tv_sec) * 1000000000 + now.tv_nsec -
	                 begin.tv_nsec < 200000000);
}

/* The handler waits for the child. */
static void freeze(void)
{
	pid_t child = fork();

	check(child >= 0);
	if (child == 0)
		_exit(0);
}

static void runs_on_its_stack(void)
{
	rewrite(talk);
}

int main(void)
{
	size_t bytes = stack_bytes();
	stack_t stack = { .ss_sp = get_stack(bytes), .ss_size = bytes };
	struct sigaction tick = { .sa_handler = on_tick, .sa_flags = SA_ONSTACK | SA_RESTART };
	struct sigaction child = { .sa_handler = on_child,
		                   .sa_flags = SA_ONSTACK | SA_RESTART };
	struct itimerval each = { { 0, 1000 }, { 0, 1000 } }, none = { { 0, 0 }, { 0, 0 } };

	/* The first call of a function of libc needs more room. */
	gate_make(self);
	talk();
	on_child(SIGCHLD);
	block = get_filled(BYTES, 1);
	sigfillset(&tick.sa_mask);
	sigfillset(&child.sa_mask);
	check(sigaltstack(&stack, NULL) == 0);
	check(sigaction(SIGALRM, &tick, NULL) == 0);
	check(sigaction(SIGCHLD, &child, NULL) == 0);
	for (int round = 0; round < 3; round++) {
		freeze();
		check(setitimer(ITIMER_REAL, &each, NULL) == 0);
		do
			rewrite(NULL);
		while (reaped <= round);
		check(setitimer(ITIMER_REAL, &none, NULL) == 0);
	}
	check(ticks > 0);
	puts("small_stack: handlers");

	freeze();
	check(getcontext(&coroutine) == 0);
	coroutine.uc_stack = stack;
	coroutine.uc_stack.ss_sp = get_stack(8192);
	coroutine.uc_stack.ss_size = 8192;
	coroutine.uc_link = &caller;
	makecontext(&coroutine, runs_on_its_stack, 0);
	rewrite(NULL);
	check(swapcontext(&caller, &coroutine) == 0);
	puts("small_stack: a coroutine");
	return 0;
}
