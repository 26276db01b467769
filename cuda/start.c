/* SPDX-License-Identifier: MIT */
/*
 * Starting: see the header.
 */
#include "cuda/start.h"
#include "core/base.h"

int
cow__cuda_register(struct cow__cuda *devices, int count)
{
	return cow__cuda_allocators_set(devices, count);
}
