/* SPDX-License-Identifier: MIT */
/*
 * Sharing, with every kernel call failing in turn
 *
 * tests/support/fault/sweep.h says what must hold. A message that was refused may be lost,
 * because the kernel's error may be the same as for a hostile descriptor. Then another
 * message is sent, and arrives.
 */
#include "core/fork/fork.h"
#include "tests/support/fault/fault.h"
#include "tests/support/fault/sweep.h"

#include <cowshed-share.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { BYTES = 100 * 1024 };

/* What one round of an operation works with. */
static struct {
	int fd[2];
	struct cow_group *group, *made;
	struct cow_channel *in, *out;
	int door, file;
	uint64_t offset;
	bool grouped;
	enum cow_share_mode mode;
} now;

static void channels(bool grouped, enum cow_share_mode mode)
{
	now.grouped = grouped;
	now.mode = mode;
	must(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0,
	                now.fd) == 0);
	if (grouped)
		ok(cow_group_new(&now.group));
	ok(cow_channel_new(now.fd[0], now.group, 0, &now.out));
	ok(cow_channel_new(now.fd[1], now.group, COW_CHANNEL_TAKE_ALIASES,
	                   &now.in));
}

/* Frees what the round before left. */
static void finish(void)
{
	now.in = cow_channel_free(now.in);
	now.out = cow_channel_free(now.out);
	now.group = cow_group_unref(now.group);
	now.made = cow_group_unref(now.made);
	if (now.fd[0])
		close(now.fd[0]);
	if (now.fd[1])
		close(now.fd[1]);
	if (now.door)
		close(now.door);
	if (now.file)
		close(now.file);
	now.fd[0] = now.fd[1] = now.door = now.file = 0;
}

static struct cow_parcel parcel_of(struct cow_storage *s)
{
	return (struct cow_parcel){ .storage = s, .length = BYTES,
		                    .mode = now.mode };
}

/* ---- Groups ---------------------------------------------------------------------- */

static void nothing(struct herd *herd)
{
	(void)herd;
	finish();
}

static int group_new(struct herd *herd)
{
	int r;

	(void)herd;
	now.made = SWEEP_UNTOUCHED;
	r = cow_group_new(&now.made);
	if (r < 0) {
		ck_assert_ptr_eq(now.made, SWEEP_UNTOUCHED);
		now.made = NULL;
	}
	return r;
}

static void a_group(struct herd *herd)
{
	(void)herd;
	finish();
	ok(cow_group_new(&now.group));
}

static void a_door(struct herd *herd)
{
	(void)herd;
	finish();
	ok(cow_group_new(&now.group));
	ok(cow_group_fd(now.group, &now.door));
	now.group = cow_group_unref(now.group);
}

static int group_join(struct herd *herd)
{
	int r;

	(void)herd;
	now.made = SWEEP_UNTOUCHED;
	r = cow_group_join(now.door, &now.made);
	if (r < 0) {
		ck_assert_ptr_eq(now.made, SWEEP_UNTOUCHED);
		now.made = NULL;
	}
	return r;
}

static int group_storage(struct herd *herd)
{
	struct cow_storage *s = SWEEP_UNTOUCHED;
	int r = cow_group_storage_new(now.group, BYTES, now.mode, &s);

	if (r < 0)
		ck_assert_ptr_eq(s, SWEEP_UNTOUCHED);
	else
		sweep_add(herd, HERD_OWNED, s, NULL, BYTES);
	return r;
}

static int group_alias(struct herd *herd)
{
	now.mode = COW_SHARE_ALIAS;
	return group_storage(herd);
}

static int group_clone(struct herd *herd)
{
	now.mode = COW_SHARE_CLONE;
	return group_storage(herd);
}

static int group_door(struct herd *herd)
{
	int fd = -77, r = cow_group_fd(now.group, &fd);

	(void)herd;
	if (r < 0)
		ck_assert_int_eq(fd, -77);
	else
		now.door = fd;
	return r;
}

/* ---- Sending and receiving ----------------------------------------------------------- */

