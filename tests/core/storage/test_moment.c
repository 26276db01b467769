/* SPDX-License-Identifier: MIT */
/*
 * Clones of one moment (cow_storages_clone_at_once())
 *
 * A thread writes 1, 2, 3... to cells in many storages, always in the same order. So at each moment
 * a cell has the number of the cell before it, or one less, and the last cell at least the first
 * one's number less one. Clones must show that, too.
 */
#include "tests/support/support.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MOST = 6 };

static struct cow_storage *storages[MOST], *clones[MOST];
static size_t nstorages;

static struct {
	size_t storage, offset;
} cells[4096];
static size_t ncells;

static volatile uint64_t *places[4096];
static volatile bool stops;

static void add_storage(size_t bytes, size_t step)
{
	unsigned char *p;
	struct cow_storage *s = new_storage(bytes, COW_STORAGE_TRANSPARENT);

	p = expose(s);
	memset(p, 0, bytes);
	/* From the end to the beginning: a copy page by page would come to the last cell first. */
	for (size_t at = bytes - sizeof(uint64_t); ncells < COUNT(cells); at -= step) {
		cells[ncells].storage = nstorages;
		cells[ncells].offset = at & ~7ul;
		places[ncells] = (void *)(p + cells[ncells].offset);
		ncells++;
		if (at < step)
			break;
	}
	storages[nstorages++] = s;
}

static void forget_storages(void)
{
	for (size_t i = 0; i < nstorages; i++)
		cow_storage_unref(storages[i]);
	nstorages = ncells = 0;
}

static void *writes(void *arg)
{
	(void)arg;
	for (uint64_t number = 1; !stops; number++)
		for (size_t i = 0; i < ncells; i++)
			*places[i] = number;
	return NULL;
}

/* Do the clones show a moment? */
static bool is_one_moment(void)
{
	uint64_t first = 0, last = 0;

	for (size_t i = 0; i < ncells; i++) {
		uint64_t v;

		memcpy(&v, data(clones[cells[i].storage]) + cells[i].offset, sizeof(v));
		if (i && (v > last || first - v > 1))
			return false;
		first = i ? first : v;
		last = v;
	}
	return true;
}

static void drop_clones(void)
{
	for (size_t i = 0; i < nstorages; i++)
		clones[i] = cow_storage_unref(clones[i]);
}

/* Beside the writer, `times` times. */
static bool is_right(int times)
{
	pthread_t thread;
	bool right = true;

	stops = false;
	if (pthread_create(&thread, NULL, writes, NULL) != 0)
		return false;
	for (int i = 0; right && i < times; i++) {
		ok(cow_storages_clone_at_once(storages, nstorages, NULL, clones));
		right = is_one_moment();
		drop_clones();
		sched_yield();
	}
	stops = true;
	pthread_join(thread, NULL);
	forget_storages();
	return right;
}

static void look(int times)
{
	ck_assert(is_right(times));
}

/* Few cells in many pages, in more than one storage, one of them a small one. */
START_TEST(many_storages)
{
	add_storage(2 * MIB, 300 * KIB);
	add_storage(64, 32);
	add_storage(40 * MIB + 5 * PAGE, 3 * MIB);
	add_storage(512 * KIB, 100 * KIB);
	look(rounds(200));
}
END_TEST

/* So much is written that no view is worth it. */
START_TEST(all_pages)
{
	add_storage(4 * MIB, PAGE);
	add_storage(MIB, PAGE);
	look(rounds(60));
}
END_TEST

/* Short runs, which are patched into the view. */
START_TEST(scattered_pages)
{
	add_storage(64 * MIB, 40 * PAGE);
	look(rounds(100));
}
END_TEST

static void anonymous(void *arg)
{
	(void)arg;
	ok(cow_option_set("backing", "anon"));
	add_storage(4 * MIB, 16 * PAGE);
	add_storage(MIB, 16 * PAGE);
	look(rounds(60));
}

START_TEST(anonymous_memory)
{
	in_child(anonymous, NULL);
}
END_TEST

