/* SPDX-License-Identifier: MIT */
/*
 * Sentences about failures that name tensors
 */
#ifndef COW_TENSOR_SAY_H
#define COW_TENSOR_SAY_H

#include "tensor/tensor.h"

/*
 * Leaves the sentence why the calling thread's call fails, and returns `error`. A letter
 * follows each '#' of the sentence:
 *
 *   #t   const struct cow_tensor *      "float32 [2, 3]"
 *   #z   const struct cow__shape *      "[2, 3]"
 *   #d   int64_t
 *   #y   enum cow_dtype                 "float32"
 *   #f   enum cow_format                "channels_last"
 *   #v   const struct cow_device *      "device 3:0"
 *   #s   const char *
 */
int cow__say(int error, const char *sentence, ...);

#endif
