/* SPDX-License-Identifier: MIT */
/*
 * A kernel's threads
 *
 * One coroutine runs thread after thread of a block until one of them comes to a barrier.
 * Then another coroutine goes on with the threads that have not begun. When all have begun,
 * those at the barrier go on. So a kernel without barriers costs one coroutine for each
 * block. Blocks and threads run forwards or backwards, by chance, because no order is
 * promised.
 */
#include "tests/driver/ref.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

enum { FIBERS = 1024, STACK = 256 * 1024 };

struct fiber {
	ucontext_t context;
	char *stack;
	bool at_barrier;
	unsigned thread[3];
};

struct ref_place ref_place;

static struct fiber fibers[FIBERS];
static struct fiber *current;
static ucontext_t home;
static const struct ref_kernel *kernel;
static void **parameters;
static unsigned begun, threads;
static bool backwards;

static void set_thread(unsigned i)
{
	const unsigned *n = ref_place.block_size;

	if (backwards)
		i = threads - 1 - i;
	ref_place.thread[0] = i % n[0];
	ref_place.thread[1] = i / n[0] % n[1];
	ref_place.thread[2] = i / n[0] / n[1];
}

static void body(void)
{
	while (begun < threads) {
		set_thread(begun++);
		kernel->call(parameters);
	}
}

void ref_barrier(void)
{
	struct fiber *f = current;

	f->at_barrier = true;
	memcpy(f->thread, ref_place.thread, sizeof(f->thread));
	swapcontext(&f->context, &home);
	memcpy(ref_place.thread, f->thread, sizeof(f->thread));
}

static void resume(struct fiber *f)
{
	current = f;
	f->at_barrier = false;
	swapcontext(&home, &f->context);
}

static void begin(struct fiber *f)
{
	if (!f->stack) {
		f->stack = mmap(NULL, STACK, PROT_READ | PROT_WRITE,
		                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
		if (f->stack == MAP_FAILED)
			abort();
	}
	getcontext(&f->context);
	f->context.uc_stack.ss_sp = f->stack;
	f->context.uc_stack.ss_size = STACK;
	f->context.uc_link = &home;
	makecontext(&f->context, body, 0);
	resume(f);
}

static void run_block(void)
{
	unsigned n = 0;
	bool waiting;

	begun = 0;
	while (begun < threads) {
		begin(&fibers[n]);
		n += fibers[n].at_barrier;
	}
	do {
		waiting = false;
		for (unsigned i = 0; i < n; i++) {
			struct fiber *f = &fibers[backwards ? n - 1 - i : i];

			if (f->at_barrier)
				resume(f);
			waiting |= f->at_barrier;
		}
	} while (waiting);
}

void ref_grid_run(const struct ref_kernel *k, const struct ref_grid *grid, void **with)
{
	uint64_t blocks = (uint64_t)grid->grid[0] * grid->grid[1] * grid->grid[2];
	static uint64_t chance = 0x9e3779b97f4a7c15;
	bool last_first = chance >> 61 & 1;

	kernel = k;
	parameters = with;
	memcpy(ref_place.block_size, grid->block, sizeof(grid->block));
	memcpy(ref_place.grid_size, grid->grid, sizeof(grid->grid));
	threads = grid->block[0] * grid->block[1] * grid->block[2];
	for (uint64_t i = 0; i < blocks; i++) {
		uint64_t b = last_first ? blocks - 1 - i : i;

		chance = chance * 6364136223846793005 + 1442695040888963407;
		backwards = chance >> 62 & 1;
		ref_place.block[0] = (unsigned)(b % grid->grid[0]);
		ref_place.block[1] = (unsigned)(b / grid->grid[0] % grid->grid[1]);
		ref_place.block[2] = (unsigned)(b / grid->grid[0] / grid->grid[1]);
		run_block();
	}
}
