/* SPDX-License-Identifier: MIT */
/*
 * Brokers: their addresses, how they start, and which users they serve
 */
#include "tests/support/broker.h"
#include "tests/support/namespaces.h"

#include <cowshed-broker.h>
#include <fcntl.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- Starting --------------------------------------------------------------------------- */

struct starter {
	struct host *host;
	struct gate go, put, back;
	const char *mine, *others;
};

static void starts_one(void *arg)
{
	struct starter *t = arg;
	struct cow_broker_item item = host_item(t->mine, COW_SHARE_SEALED);
	struct cow_broker_options o = {
		.size = sizeof(o),
		.address = t->host->address,
		.program = host_program(),
		.flags = COW_BROKER_START,
	};
	struct cow_storage *s = new_filled(PAGE, 0, 1);
	struct cow_broker *b;

	gate_wait(&t->go);
	ok(cow_broker_open(&o, &b));
	ok(cow_broker_put(b, s, &item));
	cow_storage_unref(s);
	gate_open(&t->put);
	gate_wait(&t->back);
	item = host_item(t->others, COW_SHARE_SEALED);
	ok(cow_broker_get(b, &item, &s, NULL));
	cow_storage_unref(s);
	cow_broker_unref(b);
}

START_TEST(two_that_start_one_at_once_get_the_same)
{
	struct starter a = { .mine = "a", .others = "b" };
	struct starter b = { .mine = "b", .others = "a" };
	struct host host;
	pid_t children[2];

	host_place(&host, _i);
	a.host = b.host = &host;
	gate_make(&a.go);
	gate_make(&a.put);
	gate_make(&a.back);
	b.go = a.go;
	b.put = a.put;
	b.back = a.back;
	children[0] = child_start(starts_one, &a);
	children[1] = child_start(starts_one, &b);
	gate_open(&a.go);
	gate_open(&a.go);
	gate_wait(&a.put);
	gate_wait(&a.put);
	gate_open(&a.back);
	gate_open(&a.back);
	child_finish(children[0]);
	child_finish(children[1]);
	host.pid = host_peer(&host);
	ck_assert_int_gt(host.pid, 0);
	/* The process is the broker itself, not the one that started it. */
	ck_assert_int_eq(kill(host.pid, SIGTERM), 0);
	host.pid = 0;
	host_end(&host);
	gate_free(&a.go);
	gate_free(&a.put);
	gate_free(&a.back);
}
END_TEST

START_TEST(sockets_that_are_given)
{
	struct cow_broker_item item = host_item("x", COW_SHARE_SEALED);
	struct cow_storage *s = new_filled(PAGE, 0, 1);
	struct host host;
	struct cow_broker *b;

	host_start(&host, "activated");
	b = host_connect(&host);
	ok(cow_broker_put(b, s, &item));
	ok(cow_broker_drop(b, &item));
	cow_storage_unref(s);
	cow_broker_unref(b);
	host_end(&host);
}
END_TEST

START_TEST(addresses_that_are_none)
{
	char path[200];
	struct cow_broker_options o = { .size = sizeof(o), .address = path };
	struct cow_broker *b = NULL;

	memset(path, 'x', sizeof(path));
	path[0] = '/';
	path[199] = '\0';
	fails(-ENAMETOOLONG, cow_broker_open(&o, &b));
	path[108] = '\0';
	fails(-ENAMETOOLONG, cow_broker_open(&o, &b));
	path[107] = '\0';
	fails(-ENOENT, cow_broker_open(&o, &b));
	o.address = "relative";
	fails(-EINVAL, cow_broker_open(&o, &b));
	o.address = "@no broker is here";
	fails(-ECONNREFUSED, cow_broker_open(&o, &b));
	o.flags = COW_BROKER_START;
	o.program = "/no/such/program";
	fails(-ENOENT, cow_broker_open(&o, &b));
	o.size = 1;
	fails(-E2BIG, cow_broker_open(&o, &b));
	ck_assert_ptr_null(b);
}
END_TEST

