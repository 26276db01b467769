/* SPDX-License-Identifier: MIT */
/*
 * Processes that are killed at each call of the kernel that receiving and forking make
 *
 * This program has a gate of its own in the place of the library's (memfd/syscall.c).
 * A child counts its calls there and kills itself before the n-th; then another child
 * does so before the one after it, until n is beyond the last call.
 *
 *   a receiver   inside cow_channel_receive(): before it looks at the message, when it
 *                has its descriptors, has taken it, holds its storages or lets go of
 *                the message's slot
 *   a holder     inside fork(): before the child exists, and after that in either of
 *                them
 *
 * After each death the sender writes its storage in place, and has the memory and the
 * descriptors that it had before.
 */
#define cow__syscall real_gate
#include "memfd/syscall.c"
#undef cow__syscall

#include "tests/support/ends.h"

#include <errno.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

enum { BYTES = 64 * KIB };

/* ---- The gate --------------------------------------------------------------------- */

static int calls_left; /* 0: the process is not killed */

/* Kills the process before its n-th call from now on; 0: does not. A forked child goes on
 * with a copy. */
static void kill_before(int n)
{
	__atomic_store_n(&calls_left, n, __ATOMIC_RELAXED);
}

long cow__syscall(long nr, long a, long b, long c, long d, long e, long f)
{
	if (__atomic_load_n(&calls_left, __ATOMIC_RELAXED) > 0 &&
	    __atomic_sub_fetch(&calls_left, 1, __ATOMIC_RELAXED) == 0)
		real_gate(SYS_kill, real_gate(SYS_getpid, 0, 0, 0, 0, 0, 0), SIGKILL,
		          0, 0, 0, 0);
	return real_gate(nr, a, b, c, d, e, f);
}

/* ---- What the sender has ---------------------------------------------------------- */

struct sender {
	struct cow_storage *s;
	const void *place;
	struct footprint before;
};

/* To be called when the child has been started: a fork would part the pack. */
static void sender_make(struct sender *t, struct ends *e, enum cow_share_mode mode)
{
	if (e->group)
		ok(cow_group_storage_new(e->group, BYTES, mode, &t->s));
	else
		t->s = new_storage(BYTES, 0);
	fill(mut(t->s), BYTES, 1);
	send_one(e->mine, t->s, mode);
	t->place = data(t->s);
	t->before = footprint_now();
}

static void sender_check(struct sender *t, enum cow_share_mode mode)
{
	struct footprint now;

	ck_pattern(data(t->s), BYTES, 1);
	if (mode != COW_SHARE_SEALED) {
		fill(mut(t->s), BYTES, 2);
		ck_assert_ptr_eq(data(t->s), t->place);
		ck_pattern(data(t->s), BYTES, 2);
	}
	now = footprint_now();
	ck_assert_int_eq(now.fds, t->before.fds);
	ck_assert_int_eq(now.maps, t->before.maps);
	/* Of the slots that were taken each may have a page of bits in the pack. */
	ck_assert_uint_le(now.memory, t->before.memory + 4 * PAGE);
	cow_storage_unref(t->s);
}

/* ---- Inside cow_channel_receive() ------------------------------------------------- */

struct receiving {
	struct ends ends;
	struct gate sent;
	int call;
};

static void receiver(void *arg)
{
	struct receiving *t = arg;
	struct cow_channel *c = child_channel(&t->ends);
	struct cow_storage *s;

	gate_wait(&t->sent);
	kill_before(t->call);
	s = receive_one(c);
	kill_before(0);
	ck_pattern(data(s), BYTES, 1);
}

static bool is_dead(pid_t child)
{
	int status = child_status(child);

	must(status == SIGKILL || status == 0);
	return status == SIGKILL;
}

/* False: it makes fewer calls, and returned. `heir`: this process has the receiver's
 * socket, too, and looks whether the message is there. Then *heir is 1, else 0. */
