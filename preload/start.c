/* SPDX-License-Identifier: MIT */
/*
 * Start-up of the shim
 *
 * The first malloc may come long before this constructor; it passes through.
 * From here on the threshold is known and large requests are ours.
 */
#include "preload/next.h"
#include "preload/preload.h"

#include "core/program/mapping.h"

/* Making the engine allocates a little, for which the next allocator may map
 * memory: that must not be the engine's. */
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
	preload_gate_open();
	serve_mmap();
}