/* Where a login session has its sockets. */
static void usual_address(void *arg)
{
	(void)arg;
	struct cow_broker_options o = { .size = sizeof(o), .program = host_program() };
	struct cow_broker_item item = host_item("x", COW_SHARE_SEALED);
	struct cow_storage *s;
	struct cow_broker *b;

	fails(-ENOENT, cow_broker_open(NULL, &b));
	must(mkdir("/run/user", 0755) == 0 && mkdir("/run/user/0", 0700) == 0);
	fails(-ENOENT, cow_broker_open(NULL, &b));
	o.flags = COW_BROKER_START;
	ok(cow_broker_open(&o, &b));
	s = new_filled(PAGE, 0, 1);
	ok(cow_broker_put(b, s, &item));
	cow_storage_unref(s);
	cow_broker_unref(b);
	ok(cow_broker_open(NULL, &b));
	ok(cow_broker_get(b, &item, &s, NULL));
	ck_pattern(data(s), PAGE, 1);
	cow_storage_unref(s);
	cow_broker_unref(b);
}

/* The broker is no process's child, and no other process sees its socket. So it is ended
 * here, also if the test failed. */
START_TEST(the_usual_address)
{
	pid_t child, broker;
	int status;

	must(own_tmpfs("/run", "mode=755") == 0);
	child = child_start(usual_address, NULL);
	status = child_status(child);
	broker = left_listener("/run/user/0/cowshed/broker");
	if (broker > 0)
		must(kill(broker, SIGTERM) == 0);
	ck_assert_int_eq(status, 0);
	ck_assert_int_gt(broker, 0);
}
END_TEST

/* The kernel may have a killed one's socket for a while. */
START_TEST(at_once_after_a_killed_one)
{
	struct host host;

	host_start(&host, _i ? "abstract" : NULL);
	for (int i = 0; i < 20; i++) {
		host_kill(&host);
		host_again(&host, NULL);
	}
	host_end(&host);
}
END_TEST

/* ---- Refused --------------------------------------------------------------------------- */

static void is_refused(void *arg)
{
	const struct host *host = arg;

	must(dup2(open("/dev/null", O_WRONLY | O_CLOEXEC), 2) == 2);
	execl(host_program(), "cowshed", "broker", "--socket", host->address,
	      (char *)NULL);
}

/* At the address of another program. _i: another process's lock was there before. */
START_TEST(who_is_refused_leaves_nothing)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	char lock[128];
	struct host host;
	int fd;

	host_place(&host, false);
	snprintf(lock, sizeof(lock), "%s.lock", host.address);
	if (_i)
		must(close(open(lock, O_CREAT | O_WRONLY | O_CLOEXEC, 0600)) == 0);
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	strcpy(a.sun_path, host.address);
	must(bind(fd, (struct sockaddr *)&a, sizeof(a)) == 0);
	must(listen(fd, 1) == 0);
	for (int i = 0; i < 2; i++) {
		int status = child_status(child_start(is_refused, &host));

		ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 2);
		ck_assert_int_eq(access(lock, F_OK) == 0, _i);
	}
	ck_assert_int_eq(access(host.address, F_OK), 0);
	close(fd);
	host_end(&host);
}
END_TEST

/* ---- Permissions: as root, who can be another ------------------------------------------ */

