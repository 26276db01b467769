/* SPDX-License-Identifier: MIT */
/*
 * Test support: DLPack's structs, written down a second time from dlpack.h's text, so
 * that a slip in ours shows
 */
#ifndef COWSHED_TESTS_DLPACK_H
#define COWSHED_TESTS_DLPACK_H

#include <stdint.h>

typedef struct {
	int32_t device_type;
	int32_t device_id;
} Device;

typedef struct {
	uint8_t code;
	uint8_t bits;
	uint16_t lanes;
} Type;

typedef struct {
	void *data;
	Device device;
	int32_t ndim;
	Type dtype;
	int64_t *shape;
	int64_t *strides;
	uint64_t byte_offset;
} Array;

typedef struct Managed {
	Array dl_tensor;
	void *manager_ctx;
	void (*deleter)(struct Managed *self);
} Managed;

typedef struct Versioned {
	struct {
		uint32_t major;
		uint32_t minor;
	} version;
	void *manager_ctx;
	void (*deleter)(struct Versioned *self);
	uint64_t flags;
	Array dl_tensor;
} Versioned;

#endif
