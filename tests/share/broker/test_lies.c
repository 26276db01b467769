/* SPDX-License-Identifier: MIT */
/*
 * Wrong answers of a broker, or none: the client gets an error
 *
 * A child of the test plays the broker. It says hello and answers each request in the same
 * wrong way. Or there is a socket that no process reads. Outputs stay untouched, and no
 * descriptor is left open.
 */
#include "tests/support/hostile.h"

#include <cowshed-broker.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

enum fd_kind { NONE, SOUND, PIPE, SHORT, UNSEALED };

struct lie {
	const char *name;
	int operation;
	int expected;
	int32_t result;
	enum fd_kind fd;
	int fds; /* 0: one, if any */
	uint64_t bytes, offset;
	uint32_t mode, magic;
	uint16_t version;
	bool endless; /* a name without its end */
	int cut;      /* bytes less, or more */
	bool hang_up;
};

#define G COW_BROKER_GET
#define L COW_BROKER_LIST
#define D COW_BROKER_DROP
#define PAGES ((uint64_t)2 * PAGE)

static const struct lie lies[] = {
	{ "an error with a descriptor", G, -ENOENT, -ENOENT, SOUND, .bytes = PAGES },
	{ "reset, with descriptors", G, -ECONNRESET, -ECONNRESET, SOUND, 3, .bytes = PAGES },
	{ "no descriptor", G, -EBADMSG, 0, NONE, .bytes = PAGES },
	{ "more bytes than there are", G, -EBADMSG, 0, SOUND, .bytes = UINT64_MAX },
	{ "an unknown mode", G, -EBADMSG, 0, SOUND, .bytes = PAGES, .mode = 77 },
	{ "an endless name", G, -EBADMSG, 0, SOUND, .bytes = PAGES, .endless = true },
	{ "a pipe", G, -EBADMSG, 0, PIPE, .bytes = PAGES },
	{ "a short memfd", G, -EBADMSG, 0, SHORT, .bytes = PAGES },
	{ "not sealed", G, -EBADMSG, 0, UNSEALED, .bytes = PAGES },
	{ "behind its end", G, -EBADMSG, 0, SOUND, .bytes = PAGES, .offset = UINT64_MAX },
	{ "another magic", G, -EPROTO, 0, SOUND, .bytes = PAGES, .magic = 1 },
	{ "another version", G, -EPROTO, 0, SOUND, .bytes = PAGES, .version = 2 },
	{ "too short", G, -EPROTO, 0, SOUND, .bytes = PAGES, .cut = -1 },
	{ "too long", G, -EPROTO, 0, SOUND, .bytes = PAGES, .cut = 1 },
	{ "no error there is", G, -EPROTO, INT_MIN, SOUND, .bytes = PAGES },
	{ "neither 0 nor an error", G, -EPROTO, 1, SOUND, .bytes = PAGES },
	{ "gone", G, -ECONNRESET, 0, NONE, .hang_up = true },
	{ "two too many", G, 0, 0, SOUND, 3, .bytes = PAGES },
	{ "a list's endless name", L, -EBADMSG, 1, NONE, .endless = true },
	{ "seven at once", L, -EPROTO, .result = 7 },
	{ "a list with a descriptor", L, 1, .result = 1, .fd = SOUND },
	{ "dropped twice", D, -EPROTO, .result = 1 },
	{ "no error to drop", D, -EPROTO, .result = -4096 },
};

static int memory(enum fd_kind kind)
{
	int fd = memfd_create("lie", MFD_ALLOW_SEALING | MFD_CLOEXEC), ends[2];

	must(fd >= 0 && ftruncate(fd, (off_t)(kind == SHORT ? PAGE : PAGES)) == 0);
	if (kind != UNSEALED)
		must(fcntl(fd, F_ADD_SEALS,
		           F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL) == 0);
	if (kind == PIPE) {
		must(pipe(ends) == 0);
		close(fd);
		close(ends[1]);
		fd = ends[0];
	}
	return fd;
}

