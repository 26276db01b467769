/* SPDX-License-Identifier: MIT */
/*
 * A program that unloaded the library within two seconds of a large copy crashed: the
 * idle threads of the pool went on in code that was gone.
 */
#include "tests/support/support.h"

#include <cowshed-tensor.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#if !SANITIZED /* there, these threads are not made */
static void *library;

static void *name(const char *symbol)
{
	void *p = dlsym(library, symbol);

	must(p);
	return p;
}

static void copies_and_unloads(void *arg)
{
	int (*make)(enum cow_dtype, int, const int64_t *, void *, void **);
	int (*copy)(void *, void *, uint32_t), (*set)(int);
	void *(*unref)(void *), (*end)(void), *a, *b;
	char path[400];

	(void)arg;
	snprintf(path, sizeof(path), "%s/lib/libcowshed-tensor.so.0",
	         getenv("BUILD") ? getenv("BUILD") : "build/plain");
	library = dlopen(path, RTLD_NOW);
	must(library);
	*(void **)&make = name("cow_tensor_new");
	*(void **)&copy = name("cow_tensor_copy");
	*(void **)&set = name("cow_threads_set");
	*(void **)&end = name("cow_threads_end");
	*(void **)&unref = name("cow_tensor_unref");
	ok(set(4));
	ok(make(COW_INT32, 1, (const int64_t[]){ MIB }, NULL, &a));
	ok(make(COW_INT32, 1, (const int64_t[]){ MIB }, NULL, &b));
	for (int i = 0; i < 20; i++)
		ok(copy(a, b, 0));
	unref(a);
	unref(b);
	must(dlclose(library) == 0);
	end(); /* wakes them, where they are */
}

START_TEST(unloaded_under_its_threads)
{
	in_child(copies_and_unloads, NULL);
}
END_TEST
#endif

int main(void)
{
	Suite *suite = suite_create("bug_unloaded_under_its_threads");
	TCase *tcase = add_case(suite, "regress");

	(void)tcase;
#if SANITIZED
	puts("skip unloaded_under_its_threads sanitizers do not have these threads");
#else
	tcase_add_test(tcase, unloaded_under_its_threads);
#endif
	return run_suite(suite);
}
