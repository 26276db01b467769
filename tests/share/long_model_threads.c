/* SPDX-License-Identifier: MIT */
/*
 * test_model_threads.c at length: 160 seeds of four plans, four threads, 400 000 operations in every
 * mode. With long_model.c it is a million.
 */
#define LONG_MODEL 160
#include "tests/share/test_model_threads.c"
