/* SPDX-License-Identifier: MIT */
/*
 * Processes that are killed while they have a storage, or while one is sent to them
 *
 *   the sender     right after it sent, with the messages still in the socket's queue
 *   the maker      while another process has the storage, which then sends it on
 *   the receiver   before it reads its message; while it holds the storage; inside
 *                  cow_channel_receive(), which waits for the rest of a message
 *   a user         of counted shared memory, while it has it open
 *
 * The messages of a killed sender arrive. What a killed receiver held, or should have
 * received, is free: the sender writes its storage in place again, and has the memory
 * and the descriptors that it had before.
 *
 * test_killed_inside.c kills at each call of the kernel that receiving and forking make.
 */
#include "memfd/socket.h"
#include "tests/support/broker.h"
#include "tests/support/ends.h"
#include "tests/support/folder.h"
#include "tests/support/hostile.h"

#include <signal.h>
#include <sys/ioctl.h>
#include <sys/wait.h>

/* ---- The sender, and the maker ---------------------------------------------------- */

static void sender_that_exits(void *arg)
{
	struct ends *e = arg;
	struct cow_channel *c = child_channel(e);
	struct cow_group *group = NULL;
	struct cow_storage *s = new_filled(MIB + 5, 0, 3);

	if (e->group) {
		int fd;

		ok(cow_group_fd(e->group, &fd));
		ok(cow_group_join(fd, &group));
		close(fd);
		cow_channel_free(c);
		ok(cow_channel_new(e->fd[1], group, 0, &c));
	}
	for (size_t i = 0; i < COUNT(modes); i++)
		send_one(c, s, modes[i]);
	kill(getpid(), SIGKILL);
}

START_TEST(sender_is_killed_right_after_sending)
{
	struct ends e;
	pid_t child;

	ends_make(&e, SOCK_STREAM, _i);
	child = child_start(sender_that_exits, &e);
	ck_assert_int_eq(child_status(child), SIGKILL);
	close(e.fd[1]);
	e.fd[1] = -1;
	for (size_t i = 0; i < COUNT(modes); i++) {
		struct cow_storage *s = receive_one(e.mine);

		ck_pattern(data(s), MIB + 5, 3);
		fill(mut(s), MIB + 5, 4);
		ck_pattern(data(s), MIB + 5, 4);
		cow_storage_unref(s);
	}
	fails(-EPIPE, (int)cow_channel_receive(e.mine, &(struct cow_parcel){ 0 },
	                                       1, NULL, 0, NULL));
	ends_free(&e);
}
END_TEST

struct chain {
	struct ends ab, bc;
	struct gate gate;
	bool written;
	enum cow_share_mode mode;
	struct host *host; /* NULL: messages have descriptors, no tokens */
};

/* How this process sends, and where it looks for what it was sent. */
static void by_strategy(struct chain *t)
{
	struct cow_broker *b;

	if (t->host == NULL)
		return;
	b = host_connect(t->host);
	ok(cow_strategy_set(COW_STRATEGY_BROKER, b));
	cow_broker_unref(b);
}

static void chain_a(void *arg)
{
	struct chain *t = arg;
	struct cow_channel *c;
	struct cow_storage *s = new_filled(3 * MIB, 0, 1);

	by_strategy(t);
	ok(cow_channel_new(t->ab.fd[1], t->ab.group, 0, &c));
	send_one(c, s, t->mode);
	pause();
}

static void chain_c(void *arg)
{
	struct chain *t = arg;
	struct cow_channel *c = child_channel(&t->bc);
	struct cow_storage *s;

	by_strategy(t);
	s = receive_one(c);
	ck_pattern(data(s), 3 * MIB, t->written ? 2 : 1);
	cow_storage_unref(s);
	cow_channel_free(c);
}

