/* SPDX-License-Identifier: MIT */
/*
 * The tests' own tools do catch what they are for
 *
 * A leak check that never fires looks exactly like a library that never leaks.
 * So this program runs itself again, with the name of one broken test, and
 * expects that run to fail and to say why. One run is not broken and must
 * pass, or the others would prove nothing.
 */
#include "tests/support/left.h"
#include "tests/support/support.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- Tests that are broken on purpose ------------------------------------ */

START_TEST(fine)
{
	struct cow_storage *storage = new_filled(3 * MIB, 0, 5);

	ck_pattern(data(storage), 3 * MIB, 5);
	cow_storage_unref(storage);
}
END_TEST

START_TEST(leaks_storage)
{
	(void)new_storage(100, 0);
}
END_TEST

START_TEST(leaks_block)
{
	(void)new_block(MIB, 0);
}
END_TEST

START_TEST(leaks_descriptors)
{
	int i;

	for (i = 0; i < 2 * SLACK_FDS; i++)
		ck_assert_int_ge(open("/dev/null", O_RDONLY | O_CLOEXEC), 0);
}
END_TEST

START_TEST(leaks_mappings)
{
	int i, fd = memfd_create("cowshed-leaked", MFD_CLOEXEC);

	/* Every other page, so that the kernel can't merge them. */
	ck_assert_int_eq(ftruncate(fd, (off_t)(4 * SLACK_MAPS * PAGE)), 0);
	for (i = 0; i < 2 * SLACK_MAPS; i++)
		ck_assert_ptr_ne(mmap(NULL, PAGE, PROT_READ, MAP_SHARED, fd,
		                      (off_t)(2 * i * PAGE)),
		                 MAP_FAILED);
	close(fd);
}
END_TEST

/* Pages that no counter of the library knows. */
START_TEST(leaks_memory)
{
	int fd = memfd_create("cowshed-leaked", MFD_CLOEXEC);

	ck_assert_int_eq(fallocate(fd, 0, 0, 2 * SLACK_MEMORY), 0);
}
END_TEST

static void asserts_nonsense(void *arg)
{
	(void)arg;
	ck_assert_int_eq(1, 2);
}

static void crashes(void *arg)
{
	(void)arg;
	signal(SIGSEGV, SIG_DFL);
	raise(SIGSEGV);
}

static void exits(void *arg)
{
	(void)arg;
	_exit(5);
}

static void returns(void *arg)
{
	(void)arg;
}

START_TEST(leaks_child)
{
	child_start(returns, NULL);
}
END_TEST

static void in_grandchild(void *arg)
{
	in_child(asserts_nonsense, arg);
}

START_TEST(child_asserts)
{
	in_child(asserts_nonsense, NULL);
}
END_TEST

START_TEST(grandchild_asserts)
{
	in_child(in_grandchild, NULL);
}
END_TEST

START_TEST(child_exits)
{
	in_child(exits, NULL);
}
END_TEST

START_TEST(child_crashes)
{
	in_child(crashes, NULL);
}
END_TEST

START_TEST(nothing_traps)
{
	in_child_traps(returns, NULL);
}
END_TEST

START_TEST(does_not_survive)
{
	in_child_survives(crashes, NULL);
}
END_TEST

START_TEST(wrong_byte)
{
	unsigned char bytes[100];

	fill(bytes, sizeof(bytes), 7);
	ck_pattern(bytes, sizeof(bytes), 7);
	bytes[77] ^= 1;
	ck_pattern(bytes, sizeof(bytes), 7);
}
END_TEST

START_TEST(not_zero)
{
	unsigned char bytes[100] = { 0 };

	ck_bytes(bytes, sizeof(bytes), 0);
	bytes[99] = 1;
	ck_bytes(bytes, sizeof(bytes), 0);
}
END_TEST

START_TEST(call_fails)
{
	void *block;

	ok(cow_block_new(MIB, 3, 0, &block));
}
END_TEST

