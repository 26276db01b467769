/* SPDX-License-Identifier: MIT */
/*
 * Committing ranges of 2 MiB that smaller extents are cut from (core/memory/commit.h)
 *
 * Engine locked throughout.
 */
#ifndef COW_CORE_MEMORY_COMMIT_UNIT_H
#define COW_CORE_MEMORY_COMMIT_UNIT_H

#include "core/memory/tile.h"

/* A fresh, mapped range of 2 MiB. Extents of `bytes` bytes, all smaller, will be
 * cut from it. It is committed if they fill it well, and if the program touched
 * the ranges before. */
void cow__commit_unit(uintptr_t start, size_t bytes);

/* An extent of `bytes` bytes will be cut from the start of a cold tile. The 2 MiB in which it
 * ends are committed, if they are free and the program has filled the extent before. */
void cow__commit_packed(const struct cow__tile *t, size_t bytes);

/* In a forked child: nothing is ahead. */
void cow__commit_unit_child(void);

#endif
