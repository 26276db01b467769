/* SPDX-License-Identifier: MIT */
/*
 * A descriptor whose close waits in the kernel does not make a channel's caller wait
 */
#include "tests/support/hostile.h"
#include "tests/support/linger.h"

#include <stdio.h>

/* Descriptors whose last close would wait for hours, and is left to the victim. _i 0, 1: one;
 * 2, 3: more than any message has; 4: in the middle of a message, where none may be. */
START_TEST(socket_that_lingers)
{
	struct raw m = raw_new();
	unsigned char bytes[1024];
	struct lingering l;
	struct cow_parcel p[2];
	struct victim v;
	size_t n;

	victim_make(&v, _i % 2 || _i == 4 ? SOCK_STREAM : SOCK_SEQPACKET);
	must(linger_make(&l));
	if (_i < 4) {
		m = raw_own(l.fd, 4096, COW_SHARE_SEALED);
		while (_i > 1 && m.nfds < RAW_FDS)
			m.fds[m.nfds++] = l.fd;
		raw_put(v.theirs, &m);
		linger_leave(&l);
		v.fds = footprint_now().fds;
		refused(&v, -EBADMSG);
	} else {
		n = raw_bytes(&m, bytes);
		must(put(v.theirs, bytes, 20, NULL, 0, 0) == 20);
		fails(-EAGAIN, (int)take(&v, p, 2));
		must(put(v.theirs, bytes + 20, n - 20, &l.fd, 1, 0) > 0);
		linger_leave(&l);
		v.fds = footprint_now().fds;
		ck_assert_int_eq(take(&v, p, 2), 2);
		for (int i = 0; i < 2; i++)
			cow_storage_unref(p[i].storage);
		calm(&v);
	}
	linger_end(&l);
	victim_free(&v);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("hostile_linger");
	TCase *tcase = add_case(suite, "hostile");

	if (linger_can())
		tcase_add_loop_test(tcase, socket_that_lingers, 0, 5);
	else
		puts("skip socket_that_lingers no network of this machine");
	return run_suite(suite);
}
