/* SPDX-License-Identifier: MIT */
/*
 * Test support: users, and an empty file system, that this process alone has
 */
#ifndef COWSHED_TESTS_NAMESPACES_H
#define COWSHED_TESTS_NAMESPACES_H

#include <stdbool.h>

/* In a namespace of users of its own the caller is user `as`, and nobody else has a number.
 * The caller has one thread. -1: not allowed here. */
int own_users(int as);

/* Mounts it at a folder that is there, in namespaces of its own, in which the caller is user 0.
 * The caller has one thread. Its children are in there, too. `options` as mount's: "size=4m".
 * -1: not allowed here. */
int own_tmpfs(const char *folder, const char *options);

/* Tried in a child. */
bool may_own_users(void);
bool may_own_tmpfs(const char *folder);

#endif
