/* SPDX-License-Identifier: MIT */
/*
 * Data types: sizes, kinds, names; and the names of formats
 */
#include "tensor/dtype.h"
#include "core/base/base.h"

static const struct {
	uint8_t bytes, kind;
	const char *name;
} types[COW_DTYPES] = {
	[COW_BOOL] = { 1, COW__KIND_BOOL, "bool" },
	[COW_INT8] = { 1, COW__KIND_INT, "int8" },
	[COW_INT16] = { 2, COW__KIND_INT, "int16" },
	[COW_INT32] = { 4, COW__KIND_INT, "int32" },
	[COW_INT64] = { 8, COW__KIND_INT, "int64" },
	[COW_UINT8] = { 1, COW__KIND_UINT, "uint8" },
	[COW_UINT16] = { 2, COW__KIND_UINT, "uint16" },
	[COW_UINT32] = { 4, COW__KIND_UINT, "uint32" },
	[COW_UINT64] = { 8, COW__KIND_UINT, "uint64" },
	[COW_FLOAT16] = { 2, COW__KIND_FLOAT, "float16" },
	[COW_BFLOAT16] = { 2, COW__KIND_FLOAT, "bfloat16" },
	[COW_FLOAT32] = { 4, COW__KIND_FLOAT, "float32" },
	[COW_FLOAT64] = { 8, COW__KIND_FLOAT, "float64" },
	[COW_COMPLEX32] = { 4, COW__KIND_COMPLEX, "complex32" },
	[COW_COMPLEX64] = { 8, COW__KIND_COMPLEX, "complex64" },
	[COW_COMPLEX128] = { 16, COW__KIND_COMPLEX, "complex128" },
	[COW_FLOAT8_E4M3FN] = { 1, COW__KIND_FLOAT, "float8_e4m3fn" },
	[COW_FLOAT8_E5M2] = { 1, COW__KIND_FLOAT, "float8_e5m2" },
	[COW_QUINT8] = { 1, COW__KIND_QUANTIZED, "quint8" },
	[COW_QINT8] = { 1, COW__KIND_QUANTIZED, "qint8" },
	[COW_QINT32] = { 4, COW__KIND_QUANTIZED, "qint32" },
};

bool
cow__dtype_known(int64_t dtype)
{
	return dtype >= 0 && dtype < COW_DTYPES;
}

enum cow__kind
cow__dtype_kind(enum cow_dtype dtype)
{
	return (enum cow__kind)types[dtype].kind;
}

size_t
cow__dtype_alignment(enum cow_dtype dtype)
{
	size_t bytes = types[dtype].bytes;

	return types[dtype].kind == COW__KIND_COMPLEX ? bytes / 2 : bytes;
}

COW_EXPORT size_t
cow_dtype_bytes(enum cow_dtype dtype)
{
	return cow__dtype_known(dtype) ? types[dtype].bytes : 0;
}

COW_EXPORT const char *
cow_dtype_name(enum cow_dtype dtype)
{
	return cow__dtype_known(dtype) ? types[dtype].name : NULL;
}

COW_EXPORT bool
cow_dtype_is_floating(enum cow_dtype dtype)
{
	return cow__dtype_known(dtype) && types[dtype].kind == COW__KIND_FLOAT;
}

COW_EXPORT bool
cow_dtype_is_complex(enum cow_dtype dtype)
{
	return cow__dtype_known(dtype) &&
	       types[dtype].kind == COW__KIND_COMPLEX;
}

COW_EXPORT const char *
cow_format_name(enum cow_format format)
{
	static const char *const names[] = {
		[COW_FORMAT_CONTIGUOUS] = "contiguous",
		[COW_FORMAT_CHANNELS_LAST] = "channels_last",
		[COW_FORMAT_CHANNELS_LAST_3D] = "channels_last_3d",
		[COW_FORMAT_NONE] = "none",
		[COW_FORMAT_PRESERVE] = "preserve",
	};

	return (unsigned)format < sizeof(names) / sizeof(names[0])
	               ? names[format]
	               : NULL;
}
