/* SPDX-License-Identifier: MIT */
/*
 * fork, with every kernel call of either process failing in turn
 *
 * fork() has no way to say no. So a refused freeze becomes a copy for the
 * child, and where that is refused, too, the child ends with status 127 before
 * it could read a byte that is not there. One failure alone never comes to that.
 * The parent must notice nothing, and of a child that lives every byte must be
 * right, whatever the other does next: also in its own children, which may be
 * counted where it could not be.
 */
#include "core/program/advise.h"
#include "tests/support/fault/fault.h"
#include "tests/support/fault/sweep.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { FIRED = 3, NO_MEMORY = 127, CALLS_MAX = 500 };

/* Which call of the coming child fails; 0: none. */
static int fail_in_child_n, fail_in_child_error;

static void flock_make(struct herd *herd)
{
	struct animal *a = herd->animals;
	const size_t bytes = 2 * MIB + 9 * PAGE;

	memset(herd, 0, sizeof(*herd));
	sweep_add(herd, HERD_OWNED, new_storage(bytes, 0), NULL, bytes);
	sweep_add_clone(herd, HERD_OWNED, HERD_VIEW,
	                lazy(a[HERD_OWNED].storage));
	sweep_add_clone(herd, HERD_OWNED, HERD_LAZY_A,
	                lazy(a[HERD_OWNED].storage));
	mut_range(a[HERD_VIEW].storage, 0, 1, COW_WRITE_BY_PAGE);
	sweep_add(herd, HERD_TINY, new_storage(77, 0), NULL, 77);
	sweep_add(herd, HERD_BLOCK, NULL, new_block(80000, 0), 80000);
	sweep_add(herd, HERD_CLONED,
	          new_storage(bytes, COW_STORAGE_TRANSPARENT), NULL, bytes);
	a[HERD_CLONED].exposed = expose(a[HERD_CLONED].storage);
	sweep_add_clone(herd, HERD_CLONED, HERD_CLONE,
	                lazy(a[HERD_CLONED].storage));
	herd_touch(herd);
}

/* Each sweep is a hundred forks: these ways stand for all. */
/* With QUICK=1 the first two. */
static const int errors[] = { ENOMEM, FAULT_LASTING | ENOMEM, EPERM, EMFILE };
enum { ERRORS = COUNT(errors) };

struct family {
	struct herd herd;
	struct gate begin, done;
	bool fail_child; /* else: the parent's calls */
};

static void grandchild(void *arg)
{
	struct family *f = arg;

	herd_check(&f->herd);
	herd_rewrite(&f->herd, 4000, 1);
	herd_check(&f->herd);
}

static void child(void *arg)
{
	struct family *f = arg;
	bool fired = fault_disarm();

	herd_check(&f->herd);
	gate_wait(&f->begin); /* the parent has written */
	herd_check(&f->herd);
	/* Its own fork would be the one that fails. */
	fail_in_child_n = 0;
	in_child(grandchild, f);
	herd_check(&f->herd);
	herd_free_half(&f->herd, 0);
	cow_trim();
	herd_check(&f->herd);
	herd_rewrite(&f->herd, 3000, 1);
	herd_check(&f->herd);
	gate_open(&f->done);
	herd_free(&f->herd);
	cow_trim();
	must(stats_now().bytes_live == 0);
	if (fired && f->fail_child)
		_exit(FIRED);
}

/* In the child, before the library's handler. */
static void arm_child(void)
{
	if (fail_in_child_n > 0)
		fault_after(fail_in_child_n, fail_in_child_error);
}

/* Handlers run in the order of registration, and constructors with a priority
 * before those without. */
__attribute__((constructor(101))) static void register_first(void)
{
	pthread_atfork(NULL, NULL, arm_child);
}

/* One fork with the n-th call failing. True if there was one. */
static bool round_with(struct family *f, int n, int error)
{
	int status;
	pid_t pid, second;
	bool fired;

	flock_make(&f->herd);
	gate_make(&f->begin);
	gate_make(&f->done);
	fail_in_child_n = f->fail_child ? n : 0;
	fail_in_child_error = error;
	if (!f->fail_child)
		fault_after(n, error);
	pid = child_start(child, f);
	fired = fault_disarm();
	fail_in_child_n = 0;
	/* A sibling that can be counted, for the other one to ask after. */
	second = child_start(grandchild, f);
	herd_rewrite(&f->herd, 1000, 2);
	herd_check(&f->herd);
	gate_open(&f->begin);
	child_finish(second);
	cow_trim();
	herd_rewrite(&f->herd, 2000, 1);
	status = child_status(pid);
	ck_assert_msg(WIFEXITED(status), "call %d (%ld): wait status %#x", n,
	              fault_fired_nr(), status);
	status = WEXITSTATUS(status);
	ck_assert_msg(status == 0 || status == FIRED ||
	                      (status == NO_MEMORY && error & FAULT_LASTING),
	              "call %d (%ld): the child failed, status %d", n,
	              fault_fired_nr(), status);
	herd_check(&f->herd);
	/* And again, now that all is well. */
	in_child(grandchild, f);
	herd_rewrite(&f->herd, 5000, 1);
	herd_check(&f->herd);
	herd_free(&f->herd);
	gate_free(&f->begin);
	gate_free(&f->done);
	if (f->fail_child)
		return status == FIRED || (n > 0 && status == NO_MEMORY);
	must(fired || status == 0);
	return fired;
}

