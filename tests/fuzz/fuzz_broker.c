/* SPDX-License-Identifier: MIT */
/*
 * Clients that ask the broker anything, in any order
 *
 * The broker is cli/'s own, in this process, and goes round while nothing else runs. An
 * input is what a few clients do: come, go, send requests that are sound, nearly sound
 * or none, with descriptors of all kinds, and don't read what they are told. A second
 * shelf, of a few lines, knows each answer. In the end nobody is there, what had a
 * holder is gone, and the broker has no more descriptors than before.
 */
#include "cli/broker.h"
#include "tests/fuzz/must.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

enum { CLIENTS = 4, SERVED = 3, OBJECTS = 5, OF_CLIENT = 3, HOLDS = 100, STEPS = 64 };
enum { BYTES = 8192, BURST = 400, DESCRIPTORS = 128 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
extern const unsigned fuzz_rounds;
const unsigned fuzz_rounds = 300;

/* What may come with a message. */
static struct {
	int fd, seals;
	ino_t inode;
} files[6]; /* the first: nothing */

struct object {
	bool is;
	struct cow_broker_item item;
	uint64_t offset;
	ino_t inode;
	unsigned holders; /* a bit for each client */
};

static const uint8_t *at, *end;
static struct broker_service service = { .listener = -1, .idle_ms = -1 };
static struct sockaddr_un address;
static socklen_t address_bytes;
static int clients[CLIENTS]; /* -1: none */
static struct object objects[OBJECTS];

static unsigned take(unsigned limit)
{
	return at < end ? *at++ % limit : 0;
}

static void go_round(void)
{
	int n;

	while ((n = broker_round(0)) > 0)
		;
	if (n == -ECANCELED) /* a signal, for the fuzzer */
		_exit(1);
	must(n == 0);
}

/* ---- The second shelf ---------------------------------------------------------------- */

static bool ended(const struct cow_broker_item *i)
{
	return memchr(i->name, 0, sizeof(i->name)) != NULL;
}

static bool lasts(const struct cow_broker_item *i)
{
	return i->name[0] && !(i->flags & COW_BROKER_EPHEMERAL);
}

static struct object *find(const struct cow_broker_item *i)
{
	for (struct object *o = objects; o < objects + OBJECTS; o++) {
		if (!o->is || strcmp(o->item.name, i->name) != 0)
			continue;
		if (i->name[0] || memcmp(&o->item.token, &i->token, sizeof(i->token)) == 0)
			return o;
	}
	return NULL;
}

static int count(unsigned holder)
{
	int n = 0;

	for (struct object *o = objects; o < objects + OBJECTS; o++)
		n += o->is && (!holder || o->holders & holder);
	return n;
}

static bool sound(const struct cow_broker_item *i)
{
	if (!ended(i) || i->mode > COW_SHARE_SEALED || i->permissions & ~0666u ||
	    i->flags & ~3u)
		return false;
	for (const char *c = i->name; *c; c++)
		if (*c == '/' || (unsigned char)*c < 32 || *c == 127)
			return false;
	return i->name[0] || i->token.a || i->token.b;
}

static bool holds(const struct cow_broker_message *m, int file)
{
	int want = F_SEAL_GROW | F_SEAL_SHRINK;

	if (m->item.mode != COW_SHARE_ALIAS)
		want |= F_SEAL_WRITE;
	if (m->item.bytes == 0 || file == 0)
		return m->item.bytes == 0 && file == 0;
	return (files[file].seals & want) == want && m->offset <= BYTES &&
	       m->item.bytes <= BYTES - m->offset;
}

static int put(int client, const struct cow_broker_message *m, int file)
{
	unsigned holder = 1u << client;
	struct object *o;

	if (!sound(&m->item))
		return -EINVAL;
	if (!holds(m, file))
		return -EBADMSG;
	o = find(&m->item);
	if (o && (lasts(&o->item) || o->item.bytes != m->item.bytes ||
	          o->item.mode != m->item.mode || o->item.flags != m->item.flags ||
	          o->offset != m->offset || o->inode != files[file].inode))
		return -EEXIST;
	if (o && o->holders & holder) {
		o->item.permissions = m->item.permissions;
		return 0;
	}
	if (!o && count(0) == OBJECTS)
		return -ENOSPC;
	if (!lasts(o ? &o->item : &m->item) && count(holder) == OF_CLIENT)
		return -ENOSPC;
	if (!o) {
		for (o = objects; o->is; o++)
			;
		*o = (struct object){ true, m->item, m->offset, files[file].inode, 0 };
	}
	if (!lasts(&o->item))
		o->holders |= holder;
	o->item.permissions = m->item.permissions;
	return 0;
}

static void leave(int client)
{
	close(clients[client]);
	clients[client] = -1;
	for (struct object *o = objects; o < objects + OBJECTS; o++)
		if (o->is && o->holders & 1u << client) {
			o->holders &= ~(1u << client);
			o->is = o->holders != 0;
		}
	go_round();
}

/* ---- Messages ------------------------------------------------------------------------- */

static ssize_t say(int client, const void *data, size_t bytes, const int *fds, size_t nfds)
{
	union {
		struct cmsghdr head;
		char room[CMSG_SPACE(3 * sizeof(int))];
	} control = { .room = { 0 } };
	struct iovec iov = { (void *)(uintptr_t)data, bytes };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };

