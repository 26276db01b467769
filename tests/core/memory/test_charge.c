/* SPDX-License-Identifier: MIT */
/*
 * Who pays in containers: the memory cgroup that touched a page first
 *
 * The kernel charges a page of a memfd once, to whoever touched it first, for as
 * long as it is there, also when that process and its cgroup have ended. So the
 * sender pays for what it sends and the receiver for its own writes, and a
 * receiver that lives on keeps the sender's cgroup charged: docs/containers.md
 * says what follows. Needs a memory cgroup (version 1 or 2) that can be made.
 */
#include "tests/support/ends.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SENT = 48 << 20, WRITTEN = 8 << 20, SLACK = 6 << 20 };

static const struct kind {
	const char *dir, *used;
} kinds[] = {
	{ "/sys/fs/cgroup/memory", "memory.usage_in_bytes" },
	{ "/sys/fs/cgroup", "memory.current" },
};

struct cgroup {
	char dir[80];
	const char *used;
};

static bool can;
static struct cgroup payer[2]; /* of the sender, of the receiver */
static struct ends ends;
static struct gate to_sender, to_receiver, back;

static int64_t charged(const struct cgroup *g)
{
	char path[128], text[32] = "";
	ssize_t n = -1;
	int fd;

	snprintf(path, sizeof(path), "%s/%s", g->dir, g->used);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd >= 0) {
		n = read(fd, text, sizeof(text) - 1);
		close(fd);
	}
	return n > 0 ? atoll(text) : -1;
}

static bool cgroup_make(struct cgroup *g, int number)
{
	for (size_t i = 0; i < COUNT(kinds); i++) {
		snprintf(g->dir, sizeof(g->dir), "%s/cowshed-charge-%d-%d",
		         kinds[i].dir, (int)getpid(), number);
		g->used = kinds[i].used;
		if (mkdir(g->dir, 0755) != 0)
			continue;
		if (charged(g) >= 0)
			return true;
		rmdir(g->dir);
	}
	return false;
}

static void join(const struct cgroup *g)
{
	char path[128], pid[16];
	int fd, n = snprintf(pid, sizeof(pid), "%d", (int)getpid());

	snprintf(path, sizeof(path), "%s/cgroup.procs", g->dir);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	must(fd >= 0 && write(fd, pid, (size_t)n) == n);
	close(fd);
}

static void sender(void *arg)
{
	enum cow_share_mode mode = *(enum cow_share_mode *)arg;
	struct cow_channel *c;
	struct cow_storage *s;

	join(&payer[0]);
	ok(cow_channel_new(ends.fd[0], NULL, 0, &c));
	ok(cow_option_set("share", "yes")); /* blocks are sent as they lie */
	s = new_filled(SENT, mode == COW_SHARE_CLONE ? COW_STORAGE_TRANSPARENT : 0,
	               1);
	send_one(c, s, mode);
	(void)cow_trim();
	gate_open(&back);
	gate_wait(&to_sender); /* and it ends with what it holds */
	cow_storage_unref(s);
	cow_channel_free(c);
}

static void receiver(void *mode)
{
	struct cow_channel *c;
	struct cow_storage *s;

	(void)mode;
	join(&payer[1]);
	c = child_channel(&ends);
	gate_wait(&to_receiver);
	s = receive_one(c);
	ck_pattern(data(s), SENT, 1);
	gate_open(&back);
	gate_wait(&to_receiver);
	fill(mut_range(s, 0, WRITTEN, COW_WRITE_BY_PAGE), WRITTEN, 2);
	gate_open(&back);
	gate_wait(&to_receiver);
	cow_storage_unref(s);
	(void)cow_trim();
	cow_channel_free(c);
	gate_open(&back);
	gate_wait(&to_receiver);
}

static bool about(int64_t bytes, int64_t expected)
{
	return bytes > expected - SLACK && bytes < expected + SLACK;
}

struct expected {
	int who;
	int64_t bytes, seen;
};

static bool is_charged(void *arg)
{
	struct expected *e = arg;

	e->seen = charged(&payer[e->who]);
	return about(e->seen, e->bytes);
}

/* The kernel counts charges in batches for each processor, and the engine gives freed memory
 * back a second later. */
static void ck_charged(int who, int64_t bytes)
{
	struct expected e = { who, bytes, -1 };

	if (!wait_until(is_charged, &e, 30))
		ck_abort_msg("%s is charged %lld bytes, not about %lld",
		             who ? "the receiver" : "the sender",
		             (long long)e.seen, (long long)bytes);
}

static void cgroup_remove(const struct cgroup *g)
{
	/* The kernel takes who has ended out of it a little later. */
	for (int i = 0; g->dir[0] && rmdir(g->dir) != 0 && errno == EBUSY && i < 200; i++)
		usleep(10000);
}

/* In the process that starts the tests: also for one that failed. */
static void make_cgroups(void)
{
	can = cgroup_make(&payer[0], 0) && cgroup_make(&payer[1], 1);
}

static void remove_cgroups(void)
{
	cgroup_remove(&payer[0]);
	cgroup_remove(&payer[1]);
}

static const enum cow_share_mode sent_as[] = { COW_SHARE_ALIAS, COW_SHARE_CLONE };

START_TEST(first_touch_pays)
{
	enum cow_share_mode mode = sent_as[_i];
	pid_t from, to;

	ends_make(&ends, SOCK_SEQPACKET, false);
	gate_make(&to_sender);
	gate_make(&to_receiver);
	gate_make(&back);

	from = child_start(sender, &mode);
	gate_wait(&back);
	ck_charged(0, SENT);
	to = child_start(receiver, &mode);
	gate_open(&to_receiver);
	gate_wait(&back);
	ck_charged(0, SENT); /* who reads pays nothing */
	ck_charged(1, 0);
	gate_open(&to_receiver);
	gate_wait(&back);
	ck_charged(1, mode == COW_SHARE_ALIAS ? 0 : WRITTEN);
	gate_open(&to_sender);
	child_finish(from);
	ck_charged(0, SENT); /* nobody is in there any more */
	gate_open(&to_receiver);
	gate_wait(&back);
	ck_charged(0, 0);
	gate_open(&to_receiver);
	child_finish(to);

	gate_free(&to_sender);
	gate_free(&to_receiver);
	gate_free(&back);
	ends_free(&ends);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("charge");
	TCase *tcase = add_case(suite, "charge");

	make_cgroups();
	remove_cgroups();
	tcase_add_unchecked_fixture(tcase, make_cgroups, remove_cgroups);
	/* TSan has memory of its own for each byte that is touched. */
	if (UNDER_TSAN)
		puts("skip first_touch_pays a sanitizer's memory is charged, too");
	else if (can)
		tcase_add_loop_test(tcase, first_touch_pays, 0, COUNT(sent_as));
	else
		puts("skip first_touch_pays no memory cgroup can be made here");
	return run_suite(suite);
}
