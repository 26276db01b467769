/* SPDX-License-Identifier: MIT */
/*
 * What tests of cuda/ share: the devices on the reference driver
 */
#ifndef TESTS_SUPPORT_CUDA_H
#define TESTS_SUPPORT_CUDA_H

#include "tests/support/driver.h"

#include <cowshed-cuda.h>

/* Starts the devices, with the driver's settings from the environment. */
void cuda_start(void);

/* Calls of the driver so far, of all names but those that only ask for errors. */
uint64_t cuda_calls(void);

struct cow_storage *cuda_storage(int device, size_t bytes, uint32_t backing);
struct cow_cuda_stats cuda_stats(int device);
cow_cuda_stream cuda_stream(int device);

/* The storage's bytes get this value, on the stream. */
void cuda_fill(const struct cow_storage *s, unsigned char value, cow_cuda_stream stream);

/* All work of the device is done, and then they are all this value. */
void cuda_check(const struct cow_storage *s, unsigned char value);
void cuda_finish(int device);

/* The picture of a device, checked against its statistics: blocks do not overlap, are
 * sorted, and add up. Returns how many there are. */
size_t cuda_picture(int device);

/* Everything that was made is given back: nothing leaks in the driver. */
void cuda_nothing_left(void);

#endif
