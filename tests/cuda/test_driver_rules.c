/* SPDX-License-Identifier: MIT */
/*
 * The reference driver: kernels, copies of boxes, and every mistake that it must report
 */
#include "tests/support/driver.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { GRAIN = 2 << 20, WORDS = 4096, BYTES = WORDS * 4 };

static struct cow__cu_stream *stream;

static void start(void)
{
	driver_start();
	ref.set(REF_HOLD, 1);
	cu_ok(cu->stream_create(&stream, COW_CU_STREAM_NON_BLOCKING, 0));
}

static cow__cu_ptr new_memory(size_t bytes)
{
	cow__cu_ptr p;

	cu_ok(cu->mem_alloc(&p, bytes));
	return p;
}

/* ---- Kernels ------------------------------------------------------------- */

static struct cow__cu_module *module;

static struct cow__cu_function *kernel(const char *name)
{
	struct cow__cu_function *f;

	must(cow__cu_own_kernels() != NULL);
	if (!module)
		cu_ok(cu->module_load(&module, cow__cu_own_kernels()));
	cu_ok(cu->module_get_function(&f, module, name));
	return f;
}

static enum cow__cu_result fill_words(cow__cu_ptr to, uint32_t value, size_t count)
{
	void *parameters[] = { &to, &value, &count };

	return cu->launch(kernel("cow__fill_words"), 3, 1, 1, 64, 1, 1, 0, stream, parameters,
	                  NULL);
}

START_TEST(kernels_run)
{
	struct cow__cu_function *f;
	cow__cu_ptr p, handle;
	uint32_t words[WORDS];
	void *parameters[] = { &p };
	int i;

	start();
	p = new_memory(BYTES);
	handle = map_physical(new_physical(0, GRAIN), GRAIN);
	cu_ok(fill_words(p, 7, WORDS));
	cu_ok(fill_words(handle, 8, GRAIN / 4));
	cu_gives(COW_CU_NOT_READY, cu->stream_query(stream));
	cu_ok(cu->copy_to_host(words, p, BYTES, stream));
	for (i = 0; i < WORDS; i++)
		ck_assert_uint_eq(words[i], 7);
	cu_ok(cu->copy_to_host(words, handle + GRAIN - BYTES, BYTES, stream));
	for (i = 0; i < WORDS; i++)
		ck_assert_uint_eq(words[i], 8);
	/* Barriers and shared memory. */
	for (i = 0; i < WORDS; i++)
		words[i] = (uint32_t)i;
	cu_ok(cu->copy_to_device(p, words, BYTES, stream));
	f = kernel("ref_turn_around");
	cu_ok(cu->launch(f, WORDS / 256, 1, 1, 256, 1, 1, 0, stream, parameters, NULL));
	cu_ok(cu->copy_to_host(words, p, BYTES, stream));
	for (i = 0; i < WORDS; i++)
		ck_assert_uint_eq(words[i], (uint32_t)(i / 256 * 256 + 255 - i % 256));
	cu_gives(COW_CU_INVALID_VALUE,
	         cu->launch(f, 0, 1, 1, 256, 1, 1, 0, stream, parameters, NULL));
	cu_gives(COW_CU_INVALID_VALUE,
	         cu->launch(f, 1, 1, 1, 1024, 2, 1, 0, stream, parameters, NULL));
	cu_gives(COW_CU_INVALID_VALUE, cu->launch(f, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL));
	cu_gives(COW_CU_NOT_FOUND, cu->module_get_function(&f, module, "no_such_kernel"));
}
END_TEST

/* Mistakes that end the process in strict mode: else the context is lost. */
START_TEST(lenient_kernels_fail)
{
	start();
	ref.set(REF_STRICT, 0);
	cu_ok(fill_words(map_physical(new_physical(0, GRAIN), GRAIN) + GRAIN, 7, WORDS));
	cu_gives(COW_CU_ILLEGAL_ADDRESS, cu->stream_synchronize(stream));
	cu_gives(COW_CU_ILLEGAL_ADDRESS, cu->ctx_synchronize());
}
END_TEST

/* ---- Boxes --------------------------------------------------------------- */

