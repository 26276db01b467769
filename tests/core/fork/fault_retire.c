/* SPDX-License-Identifier: MIT */
/*
 * The engine retires, with every kernel call of it failing in turn
 *
 * Whatever was refused, the process has its bytes, writes them and frees them. It gets no new
 * memory. Its children have their own, or crash where a step was refused that they needed. If the
 * filter could not be set, all is as before.
 */
#include "core/fork/retire.h"
#include "tests/support/fault/fault.h"
#include "tests/support/fault/sweep.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { FIRED = 3, CALLS_MAX = 500 };

static const int errors[] = { EPERM, ENOMEM, FAULT_LASTING | EMFILE, FAULT_LASTING | EPERM };
enum { ERRORS = COUNT(errors) };

struct story {
	struct herd herd;
	int n, error;
	bool undo;
};

static void child_works(void *arg)
{
	struct herd *h = arg;

	herd_check(h);
	herd_rewrite(h, 1100, 5);
	herd_check(h);
}

/* May it lack memory? */
static void forks(struct herd *h, bool may_lack)
{
	int status;
	pid_t child;

	if (!may_lack) {
		in_child(child_works, h);
		return;
	}
	child = fork();
	must(child >= 0);
	if (child == 0) {
		signal(SIGSEGV, SIG_DFL);
		child_works(h);
		_exit(0);
	}
	must(waitpid(child, &status, 0) == child);
	must((WIFEXITED(status) && WEXITSTATUS(status) == 0) ||
	     (WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV));
}

static void retires(void *arg)
{
	struct story *s = arg;
	void *block;
	bool fired;
	int r;

	herd_rewrite(&s->herd, 700, 1);
	ok(cow_family_leave());
	if (s->n)
		fault_after(s->n, s->error);
	r = cow__retire();
	fired = fault_disarm();
	must(r == 0 || (fired && (r == -ENOMEM || r == -EAGAIN)));
	if (r < 0) { /* the engine goes on, and nothing is in the way any more */
		herd_check(&s->herd);
		in_child(child_works, &s->herd);
		herd_rewrite(&s->herd, 1300, 1);
		ok(cow__retire());
	}
	herd_check(&s->herd);
	must(cow_block_new(4 * MIB, 0, 0, &block) == -EPERM);
	forks(&s->herd, fired);
	herd_rewrite(&s->herd, 1500, 2);
	herd_check(&s->herd);
	if (s->undo) {
		cow__retire_undo();
		ok(cow_block_new(4 * MIB, 0, 0, &block));
		memset(block, 1, 4 * MIB);
		in_child(child_works, &s->herd);
		cow_block_free(block);
	}
	herd_check(&s->herd);
	herd_free(&s->herd);
	if (s->undo) {
		cow_trim();
		must(stats_now().bytes_live == 0);
	}
	if (fired)
		_exit(FIRED);
}

static bool round_with(struct story *s, int n, int error)
{
	const size_t bytes = 2 * MIB + 9 * PAGE;
	struct herd *herd = &s->herd;
	int status;

	memset(herd, 0, sizeof(*herd));
	cow_block_free(new_block(4 * MIB, 0)); /* warm memory */
	sweep_add(herd, HERD_OWNED, new_storage(bytes, 0), NULL, bytes);
	sweep_add_clone(herd, HERD_OWNED, HERD_LAZY_A, lazy(herd->animals[HERD_OWNED].storage));
	sweep_add(herd, HERD_BLOCK, NULL, new_block(4 * MIB, 0), 4 * MIB);
	herd_touch(herd);
	s->n = n;
	s->error = error;
	status = child_status(child_start(retires, s));
	ck_assert_msg(WIFEXITED(status) &&
	                      (WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == FIRED),
	              "call %d: wait status %#x", n, status);
	herd_check(herd);
	herd_free(herd);
	cow_trim();
	return WEXITSTATUS(status) == FIRED;
}

START_TEST(every_call)
{
	static struct story s;
	int n = 1;

	ok(cow_option_set("helper", "no"));
	for (int undo = 0; undo < 2; undo++) {
		s.undo = undo;
		(void)round_with(&s, 0, 0);
	}
	while (s.undo = n % 2, round_with(&s, n, errors[_i]))
		must(++n < CALLS_MAX);
	ck_assert_msg(n > 5, "only %d calls", n - 1);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("fault_retire");
	TCase *tcase = add_case(suite, "fault_retire");

	tcase_add_loop_test(tcase, every_call, 0, ERRORS);
	return run_suite(suite);
}
