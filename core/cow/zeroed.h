/* SPDX-License-Identifier: MIT */
/*
 * Zeroed blocks of a program that forks again and again
 *
 * A large calloc() is anonymous memory, so that reading what was never written takes none
 * (core/memory/extent.c). But each fork copies its page tables. When the program has forked
 * several times with such a block, and has written most of it, the block joins a file: from then
 * on it counts as a frozen block, of which every page was copied.
 *
 *   before   [ T, anonymous ]
 *   joined   [ T, private: file F, which has no page there ]   the same mapping as before.
 *
 * To the program there is no difference between anonymous memory and private pages above a hole
 * of a file. So nothing is mapped or copied at that moment, and no thread has to rest. Afterwards
 * the memory thaws (core/cow/thaw.h), or heals forward (core/cow/forward.h), as any other.
 *
 * Engine locked.
 */
#ifndef COW_CORE_COW_ZEROED_H
#define COW_CORE_COW_ZEROED_H

/* Before a fork: blocks that are worth it join a file. */
void cow__zeroed_before_fork(void);

#endif
