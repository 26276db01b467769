/* SPDX-License-Identifier: MIT */
/*
 * Give: large blocks by address
 *
 * A block as malloc returns it under the shim is filled and sent as a clone to another
 * process, without a group. The time ends when that process has read a byte of it. The
 * rival is memcpy of the block into warm memory, the least that a copy costs. Each block
 * is sent twice: right after it was filled, and again unchanged. Smaller blocks follow,
 * with the option `share`.
 */
#include <cowshed-share.h>

#include "bench/peer.h"

static void receive(const struct peer *p, int count)
{
	struct cow_channel *c;

	must(cow_channel_new(p->data, NULL, 0, &c));
	for (int i = 0; i < count; i++) {
		struct cow_parcel q;

		must((int)cow_channel_receive(c, &q, 1, NULL, 0, NULL));
		use((const char *)cow_storage_data(q.storage) + 3 * PAGE);
		byte_out(p->sync);
		cow_storage_unref(q.storage);
		byte_out(p->sync);
	}
	_exit(0);
}

static double sent(struct cow_channel *c, int sync, const void *block, size_t bytes)
{
	struct cow_parcel q = { .length = bytes, .mode = COW_SHARE_CLONE };
	double t0 = now_ns(), us;

	must(cow_storage_from_ptr(block, NULL, &q.storage));
	must((int)cow_channel_send(c, &q, 1, NULL, 0));
	byte_in(sync);
	us = us_since(t0);
	byte_in(sync);
	cow_storage_unref(q.storage);
	return us;
}

static void blocks(size_t bytes, int turns)
{
	static struct series fresh, again, copies;
	char *warm = memset(map_anonymous(bytes, true), 2, bytes);
	struct cow_channel *c;
	struct peer p;

	fresh.n = again.n = copies.n = 0;
	if (!peer_fork(&p))
		receive(&p, 2 * turns);
	must(cow_channel_new(p.data, NULL, 0, &c));
	for (int i = 0; i < turns; i++) {
		void *block;
		double t0;

		must(cow_block_new(bytes, 0, 0, &block));
		memset(block, 1, bytes);
		series_add(&fresh, sent(c, p.sync, block, bytes));
		series_add(&again, sent(c, p.sync, block, bytes));
		t0 = now_ns();
		memcpy(warm, block, bytes);
		series_add(&copies, us_since(t0));
		cow_block_free(block);
	}
	peer_end(&p);
	cow_channel_free(c);
	munmap(warm, bytes);
	report_ratio(size_name(bytes), "us", &fresh, &copies);
	report_ratio(named("%s/again", size_name(bytes)), "us", &again, &copies);
}

int main(void)
{
	warm_host(3 * sized(GIB));
	blocks(64 * MIB, rounds(21));
	blocks(sized(GIB), rounds(11));
	/* Without this option such small blocks would be copied. */
	must(cow_option_set("share", "yes"));
	blocks(2 * MIB, rounds(41)); /* below the option's limit: copied */
	blocks(4 * MIB, rounds(41));
	blocks(16 * MIB, rounds(41));
	return 0;
}
