/* SPDX-License-Identifier: MIT */
/*
 * A file of ours is opened again by its number, and it is that file or none
 *
 * What stands in /proc under a number may be another one's: a program closed it and opened
 * a file of its own, or /proc is not what it should be. Here it is a folder of ours.
 */
#include "memfd/memfd.h"
#include "tests/support/support.h"
#include "tests/support/namespaces.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

START_TEST(another_file_is_refused)
{
	struct cow__descriptor d, again = COW__NO_DESCRIPTOR;
	char path[64];
	int fd;

	must(cow__memfd_new("test", PAGE, &d) == 0);
	must(cow__memfd_reopen(&d, &again) == 0);
	ck_assert(again.dev == d.dev && again.ino == d.ino);
	cow__descriptor_close(&again);
	must(own_tmpfs("/proc", "size=1m") == 0);
	must(mkdir("/proc/self", 0755) == 0 && mkdir("/proc/self/fd", 0755) == 0);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", d.fd);
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	must(fd >= 0);
	ck_assert_int_eq(cow__memfd_reopen(&d, &again), -EBADF);
	ck_assert_int_eq(again.fd, -1);
	close(fd);
	must(umount("/proc") == 0);
	must(cow__memfd_reopen(&d, &again) == 0);
	cow__descriptor_close(&again);
	cow__descriptor_close(&d);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("reopen");
	TCase *tcase = add_case(suite, "reopen");

	if (may_own_tmpfs("/proc"))
		tcase_add_test(tcase, another_file_is_refused);
	else
		printf("skip another_file_is_refused no mounts of our own here\n");
	return run_suite(suite);
}
