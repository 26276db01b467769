/* SPDX-License-Identifier: MIT */
/*
 * A hostile peer: floods of descriptors
 *
 * Wrong counts, more descriptors than there is room for, descriptors in the wrong places, and
 * control data of other kinds among them. No descriptor stays.
 */
#include "tests/support/hostile.h"

#include <sys/resource.h>

START_TEST(counts_of_descriptors_that_lie)
{
	static const int said[] = { 0, 1, 2, 3, 63, 64, 65, 253, 65535 };
	static const unsigned sent[] = { 0, 1, 3, 64, 65, 253 };
	int fd = memfd_of(MIB, SEALS_ALL);
	struct victim v;

	victim_make(&v, _i ? SOCK_STREAM : SOCK_SEQPACKET);
	for (size_t a = 0; a < COUNT(said); a++)
		for (size_t b = 0; b < COUNT(sent); b++) {
			struct raw m = raw_own(fd, MIB, COW_SHARE_SEALED);

			if (said[a] == (int)sent[b] && sent[b] <= 64)
				continue;
			m.head.fds = (uint16_t)said[a];
			m.nfds = sent[b];
			for (unsigned i = 0; i < sent[b]; i++)
				m.fds[i] = fd;
			raw_put(v.theirs, &m);
			refused(&v, -EBADMSG);
		}
	close(fd);
	victim_free(&v);
}
END_TEST

/* With no room for them in the table: the message waits, the flood does not fill
 * it. */
START_TEST(more_descriptors_than_the_table_has_room_for)
{
	int fd = memfd_of(MIB, SEALS_ALL), lowest;
	struct raw m = raw_own(fd, MIB, COW_SHARE_SEALED);
	struct rlimit was, small;
	struct cow_parcel p;
	struct victim v;

	victim_make(&v, _i ? SOCK_STREAM : SOCK_SEQPACKET);
	m.nfds = RAW_FDS;
	for (unsigned i = 0; i < RAW_FDS; i++)
		m.fds[i] = fd;
	raw_put(v.theirs, &m);
	lowest = dup(fd);
	close(lowest);
	getrlimit(RLIMIT_NOFILE, &was);
	small = was;
	small.rlim_cur = (rlim_t)lowest + 20;
	setrlimit(RLIMIT_NOFILE, &small);
	for (int i = 0; i < 3; i++)
		fails(-EMFILE, (int)take(&v, &p, 1));
	lowest = dup(fd);
	close(lowest);
	ck_assert_int_lt(lowest, (int)small.rlim_cur - 15);
	/* More than any message has: no need to see all of them. */
	small.rlim_cur = (rlim_t)lowest + 100;
	setrlimit(RLIMIT_NOFILE, &small);
	refused(&v, -EBADMSG);
	setrlimit(RLIMIT_NOFILE, &was);
	close(fd);
	victim_free(&v);
}
END_TEST

/* Thousands of messages in flight, each with a descriptor. */
START_TEST(flood_of_messages)
{
	int fd = memfd_of(MIB, SEALS_ALL);
	struct raw m = raw_own(fd, MIB, COW_SHARE_SEALED);
	unsigned char bytes[1024];
	size_t n = raw_bytes(&m, bytes);
	struct cow_parcel p;
	struct victim v;
	int sent = 0, got = 0;
	long r;

	victim_make(&v, _i ? SOCK_STREAM : SOCK_SEQPACKET);
	while (sent < 3000) {
		while (sent < 3000 && put(v.theirs, bytes, n, &fd, 1,
		                          MSG_DONTWAIT) == (long)n)
			sent++;
		r = take(&v, &p, 1);
		ck_assert_int_eq(r, 1);
		cow_storage_unref(p.storage);
		got++;
	}
	for (; got < sent; got++) {
		ck_assert_int_eq(take(&v, &p, 1), 1);
		cow_storage_unref(p.storage);
	}
	calm(&v);
	close(fd);
	victim_free(&v);
}
END_TEST

/* Descriptors in the middle of a message belong to no message. */
START_TEST(descriptors_in_the_middle)
{
	int fd = memfd_of(MIB, SEALS_ALL);
	struct raw m = raw_own(fd, MIB, COW_SHARE_SEALED);
	unsigned char bytes[1024];
	size_t n = raw_bytes(&m, bytes);
	struct cow_parcel p;
	struct victim v;

	victim_make(&v, SOCK_STREAM);
	for (size_t at = 1; at < n; at++) {
		must(put(v.theirs, bytes, at, &fd, 1, 0) == (long)at);
		must(put(v.theirs, bytes + at, n - at, &fd, 1, 0) ==
		     (long)(n - at));
		ck_assert_int_eq(take(&v, &p, 1), 1);
		cow_storage_unref(p.storage);
		calm(&v);
	}
	close(fd);
	victim_free(&v);
}
END_TEST

/* The program asked for credentials, or descriptors of processes, with all that it reads.
 * They take room, and the program has to handle them. */
START_TEST(control_data_of_other_kinds)
{
	static const int options[] = { SO_PASSCRED, SO_PASSSEC, SO_TIMESTAMP,
		                       76 /* SO_PASSPIDFD */ };
	int fd = memfd_of(MIB, SEALS_ALL), one = 1;
	struct raw m = raw_own(fd, MIB, COW_SHARE_SEALED);
	struct cow_parcel p;
	struct victim v;

	victim_make(&v, _i ? SOCK_STREAM : SOCK_SEQPACKET);
	for (size_t i = 0; i < COUNT(options); i++)
		(void)setsockopt(v.mine, SOL_SOCKET, options[i], &one,
		                 sizeof(one));
	raw_put(v.theirs, &m);
	ck_assert_int_eq(take(&v, &p, 1), 1);
	cow_storage_unref(p.storage);
	m.nfds = RAW_FDS;
	for (unsigned i = 0; i < RAW_FDS; i++)
		m.fds[i] = fd;
	raw_put(v.theirs, &m);
	refused(&v, -EBADMSG);
	close(fd);
	victim_free(&v);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("hostile_floods");
	TCase *tcase = add_case(suite, "hostile_floods");

	tcase_add_loop_test(tcase, counts_of_descriptors_that_lie, 0, 2);
	tcase_add_loop_test(tcase, more_descriptors_than_the_table_has_room_for,
	                    0, 2);
	tcase_add_loop_test(tcase, flood_of_messages, 0, 2);
	tcase_add_test(tcase, descriptors_in_the_middle);
	tcase_add_loop_test(tcase, control_data_of_other_kinds, 0, 2);
	return run_suite(suite);
}
