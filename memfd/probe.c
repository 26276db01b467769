/* SPDX-License-Identifier: MIT */
/*
 * What this kernel offers, found out by trying: see the header.
 */
#include "memfd/probe.h"
#include "memfd/map.h"
#include "memfd/memfd.h"
#include "memfd/page.h"
#include "memfd/pagemap.h"
#include "memfd/sys.h"
#include "memfd/watch.h"

#include <linux/sched.h>
#include <string.h>

/* Emulators of other processors (qemu-user) accept advice and do not follow it:
 * freed memory would come back with its old bytes. A refusal is fine. */
static bool
holes_are_made(const struct cow__descriptor *d)
{
	uintptr_t at;
	char byte = 1;
	bool works;

	if (cow__map_reserve(cow__page, cow__page, &at) < 0)
		return false;
	/* By calls: a touch would be a SIGBUS where memory is short. */
	works = cow__map_shared(at, cow__page, d, 0, false) == 0;
	if (works && sys_write(d->fd, &byte, 1) == 1)
		works = cow__map_punch(at, cow__page) < 0 ||
		        sys_pread(d->fd, &byte, 1, 0) != 1 || byte == 0;
	(void)cow__map_release(at, cow__page);
	return works;
}

bool
cow__probe_memfd(void)
{
	struct cow__descriptor d;
	bool works;

	if (cow__memfd_new("cowshed-probe", cow__page, &d) < 0)
		return false;
	works = holes_are_made(&d);
	cow__descriptor_close(&d);
	return works;
}

bool
cow__probe_locks(void)
{
	struct cow__descriptor a, b;
	bool works = false;

	if (cow__memfd_new("cowshed-probe", cow__page, &a) < 0)
		return false;
	if (cow__memfd_reopen(&a, &b) == 0) {
		works = cow__memfd_lock_take(&a, 0, false) == 0 &&
		        cow__memfd_lock_taken(&b, 0) == 1 &&
		        cow__memfd_lock_drop(&a, 0) == 0 &&
		        cow__memfd_lock_taken(&b, 0) == 0;
		cow__descriptor_close(&b);
	}
	cow__descriptor_close(&a);
	return works;
}

bool
cow__probe_collapse(void)
{
	struct cow__descriptor d;
	uintptr_t at;
	size_t done = 0;

	if (cow__memfd_new("cowshed-probe", COW__HUGE, &d) < 0)
		return false;
	if (cow__map_reserve(COW__HUGE, COW__HUGE, &at) == 0) {
		if (cow__map_shared(at, COW__HUGE, &d, 0, false) == 0)
			(void)cow__map_collapse(at, COW__HUGE, &done);
		(void)cow__map_release(at, COW__HUGE);
	}
	cow__descriptor_close(&d);
	return done > 0;
}

/* The kernel may make a huge page of a memfd without being asked for it. */
static bool
huge_at_first_touch(void)
{
	static const char path[] = "/sys/kernel/mm/transparent_hugepage/shmem_enabled";
	char buf[80];
	int fd = (int)sys_open(path, O_RDONLY | O_CLOEXEC, 0);
	long r = 0;

	if (fd >= 0) {
		r = sys_read(fd, buf, sizeof(buf) - 1);
		(void)sys_close(fd);
	}
	buf[r > 0 ? r : 0] = '\0';
	return strstr(buf, "[always]") || strstr(buf, "[within_size]") ||
	       strstr(buf, "[force]");
}

static bool
page_tables_move(void)
{
	struct cow__descriptor d;
	uintptr_t at;
	bool works = false;

	if (cow__memfd_new("cowshed-probe", COW__HUGE, &d) < 0)
		return false;
	if (cow__map_reserve(2 * COW__HUGE, COW__HUGE, &at) == 0) {
		works = cow__map_shared(at, COW__HUGE, &d, 0, false) == 0 &&
		        cow__map_displace(at, COW__HUGE, at + COW__HUGE) == 0;
		(void)cow__map_release(at, 2 * COW__HUGE);
	}
	cow__descriptor_close(&d);
	return works;
}

bool
cow__probe_slow_memfds(void)
{
	return !cow__map_knows_collapse() && !huge_at_first_touch() &&
	       !page_tables_move();
}

/* A private mapping with one copied page out of two. */
static bool
copied_page_shows(bool scan)
{
	struct cow__descriptor d;
	struct cow__run run;
	uintptr_t at, next;
	bool works = false, had = cow__pagemap_has_scan();

	if (cow__memfd_new("cowshed-probe", 2 * cow__page, &d) < 0)
		return false;
	if (cow__map_reserve(2 * cow__page, cow__page, &at) == 0) {
		if (cow__map_private(at, 2 * cow__page, &d, 0, false) == 0) {
			*(volatile char *)(at + cow__page) = 1;
			cow__pagemap_use_scan(scan);
			works = cow__pagemap_copied(at, at + 2 * cow__page,
			                            &run, 1, &next) == 1 &&
			        run.start == at + cow__page &&
			        cow__pagemap_has_scan() == scan;
			cow__pagemap_use_scan(had);
		}
		(void)cow__map_release(at, 2 * cow__page);
	}
	cow__descriptor_close(&d);
	return works;
}

bool
cow__probe_pagemap(void)
{
	return copied_page_shows(false);
}

bool
cow__probe_pagemap_scan(void)
{
	return copied_page_shows(true);
}

bool
cow__probe_threads(void)
{
	char line[64];
	int fd = (int)sys_open("/proc/thread-self/syscall",
	                       O_RDONLY | O_CLOEXEC, 0);
	long r;

	if (fd < 0)
		return false;
	r = sys_read(fd, line, sizeof(line));
	(void)sys_close(fd);
	return r > 0;
}

bool
cow__probe_unshare(void)
{
	long r = sys_unshare(CLONE_VM);

	return r == 0 || r == -EINVAL;
}

bool
cow__probe_io_uring(void)
{
	unsigned char params[120] = { 0 };
	long fd = SYS3(SYS_io_uring_setup, 2, params, 0);

	if (fd < 0)
		return false;
	(void)sys_close((int)fd);
	return true;
}

bool
cow__probe_userfaultfd(void)
{
	int fd = cow__watch_open();

	if (fd < 0)
		return false;
	(void)sys_close(fd);
	return true;
}

/* The number in a file; 0 if it can't be read. */
static size_t
number_in(const char *path)
{
	char buf[24];
	size_t n = 0;
	int fd = (int)sys_open(path, O_RDONLY | O_CLOEXEC, 0);
	long r = 0;

	if (fd >= 0) {
		r = sys_read(fd, buf, sizeof(buf));
		(void)sys_close(fd);
	}
	for (long i = 0; i < r && buf[i] >= '0' && buf[i] <= '9'; i++)
		n = n * 10 + (size_t)(buf[i] - '0');
	return n;
}

size_t
cow__probe_mappings_max(void)
{
	size_t n = number_in("/proc/sys/vm/max_map_count");

	return n ? n : 65530;
}

bool
cow__probe_charges(void)
{
	return number_in("/proc/sys/vm/overcommit_memory") == 2;
}

bool
cow__probe_merged(void)
{
	return SYS6(SYS_prctl, COW__PR_GET_MEMORY_MERGE, 0, 0, 0, 0, 0) == 1;
}
