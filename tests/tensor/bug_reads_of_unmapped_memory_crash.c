/* SPDX-License-Identifier: MIT */
/*
 * Tensors on memory that the program unmapped or protected crashed when they were read
 */
#include "tests/support/harm.h"
#include "tests/support/quantized.h"

static struct cow_tensor *on_block(const struct block *b, size_t from, size_t bytes)
{
	struct cow_tensor *t;

	ok(cow_tensor_on(b->s, COW_UINT8, 1, SIZES((int64_t)bytes), NULL, (int64_t)from, &t));
	return t;
}

/* What is around the part is a tensor like any other. */
static void ck_rest(const struct block *b)
{
	struct cow_tensor *rest = on_block(b, 0, b->z->at), *copy;

	ok(cow_tensor_clone(rest, COW_FORMAT_PRESERVE, &copy));
	ck_pattern(cow_tensor_data(copy), b->z->at, 1);
	ck_assert_int_eq(cow_tensor_equal(rest, copy), 1);
	cow_tensor_unref(copy);
	cow_tensor_unref(rest);
}

START_TEST(they_are_not_read)
{
	struct block b = block_harmed(_i);
	struct cow_tensor *t = on_block(&b, 0, b.z->bytes), *to, *copy;
	const struct cow_to as_floats = { .size = sizeof(as_floats),
		                          .dtype = COW_FLOAT32,
		                          .format = COW_FORMAT_PRESERVE };
	char text[100];

	to = tensor(COW_UINT8, (int64_t)b.z->bytes);
	fails(-EFAULT, cow_tensor_copy(to, t, 0));
	fails(-EFAULT, cow_tensor_copy(to, t, COW_COPY_LAZY));
	fails(-EFAULT, cow_tensor_clone(t, COW_FORMAT_PRESERVE, &copy));
	fails(-EFAULT, cow_tensor_lazy_clone(t, &copy));
	fails(-EFAULT, cow_tensor_to(t, &as_floats, &copy));
	fails(-EFAULT, cow_tensor_equal(t, to));
	fails(-EFAULT, cow_tensor_equal(to, t));
	fails(-EFAULT, (int)cow_tensor_print(t, 0, text, sizeof(text)));
	ck_rest(&b);
	mend(b.p + b.z->at, b.harm);
	ok(cow_tensor_copy(to, t, COW_COPY_LAZY));
	ck_all(cow_tensor_data(to), b.z);
	ck_assert_int_eq(cow_tensor_equal(t, to), 1);
	cow_tensor_unref(to);
	cow_tensor_unref(t);
	block_end(&b);
}
END_TEST

/* From floats to numbers of 8 bits and back. */
START_TEST(quantized_ones_are_not_read)
{
	static const double scale = 0.5;
	static const int64_t zero = 0;
	const struct cow_quantizer q = one_pair(&scale, &zero);
	struct block b = block_harmed(_i);
	int64_t n = (int64_t)b.z->bytes, m = n / 4;
	struct cow_tensor *t, *ret;

	ok(cow_tensor_on_quantized(b.s, COW_QUINT8, 1, &n, NULL, 0, &q, &t));
	fails(-EFAULT, cow_tensor_dequantize(t, &ret));
	fails(-EFAULT, cow_tensor_clone(t, COW_FORMAT_PRESERVE, &ret));
	cow_tensor_unref(t);
	ok(cow_tensor_on(b.s, COW_FLOAT32, 1, &m, NULL, 0, &t));
	fails(-EFAULT, cow_tensor_quantize(t, COW_QUINT8, &q, &ret));
	ck_rest(&b);
	cow_tensor_unref(t);
	block_end(&b);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("bug_reads_of_unmapped_memory_crash");
	TCase *tcase = add_case(suite, "bug_reads_of_unmapped_memory_crash");

	tcase_add_loop_test(tcase, they_are_not_read, 0, SIZES * HARMS);
	tcase_add_loop_test(tcase, quantized_ones_are_not_read, 0, SIZES * HARMS);
	return run_suite(suite);
}
