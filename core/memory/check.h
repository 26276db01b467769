/* SPDX-License-Identifier: MIT */
/*
 * The invariants of tiles, checked
 *
 * In debug and sanitized builds each release of the engine's lock checks what must be true of all
 * tiles then: they cover the window without gaps, their flags are a combination that exists, and
 * what is counted elsewhere agrees. So every test, model, fuzzer and storm of these builds does.
 * An error prints the tile and the invariant, and ends the process. Other builds check nothing.
 *
 * Engine locked. Costs some ns a tile. With many tiles, one release of several is checked, so that
 * a test takes no more than a few times as long.
 */
#ifndef COW_CORE_MEMORY_CHECK_H
#define COW_CORE_MEMORY_CHECK_H

#if defined(COW_DEBUG) || defined(COW_SANITIZED)
#define COW__CHECKS 1
void cow__check(void);
#else
#define COW__CHECKS 0
static inline void
cow__check(void)
{
}
#endif

#endif
