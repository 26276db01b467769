/* SPDX-License-Identifier: MIT */
/*
 * Start-up of the shim
 *
 * The first malloc may come long before this constructor, and goes to the next
 * allocator. The constructor reads the threshold; after it the engine serves large
 * requests.
 */
#include "preload/next.h"
#include "preload/park.h"
#include "preload/preload.h"

#include "core/program/mapping.h"

/* Making the engine allocates a little. The next allocator may map memory for that,
 * which must not come from the engine. So mmap is served after it. */
static void
serve_mmap(void)
{
	uintptr_t start;

	if (preload_option_mmap() == SIZE_MAX || cow__mapping_init(&start) < 0)
		return;
	preload_window_note();
	preload_blocks_bytes = start - preload_window_start;
	preload_map_threshold = preload_option_mmap();
}

__attribute__((constructor)) static void
start(void)
{
	preload_next_init();
	preload_options_read();
	preload_report_begin();
	preload_fork_init();
	preload_park_init();
	if (preload_option_stops())
		preload_stop_begin();
	preload_gate_open();
	serve_mmap();
}
