/* SPDX-License-Identifier: MIT */
/*
 * Memory that a camera, an accelerator or an AF_XDP socket writes was frozen
 *
 * These write to memory of the process behind its page tables, as rings and GPUs do; a
 * freeze loses what they write. They show among the descriptors: by the device's name, and
 * by the socket's family, since all sockets have one name.
 */
#include "memfd/pins.h"
#include "tests/support/support.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#ifndef AF_XDP
#define AF_XDP 44
#endif

static const char *const devices[] = {
	"video", "accel", "cxi", "hfi1", "neuron", "davinci", "knem", "xpmem", "uio", "nvidia", "vhost",
};

/* The name counts: root can give it to the null device. */
START_TEST(devices_are_pins)
{
	char path[64];
	int fd;

	snprintf(path, sizeof(path), "/dev/%s-cowshed-test-%d", devices[_i],
	         getpid());
	if (mknod(path, S_IFCHR | 0600, makedev(1, 3)) < 0)
		return;
	fd = open(path, O_RDWR | O_CLOEXEC);
	unlink(path);
	if (fd < 0)
		return; /* the mount allows no devices */
	ck_assert(cow__pins_memory());
	close(fd);
	ck_assert(!cow__pins_memory());
}
END_TEST

/* Who runs the program may know of a driver that we don't. */
START_TEST(devices_have_names)
{
	int fd = open("/dev/zero", O_RDWR | O_CLOEXEC);

	ck_assert(fd >= 0 && !cow__pins_memory());
	ok(cow_option_set("devices", "/dev/mine:/dev/ze"));
	ck_assert(cow__pins_memory());
	ck_assert_int_eq(cow_option_set("devices", "/"), -EINVAL);
	ck_assert_int_eq(cow_option_set("devices", "mine"), -EINVAL);
	ck_assert_int_eq(cow_option_set("devices", "/dev/mine::"), -EINVAL);
	ck_assert(cow__pins_memory());
	ok(cow_option_set("devices", ""));
	ck_assert(!cow__pins_memory());
	close(fd);
}
END_TEST

/* The numbers are asked one after the other, and gaps are jumped over. */
static const int numbers[] = { 3, 4, 5, 6, 7, 8, 9, 10, 20, 21, 63, 64, 200, 900 };

START_TEST(gaps_hide_nothing)
{
	char path[64];
	int at = numbers[_i], fd;

	snprintf(path, sizeof(path), "/tmp/cowshed-pins-%d", getpid());
	for (int i = 3; i < 901; i++)
		close(i);
	ck_assert(!cow__pins_memory());
	/* Written at once, and not by way of the page cache. */
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_DIRECT, 0600);
	unlink(path);
	if (fd < 0)
		return; /* the file system has no such files */
	if (fd != at) {
		ck_assert_int_eq(dup3(fd, at, O_CLOEXEC), at);
		close(fd);
	}
	ck_assert(cow__pins_memory());
	close(at);
	ck_assert(!cow__pins_memory());
}
END_TEST

START_TEST(only_sockets_of_xdp_are_pins)
{
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	ck_assert(fd >= 0 && !cow__pins_memory());
	close(fd);
	fd = socket(AF_XDP, SOCK_RAW | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return; /* not for us */
	ck_assert(cow__pins_memory());
	close(fd);
	ck_assert(!cow__pins_memory());
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("bug_cameras_and_xdp_are_no_pins");
	TCase *tcase = add_case(suite, "bug");

	tcase_add_loop_test(tcase, devices_are_pins, 0, (int)COUNT(devices));
	tcase_add_test(tcase, devices_have_names);
	tcase_add_loop_test(tcase, gaps_hide_nothing, 0, (int)COUNT(numbers));
	tcase_add_test(tcase, only_sockets_of_xdp_are_pins);
	return run_suite(suite);
}
