/* SPDX-License-Identifier: MIT */
/*
 * Quiet moments: proof that no other thread can write
 *
 * Some remappings lose a page that another thread writes at that moment. They are
 * done only between begin and end of a quiet moment, in which only the caller
 * runs.
 */
#ifndef COW_MEMFD_QUIET_H
#define COW_MEMFD_QUIET_H

#include <stdbool.h>
#include <stdint.h>

/*
 * Tries to begin a quiet moment for the memory [from, to). True if the calling
 * thread is alone in this address space, or if every other thread provably
 * sleeps. `helper` is a thread that need not sleep; 0: there is none.
 *
 * No stack may lie in that memory: the caller would write what it moves, and the
 * kernel would write to a sleeper's stack for a signal. Until the end signals are
 * blocked in the caller, and wait in the other threads. The caller serializes the
 * calls (the engine's lock). It takes few microseconds alone, and about 20 us for
 * each other thread.
 */
bool cow__quiet_begin(uint32_t helper, uintptr_t from, uintptr_t to);
void cow__quiet_end(void);

#endif
