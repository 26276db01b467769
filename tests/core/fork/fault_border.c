/* SPDX-License-Identifier: MIT */
/*
 * Leaving the family, with every kernel call of it failing in turn
 *
 * cow_family_leave() either makes the border or says that it did not. So does the border to
 * children that a handler forked during the call, where the process wants copies and may get none. In both cases every
 * process sees its bytes, before and after it writes them. A process that left has neither a
 * descriptor nor a shared mapping of a file that its relatives have, whatever was refused.
 */
#include "core/fork/border.h"
#include "tests/support/fault/fault.h"
#include "tests/support/fault/sweep.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { FIRED = 3, CALLS_MAX = 500, FILES = 64, NUMBERS = 4096 };

static const int errors[] = { EPERM, ENOMEM, FAULT_LASTING | EMFILE, FAULT_LASTING | EPERM };
enum { ERRORS = COUNT(errors) };

struct file {
	dev_t dev;
	ino_t ino;
};

struct family {
	struct herd herd;
	struct gate left, done;
	struct file files[FILES]; /* that the parent had at the fork, memfds of the engine */
	int nfiles, n, error;
	bool late;
};

static bool is_engines(int fd)
{
	char path[40], to[64] = "";

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	return readlink(path, to, sizeof(to) - 1) > 0 &&
	       strncmp(to, "/memfd:cowshed (", 16) == 0;
}

static void note_files(struct family *f)
{
	struct stat st;

	f->nfiles = 0;
	for (int fd = 3; fd < NUMBERS && f->nfiles < FILES; fd++)
		if (fstat(fd, &st) == 0 && is_engines(fd))
			f->files[f->nfiles++] = (struct file){ st.st_dev, st.st_ino };
}

static void check_none_is_open(const struct family *f)
{
	struct stat st;

	for (int fd = 3; fd < NUMBERS; fd++)
		for (int i = 0; fstat(fd, &st) == 0 && i < f->nfiles; i++)
			ck_assert_msg(st.st_dev != f->files[i].dev || st.st_ino != f->files[i].ino,
			              "descriptor %d, call %d (%ld)", fd, f->n,
			              fault_fired_nr());
}

static void only_checks(void *arg)
{
	herd_check(arg);
}

static int make_border(const struct family *f)
{
	if (!f->late)
		return cow_family_leave();
	ok(cow_option_set("border", "copies"));
	cow_threads_end();
	return cow__border_make(true, true);
}

static void leaves(void *arg)
{
	struct family *f = arg;
	bool fired;
	int r;

	herd_rewrite(&f->herd, 700, 1);
	if (f->n)
		fault_after(f->n, f->error);
	r = make_border(f);
	fired = fault_disarm();
	ck_assert_msg(r == 0 || (fired && (r == -ENOMEM || r == -EAGAIN)), "%d, call %d (%ld)", r,
	              f->n, fault_fired_nr());
	if (r < 0) /* nothing is in the way any more */
		ok(cow_family_leave());
	check_none_is_open(f);
	gate_open(&f->left);
	gate_wait(&f->done); /* the parent has written */
	herd_check(&f->herd);
	herd_rewrite(&f->herd, 1500, 2);
	in_child(only_checks, &f->herd);
	herd_check(&f->herd);
	herd_free(&f->herd);
	cow_trim();
	must(stats_now().bytes_live == 0);
	if (fired)
		_exit(FIRED);
}

static bool round_with(struct family *f, int n, int error)
{
	const size_t bytes = 2 * MIB + 9 * PAGE;
	struct herd *herd = &f->herd;
	pid_t child;
	int status;

	memset(herd, 0, sizeof(*herd));
	cow_block_free(new_block(4 * MIB, 0)); /* warm memory, which is not for the child */
	sweep_add(herd, HERD_OWNED, new_storage(bytes, 0), NULL, bytes);
	sweep_add_clone(herd, HERD_OWNED, HERD_LAZY_A, lazy(herd->animals[HERD_OWNED].storage));
	sweep_add(herd, HERD_BLOCK, NULL, new_block(4 * MIB, 0), 4 * MIB);
	herd_touch(herd);
	f->n = n;
	f->error = error;
	gate_make(&f->left);
	gate_make(&f->done);
	note_files(f);
	child = child_start(leaves, f);
	gate_wait(&f->left);
	herd_rewrite(herd, 900, 3);
	cow_trim();
	herd_check(herd);
	gate_open(&f->done);
	status = child_status(child);
	ck_assert_msg(WIFEXITED(status) &&
	                      (WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == FIRED),
	              "call %d: wait status %#x", n, status);
	herd_rewrite(herd, 1100, 1);
	herd_check(herd);
	herd_free(herd);
	gate_free(&f->left);
	gate_free(&f->done);
	cow_trim();
	return WEXITSTATUS(status) == FIRED;
}

START_TEST(every_call)
{
	static struct family f;
	int n = 1;

	ok(cow_option_set("helper", "no"));
	f.late = _i >= ERRORS;
	(void)round_with(&f, 0, 0);
	while (round_with(&f, n, errors[_i % ERRORS]))
		must(++n < CALLS_MAX);
	ck_assert_msg(n > 5, "only %d calls", n - 1);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("fault_border");
	TCase *tcase = add_case(suite, "fault_border");

	tcase_add_loop_test(tcase, every_call, 0, 2 * ERRORS);
	return run_suite(suite);
}
