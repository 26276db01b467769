/* SPDX-License-Identifier: MIT */
/*
 * A family of many living processes
 *
 * Sixty-two of them have a slot each. All later children share one, and the
 * open file description behind it. The story is the same for each of them: it
 * has the bytes of its moment, and whoever writes or frees is noticed by
 * nobody. The kernel's list of locks stays short, however many live, and all
 * memory is back when they were killed.
 */
#include "tests/support/support.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef FAMILY
#define FAMILY 300 /* more in long_large_family.c */
#endif

enum { BYTES = 8 * MIB, NOISE = 3 * MIB, SLOTS = 62, LOCKS = 2 * SLOTS };
enum { LATE = 10, ASKED = 150 };

static struct gate ready, go, done;
static unsigned char *block;

static void make_gates(void)
{
	gate_make(&ready);
	gate_make(&go);
	gate_make(&done);
}

static void free_gates(void)
{
	gate_free(&ready);
	gate_free(&go);
	gate_free(&done);
}

/* ---- Killed -------------------------------------------------------------- */

/* The first byte tells at which child the parent is. */
static void writes_and_stays(void *arg)
{
	size_t n = (size_t)(uintptr_t)arg;

	must(memcmp(block, &n, sizeof(n)) == 0);
	for (size_t i = 1; i < 9; i++) {
		unsigned char *page = block + (i * 200 + n % 100) * 4 * KIB;

		must(*page == 7);
		*page = 8;
	}
	gate_open(&ready);
	for (;;)
		pause();
}

static ino_t family_inode;

static void note_family(int fd, const char *name, void *arg)
{
	struct stat st;

	(void)arg;
	if (strstr(name, "cowshed-family") && fstat(fd, &st) == 0)
		family_inode = st.st_ino;
}

/* How many locks the kernel keeps for the family; -1 without /proc/locks. */
static int locks_of_family(void)
{
	char line[256];
	unsigned long inode;
	FILE *f = fopen("/proc/locks", "re");
	int n = 0;

	if (!f)
		return -1;
	family_inode = 0;
	each_memfd(note_family, NULL);
	must(family_inode != 0);
	while (fgets(line, sizeof(line), f))
		n += sscanf(line, "%*s %*s %*s %*s %*s %*x:%*x:%lu", &inode) == 1 &&
		     inode == family_inode;
	fclose(f);
	return n;
}

struct goal {
	uint64_t most, seen;
};

static bool holds_less(void *arg)
{
	struct goal *goal = arg;

	cow_trim();
	goal->seen = memory_held();
	return goal->seen <= goal->most && stats_now().bytes_limbo == 0;
}

static void must_come_to(uint64_t most)
{
	struct goal goal = { most, 0 };

	if (!wait_until(holds_less, &goal, 30))
		ck_abort_msg("%llu KiB are held, not %llu",
		             (unsigned long long)goal.seen >> 10,
		             (unsigned long long)most >> 10);
}

/* The parent writes before each fork, too. */
START_TEST(killed_families_leave_nothing)
{
	static pid_t children[FAMILY];
	uint64_t before = memory_held(), alone;
	long fds;

	make_gates();
	fds = footprint_now().fds;
	block = new_block(BYTES, 0);
	memset(block, 7, BYTES);
	alone = memory_held();
	for (size_t i = 0; i < FAMILY; i++) {
		memcpy(block, &i, sizeof(i));
		children[i] = child_start(writes_and_stays, (void *)(uintptr_t)i);
		gate_wait(&ready);
	}
	ck_assert_int_le(footprint_now().fds, fds + SLACK_FDS);
	ck_assert_int_le(locks_of_family(), LOCKS);
	for (size_t i = 0; i < FAMILY; i++)
		kill(children[i], SIGKILL);
	for (size_t i = 0; i < FAMILY; i++)
		must(WIFSIGNALED(child_status(children[i])));
	ck_bytes(block + sizeof(size_t), BYTES - sizeof(size_t), 7);
	must_come_to(alone + NOISE);
	if (!UNDER_TSAN) /* its own thread never rests: nothing thaws */
		ck_assert(mapped_shared(block));
	cow_block_free(block);
	must_come_to(before + NOISE);
	free_gates();
}
END_TEST

static void frees_and_stays(void *arg)
{
	(void)arg;
	cow_block_free(block);
	gate_open(&ready);
	for (;;)
		pause();
}

static void stays(void *arg)
{
	(void)arg;
	for (;;)
		pause();
}

/* Only children in the last slot have the block, so each question is about that
 * slot. Questions do not make the list of locks long. */
START_TEST(questions_leave_few_locks)
{
	pid_t children[SLOTS + ASKED];

	make_gates();
	block = new_block(BYTES, 0);
	memset(block, 7, BYTES);
	for (int i = 0; i < SLOTS; i++) {
		children[i] = child_start(frees_and_stays, NULL);
		gate_wait(&ready);
	}
	for (int i = SLOTS; i < SLOTS + ASKED; i++) {
		children[i] = child_start(stays, NULL);
		cow_trim();
	}
	ck_assert_int_le(locks_of_family(), LOCKS);
	for (int i = 0; i < SLOTS + ASKED; i++) {
		kill(children[i], SIGKILL);
		must(WIFSIGNALED(child_status(children[i])));
	}
	cow_block_free(block);
	free_gates();
}
END_TEST