static void to_send(struct herd *herd, bool grouped, enum cow_share_mode mode)
{
	finish();
	sweep_add(herd, HERD_OWNED, new_storage(BYTES, 0), NULL, BYTES);
	channels(grouped, mode);
}

static int send_it(struct herd *herd)
{
	struct animal *a = &herd->animals[HERD_OWNED];
	struct cow_parcel p = parcel_of(a->storage);
	long r;

	/* After a failure of the socket itself a channel is done for. */
	r = cow_channel_send(now.out, &p, 1, NULL, 0);
	if (r == 1)
		r = cow_channel_flush(now.out);
	if (r < 0 && r != -EAGAIN && r != -ENOMEM && r != -EMFILE) {
		now.out = cow_channel_free(now.out);
		ok(cow_channel_new(now.fd[0], now.group, 0, &now.out));
	}
	return (int)r;
}

static void sent(struct herd *herd)
{
	ck_assert_int_eq(send_it(herd), 0);
}

static int receive_it(struct herd *herd)
{
	struct animal *a = &herd->animals[HERD_OWNED];
	struct cow_parcel p = { .storage = SWEEP_UNTOUCHED };
	long r = cow_channel_receive(now.in, &p, 1, NULL, 0, NULL);

	if (r < 0) {
		ck_assert_ptr_eq(p.storage, SWEEP_UNTOUCHED);
		if (r != -EAGAIN && r != -ENOMEM && r != -EMFILE) {
			fault_disarm();
			now.in = cow_channel_free(now.in);
			now.out = cow_channel_free(now.out);
			close(now.fd[0]);
			close(now.fd[1]);
			must(socketpair(AF_UNIX,
			                SOCK_STREAM | SOCK_CLOEXEC |
			                        SOCK_NONBLOCK, 0, now.fd) == 0);
			ok(cow_channel_new(now.fd[0], now.group, 0, &now.out));
			ok(cow_channel_new(now.fd[1], now.group,
			                   COW_CHANNEL_TAKE_ALIASES, &now.in));
			sent(herd);
		}
		return (int)r;
	}
	ck_assert_int_eq(r, 1);
	ck_pattern(data(p.storage), a->bytes, a->seed);
	if (now.mode == COW_SHARE_CLONE)
		sweep_add_clone(herd, HERD_OWNED, HERD_CLONE, p.storage);
	else
		cow_storage_unref(p.storage);
	return 0;
}

#define TO_SEND(name, grouped, mode)                                           \
	static void name(struct herd *herd)                                    \
	{                                                                      \
		to_send(herd, grouped, mode);                                  \
	}                                                                      \
	static void name##_sent(struct herd *herd)                             \
	{                                                                      \
		to_send(herd, grouped, mode);                                  \
		sent(herd);                                                    \
	}

TO_SEND(alias, false, COW_SHARE_ALIAS)
TO_SEND(clone_alone, false, COW_SHARE_CLONE)
TO_SEND(sealed, false, COW_SHARE_SEALED)
TO_SEND(alias_grouped, true, COW_SHARE_ALIAS)
TO_SEND(clone_grouped, true, COW_SHARE_CLONE)
TO_SEND(sealed_grouped, true, COW_SHARE_SEALED)

/* For a receiver in no group: the sender is gone, and its message holds all. */
static void to_join(struct herd *herd)
{
	struct animal *a = &herd->animals[HERD_OWNED];

	to_send(herd, true, COW_SHARE_CLONE);
	sent(herd);
	a->storage = cow_storage_unref(a->storage);
	now.out = cow_channel_free(now.out);
	now.in = cow_channel_free(now.in);
	now.group = cow_group_unref(now.group);
	ok(cow_channel_new(now.fd[1], NULL, COW_CHANNEL_JOIN, &now.in));
}

static int receive_joining(struct herd *herd)
{
	struct animal *a = &herd->animals[HERD_OWNED];
	struct cow_parcel p = { .storage = SWEEP_UNTOUCHED };
	long r = cow_channel_receive(now.in, &p, 1, NULL, 0, NULL);

	if (r < 0) {
		ck_assert_ptr_eq(p.storage, SWEEP_UNTOUCHED);
		if (r != -ENOMEM && r != -EMFILE && r != -EUSERS) {
			fault_disarm();
			to_join(herd);
		}
		return (int)r;
	}
	ck_pattern(data(p.storage), a->bytes, a->seed);
	sweep_add_clone(herd, HERD_OWNED, HERD_CLONE, p.storage);
	return 0;
}

