/* SPDX-License-Identifier: MIT */
/*
 * fork where freezing, or knowing who is alive, is hard to have
 *
 * The program has closed our descriptors, or put others in their place; it may
 * have I/O in flight; it has no descriptor left for the engine to use. Then
 * the child's memory must be copied, or more kept than needed, or fork fails:
 * anything but a byte of the one process in the other.
 */
#include "tests/support/herd.h"
#include "tests/support/support.h"

#include <cowshed-share.h>
#include <dirent.h>
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <linux/io_uring.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

/* ---- The hardships ------------------------------------------------------- */

static void nothing(void)
{
}

/* With `again`, every number gets a new meaning at once. */
static void take_descriptors(bool again)
{
	DIR *dir = opendir("/proc/self/fd");
	int null = open("/dev/null", O_RDWR | O_CLOEXEC), fd;
	char path[300], name[256];
	struct dirent *entry;
	struct rlimit own = descriptors_raise();
	ssize_t n;

	must(dir != NULL && null >= 0);
	while ((entry = readdir(dir)) != NULL) {
		snprintf(path, sizeof(path), "/proc/self/fd/%s", entry->d_name);
		n = readlink(path, name, sizeof(name) - 1);
		name[n < 0 ? 0 : n] = '\0';
		fd = atoi(entry->d_name);
		if (strncmp(name, "/memfd:cowshed", 14) != 0)
			continue;
		if (again)
			must(dup2(null, fd) == fd);
		else
			close(fd);
	}
	must(setrlimit(RLIMIT_NOFILE, &own) == 0);
	closedir(dir);
	close(null);
}

static void descriptors_closed(void)
{
	take_descriptors(false);
}

static void descriptors_reused(void)
{
	take_descriptors(true);
}

static void no_descriptor_left(void)
{
	struct rlimit none = { 3, 3 };

	must(setrlimit(RLIMIT_NOFILE, &none) == 0);
}

static void no_file_may_grow(void)
{
	struct rlimit none = { 0, 0 };

	must(setrlimit(RLIMIT_FSIZE, &none) == 0);
}

/* The mere descriptor says that memory may be under I/O. */
static bool has_ring(void)
{
	struct io_uring_params params;

	memset(&params, 0, sizeof(params));
	return syscall(SYS_io_uring_setup, 4, &params) >= 0;
}

static void a_ring(void)
{
	must(has_ring());
}

/* It goes on behind a call for direct I/O alone, and so for its descriptors. */
static bool has_aio(void)
{
	static aio_context_t context;

	return syscall(SYS_io_setup, 4, &context) == 0 &&
	       open("/proc/self/exe", O_RDONLY | O_DIRECT | O_CLOEXEC) >= 0;
}

static void an_aio_context(void)
{
	must(has_aio());
}

static const struct hardship {
	const char *name;
	void (*befalls)(void);
	bool before; /* there was any memory, not after */
	bool pins;   /* it is copied for children, and that is counted: there is I/O,
	                * or nobody can look */
} hardships[] = {
	{ "none", nothing, false, false },
	{ "descriptors closed", descriptors_closed, false, false },
	{ "descriptors reused", descriptors_reused, false, false },
	{ "no descriptor left", no_descriptor_left, false, false }, /* all is frozen */
	{ "no descriptor from the start", no_descriptor_left, true, true },
	{ "no file may grow", no_file_may_grow, false, false },
	{ "no file may grow from the start", no_file_may_grow, true, false },
	{ "a ring", a_ring, false, true },
	{ "a ring from the start", a_ring, true, true },
	{ "asynchronous I/O", an_aio_context, false, true },
};
enum { HARDSHIPS = COUNT(hardships) };

/* ---- The story ----------------------------------------------------------- */

static struct herd herd;
static struct gate to_child, to_parent;

static void youngest(void *arg)
{
	(void)arg;
	herd_check(&herd);
	herd_rewrite(&herd, 9000, 2);
	herd_check(&herd);
}

static void lives_on(void *arg)
{
	struct cow_storage *own;

	(void)arg;
	herd_check(&herd);
	herd_rewrite(&herd, 2000, 2);
	gate_open(&to_parent);
	gate_wait(&to_child);
	herd_check(&herd);
	in_child(youngest, NULL);
	herd_check(&herd);
	own = new_filled(3 * MIB, 0, 5);
	herd_free_half(&herd, 1);
	cow_trim();
	herd_check(&herd);
	ck_pattern(data(own), 3 * MIB, 5);
	cow_storage_unref(own);
	herd_free(&herd);
}