static void sweep_fork(bool fail_child, int error)
{
	static struct family f;
	struct footprint before, now;
	uint64_t uncounted = 0;
	int n;

	ok(cow_option_set("helper", "no"));
	f.fail_child = fail_child;
	round_with(&f, 0, error);
	sweep_renew();
	before = footprint_now();
	for (n = 1; round_with(&f, n, error); n++) {
		uint64_t slots = stats_now().fallbacks[COW_FALLBACK_SLOTS];

		sweep_renew();
		now = footprint_now();
		/* What a child inherited that could not be counted is kept for
		 * ever, and so is its segment: docs/design/holders.md. */
		if (slots > uncounted)
			before = now;
		uncounted = slots;
		ck_assert_msg(now.fds <= before.fds + 1,
		              "call %d (%ld): %ld descriptors, not %ld", n,
		              fault_fired_nr(), now.fds, before.fds);
		must(footprint_excess(&before, &now) == NULL);
		must(n < CALLS_MAX);
	}
	ck_assert_msg(n > 5, "only %d calls", n - 1);
}

START_TEST(every_call_of_the_parent)
{
	sweep_fork(false, errors[_i]);
}
END_TEST

START_TEST(every_call_of_the_child)
{
	sweep_fork(true, errors[_i]);
}
END_TEST

/* A parent and two children: one is counted, the other could not be. The
 * parent is gone, and the first must not believe that it is alone. */
struct orphans {
	struct herd herd;
	struct gate first, second, right;
};

static void counted_one(void *arg)
{
	struct orphans *o = arg;

	gate_wait(&o->first);
	cow_trim();
	herd_rewrite(&o->herd, 7000, 1);
	cow_trim();
	herd_rewrite(&o->herd, 8000, 1);
	gate_open(&o->second);
}

static void uncounted_one(void *arg)
{
	struct orphans *o = arg;

	fault_disarm();
	gate_wait(&o->second);
	herd_check(&o->herd);
	gate_open(&o->right);
}

static void dying_parent(void *arg)
{
	struct orphans *o = arg;

	flock_make(&o->herd);
	child_start(counted_one, o);
	/* No slot: a description of its own takes /proc. */
	fault_deny(SYS_openat, FAULT_ANY, 0, EMFILE);
	child_start(uncounted_one, o);
	must(fault_denials() > 0);
}

START_TEST(uncounted_sibling)
{
	static struct orphans o;

	gate_make(&o.first);
	gate_make(&o.second);
	gate_make(&o.right);
	in_child(dying_parent, &o);
	gate_open(&o.first);
	gate_wait(&o.right);
	gate_free(&o.first);
	gate_free(&o.second);
	gate_free(&o.right);
}
END_TEST

static void sees_no_secret(void *arg)
{
	unsigned char *p = arg;
	bool fired = fault_disarm();

	ck_bytes(p, MIB, 0);
	ck_pattern(p + MIB, MIB, 9);
	if (fired)
		_exit(FIRED);
}

/* What is to be wiped in a child is, whatever fails there; or the child is not. */
START_TEST(wiped)
{
	unsigned char *p;
	int status, n = 0;

	do {
		p = new_block(2 * MIB, 0);
		fill(p, MIB, 8);
		fill(p + MIB, MIB, 9);
		must(cow__advise((uintptr_t)p, MIB, MADV_WIPEONFORK) == 0);
		fail_in_child_n = ++n;
		fail_in_child_error = errors[_i];
		status = child_status(child_start(sees_no_secret, p));
		fail_in_child_n = 0;
		must(WIFEXITED(status));
		status = WEXITSTATUS(status);
		ck_pattern(p, MIB, 8);
		cow_block_free(p);
		ck_assert_msg(status == 0 || status == FIRED ||
		                      (status == NO_MEMORY && errors[_i] & FAULT_LASTING),
		              "call %d: the child's status is %d", n, status);
		must(n < CALLS_MAX);
	} while (status != 0);
	ck_assert_int_gt(n, 3);
}
END_TEST