static void answer(int socket, const struct lie *lie)
{
	struct {
		struct cow_broker_message m;
		char more;
	} a = { .m = { .magic = lie->magic ? lie->magic : COW_BROKER_MAGIC,
		       .version = lie->version ? lie->version : COW_BROKER_VERSION,
		       .operation = (uint16_t)lie->operation,
		       .result = lie->result,
		       .offset = lie->offset } };
	size_t bytes = (size_t)((int)sizeof(a.m) + lie->cut);
	int n = lie->fd == NONE ? 0 : lie->fds ? lie->fds : 1, fds[3];

	a.m.item.bytes = lie->bytes;
	a.m.item.mode = lie->mode ? lie->mode : COW_SHARE_SEALED;
	memset(a.m.item.name, 'x', lie->endless ? COW_BROKER_NAME : 1);
	for (int i = 0; i < n; i++)
		fds[i] = memory(lie->fd);
	must(put(socket, &a, bytes, fds, (unsigned)n, 0) == (long)bytes);
	for (int i = 0; i < n; i++)
		close(fds[i]);
}

struct liar {
	const struct lie *lie;
	int listens;
};

static void lies_to_all(void *arg)
{
	const struct lie hello = { .operation = COW_BROKER_HELLO };
	const struct liar *t = arg;
	struct cow_broker_message m;
	int socket;

	/* It is killed in the end. */
	while ((socket = accept(t->listens, NULL, NULL)) >= 0) {
		while (recv(socket, &m, sizeof(m), 0) == (ssize_t)sizeof(m))
			if (m.operation == COW_BROKER_HELLO)
				answer(socket, &hello);
			else if (t->lie->hang_up)
				break;
			else
				answer(socket, t->lie);
		close(socket);
	}
}

static struct sockaddr_un at = { .sun_family = AF_UNIX };
static char name[sizeof(at.sun_path)];

static int listener(int backlog)
{
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0), n;

	n = snprintf(name, sizeof(name), "@cowshed-lies-%d", getpid());
	memcpy(at.sun_path + 1, name + 1, (size_t)n - 1);
	must(bind(fd, (struct sockaddr *)&at,
	          (socklen_t)(offsetof(struct sockaddr_un, sun_path) + (size_t)n)) == 0);
	must(listen(fd, backlog) == 0);
	return fd;
}

START_TEST(answers)
{
	const struct lie *lie = &lies[_i];
	struct liar liar = { lie, listener(5) };
	struct cow_broker_options o = { .size = sizeof(o), .address = name };
	struct cow_broker_item item = { .name = "x", .mode = COW_SHARE_SEALED }, got = { .uid = 7 };
	struct cow_storage *s = (void *)0x5eed;
	struct cow_broker *b;
	uint64_t cursor = 5;
	pid_t child;
	long fds;
	int r;

	child = child_start(lies_to_all, &liar);
	close(liar.listens);
	fds = footprint_now().fds;
	for (int k = 0; k < 4; k++) {
		ok(cow_broker_open(&o, &b));
		r = lie->operation == G   ? cow_broker_get(b, &item, &s, &got)
		    : lie->operation == L ? cow_broker_list(b, &cursor, &got)
		                          : cow_broker_drop(b, &item);
		if (r != lie->expected)
			ck_abort_msg("%s: %d (%s), not %d", lie->name, r, cow_last_error(),
			             lie->expected);
		if (r < 0) {
			ck_assert_ptr_eq(s, (void *)0x5eed);
			ck_assert_uint_eq(cursor, 5);
			ck_assert_uint_eq(got.uid, 7);
			must(cow_last_error()[0] != '\0');
		} else if (lie->operation == G) {
			ck_assert_uint_eq(cow_storage_bytes(s), PAGES);
			cow_storage_unref(s);
		}
		cow_broker_unref(b);
	}
	ck_assert_int_eq(footprint_now().fds, fds);
	must(kill(child, SIGKILL) == 0);
	ck_assert_int_eq(child_status(child), SIGKILL);
}
END_TEST

