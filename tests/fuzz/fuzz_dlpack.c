/* SPDX-License-Identifier: MIT */
/*
 * Any numbers as an array of DLPack
 *
 * The structs are those of dlpack.h, written down again. What is said of the type, the
 * device and the shape is the input's; the sizes and strides end where a page of the
 * sanitizer's begins. What is imported must be a tensor of exactly these elements, whose
 * last one is within what the strides span; it is read where that is memory, copied where it is
 * read-only, and exported again. The deleter runs once if it was imported and never
 * if not.
 */
#include "tests/fuzz/must.h"

#include <cowshed-tensor.h>

#include <string.h>

enum { BYTES = 4096 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
extern const unsigned fuzz_rounds;
const unsigned fuzz_rounds = 5000;

struct array {
	void *data;
	int32_t device_type, device_id, ndim;
	uint8_t code, bits;
	uint16_t lanes;
	int64_t *shape, *strides;
	uint64_t byte_offset;
};

struct legacy {
	struct array array;
	void *context;
	void (*deleter)(struct legacy *self);
};

struct versioned {
	uint32_t major, minor;
	void *context;
	void (*deleter)(struct versioned *self);
	uint64_t flags;
	struct array array;
};

/* What an input begins with; sizes and strides are behind it. */
struct said {
	uint8_t form, code, bits, lanes;
	uint8_t device, ndim, offset, major;
};
enum { VERSIONED = 1, READ_ONLY = 2, STRIDES = 4, NO_DATA = 8, WIDE = 16 };

static unsigned char memory[BYTES];
static int deleted;

static void delete_legacy(struct legacy *self)
{
	must(self->context == &deleted);
	deleted++;
}

static void delete_versioned(struct versioned *self)
{
	must(self->context == &deleted);
	deleted++;
}

/* Sizes or strides: of a byte each, or of eight. */
static int64_t *numbers(int n, bool wide, const uint8_t **at, const uint8_t *end)
{
	int64_t *all = malloc((size_t)n * sizeof(int64_t) + !n);

	must(all != NULL);
	for (int i = 0; i < n; i++) {
		size_t bytes = wide ? sizeof(int64_t) : 1;

		all[i] = 1;
		if ((size_t)(end - *at) < bytes)
			continue;
		if (wide)
			memcpy(&all[i], *at, bytes);
		else
			all[i] = (int8_t)**at;
		*at += bytes;
	}
	return all;
}

/* The bytes from the first element to the last one's end; -1: too many to count. */
static __int128 span(const struct array *a, size_t item)
{
	__int128 last = 0, step = 1;

	for (int i = 0; i < a->ndim; i++)
		if (a->shape[i] == 0)
			return 0;
	for (int i = a->ndim; i-- > 0;) {
		__int128 stride = a->strides ? a->strides[i] : step;

		last += (a->shape[i] - 1) * stride;
		step *= a->shape[i];
		if (last > INT64_MAX || step > INT64_MAX)
			return -1;
	}
	return (last + 1) * (__int128)item;
}

/* Element by element, by its index. */
static void compare(const struct cow_tensor *t, const struct array *a, size_t item)
{
	const unsigned char *from = (unsigned char *)a->data + a->byte_offset;

	/* With strides of 0 there may be more elements than anybody can count. */
	for (int64_t n = 0; n < cow_tensor_numel(t) && n < BYTES; n++) {
		int64_t rest = n, there = 0, here = 0, step = 1;

		for (int i = a->ndim; i-- > 0; rest /= a->shape[i]) {
			int64_t index = rest % a->shape[i];

			there += index * (a->strides ? a->strides[i] : step);
			here += index * cow_tensor_strides(t)[i];
			step *= a->shape[i];
		}
		must(memcmp(from + there * (int64_t)item,
		            (const char *)cow_tensor_data(t) + here * (int64_t)item,
		            item) == 0);
	}
}

/* And out again, where somebody else deletes it. */
static void export(struct cow_tensor *t, bool read_only)
{
	struct versioned *v;
	void *p;

	must(cow_tensor_to_dlpack(t, true, read_only, &p) == 0);
	v = p;
	must(v->array.ndim == cow_tensor_dims(t));
	must(v->array.data == NULL || v->array.data == cow_tensor_data(t));
	v->deleter(v);
}

static void check(struct cow_tensor *t, const struct array *a, bool read_only)
{
	size_t item = cow_dtype_bytes(cow_tensor_dtype(t));
	__int128 bytes = span(a, item);
	void *mine;

	must(a->lanes == 1 && 8 * item == a->bits);
	must(cow_tensor_dims(t) == a->ndim && bytes >= 0);
	must(memcmp(cow_tensor_sizes(t), a->shape,
	            (size_t)a->ndim * sizeof(int64_t)) == 0);
	must((__int128)cow_storage_bytes(cow_tensor_storage(t)) == bytes);
	if (!a->data || bytes + (__int128)a->byte_offset > BYTES)
		return;
	compare(t, a, item);
	export(t, true);
	export(t, false);
	if (bytes == 0)
		return;
	must(cow_tensor_data_mut(t, COW_WRITE_SPARSE, &mine) == 0);
	must(read_only == (mine != (unsigned char *)a->data + a->byte_offset));
	if (read_only)
		memset(mine, 0x5a, (size_t)bytes);
	must(memchr(memory, 0x5a, BYTES) == NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const uint8_t *p = data, *end = data + size;
	struct cow_tensor *t = NULL;
	struct legacy legacy;
	struct versioned v;
	struct said said;
	bool versioned, read_only;
	struct array a = { .data = memory };
	int r, n;

	if (size < sizeof(said))
		return 0;
	memcpy(&said, p, sizeof(said));
	p += sizeof(said);
	for (size_t i = 0; i < BYTES; i++)
		memory[i] = (unsigned char)(i * 11 % 83);
	versioned = said.form & VERSIONED;
	read_only = versioned && said.form & READ_ONLY;
	a.device_type = said.device & 15;
	a.device_id = (int8_t)said.device >> 4;
	a.ndim = (int8_t)said.ndim;
	a.code = said.code;
	a.bits = said.bits;
	a.lanes = said.lanes;
	a.byte_offset = said.offset;
	n = a.ndim > 0 ? a.ndim : 0;
	a.shape = numbers(n, said.form & WIDE, &p, end);
	if (said.form & STRIDES)
		a.strides = numbers(n, said.form & WIDE, &p, end);
	if (said.form & NO_DATA)
		a.data = NULL;
	v = (struct versioned){ .major = said.major, .minor = 99, .context = &deleted,
		                .deleter = delete_versioned,
		                .flags = read_only, .array = a };
	legacy = (struct legacy){ a, &deleted, delete_legacy };
	deleted = 0;
	r = cow_tensor_from_dlpack(versioned ? (void *)&v : &legacy, versioned, &t);
	if (r == 0) {
		must(!versioned || said.major == 1);
		check(t, &a, read_only);
		must(cow_tensor_unref(t) == NULL);
	}
	must(t == NULL || r == 0);
	must(deleted == (r == 0));
	free(a.shape);
	free(a.strides);
	return 0;
}