	if (nfds) {
		msg.msg_control = &control;
		msg.msg_controllen = CMSG_SPACE(nfds * sizeof(int));
		control.head.cmsg_level = SOL_SOCKET;
		control.head.cmsg_type = SCM_RIGHTS;
		control.head.cmsg_len = CMSG_LEN(nfds * sizeof(int));
		memcpy(CMSG_DATA(&control.head), fds, nfds * sizeof(int));
	}
	return sendmsg(clients[client], &msg, MSG_DONTWAIT | MSG_NOSIGNAL);
}

/* A reply, and the inode of what came with it (0: nothing). False: the end. */
static bool hear(int client, struct cow_broker_message *m, ino_t *ret)
{
	union {
		struct cmsghdr head;
		char room[CMSG_SPACE(3 * sizeof(int))];
	} control;
	struct iovec iov = { m, sizeof(*m) };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control,
		              .msg_controllen = sizeof(control) };
	struct cmsghdr *c;
	struct stat st = { 0 };
	ssize_t n = recvmsg(clients[client], &msg, MSG_DONTWAIT);
	int fd;

	if (n == 0 || (n < 0 && errno == ECONNRESET))
		return false;
	must(n == sizeof(*m) && !(msg.msg_flags & (MSG_TRUNC | MSG_CTRUNC)));
	must(m->magic == COW_BROKER_MAGIC && m->version == COW_BROKER_VERSION);
	c = CMSG_FIRSTHDR(&msg);
	if (c) {
		must(c->cmsg_type == SCM_RIGHTS && c->cmsg_len == CMSG_LEN(sizeof(int)));
		memcpy(&fd, CMSG_DATA(c), sizeof(fd));
		must(fstat(fd, &st) == 0);
		close(fd);
	}
	*ret = st.st_ino;
	return true;
}

static void check_got(const struct cow_broker_message *m, const struct object *o, ino_t inode)
{
	struct cow_broker_item item = o->item;

	item.uid = geteuid();
	must(memcmp(&m->item, &item, sizeof(item)) == 0);
	must(m->offset == o->offset && inode == o->inode);
}

/* What the answer must be; `ret` is what it is about. */
static int expected(int client, const struct cow_broker_message *m, int file,
                    struct object **ret)
{
	if (m->operation == COW_BROKER_PUT)
		return put(client, m, file);
	if (m->operation == COW_BROKER_LIST || m->operation == COW_BROKER_HELLO)
		return 0;
	if (!ended(&m->item))
		return -EINVAL;
	*ret = find(&m->item);
	return *ret ? 0 : -ENOENT;
}

