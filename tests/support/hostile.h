/* SPDX-License-Identifier: MIT */
/*
 * Test support: a hostile peer
 *
 * A *victim* is a channel of the library. The other end of its socket belongs to
 * an attacker who writes whatever bytes and descriptors it likes. After each
 * attack the victim is *calm*: a good message arrives, what was received is
 * given back, and it has the descriptors that it had before.
 *
 * A *raw* message is one that is sound when it is new; a test then makes one
 * thing of it wrong.
 */
#ifndef COWSHED_TESTS_HOSTILE_H
#define COWSHED_TESTS_HOSTILE_H

#include "share/wire.h"
#include "tests/support/support.h"

#include <cowshed-share.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#define SEALS_SIZE (F_SEAL_GROW | F_SEAL_SHRINK)
#define SEALS_ALL (SEALS_SIZE | F_SEAL_WRITE | F_SEAL_SEAL)
#define RAW_FDS 253

/* ---- Messages ----------------------------------------------------------------- */

struct raw {
	struct cow__wire_head head;
	struct cow__wire_item items[3];
	size_t nitems, nhere, nnote;
	int fds[RAW_FDS];
	unsigned nfds;
	unsigned char here[64];
	char note[8];
};

static inline void raw_size(struct raw *m)
{
	m->head.bytes = (uint32_t)(sizeof(m->head) +
	                           m->nitems * sizeof(m->items[0]) + m->nhere +
	                           m->nnote);
}

/* Two small storages as bytes, and a note. */
static inline struct raw raw_new(void)
{
	struct raw m = {
		.head = {
			.magic = COW__WIRE_MAGIC,
			.version = COW__WIRE_VERSION,
			.items = 2,
			.inline_bytes = 48,
			.note_bytes = 5,
		},
		.nitems = 2,
		.nhere = 48,
		.nnote = 5,
		.note = "note",
	};

	for (int i = 0; i < 2; i++)
		m.items[i] = (struct cow__wire_item){
			.mode = COW_SHARE_CLONE,
			.kind = COW__WIRE_BYTES_HERE,
			.bytes = i ? 16 : 32,
			.length = i ? 16 : 32,
		};
	fill(m.here, 32, 1);
	fill(m.here + 32, 16, 2);
	raw_size(&m);
	return m;
}

/* One storage in a descriptor of its own, which stays the caller's. */
static inline struct raw raw_own(int fd, uint64_t bytes,
                                 enum cow_share_mode mode)
{
	struct raw m = {
		.head = {
			.magic = COW__WIRE_MAGIC,
			.version = COW__WIRE_VERSION,
			.items = 1,
			.fds = 1,
		},
		.nitems = 1,
		.nfds = 1,
	};

	m.items[0] = (struct cow__wire_item){
		.mode = (uint8_t)mode,
		.kind = COW__WIRE_OWN,
		.bytes = bytes,
		.length = bytes,
	};
	m.fds[0] = fd;
	raw_size(&m);
	return m;
}

static inline size_t raw_bytes(const struct raw *m, unsigned char *to)
{
	unsigned char *at = to;

	memcpy(at, &m->head, sizeof(m->head));
	at += sizeof(m->head);
	memcpy(at, m->items, m->nitems * sizeof(m->items[0]));
	at += m->nitems * sizeof(m->items[0]);
	memcpy(at, m->here, m->nhere);
	at += m->nhere;
	memcpy(at, m->note, m->nnote);
	return (size_t)(at - to) + m->nnote;
}

/* Bytes, and descriptors with the first of them. What sendmsg() says. */
static inline long put(int socket, const void *bytes, size_t count,
                       const int *fds, unsigned nfds, int flags)
{
	union {
		struct cmsghdr head;
		char room[CMSG_SPACE(sizeof(int) * RAW_FDS)];
	} control;
	struct iovec iov = { (void *)(uintptr_t)bytes, count };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };
	long r;

	if (nfds) {
		memset(&control, 0, sizeof(control));
		msg.msg_control = &control;
		msg.msg_controllen = CMSG_SPACE(nfds * sizeof(int));
		control.head.cmsg_level = SOL_SOCKET;
		control.head.cmsg_type = SCM_RIGHTS;
		control.head.cmsg_len = CMSG_LEN(nfds * sizeof(int));
		memcpy(CMSG_DATA(&control.head), fds, nfds * sizeof(int));
	}
	r = sendmsg(socket, &msg, MSG_NOSIGNAL | flags);
	return r < 0 ? -errno : r;
}

static inline void raw_put(int socket, const struct raw *m)
{
	unsigned char bytes[1024];
	size_t n = raw_bytes(m, bytes);

	ck_assert_int_eq(put(socket, bytes, n, m->fds, m->nfds, 0), (int)n);
}

/* ---- Victims -------------------------------------------------------------------- */

struct victim {
	int mine, theirs;
	struct cow_channel *channel;
	long fds;
};

static inline long take(struct victim *v, struct cow_parcel *p, size_t max)
{
	return cow_channel_receive(v->channel, p, max, NULL, 0, NULL);
}

/* A good message arrives as it is. */
static inline void good(struct victim *v)
{
	struct raw m = raw_new();
	struct cow_parcel p[3];
	char note[COW_NOTE_MAX];
	size_t bytes;
	long n;

	raw_put(v->theirs, &m);
	n = cow_channel_receive(v->channel, p, 3, note, sizeof(note), &bytes);
	if (n != 2)
		ck_abort_msg("the good message gave %ld: %s", n,
		             cow_last_error());
	ck_assert_uint_eq(bytes, 5);
	ck_assert_str_eq(note, "note");
	ck_pattern(data(p[0].storage), 32, 1);
	ck_pattern(data(p[1].storage), 16, 2);
	cow_storage_unref(p[0].storage);
	cow_storage_unref(p[1].storage);
}

static inline void victim_make_with(struct victim *v, int type,
                                    struct cow_group *group, uint32_t flags)
{
	int fd[2];

	must(socketpair(AF_UNIX, type | SOCK_CLOEXEC, 0, fd) == 0);
	v->mine = fd[0];
	v->theirs = fd[1];
	/* An attack that makes it wait is found out, not waited for. */
	fcntl(v->mine, F_SETFL, O_NONBLOCK);
	ok(cow_channel_new(v->mine, group, flags, &v->channel));
	good(v);
	v->fds = footprint_now().fds;
}

static inline void victim_make(struct victim *v, int type)
{
	victim_make_with(v, type, NULL, COW_CHANNEL_TAKE_ALIASES);
}

static inline void calm(struct victim *v)
{
	good(v);
	ck_assert_int_eq(footprint_now().fds, v->fds);
}

static inline void victim_free(struct victim *v)
{
	cow_channel_free(v->channel);
	close(v->mine);
	if (v->theirs >= 0)
		close(v->theirs);
}

/* What was sent gives this error, and the next message arrives. */
#define refused(v, code)                                                       \
	do {                                                                   \
		struct cow_parcel refused_p[4];                                \
		fails(code, (int)take((v), refused_p, 4));                     \
		calm(v);                                                       \
	} while (0)

/* ---- Files ------------------------------------------------------------------------ */

static inline int memfd_of(size_t bytes, int seals)
{
	int fd = memfd_create("theirs", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	unsigned char page[PAGE];

	must(fd >= 0);
	must(ftruncate(fd, (off_t)bytes) == 0);
	fill(page, PAGE, 5);
	must(pwrite(fd, page, bytes < PAGE ? bytes : PAGE, 0) >= 0);
	if (seals)
		must(fcntl(fd, F_ADD_SEALS, seals) == 0);
	return fd;
}

#endif
