/* SPDX-License-Identifier: MIT */
/*
 * Start-up of the shim
 *
 * The first malloc may come long before this constructor; it passes through.
 * From here on the threshold is known and large requests are ours.
 */
#include "preload/next.h"
#include "preload/preload.h"

__attribute__((constructor)) static void
start(void)
{
	preload_next_init();
	preload_options_read();
	preload_gate_open();
}
