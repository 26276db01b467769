/* SPDX-License-Identifier: MIT */
/*
 * Stacks of MAP_GROWSDOWN where the program had memory and unmapped it
 *
 * The kernel grows such a mapping down to 256 pages above the next mapping, and no further.
 * A touch beyond is SIGSEGV. It does so in parents and children, and what was unmapped reads
 * as zero when it has grown.
 */
#include "program.h"

#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>

enum { MOST = 900, TOTAL = 1024, STACK = 2 };

static sigjmp_buf back;

static void on_fault(int sig)
{
	(void)sig;
	siglongjmp(back, 1);
}

/* Is it zero, and can it be written? */
static int touches(volatile unsigned char *p)
{
	if (sigsetjmp(back, 1))
		return 0;
	check(*p == 0);
	*p = 1;
	return 1;
}

static int grows(unsigned char *stack)
{
	int n = 0;

	while (n < MOST && touches(stack - (size_t)(n + 1) * PAGE))
		n++;
	return n;
}

static unsigned char *map(unsigned char *at, size_t pages, int flags)
{
	unsigned char *p = mmap(at, pages * PAGE, PROT_READ | PROT_WRITE,
	                        MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);

	check(p != MAP_FAILED);
	return p;
}

static void in_a_child(void *stack)
{
	printf("a child: %d\n", grows(stack));
	fflush(stdout);
}

/* `way`: a page is mapped so many pages below the stack. 0: none is. */
static void one(size_t way, int later)
{
	unsigned char *range = map(NULL, TOTAL, 0), *stack, *page = NULL, *other;
	int n;

	memset(range, 7, TOTAL * PAGE);
	check(munmap(range, TOTAL * PAGE) == 0);
	stack = range + (TOTAL - STACK) * PAGE;
	if (way && !later)
		page = map(stack - way * PAGE, 1, MAP_FIXED);
	check(map(stack, STACK, MAP_FIXED | MAP_GROWSDOWN) == stack);
	if (way && later)
		page = map(stack - way * PAGE, 1, MAP_FIXED);
	memset(stack, 5, STACK * PAGE);
	in_child(in_a_child, stack);
	n = grows(stack);
	printf("a page %zu below: %d\n", way, n);
	fflush(stdout);
	in_child(in_a_child, stack - (size_t)n * PAGE);
	check(all(stack, STACK * PAGE, 5) && (!page || all(page, PAGE, 0)));
	check(munmap(range, TOTAL * PAGE) == 0);
	check(!touches(stack));
	other = map(NULL, TOTAL, 0);
	check(all(other, TOTAL * PAGE, 0));
	fill(other, TOTAL * PAGE, 3);
	check(holds(other, TOTAL * PAGE, 3) && munmap(other, TOTAL * PAGE) == 0);
}

int main(void)
{
	struct sigaction action = { .sa_handler = on_fault, .sa_flags = SA_NODEFER };
	size_t ways[] = { 0, 2, 16, 255, 300, 600 }, i;

	check(sigaction(SIGSEGV, &action, NULL) == 0);
	for (i = 0; i < 2 * COUNT(ways); i++)
		one(ways[i / 2], i % 2);
	puts("grows_down: done");
	return 0;
}
