/* SPDX-License-Identifier: MIT */
/*
 * What the kernel writes for a thread that waits, into a block that comes home meanwhile
 *
 * Buffers, events, sets, status words and addresses lie in a block that was rewritten after a
 * fork. While a thread waits, an allocator may move the block's other pages. Those that the
 * kernel is about to write must stay where they are, and each byte that it writes must be there
 * at the end. Nothing may move beside calls with lists of buffers. The argument is the name of
 * a call; without one it is all of them.
 */
#include "parked.h"

#include <mqueue.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>

#define TO_THE_END (BYTES - HUGE_PAGE - 100 * PAGE)

static int sockets[2]; /* datagrams */
static int listener, sender, queue, file, stream[2];
static mqd_t mail;
static struct sockaddr_un here; /* the sender's address */
static socklen_t here_bytes;

static void wake_by_datagram(void)
{
	check(sendto(sender, "hello", 5, 0, NULL, 0) == 5);
}

static void empty(void)
{
	char byte[5];

	check(read(quiet[0], byte, 5) == 5);
}

static size_t by_read(unsigned char *at)
{
	check(read(quiet[0], at, 100) == 5);
	check(memcmp(at, "hello", 5) == 0);
	return 5;
}

#ifdef __GLIBC__
ssize_t __read_chk(int, void *, size_t, size_t);
static size_t by_checked_read(unsigned char *at)
{
	check(__read_chk(quiet[0], at, 100, 200) == 5);
	check(memcmp(at, "hello", 5) == 0);
	return 5;
}
#endif

/* The buffer ends in another huge page than it begins. */
static size_t by_long_read(unsigned char *at)
{
	check(read(quiet[0], at, HUGE_PAGE) == 5);
	check(memcmp(at, "hello", 5) == 0);
	return 5;
}

static size_t by_readv(unsigned char *at)
{
	struct iovec parts[2] = { { at, 2 }, { at + 2, 3 } };

	check(readv(quiet[0], parts, 2) == 5);
	check(memcmp(at, "hello", 5) == 0);
	return 5;
}

static size_t by_raw_read(unsigned char *at)
{
	check(syscall(SYS_read, quiet[0], at, 100) == 5);
	check(memcmp(at, "hello", 5) == 0);
	return 5;
}

static size_t by_recv(unsigned char *at)
{
	check(recv(sockets[0], at, 100, 0) == 5);
	check(memcmp(at, "hello", 5) == 0);
	return 5;
}

/* The length says nothing about the buffer, and wraps around. */
static size_t by_endless_recv(unsigned char *at)
{
	volatile size_t endless = SIZE_MAX;

	check(recv(sockets[0], at, endless, 0) == 5);
	check(memcmp(at, "hello", 5) == 0);
	return 5;
}

struct from {
	char text[100];
	struct sockaddr_un address;
	socklen_t bytes;
};

static void check_address(const struct from *f)
{
	check(f->bytes == here_bytes);
	check(memcmp(&f->address, &here, here_bytes) == 0);
}

static size_t by_recvfrom(unsigned char *at)
{
	struct from *f = (void *)at;

	memset(f, 0, sizeof(*f));
	f->bytes = sizeof(f->address);
	check(recvfrom(sockets[0], f->text, 100, 0, (struct sockaddr *)&f->address,
	               &f->bytes) == 5);
	check(memcmp(f->text, "hello", 5) == 0 && all(f->text + 5, 95, 0));
	check_address(f);
	return sizeof(*f);
}

static size_t by_recvmsg(unsigned char *at)
{
	struct iovec part = { at, 100 };
	struct msghdr m = { .msg_iov = &part, .msg_iovlen = 1 };

	check(recvmsg(sockets[0], &m, 0) == 5);
	check(memcmp(at, "hello", 5) == 0);
	return 5;
}

static size_t accept_with(unsigned char *at, int flags)
{
	struct from *f = (void *)at;
	int fd;

	memset(f, 0, sizeof(*f));
	f->bytes = sizeof(f->address);
	fd = flags ? accept4(listener, (struct sockaddr *)&f->address, &f->bytes, flags)
	           : accept(listener, (struct sockaddr *)&f->address, &f->bytes);
	check(fd >= 0 && close(fd) == 0);
	check_address(f);
	return sizeof(*f);
}

static size_t by_accept(unsigned char *at)
{
	return accept_with(at, 0);
}

static size_t by_accept4(unsigned char *at)
{
	return accept_with(at, SOCK_CLOEXEC);
}

