/* SPDX-License-Identifier: MIT */
/*
 * Storages in several processes: extents that go to and fro
 *
 * The same extent is freed, comes back, is freed by two processes at once. Then the tests of
 * PyTorch's test_multiprocessing.py, for this API.
 */
#include "share/home.h"
#include "share/layout.h"
#include "tests/support/support.h"

#include <cowshed-share.h>
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

struct pair {
	int fd[2];
	struct cow_group *group;
	struct cow_channel *mine, *theirs;
	struct gate gate, back;
};

static void pair_make(struct pair *t)
{
	*t = (struct pair){ .mine = NULL };
	must(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, t->fd) == 0);
	ok(cow_group_new(&t->group));
	ok(cow_channel_new(t->fd[0], t->group, 0, &t->mine));
	gate_make(&t->gate);
	gate_make(&t->back);
}

static void pair_free(struct pair *t)
{
	cow_channel_free(t->mine);
	cow_group_unref(t->group);
	close(t->fd[0]);
	close(t->fd[1]);
	gate_free(&t->gate);
	gate_free(&t->back);
}

/* The child's end. */
static struct cow_channel *other_end(struct pair *t)
{
	struct cow_channel *c;

	ok(cow_channel_new(t->fd[1], NULL,
	                   COW_CHANNEL_JOIN | COW_CHANNEL_TAKE_ALIASES, &c));
	return c;
}

static void send_one(struct cow_channel *c, struct cow_storage *s,
                     enum cow_share_mode mode)
{
	struct cow_parcel p = {
		.storage = s,
		.length = cow_storage_bytes(s),
		.mode = mode,
	};
	long n = cow_channel_send(c, &p, 1, NULL, 0);

	if (n != 1)
		ck_abort_msg("send gave %ld: %s", n, cow_last_error());
}

static struct cow_storage *receive_one(struct cow_channel *c)
{
	struct cow_parcel p;
	long n = cow_channel_receive(c, &p, 1, NULL, 0, NULL);

	if (n != 1)
		ck_abort_msg("receive gave %ld: %s", n, cow_last_error());
	return p.storage;
}

/* A packed storage, filled. */
static struct cow_storage *packed(struct cow_group *g, size_t bytes,
                                  uint64_t seed)
{
	struct cow_storage *s;

	ok(cow_group_storage_new(g, bytes, COW_SHARE_CLONE, &s));
	fill(mut(s), bytes, seed);
	return s;
}

/* ---- To and fro -------------------------------------------------------------- */

static void sends_back(void *arg)
{
	struct pair *t = arg;
	struct cow_channel *c = other_end(t);
	struct cow_storage *s = receive_one(c);

	gate_open(&t->back);
	gate_wait(&t->gate); /* the maker holds it no more */
	send_one(c, s, COW_SHARE_CLONE);
	gate_wait(&t->gate); /* and has it again */
	cow_storage_unref(s);
	gate_open(&t->back);
	gate_wait(&t->gate);
	cow_channel_free(c);
}

/* The maker of an extent frees it while another process has it, and gets it back. What is
 * made after that must lie elsewhere. */
START_TEST(comes_back_to_its_maker)
{
	struct cow_storage *s, *more[40];
	struct pair t;
	pid_t child;

	pair_make(&t);
	child = child_start(sends_back, &t);
	s = packed(t.group, 64 * KIB, 1);
	send_one(t.mine, s, COW_SHARE_CLONE);
	gate_wait(&t.back);
	cow_storage_unref(s);
	gate_open(&t.gate);
	s = receive_one(t.mine);
	gate_open(&t.gate);
	gate_wait(&t.back);
	for (size_t i = 0; i < COUNT(more) / 2; i++)
		more[i] = packed(t.group, 64 * KIB, 100 + i);
	ck_pattern(data(s), 64 * KIB, 1);
	fill(mut(s), 64 * KIB, 2);
	for (size_t i = 0; i < COUNT(more) / 2; i++)
		ck_pattern(data(more[i]), 64 * KIB, 100 + i);
	ck_pattern(data(s), 64 * KIB, 2);
	/* Its place is handed out once. */
	cow_storage_unref(s);
	for (size_t i = COUNT(more) / 2; i < COUNT(more); i++)
		more[i] = packed(t.group, 64 * KIB, 100 + i);
	for (size_t i = 0; i < COUNT(more); i++)
		ck_pattern(data(more[i]), 64 * KIB, 100 + i);
	for (size_t i = 0; i < COUNT(more); i++)
		cow_storage_unref(more[i]);
	gate_open(&t.gate);
	child_finish(child);
	pair_free(&t);
}
END_TEST

