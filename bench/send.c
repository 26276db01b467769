/* SPDX-License-Identifier: MIT */
/*
 * Send: storages to another process, by size and by number
 *
 * A cycle makes storages, fills them, sends them to a process that reads a byte of each,
 * and drops them on both sides. They are sent in a group as clones and as aliases, and
 * as clones without a group. The rivals are what programs do by hand:
 *
 *   memfd   a memfd each; its descriptor is sent, and the receiver maps it
 *   bytes   the bytes are written to a socket and read from it; the memory on both sides
 *           exists already, which is the best case of a copy
 *
 * The figures are for docs/results.md and have no bars; bench/share.c has some.
 */
#include <cowshed-share.h>

#include "bench/common.h"
#include "bench/rival_fd.h"

#include <sys/socket.h>
#include <sys/wait.h>

enum way { GROUP_CLONE, GROUP_ALIAS, CLONE, MEMFD, BYTES, WAYS };

enum { MOST = 10000 };

static const char *const way_name[] = {"group-clone", "group-alias", "clone",
                                       "memfd", "bytes"};

struct order {
	size_t bytes, count;
};

/* Each way has a receiver of its own, which lives as long as the program. */
struct peer {
	int data, sync; /* the messages; an order out, a byte back when it is done */
	pid_t pid;
	struct cow_group *group;
	struct cow_channel *channel;
};

static struct cow_parcel parcels[MOST];
static char *mapped[MOST];

static void all_out(int fd, const void *p, size_t bytes)
{
	for (size_t at = 0; at < bytes;) {
		ssize_t n = write(fd, (const char *)p + at, bytes - at);

		if (n <= 0)
			die("send: write: %s", strerror(errno));
		at += (size_t)n;
	}
}

static bool all_in(int fd, void *p, size_t bytes)
{
	for (size_t at = 0; at < bytes;) {
		ssize_t n = read(fd, (char *)p + at, bytes - at);

		if (n <= 0)
			return false;
		at += (size_t)n;
	}
	return true;
}

static char *fd_map(int fd, size_t bytes)
{
	char *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	if (p == MAP_FAILED)
		die("send: mmap: %s", strerror(errno));
	close(fd);
	return p;
}

static void check(const char *p, size_t i)
{
	if (*p != (char)(i + 1))
		die("send: storage %zu has wrong bytes", i);
}

static void receive_storages(struct cow_channel *c, const struct order *o)
{
	for (size_t got = 0; got < o->count;) {
		long n = cow_channel_receive(c, parcels + got, o->count - got,
		                             NULL, 0, NULL);

		must((int)n);
		got += (size_t)n;
	}
	for (size_t i = 0; i < o->count; i++) {
		check(cow_storage_data(parcels[i].storage), i);
		cow_storage_unref(parcels[i].storage);
	}
}

static void receive_memfds(int data, const struct order *o)
{
	for (size_t i = 0; i < o->count; i++) {
		mapped[i] = fd_map(receive_fd(data), o->bytes);
		check(mapped[i], i);
	}
	for (size_t i = 0; i < o->count; i++)
		munmap(mapped[i], o->bytes);
}

static void receive_bytes(int data, char *room, const struct order *o)
{
	for (size_t i = 0; i < o->count; i++) {
		if (!all_in(data, room, o->bytes))
			die("send: the sender is gone");
		check(room, i);
	}
}

static void receiver(enum way way, int data, int sync)
{
	struct cow_channel *c = NULL;
	struct order o;
	char *room = NULL;

	if (way <= CLONE)
		must(cow_channel_new(data, NULL, COW_CHANNEL_JOIN, &c));
	if (way == BYTES)
		room = memset(map_anonymous(64 * MIB, true), 1, 64 * MIB);
	while (all_in(sync, &o, sizeof(o))) {
		if (way <= CLONE)
			receive_storages(c, &o);
		else if (way == MEMFD)
			receive_memfds(data, &o);
		else
			receive_bytes(data, room, &o);
		all_out(sync, "", 1);
	}
	_exit(0);
}

static void peers_start(struct peer *peers)
{
	int data[WAYS][2], sync[WAYS][2];

	for (int w = 0; w < WAYS; w++) {
		if (socketpair(AF_UNIX, SOCK_STREAM, 0, data[w]) ||
		    socketpair(AF_UNIX, SOCK_STREAM, 0, sync[w]))
			die("send: no sockets");
		fflush(stdout);
		peers[w].pid = fork();
		if (peers[w].pid == 0) {
			for (int i = 0; i <= w; i++) {
				close(data[i][0]);
				close(sync[i][0]);
			}
			receiver(w, data[w][1], sync[w][1]);
		}
		close(data[w][1]);
		close(sync[w][1]);
		peers[w].data = data[w][0];
		peers[w].sync = sync[w][0];
	}
	for (int w = 0; w <= CLONE; w++) {
		if (w != CLONE)
			must(cow_group_new(&peers[w].group));
		must(cow_channel_new(peers[w].data, peers[w].group, 0,
		                     &peers[w].channel));
	}
}

