/* SPDX-License-Identifier: MIT */
/*
 * Start-up of the shim
 *
 * The first malloc may come long before this constructor, and goes to the next
 * allocator. The constructor reads the threshold; after it the engine serves large
 * requests.
 *
 * The first mmap may come as early: constructors of other libraries allocate, and the
 * next allocator maps a region that it keeps. With the option `mmap` the engine serves
 * this one as well. Else each fork would copy its page tables.
 *
 * Under a filter of system calls that leaves nothing to gain, the shim only passes calls on.
 */
#include "preload/next.h"
#include "preload/park.h"
#include "preload/preload.h"

#include "core/fork/retire.h"
#include "core/memory/state.h"
#include "core/program/mapping.h"

#include <unistd.h>

/* Making the engine may map memory, which must not come from the engine. So mmap is
 * served after it. */
static void
serve_mmap(void)
{
	uintptr_t start;

	if (preload_option_mmap() == SIZE_MAX || cow__mapping_init(&start) < 0)
		return;
	preload_window_note();
	preload_blocks_bytes = start - preload_window_start;
	__atomic_store_n(&preload_map_threshold, preload_option_mmap(),
	                 __ATOMIC_RELEASE);
}

/* The engine's constructor may not have run yet. Its handlers of fork come first
 * (preload/fork.c). */
void
preload_mmap_begin(void)
{
	static int begun;

	/* Before libc has the environment it is the dynamic linker that maps. */
	if (!environ || __atomic_exchange_n(&begun, 1, __ATOMIC_ACQ_REL))
		return;
	preload_map_threshold = SIZE_MAX;
	if (cow__retired_at_start()) {
		preload_sandbox_began();
		return;
	}
	cow__engine_load();
	preload_fork_init();
	preload_options_read();
	serve_mmap();
}

__attribute__((constructor)) static void
start(void)
{
	preload_next_init();
	preload_mmap_begin();
	if (preload_sandboxed())
		return;
	preload_report_begin();
	preload_park_init();
	if (preload_option_stops())
		preload_signals_stop_begin();
	preload_gate_open();
}