/* When two members leave at once, the one with the higher slot gives the pages back a second
 * time, after the other has gone. Here it is stopped right before that; an unused slot
 * plays its part. */
START_TEST(follower_does_not_hit_what_is_made_next)
{
	struct cow_group *g;
	struct cow_storage *s, *more[20];
	struct cow__slot follower;
	struct cow__pack *p;
	uint32_t page;
	uint64_t *row;

	ok(cow_group_new(&g));
	s = packed(g, 64 * KIB, 1);
	p = cow__home_of(s)->pack;
	page = cow__home_of(s)->at.page;
	ok(cow__slot_take(g, COW__SLOTS, &follower));
	ck_assert_uint_gt(follower.number, g->mine.number);
	cow__hold_set(p, &follower, page);
	row = (uint64_t *)(p->rows +
	                   cow__row_offset(p->pages, follower.number, true));
	row[page / 64] |= 1ull << (page % 64);
	cow_storage_unref(s);
	for (size_t i = 0; i < COUNT(more); i++) {
		ok(cow_group_storage_new(g, 64 * KIB, COW_SHARE_CLONE,
		                         &more[i]));
		ck_assert_uint_ne(cow__home_of(more[i])->at.page, page);
	}
	cow__hold_clear(p, &follower, page);
	row[page / 64] &= ~(1ull << (page % 64));
	cow__slot_close(&follower);
	for (size_t i = 0; i < COUNT(more); i++)
		cow_storage_unref(more[i]);
	/* Its place can be handed out again. */
	s = packed(g, 64 * KIB, 1);
	for (size_t i = 0; i < COUNT(more); i++)
		more[i] = packed(g, 64 * KIB, i);
	for (size_t i = 0; i < COUNT(more); i++)
		ck_assert_uint_le(cow__home_of(more[i])->at.page,
		                  page + 21 * 16);
	for (size_t i = 0; i < COUNT(more); i++)
		cow_storage_unref(more[i]);
	cow_storage_unref(s);
	cow_group_unref(g);
}
END_TEST

/* "A process stays a member while it has ... a storage that is the group's." */
struct crowd {
	struct cow_storage *s;
	struct gate leave, look;
};

static void leaves(void *arg)
{
	struct crowd *t = arg;

	gate_wait(&t->leave);
	cow_storage_unref(t->s);
}

static void looks(void *arg)
{
	struct crowd *t = arg;

	gate_wait(&t->look);
	ck_pattern(data(t->s), MIB, 7);
}

/* Children that find no slot share one row. One of two such children leaves, after the maker:
 * it is not the last holder. */
START_TEST(crowd_does_not_leave)
{
	static struct cow__slot slots[COW__SLOTS];
	struct crowd t;
	struct cow_group *g;
	pid_t one, other;
	unsigned n = 0;

	ok(cow_group_new(&g));
	gate_make(&t.leave);
	gate_make(&t.look);
	t.s = packed(g, MIB, 7);
	cow__mutex_lock(&cow__share_lock);
	while (n < COW__SLOTS && cow__slot_take(g, COW__SLOTS, &slots[n]) == 0)
		n++;
	cow__mutex_unlock(&cow__share_lock);
	ck_assert_uint_eq(n, COW__SLOTS - 1);
	one = child_start(looks, &t);
	other = child_start(leaves, &t);
	ck_assert_uint_ge(stats_now().fallbacks[COW_FALLBACK_SLOTS], 2);
	cow_storage_unref(t.s);
	gate_open(&t.leave);
	child_finish(other);
	gate_open(&t.look);
	child_finish(one);
	while (n > 0)
		cow__slot_close(&slots[--n]);
	cow_group_unref(g);
	gate_free(&t.leave);
	gate_free(&t.look);
}
END_TEST

START_TEST(storage_outlives_the_handle_of_its_group)
{
	struct cow_group *g;
	struct cow_storage *s;

	ok(cow_group_new(&g));
	s = packed(g, 64 * KIB, 1);
	cow_group_unref(g);
	ck_pattern(data(s), 64 * KIB, 1);
	fill(mut(s), 64 * KIB, 2);
	ck_pattern(data(s), 64 * KIB, 2);
	cow_storage_unref(s);
}
END_TEST