static void reader(void *arg)
{
	herd_check(arg);
	herd_rewrite(arg, 3000, 1);
	herd_check(arg);
}

/* A program that sandboxes itself after its first fork: what was withheld from children
 * until then can't be given to them any more, and is copied. */
static void denied_later(void *arg)
{
	struct herd herd;

	(void)arg;
	flock_make(&herd);
	in_child(reader, &herd);
	fault_deny(SYS_madvise, FAULT_ANY, 0, EPERM);
	/* A mapping that is not withheld, since that can't be any more. */
	herd_rewrite(&herd, 1000, 1);
	sweep_add(&herd, HERD_TRANSPARENT, new_storage(MIB, COW_STORAGE_TRANSPARENT), NULL, MIB);
	in_child(reader, &herd);
	must(fault_denials() > 0);
	in_child(reader, &herd);
	herd_check(&herd);
	herd_free(&herd);
	must(stats_now().bytes_live == 0);
}

/* In a child: without advice its memory can't be given back, either. */
START_TEST(advice_denied_later)
{
	in_child(denied_later, NULL);
}
END_TEST

static unsigned char *cut;

static bool map_nothing(void *arg)
{
	(void)arg;
	return mmap(cut + 2 * MIB, MIB, PROT_NONE,
	            MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != MAP_FAILED;
}

static bool map_an_empty_file(void *arg)
{
	int fd = memfd_create("empty", MFD_CLOEXEC);

	(void)arg;
	must(fd >= 0);
	must(mmap(cut + 4 * MIB, MIB, PROT_READ | PROT_WRITE,
	          MAP_SHARED | MAP_FIXED, fd, 0) != MAP_FAILED);
	return close(fd) == 0;
}

static bool map_common(void *arg)
{
	(void)arg;
	return mmap(cut + 6 * MIB, MIB, PROT_READ | PROT_WRITE,
	            MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != MAP_FAILED;
}

static void cut_one(void *arg)
{
	static const unsigned ours[] = { 0, 3, 5, 7 };
	unsigned char there;

	for (unsigned i = 0; i < COUNT(ours); i++)
		ck_pattern(cut + ours[i] * MIB, MIB, ours[i] + 1);
	/* Of what can't be read the addresses are there. */
	for (unsigned i = 1; i < 5; i++)
		must(mincore(cut + i * MIB, PAGE, &there) == 0);
	ck_pattern(cut + 6 * MIB, MIB, 99);
	fill(cut, MIB, 50);
	if (arg)
		fill(cut + 6 * MIB, MIB, 100);
}

/* The same for a block with a hole and with mappings of the program's, which are the
 * kernel's to inherit: some can't even be read. */
static void cut_and_denied(void *arg)
{
	(void)arg;
	cut = new_block(8 * MIB, 0);
	for (unsigned i = 0; i < 8; i++)
		fill(cut + i * MIB, MIB, i + 1);
	ok(cow__unmap((uintptr_t)cut + MIB, MIB));
	ok(cow__overmap((uintptr_t)cut + 2 * MIB, MIB, 0, map_nothing, NULL));
	ok(cow__overmap((uintptr_t)cut + 4 * MIB, MIB, 0, map_an_empty_file, NULL));
	ok(cow__overmap((uintptr_t)cut + 6 * MIB, MIB, 0, map_common, NULL));
	fill(cut + 6 * MIB, MIB, 99);
	in_child(cut_one, NULL);
	fault_deny(SYS_madvise, FAULT_ANY, 0, EPERM);
	in_child(cut_one, NULL);
	in_child(cut_one, cut);
	ck_pattern(cut, MIB, 1);
	ck_pattern(cut + 6 * MIB, MIB, 100);
	cow_block_free(cut);
}

START_TEST(parts_of_a_block_denied_later)
{
	in_child(cut_and_denied, NULL);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("fault_fork");
	TCase *tcase = add_case(suite, "fault_fork");

	tcase_add_loop_test(tcase, every_call_of_the_parent, 0, rounds(ERRORS));
	tcase_add_loop_test(tcase, every_call_of_the_child, 0, rounds(ERRORS));
	tcase_add_test(tcase, uncounted_sibling);
	tcase_add_loop_test(tcase, wiped, 0, rounds(ERRORS));
	tcase_add_test(tcase, advice_denied_later);
	tcase_add_test(tcase, parts_of_a_block_denied_later);
	return run_suite(suite);
}