/* ---- Descriptors ------------------------------------------------------------------------ */

static int export_it(struct herd *herd)
{
	uint64_t offset = 77;
	int fd = -77, r;

	r = cow_storage_export(herd->animals[HERD_OWNED].storage, now.mode, &fd,
	                       &offset);
	if (r < 0) {
		ck_assert_int_eq(fd, -77);
		ck_assert_uint_eq(offset, 77);
		return r;
	}
	now.file = fd;
	now.offset = offset;
	return 0;
}

static void export_ready(struct herd *herd, enum cow_share_mode mode)
{
	finish();
	now.mode = mode;
	sweep_add(herd, HERD_OWNED, new_storage(BYTES, 0), NULL, BYTES);
}

static void export_alias(struct herd *herd)
{
	export_ready(herd, COW_SHARE_ALIAS);
}

static void export_sealed(struct herd *herd)
{
	export_ready(herd, COW_SHARE_SEALED);
}

static void exported(struct herd *herd)
{
	export_ready(herd, COW_SHARE_CLONE);
	ok(export_it(herd));
}

static int import_it(struct herd *herd)
{
	struct cow_storage *s = SWEEP_UNTOUCHED;
	int r = cow_storage_import(now.file, now.offset, BYTES, now.mode, &s);

	if (r < 0)
		ck_assert_ptr_eq(s, SWEEP_UNTOUCHED);
	else
		sweep_add_clone(herd, HERD_OWNED, HERD_CLONE, s);
	return r;
}

/* ---- fork -------------------------------------------------------------------------------- */

static void to_fork(struct herd *herd)
{
	struct cow_storage *s;

	finish();
	ok(cow_group_new(&now.group));
	ok(cow_group_storage_new(now.group, BYTES, COW_SHARE_CLONE, &s));
	sweep_add(herd, HERD_OWNED, s, NULL, BYTES);
}

static void in_the_child(void *arg)
{
	struct animal *a = &((struct herd *)arg)->animals[HERD_OWNED];

	ck_pattern(data(a->storage), a->bytes, a->seed);
	fill(mut(a->storage), a->bytes, 9999);
	ck_pattern(data(a->storage), a->bytes, 9999);
}

/* The child has the right bytes, or it ended at once, with 127. The group ends with its last
 * storage: what a child without a slot held stays as long as the group. */
static int fork_it(struct herd *herd)
{
	int status = child_status(child_start(in_the_child, herd));

	fault_disarm();
	must(status == 0 || status == 127 << 8);
	herd_check(herd);
	now.group = cow_group_unref(now.group);
	return 0;
}

static const struct operation operations[] = {
	{ "group new", nothing, group_new },
	{ "group join", a_door, group_join },
	{ "group storage, alias", a_group, group_alias },
	{ "group storage, clone", a_group, group_clone },
	{ "group fd", a_group, group_door },
	{ "send alias", alias, send_it },
	{ "send clone", clone_alone, send_it },
	{ "send sealed", sealed, send_it },
	{ "send alias in a group", alias_grouped, send_it },
	{ "send clone in a group", clone_grouped, send_it },
	{ "send sealed in a group", sealed_grouped, send_it },
	{ "receive alias", alias_sent, receive_it },
	{ "receive clone", clone_alone_sent, receive_it },
	{ "receive sealed", sealed_sent, receive_it },
	{ "receive alias in a group", alias_grouped_sent, receive_it },
	{ "receive clone in a group", clone_grouped_sent, receive_it },
	{ "receive sealed in a group", sealed_grouped_sent, receive_it },
	{ "receive and join", to_join, receive_joining },
	{ "export alias", export_alias, export_it },
	{ "export sealed", export_sealed, export_it },
	{ "import", exported, import_it },
	{ "fork", to_fork, fork_it },
};