static void peers_end(struct peer *peers)
{
	for (int w = 0; w < WAYS; w++) {
		int status;

		cow_channel_free(peers[w].channel);
		cow_group_unref(peers[w].group);
		close(peers[w].sync);
		close(peers[w].data);
		if (waitpid(peers[w].pid, &status, 0) != peers[w].pid || status)
			die("send: a receiver failed (%#x)", status);
	}
}

static void send_storages(struct peer *peer, enum way way,
                          const struct order *o)
{
	enum cow_share_mode mode =
		way == GROUP_ALIAS ? COW_SHARE_ALIAS : COW_SHARE_CLONE;

	for (size_t i = 0; i < o->count; i++) {
		struct cow_parcel *q = &parcels[i];
		void *p;

		*q = (struct cow_parcel){.length = o->bytes, .mode = mode};
		if (peer->group)
			must(cow_group_storage_new(peer->group, o->bytes, mode,
			                           &q->storage));
		else
			must(cow_storage_new(o->bytes, NULL, &q->storage));
		must(cow_storage_data_mut_range(q->storage, 0, o->bytes,
		                                COW_WRITE_ALL, &p));
		memset(p, (int)i + 1, o->bytes);
	}
	for (size_t sent = 0; sent < o->count;) {
		long n = cow_channel_send(peer->channel, parcels + sent,
		                          o->count - sent, NULL, 0);

		must((int)n);
		sent += (size_t)n;
	}
}

static void send_memfds(struct peer *peer, const struct order *o)
{
	for (size_t i = 0; i < o->count; i++) {
		int fd = memfd_create("send", MFD_CLOEXEC);

		if (fd < 0 || ftruncate(fd, (off_t)o->bytes))
			die("send: memfd: %s", strerror(errno));
		mapped[i] = mmap(NULL, o->bytes, PROT_READ | PROT_WRITE,
		                 MAP_SHARED, fd, 0);
		if (mapped[i] == MAP_FAILED)
			die("send: mmap: %s", strerror(errno));
		memset(mapped[i], (int)i + 1, o->bytes);
		send_fd(peer->data, fd);
		close(fd);
	}
}

/* One cycle, from making to dropping: us for each storage. */
static double sent(struct peer *peer, enum way way, const struct order *o,
                   char *room)
{
	double t0 = now_ns();
	char done;

	all_out(peer->sync, o, sizeof(*o));
	if (way <= CLONE)
		send_storages(peer, way, o);
	else if (way == MEMFD)
		send_memfds(peer, o);
	else
		for (size_t i = 0; i < o->count; i++) {
			memset(room, (int)i + 1, o->bytes);
			all_out(peer->data, room, o->bytes);
		}
	if (!all_in(peer->sync, &done, 1))
		die("send: the receiver is gone");
	for (size_t i = 0; i < o->count && way <= CLONE; i++)
		cow_storage_unref(parcels[i].storage);
	for (size_t i = 0; i < o->count && way == MEMFD; i++)
		munmap(mapped[i], o->bytes);
	return (now_ns() - t0) / 1e3 / (double)o->count;
}

static void send_one(struct peer *peers, char *room, const char *curve,
                     const char *at, struct order o)
{
	static struct series all[WAYS];
	/* Small orders are short, so this takes the mean of 400 storages. */
	int times = o.bytes * o.count <= MIB && o.count <= 100
	                    ? (int)(400 / o.count)
	                    : 1;

	for (int w = 0; w < WAYS; w++)
		all[w].n = 0;
	for (int i = 0; i < rounds(11) + 1; i++)
		for (int w = 0; w < WAYS; w++) {
			double us = 0;

			/* Each needs a descriptor on both sides. */
			if (w == CLONE && o.count > 1000)
				continue;
			for (int k = 0; k < times; k++)
				us += sent(&peers[w], w, &o, room) / times;
			if (i)
				series_add(&all[w], us);
		}
	for (int w = 0; w <= CLONE; w++)
		for (int r = MEMFD; r < WAYS && all[w].n; r++) {
			char what[64];

			snprintf(what, sizeof(what), "%s/%s/%s/%s", curve, at,
			         way_name[w], way_name[r]);
			report("send", what, "us", &all[w], &all[r], BAR_FASTER,
			       0);
		}
}

int main(void)
{
	size_t large = quick() ? 4 * MIB : 64 * MIB;
	size_t many = quick() ? 1000 : MOST;
	struct peer peers[WAYS] = {0};
	char *room, at[32];

	peers_start(peers); /* before the library has anything to fork */
	warm_host(GIB);
	room = memset(map_anonymous(large, true), 1, large);
	for (size_t bytes = 4 * KIB; bytes <= large; bytes *= 4)
		send_one(peers, room, "size", size_name(bytes),
		         (struct order){bytes, 1});
	for (size_t n = 1; n <= many; n *= 10) {
		snprintf(at, sizeof(at), "%zu", n);
		send_one(peers, room, "count", at, (struct order){PAGE, n});
	}
	munmap(room, large);
	peers_end(peers);
	return 0;
}
