/* SPDX-License-Identifier: MIT */
/*
 * cow_family_leave(): a relative that leaves can't read or write what others have
 *
 * A process leaves its family and becomes another user, or gives up new privileges where it is
 * not root. Then it attacks: it writes and punches each descriptor of the library's memory, and
 * looks for secrets there and behind each private page that it can let grow. A herd (a storage
 * or block in every state) must not notice. tests/programs/border.c does the same, and more,
 * under the shim.
 */
#include "tests/support/herd.h"
#include "tests/support/support.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/falloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>


enum { NOBODY = 65534, SECRETS = 3 };
#define SECRET (4 * MIB)
#define GROWN (64 * MIB)

static struct family {
	struct herd herd;
	struct gate to_child, to_parent;
	unsigned char *secret[SECRETS]; /* two blocks, and of a storage */
	struct cow_storage *storage;
} family;

static void drop(void)
{
	ok(cow_family_leave());
	if (getuid() == 0)
		must(!setgroups(0, NULL) && !setgid(NOBODY) && !setuid(NOBODY));
	else
		must(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
}

static void make_family(void)
{
	gate_make(&family.to_child);
	gate_make(&family.to_parent);
	herd_make(&family.herd, 1000);
	family.secret[0] = new_block(SECRET, 0);
	family.secret[1] = new_block(SECRET, 0);
	family.storage = new_storage(SECRET, COW_STORAGE_TRANSPARENT);
	family.secret[2] = expose(family.storage);
	for (int i = 0; i < SECRETS; i++)
		memset(family.secret[i], 's', SECRET);
}

static void free_family(void)
{
	herd_check(&family.herd);
	herd_free(&family.herd);
	cow_block_free(family.secret[0]);
	cow_block_free(family.secret[1]);
	cow_storage_unref(family.storage);
	gate_free(&family.to_child);
	gate_free(&family.to_parent);
}

/* ---- Attacks ------------------------------------------------------------- */

static const char *secret_text(void)
{
	static char text[32];

	snprintf(text, sizeof(text), "%s-%s", "written", "later");
	return text;
}

static bool is_secret(const unsigned char *page)
{
	return memcmp(page, secret_text(), strlen(secret_text())) == 0;
}

/* As the descriptors are: another user may not open them again. */
static void each_own(void (*visit)(int))
{
	char path[40], name[64];
	ssize_t n;

	for (int fd = 3; fd < 4096; fd++) {
		snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
		n = readlink(path, name, sizeof(name) - 1);
		name[n < 0 ? 0 : n] = '\0';
		if (strncmp(name, "/memfd:cowshed", 14) == 0)
			visit(fd);
	}
}

static void write_file(int fd)
{
	static unsigned char bytes[MIB];
	off_t at = 0, end;

	memset(bytes, 'X', sizeof(bytes));
	for (; (at = lseek(fd, at, SEEK_DATA)) >= 0; at = end) {
		end = lseek(fd, at, SEEK_HOLE);
		for (off_t n; at < end; at += n) {
			n = end - at < (off_t)MIB ? end - at : (off_t)MIB;
			if (pwrite(fd, bytes, (size_t)n, at) != n)
				return;
		}
	}
}

static void punch_file(int fd)
{
	(void)!fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 1l << 42);
}

static int found;

static void read_file(int fd)
{
	unsigned char page[PAGE];
	off_t at = 0, end;

	for (; (at = lseek(fd, at, SEEK_DATA)) >= 0; at = end) {
		end = lseek(fd, at, SEEK_HOLE);
		for (; at < end; at += (off_t)PAGE)
			if (pread(fd, page, PAGE, at) == (ssize_t)PAGE && is_secret(page))
				found++;
	}
}

/* The kernel reads the page, and refuses one that is not there. */
static bool secret_at(const unsigned char *at, int pipe_fd[2])
{
	static unsigned char page[PAGE];

	return write(pipe_fd[1], at, PAGE) == (ssize_t)PAGE &&
	       read(pipe_fd[0], page, PAGE) == (ssize_t)PAGE && is_secret(page);
}

