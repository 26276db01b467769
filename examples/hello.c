/* SPDX-License-Identifier: MIT */
/*
 * A clone that costs a reference, and a write to it that costs a page
 *
 * The program fills 64 MiB once. The clone copies nothing. Writing one byte of the
 * clone copies the page of that byte. The source keeps its bytes.
 */
#include <cowshed.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void
must(int r)
{
	if (r < 0) {
		fprintf(stderr, "hello: %s\n", cow_last_error());
		exit(1);
	}
}

int
main(void)
{
	struct cow_storage_info info = { .size = sizeof(info) };
	size_t bytes = (size_t)64 << 20;
	struct cow_storage *a, *b;
	void *p;

	must(cow_storage_new(bytes, NULL, &a));
	must(cow_storage_data_mut(a, &p)); /* "I am going to write" */
	memset(p, 'a', bytes);

	must(cow_storage_lazy_clone(a, &b)); /* nothing is copied */
	must(cow_storage_data_mut_range(b, 0, 1, COW_WRITE_AUTO, &p));
	*(char *)p = 'b'; /* one page is */

	must(cow_storage_get_info(b, &info));
	printf("a begins with %.4s\n", (const char *)cow_storage_data(a));
	printf("b begins with %.4s\n", (const char *)cow_storage_data(b));
	printf("of %zu bytes, b has %llu of its own\n", bytes,
	       (unsigned long long)info.bytes_own);
	cow_storage_unref(b);
	cow_storage_unref(a);
	return 0;
}