/* A clone is the receiver's own, also if it has the same storage as a sealed one. */
START_TEST(clone_is_not_the_sealed_storage)
{
	struct pair t;
	struct cow_channel *c;
	struct cow_storage *s = new_filled(64 * KIB, 0, 1), *a, *b;

	pair_make(&t);
	c = other_end(&t);
	send_one(t.mine, s, COW_SHARE_SEALED);
	send_one(t.mine, s, COW_SHARE_CLONE);
	a = receive_one(c);
	b = receive_one(c);
	ck_assert_ptr_ne(a, b);
	fill(mut(b), 64 * KIB, 2);
	ck_pattern(data(a), 64 * KIB, 1);
	cow_storage_unref(a);
	cow_storage_unref(b);
	cow_storage_unref(s);
	cow_channel_free(c);
	pair_free(&t);
}
END_TEST

/* ---- What test_multiprocessing.py asks ---------------------------------------- */

static void adds_three(void *arg)
{
	unsigned char *p = mut(arg);

	for (size_t i = 0; i < MIB; i++)
		p[i] += 3;
}

/* test_inherit_tensor */
START_TEST(forked_child_writes_the_alias_it_inherited)
{
	struct cow_group *g;
	struct cow_storage *s;

	ok(cow_group_new(&g));
	ok(cow_group_storage_new(g, MIB, COW_SHARE_ALIAS, &s));
	memset(mut(s), 4, MIB);
	in_child(adds_three, s);
	ck_bytes(data(s), MIB, 7);
	cow_storage_unref(s);
	cow_group_unref(g);
}
END_TEST

#define WORKERS 4

static void pool_worker(void *arg)
{
	struct pair *t = arg;
	struct cow_channel *c = other_end(t);
	struct cow_group *g;
	struct cow_storage *s = receive_one(c), *result;

	memset(mut(s), 4, 64 * KIB);
	g = cow_channel_group(c);
	ok(cow_group_storage_new(g, 64 * KIB, COW_SHARE_ALIAS, &result));
	memset(mut(result), 5, 64 * KIB);
	send_one(c, result, COW_SHARE_ALIAS);
	cow_storage_unref(result);
	cow_storage_unref(s);
	cow_group_unref(g);
	cow_channel_free(c);
}

/* test_fd_pool, test_fs_pool; the workers are gone when their results are read. */
START_TEST(pool_of_workers)
{
	struct pair t[WORKERS];
	struct cow_storage *s[WORKERS], *result;
	pid_t pid[WORKERS];

	for (int i = 0; i < WORKERS; i++) {
		pair_make(&t[i]);
		pid[i] = child_start(pool_worker, &t[i]);
		ok(cow_group_storage_new(t[i].group, 64 * KIB, COW_SHARE_ALIAS,
		                         &s[i]));
		send_one(t[i].mine, s[i], COW_SHARE_ALIAS);
	}
	for (int i = 0; i < WORKERS; i++) {
		child_finish(pid[i]);
		ck_bytes(data(s[i]), 64 * KIB, 4);
		result = receive_one(t[i].mine);
		ck_bytes(data(result), 64 * KIB, 5);
		cow_storage_unref(result);
		cow_storage_unref(s[i]);
		pair_free(&t[i]);
	}
}
END_TEST

/* test_fd_preserve_sharing: a storage and views of it, all modes but the clone. */
START_TEST(views_keep_their_storage)
{
	static const enum cow_share_mode modes[] = { COW_SHARE_ALIAS,
		                                     COW_SHARE_SEALED };
	struct pair t;
	struct cow_channel *c;
	struct cow_storage *s = new_filled(64 * KIB, 0, 1);
	struct cow_parcel p[4], q[4];

	pair_make(&t);
	c = other_end(&t);
	for (size_t i = 0; i < COUNT(p); i++)
		p[i] = (struct cow_parcel){
			.storage = s,
			.offset = i * 100,
			.length = 100,
			.mode = modes[_i],
		};
	ck_assert_int_eq(cow_channel_send(t.mine, p, COUNT(p), NULL, 0), 4);
	ck_assert_int_eq(cow_channel_receive(c, q, COUNT(q), NULL, 0, NULL), 4);
	for (size_t i = 0; i < COUNT(q); i++) {
		ck_assert_ptr_eq(q[i].storage, q[0].storage);
		ck_assert_uint_eq(q[i].offset, i * 100);
	}
	ck_pattern(data(q[0].storage), 64 * KIB, 1);
	for (size_t i = 0; i < COUNT(q); i++)
		cow_storage_unref(q[i].storage);
	cow_storage_unref(s);
	cow_channel_free(c);
	pair_free(&t);
}
END_TEST