/* Grows a page at each of these addresses over the file behind it. */
static int grown(void *const *pages, int n)
{
	int seen = 0, lent[2];

	must(pipe(lent) == 0);
	for (int i = 0; i < n; i++) {
		unsigned char *p = mremap(pages[i], PAGE, GROWN, MREMAP_MAYMOVE);

		for (size_t at = 0; p != MAP_FAILED && at < GROWN; at += PAGE)
			seen += secret_at(p + at, lent);
	}
	close(lent[0]);
	close(lent[1]);
	return seen;
}

static int inherited(void *pages[HERD_KINDS + SECRETS])
{
	int n = 0;

	for (int i = 0; i < HERD_KINDS; i++) {
		const struct animal *a = &family.herd.animals[i];
		const void *p = a->block ? a->block : a->storage ? data(a->storage) : NULL;

		if (p && a->bytes >= MIB && (uintptr_t)p % PAGE == 0)
			pages[n++] = (void *)(uintptr_t)p;
	}
	for (int i = 0; i < SECRETS; i++)
		pages[n++] = family.secret[i];
	return n;
}

/* ---- A child that left --------------------------------------------------- */

static void writes(void *arg)
{
	(void)arg;
	drop();
	each_own(write_file);
}

static void punches(void *arg)
{
	(void)arg;
	drop();
	each_own(punch_file);
}

static void later(void)
{
	for (int i = 0; i < SECRETS; i++)
		for (size_t at = 0; at < SECRET; at += PAGE)
			memcpy(family.secret[i] + at, secret_text(), strlen(secret_text()));
}

static void reads(void *arg)
{
	void *pages[HERD_KINDS + SECRETS];
	int n = inherited(pages);

	if (arg)
		cow_block_free(family.secret[1]);
	drop();
	gate_open(&family.to_parent);
	gate_wait(&family.to_child);
	each_own(read_file);
	must(found == 0);
	for (int i = 0; i < n; i++)
		if (arg && pages[i] == family.secret[1])
			pages[i] = pages[n - 1];
	must(grown(pages, n) == 0);
	_exit(0);
}

START_TEST(child_writes)
{
	make_family();
	herd_touch(&family.herd);
	in_child(writes, NULL);
	herd_check(&family.herd);
	herd_rewrite(&family.herd, 2000, 1);
	in_child(writes, NULL);
	free_family();
}
END_TEST

START_TEST(child_punches)
{
	make_family();
	in_child(punches, NULL);
	herd_check(&family.herd);
	free_family();
}
END_TEST

/* 0: the child keeps all. 1: it freed a block before it left. 2: the parent rewrites. */
START_TEST(child_reads_later)
{
	struct cow_range r = { .bytes = SECRET };
	pid_t child;

	make_family();
	child = child_start(reads, _i == 1 ? &family : NULL);
	gate_wait(&family.to_parent);
	herd_rewrite(&family.herd, 3000, 2);
	for (int i = 0; _i == 2 && i < SECRETS; i++) {
		r.start = family.secret[i];
		ok(cow_write_intent(&r, 1, COW_WRITE_ALL, NULL));
	}
	later();
	for (int i = 0; i < 5; i++) {
		cow_trim(); /* heals and thaws */
		later();
	}
	cow_block_free(new_block(16 * MIB, 0));
	gate_open(&family.to_child);
	child_finish(child);
	free_family();
}
END_TEST

/* Memory that was warm at the fork serves the parent again. */
START_TEST(child_reads_new)
{
	unsigned char *p[4];
	pid_t child;

	make_family();
	for (int round = 0; round < 8; round++) {
		for (int i = 0; i < 4; i++)
			memset(p[i] = new_block(SECRET, 0), 1, SECRET);
		for (int i = 0; i < 4; i++)
			cow_block_free(p[i]);
	}
	child = child_start(reads, NULL);
	gate_wait(&family.to_parent);
	for (int i = 0; i < 4; i++) {
		p[i] = new_block(SECRET, 0);
		for (size_t at = 0; at < SECRET; at += PAGE)
			memcpy(p[i] + at, secret_text(), strlen(secret_text()));
	}
	gate_open(&family.to_child);
	child_finish(child);
	for (int i = 0; i < 4; i++)
		cow_block_free(p[i]);
	free_family();
}
END_TEST