/* A shares with B, A is killed, B shares with C: also what B has written. */
START_TEST(received_is_sent_on_after_its_creator_was_killed)
{
	struct chain t = { .written = _i & 1, .mode = modes[_i / 4 % 3] };
	bool grouped = _i & 2;
	struct cow_storage *s;
	struct host host;
	pid_t a, c;

	if (_i >= 12) {
		host_start(&host, NULL);
		t.host = &host;
	}

	ends_make(&t.ab, SOCK_STREAM, grouped);
	ends_make(&t.bc, SOCK_STREAM, false);
	cow_channel_free(t.bc.mine);
	ok(cow_channel_new(t.bc.fd[0], t.ab.group, 0, &t.bc.mine));
	a = child_start(chain_a, &t);
	by_strategy(&t);
	s = receive_one(t.ab.mine);
	kill(a, SIGKILL);
	(void)child_status(a);
	if (t.written)
		fill(mut(s), 3 * MIB, 2);
	c = child_start(chain_c, &t);
	send_one(t.bc.mine, s, t.mode);
	child_finish(c);
	cow_storage_unref(s);
	ends_free(&t.bc);
	ends_free(&t.ab);
	if (t.host)
		host_end(&host);
}
END_TEST

/* ---- The receiver, before and after its call --------------------------------------- */

static void drops(void *arg)
{
	struct story *t = arg;
	struct cow_channel *c = child_channel(&t->ends);
	struct cow_storage *s = receive_one(c);

	gate_open(&t->back);
	gate_wait(&t->gate);
	cow_storage_unref(s);
	gate_open(&t->back);
	gate_wait(&t->gate);
	cow_channel_free(c);
}

static void is_killed(void *arg)
{
	struct story *t = arg;
	struct cow_channel *c = child_channel(&t->ends);

	(void)receive_one(c);
	gate_open(&t->back);
	gate_wait(&t->gate);
	kill(getpid(), SIGKILL);
}

static void never_receives(void *arg)
{
	struct story *t = arg;

	gate_open(&t->back);
	gate_wait(&t->gate);
	kill(getpid(), SIGKILL);
}

/* The last holder in the system writes in place again. */
START_TEST(last_holder_writes_in_place)
{
	static child_fn *const ends[] = { drops, is_killed, never_receives };
	struct story t = { .bytes = 2 * MIB };
	struct cow_storage *s;
	const void *before;
	pid_t child;

	gate_make(&t.gate);
	gate_make(&t.back);
	ends_make(&t.ends, SOCK_STREAM, true);
	child = child_start(ends[_i], &t);
	ok(cow_group_storage_new(t.ends.group, t.bytes, COW_SHARE_CLONE, &s));
	fill(mut(s), t.bytes, 1);
	before = data(s);
	send_one(t.ends.mine, s, COW_SHARE_CLONE);
	gate_wait(&t.back);
	ck_assert_int_eq(state_of(s), COW_STATE_LAZY);
	gate_open(&t.gate);
	if (_i == 0) {
		gate_wait(&t.back);
	} else {
		(void)child_status(child);
		/* The queue holds what is in it. */
		cow_channel_free(t.ends.mine);
		close(t.ends.fd[0]);
		close(t.ends.fd[1]);
	}
	fill(mut(s), t.bytes, 2);
	ck_assert_ptr_eq(data(s), before);
	ck_pattern(data(s), t.bytes, 2);
	cow_storage_unref(s);
	if (_i == 0) {
		gate_open(&t.gate);
		child_finish(child);
		ends_free(&t.ends);
	} else {
		cow_group_unref(t.ends.group);
	}
	gate_free(&t.gate);
	gate_free(&t.back);
}
END_TEST

/* ---- The receiver, inside its call ------------------------------------------------ */

enum { BYTES = 64 * KIB };

/* A message of one storage, as it is laid out, with its descriptors. */
struct caught {
	uint64_t bytes[64];
	long count;
	int fds[RAW_FDS];
	unsigned nfds;
};

static struct caught catch_message(struct cow_group *g, struct cow_storage *s)
{
	struct cow_channel *c;
	struct caught m;
	int fd[2];

	must(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fd) == 0);
	ok(cow_channel_new(fd[0], g, 0, &c));
	send_one(c, s, COW_SHARE_CLONE);
	m.count = cow__socket_look(fd[1], m.bytes, sizeof(m.bytes), m.fds, RAW_FDS,
	                           &m.nfds);
	must(m.count > (long)sizeof(struct cow__wire_head) && m.nfds > 0);
	cow_channel_free(c);
	close(fd[0]);
	close(fd[1]);
	return m;
}

static void receives(void *arg)
{
	cow_storage_unref(receive_one(child_channel(arg)));
}