/* Clones of clones, which their threads write, too; and a storage twice in one list. */
START_TEST(generations)
{
	struct cow_storage *twice[2], *got[2];
	uint64_t copied = 1;
	pthread_t thread;

	add_storage(8 * MIB, 200 * KIB);
	stops = false;
	ck_assert_int_eq(pthread_create(&thread, NULL, writes, NULL), 0);
	twice[0] = twice[1] = storages[0];
	for (int i = 0; i < 50; i++) {
		ok(cow_storages_clone_at_once(twice, 2, &copied, got));
		ck_assert(memcmp(data(got[0]), data(got[1]), 8 * MIB) == 0);
		cow_storage_unref(got[0]);
		memset(mut_range(got[1], i * PAGE, PAGE, COW_WRITE_BY_PAGE), i, PAGE);
		ok(cow_storages_clone_at_once(&got[1], 1, NULL, clones));
		ck_assert(memcmp(data(got[1]), data(clones[0]), 8 * MIB) == 0);
		cow_storage_unref(got[1]);
		drop_clones();
	}
	stops = true;
	pthread_join(thread, NULL);
	forget_storages();
}
END_TEST

/* Also where nobody else runs, and no child is needed. */
START_TEST(holes_stay_holes)
{
	struct cow_storage *s = new_storage(256 * MIB, COW_STORAGE_TRANSPARENT | COW_STORAGE_ZERO), *c;
	unsigned char *p = expose(s);
	uint64_t before;
	pthread_t thread;

	p[100 * MIB] = 1;
	ncells = 0;
	stops = !_i;
	ck_assert_int_eq(pthread_create(&thread, NULL, writes, NULL), 0);
	if (stops)
		pthread_join(thread, NULL);
	before = memory_held();
	for (int i = 0; i < 3; i++) {
		ok(cow_storages_clone_at_once(&s, 1, NULL, &c));
		ck_assert_uint_eq(data(c)[100 * MIB], 1 + i);
		ck_assert_uint_eq(data(c)[100 * MIB + 1], 0);
		p[100 * MIB]++;
		cow_storage_unref(c);
	}
	ck_assert_uint_lt(memory_held(), before + 16 * MIB);
	if (!stops) {
		stops = true;
		pthread_join(thread, NULL);
	}
	cow_storage_unref(s);
}
END_TEST

static int deadly; /* SIGKILL or SIGSTOP */

/* Kills all children of this process, or stops them, as somebody else might. */
static void *kills(void *arg)
{
	char path[64], line[256];

	snprintf(path, sizeof(path), "/proc/self/task/%d/children", *(int *)arg);
	while (!stops) {
		FILE *f = fopen(path, "re");

		if (f && fgets(line, sizeof(line), f) && atoi(line) > 0)
			kill(atoi(line), deadly);
		if (f)
			fclose(f);
	}
	return NULL;
}

static bool has_no_child(void *arg)
{
	(void)arg;
	return waitpid(-1, NULL, __WALL | WNOHANG) < 0;
}

START_TEST(killed_children)
{
	int tid = gettid(), killed = 0, r;
	pthread_t killer, writer;
	char path[64];

	snprintf(path, sizeof(path), "/proc/self/task/%d/children", tid);
	if (access(path, R_OK) < 0)
		return; /* the kernel can't say who they are */
	add_storage(4 * MIB, PAGE);
	stops = false;
	deadly = _i ? SIGSTOP : SIGKILL;
	ck_assert_int_eq(pthread_create(&killer, NULL, kills, &tid), 0);
	ck_assert_int_eq(pthread_create(&writer, NULL, writes, NULL), 0);
	for (int i = 0; killed < 10 && i < (_i ? 100 : 100000); i++) {
		r = cow_storages_clone_at_once(storages, 1, NULL, clones);
		ck_assert(r == 0 || r == -EAGAIN);
		ck_assert(!clones[0] == (r < 0));
		ck_assert(r < 0 || is_one_moment());
		killed += r < 0;
		drop_clones();
	}
	stops = true;
	pthread_join(killer, NULL);
	pthread_join(writer, NULL);
	ck_assert(_i || killed == 10);
	ck_assert(wait_until(has_no_child, NULL, 10));
	ok(cow_storages_clone_at_once(storages, 1, NULL, clones));
	drop_clones();
	forget_storages();
}
END_TEST

/* What was written can't be known then, so all is read. */
static void other_user(void *arg)
{
	struct cow_storage *first;

	(void)arg;
	add_storage(4 * MIB, 100 * PAGE);
	first = lazy(storages[0]);
	if (setresuid(65534, 65534, 65534) == 0)
		look(20);
	cow_storage_unref(first);
}

