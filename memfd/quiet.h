/* SPDX-License-Identifier: MIT */
/*
 * Proof that no other thread can write
 *
 * Some remappings lose a page that another thread writes at that moment. They
 * are done only between begin and end of a quiet moment, in which it is certain
 * that nobody but the caller runs.
 */
#ifndef COW_MEMFD_QUIET_H
#define COW_MEMFD_QUIET_H

#include <stdbool.h>
#include <stdint.h>

/*
 * Tries to begin one for the memory [from, to): true if the calling thread is
 * alone in this address space, or every other thread (but `helper`, 0: none)
 * provably sleeps, and nobody's stack lies in that memory: the caller would write
 * what he moves, and so would the kernel, for a signal of who sleeps. From then on
 * signals are blocked in the caller, and wait in the others, until end. Calls must
 * be serialized by the caller (the engine's lock); few microseconds alone, some
 * 20 us for each other thread.
 */
bool cow__quiet_begin(uint32_t helper, uintptr_t from, uintptr_t to);
void cow__quiet_end(void);

#endif
