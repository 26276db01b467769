/* SPDX-License-Identifier: MIT */
/*
 * Whatever is done the slow way is counted, by its reason
 *
 * Those that need no broken kernel and have no test of their own elsewhere: programs that close
 * what is ours, that keep processes which hold everything, or threads that never rest. The rest:
 * fault_denied.c, test_pinned.c, test_more.c (slots),
 * test_transparent.c, test_layers.c, test_external.c.
 */
#include "tests/support/support.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static uint64_t counted(enum cow_fallback reason)
{
	return stats_now().fallbacks[reason];
}

/* Something that calls the allocator, which is when it may thaw. */
static bool has_grown(void *arg)
{
	const uint64_t *before = arg;

	cow_block_free(new_block(MIB, 0));
	cow_trim();
	return counted((enum cow_fallback)before[0]) > before[1];
}

static void becomes_counted(enum cow_fallback reason, uint64_t before)
{
	uint64_t what[2] = { reason, before };

	ck_assert_msg(wait_until(has_grown, what, 30), "%s is not counted",
	              cow_fallback_name(reason));
}

static void nothing(void *arg)
{
	(void)arg;
}

static void stays(void *arg)
{
	gate_wait(arg);
}

static void reads_and_stays(void *arg)
{
	struct gate *gates = arg;

	gate_open(&gates[1]);
	gate_wait(&gates[0]);
}

/* ---- Thaws that do not happen -------------------------------------------- */

START_TEST(held_by_another_process)
{
	struct gate gates[2];
	unsigned char *held = new_block(4 * MIB, 0), *ours;
	uint64_t before;
	pid_t child;

	gate_make(&gates[0]);
	gate_make(&gates[1]);
	fill(held, 4 * MIB, 1);
	child = child_start(reads_and_stays, gates);
	gate_wait(&gates[1]);
	ours = new_block(4 * MIB, 0);
	fill(ours, 4 * MIB, 2);
	before = counted(COW_FALLBACK_HELD);
	in_child(nothing, NULL);
	becomes_counted(COW_FALLBACK_HELD, before);
	gate_open(&gates[0]);
	child_finish(child);
	ck_pattern(held, 4 * MIB, 1);
	ck_pattern(ours, 4 * MIB, 2);
	cow_block_free(held);
	cow_block_free(ours);
	gate_free(&gates[0]);
	gate_free(&gates[1]);
}
END_TEST

static atomic_bool stop;

static void *never_rests(void *arg)
{
	while (!atomic_load_explicit(&stop, memory_order_relaxed))
		;
	return arg;
}

START_TEST(beside_a_thread_that_may_write)
{
	unsigned char *p = new_block(4 * MIB, 0);
	uint64_t before;
	pthread_t thread;

	fill(p, 4 * MIB, 1);
	must(pthread_create(&thread, NULL, never_rests, NULL) == 0);
	before = counted(COW_FALLBACK_BUSY);
	in_child(nothing, NULL);
	becomes_counted(COW_FALLBACK_BUSY, before);
	atomic_store(&stop, true);
	must(pthread_join(thread, NULL) == 0);
	ck_pattern(p, 4 * MIB, 1);
	cow_block_free(p);
}
END_TEST

/* ---- What a program takes from us ---------------------------------------- */

static void has_the_bytes(void *arg)
{
	ck_pattern((unsigned char *)arg, 4 * MIB, 1);
}

static void close_all_of_ours(void)
{
	char path[64], link[64];

	for (int fd = 3; fd < 4096; fd++) {
		ssize_t n;

		snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
		n = readlink(path, link, sizeof(link) - 1);
		if (n > 0 && (link[n] = '\0', strstr(link, "memfd:cowshed") != NULL))
			must(close(fd) == 0);
	}
}

/* Its pages can't be frozen for the child, they are copied. */
START_TEST(descriptors_that_the_program_closed)
{
	unsigned char *p = new_block(4 * MIB, 0);
	uint64_t before = counted(COW_FALLBACK_DESCRIPTOR);

	fill(p, 4 * MIB, 1);
	in_child(has_the_bytes, p);
	ck_assert_uint_eq(counted(COW_FALLBACK_DESCRIPTOR), before);
	cow_block_free(p);
	p = new_block(4 * MIB, 0);
	fill(p, 4 * MIB, 1);
	close_all_of_ours();
	in_child(has_the_bytes, p);
	ck_assert_uint_gt(counted(COW_FALLBACK_DESCRIPTOR), before);
	ck_pattern(p, 4 * MIB, 1);
	cow_block_free(p);
}
END_TEST

