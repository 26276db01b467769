/* SPDX-License-Identifier: MIT */
/*
 * A ring has registered a block, and the program changes a part of the block
 *
 * The kernel keeps the pages that the ring registered, and reads into them later. So a change of
 * the block must not give the program other pages, not even at a later write.
 */
#include "core/program/advise.h"
#include "tests/support/ring.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { BYTES = 4 << 20, KEPT = 100 * 4096, CHANGED = 2 << 20 };

static bool map_there(void *at)
{
	if (mmap(at, PAGE, PROT_READ | PROT_WRITE,
	         MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != at)
		return false;
	memset(at, 5, PAGE);
	return true;
}

static int dontfork(uintptr_t at) { return cow__advise(at, BYTES, MADV_DONTFORK); }
static int wipeonfork(uintptr_t at) { return cow__advise(at, BYTES, MADV_WIPEONFORK); }
static int dontdump(uintptr_t at) { return cow__advise(at, BYTES, MADV_DONTDUMP); }
static int lock(uintptr_t at) { return cow__lock_pages(at, BYTES, 0); }
static int part_withheld(uintptr_t at) { return cow__advise(at + CHANGED, PAGE, MADV_DONTFORK); }
static int part_emptied(uintptr_t at) { return cow__advise(at + CHANGED, PAGE, MADV_DONTNEED); }
static int part_protected(uintptr_t at) { return cow__protect(at + CHANGED, PAGE, PROT_READ, -1); }
static int part_lent(uintptr_t at) { return cow__lend(at + CHANGED, PAGE); }
static int part_moved(uintptr_t at) { return cow__own(at + CHANGED, PAGE, COW__OWN_TO_MOVE); }
static int part_watched(uintptr_t at) { return cow__own(at + CHANGED, PAGE, COW__OWN_TO_WATCH); }
static int part_unmapped(uintptr_t at) { return cow__unmap(at + CHANGED, PAGE); }

static int part_mapped(uintptr_t at)
{
	return cow__overmap(at + CHANGED, PAGE, 0, map_there, (void *)(at + CHANGED));
}

static const struct {
	const char *name;
	int (*make)(uintptr_t at);
} changes[] = {
	{ "dontfork", dontfork },
	{ "wipeonfork", wipeonfork },
	{ "dontdump", dontdump },
	{ "lock", lock },
	{ "part_withheld", part_withheld },
	{ "part_emptied", part_emptied },
	{ "part_protected", part_protected },
	{ "part_lent", part_lent },
	{ "part_moved", part_moved },
	{ "part_watched", part_watched },
	{ "part_unmapped", part_unmapped },
	{ "part_mapped", part_mapped },
};

static int (*change)(uintptr_t);
static bool in_fork;

static int locked_kib(void)
{
	FILE *f = fopen("/proc/self/status", "r");
	char line[128];
	int kib = -1;

	ck_assert_ptr_nonnull(f);
	while (kib < 0 && fgets(line, sizeof(line), f))
		(void)sscanf(line, "VmLck: %d", &kib);
	fclose(f);
	return kib;
}

/* Is the block as the change left it, without the page that was read into? */
static void is_whole(void *arg)
{
	unsigned char *p = arg;
	bool there = change != part_unmapped;

	if (in_fork)
		ck_assert_int_eq(locked_kib(), 0);
	ck_bytes(p, KEPT, 7);
	ck_bytes(p + KEPT + PAGE, CHANGED - KEPT - PAGE, 7);
	ck_bytes(p + CHANGED + PAGE, BYTES - CHANGED - PAGE, 7);
	if (there)
		ck_bytes(p + CHANGED, PAGE, change == part_mapped ? 5 : change == part_emptied ? 0 : 7);
}

/* Children get no byte of it. */
static void is_denied(void *arg)
{
	int ends[2];

	if (change == wipeonfork) {
		ck_bytes(arg, BYTES, 0);
		return;
	}
	ck_assert_int_eq(pipe(ends), 0);
	ck_assert_int_lt(write(ends[1], (char *)arg + CHANGED, 1), 0);
	ck_assert_int_eq(errno, EFAULT);
}

static void is_denied_but_for_a_hole(void *arg)
{
	if (change == wipeonfork) {
		ck_bytes(arg, CHANGED, 0);
		ck_bytes((unsigned char *)arg + CHANGED + PAGE, BYTES - CHANGED - PAGE, 0);
	} else {
		is_denied(arg);
	}
}

static bool is_advice(void)
{
	return change == dontfork || change == wipeonfork || change == part_withheld;
}

static void check_child(unsigned char *p)
{
	in_fork = true;
	in_child(is_advice() ? is_denied : is_whole, p);
	in_fork = false;
}

START_TEST(reads_arrive)
{
	bool forks = _i & 1, before = _i & 2;
	unsigned char *p = new_block(BYTES, 0), *at = p + KEPT;
	struct iovec page = { at, PAGE };
	struct io_uring ring;
	uint64_t copied, memory = memfd_bytes();
	int ends[2];

	change = changes[_i / 4].make;
	memset(p, 7, BYTES);
	if (before)
		ok(change((uintptr_t)p));
	ck_assert_int_eq(pipe(ends), 0);
	ck_assert_int_eq(io_uring_queue_init(4, &ring, 0), 0);
	at[1] = 7; /* a frozen page is copied before it is registered */
	ck_assert_int_eq(io_uring_register_buffers(&ring, &page, 1), 0);
	if (!before)
		ck_assert_msg(change((uintptr_t)p) == 0, "%s", changes[_i / 4].name);
	if (forks)
		check_child(p);
	at[PAGE - 1] = 9;
	ring_reads(&ring, ends, at);
	ck_assert_msg(memcmp(at, "here they are", 13) == 0, "%s: %s a fork, %s registered",
	              changes[_i / 4].name, forks ? "with" : "without",
	              before ? "before it was" : "while it is");
	ck_assert_int_eq(at[PAGE - 1], 9);
	io_uring_queue_exit(&ring);
	close(ends[0]);
	close(ends[1]);
	/* Without the ring children share the memory again. */
	copied = stats_now().bytes_copied;
	for (int i = 0; i < 2; i++) {
		check_child(p);
		is_whole(p);
		ck_assert_int_eq(memcmp(at, "here they are", 13), 0);
	}
	ck_assert_uint_eq(stats_now().bytes_copied, copied);
	if (change == dontfork || change == wipeonfork) /* it has left the file */
		ck_assert_uint_le(memfd_bytes(), memory + 16 * PAGE);
	cow_block_free(p);
}
END_TEST

/* What the kernel was lent is not the next block's, though the block was not frozen. */
START_TEST(lent_pages_are_not_used_again)
{
	unsigned char *p = new_block(BYTES, 0), *next[2], got[PAGE];
	struct iovec page = { p + KEPT, PAGE };
	struct io_uring ring;
	int ends[2];

	memset(p, 7, BYTES);
	ck_assert_int_eq(pipe(ends), 0);
	ck_assert_int_eq(io_uring_queue_init(4, &ring, 0), 0);
	ck_assert_int_eq(io_uring_register_buffers(&ring, &page, 1), 0);
	ok(cow__lend((uintptr_t)p + CHANGED, PAGE));
	page.iov_base = p + CHANGED;
	ck_assert_int_eq(vmsplice(ends[1], &page, 1, 0), PAGE);
	io_uring_queue_exit(&ring);
	cow_block_free(p);
	for (int i = 0; i < 2; i++)
		next[i] = memset(new_block(BYTES, 0), 8, BYTES);
	ck_assert_int_eq(read(ends[0], got, PAGE), PAGE);
	ck_bytes(got, PAGE, 7);
	for (int i = 0; i < 2; i++)
		cow_block_free(next[i]);
	close(ends[0]);
	close(ends[1]);
}
END_TEST

/* The number of the page of memory; 0: only root is told. */
static uint64_t page_number(const void *at)
{
	int fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
	uint64_t word;

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(pread(fd, &word, 8, (off_t)((uintptr_t)at / PAGE * 8)), 8);
	close(fd);
	return word & (((uint64_t)1 << 55) - 1);
}

/* A device may have what was withheld before: it stays where it is. */
START_TEST(what_was_withheld_stays)
{
	unsigned char *p = new_block(BYTES, 0), *q = new_block(BYTES, 0);
	uint64_t numbers[BYTES / PAGE];
	struct iovec page = { q, PAGE };
	struct io_uring ring;

	memset(p, 7, BYTES);
	memset(q, 7, BYTES);
	ok(dontfork((uintptr_t)p));
	for (size_t i = 0; i < COUNT(numbers); i++)
		numbers[i] = page_number(p + i * PAGE);
	ck_assert_int_eq(io_uring_queue_init(4, &ring, 0), 0);
	ck_assert_int_eq(io_uring_register_buffers(&ring, &page, 1), 0);
	ok(dontfork((uintptr_t)q));
	io_uring_queue_exit(&ring);
	change = dontfork;
	in_child(is_denied, q);
	memset(p, 8, BYTES);
	for (size_t i = 0; i < COUNT(numbers); i++)
		ck_assert_uint_eq(page_number(p + i * PAGE), numbers[i]);
	cow_block_free(p);
	cow_block_free(q);
}
END_TEST

/* Something else freezes the block when the ring is gone, and before the first fork. */
START_TEST(put_off_and_frozen)
{
	uint64_t memory = memfd_bytes();
	unsigned char *p = new_block(BYTES, 0);
	struct iovec page = { p + KEPT, PAGE };
	struct io_uring ring;

	change = _i ? wipeonfork : dontfork;
	memset(p, 7, BYTES);
	ck_assert_int_eq(io_uring_queue_init(4, &ring, 0), 0);
	ck_assert_int_eq(io_uring_register_buffers(&ring, &page, 1), 0);
	ok(change((uintptr_t)p));
	io_uring_queue_exit(&ring);
	ok(cow__unmap((uintptr_t)p + CHANGED, PAGE));
	ck_assert_uint_gt(memfd_bytes(), memory + BYTES / 2);
	in_child(is_denied_but_for_a_hole, p);
	ck_assert_uint_le(memfd_bytes(), memory + 16 * PAGE);
	ck_bytes(p, CHANGED, 7);
	ck_bytes(p + CHANGED + PAGE, BYTES - CHANGED - PAGE, 7);
	cow_block_free(p);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("changes_beside_a_ring");
	TCase *tcase = add_case(suite, "ring");

	if (!ring_exists("changes_beside_a_ring"))
		return 77;
	tcase_add_loop_test(tcase, reads_arrive, 0, 4 * (int)(sizeof(changes) / sizeof(*changes)));
	tcase_add_loop_test(tcase, put_off_and_frozen, 0, 2);
	tcase_add_test(tcase, lent_pages_are_not_used_again);
	tcase_add_test(tcase, what_was_withheld_stays);
	return run_suite(suite);
}