static void wake_by_connect(void)
{
	struct sockaddr_un to;
	socklen_t n = sizeof(to), none = sizeof(sa_family_t);
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	here = (struct sockaddr_un){ .sun_family = AF_UNIX };
	here_bytes = sizeof(here);
	check(bind(fd, (struct sockaddr *)&here, none) == 0);
	check(getsockname(fd, (struct sockaddr *)&here, &here_bytes) == 0);
	check(getsockname(listener, (struct sockaddr *)&to, &n) == 0);
	check(connect(fd, (struct sockaddr *)&to, n) == 0);
	close(fd);
}

static size_t by_poll(unsigned char *at)
{
	struct pollfd *p = (void *)at;

	*p = (struct pollfd){ quiet[0], POLLIN, 0x77 };
	check(poll(p, 1, 60000) == 1 && p->revents == POLLIN);
	empty();
	return sizeof(*p);
}

static size_t by_ppoll(unsigned char *at)
{
	struct pollfd *p = (void *)at;

	*p = (struct pollfd){ quiet[0], POLLIN, 0x77 };
	check(ppoll(p, 1, NULL, NULL) == 1 && p->revents == POLLIN);
	empty();
	return sizeof(*p);
}

struct sets {
	struct timeval minute;
	fd_set read, except;
};

static void check_sets(const struct sets *s)
{
	for (int i = 0; i < FD_SETSIZE; i++) {
		check(!FD_ISSET(i, &s->read) == (i != quiet[0]));
		check(!FD_ISSET(i, &s->except));
	}
	empty();
}

static struct sets *make_sets(unsigned char *at)
{
	struct sets *s = (void *)at;

	memset(s, 0, sizeof(*s));
	s->minute.tv_sec = 60;
	FD_SET(quiet[0], &s->read);
	FD_SET(sockets[0], &s->read);
	FD_SET(quiet[0], &s->except);
	return s;
}

static size_t by_select(unsigned char *at)
{
	struct sets *s = make_sets(at);
	int n = 1 + (quiet[0] > sockets[0] ? quiet[0] : sockets[0]);

	check(select(n, &s->read, NULL, &s->except, &s->minute) == 1);
	check(s->minute.tv_sec < 60);
	check_sets(s);
	return sizeof(*s);
}

static size_t by_pselect(unsigned char *at)
{
	struct sets *s = make_sets(at);
	int n = 1 + (quiet[0] > sockets[0] ? quiet[0] : sockets[0]);

	check(pselect(n, &s->read, NULL, &s->except, NULL, NULL) == 1);
	check_sets(s);
	return sizeof(*s);
}

static size_t events_of(unsigned char *at, int how)
{
	struct epoll_event *e = (void *)at, want = { .events = EPOLLIN };
	int fd = epoll_create1(EPOLL_CLOEXEC), n;

	want.data.u64 = 0x123456789abcdef;
	check(epoll_ctl(fd, EPOLL_CTL_ADD, quiet[0], &want) == 0);
	memset(e, 0, 4 * sizeof(*e));
	if (how == 0)
		n = epoll_wait(fd, e, 4, 60000);
	else
		n = epoll_pwait(fd, e, 4, 60000, NULL);
	check(n == 1 && e->events == EPOLLIN && e->data.u64 == want.data.u64);
	close(fd);
	empty();
	return 4 * sizeof(*e);
}

static size_t by_epoll_wait(unsigned char *at)
{
	return events_of(at, 0);
}

static size_t by_epoll_pwait(unsigned char *at)
{
	return events_of(at, 1);
}

static size_t by_sendfile(unsigned char *at)
{
	off_t *from = (void *)at;

	*from = 3;
	check(sendfile(stream[0], file, from, MIB) == (ssize_t)MIB);
	check(*from == 3 + (off_t)MIB);
	return sizeof(*from);
}

static void wake_by_reading(void)
{
	static char bytes[MIB];

	check(recv(stream[1], bytes, MIB, MSG_WAITALL) == (ssize_t)MIB);
}

struct message {
	long type;
	char text[100];
};

static size_t by_msgrcv(unsigned char *at)
{
	struct message *m = (void *)at;

	memset(m, 0, sizeof(*m));
	check(msgrcv(queue, m, sizeof(m->text), 0, 0) == 5);
	check(m->type == 9 && memcmp(m->text, "hello", 6) == 0);
	return sizeof(*m);
}

static void wake_by_message(void)
{
	struct message m = { 9, "hello" };

	check(msgsnd(queue, &m, 5, 0) == 0);
}

struct letter {
	char text[256];
	unsigned urgent;
};

static size_t by_mq_receive(unsigned char *at)
{
	struct letter *l = (void *)at;

	memset(l, 0, sizeof(*l));
	check(mq_receive(mail, l->text, sizeof(l->text), &l->urgent) == 5);
	check(memcmp(l->text, "hello", 6) == 0 && l->urgent == 7);
	return sizeof(*l);
}

static void wake_by_letter(void)
{
	check(mq_send(mail, "hello", 5, 7) == 0);
}