/* Are all the bytes out of that socket's queue? */
static bool is_read(void *arg)
{
	int waiting = -1;

	must(ioctl(*(int *)arg, FIONREAD, &waiting) == 0);
	return waiting == 0;
}

/* It has the first `cut` bytes and all descriptors, and can't return before the rest
 * comes. */
static void killed_with_a_part(long cut)
{
	struct footprint before, after;
	struct cow_storage *s;
	struct caught m;
	struct ends e;
	const void *place;
	pid_t child;

	ends_make(&e, SOCK_STREAM, true);
	child = child_start(receives, &e);
	ok(cow_group_storage_new(e.group, BYTES, COW_SHARE_CLONE, &s));
	fill(mut(s), BYTES, 1);
	place = data(s);
	before = footprint_now();
	m = catch_message(e.group, s);
	must(cut < m.count);
	must(put(e.fd[0], m.bytes, (size_t)cut, m.fds, m.nfds, 0) == cut);
	while (m.nfds > 0)
		close(m.fds[--m.nfds]);
	ck_assert_int_eq(state_of(s), COW_STATE_LAZY);
	must(wait_until(is_read, &e.fd[1], 30));
	kill(child, SIGKILL);
	ck_assert_int_eq(child_status(child), SIGKILL);
	fill(mut(s), BYTES, 2);
	ck_assert_ptr_eq(data(s), place);
	ck_pattern(data(s), BYTES, 2);
	after = footprint_now();
	ck_assert_int_eq(after.fds, before.fds);
	ck_assert_int_eq(after.maps, before.maps);
	/* Of the slots that were taken each may have a page of bits in the pack. */
	ck_assert_uint_le(after.memory, before.memory + 4 * PAGE);
	cow_storage_unref(s);
	ends_free(&e);
}

START_TEST(while_it_waits_for_the_rest_of_a_message)
{
	const long head = sizeof(struct cow__wire_head);
	const long cuts[] = { 1, head - 1, head, head + 1,
		              head + (long)sizeof(struct cow__wire_item) - 1 };

	killed_with_a_part(cuts[_i]);
}
END_TEST

/* ---- A user of counted shared memory ---------------------------------------------- */

#define COUNTED (COW_FILE_SHM | COW_FILE_SHARED | COW_FILE_COUNTED)

static void use_counted(void *arg)
{
	struct cow_storage *s;

	(void)arg;
	ok(cow_storage_open(shm, 5000, COUNTED, &s));
	mut(s)[0]++;
	cow_storage_unref(s);
}

static void hold_counted(void *arg)
{
	struct cow_storage *s;
	struct gate *g = arg;

	ok(cow_storage_open(shm, 5000, COUNTED, &s));
	gate_open(&g[0]);
	gate_wait(&g[1]);
	cow_storage_unref(s);
}

START_TEST(the_killed_do_not_count)
{
	struct gate g[2];
	pid_t child;

	gate_make(&g[0]);
	gate_make(&g[1]);
	child = child_start(hold_counted, g);
	gate_wait(&g[0]);
	in_child(use_counted, NULL); /* not the last */
	ck_assert_int_eq(entries("/dev/shm", shm + 1), 1);
	kill(child, SIGKILL);
	(void)child_status(child);
	ck_assert_int_eq(entries("/dev/shm", shm + 1), 1);
	in_child(use_counted, NULL);
	ck_assert_int_eq(entries("/dev/shm", shm + 1), 0);
	gate_free(&g[0]);
	gate_free(&g[1]);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("killed");
	TCase *tcase = add_case(suite, "sender");

	tcase_add_loop_test(tcase, sender_is_killed_right_after_sending, 0, 2);
	tcase_add_loop_test(tcase,
	                    received_is_sent_on_after_its_creator_was_killed, 0,
	                    24);
	tcase = add_case(suite, "receiver");
	tcase_add_loop_test(tcase, last_holder_writes_in_place, 0, 3);
	tcase_add_loop_test(tcase, while_it_waits_for_the_rest_of_a_message, 0, 5);
	tcase = add_case(suite, "counted");
	tcase_add_checked_fixture(tcase, enter, leave);
	tcase_add_test(tcase, the_killed_do_not_count);
	return run_suite(suite);
}