static bool dies_receiving(int call, int type, bool grouped, enum cow_share_mode mode,
                           int *heir)
{
	struct receiving t = { .call = call };
	struct cow_channel *c;
	struct cow_parcel p;
	struct sender sender;
	pid_t child;
	bool dead;

	gate_make(&t.sent);
	ends_make(&t.ends, type, grouped);
	child = child_start(receiver, &t);
	if (!heir) {
		close(t.ends.fd[1]);
		t.ends.fd[1] = -1;
	}
	sender_make(&sender, &t.ends, mode);
	gate_open(&t.sent);
	dead = is_dead(child);
	if (heir) {
		ok(cow_channel_new(t.ends.fd[1], t.ends.group, 0, &c));
		must(fcntl(t.ends.fd[1], F_SETFL, O_NONBLOCK) == 0);
		*heir = (int)cow_channel_receive(c, &p, 1, NULL, 0, NULL);
		if (*heir == 1) {
			ck_pattern(data(p.storage), BYTES, 1);
			cow_storage_unref(p.storage);
		} else {
			fails(-EAGAIN, *heir);
			*heir = 0;
		}
		cow_channel_free(c);
	}
	sender_check(&sender, mode);
	ends_free(&t.ends);
	gate_free(&t.sent);
	return dead;
}

START_TEST(receiver_dies_before_each_call)
{
	static const struct {
		enum cow_share_mode mode;
		bool grouped;
	} kinds[] = { { COW_SHARE_CLONE, true },
		      { COW_SHARE_ALIAS, true },
		      { COW_SHARE_ALIAS, false },
		      { COW_SHARE_SEALED, false } };
	int n = 1;

	while (dies_receiving(n, _i % 2 ? SOCK_SEQPACKET : SOCK_STREAM,
	                      kinds[_i / 2].grouped, kinds[_i / 2].mode, NULL))
		n++;
	ck_assert_int_gt(n, 8);
}
END_TEST

/* What the dead one had not taken is there for another process that has the socket. */
START_TEST(message_is_left_or_taken)
{
	int n = 1, heir, left = 0, taken = 0;

	while (dies_receiving(n, SOCK_SEQPACKET, true, COW_SHARE_CLONE, &heir)) {
		left += heir;
		taken += !heir;
		/* Once taken it does not come back. */
		must(!heir || !taken);
		n++;
	}
	ck_assert_int_eq(heir, 0);
	ck_assert_int_gt(left, 0);
	ck_assert_int_gt(taken, 0);
}
END_TEST

/* ---- Inside fork() ---------------------------------------------------------------- */

struct forking {
	struct ends ends;
	int call;
};

static void inherits(void *arg)
{
	kill_before(0);
	ck_pattern(data(arg), BYTES, 1);
}

static void forks(void *arg)
{
	struct forking *t = arg;
	struct cow_storage *s;
	pid_t child;

	s = receive_one(child_channel(&t->ends));
	kill_before(t->call);
	child = child_start(inherits, s);
	kill_before(0);
	ck_pattern(data(s), BYTES, 1);
	if (is_dead(child))
		kill(getpid(), SIGKILL); /* so that the test knows */
}

/* False: none of the two was killed. */
static bool dies_forking(int call, enum cow_share_mode mode)
{
	struct forking t = { .call = call };
	struct sender sender;
	int status;
	pid_t child;
	bool dead;

	ends_make(&t.ends, SOCK_STREAM, true);
	child = child_start(forks, &t);
	close(t.ends.fd[1]);
	t.ends.fd[1] = -1;
	sender_make(&sender, &t.ends, mode);
	dead = is_dead(child);
	/* The dead one's child is this process's by now. */
	while (waitpid(-1, &status, 0) > 0)
		must(status == SIGKILL || status == 0);
	must(errno == ECHILD);
	sender_check(&sender, mode);
	ends_free(&t.ends);
	return dead;
}

START_TEST(holder_dies_before_each_call_of_a_fork)
{
	int n = 1;

	must(prctl(PR_SET_CHILD_SUBREAPER, 1) == 0);
	while (dies_forking(n, _i ? COW_SHARE_ALIAS : COW_SHARE_CLONE))
		n++;
	ck_assert_int_gt(n, 8);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("killed inside");
	TCase *tcase = add_case(suite, "calls of the kernel");

	tcase_add_loop_test(tcase, receiver_dies_before_each_call, 0, 8);
	tcase_add_test(tcase, message_is_left_or_taken);
	tcase_add_loop_test(tcase, holder_dies_before_each_call_of_a_fork, 0, 2);
	return run_suite(suite);
}