START_TEST(boxes)
{
	unsigned char host[6 * 5 * 16], back[6 * 5 * 16];
	struct cow__cu_copy3d c = { .src_type = COW_CU_MEMORY_HOST, .src_host = host,
		                    .src_pitch = 16, .src_height = 5, .src_x = 3, .src_y = 1,
		                    .src_z = 2, .dst_type = COW_CU_MEMORY_DEVICE,
		                    .dst_pitch = 8, .dst_height = 3, .width_bytes = 7,
		                    .height = 3, .depth = 4 };
	struct cow__cu_copy2d d = { .src_type = COW_CU_MEMORY_DEVICE, .src_pitch = 8,
		                    .dst_type = COW_CU_MEMORY_HOST, .dst_host = back,
		                    .dst_pitch = 7, .width_bytes = 7, .height = 12 };
	int x, y, z;

	start();
	for (x = 0; x < (int)sizeof(host); x++)
		host[x] = (unsigned char)(x * 7);
	c.dst_device = d.src_device = new_memory(8 * 3 * 4);
	cu_ok(cu->copy_3d(&c, stream));
	cu_ok(cu->copy_2d(&d, stream));
	for (z = 0; z < 4; z++)
		for (y = 0; y < 3; y++)
			for (x = 0; x < 7; x++)
				ck_assert_int_eq(back[(z * 3 + y) * 7 + x],
				                 host[((z + 2) * 5 + y + 1) * 16 + x + 3]);
	d.src_pitch = 6;
	cu_gives(COW_CU_INVALID_VALUE, cu->copy_2d(&d, stream));
	d.src_pitch = 9; /* ends behind the allocation */
	cu_gives(COW_CU_INVALID_VALUE, cu->copy_2d(&d, stream));
	c.dst_type = COW_CU_MEMORY_ARRAY;
	cu_gives(COW_CU_INVALID_VALUE, cu->copy_3d(&c, stream));
}
END_TEST

START_TEST(ends_are_exact)
{
	cow__cu_ptr p;
	unsigned char host[101];

	start();
	p = new_memory(100);
	cu_ok(cu->set_8(p, 1, 100, stream));
	cu_gives(COW_CU_INVALID_VALUE, cu->set_8(p, 1, 101, stream));
	cu_gives(COW_CU_INVALID_VALUE, cu->set_32(p + 2, 1, 1, stream));
	cu_gives(COW_CU_INVALID_VALUE, cu->copy_to_host(host, p, 101, stream));
	cu_gives(COW_CU_INVALID_VALUE, cu->copy_within(p, p + 4 * (cow__cu_ptr)GRAIN, 8, stream));
	cu_ok(cu->mem_free(p));
	cu_gives(COW_CU_INVALID_VALUE, cu->set_8(p, 1, 1, stream));
}
END_TEST

START_TEST(host_memory)
{
	unsigned char *mine = malloc(BYTES);
	unsigned flags;
	cow__cu_ptr p;

	start();
	p = new_memory(BYTES);
	cu_gives(COW_CU_HOST_MEMORY_NOT_REGISTERED, cu->host_unregister(mine));
	cu_ok(cu->host_register(mine, BYTES, COW_CU_HOST_PORTABLE));
	cu_gives(COW_CU_HOST_MEMORY_ALREADY_REGISTERED, cu->host_register(mine + 50, 10, 0));
	cu_ok(cu->host_get_flags(&flags, mine + 100));
	ck_assert_uint_eq(flags, COW_CU_HOST_PORTABLE);
	ref.set(REF_PAGEABLE, 0);
	cu_ok(cu->copy_to_device(p, mine, BYTES, stream));
	cu_ok(cu->stream_synchronize(stream));
	cu_ok(cu->host_unregister(mine));
	ref.set(REF_STRICT, 0);
	cu_gives(COW_CU_INVALID_VALUE, cu->copy_to_device(p, mine, BYTES, stream));
	free(mine);
}
END_TEST

/* Memory of another device: the driver copies what cuMemAlloc gave; what cuMemMap mapped
 * needs access, or a copy that names both contexts. */
START_TEST(peers)
{
	struct cow__cu_context *one;
	cow__cu_ptr a, b, far;

	start();
	ref.set(REF_STRICT, 0);
	one = driver_context(1);
	a = new_memory(64);
	far = map_physical(new_physical(1, GRAIN), GRAIN);
	cu_ok(cu->ctx_push_current(one));
	b = new_memory(64);
	cu_ok(cu->ctx_pop_current(NULL));
	cu_ok(cu->copy_within(a, b, 64, stream));
	cu_gives(COW_CU_ILLEGAL_ADDRESS, cu->copy_within(a, far, 64, stream));
	cu_ok(cu->copy_peer(a, driver_context(0), far, one, 64, stream));
	give_access(far, GRAIN, 0, COW_CU_ACCESS_READ);
	cu_ok(cu->copy_within(a, far, 64, stream));
	cu_gives(COW_CU_ILLEGAL_ADDRESS, cu->copy_within(far, a, 64, stream));
	cu_ok(cu->stream_synchronize(stream));
	/* A kernel needs peer access to the other's cuMemAlloc memory. */
	cu_ok(cu->enable_peer(one, 0));
	cu_ok(fill_words(b, 1, 16));
	cu_ok(cu->stream_synchronize(stream));
}
END_TEST

/* ---- Mistakes ------------------------------------------------------------ */

static void no_access(void *unused)
{
	cow__cu_handle h = new_physical(0, GRAIN);
	cow__cu_ptr p;

	(void)unused;
	cu_ok(cu->mem_address_reserve(&p, GRAIN, 0, 0, 0));
	cu_ok(cu->mem_map(p, GRAIN, 0, h, 0));
	(void)cu->set_8(p, 1, 1, stream);
}

static void unmap_early(void *unused)
{
	cow__cu_ptr p = map_physical(new_physical(0, GRAIN), GRAIN);

	(void)unused;
	cu_ok(cu->set_8(p, 1, 1, stream));
	(void)cu->mem_unmap(p, GRAIN);
}