static void tell(void *arg)
{
	const struct hardship *h = arg;
	pid_t child;
	int n;

	gate_make(&to_child);
	gate_make(&to_parent);
	if (h->before)
		h->befalls();
	herd_make(&herd, 1000);
	if (!h->before) {
		in_child(youngest, NULL);
		h->befalls();
	}
	for (n = 0; n < 3; n++) {
		child = child_start(lives_on, NULL);
		if (n % 2)
			herd_rewrite(&herd, 3000, 3);
		gate_wait(&to_parent);
		herd_check(&herd);
		herd_rewrite(&herd, 4000 + (uint64_t)n, 2);
		cow_trim();
		herd_check(&herd);
		gate_open(&to_child);
		child_finish(child);
		herd_check(&herd);
		herd_rewrite(&herd, 5000 + (uint64_t)n, 1);
		cow_trim();
		herd_check(&herd);
	}
	must(!h->pins == (stats_now().fallbacks[COW_FALLBACK_PINNED] == 0));
	herd_free(&herd);
	herd_make(&herd, 6000);
	in_child(youngest, NULL);
	herd_check(&herd);
	herd_free(&herd);
}

/* In a process of its own, since hardships do not go away. */
START_TEST(bytes_stay_apart)
{
	const struct hardship *h = &hardships[_i];

	ck_assert_ptr_nonnull(h->name);
	in_child(tell, (void *)(uintptr_t)h);
}
END_TEST

/* ---- Groups ---------------------------------------------------------------- */

enum { SHARED = 300 * 1000 };

static struct cow_group *group;
static struct cow_storage *written, *kept, *view;
static int to_member[2], to_heir[2];

static struct cow_storage *member_storage(uint64_t seed)
{
	struct cow_storage *s;

	ok(cow_group_storage_new(group, SHARED, COW_SHARE_CLONE, &s));
	fill(mut(s), SHARED, seed);
	return s;
}

static void pass(struct cow_channel *c, struct cow_storage *s)
{
	struct cow_parcel p = { .storage = s, .length = SHARED, .mode = COW_SHARE_CLONE };

	ck_assert_int_eq(cow_channel_send(c, &p, 1, NULL, 0), 1);
	ok(cow_channel_flush(c));
}

static struct cow_storage *take(struct cow_channel *c)
{
	struct cow_parcel p;

	ck_assert_int_eq(cow_channel_receive(c, &p, 1, NULL, 0, NULL), 1);
	return p.storage;
}

static void heir(void *arg)
{
	bool once_more = !arg;

	ck_pattern(data(written), SHARED, 1);
	ck_pattern(data(kept), SHARED, 2);
	ck_pattern((char *)data(view) + PAGE, SHARED - PAGE, 3);
	fill(mut(written), SHARED, 11);
	fill(mut(kept), SHARED, 12);
	ck_pattern(data(written), SHARED, 11);
	if (!once_more)
		return;
	fill(mut(written), SHARED, 1);
	fill(mut(kept), SHARED, 2);
	in_child(heir, group);
	ck_pattern(data(written), SHARED, 1);
	cow_storage_unref(kept);
	cow_storage_unref(view);
	cow_storage_unref(written);
}

/* Has a clone of each, and passes them on when it is told to. */
static void member(void *arg)
{
	struct cow_storage *a, *b;
	struct cow_channel *c, *on;
	char word;

	(void)arg;
	ok(cow_channel_new(to_member[1], group, 0, &c));
	ok(cow_channel_new(to_heir[0], group, 0, &on));
	a = take(c);
	b = take(c);
	must(write(to_member[1], "!", 1) == 1);
	must(read(to_member[1], &word, 1) == 1);
	pass(on, a);
	pass(on, b);
	must(read(to_heir[0], &word, 1) == 1);
	ck_pattern(data(a), SHARED, 21);
	ck_pattern(data(b), SHARED, 22);
}

static void still_has(void *a)
{
	ck_pattern(data(a), SHARED, 31);
	ck_pattern(data(written), SHARED, 33);
}