/* Not in that file: a sender without descriptors loses nothing. */
START_TEST(sender_without_descriptors)
{
	struct pair t;
	struct cow_channel *c;
	struct cow_storage *s, *r;
	struct cow_parcel p;
	struct rlimit was, none;
	int lowest;

	pair_make(&t);
	c = other_end(&t);
	s = packed(t.group, 64 * KIB, 1);
	p = (struct cow_parcel){
		.storage = s,
		.length = 64 * KIB,
		.mode = COW_SHARE_CLONE,
	};
	lowest = dup(0);
	close(lowest);
	getrlimit(RLIMIT_NOFILE, &was);
	none = was;
	none.rlim_cur = (rlim_t)lowest;
	setrlimit(RLIMIT_NOFILE, &none);
	fails(-EMFILE, (int)cow_channel_send(t.mine, &p, 1, NULL, 0));
	setrlimit(RLIMIT_NOFILE, &was);
	ck_assert_int_eq(cow_channel_send(t.mine, &p, 1, NULL, 0), 1);
	r = receive_one(c);
	ck_pattern(data(r), 64 * KIB, 1);
	cow_storage_unref(r);
	fill(mut(s), 64 * KIB, 2);
	ck_pattern(data(s), 64 * KIB, 2);
	cow_storage_unref(s);
	cow_channel_free(c);
	pair_free(&t);
}
END_TEST

/* ---- Parts of a message -------------------------------------------------------- */

#define PARCELS 1500

/* Each part of a message has its label, if the sender asked for that (`_i`). */
START_TEST(labels_of_parts)
{
	static struct cow_parcel p[PARCELS], q[1024];
	char note[] = "sixteen bytes and more", back[64];
	struct cow_storage *s = new_filled(64, 0, 5);
	struct cow_channel *from, *to;
	size_t got = 0, parts = 0, note_bytes;
	int fd[2];

	must(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fd) == 0);
	ok(cow_channel_new(fd[0], NULL, _i ? COW_CHANNEL_LABELS : 0, &from));
	ok(cow_channel_new(fd[1], NULL, 0, &to));
	for (int i = 0; i < PARCELS; i++)
		p[i] = (struct cow_parcel){ s, 0, 64, COW_SHARE_CLONE, 0 };
	for (size_t bytes = 5; bytes <= sizeof(note); bytes += sizeof(note) - 5) {
		ck_assert_int_eq(cow_channel_send(from, p, PARCELS, note, bytes),
		                 PARCELS);
		for (got = parts = 0; got < PARCELS; parts++) {
			long n = cow_channel_receive(to, q, 1024, back,
			                             sizeof(back), &note_bytes);
			size_t want = _i ? cow__min(bytes, COW_LABEL_BYTES) : 0;

			ck_assert_int_gt(n, 0);
			for (long i = 0; i < n; i++)
				cow_storage_unref(q[i].storage);
			got += (size_t)n;
			ck_assert_uint_eq(note_bytes,
			                  got == PARCELS ? bytes : want);
			ck_assert_mem_eq(back, note, note_bytes);
		}
		ck_assert_uint_gt(parts, 1);
	}
	cow_storage_unref(s);
	cow_channel_free(from);
	cow_channel_free(to);
	close(fd[0]);
	close(fd[1]);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("share_more");
	TCase *tcase = add_case(suite, "to and fro");

	tcase_add_test(tcase, comes_back_to_its_maker);
	tcase_add_test(tcase, follower_does_not_hit_what_is_made_next);
	tcase_add_test(tcase, clone_is_not_the_sealed_storage);
	tcase_add_test(tcase, crowd_does_not_leave);
	tcase_add_test(tcase, storage_outlives_the_handle_of_its_group);
	tcase = add_case(suite, "multiprocessing");
	tcase_add_test(tcase, forked_child_writes_the_alias_it_inherited);
	tcase_add_test(tcase, pool_of_workers);
	tcase_add_loop_test(tcase, views_keep_their_storage, 0, 2);
	tcase_add_test(tcase, sender_without_descriptors);
	tcase_add_loop_test(tcase, labels_of_parts, 0, 2);
	return run_suite(suite);
}