static void is_another(void *arg)
{
	struct host *host = arg;
	struct cow_broker_options o = { .size = sizeof(o),
		                        .address = host->address };
	struct cow_broker_item item = host_item("mine", COW_SHARE_SEALED);
	struct cow_storage *s;
	struct cow_broker *b;
	uint64_t cursor = 0;
	int seen = 0;

	ck_assert_int_eq(setuid(65534), 0);
	if (host->only_ours) {
		fails(-EPERM, cow_broker_open(&o, &b));
		return;
	}
	ok(cow_broker_open(&o, &b));
	fails(-EACCES, cow_broker_get(b, &item, &s, NULL));
	item = host_item("read", COW_SHARE_SEALED);
	ok(cow_broker_get(b, &item, &s, NULL));
	cow_storage_unref(s);
	fails(-EACCES, cow_broker_drop(b, &item));
	item = host_item("alias read", COW_SHARE_ALIAS);
	fails(-EACCES, cow_broker_get(b, &item, &s, NULL));
	item = host_item("alias", COW_SHARE_ALIAS);
	ok(cow_broker_get(b, &item, &s, NULL));
	cow_storage_unref(s);
	while (cow_broker_list(b, &cursor, &item) == 1)
		seen++;
	ck_assert_int_eq(seen, 2);
	cow_broker_unref(b);
}

START_TEST(permissions)
{
	static const struct {
		const char *name;
		enum cow_share_mode mode;
		uint32_t permissions;
	} all[] = {
		{ "mine", COW_SHARE_SEALED, 0600 },
		{ "read", COW_SHARE_SEALED, 0644 },
		{ "alias read", COW_SHARE_ALIAS, 0644 },
		{ "alias", COW_SHARE_ALIAS, 0666 },
	};
	struct host host;
	struct cow_broker *b;

	host_start(&host, _i ? "abstract" : "others");
	host.only_ours = _i;
	b = host_connect(&host);
	for (size_t i = 0; i < COUNT(all); i++) {
		struct cow_storage *s = new_filled(PAGE, 0, 1);
		struct cow_broker_item item = host_item(all[i].name, all[i].mode);

		item.permissions = all[i].permissions;
		ok(cow_broker_put(b, s, &item));
		cow_storage_unref(s);
	}
	in_child(is_another, &host);
	cow_broker_unref(b);
	host_end(&host);
}
END_TEST

/* ---- The listener ------------------------------------------------------------------ */

struct impostor {
	struct host *host;
	struct gate listens;
	uid_t uid;
};

/* Says yes to everything, and ends with an error if it was told anything. */
static void is_impostor(void *arg)
{
	struct impostor *t = arg;
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	size_t n = strlen(t->host->address);
	struct cow_broker_message m;
	ssize_t got;
	int fd, socket_of;

	ck_assert_int_eq(setuid(t->uid), 0);
	memcpy(a.sun_path + 1, t->host->address + 1, n - 1);
	fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	/* The kernel has the killed one's for a while. */
	while (bind(fd, (struct sockaddr *)&a,
	            (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n)) != 0)
		must(errno == EADDRINUSE);
	must(listen(fd, 5) == 0);
	gate_open(&t->listens);
	for (int i = 0; i < 3; i++) {
		socket_of = accept(fd, NULL, NULL);
		must(socket_of >= 0);
		got = recv(socket_of, &m, sizeof(m), 0);
		if (i < 2) {
			ck_assert_int_eq(got, 0);
		} else {
			ck_assert_int_eq(got, (ssize_t)sizeof(m));
			must(send(socket_of, &m, sizeof(m), 0) > 0);
		}
		close(socket_of);
	}
}

/* Listens at the name of a broker that has ended, while its clients call
 * cow_broker_refresh(). */
START_TEST(impostor)
{
	struct impostor t = { .uid = 65534 };
	struct cow_broker_item item = host_item("secret", COW_SHARE_SEALED);
	struct cow_broker_options o = { .size = sizeof(o) };
	struct cow_storage *s = new_filled(PAGE, 0, 1);
	struct cow_broker *b, *other;
	struct host host;
	pid_t child;

	host_start(&host, "abstract");
	b = host_connect(&host);
	ok(cow_broker_put(b, s, &item));
	host_kill(&host);
	t.host = &host;
	gate_make(&t.listens);
	child = child_start(is_impostor, &t);
	gate_wait(&t.listens);
	fails(-EPERM, cow_broker_refresh(b));
	o.address = host.address;
	fails(-EPERM, cow_broker_open(&o, &other));
	o.flags = COW_BROKER_ANY_USER;
	ok(cow_broker_open(&o, &other));
	child_finish(child);
	gate_free(&t.listens);
	cow_broker_unref(other);
	cow_broker_unref(b);
	cow_storage_unref(s);
	host_end(&host);
}
END_TEST