START_TEST(every_call_fails)
{
	sweep_nth(operations, _i);
	finish();
}
END_TEST

static void nobody(void *arg)
{
	(void)arg;
}

/* No view of the group's memory for a child, and no copy: the parent learns of it. */
START_TEST(a_fork_that_fails)
{
	struct cow_storage *s;

	ok(cow_group_new(&now.group));
	ok(cow_group_storage_new(now.group, BYTES, COW_SHARE_CLONE, &s));
	fill(mut(s), BYTES, 1);
	in_child(nobody, NULL);
	ck_assert_int_eq(cow__fork_result(), 0);
	cow_storage_unref(s);
	now.group = cow_group_unref(now.group);
	ok(cow_group_new(&now.group));
	ok(cow_group_storage_new(now.group, BYTES, COW_SHARE_CLONE, &s));
	fill(mut(s), BYTES, 1);
	fault_deny(SYS_mmap, FAULT_ANY, 0, ENOMEM);
	ck_assert_int_eq(child_status(child_start(nobody, NULL)), 127 << 8);
	ck_assert_int_eq(cow__fork_result(), -ENOMEM);
	ck_pattern(data(s), BYTES, 1);
	cow_storage_unref(s);
	finish();
}
END_TEST

/* A note alone that can't be sent is refused or waits, never both. */
START_TEST(a_note_comes_once)
{
	static const int errors[] = { ENOMEM, ENOBUFS, ETOOMANYREFS };
	struct cow_parcel p;
	bool fired = true;
	size_t bytes;
	int got;

	channels(_i % 2, COW_SHARE_CLONE);
	for (int n = 1; fired; n++) {
		long r;

		fault_after(n, errors[_i / 2]);
		r = cow_channel_send(now.out, NULL, 0, &n, sizeof(n));
		fired = fault_disarm();
		if (r < 0)
			ok((int)cow_channel_send(now.out, NULL, 0, &n, sizeof(n)));
		ok(cow_channel_flush(now.out));
		ck_assert_int_eq(cow_channel_receive(now.in, &p, 1, &got,
		                                     sizeof(got), &bytes), 0);
		must(bytes == sizeof(got) && got == n);
		fails(-EAGAIN, (int)cow_channel_receive(now.in, &p, 1, &got,
		                                        sizeof(got), &bytes));
	}
	finish();
}
END_TEST

/* mmap gives EAGAIN if memory is locked: the message is there for the next call. */
START_TEST(no_memory_to_lock)
{
	struct cow_storage *s;
	struct cow_parcel p;
	bool fired = true;

	channels(true, COW_SHARE_CLONE);
	ok(cow_group_storage_new(now.group, BYTES, COW_SHARE_CLONE, &s));
	for (int n = 1; fired; n++) {
		fill(mut(s), BYTES, 1);
		p = parcel_of(s);
		ck_assert_int_eq(cow_channel_send(now.out, &p, 1, NULL, 0), 1);
		in_child(nobody, NULL);
		/* Written where the fork left it: what comes is mapped elsewhere. */
		fill(mut(s), BYTES, 2);
		fault_after(n, EAGAIN);
		p.storage = NULL;
		(void)cow_channel_receive(now.in, &p, 1, NULL, 0, NULL);
		fired = fault_disarm();
		if (!p.storage)
			ck_assert_int_eq(cow_channel_receive(now.in, &p, 1, NULL, 0,
			                                     NULL), 1);
		ck_pattern(data(p.storage), BYTES, 1);
		ck_pattern(data(s), BYTES, 2);
		cow_storage_unref(p.storage);
	}
	cow_storage_unref(s);
	finish();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("fault_share");
	TCase *tcase = add_case(suite, "fault_share");

	tcase_add_loop_test(tcase, every_call_fails, 0,
	                    sweep_rounds(COUNT(operations)));
	tcase_add_test(tcase, a_fork_that_fails);
	tcase_add_loop_test(tcase, a_note_comes_once, 0, 6);
	tcase_add_test(tcase, no_memory_to_lock);
	return run_suite(suite);
}
