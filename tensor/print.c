/* SPDX-License-Identifier: MIT */
/*
 * Tensors as text
 *
 *      [[0, 1.5, 2],
 *       [3, 4, 5]]
 *
 * The middle of a long dimension is printed as "...". Floats have six digits, so they are
 * not exact.
 */
#include "core/base/error.h"
#include "tensor/dtype.h"
#include "tensor/say.h"
#include "tensor/strided.h"

struct out {
	char *buf;
	size_t bytes, at;
};

static void
put_text(struct out *o, const char *s)
{
	for (; *s; s++, o->at++)
		if (o->at + 1 < o->bytes)
			o->buf[o->at] = *s;
}

static void
put_integer(struct out *o, uint64_t n)
{
	char digits[24];
	int i = 24;

	digits[--i] = '\0';
	do
		digits[--i] = (char)('0' + n % 10);
	while (n /= 10);
	put_text(o, digits + i);
}

static long double
power_of_ten(int n)
{
	long double p = 1, ten = 10;

	for (int k = n < 0 ? -n : n; k; k >>= 1, ten *= ten)
		if (k & 1)
			p *= ten;
	return n < 0 ? 1 / p : p;
}

/* Writes v > 0 as digits[0].digits[1..5] times a power of ten, and returns the power. */
static int
digits_of(double v, char digits[7])
{
	int power = 0;
	long double x = v;
	uint64_t n;

	while (x >= 10 && power < 400)
		x = v / power_of_ten(++power);
	while (x < 1 && power > -400)
		x = v * power_of_ten(-(--power));
	n = (uint64_t)(x * 100000 + 0.5L);
	if (n >= 1000000) { /* 9.999996 */
		n /= 10;
		power++;
	}
	for (int i = 5; i >= 0; i--, n /= 10)
		digits[i] = (char)('0' + n % 10);
	digits[6] = '\0';
	return power;
}

static void
put_float(struct out *o, double v)
{
	char digits[7], one[2] = { 0, 0 };
	int power, last = 5, point;

	if (v != v) {
		put_text(o, "nan");
		return;
	}
	if (__builtin_signbit(v))
		put_text(o, "-");
	v = v < 0 ? -v : v;
	if (v > 0x1.fffffffffffffp1023 || v == 0) {
		put_text(o, v == 0 ? "0" : "inf");
		return;
	}
	power = digits_of(v, digits);
	while (last > 0 && digits[last] == '0')
		last--;
	point = power < -4 || power > 5 ? 0 : power; /* after which digit */
	if (point < 0)
		put_text(o, "0.");
	for (int i = point; i < -1; i++)
		put_text(o, "0");
	for (int i = 0; i <= last || i <= point; i++) {
		one[0] = i <= 5 ? digits[i] : '0';
		put_text(o, one);
		if (i == point && i < last)
			put_text(o, ".");
	}
	if (point == power)
		return;
	put_text(o, power < 0 ? "e-" : "e+");
	put_integer(o, (uint64_t)(power < 0 ? -power : power));
}

/* Converts the element at `data` to a wider type, with conj and neg applied. */
static void
widen(const struct cow_tensor *t, const char *data, enum cow_dtype dtype,
      void *ret)
{
	struct cow__strided job = {
		.dims = 0,
		.to = { .data = ret, .dtype = dtype },
		.from = { .data = (char *)(uintptr_t)data,
		          .dtype = (enum cow_dtype)t->dtype },
		.conj = t->conj,
		.neg = t->neg,
	};

	cow__strided_copy(&job);
}

static void
put_element(struct out *o, const struct cow_tensor *t, const char *data)
{
	double v[2];
	uint64_t n;

	switch (cow__dtype_kind((enum cow_dtype)t->dtype)) {
	case COW__KIND_BOOL:
		put_text(o, *data ? "true" : "false");
		break;
	case COW__KIND_INT:
		widen(t, data, COW_INT64, &n);
		if ((int64_t)n < 0)
			put_text(o, "-");
		put_integer(o, (int64_t)n < 0 ? 0 - n : n);
		break;
	case COW__KIND_UINT:
		widen(t, data, COW_UINT64, &n);
		put_integer(o, n);
		break;
	case COW__KIND_FLOAT:
		widen(t, data, COW_FLOAT64, v);
		put_float(o, v[0]);
		break;
	case COW__KIND_QUANTIZED: /* was dequantized */
		cow__require(false);
		break;
	case COW__KIND_COMPLEX:
		widen(t, data, COW_COMPLEX128, v);
		put_float(o, v[0]);
		if (v[1] != v[1] || !__builtin_signbit(v[1]))
			put_text(o, "+");
		put_float(o, v[1]);
		put_text(o, "i");
		break;
	}
}

static void
put_dimension(struct out *o, const struct cow_tensor *t, int dim,
              const char *data, int64_t most)
{
	int64_t item = (int64_t)cow_dtype_bytes((enum cow_dtype)t->dtype);
	int64_t size, front;

	if (dim == t->dims) {
		put_element(o, t, data);
		return;
	}
	size = t->sizes[dim];
	front = size > most ? most - most / 2 : size;
	put_text(o, "[");
	for (int64_t i = 0; i < size; i++) {
		if (i > 0)
			put_text(o, dim + 1 < t->dims ? ",\n" : ", ");
		for (int k = 0; i > 0 && dim + 1 < t->dims && k <= dim; k++)
			put_text(o, " ");
		if (size > most && i == front) {
			put_text(o, "...");
			i = size - most / 2 - 1; /* goes on behind it */
			continue;
		}
		put_dimension(o, t, dim + 1, data + i * t->strides[dim] * item,
		              most);
	}
	put_text(o, "]");
}

/* A tensor without elements could have a billion empty brackets, so its sizes are printed. */
static void
put_empty(struct out *o, const struct cow_tensor *t)
{
	for (int i = 0; i < t->dims; i++) {
		put_text(o, "[");
		if (t->sizes[i] == 0)
			break;
	}
	for (int i = 0; i < t->dims; i++) {
		put_text(o, "]");
		if (t->sizes[i] == 0)
			break;
	}
}

/* The tensor to be read: in host memory, dequantized. */
static int
numbers(struct cow_tensor *t, struct cow_tensor **ret)
{
	const struct cow_to to_host = {
		.size = sizeof(to_host),
		.dtype = -1,
		.set_device = true,
		.format = COW_FORMAT_PRESERVE,
	};
	struct cow_tensor *there;
	int r;

	if (!t->quantizer)
		return cow_tensor_to(t, &to_host, ret);
	r = cow_tensor_dequantize(t, &there);
	if (r < 0)
		return r;
	r = cow_tensor_to(there, &to_host, ret);
	(void)cow_tensor_unref(there);
	return r;
}

COW_EXPORT long
cow_tensor_print(struct cow_tensor *t, int64_t most, char *buf, size_t bytes)
{
	struct out o = { buf, bytes, 0 };
	struct cow_tensor *here;
	int r;

	if (!t || (bytes && !buf) || most < 0)
		return cow__error(-EINVAL, "cow_tensor_print: NULL, or a "
		                           "negative number");
	if (t->numel == 0) {
		put_empty(&o, t);
	} else {
		r = cow__tensor_readable(t);
		if (r == 0)
			r = numbers(t, &here);
		if (r < 0)
			return r;
		put_dimension(&o, here, 0, cow_tensor_data(here),
		              most ? most : 6);
		(void)cow_tensor_unref(here);
	}
	if (bytes)
		buf[o.at < bytes ? o.at : bytes - 1] = '\0';
	return (long)o.at;
}
