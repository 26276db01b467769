/* SPDX-License-Identifier: MIT */
/*
 * A userfaultfd watches a block, and is told so by number
 *
 * The range must be anonymous memory from then on, as it seems to be: a watch of an allocator's
 * own must not be in the way. Where the kernel allows no userfaultfd this does nothing. With an
 * argument the program asks an ioctl() that another preloaded library has.
 */
#include "healing.h"

#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>

#define BYTES (2 * HUGE_PAGE)

/* Returns the descriptor, or -1. */
static int watch(unsigned char *block, size_t bytes, int by_number, uint64_t mode)
{
	struct uffdio_api api = { .api = UFFD_API };
	struct uffdio_register r = { .mode = mode };
	int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | 1 /* UFFD_USER_MODE_ONLY */);

	if (fd < 0)
		return fd;
	r.range.start = (uintptr_t)block;
	r.range.len = bytes;
	check(ioctl(fd, UFFDIO_API, &api) == 0);
	if ((by_number ? (int)syscall(SYS_ioctl, fd, UFFDIO_REGISTER, &r)
	               : ioctl(fd, UFFDIO_REGISTER, &r)) != 0) {
		check(mode != UFFDIO_REGISTER_MODE_MISSING); /* arm64 had no other for long */
		close(fd);
		return -1;
	}
	return fd;
}

static void filled(int by_number)
{
	void *block;
	int fd;

	check(posix_memalign(&block, HUGE_PAGE, BYTES) == 0);
	fill(block, BYTES, 1);
	fd = watch(block, BYTES, by_number, UFFDIO_REGISTER_MODE_MISSING);
	check(fd < 0 || copied(block, BYTES) == BYTES / PAGE);
	check(holds(block, BYTES, 1));
	close(fd);
	free(block);
}

/* What the program has not touched is missing, and a watch tells of it. Each 2 MiB has a page that
 * was touched, and may be a huge page as a whole: other blocks of this size were filled. */
static void touched_in_part(void)
{
	unsigned char *p;
	void *block[5];
	int fd;

	for (int i = 0; i < 5; i++) {
		check(posix_memalign(&block[i], HUGE_PAGE, BYTES) == 0);
		if (i < 4)
			memset(block[i], 7, BYTES);
	}
	p = block[4];
	for (size_t at = 5 * PAGE; at < BYTES; at += HUGE_PAGE)
		p[at] = 7;
	fd = watch(p, BYTES, 0, UFFDIO_REGISTER_MODE_MISSING);
	check(fd < 0 || copied(p, BYTES) == BYTES / HUGE_PAGE);
	check(p[5 * PAGE] == 7);
	close(fd);
	for (int i = 0; i < 5; i++)
		free(block[i]);
}

/* A watch for writes tells of no write to a page that is not there. So zeros stay. */
static void zeros_stay(void)
{
	unsigned char *p;
	void *block;
	int fd;

	check(posix_memalign(&block, HUGE_PAGE, BYTES) == 0);
	p = block;
	memset(p, 0, BYTES);
	fd = watch(p, BYTES, 0, UFFDIO_REGISTER_MODE_WP);
	check(fd < 0 || copied(p, BYTES) == BYTES / PAGE);
	close(fd);
	free(block);
}

/* What the program has not touched is missing, and a watch tells of it. */
static void untouched(void)
{
	unsigned char *p;
	void *block;
	int fd;

	check(posix_memalign(&block, HUGE_PAGE, 2 * BYTES) == 0);
	p = block;
	p[BYTES + 5 * PAGE] = 7;
	fd = watch(p, 2 * BYTES, 0, UFFDIO_REGISTER_MODE_MISSING);
	check(fd < 0 || copied(p, BYTES) == 0);
	check(p[BYTES + 5 * PAGE] == 7);
	close(fd);
	free(block);
}

int main(int argc, char **argv)
{
	(void)argv;
	if (argc > 1) {
		printf("ioctl: %d\n", ioctl(12345, 1, 0));
		return 0;
	}
	untouched();
	touched_in_part();
	zeros_stay();
	filled(0);
	filled(1);
	puts("registered: done");
	return 0;
}
