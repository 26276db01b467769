/* SPDX-License-Identifier: MIT */
/*
 * Test support: an empty file system that this process alone sees
 */
#ifndef COWSHED_TESTS_TMPFS_H
#define COWSHED_TESTS_TMPFS_H

#include <stdbool.h>

/* Mounts it at a folder that is there, in namespaces of its own, in which the caller is user 0.
 * The caller has one thread. Its children are in there, too. `options` as mount's: "size=4m".
 * -1: not allowed here. */
int own_tmpfs(const char *folder, const char *options);

/* Tried in a child. */
bool may_own_tmpfs(const char *folder);

#endif