/* What comes from the file, and what it had itself: of one extent, and apart. */
static void receives(void *arg)
{
	struct cow_storage *a, *b;
	struct cow_channel *c;

	(void)arg;
	ok(cow_channel_new(to_heir[1], group, 0, &c));
	must(write(to_member[0], "!", 1) == 1);
	a = take(c);
	b = take(c);
	ck_pattern(data(a), SHARED, 21);
	ck_pattern(data(b), SHARED, 22);
	ck_pattern(data(written), SHARED, 21);
	fill(mut(a), SHARED, 31);
	fill(mut(b), SHARED, 32);
	fill(mut(written), SHARED, 33);
	ck_pattern(data(a), SHARED, 31);
	in_child(still_has, a);
	ck_pattern(data(b), SHARED, 32);
	ck_pattern(data(written), SHARED, 33);
	cow_storage_unref(written);
	ck_pattern(data(a), SHARED, 31);
	must(write(to_heir[1], "!", 1) == 1);
	cow_storage_unref(a);
	cow_storage_unref(b);
	cow_channel_free(c);
}

static void a_family(void *arg)
{
	struct cow_channel *c;
	pid_t other;
	char word;

	(void)arg;
	must(socketpair(AF_UNIX, SOCK_STREAM, 0, to_member) == 0);
	must(socketpair(AF_UNIX, SOCK_STREAM, 0, to_heir) == 0);
	ok(cow_group_new(&group));
	other = child_start(member, NULL);
	written = member_storage(21);
	kept = member_storage(22);
	ok(cow_channel_new(to_member[0], group, 0, &c));
	pass(c, written);
	pass(c, kept);
	must(read(to_member[0], &word, 1) == 1);
	cow_storage_unref(kept);
	descriptors_closed();
	in_child(receives, NULL);
	child_finish(other);
	ck_pattern(data(written), SHARED, 21);
	cow_storage_unref(written);
	cow_channel_free(c);
	cow_group_unref(group);
}

/* A child has copies, and receives the same bytes from somebody else. */
START_TEST(groups_go_on)
{
	in_child(a_family, NULL);
}
END_TEST

static void a_daemon(void *arg)
{
	struct cow_storage *source;

	ok(cow_group_new(&group));
	written = member_storage(1);
	kept = member_storage(2);
	source = member_storage(0);
	fill((char *)mut(source) + PAGE, SHARED - PAGE, 3);
	view = lazy(source);
	mut_range(view, 0, 1, COW_WRITE_BY_PAGE);
	cow_storage_unref(source);
	((void (*)(void))(uintptr_t)arg)();
	for (int n = 0; n < 3; n++) {
		in_child(heir, NULL);
		ck_pattern(data(written), SHARED, 1);
		ck_pattern(data(kept), SHARED, 2);
		fill(mut(written), SHARED, 1);
	}
	cow_storage_unref(written);
	cow_storage_unref(kept);
	cow_storage_unref(view);
	cow_group_unref(group);
}

/* A child has what its parent has of its groups, though no file can be mapped. */
START_TEST(groups_stay)
{
	in_child(a_daemon, (void *)(uintptr_t)(_i ? descriptors_reused : descriptors_closed));
}
END_TEST

/* In a child, since it stays. */
static void tries_to_pin(void *arg)
{
	const struct hardship *h = arg;

	_exit((h->befalls == a_ring && !has_ring()) ||
	      (h->befalls == an_aio_context && !has_aio()));
}

static bool may_befall(const struct hardship *h)
{
	return !h->pins || child_status(child_start(tries_to_pin, (void *)(uintptr_t)h)) == 0;
}

int main(void)
{
	Suite *suite = suite_create("fork_hard");
	TCase *tcase = add_bare_case(suite, "fork_hard");

	for (int i = 0; i < HARDSHIPS; i++)
		if (may_befall(&hardships[i]))
			tcase_add_loop_test(tcase, bytes_stay_apart, i, i + 1);
		else
			printf("skip bytes_stay_apart:%d the kernel refuses %s\n", i,
			       hardships[i].name);
	tcase_add_loop_test(tcase, groups_stay, 0, 2);
	tcase_add_test(tcase, groups_go_on);
	return run_suite(suite);
}