static int silent; /* listens */
static volatile sig_atomic_t ticks;

/* A client that would wait for ever gets another error. */
static void tick(int sig)
{
	(void)sig;
	if (++ticks == 5000)
		close(silent);
}

/* Connects until no more connections are possible. */
static int fill_queue(int *waiting, int most)
{
	for (int n = 0; n < most;) {
		waiting[n] = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
		if (connect(waiting[n++], (struct sockaddr *)&at,
		            (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(name))) < 0) {
			must(errno == EAGAIN);
			return n;
		}
	}
	must(!"the queue is never full");
	return 0;
}

/* No process accepts the connection; _i 0 and 1: the queue is full. In every second run
 * signals come at shorter intervals than the timeout. */
START_TEST(never_answers)
{
	struct cow_broker_options o = { .size = sizeof(o), .address = name, .timeout_ms = 100 };
	struct itimerval often = { { 0, 1000 }, { 0, 1000 } }, never = { 0 };
	struct sigaction act = { .sa_handler = tick };
	struct cow_broker *b = (void *)0x5eed;
	int waiting[16], n = 0;
	long fds;

	silent = listener(_i < 2 ? 0 : 5);
	if (_i < 2)
		n = fill_queue(waiting, COUNT(waiting));
	fds = footprint_now().fds;
	must(sigaction(SIGALRM, &act, NULL) == 0);
	if (_i & 1)
		must(setitimer(ITIMER_REAL, &often, NULL) == 0);
	fails(-ETIMEDOUT, cow_broker_open(&o, &b));
	must(setitimer(ITIMER_REAL, &never, NULL) == 0);
	ck_assert_ptr_eq(b, (void *)0x5eed);
	ck_assert_int_eq(footprint_now().fds, fds);
	while (n > 0)
		close(waiting[--n]);
	close(silent);
}
END_TEST

static int waits; /* the thread that connects */

static void *opens(void *arg)
{
	struct cow_broker_options o = { .size = sizeof(o), .address = name, .timeout_ms = 10000 };
	struct cow_broker *b;

	(void)arg;
	__atomic_store_n(&waits, (int)syscall(SYS_gettid), __ATOMIC_RELEASE);
	fails(-ECONNREFUSED, cow_broker_open(&o, &b));
	return NULL;
}

static void counts_descriptors(void *ret)
{
	*(long *)ret = footprint_now().fds;
}

/* A listener sees by its clients' sockets which of them are there; a forked child must have
 * none of its parent's. */
START_TEST(forked_while_it_connects)
{
	long *fds = mmap(NULL, 2 * sizeof(*fds), PROT_READ | PROT_WRITE,
	                 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	int waiting[16], n;
	pthread_t thread;

	must(fds != MAP_FAILED);
	silent = listener(0);
	n = fill_queue(waiting, COUNT(waiting));
	in_child(counts_descriptors, &fds[0]);
	must(pthread_create(&thread, NULL, opens, NULL) == 0);
	while (!__atomic_load_n(&waits, __ATOMIC_ACQUIRE) || !thread_sleeps(waits))
		sched_yield();
	in_child(counts_descriptors, &fds[1]);
	ck_assert_int_eq(fds[1], fds[0]);
	close(silent);
	must(pthread_join(thread, NULL) == 0);
	while (n > 0)
		close(waiting[--n]);
	must(munmap(fds, 2 * sizeof(*fds)) == 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("broker, lying");
	TCase *tcase = add_case(suite, "lies");

	tcase_add_loop_test(tcase, answers, 0, COUNT(lies));
	tcase_add_loop_test(tcase, never_answers, 0, 4);
	tcase_add_test(tcase, forked_while_it_connects);
	return run_suite(suite);
}