static const struct call calls[] = {
	{ "read", by_read, wake_by_pipe },
#ifdef __GLIBC__
	{ "read, checked", by_checked_read, wake_by_pipe },
#endif
	{ "read, long", by_long_read, wake_by_pipe, .bytes = HUGE_PAGE },
	{ "readv", by_readv, wake_by_pipe, .home = NONE_COMES },
	{ "read by number", by_raw_read, wake_by_pipe, .home = NONE_COMES },
	{ "recv", by_recv, wake_by_datagram },
	{ "recv, endless", by_endless_recv, wake_by_datagram, .bytes = TO_THE_END },
	{ "recvfrom", by_recvfrom, wake_by_datagram },
	{ "recvmsg", by_recvmsg, wake_by_datagram, .home = NONE_COMES },
	{ "accept", by_accept, wake_by_connect },
	{ "accept4", by_accept4, wake_by_connect },
	{ "poll", by_poll, wake_by_pipe },
	{ "ppoll", by_ppoll, wake_by_pipe },
	{ "select", by_select, wake_by_pipe },
	{ "pselect", by_pselect, wake_by_pipe },
	{ "epoll_wait", by_epoll_wait, wake_by_pipe },
	{ "epoll_pwait", by_epoll_pwait, wake_by_pipe },
	{ "sendfile", by_sendfile, wake_by_reading },
};

static const struct call by_messages[] = {
	{ "msgrcv", by_msgrcv, wake_by_message },
};

static const struct call by_letters[] = {
	{ "mq_receive", by_mq_receive, wake_by_letter },
};

static void make_sockets(void)
{
	struct sockaddr_un none = { .sun_family = AF_UNIX };
	socklen_t to_bytes = sizeof(none), short_name = sizeof(sa_family_t);
	struct sockaddr_un to;

	sockets[0] = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	sender = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	check(bind(sockets[0], (struct sockaddr *)&none, short_name) == 0);
	check(bind(sender, (struct sockaddr *)&none, short_name) == 0);
	check(bind(listener, (struct sockaddr *)&none, short_name) == 0);
	check(listen(listener, 5) == 0);
	check(getsockname(sockets[0], (struct sockaddr *)&to, &to_bytes) == 0);
	check(connect(sender, (struct sockaddr *)&to, to_bytes) == 0);
	here_bytes = sizeof(here);
	check(getsockname(sender, (struct sockaddr *)&here, &here_bytes) == 0);
	check(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, stream) == 0);
}

static void make_file(void)
{
	FILE *temporary = tmpfile();

	check(temporary != NULL);
	file = fileno(temporary);
	check(ftruncate(file, (off_t)(2 * MIB)) == 0);
}

/* Where the kernel has these queues. */
static void run_queues(const char *only)
{
	struct mq_attr how = { .mq_maxmsg = 1, .mq_msgsize = 256 };
	char name[64];

	queue = msgget(IPC_PRIVATE, 0600);
	if (queue >= 0) {
		run_calls(by_messages, 1, only);
		check(msgctl(queue, IPC_RMID, NULL) == 0);
	}
	snprintf(name, sizeof(name), "/kernel_writes-%d", (int)getpid());
	mail = mq_open(name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600, &how);
	if (mail >= 0) {
		check(mq_unlink(name) == 0);
		run_calls(by_letters, 1, only);
	}
}

static void nothing(void *arg)
{
	(void)arg;
}

/* What the kernel may write stays behind. A fork does not try once more to bring it home, as
 * that would only make the fork longer. The helper may do so at the same time, now and then. */
static void fork_beside_what_stays(void)
{
	static const struct call wait_to_read = { "fork", by_read, wake_by_pipe };
	struct healing h = healing_begin(BYTES);
	struct cow_stats before, after;
	pid_t child;
	int tries = 0;

	current = &wait_to_read;
	shared = h.block + IN_THE_MIDDLE;
	ended = 0;
	caller = 0;
	check(pthread_create(&waiter, NULL, make_call, NULL) == 0);
	wait_until_it_sleeps();
	healing_may_begin(&h);
	do {
		others_come_home(&h);
		check(tries++ < 20);
		before.heal_ns_total = after.heal_ns_total = 0;
		(void)stats(&before);
		child = start(nothing, NULL);
		(void)stats(&after);
		finish(child);
	} while (after.heal_ns_total != before.heal_ns_total);
	current->wake();
	check(pthread_join(waiter, NULL) == 0);
	healing_end(&h);
	puts("fork");
}

int main(int argc, char **argv)
{
	const char *only = argc > 1 ? argv[1] : NULL;

	gate_make(quiet);
	make_sockets();
	make_file();
	run_calls(calls, COUNT(calls), only);
	run_queues(only);
	if (!only || strcmp(only, "fork") == 0)
		fork_beside_what_stays();
	return 0;
}
