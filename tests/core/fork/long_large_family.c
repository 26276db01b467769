/* SPDX-License-Identifier: MIT */
/*
 * test_large_family.c with ten thousand living children
 */
#define FAMILY 10000
#include "tests/core/fork/test_large_family.c"
