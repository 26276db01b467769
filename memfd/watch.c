/* SPDX-License-Identifier: MIT */
/*
 * Watched memory: see the header.
 */
#include "memfd/watch.h"
#include "memfd/descriptor.h"
#include "memfd/forked.h"
#include "memfd/sys.h"

#include <linux/userfaultfd.h>
#include <sys/ioctl.h>

/* Newer than some headers. A descriptor for faults of user mode needs no privilege.
 * The faults that clear marks in system calls are handled by the kernel itself. */
#define USER_MODE_ONLY 1
#define FEATURE_WP_SHMEM (1u << 12)
#define FEATURE_WP_ASYNC (1u << 15)
#define MODE_WP (1u << 1)

static struct cow__descriptor kept = { .fd = -1 };
static uint32_t denied;

void
cow__watch_use(bool yes)
{
	__atomic_store_n(&denied, !yes, __ATOMIC_RELAXED);
}

bool
cow__watch_usable(void)
{
	return kept.fd >= 0 && !__atomic_load_n(&denied, __ATOMIC_RELAXED);
}

int
cow__watch_open(void)
{
	struct uffdio_api api = { .api = UFFD_API,
		                  .features = FEATURE_WP_SHMEM |
		                              FEATURE_WP_ASYNC };
	int fd = (int)sys_userfaultfd(O_CLOEXEC | O_NONBLOCK | USER_MODE_ONLY);

	if (fd >= 0 && sys_ioctl(fd, UFFDIO_API, &api) < 0) {
		(void)sys_close(fd);
		fd = -EINVAL;
	}
	return fd;
}

void
cow__watch_keep(void)
{
	int fd;

	if (__atomic_load_n(&denied, __ATOMIC_RELAXED) ||
	    (kept.fd >= 0 && cow__descriptor_ok(&kept)))
		return;
	kept = COW__NO_DESCRIPTOR;
	fd = cow__watch_open();
	if (fd < 0) {
		if (fd != -EMFILE && fd != -ENFILE && fd != -ENOMEM)
			cow__watch_use(false);
		return;
	}
	kept = cow__descriptor_adopt(fd);
	if (kept.fd < COW__FD_HIGH)
		cow__descriptor_close(&kept);
}

COW_FORK_CODE void
cow__watch_forget(void)
{
	cow__descriptor_close(&kept);
}

int
cow__watch(uintptr_t start, uintptr_t end)
{
	struct uffdio_register r = { .range = { start, end - start },
		                     .mode = MODE_WP };
	long e;

	if (!cow__watch_usable() || !cow__descriptor_ok(&kept))
		return -EBADF;
	e = sys_ioctl(kept.fd, UFFDIO_REGISTER, &r);
	return e < 0 ? (int)e : 0;
}
