/* SPDX-License-Identifier: MIT */
/*
 * Requests that can't be served: NULL and errno, and all memory as before
 */
#define _GNU_SOURCE
#include "program.h"

#include <fcntl.h>
#include <malloc.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/uio.h>

/* The compiler need not know how large. */
static volatile size_t huge[] = {
	SIZE_MAX,         SIZE_MAX - 1,     SIZE_MAX - 4095, SIZE_MAX / 2 + 1,
	SIZE_MAX / 2,     SIZE_MAX / 2 - 1, (size_t)1 << 62, (size_t)1 << 50,
	(size_t)1 << 47,
};

static void too_large(size_t bytes)
{
	unsigned char *kept = get_filled(300000, 1), *small = get_filled(99, 2);
	void *p = kept;

	errno = 0;
	check(malloc(bytes) == NULL && errno == ENOMEM);
	errno = 0;
	check(calloc(1, bytes) == NULL && errno == ENOMEM);
	errno = 0;
	check(calloc(bytes, 1) == NULL && errno == ENOMEM);
	errno = 0;
	check(realloc(kept, bytes) == NULL && errno == ENOMEM);
	check(holds(kept, 300000, 1));
	errno = 0;
	check(realloc(small, bytes) == NULL && errno == ENOMEM);
	check(holds(small, 99, 2));
	errno = 0;
	check(memalign(8192, bytes) == NULL && errno == ENOMEM);
	errno = 0;
	check(aligned_alloc(4096, bytes) == NULL && errno == ENOMEM);
	errno = 0;
	check(valloc(bytes) == NULL && errno == ENOMEM);
	errno = 0;
	check(pvalloc(bytes) == NULL && errno == ENOMEM);
	check(posix_memalign(&p, 4096, bytes) == ENOMEM);
	check(p == kept);
	free(kept);
	free(small);
}

static void overflowing_products(void)
{
	volatile size_t half = SIZE_MAX / 2 + 1, root = (size_t)1 << 32;
	unsigned char *volatile kept = get_filled(200000, 3); /* which stays, the compiler does not know */

	errno = 0;
	check(calloc(half, 2) == NULL && errno == ENOMEM);
	errno = 0;
	check(calloc(root, root) == NULL && errno == ENOMEM);
	errno = 0;
	check(reallocarray(kept, half, 2) == NULL && errno == ENOMEM);
	errno = 0;
	check(reallocarray(kept, root + 1, root) == NULL && errno == ENOMEM);
	errno = 0;
	check(reallocarray(NULL, root, root) == NULL && errno == ENOMEM);
	check(holds(kept, 200000, 3));
	free(kept);
}

static void bad_alignments(void)
{
	static const size_t bad[] = { 0, 1, 2, 3, 4, 7, 12, 24, 4097, 6144 };
	void *p = &p;
	size_t i;

	for (i = 0; i < COUNT(bad); i++) {
		errno = 77;
		check(posix_memalign(&p, bad[i], 100) == EINVAL);
		check(posix_memalign(&p, bad[i], 300000) == EINVAL);
		check(p == &p && errno == 77);
	}
	errno = 0;
	check(memalign(SIZE_MAX / 2 + 2, 100000) == NULL && errno == EINVAL);
}

static void nothing_at_all(void)
{
	void *p = malloc(0), *q = calloc(0, 5), *r = calloc(5, 0), *s = NULL;

	check(p != NULL && q != NULL && r != NULL);
	check(p != q && q != r && p != r);
	free(p);
	free(q);
	free(r);
	check(posix_memalign(&s, 4096, 0) == 0);
	free(s);
	p = realloc(NULL, 0);
	check(p != NULL);
	free(p);
	/* With glibc this is free(). */
	check(realloc(malloc(300000), 0) == NULL);
	check(realloc(malloc(30), 0) == NULL);
}

/* free() must not disturb errno. */
static void errno_stays(void)
{
	static const size_t sizes[] = { 10, 5000, 70000, 3 * MIB };
	size_t i;
	void *p;

	for (i = 0; i < COUNT(sizes); i++) {
		p = get_filled(sizes[i], 4);
		errno = 1234;
		free(p);
		check(errno == 1234);
		p = malloc(sizes[i]);
		check(p != NULL && errno == 1234);
		free(p);
	}
}

/* The kernel is asked with an address that can't be read: its error, and no signal. */
static void bad_pointers(void)
{
	unsigned char *page = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE,
	                           MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct iovec *parts = (struct iovec *)(page + PAGE) - 1;
	void *bad[] = { (void *)8, page + PAGE, page + PAGE - 8 };
	int ends[2];
	long r;

	check(page != MAP_FAILED && mprotect(page + PAGE, PAGE, PROT_NONE) == 0);
	check(pipe(ends) == 0);
	parts[0] = (struct iovec){ page, 8 };
	for (size_t i = 0; i < COUNT(bad); i++) {
		errno = 0;
		check(setrlimit(RLIMIT_AS, bad[i]) == -1 && errno == EFAULT);
		check(prlimit(0, RLIMIT_DATA, bad[i], NULL) == -1 && errno == EFAULT);
		check(vmsplice(ends[1], bad[i], 1, 0) == -1 && errno == EFAULT);
		r = syscall(SYS_process_madvise, -1, bad[i], 1, MADV_DONTNEED, 0);
		check(r == -1 && (errno == EFAULT || errno == EBADF || errno == ENOSYS));
	}
	/* The second of a list. */
	check(vmsplice(ends[1], parts, 2, 0) == -1 && errno == EFAULT);
	close(ends[0]);
	close(ends[1]);
	munmap(page, 2 * PAGE);
}

int main(void)
{
	size_t i;

	for (i = 0; i < COUNT(huge); i++)
		too_large(huge[i]);
	overflowing_products();
	bad_alignments();
	nothing_at_all();
	errno_stays();
	bad_pointers();
	/* The machine's overcommit allows the same with and without the shim. */
	printf("refusals: 64 TiB %s\n",
	       malloc((size_t)1 << 46) != NULL ? "given" : "refused");
	return 0;
}