static void unregister_early(void *unused)
{
	static char mine[BYTES];

	(void)unused;
	cu_ok(cu->host_register(mine, BYTES, 0));
	cu_ok(cu->copy_to_device(new_memory(BYTES), mine, BYTES, stream));
	(void)cu->host_unregister(mine);
}

static void copy_unpinned(void *unused)
{
	static char mine[BYTES];

	(void)unused;
	ref.set(REF_PAGEABLE, 0);
	(void)cu->copy_to_device(new_memory(BYTES), mine, BYTES, stream);
}

static void copy_pinned_in_part(void *unused)
{
	static char mine[BYTES];

	(void)unused;
	cu_ok(cu->host_register(mine, BYTES / 2, 0));
	(void)cu->copy_to_device(new_memory(BYTES), mine, BYTES, stream);
}

static void destroyed_stream(void *unused)
{
	(void)unused;
	cu_ok(cu->stream_destroy(stream));
	(void)cu->stream_synchronize(stream);
}

static void destroyed_event(void *unused)
{
	struct cow__cu_event *e;

	(void)unused;
	cu_ok(cu->event_create(&e, 0));
	cu_ok(cu->event_destroy(e));
	(void)cu->event_record(e, stream);
}

static void free_twice(void *unused)
{
	cow__cu_ptr p = new_memory(64);

	(void)unused;
	cu_ok(cu->mem_free(p));
	(void)cu->mem_free(p);
}

static void release_twice(void *unused)
{
	cow__cu_handle h = new_physical(0, GRAIN);

	(void)unused;
	cu_ok(cu->mem_release(h));
	(void)cu->mem_release(h);
}

static void after_free_async(void *unused)
{
	cow__cu_ptr p;

	(void)unused;
	cu_ok(cu->mem_alloc_async(&p, 64, stream));
	cu_ok(cu->set_8(p, 1, 64, stream));
	cu_ok(cu->mem_free_async(p, stream));
	(void)cu->set_8(p, 1, 64, stream);
}

static void overlap(void *unused)
{
	cow__cu_ptr p = new_memory(64);

	(void)unused;
	(void)cu->copy_within(p, p + 8, 16, stream);
}

static void kernel_astray(void *unused)
{
	(void)unused;
	cu_ok(fill_words(map_physical(new_physical(0, GRAIN), GRAIN), 7, GRAIN));
	(void)cu->stream_synchronize(stream);
}

static void kernel_without_peer(void *unused)
{
	cow__cu_ptr p;

	(void)unused;
	cu_ok(cu->ctx_push_current(driver_context(1)));
	p = new_memory(64);
	cu_ok(cu->ctx_pop_current(NULL));
	cu_ok(fill_words(p, 7, 16));
	(void)cu->stream_synchronize(stream);
}

static void unload_early(void *unused)
{
	(void)unused;
	cu_ok(fill_words(new_memory(64), 7, 16));
	(void)cu->module_unload(module);
}

static void host_touches(void *unused)
{
	(void)unused;
	(void)kernel("cow__fill_words");
	*(volatile char *)(uintptr_t)new_memory(64) = 1;
}

static const struct {
	child_fn *body;
	const char *words;
} mistakes[] = {
	{ no_access, "cuMemsetD8Async: device 0 has no access" },
	{ unmap_early, "cuMemUnmap: work that has not been done uses" },
	{ unregister_early, "cuMemHostUnregister: work that has not been done uses" },
	{ copy_unpinned, "is not pinned, so this copy is not asynchronous" },
	{ copy_pinned_in_part, "are pinned in part" },
	{ destroyed_stream, "cuStreamSynchronize:" },
	{ destroyed_event, "is a destroyed event" },
	{ free_twice, "cuMemFree:" },
	{ release_twice, "is no handle" },
	{ after_free_async, "was given to cuMemFreeAsync" },
	{ overlap, "source and destination overlap" },
	{ kernel_astray, "kernel cow__fill_words touched" },
	{ kernel_without_peer, "kernel cow__fill_words touched" },
	{ unload_early, "cuModuleUnload: 1 of its kernels" },
	{ host_touches, "the host touched device memory" },
};

static void make_mistake(void *arg)
{
	start();
	((void (*)(void *))mistakes[*(int *)arg].body)(NULL);
}

START_TEST(mistakes_end_it)
{
	in_child_scolded(make_mistake, &_i, mistakes[_i].words);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("driver_rules");
	TCase *work = add_bare_case(suite, "work"), *rules = add_bare_case(suite, "rules");

	tcase_add_test(work, kernels_run);
	tcase_add_test(work, lenient_kernels_fail);
	tcase_add_test(work, boxes);
	tcase_add_test(work, ends_are_exact);
	tcase_add_test(work, host_memory);
	tcase_add_test(work, peers);
	tcase_add_loop_test(rules, mistakes_end_it, 0, sizeof(mistakes) / sizeof(*mistakes));
	return run_suite(suite);
}
