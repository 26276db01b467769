/* SPDX-License-Identifier: MIT */
/*
 * System calls that a sandbox denies: memory must be had without them
 *
 * Each child installs a filter that answers some calls with an error, and does not
 * end the process. An allocator that maps pages uses these calls. Then the child
 * works as usual.
 */
#include "deny.h"

struct denial {
	const char *name;
	int calls[6]; /* ends with 0 */
	int error;
	int late; /* after the first large block */
};

static const struct denial denials[] = {
	{ "memfd_create ENOSYS", { SYS_memfd_create }, ENOSYS, 0 },
	{ "memfd_create EPERM", { SYS_memfd_create }, EPERM, 0 },
	{ "memfd_create, late", { SYS_memfd_create }, EPERM, 1 },
	{ "ftruncate", { SYS_ftruncate }, EPERM, 0 },
	{ "fallocate", { SYS_fallocate }, ENOSYS, 0 },
	{ "fallocate, late", { SYS_fallocate }, EPERM, 1 },
	{ "madvise", { SYS_madvise }, EPERM, 0 },
	{ "madvise, late", { SYS_madvise }, EPERM, 1 },
	{ "mremap", { SYS_mremap }, EPERM, 0 },
	{ "mremap, late", { SYS_mremap }, EPERM, 1 },
	{ "fcntl", { SYS_fcntl }, EPERM, 1 },
	{ "openat", { SYS_openat }, EACCES, 0 },
	{ "openat, late", { SYS_openat }, EACCES, 1 },
	{ "ioctl", { SYS_ioctl }, EPERM, 0 },
	{ "threads' names and io_uring",
	  { SYS_io_uring_setup, SYS_userfaultfd, SYS_prctl, SYS_unshare },
	  EPERM, 1 },
	{ "io_uring and userfaultfd",
	  { SYS_io_uring_setup, SYS_userfaultfd, SYS_io_uring_enter }, ENOSYS,
	  0 },
	{ "unshare", { SYS_unshare }, EPERM, 0 },
	{ "looking and asking",
	  { SYS_mincore, SYS_prlimit64, SYS_prctl, SYS_pread64, SYS_lseek },
	  EPERM, 1 },
	{ "all of it",
	  { SYS_memfd_create, SYS_fallocate, SYS_madvise, SYS_mremap,
	    SYS_openat, SYS_ioctl }, EPERM, 1 },
};

static void deny(const struct denial *d)
{
	size_t n = 0;

	while (n < COUNT(d->calls) && d->calls[n] != 0)
		n++;
	deny_calls(d->calls, n, d->error);
}

static void rewrites(void *arg)
{
	unsigned char *q;

	check(holds(arg, 3 * MIB, 1));
	fill(arg, 3 * MIB, 2);
	q = get_filled(2 * MIB, 3);
	check(holds(arg, 3 * MIB, 2) && holds(q, 2 * MIB, 3));
	free(q);
	free(arg);
}

static void live(const struct denial *d)
{
	unsigned char *p, *q, *kept = NULL;
	int i;

	if (d->late) {
		kept = get_filled(3 * MIB, 9);
		free(get_filled(5 * MIB, 1));
		in_child(rewrites, get_filled(3 * MIB, 1));
	}
	deny(d);
	p = get_filled(3 * MIB, 1);
	for (i = 1; i < 8; i++) {
		in_child(rewrites, p);
		check(holds(p, 3 * MIB, 1));
		q = calloc(1, (size_t)i * 300000);
		check(q != NULL && all(q, (size_t)i * 300000, 0));
		memset(q, 8, (size_t)i * 300000);
		q = realloc(q, (size_t)i * 600000);
		check(q != NULL && all(q, (size_t)i * 300000, 8));
		free(q);
		fill(p, 3 * MIB, 1);
	}
	free(p);
	check(kept == NULL || holds(kept, 3 * MIB, 9));
	free(kept);
}

static void in_a_sandbox(void *arg)
{
	live(arg);
}

int main(void)
{
	size_t i;

	for (i = 0; i < COUNT(denials); i++) {
		in_child(in_a_sandbox, (void *)(uintptr_t)&denials[i]);
		printf("denied: %s\n", denials[i].name);
	}
	return 0;
}