/* Each child that stays keeps the files that it inherited; there are so many and no more. */
START_TEST(children_that_keep_all_files)
{
	enum { CHILDREN = 40 };
	unsigned char *p[CHILDREN];
	pid_t children[CHILDREN];
	struct gate gate;

	gate_make(&gate);
	for (int i = 0; i < CHILDREN; i++) {
		p[i] = new_block(MIB, 0);
		fill(p[i], MIB, (uint64_t)i);
		children[i] = child_start(stays, &gate);
	}
	ck_assert_uint_gt(counted(COW_FALLBACK_SEGMENTS), 0);
	ck_assert_uint_le(stats_now().segments, 34);
	for (int i = 0; i < CHILDREN; i++)
		gate_open(&gate);
	for (int i = 0; i < CHILDREN; i++) {
		child_finish(children[i]);
		ck_pattern(p[i], MIB, (uint64_t)i);
		cow_block_free(p[i]);
	}
	gate_free(&gate);
}
END_TEST

/* ---- More mappings than there can be ------------------------------------- */

enum { VIEW_BYTES = 8192, MAPPINGS_MOST = 200000 };

/* 0: not told. */
static size_t mappings_allowed(void)
{
	FILE *f = fopen("/proc/sys/vm/max_map_count", "r");
	size_t n = 0;

	if (f != NULL && fscanf(f, "%zu", &n) != 1)
		n = 0;
	if (f != NULL)
		fclose(f);
	return n;
}

static void works(void *arg)
{
	unsigned char *p = new_block(3 * MIB, COW_BLOCK_ZERO);

	ck_pattern(data(arg), VIEW_BYTES, 14);
	ck_bytes(p, 3 * MIB, 0);
	fill(p, 3 * MIB, 15);
	cow_block_free(p);
}

/* Near the kernel's limit the engine copies instead, and leaves some for the program. */
START_TEST(more_views_than_mappings)
{
	struct cow_storage *a = new_filled(VIEW_BYTES, 0, 14), **view;
	size_t allowed = mappings_allowed();
	long first = 0; /* mappings when the first view was a copy */
	uint32_t i, views = (uint32_t)(allowed + allowed / 16);

	view = calloc(views, sizeof(struct cow_storage *));
	must(view != NULL);
	for (i = 0; i < views; i++) {
		view[i] = lazy(a);
		memcpy(mut_range(view[i], 0, 4, COW_WRITE_BY_PAGE), &i, 4);
		if (first == 0 && counted(COW_FALLBACK_MAPPINGS) > 0)
			first = footprint_now().maps;
	}
	ck_assert_uint_gt(counted(COW_FALLBACK_MAPPINGS), 0);
	/* Of a share of 48. Behind each view is a gap, which is a mapping, too. */
	ck_assert_int_gt(2 * first, (long)(allowed / 100 * 40));
	ck_assert_int_lt(footprint_now().fds, 64);
	ck_assert_int_lt(footprint_now().maps, (long)(allowed - allowed / 40));
	in_child(works, a);
	for (i = 0; i < views; i++) {
		must(memcmp(data(view[i]), &i, 4) == 0);
		must(memcmp(data(view[i]) + 4, data(a) + 4, VIEW_BYTES - 4) == 0);
		cow_storage_unref(view[i]);
	}
	ck_pattern(data(a), VIEW_BYTES, 14);
	cow_storage_unref(a);
	free(view);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("fallbacks");
	TCase *tcase = add_case(suite, "counted");

	if (UNDER_TSAN)
		puts("skip held_by_another_process TSan's own thread is never quiet");
	else
		tcase_add_test(tcase, held_by_another_process);
	tcase_add_test(tcase, beside_a_thread_that_may_write);
	tcase_add_test(tcase, descriptors_that_the_program_closed);
	tcase_add_test(tcase, children_that_keep_all_files);
	if (UNDER_TSAN)
		puts("skip more_views_than_mappings it takes ten minutes under TSan");
	else if (mappings_allowed() == 0 || mappings_allowed() > MAPPINGS_MOST)
		printf("skip more_views_than_mappings vm.max_map_count is %zu\n",
		       mappings_allowed());
	else
		tcase_add_test(tcase, more_views_than_mappings);
	return run_suite(suite);
}
