/* SPDX-License-Identifier: MIT */
/*
 * Sentences about failures that name tensors. See the header.
 */
#include "tensor/say.h"
#include "core/base/error.h"

#include <stdarg.h>

/* A sentence has no room for more sizes. */
#define SIZES_MOST 8

static void
add_sizes(int dims, const int64_t *sizes)
{
	cow__error_add("[");
	for (int i = 0; i < dims; i++) {
		if (i)
			cow__error_add(", ");
		if (i == SIZES_MOST) {
			cow__error_add("...");
			break;
		}
		cow__error_add_number(sizes[i]);
	}
	cow__error_add("]");
}

static void
add_name(const char *name)
{
	cow__error_add(name ? name : "unknown");
}

static void
add_device(const struct cow_device *d)
{
	static const char *const names[] = { "cpu", "meta", "cuda", "private" };

	if ((unsigned)d->type < sizeof(names) / sizeof(names[0]))
		cow__error_add(names[d->type]);
	else
		cow__error_add_number(d->type);
	if (d->type != COW_DEVICE_CPU && d->type != COW_DEVICE_META) {
		cow__error_add(":");
		cow__error_add_number(d->index);
	}
}

int
cow__say(int error, const char *s, ...)
{
	const struct cow_tensor *t;
	const struct cow__shape *shape;
	va_list list;

	cow__error_begin();
	va_start(list, s);
	for (; *s; s++) {
		char one[2] = { *s, '\0' };

		if (*s != '#') {
			cow__error_add(one);
			continue;
		}
		switch (*++s) {
		case 't':
			t = va_arg(list, const struct cow_tensor *);
			add_name(cow_dtype_name(cow_tensor_dtype(t)));
			cow__error_add(" ");
			add_sizes(t->dims, t->sizes);
			break;
		case 'z':
			shape = va_arg(list, const struct cow__shape *);
			add_sizes(shape->dims, shape->sizes);
			break;
		case 'd':
			cow__error_add_number(va_arg(list, int64_t));
			break;
		case 'y':
			add_name(cow_dtype_name(va_arg(list, enum cow_dtype)));
			break;
		case 'f':
			add_name(cow_format_name(
			        va_arg(list, enum cow_format)));
			break;
		case 'v':
			add_device(va_arg(list, const struct cow_device *));
			break;
		case 's':
			cow__error_add(va_arg(list, const char *));
			break;
		default:
			cow__require(false);
		}
	}
	va_end(list);
	return error;
}
