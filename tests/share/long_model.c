/* SPDX-License-Identifier: MIT */
/*
 * test_model.c at length: 455 seeds of five plans, 600 600 operations in every mode. With
 * long_model_threads.c it is a million. What children and peers do comes on top.
 */
#define LONG_MODEL 455
#include "tests/share/test_model.c"
