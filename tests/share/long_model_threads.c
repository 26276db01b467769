/* SPDX-License-Identifier: MIT */
/*
 * test_model_threads.c at length: 160 seeds of four plans, four threads, 400 000 operations. With
 * long_model.c it is a million. Under ThreadSanitizer a seed takes 12 seconds, so it is a quarter of
 * them there.
 */
#define LONG_MODEL (UNDER_TSAN ? 40 : 160)
#include "tests/share/test_model_threads.c"
