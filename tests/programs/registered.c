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
static int watch(unsigned char *block, size_t bytes, int by_number)
{
	struct uffdio_api api = { .api = UFFD_API };
	struct uffdio_register r = { .mode = UFFDIO_REGISTER_MODE_MISSING };
	int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | 1 /* UFFD_USER_MODE_ONLY */);

	if (fd < 0)
		return fd;
	r.range.start = (uintptr_t)block;
	r.range.len = bytes;
	check(ioctl(fd, UFFDIO_API, &api) == 0);
	check((by_number ? (int)syscall(SYS_ioctl, fd, UFFDIO_REGISTER, &r)
	                 : ioctl(fd, UFFDIO_REGISTER, &r)) == 0);
	return fd;
}

static void filled(int by_number)
{
	void *block;
	int fd;

	check(posix_memalign(&block, HUGE_PAGE, BYTES) == 0);
	fill(block, BYTES, 1);
	fd = watch(block, BYTES, by_number);
	check(fd < 0 || copied(block, BYTES) == BYTES / PAGE);
	check(holds(block, BYTES, 1));
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
	fd = watch(p, 2 * BYTES, 0);
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
	filled(0);
	filled(1);
	puts("registered: done");
	return 0;
}