static void request(int client, const void *data, size_t bytes, int file, unsigned nfds)
{
	struct cow_broker_message m = { 0 }, reply;
	const int fds[3] = { files[file].fd, files[file].fd, files[file].fd };
	struct object *o = NULL;
	ino_t inode;
	bool broken;
	int r;

	if (file == 0)
		nfds = 0;
	memcpy(&m, data, bytes < sizeof(m) ? bytes : sizeof(m));
	broken = bytes != sizeof(m) || m.magic != COW_BROKER_MAGIC ||
	         m.version != COW_BROKER_VERSION || m.reserved ||
	         m.operation >= COW_BROKER_OPERATIONS || nfds > 1 ||
	         (nfds && m.operation != COW_BROKER_PUT);
	must(say(client, data, bytes, fds, nfds) == (ssize_t)bytes);
	go_round();
	if (bytes == 0) {
		must(!hear(client, &reply, &inode));
		leave(client);
		return;
	}
	must(hear(client, &reply, &inode));
	if (broken) {
		must(reply.result == -EBADMSG && inode == 0);
		must(!hear(client, &reply, &inode));
		leave(client);
		return;
	}
	must(reply.operation == m.operation);
	r = expected(client, &m, nfds ? file : 0, &o);
	if (m.operation == COW_BROKER_LIST) {
		must(reply.result == 0 || (reply.result == 1 && find(&reply.item)) ||
		     (reply.result == 1 && !reply.item.name[0]));
		must(reply.result == 0 || reply.offset > m.offset);
		return;
	}
	must(reply.result == r);
	if (m.operation == COW_BROKER_GET && r == 0)
		check_got(&reply, o, inode);
	else
		must(inode == 0);
	if (o && (m.operation == COW_BROKER_DROP ||
	          (m.operation == COW_BROKER_GET && o->item.flags & COW_BROKER_ONCE)))
		o->is = false;
}

static struct cow_broker_message ask(unsigned operation)
{
	return (struct cow_broker_message){ .magic = COW_BROKER_MAGIC,
		                            .version = COW_BROKER_VERSION,
		                            .operation = (uint16_t)operation };
}

/* Sound, but for a few bytes of it. */
static void some_request(int client)
{
	static const char *const names[] = { "", "", "one", "two", "a/b" };
	unsigned char all[sizeof(struct cow_broker_message) + 8] = { 0 };
	struct cow_broker_message m = ask(take(COW_BROKER_OPERATIONS));
	size_t bytes = sizeof(m);
	unsigned how = take(16), nfds = 1;
	int file = 0;

	strcpy(m.item.name, names[take(5)]);
	m.item.token.a = take(4);
	if (m.operation == COW_BROKER_PUT) {
		file = (int)take(6);
		m.item.mode = take(3);
		m.item.flags = take(4);
		m.item.permissions = 0600;
		m.item.bytes = file ? 4096u - take(2) : 0;
		m.offset = take(2) * 4096;
	}
	memcpy(all, &m, sizeof(m));
	for (; how > 12; how--)
		all[take(sizeof(m))] = (unsigned char)take(256);
	if (how == 12)
		bytes = take(sizeof(all) + 1);
	if (how == 11) {
		file = (int)take(6);
		nfds = 1 + take(3);
	}
	request(client, all, bytes, file, nfds);
}

static void dial(int client)
{
	struct cow_broker_message m;
	bool full = true;
	ino_t inode;
	int alive = 0;

	for (int i = 0; i < CLIENTS; i++)
		alive += clients[i] >= 0;
	full = alive == SERVED;
	clients[client] = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	must(connect(clients[client], (struct sockaddr *)&address, address_bytes) == 0);
	go_round();
	if (!full)
		return;
	must(hear(client, &m, &inode) && m.result == -ENOSPC);
	must(!hear(client, &m, &inode));
	leave(client);
}

