/* SPDX-License-Identifier: MIT */
/*
 * Tests on a driver that is not ours
 *
 * make check-gpu runs the tests of cuda/ on the machine's driver. It takes no orders
 * (tests/driver/control.h), so what a test asks of the reference driver has a stand-in
 * here:
 *
 *   asks for harder conditions       nothing: a GPU is as late as it is
 *   counts calls or waits            0, so "no more than before" holds
 *   looks at a device's bytes        a copy on a stream of its own, waited for
 *   asks how much there is           what the library counts of what it made
 *   wants a failure, or a state      the test ends: it should have said what it needs
 *
 * A test that proves something by what can't be had here says so where it is added
 * (add_test_needing()), and is left out by name. Whether a driver has two devices is
 * found out in a child, since who has started a driver can't fork for those who shall.
 */
#include "cuda/context.h"
#include "cuda/piece.h"
#include "tests/support/driver.h"

#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void set(enum ref_setting setting, long value)
{
	(void)setting;
	(void)value;
}

static void only_ours(const char *what)
{
	ck_abort_msg("%s: only the reference driver can; add_test_needing() says that", what);
}

static int fail_call(const char *name, unsigned long n, int code)
{
	(void)n;
	(void)code;
	only_ours(name);
	return -1;
}

static uint64_t calls(const char *name)
{
	(void)name;
	return 0;
}

static uint64_t implicit_waits(void)
{
	return 0;
}

static void usage(struct ref_usage *ret)
{
	struct cow__cuda *d;

	*ret = (struct ref_usage){ .bytes = 0 };
	for (int i = 0; i < cow_cuda_count(); i++)
		if (cow__cuda_get(i, &d) == 0)
			ret->bytes += cow__cuda_made_bytes(d);
}

static void poison(int device, int code)
{
	(void)device;
	(void)code;
	only_ours("a device that fails");
}

static int peek(unsigned long long ptr, void *ret, size_t bytes)
{
	struct cow__cu_stream *s;

	cu_ok(cu->stream_create(&s, COW_CU_STREAM_NON_BLOCKING, 0));
	cu_ok(cu->copy_to_host(ret, ptr, bytes, s));
	cu_ok(cu->stream_synchronize(s));
	cu_ok(cu->stream_destroy(s));
	return 0;
}

const struct driver_control driver_standins = {
	set, fail_call, calls, implicit_waits, usage, poison, peek,
};

/* ---- What a test needs --------------------------------------------------------------- */

/* 0 where there is no driver. Asked once, before any test. */
static int devices(void)
{
	static int known = -1;
	int status, count = 0;
	pid_t child;

	if (known >= 0)
		return known;
	fflush(NULL);
	child = fork();
	must(child >= 0);
	if (child == 0) {
		if (cow__cu_start(&cu) < 0 || cu->device_get_count(&count) != COW_CU_SUCCESS)
			count = 0;
		_exit(count < 100 ? count : 100);
	}
	status = child_status(child);
	must(WIFEXITED(status));
	known = WEXITSTATUS(status);
	return known;
}

bool driver_has(unsigned needs, const char *test)
{
	const char *why = NULL;

	driver_choose();
	if (driver_is_reference())
		return true;
	if (needs & NEEDS_CONTROL)
		why = "needs the reference driver";
	else if (needs & NEEDS_TWO_DEVICES && devices() < 2)
		why = "needs two devices";
	if (why)
		printf("skip %s %s\n", test, why);
	return !why;
}