START_TEST(without_privileges)
{
	in_child(other_user, NULL);
}
END_TEST

/* A filter ends the process for one call, and came with exec. */
static void filtered(void *arg)
{
	bool forks = *(int *)arg == 1;
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, forks ? SYS_clone : SYS_process_vm_readv, 0, 3),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[0])),
		BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, forks ? CLONE_VM : 0, 1, 0),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = { COUNT(filter), filter };

	ck_assert_int_eq(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
	if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) < 0)
		_exit(0); /* the kernel has none */
	execl("/proc/self/exe", "test_moment", forks ? "no-forks" : "no-reading", NULL);
	_exit(127);
}

START_TEST(under_a_filter)
{
	in_child(filtered, &_i);
}
END_TEST

static void again(void *arg)
{
	(void)arg;
	look(5);
}

/* A fork takes along what is known of the last child, which is no child of its own. */
START_TEST(in_a_forked_child)
{
	pthread_t thread;

	add_storage(MIB, 100 * KIB);
	stops = false;
	ck_assert_int_eq(pthread_create(&thread, NULL, writes, NULL), 0);
	ok(cow_storages_clone_at_once(storages, 1, NULL, clones));
	stops = true;
	pthread_join(thread, NULL);
	drop_clones();
	in_child(again, NULL);
	forget_storages();
}
END_TEST

static void *takes_moments(void *arg)
{
	(void)arg;
	for (;;)
		if (cow_storages_clone_at_once(storages, nstorages, NULL, clones) == 0)
			drop_clones();
	return NULL;
}

static void executed(void *arg)
{
	pthread_t writer, taker;

	(void)arg;
	add_storage(MIB, 3 * PAGE);
	add_storage(32 * MIB, 3 * PAGE);
	stops = false;
	if (pthread_create(&writer, NULL, writes, NULL) != 0 ||
	    pthread_create(&taker, NULL, takes_moments, NULL) != 0)
		_exit(1);
	while (stats_now().clones_paged % 2 == 0) /* the first one is made, the second is not */
		sched_yield();
	execl("/proc/self/exe", "test_moment", "children", NULL);
	_exit(127);
}

/* The process executes a program while another thread takes a moment. */
START_TEST(beside_exec)
{
	in_child(executed, NULL);
}
END_TEST

/* The program that it executes: 0 if all is as it should be. */
static int run_filtered(bool may_fork)
{
	pthread_t thread;
	int r;

	if (may_fork) /* the child answers */
		return !is_right(20);
	stops = false;
	if (pthread_create(&thread, NULL, writes, NULL) != 0)
		return 1;
	r = cow_storages_clone_at_once(storages, 1, NULL, clones);
	stops = true;
	pthread_join(thread, NULL);
	return r != -EAGAIN || clones[0];
}

int main(int argc, char **argv)
{
	Suite *suite = suite_create("moment");
	TCase *tcase = add_case(suite, "moment");

	if (argc == 2 && strcmp(argv[1], "children") == 0)
		return !wait_until(has_no_child, NULL, 60);
	if (argc == 2) {
		add_storage(MIB, 100 * KIB);
		return run_filtered(strcmp(argv[1], "no-reading") == 0);
	}

	tcase_add_loop_test(tcase, holes_stay_holes, 0, 1);
	if (SANITIZED || access("/proc/self/ns/pid_for_children", F_OK) < 0) {
		puts("skip moment sanitizers and gVisor have no children for it");
		return run_suite(suite);
	}
	tcase_add_loop_test(tcase, holes_stay_holes, 1, 2);
	tcase_add_test(tcase, many_storages);
	tcase_add_test(tcase, all_pages);
	tcase_add_test(tcase, scattered_pages);
	tcase_add_test(tcase, anonymous_memory);
	tcase_add_test(tcase, generations);
	tcase_add_loop_test(tcase, killed_children, 0, 2);
	tcase_add_test(tcase, without_privileges);
	tcase_add_loop_test(tcase, under_a_filter, 0, 2);
	tcase_add_test(tcase, in_a_forked_child);
	tcase_add_test(tcase, beside_exec);
	return run_suite(suite);
}
