/* SPDX-License-Identifier: MIT */
/*
 * Denied memory that was under I/O, and a fork whose calls fail
 *
 * While a descriptor for direct I/O is open, MADV_DONTFORK and MADV_WIPEONFORK move nothing. The
 * first fork after it takes the memory out of the file. If that fails, the child must get copies
 * of the rest: it may map no file that has a denied page.
 */
#include "core/fork/fork.h"
#include "core/program/advise.h"
#include "tests/support/fault/fault.h"
#include "tests/support/fault/sweep.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BLOCK = 4 * MIB, DENIED = BLOCK / 2, NO_MEMORY = 127, CALLS_MAX = 500 };

static int call;
static bool again;

/* Another one in each round: what was freed may still be in a file until its children end. */
static uint32_t secret(void)
{
	return 0x5ec0e700u ^ (uint32_t)call;
}

static const int errors[] = { ENOMEM, FAULT_LASTING | ENOMEM, EPERM, FAULT_POOLS };

/* -1: not on this file system. */
static int open_direct(void)
{
	int fd = open("/proc/self/exe", O_RDONLY | O_DIRECT | O_CLOEXEC);

	must(fd >= 0 || errno == EINVAL);
	return fd;
}

/* Has the file of this mapping a page of the secret? Only root may open it there. */
static bool has_secret(const char *mapping)
{
	static uint32_t page[PAGE / 4];
	char path[300];
	bool found = false;
	off_t at = 0;
	int fd;

	snprintf(path, sizeof(path), "/proc/self/map_files/%s", mapping);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	while (fd >= 0 && !found && (at = lseek(fd, at, SEEK_DATA)) >= 0) {
		must(pread(fd, page, PAGE, at) == (ssize_t)PAGE);
		found = page[0] == secret() && memcmp(page, page + 1, PAGE - 4) == 0;
		at += (off_t)PAGE;
	}
	if (fd >= 0)
		close(fd);
	return found;
}

static bool maps_secret(void)
{
	FILE *maps = fopen("/proc/self/maps", "re");
	unsigned long start, end;
	char line[512], name[64];
	bool found = false;

	must(maps != NULL);
	while (!found && fgets(line, sizeof(line), maps))
		if (strstr(line, "/memfd:cowshed ") &&
		    sscanf(line, "%lx-%lx", &start, &end) == 2) {
			snprintf(name, sizeof(name), "%lx-%lx", start, end);
			found = has_secret(name);
		}
	fclose(maps);
	return found;
}

static void lives(void *arg)
{
	unsigned char *p = arg;

	(void)fault_disarm();
	ck_bytes(p, DENIED, 7);
	ck_assert_msg(!maps_secret(), "call %d, %s fork: the child maps a file with a denied page",
	              call, again ? "second" : "first");
}


/* One fork with the n-th call failing. True if there was one. */
static bool round_with(int n, int error, int advice)
{
	unsigned char *p = new_block(BLOCK, 0);
	int direct = open_direct(), status;
	bool fired;
	pid_t pid;

	call = n;
	again = false;
	memset(p, 7, DENIED);
	for (size_t at = DENIED; at < BLOCK; at += 4)
		memcpy(p + at, &(uint32_t){ secret() }, 4);
	ok(cow__advise((uintptr_t)p + DENIED, BLOCK - DENIED, advice));
	close(direct);
	if (n)
		fault_after(n, error);
	pid = child_start(lives, p);
	fired = fault_disarm();
	status = child_status(pid);
	/* The call may also be one of the child's own first steps. */
	ck_assert_msg(WIFEXITED(status) && (WEXITSTATUS(status) == 0 ||
	                                    (WEXITSTATUS(status) == NO_MEMORY && n > 0)),
	              "call %d: wait status %#x", n, status);
	ck_bytes(p, DENIED, 7);
	ck_assert_msg(memcmp(p + DENIED, &(uint32_t){ secret() }, 4) == 0 &&
	                      memcmp(p + DENIED, p + DENIED + 4, BLOCK - DENIED - 4) == 0,
	              "call %d: a denied byte is lost", n);
	/* What failed is done by the next fork. */
	again = true;
	while (cow__fork_after_wait(true))
		;
	in_child(lives, p);
	p[0] = p[BLOCK - 1] = 9;
	cow_block_free(p);
	return fired;
}

/* `_i` also says which advice it is. */
START_TEST(every_call_of_the_fork)
{
	int error = errors[_i / 2], advice = _i % 2 ? MADV_DONTFORK : MADV_WIPEONFORK, n;
	int direct = open_direct();
	struct footprint before, now;

	if (direct < 0)
		return;
	close(direct);
	ok(cow_option_set("helper", "no"));
	ok(cow_option_set("decay", "0"));
	must(!round_with(0, error, advice));
	before = footprint_now();
	for (n = 1; round_with(n, error, advice); n++) {
		sweep_renew();
		now = footprint_now();
		must(footprint_excess(&before, &now) == NULL);
		must(n < CALLS_MAX);
	}
	ck_assert_msg(error == FAULT_POOLS || n > 5, "only %d calls", n - 1);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("fault_withheld");
	TCase *tcase = add_case(suite, "fault_withheld");

	tcase_add_loop_test(tcase, every_call_of_the_fork, 0, 2 * rounds((int)COUNT(errors)));
	return run_suite(suite);
}