START_TEST(call_succeeds)
{
	refuses(cow_storage_resize(new_storage(1, 0), 2));
}
END_TEST

START_TEST(never_ends)
{
	for (;;)
		pause();
}
END_TEST

static const struct broken {
	const char *name;
	const TTest **test;
	const char *says; /* NULL: it must pass */
} broken[] = {
	{ "fine", &fine, NULL },
	{ "leaks_storage", &leaks_storage, "leaked: storages" },
	{ "leaks_block", &leaks_block, "leaked: blocks" },
	{ "leaks_descriptors", &leaks_descriptors, "leaked: descriptors" },
	{ "leaks_mappings", &leaks_mappings, "leaked: mappings" },
	{ "leaks_memory", &leaks_memory, "leaked: memory" },
	{ "leaks_child", &leaks_child, "leaked: a child" },
	/* The child's own words come first. */
	{ "child_asserts", &child_asserts, "1 == 2" },
	{ "grandchild_asserts", &grandchild_asserts, "1 == 2" },
	{ "child_exits", &child_exits, "in a child (status 5)" },
	{ "child_crashes", &child_crashes, "died of signal 11" },
	{ "nothing_traps", &nothing_traps, "no trap" },
	{ "does_not_survive", &does_not_survive, "wait status" },
	{ "wrong_byte", &wrong_byte, "byte 77 of 100 is wrong" },
	{ "not_zero", &not_zero, "byte 99 of 100 is not 0" },
	{ "call_fails", &call_fails, "cow_block_new" },
	{ "call_succeeds", &call_succeeds, "cow_storage_resize" },
	{ "never_ends", &never_ends, "timeout" },
};

/* ---- Running them -------------------------------------------------------- */

static int run_broken(const char *name)
{
	Suite *suite = suite_create("broken");
	TCase *tcase = add_case(suite, name);
	size_t i;

	/* The outer run's wishes are not for this one. */
	unsetenv("CK_TIMEOUT_MULTIPLIER");
	unsetenv("CK_RUN_CASE");
	unsetenv("CK_RUN_SUITE");
	unsetenv("CK_INCLUDE_TAGS");
	unsetenv("CK_EXCLUDE_TAGS");
	unsetenv("CK_TAP_LOG_FILE_NAME");
	unsetenv("CK_XML_LOG_FILE_NAME");
	unsetenv("CK_LOG_FILE_NAME");
	setenv("CK_VERBOSITY", "normal", 1);
	for (i = 0; i < COUNT(broken); i++)
		if (strcmp(broken[i].name, name) == 0)
			tcase_add_test(tcase, *broken[i].test);
	if (strcmp(name, "never_ends") == 0)
		tcase_set_timeout(tcase, 1);
	return run_suite(suite);
}

START_TEST(is_caught)
{
	const struct broken *b = &broken[_i];
	char self[4096], command[5000], output[8192];
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
	size_t got;
	FILE *run;
	int status;

	ck_assert_int_gt(n, 0);
	self[n] = '\0';
	snprintf(command, sizeof(command), "'%s' --broken %s 2>&1", self,
	         b->name);
	run = popen(command, "re");
	ck_assert_ptr_nonnull(run);
	got = fread(output, 1, sizeof(output) - 1, run);
	output[got] = '\0';
	status = pclose(run);
	ck_assert_msg(WIFEXITED(status), "wait status %#x", status);
	ck_assert_msg((WEXITSTATUS(status) == 0) == (b->says == NULL),
	              "exit status %d:\n%s", WEXITSTATUS(status), output);
	ck_assert_msg(b->says == NULL || strstr(output, b->says) != NULL,
	              "it does not say \"%s\":\n%s", b->says, output);
}
END_TEST

/* A gate lets through exactly as often as it was opened. */
static void opens_twice(void *arg)
{
	gate_open(arg);
	gate_open(arg);
}