/* In a user namespace where only our own user is mapped, to the number of unmapped ones. */
static void is_nobody_there(void *arg)
{
	struct cow_broker_options o = { .size = sizeof(o), .address = arg };
	struct cow_broker *b;

	ck_assert_int_eq(own_users(65534), 0);
	ck_assert_uint_eq(geteuid(), 65534);
	/* Three calls, as the impostor expects them. */
	fails(-EPERM, cow_broker_open(&o, &b));
	fails(-EPERM, cow_broker_open(&o, &b));
	o.flags = COW_BROKER_ANY_USER;
	ok(cow_broker_open(&o, &b));
	cow_broker_unref(b);
}

START_TEST(nobody_is_not_everybody)
{
	struct impostor t = { .uid = 65533 };
	struct host host;
	pid_t child;

	host_start(&host, "abstract");
	host_kill(&host);
	t.host = &host;
	gate_make(&t.listens);
	child = child_start(is_impostor, &t);
	gate_wait(&t.listens);
	in_child(is_nobody_there, host.address);
	child_finish(child);
	gate_free(&t.listens);
	host_end(&host);
}
END_TEST

/* A broker of its own user, which is nobody. */
static void has_its_own(void *arg)
{
	struct host host;

	(void)arg;
	ck_assert_int_eq(setuid(65534), 0);
	host_start(&host, "abstract");
	cow_broker_unref(host_connect(&host));
	host_end(&host);
}

START_TEST(nobody_has_its_own)
{
	in_child(has_its_own, NULL);
}
END_TEST

/* May they run what was built, as this? Folders above may be root's alone. */
static bool others_reach_it(void)
{
	char path[4096] = "";
	pid_t child;
	int status;

	must(readlink("/proc/self/exe", path, sizeof(path) - 1) > 0);
	child = fork();
	if (child == 0)
		_exit(setuid(65534) < 0 || access(path, X_OK) < 0);
	return child > 0 && waitpid(child, &status, 0) == child && status == 0;
}

int main(void)
{
	Suite *suite = suite_create("broker, started");
	TCase *tcase = add_case(suite, "start");

	tcase_add_loop_test(tcase, two_that_start_one_at_once_get_the_same, 0, 2);
	tcase_add_test(tcase, sockets_that_are_given);
	tcase_add_test(tcase, addresses_that_are_none);
	tcase_add_loop_test(tcase, at_once_after_a_killed_one, 0, 2);
	tcase_add_loop_test(tcase, who_is_refused_leaves_nothing, 0, 2);
	if (may_own_tmpfs("/run"))
		tcase_add_test(tcase, the_usual_address);
	else
		puts("skip the_usual_address no mount namespace for this user");
	if (geteuid() == 0) {
		tcase_add_loop_test(tcase, permissions, 0, 2);
		tcase_add_test(tcase, impostor);
		if (others_reach_it())
			tcase_add_test(tcase, nobody_has_its_own);
		else
			puts("skip nobody_has_its_own others may not enter the folder of the build");
		if (may_own_users())
			tcase_add_test(tcase, nobody_is_not_everybody);
		else
			puts("skip nobody_is_not_everybody no namespace of users here");
	} else {
		puts("skip permissions only root can be another user");
		puts("skip impostor only root can be another user");
		puts("skip nobody_has_its_own only root can be another user");
		puts("skip nobody_is_not_everybody only root can be another user");
	}
	return run_suite(suite);
}
