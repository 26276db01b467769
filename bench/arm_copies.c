/* SPDX-License-Identifier: MIT */
/*
 * One copy or conversion of 65 536 elements, for an emulator that counts instructions
 *
 *      arm_copies CASE TIMES
 *
 * The case is "memcpy", "none" or one of the table. arm.sh takes the difference of two numbers of
 * times, so what it takes to start does not count.
 */
#include <cowshed-tensor.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SIDE = 256 };

static const struct {
	const char *name;
	enum cow_dtype to, from;
	int turned;
} cases[] = {
	{ "float32", COW_FLOAT32, COW_FLOAT32, 0 },
	{ "float32, transposed", COW_FLOAT32, COW_FLOAT32, 1 },
	{ "uint8, transposed", COW_UINT8, COW_UINT8, 1 },
	{ "float32 to float16", COW_FLOAT16, COW_FLOAT32, 0 },
	{ "float16 to float32", COW_FLOAT32, COW_FLOAT16, 0 },
	{ "float32 to bfloat16", COW_BFLOAT16, COW_FLOAT32, 0 },
	{ "uint8 to float32", COW_FLOAT32, COW_UINT8, 0 },
};

static void
must(int r)
{
	if (r < 0) {
		fprintf(stderr, "arm_copies: %s\n", cow_last_error());
		exit(1);
	}
}

static struct cow_tensor *
square(enum cow_dtype type)
{
	const int64_t sizes[] = { SIDE, SIDE };
	struct cow_tensor *t;
	void *p;

	must(cow_tensor_new(type, 2, sizes, NULL, &t));
	must(cow_storage_data_mut(cow_tensor_storage(t), &p));
	memset(p, 0, cow_storage_bytes(cow_tensor_storage(t)));
	return t;
}

int
main(int argc, char **argv)
{
	long times = argc == 3 ? strtol(argv[2], NULL, 10) : -1;
	static float a[SIDE * SIDE], b[SIDE * SIDE];

	if (times < 0) {
		fprintf(stderr, "usage: arm_copies CASE TIMES\n");
		return 2;
	}
	if (strcmp(argv[1], "memcpy") == 0)
		for (; times > 0; times--) {
			__asm__ volatile("" ::"r"(a), "r"(b) : "memory");
			memcpy(a, b, sizeof(a));
			__asm__ volatile("" ::"r"(a) : "memory");
		}
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct cow_tensor *to, *from, *view = NULL;

		if (strcmp(argv[1], cases[i].name) != 0)
			continue;
		to = square(cases[i].to);
		from = square(cases[i].from);
		if (cases[i].turned)
			must(cow_tensor_transpose(from, 0, 1, &view));
		for (; times > 0; times--)
			must(cow_tensor_copy(to, view ? view : from, 0));
		cow_tensor_unref(view);
		cow_tensor_unref(from);
		cow_tensor_unref(to);
	}
	return 0;
}