/* What was freed before the fork is no business of the child. */
START_TEST(child_reads_freed)
{
	unsigned char *p;
	pid_t child;

	make_family();
	p = new_block(SECRET, 0);
	for (size_t at = 0; at < SECRET; at += PAGE)
		memcpy(p + at, secret_text(), strlen(secret_text()));
	cow_block_free(p);
	child = child_start(reads, NULL);
	gate_wait(&family.to_parent);
	gate_open(&family.to_child);
	child_finish(child);
	free_family();
}
END_TEST

/* ---- Other directions ---------------------------------------------------- */

static void is_attacked(void *arg)
{
	(void)arg;
	gate_wait(&family.to_child);
	herd_check(&family.herd);
	herd_rewrite(&family.herd, 5000, 1);
	herd_check(&family.herd);
	herd_free(&family.herd);
}

static void parent_writes(void *arg)
{
	pid_t child;

	(void)arg;
	make_family();
	child = child_start(is_attacked, NULL);
	writes(NULL);
	gate_open(&family.to_child);
	child_finish(child);
	_exit(0);
}

START_TEST(parent_leaves)
{
	in_child(parent_writes, NULL);
}
END_TEST

START_TEST(sibling_leaves)
{
	pid_t child;

	make_family();
	child = child_start(is_attacked, NULL);
	in_child(writes, NULL);
	gate_open(&family.to_child);
	child_finish(child);
	free_family();
}
END_TEST

/* ---- What goes on -------------------------------------------------------- */

static void checks(void *arg)
{
	(void)arg;
	herd_check(&family.herd);
	herd_rewrite(&family.herd, 6000, 1);
	herd_check(&family.herd);
}

static void lives(void *arg)
{
	struct herd other;

	(void)arg;
	drop();
	herd_check(&family.herd);
	in_child(checks, NULL);
	herd_touch(&family.herd);
	herd_rewrite(&family.herd, 7000, 2);
	herd_check(&family.herd);
	in_child(checks, NULL);
	herd_rewrite(&family.herd, 8000, 1);
	herd_check(&family.herd);
	herd_make(&other, 9000);
	in_child(checks, NULL);
	herd_free(&family.herd);
	herd_check(&other);
	herd_free(&other);
}

START_TEST(both_go_on)
{
	pid_t child;

	make_family();
	child = child_start(lives, NULL);
	herd_rewrite(&family.herd, 2500, 2);
	checks(NULL);
	child_finish(child);
	herd_check(&family.herd);
	in_child(lives, NULL);
	free_family();
}
END_TEST

START_TEST(nobody_to_leave)
{
	make_family();
	for (int i = 0; i < 40; i++)
		ok(cow_family_leave());
	checks(NULL);
	in_child(checks, NULL);
	free_family();
}
END_TEST

static void leaves_often(void *arg)
{
	(void)arg;
	for (int i = 0; i < 40; i++)
		ok(cow_family_leave());
	lives(NULL);
}

START_TEST(left_again)
{
	make_family();
	in_child(leaves_often, NULL);
	checks(NULL);
	free_family();
}
END_TEST

/* Whoever leaves has wiped a key before. The file still has it for the relatives. */
static void wipes_and_leaves(void *arg)
{
	(void)arg;
	memset(family.secret[0], 'w', SECRET);
	drop();
	must(madvise(family.secret[0], SECRET, MADV_DONTNEED) == 0);
	for (size_t i = 0; i < SECRET; i += PAGE)
		must(family.secret[0][i] == 0);
	must(family.secret[1][0] == 's' && family.secret[1][SECRET - 1] == 's');
}

START_TEST(wiped_before)
{
	ok(cow_option_set("border", "copies"));
	make_family();
	in_child(wipes_and_leaves, NULL);
	checks(NULL);
	free_family();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("border");
	TCase *tcase = add_case(suite, "border");

	tcase_add_test(tcase, child_writes);
	tcase_add_test(tcase, child_punches);
	tcase_add_loop_test(tcase, child_reads_later, 0, 3);
	tcase_add_test(tcase, child_reads_new);
	tcase_add_test(tcase, child_reads_freed);
	tcase_add_test(tcase, parent_leaves);
	tcase_add_test(tcase, sibling_leaves);
	tcase_add_test(tcase, both_go_on);
	tcase_add_test(tcase, nobody_to_leave);
	tcase_add_test(tcase, left_again);
	tcase_add_test(tcase, wiped_before);
	return run_suite(suite);
}
