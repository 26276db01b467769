/* SPDX-License-Identifier: MIT */
/*
 * An ordered tree over addresses: see the header.
 */
#include "core/base/tree.h"
#include "core/base/base.h"

static uint64_t
priority(const struct cow__node *n)
{
	uint64_t x = n->key >> 12;

	x ^= x >> 33;
	x *= 0xff51afd7ed558ccdull;
	x ^= x >> 33;
	x *= 0xc4ceb9fe1a85ec53ull;
	return x ^ x >> 33;
}

/* Splits `tree` into keys below and above `key`. */
static void
split_tree(struct cow__node *tree, uintptr_t key, struct cow__node **below,
           struct cow__node **above)
{
	while (tree) {
		if (tree->key < key) {
			*below = tree;
			below = &tree->right;
			tree = tree->right;
		} else {
			*above = tree;
			above = &tree->left;
			tree = tree->left;
		}
	}
	*below = *above = NULL;
}

COW_EXPORT void
cow__tree_insert(struct cow__node **root, struct cow__node *node)
{
	uint64_t p = priority(node);

	while (*root && priority(*root) >= p)
		root = (*root)->key < node->key ? &(*root)->right
		                                : &(*root)->left;
	split_tree(*root, node->key, &node->left, &node->right);
	*root = node;
}

COW_EXPORT void
cow__tree_remove(struct cow__node **root, struct cow__node *node)
{
	struct cow__node *a = node->left, *b = node->right;

	while (*root != node) {
		cow__require(*root != NULL);
		root = (*root)->key < node->key ? &(*root)->right
		                                : &(*root)->left;
	}
	/* Joins a (all below) and b (all above) in its place. */
	while (a && b) {
		if (priority(a) >= priority(b)) {
			*root = a;
			root = &a->right;
			a = a->right;
		} else {
			*root = b;
			root = &b->left;
			b = b->left;
		}
	}
	*root = a ? a : b;
}

COW_EXPORT struct cow__node *
cow__tree_floor(struct cow__node *root, uintptr_t key)
{
	struct cow__node *best = NULL;

	while (root) {
		if (root->key <= key) {
			best = root;
			root = root->right;
		} else {
			root = root->left;
		}
	}
	return best;
}

struct cow__node *
cow__tree_ceiling(struct cow__node *root, uintptr_t key)
{
	struct cow__node *best = NULL;

	while (root) {
		if (root->key >= key) {
			best = root;
			root = root->left;
		} else {
			root = root->right;
		}
	}
	return best;
}
