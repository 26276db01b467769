/* SPDX-License-Identifier: MIT */
/*
 * Another thread closed our descriptor, and opened its own file under that number, between
 * the check and the use. Then memory showed that file, a hole was punched into it, and it was
 * given away as ours.
 *
 * The program has a gate of its own, which does what the other thread would do just before
 * the use.
 */
#define cow__syscall real_gate
#include "memfd/syscall.c"
#undef cow__syscall

#include "memfd/map.h"
#include "memfd/memfd.h"
#include "tests/support/support.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static struct cow__descriptor d;
static int foreign, saved;
static long swap_at = -1, deny = -1;
static int asked[512];
static bool no_room; /* for a mapping at any address */

long cow__syscall(long nr, long a, long b, long c, long e, long f, long g)
{
	if (nr >= 0 && nr < (long)COUNT(asked))
		asked[nr]++;
	if (nr == SYS_mmap && a == 0 && no_room)
		return -ENOMEM;
	if (nr == deny)
		return -EPERM;
	if (nr == swap_at) {
		swap_at = -1;
		must(dup2(foreign, d.fd) == d.fd);
	}
	return real_gate(nr, a, b, c, e, f, g);
}

static void fill_file(int fd, char with)
{
	char page[PAGE];

	memset(page, with, PAGE);
	must(pwrite(fd, page, PAGE, 0) == PAGE);
}

static char first_byte(int fd)
{
	char byte;

	must(pread(fd, &byte, 1, 0) == 1);
	return byte;
}

static void *waits(void *arg)
{
	gate_wait(arg);
	return NULL;
}

/* Ours, with 'o'; the program's with 'p'. */
static void begin(void)
{
	struct cow__descriptor other;

	must(cow__memfd_new_open("ours", PAGE, &d) == 0);
	must(cow__memfd_new_open("program's", PAGE, &other) == 0);
	foreign = other.fd;
	saved = dup(d.fd);
	fill_file(d.fd, 'o');
	fill_file(foreign, 'p');
}

static void with_thread(void (*what)(void))
{
	pthread_t thread;
	struct gate end;

	begin();
	gate_make(&end);
	must(pthread_create(&thread, NULL, waits, &end) == 0);
	what();
	gate_open(&end);
	must(pthread_join(thread, NULL) == 0);
	gate_free(&end);
}

static void untouched(void)
{
	ck_assert_int_eq(swap_at, -1);
	ck_assert_int_eq(first_byte(foreign), 'p');
	ck_assert_int_eq(first_byte(saved), 'o');
}

/* Memory with 'm' of another file, over which is mapped. */
static char *memory(void)
{
	struct cow__descriptor m;
	uintptr_t at;

	must(cow__map_reserve(PAGE, PAGE, &at) == 0);
	must(cow__memfd_new_open("memory", PAGE, &m) == 0);
	must(cow__map_shared(at, PAGE, &m, 0, true) == 0);
	memset((char *)at, 'm', PAGE);
	return (char *)at;
}

static int maps(char *at, int how)
{
	const struct cow__descriptor was = d;

	return how == 0   ? cow__map_shared((uintptr_t)at, PAGE, &was, 0, true)
	       : how == 1 ? cow__map_private((uintptr_t)at, PAGE, &was, 0, true)
	                  : cow__map_protected((uintptr_t)at, PAGE, &was, 0, true,
	                                       COW__MAP_READ_WRITE);
}

/* A private mapping is made in place, so nothing is there any more. */
static void map_keeps_what_was_there(void)
{
	for (int how = 0; how < 3; how++) {
		char *at = memory();

		swap_at = SYS_mmap;
		ck_assert_int_eq(maps(at, how), -EBADF);
		if (how == 1) {
			ck_assert_int_eq(cow__map_readable((uintptr_t)at, PAGE), -EFAULT);
		} else {
			ck_assert_int_eq(*at, 'm');
			*at = 'w';
		}
		untouched();
		must(dup2(saved, d.fd) == d.fd);
		ck_assert_int_eq(maps(at, how), 0);
		ck_assert_int_eq(*at, 'o');
	}
}

START_TEST(mapping_keeps_what_was_there)
{
	with_thread(map_keeps_what_was_there);
}
END_TEST

static void map_without_room(void)
{
	char *at = memory();

	no_room = true;
	ck_assert_int_eq(maps(at, 0), 0);
	ck_assert_int_eq(*at, 'o');
	swap_at = SYS_mmap;
	ck_assert_int_eq(maps(at, 0), -EBADF);
	no_room = false;
	/* It shows nothing, and certainly not the program's file. */
	ck_assert_int_eq(cow__map_readable((uintptr_t)at, PAGE), -EFAULT);
	untouched();
}

