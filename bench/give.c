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

#include "bench/common.h"

#include <sys/socket.h>
#include <sys/wait.h>

static void byte_out(int fd)
{
	if (write(fd, "", 1) != 1)
		die("give: write: %s", strerror(errno));
}

static void byte_in(int fd)
{
	char c;

	if (read(fd, &c, 1) != 1)
		die("give: the other process is gone");
}

static void receive(int data, int sync, int count)
{
	struct cow_channel *c;

	must(cow_channel_new(data, NULL, 0, &c));
	for (int i = 0; i < count; i++) {
		struct cow_parcel q;

		must((int)cow_channel_receive(c, &q, 1, NULL, 0, NULL));
		use((const char *)cow_storage_data(q.storage) + 3 * PAGE);
		byte_out(sync);
		cow_storage_unref(q.storage);
		byte_out(sync);
	}
	_exit(0);
}

static double sent(struct cow_channel *c, int sync, const void *block, size_t bytes)
{
	struct cow_parcel q = { .length = bytes, .mode = COW_SHARE_CLONE };
	double t0 = now_ns(), t1;

	must(cow_storage_from_ptr(block, NULL, &q.storage));
	must((int)cow_channel_send(c, &q, 1, NULL, 0));
	byte_in(sync);
	t1 = now_ns();
	byte_in(sync);
	cow_storage_unref(q.storage);
	return (t1 - t0) / 1e3;
}

static void blocks(size_t bytes, int turns)
{
	static struct series fresh, again, copies;
	struct cow_channel *c;
	int data[2], sync[2], status;
	char *warm = map_anonymous(bytes, true), what[64];
	pid_t pid;

	fresh.n = again.n = copies.n = 0;
	if (socketpair(AF_UNIX, SOCK_STREAM, 0, data) ||
	    socketpair(AF_UNIX, SOCK_STREAM, 0, sync))
		die("give: no sockets");
	pid = fork();
	if (pid == 0)
		receive(data[1], sync[1], 2 * turns);
	must(cow_channel_new(data[0], NULL, 0, &c));
	memset(warm, 2, bytes);
	for (int i = 0; i < turns; i++) {
		void *block;
		double t0;

		must(cow_block_new(bytes, 0, 0, &block));
		memset(block, 1, bytes);
		series_add(&fresh, sent(c, sync[0], block, bytes));
		series_add(&again, sent(c, sync[0], block, bytes));
		t0 = now_ns();
		memcpy(warm, block, bytes);
		series_add(&copies, (now_ns() - t0) / 1e3);
		cow_block_free(block);
	}
	if (waitpid(pid, &status, 0) != pid || status)
		die("give: the receiver failed (%#x)", status);
	cow_channel_free(c);
	munmap(warm, bytes);
	for (int i = 0; i < 2; i++) {
		close(data[i]);
		close(sync[i]);
	}
	snprintf(what, sizeof(what), "%s", size_name(bytes));
	report("give", what, "us", &fresh, &copies, BAR_NONE, 0);
	snprintf(what, sizeof(what), "%s/again", size_name(bytes));
	report("give", what, "us", &again, &copies, BAR_NONE, 0);
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