/* ---- Beyond the slots ---------------------------------------------------- */

static void waits(void *arg)
{
	gate_wait(arg);
}

static void reads_later(void *arg)
{
	gate_wait(&go);
	ck_pattern(arg, BYTES, 1);
	gate_open(&done);
}

/* All that have a slot of their own are gone, those that share one live. */
START_TEST(late_children_keep_their_bytes)
{
	uint64_t before = memory_held();
	pid_t early[SLOTS], late[LATE];
	unsigned char *other;
	struct gate out;

	make_gates();
	gate_make(&out);
	block = new_block(BYTES, 0);
	fill(block, BYTES, 1);
	for (int i = 0; i < SLOTS; i++)
		early[i] = child_start(waits, &out);
	for (int i = 0; i < LATE; i++)
		late[i] = child_start(reads_later, block);
	for (int i = 0; i < SLOTS; i++)
		gate_open(&out);
	for (int i = 0; i < SLOTS; i++)
		child_finish(early[i]);
	cow_trim();
	fill(block, BYTES, 2);
	cow_block_free(block);
	cow_trim();
	other = new_block(BYTES, 0);
	fill(other, BYTES, 3);
	for (int i = 0; i < LATE; i++) {
		gate_open(&go);
		gate_wait(&done); /* one of them ends, the others still read */
		cow_trim();
		fill(other, BYTES, 4);
	}
	for (int i = 0; i < LATE; i++)
		child_finish(late[i]);
	cow_block_free(other);
	must_come_to(before + NOISE);
	gate_free(&out);
	free_gates();
}
END_TEST

static struct gate first, again, last;

static void rewrites_twice(void *arg)
{
	gate_wait(&ready); /* the parent is dead */
	cow_trim();
	fill(arg, BYTES, 2);
	cow_trim();
	ck_pattern(arg, BYTES, 2);
	gate_open(&done);
	gate_wait(&again); /* so are the others but the one that asked */
	cow_trim();
	fill(arg, BYTES, 3);
	cow_trim();
	ck_pattern(arg, BYTES, 3);
	gate_open(&last);
}

/* It leaves the description that the others share before anybody else asks. */
static void asks_and_reads(void *arg)
{
	gate_wait(&first);
	cow_trim();
	gate_open(&done);
	gate_wait(&last);
	ck_pattern(arg, BYTES, 1);
}

static void grandchild_reads(void *arg)
{
	pid_t child = child_start(reads_later, arg);

	gate_wait(&ready);
	cow_trim();
	fill(arg, BYTES, 4);
	gate_open(&done);
	child_finish(child);
}

static void has_orphans(void *arg)
{
	for (int i = 0; i < SLOTS - 1; i++)
		(void)child_start(waits, arg);
	(void)child_start(rewrites_twice, block);
	(void)child_start(asks_and_reads, block);
	(void)child_start(grandchild_reads, block);
	for (int i = 0; i < LATE; i++)
		(void)child_start(reads_later, block);
}

static void must_end_well(int count)
{
	int status;

	while (count-- > 0)
		must(wait(&status) > 0 && status == 0);
}

/* Orphans that share one description: each has to find out that it is not
 * alone, with the slots of the others taken (0) or free (1). They are children
 * of this process then. */
START_TEST(orphans_keep_their_bytes)
{
	struct gate out;

	must(prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0);
	make_gates();
	gate_make(&out);
	gate_make(&first);
	gate_make(&again);
	gate_make(&last);
	block = new_block(BYTES, 0);
	fill(block, BYTES, 1);
	in_child(has_orphans, &out);
	cow_block_free(block);
	cow_trim();
	for (int i = 0; _i && i < SLOTS - 1; i++)
		gate_open(&out);
	must_end_well(_i ? SLOTS - 1 : 0);
	gate_open(&first);
	gate_wait(&done);
	for (int i = 0; i < 2; i++)
		gate_open(&ready);
	for (int i = 0; i < 2; i++)
		gate_wait(&done);
	for (int i = 0; i < LATE + 1; i++) {
		gate_open(&go);
		gate_wait(&done);
	}
	must_end_well(LATE + 1);
	gate_open(&again);
	must_end_well(2);
	for (int i = 0; !_i && i < SLOTS - 1; i++)
		gate_open(&out);
	must_end_well(_i ? 0 : SLOTS - 1);
	gate_free(&out);
	gate_free(&first);
	gate_free(&again);
	gate_free(&last);
	free_gates();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("large_family");
	TCase *tcase = add_case(suite, "large family");

	tcase_add_test(tcase, killed_families_leave_nothing);
	tcase_add_test(tcase, questions_leave_few_locks);
	tcase_add_test(tcase, late_children_keep_their_bytes);
	tcase_add_loop_test(tcase, orphans_keep_their_bytes, 0, 2);
	return run_suite(suite);
}
