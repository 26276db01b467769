/* SPDX-License-Identifier: MIT */
/*
 * An ordered tree over addresses
 *
 * A treap: a search tree by key that is a heap by a hash of the key. The hash
 * balances it as random keys would: expected O(log n), without rebalancing rules.
 * Nodes are embedded in the objects of the caller, who serializes all calls.
 */
#ifndef COW_CORE_BASE_TREE_H
#define COW_CORE_BASE_TREE_H

#include <stdint.h>

struct cow__node {
	struct cow__node *left, *right;
	uintptr_t key;
};

void cow__tree_insert(struct cow__node **root, struct cow__node *node);
void cow__tree_remove(struct cow__node **root, struct cow__node *node);

/* The node with the greatest key that is not above `key`, or NULL. */
struct cow__node *cow__tree_floor(struct cow__node *root, uintptr_t key);

/* The node with the least key that is not below `key`, or NULL. */
struct cow__node *cow__tree_ceiling(struct cow__node *root, uintptr_t key);

#endif