/* Asks for more than it reads; then it reads all, or is gone. */
static void burst(int client)
{
	struct cow_broker_message m = ask(COW_BROKER_HELLO);
	int n = (int)take(256) * BURST / 255, sent = 0;
	bool reads = take(4);
	ino_t inode;

	while (sent < n && say(client, &m, sizeof(m), NULL, 0) > 0) {
		sent++;
		go_round();
	}
	for (; reads && sent > 0; sent--) {
		must(hear(client, &m, &inode) && m.result == 0);
		go_round();
	}
	if (!reads)
		leave(client);
}

static int descriptors(void)
{
	int n = 0;

	for (int i = 0; i < DESCRIPTORS; i++)
		n += fcntl(i, F_GETFD) >= 0;
	return n;
}

/* ---- From the first to the last -------------------------------------------------------- */

static void open_all(void)
{
	const int size = F_SEAL_GROW | F_SEAL_SHRINK, all = size | F_SEAL_WRITE;
	const int seals[] = { 0, all, all, size, 0, 0 };

	address.sun_family = AF_UNIX; /* the kernel makes a name */
	service.listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	must(bind(service.listener, (struct sockaddr *)&address, sizeof(sa_family_t)) == 0);
	address_bytes = sizeof(address);
	must(getsockname(service.listener, (struct sockaddr *)&address, &address_bytes) == 0);
	must(listen(service.listener, 16) == 0);
	service.limits = (struct broker_limits){
		.of = { [BROKER_CLIENT] = { SERVED, SERVED, SERVED },
		        [BROKER_OBJECT] = { OBJECTS, OBJECTS, OBJECTS },
		        [BROKER_HOLD] = { HOLDS, HOLDS, HOLDS } },
		.objects_of_client = OF_CLIENT,
	};
	must(broker_open(&service) == 0);
	for (int i = 1; i < 6; i++) {
		struct stat st;

		files[i].fd = i < 5 ? memfd_create("fuzz", MFD_ALLOW_SEALING | MFD_CLOEXEC)
		                    : open("/dev/null", O_RDONLY | O_CLOEXEC);
		must(files[i].fd >= 0 && (i == 5 || ftruncate(files[i].fd, BYTES) == 0));
		must(i == 5 || fcntl(files[i].fd, F_ADD_SEALS, seals[i]) == 0);
		must(fstat(files[i].fd, &st) == 0);
		files[i].seals = seals[i];
		files[i].inode = st.st_ino;
	}
	for (int i = 0; i < CLIENTS; i++)
		clients[i] = -1;
}

/* Of cli/broker_bury.c, without its child: that would have the clients' sockets, too, since
 * they and the broker are one process here. */
void broker_bury(const int *fds, size_t n)
{
	for (size_t i = 0; i < n; i++)
		close(fds[i]);
}

static void close_all(void)
{
	struct cow_broker_message m = ask(COW_BROKER_DROP);

	for (int i = 0; i < CLIENTS; i++)
		if (clients[i] >= 0)
			leave(i);
	must((int)broker_shelf_count() == count(0));
	if (count(0) > 0) /* names that last */
		dial(0);
	for (struct object *o = objects; o < objects + OBJECTS; o++)
		if (o->is) {
			m.item = o->item;
			request(0, &m, sizeof(m), 0, 0);
		}
	if (clients[0] >= 0)
		leave(0);
	must(broker_shelf_count() == 0 && broker_users_count() == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	int before;

	if (service.listener < 0)
		open_all();
	at = data;
	end = data + size;
	before = descriptors();
	for (int i = 0; i < STEPS && at < end; i++) {
		unsigned what = take(16);
		int client = (int)take(CLIENTS);

		if (clients[client] < 0)
			dial(client);
		else if (what == 0)
			leave(client);
		else if (what == 1)
			burst(client);
		else
			some_request(client);
		must((int)broker_shelf_count() == count(0));
	}
	close_all();
	must(descriptors() == before);
	return 0;
}
