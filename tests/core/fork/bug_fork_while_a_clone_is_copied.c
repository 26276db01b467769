/* SPDX-License-Identifier: MIT */
/*
 * A clone that is copied into the group's memory while the process forks
 *
 * A fork makes that memory private, so what was copied afterwards was the sender's
 * alone: who received the clone found zeros. Here a page can't be read at first, and
 * the fork comes when the copy has got there.
 */
#include "tests/support/ends.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

enum { BYTES = 2 * MIB };

static char *source;
static struct gate gate, born;
static pid_t child;

static void forks(int number)
{
	(void)number;
	must(mprotect(source, BYTES, PROT_READ | PROT_WRITE) == 0);
	child = fork();
	must(child >= 0);
	if (child == 0) {
		gate_open(&born);
		gate_wait(&gate);
		_exit(0);
	}
}

START_TEST(it_arrives_whole)
{
	struct sigaction act = { .sa_handler = forks };
	struct cow_data_ptr ptr;
	struct cow_storage *s, *r;
	struct cow_channel *c;
	struct ends e;
	int status;

	gate_make(&gate);
	gate_make(&born);
	ends_make(&e, SOCK_STREAM, _i);
	source = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
	              -1, 0);
	must(source != MAP_FAILED);
	fill(source, BYTES, 1);
	ptr = cow_data_ptr_make(source, NULL, NULL, (struct cow_device){ COW_DEVICE_CPU, 0 });
	ok(cow_storage_new_external(&ptr, BYTES, NULL, &s));
	must(sigaction(SIGSEGV, &act, NULL) == 0);
	must(mprotect(source + BYTES / 2, BYTES / 2, PROT_NONE) == 0);
	send_one(e.mine, s, COW_SHARE_CLONE);
	must(child > 0);
	ok(cow_channel_new(e.fd[1], e.group, COW_CHANNEL_TAKE_ALIASES, &c));
	r = receive_one(c);
	ck_pattern(data(r), BYTES, 1);
	cow_storage_unref(r);
	cow_storage_unref(s);
	cow_channel_free(c);
	gate_wait(&born);
	ck_assert_uint_lt(memfd_bytes(), BYTES / 2); /* nor does the child hold it */
	gate_open(&gate);
	must(waitpid(child, &status, 0) == child && status == 0);
	ends_free(&e);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("bug_fork_while_a_clone_is_copied");
	TCase *tcase = add_case(suite, "regress");

	tcase_add_loop_test(tcase, it_arrives_whole, 0, 2);
	return run_suite(suite);
}