/* Where a limit forbids a second mapping, it is mapped in place all the same. */
START_TEST(mapping_without_room)
{
	with_thread(map_without_room);
}
END_TEST

static void map_in_place(void)
{
	char *at = memory();

	deny = SYS_mremap;
	ck_assert_int_eq(maps(at, 0), 0);
	ck_assert_int_eq(*at, 'o');
	deny = -1;
}

START_TEST(mapping_where_moves_are_denied)
{
	with_thread(map_in_place);
}
END_TEST

static void somewhere(void)
{
	const struct cow__descriptor was = d;
	uintptr_t at;

	swap_at = SYS_mmap;
	ck_assert_int_eq(cow__map_somewhere(PAGE, &was, &at), -EBADF);
	untouched();
}

START_TEST(mapping_somewhere)
{
	with_thread(somewhere);
}
END_TEST

static void duplicates(void)
{
	const struct cow__descriptor was = d;
	struct cow__descriptor copy = COW__NO_DESCRIPTOR;
	int fd = -1;

	swap_at = SYS_fcntl;
	ck_assert_int_eq(cow__descriptor_give(&was, &fd), -EBADF);
	ck_assert_int_eq(fd, -1);
	must(dup2(saved, d.fd) == d.fd);
	swap_at = SYS_fcntl;
	ck_assert_int_eq(cow__descriptor_dup(&was, &copy), -EBADF);
	ck_assert_int_eq(copy.fd, -1);
	untouched();
}

START_TEST(duplicate_is_ours)
{
	with_thread(duplicates);
}
END_TEST

static void punches(void)
{
	const struct cow__descriptor was = d;

	swap_at = SYS_mmap;
	ck_assert_int_eq(cow__memfd_punch(&was, 0, PAGE), -EBADF);
	swap_at = -1;
	untouched();
	must(dup2(saved, d.fd) == d.fd);
	ck_assert_int_eq(cow__memfd_punch(&was, 0, PAGE), 0);
	ck_assert_int_eq(first_byte(saved), 0);
	/* Nothing punches by the number. */
	ck_assert_int_eq(asked[SYS_fallocate], 0);
}

START_TEST(hole_is_punched_into_ours)
{
	with_thread(punches);
}
END_TEST

static void answers(void)
{
	const struct cow__descriptor was = d;
	uint64_t start, end;

	swap_at = SYS_fcntl;
	ck_assert_int_eq(cow__memfd_seal(&was, COW__SEALED_SIZE), -EBADF);
	must(dup2(saved, d.fd) == d.fd);
	swap_at = SYS_lseek;
	ck_assert_int_eq(cow__memfd_data(&was, 0, PAGE, &start, &end), -EBADF);
	must(dup2(saved, d.fd) == d.fd);
	swap_at = SYS_pread64;
	ck_assert_int_eq(cow__memfd_zeros(&was, 0, PAGE), -EBADF);
	must(dup2(saved, d.fd) == d.fd);
	swap_at = SYS_fcntl;
	ck_assert_int_eq(cow__memfd_lock_taken(&was, 0), -EBADF);
	untouched();
}

START_TEST(answers_about_another_file)
{
	with_thread(answers);
}
END_TEST

/* A process with one thread makes no further call. Sanitizers have threads of their own, and
 * an old libc does not tell. */
START_TEST(one_thread_asks_once)
{
	const struct cow__descriptor *was = &d;
	char *at = memory();

	if (!cow__descriptor_alone())
		return;
	begin();
	memset(asked, 0, sizeof(asked));
	ck_assert_int_eq(maps(at, 0), 0);
	ck_assert_int_eq(asked[SYS_fstat], 1);
	ck_assert_int_eq(asked[SYS_mmap], 1);
	ck_assert_int_eq(asked[SYS_mremap], 0);
	ck_assert_int_eq(cow__memfd_punch(was, 0, PAGE), 0);
	ck_assert_int_eq(asked[SYS_fstat], 2);
	ck_assert_int_eq(asked[SYS_mmap], 1);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("between check and use");
	TCase *tcase = add_case(suite, "another thread");

	tcase_add_test(tcase, mapping_keeps_what_was_there);
	tcase_add_test(tcase, mapping_without_room);
	tcase_add_test(tcase, mapping_where_moves_are_denied);
	tcase_add_test(tcase, mapping_somewhere);
	tcase_add_test(tcase, duplicate_is_ours);
	tcase_add_test(tcase, hole_is_punched_into_ours);
	tcase_add_test(tcase, answers_about_another_file);
	tcase_add_test(tcase, one_thread_asks_once);
	return run_suite(suite);
}
