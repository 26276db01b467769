/* SPDX-License-Identifier: MIT */
/*
 * Quiet moments of the engine: no other thread can write to the window (quiet/quiet.h)
 */
#ifndef COW_CORE_MEMORY_QUIET_WINDOW_H
#define COW_CORE_MEMORY_QUIET_WINDOW_H

#include <stdbool.h>
#include <stdint.h>

/* cow__quiet_begin() for the window; counts why not. Engine locked. False in
 * vfork's child. Threads that run are stopped, if the program asked for that (option
 * quiet). One that has not stopped after `stop_ns` is left alone. 0: none is stopped. */
bool cow__engine_quiet(uint64_t stop_ns);

/* Would it look now whether threads that are not parked sleep past libc? */
bool cow__engine_sleepers_due(uint64_t now);

#endif