START_TEST(gates_count)
{
	struct gate gate;
	char extra;

	gate_make(&gate);
	in_child(opens_twice, &gate);
	gate_wait(&gate);
	gate_wait(&gate);
	ck_assert_int_eq(fcntl(gate.fd[0], F_SETFL, O_NONBLOCK), 0);
	ck_assert_int_eq(read(gate.fd[0], &extra, 1), -1);
	gate_free(&gate);
}
END_TEST

START_TEST(patterns_differ)
{
	unsigned char a[64], b[64];

	fill(a, sizeof(a), 1);
	fill(b, sizeof(b), 2);
	ck_assert_mem_ne(a, b, 8);
	ck_assert_mem_ne(a, a + 8, 8);
	ck_assert_uint_eq(first_wrong(a, 61, 1), 61);
	ck_assert_uint_eq(first_wrong(a, 0, 2), 0);
}
END_TEST

/* Nor does one page look like another, at any distance, byte for byte. */
START_TEST(pages_differ)
{
	static unsigned char bytes[2 * MIB];
	size_t distance, i, same;

	fill(bytes, sizeof(bytes), 5);
	for (distance = PAGE; distance < sizeof(bytes) - 64 * KIB; distance += PAGE) {
		for (i = same = 0; i < 64 * KIB; i++)
			same += bytes[i] == bytes[i + distance];
		must(same < 64 * KIB / 32);
	}
}
END_TEST

/* At each length, each byte, and nothing behind the end. */
START_TEST(patterns_end)
{
	unsigned char bytes[2100];
	size_t n, at;

	for (n = 0; n < sizeof(bytes); n += n < 40 ? 1 : 97) {
		memset(bytes, 0x5a, sizeof(bytes));
		fill(bytes, n, n);
		ck_assert_uint_eq(first_not(bytes + n, sizeof(bytes) - n, 0x5a), sizeof(bytes) - n);
		for (at = 0; at < n; at++) {
			bytes[at] ^= 1;
			ck_assert_uint_eq(first_wrong(bytes, n, n), at);
			bytes[at] ^= 1;
		}
		ck_assert_uint_eq(first_wrong(bytes, n, n), n);
	}
}
END_TEST

/* ---- What is left in the file system --------------------------------------- */

static void leaves_folders(void *arg)
{
	char name[LEFT_NAME], path[2 * LEFT_NAME], other[LEFT_NAME];

	(void)arg;
	left_folder(other, "file"); /* another runner's */
	left_begin();
	left_folder(name, "file");
	snprintf(path, sizeof(path), "%s/file", name);
	must(mknod(path, S_IFREG | 0600, 0) == 0);
	snprintf(path, sizeof(path), "/dev/shm/%s", strrchr(name, '/') + 1);
	must(mknod(path, S_IFREG | 0600, 0) == 0);
	ck_assert_int_eq(left_end(), 2);
	must(access(name, F_OK) != 0 && access(path, F_OK) != 0);
	must(rmdir(other) == 0);
	ck_assert_int_eq(left_end(), 0);
}

START_TEST(folders_of_failed_tests_are_removed)
{
	in_child(leaves_folders, NULL);
}
END_TEST

int main(int argc, char **argv)
{
	Suite *suite;
	TCase *tcase;

	if (argc == 3 && strcmp(argv[1], "--broken") == 0)
		return run_broken(argv[2]);
	suite = suite_create("harness");
	tcase = add_bare_case(suite, "harness");
	tcase_add_loop_test(tcase, is_caught, 0, (int)COUNT(broken));
	tcase_add_test(tcase, gates_count);
	tcase_add_test(tcase, patterns_differ);
	tcase_add_test(tcase, pages_differ);
	tcase_add_test(tcase, patterns_end);
	tcase_add_test(tcase, folders_of_failed_tests_are_removed);
	return run_suite(suite);
}
