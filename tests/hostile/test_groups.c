/* SPDX-License-Identifier: MIT */
/*
 * A hostile peer: groups
 *
 * Forged doors and packs, heads that change after a check, messages that are sent twice, members
 * that write random bytes, and more members than have room. A member can spoil what the group
 * shares. It can't make another read or write outside of that.
 */
#include "tests/support/hostile.h"

#include "share/channel.h"
#include "share/layout.h"
enum { BYTES = 64 * 1024 };

/* A channel pair whose messages pass through the test's hands. */
struct tap {
	struct cow_group *group;
	struct cow_channel *sender;
	int from, into; /* the sender's socket, the tap's end of it */
	struct victim v;
};

static void tap_make(struct tap *t, bool member)
{
	int fd[2];

	ok(cow_group_new(&t->group));
	must(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fd) == 0);
	t->from = fd[0];
	t->into = fd[1];
	ok(cow_channel_new(t->from, t->group, 0, &t->sender));
	victim_make_with(&t->v, SOCK_SEQPACKET, member ? t->group : NULL,
	                 COW_CHANNEL_JOIN);
}

static void tap_free(struct tap *t)
{
	victim_free(&t->v);
	cow_channel_free(t->sender);
	close(t->from);
	close(t->into);
	cow_group_unref(t->group);
}

struct caught {
	union {
		unsigned char bytes[COW__WIRE_BYTES];
		struct cow__wire_head head;
	};
	size_t count;
	int fds[RAW_FDS];
	unsigned nfds;
};

static struct cow__wire_item *items(struct caught *m)
{
	return (struct cow__wire_item *)(m->bytes + sizeof(m->head));
}

/* What the sender has sent. */
static void catch(struct tap *t, struct caught *m)
{
	long r = cow__socket_look(t->into, m->bytes, sizeof(m->bytes), m->fds,
	                          RAW_FDS, &m->nfds);

	must(r > 0);
	m->count = (size_t)r;
	must(recv(t->into, &(char){ 0 }, 1, 0) == 1);
}

static void play(struct tap *t, const struct caught *m)
{
	ck_assert_int_eq(put(t->v.theirs, m->bytes, m->count, m->fds, m->nfds,
	                     0), (long)m->count);
}

static void forget(struct caught *m)
{
	while (m->nfds > 0)
		close(m->fds[--m->nfds]);
}

static void send_a(struct tap *t, enum cow_share_mode mode, struct caught *m)
{
	struct cow_storage *s;
	struct cow_parcel p;

	ok(cow_group_storage_new(t->group, BYTES, mode, &s));
	fill(mut(s), BYTES, 1);
	p = (struct cow_parcel){ .storage = s, .length = BYTES, .mode = mode };
	ck_assert_int_eq(cow_channel_send(t->sender, &p, 1, NULL, 0), 1);
	catch(t, m);
	cow_storage_unref(s);
}

/* ---- Replay --------------------------------------------------------------------- */

START_TEST(message_played_again)
{
	static struct caught m;
	struct cow_parcel p;
	struct tap t;

	tap_make(&t, true);
	send_a(&t, _i ? COW_SHARE_ALIAS : COW_SHARE_CLONE, &m);
	play(&t, &m);
	ck_assert_int_eq(take(&t.v, &p, 1), 1);
	ck_pattern(data(p.storage), BYTES, 1);
	t.v.fds = footprint_now().fds;
	play(&t, &m);
	refused(&t.v, -ESTALE);
	cow_storage_unref(p.storage);
	play(&t, &m); /* and when the storages are gone */
	refused(&t.v, -ESTALE);
	forget(&m);
	tap_free(&t);
}
END_TEST

/* ---- Every number of a message ----------------------------------------------------- */

static const uint32_t numbers[] = { 0, 1, 2, 63, 255, 256, 0xffff, 0x7fffffff,
	                            0x80000000, 0xffffffff, 1u << 22,
	                            (1u << 22) - 1, 1u << 14 };

START_TEST(every_number_of_a_packed_item)
{
	static struct caught m, bad;

	for (size_t i = 0; i < COUNT(numbers); i++) {
		struct cow_parcel p;
		struct tap t;
		long r;

		tap_make(&t, true);
		send_a(&t, COW_SHARE_CLONE, &m);
		bad = m;
		switch (_i) {
		case 0: items(&bad)->page = numbers[i]; break;
		case 1: items(&bad)->pages = numbers[i]; break;
		case 2: items(&bad)->generation = numbers[i]; break;
		case 3: bad.head.slot = numbers[i]; break;
		case 4: bad.head.epoch = numbers[i]; break;
		case 5: items(&bad)->index = (uint16_t)numbers[i]; break;
		default: items(&bad)->bytes = (uint64_t)numbers[i] << 12;
			items(&bad)->offset = items(&bad)->length = 0; break;
		}
		play(&t, &bad);
		t.v.fds = footprint_now().fds;
		r = take(&t.v, &p, 1);
		must(r == 1 || r == -EBADMSG || r == -ESTALE || r == -ENOMEM);
		if (r == 1) {
			/* The same number, or one that says no more. */
			must(cow_storage_bytes(p.storage) <=
			     ((uint64_t)16 << 30));
			must(data(p.storage)[0] <= 255);
			cow_storage_unref(p.storage);
		}
		calm(&t.v);
		forget(&m);
		tap_free(&t);
	}
}
END_TEST

/* ---- Doors ---------------------------------------------------------------------------- */

/* Not a group's, in ways that can be seen. */
START_TEST(doors_that_are_none)
{
	struct cow_group *g = (void *)8;
	unsigned char page[PAGE];
	struct cow_group *real;
	int door, fd;

	ok(cow_group_new(&real));
	ok(cow_group_fd(real, &door));
	must(pread(door, page, PAGE, 0) == (ssize_t)PAGE);
	fd = memfd_of(PAGE * (_i == 0 ? 2 : 1), 0);
	page[16] ^= _i != 4; /* another id is no forgery of this one ... */
	switch (_i) {
	case 1: page[0] ^= 1; break;            /* magic */
	case 2: page[8] ^= 0xff; break;         /* version */
	case 3: page[12] ^= 1; break;           /* size */
	}
	must(pwrite(fd, page, PAGE, 0) == (ssize_t)PAGE);
	must(fcntl(fd, F_ADD_SEALS, _i == 5 ? F_SEAL_SHRINK : SEALS_SIZE) == 0);
	/* ... and the same id in another file is: case 4. */
	fails(-EBADMSG, cow_group_join(fd, &g));
	ck_assert_ptr_eq(g, (void *)8);
	fails(-EBADMSG, cow_group_join(0, &g));
	close(fd);
	close(door);
	cow_group_unref(real);
}
END_TEST

/* A door in a message: of no group, of another group, to a channel without JOIN. */
START_TEST(doors_in_messages)
{
	static struct caught m, bad;
	struct cow_group *other;
	struct tap t;
	int door, fd = memfd_of(PAGE, SEALS_SIZE);

	tap_make(&t, false);
	send_a(&t, COW_SHARE_CLONE, &m);
	bad = m;
	bad.fds[0] = fd; /* no group's */
	play(&t, &bad);
	t.v.fds = footprint_now().fds;
	refused(&t.v, -EBADMSG);
	ok(cow_group_new(&other));
	ok(cow_group_fd(other, &door));
	bad.fds[0] = door; /* not of the group that the head says */
	play(&t, &bad);
	t.v.fds = footprint_now().fds;
	refused(&t.v, -EBADMSG);
	ck_assert_ptr_null(cow_channel_group(t.v.channel));
	forget(&m);
	close(fd);
	close(door);
	cow_group_unref(other);
	tap_free(&t);
}
END_TEST

START_TEST(group_that_was_not_asked_for)
{
	static struct caught m;
	struct cow_channel *c;
	struct tap t;

	tap_make(&t, false);
	/* No JOIN. */
	ok(cow_channel_new(t.v.mine, NULL, 0, &c));
	cow_channel_free(t.v.channel);
	t.v.channel = c;
	send_a(&t, COW_SHARE_CLONE, &m);
	play(&t, &m);
	t.v.fds = footprint_now().fds;
	refused(&t.v, -EACCES);
	ck_assert_ptr_null(cow_channel_group(c));
	forget(&m);
	tap_free(&t);
}
END_TEST

START_TEST(packs_of_another_group)
{
	static struct caught m, n, bad;
	struct tap t, u;

	tap_make(&t, true);
	tap_make(&u, true);
	send_a(&t, COW_SHARE_CLONE, &m);
	send_a(&u, COW_SHARE_CLONE, &n);
	bad = m;
	bad.fds[2] = n.fds[2];
	play(&t, &bad);
	t.v.fds = footprint_now().fds;
	refused(&t.v, -EBADMSG);
	forget(&m);
	forget(&n);
	tap_free(&u);
	tap_free(&t);
}
END_TEST

/* ---- Packs ------------------------------------------------------------------------------ */

static int forged_pack(const struct cow__pack_head *head, int seals)
{
	int fd = memfd_create("pack", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	uint32_t pages = head->pages ? head->pages : 1;

	must(ftruncate(fd, (off_t)(cow__data_offset(pages % (1u << 23)) +
	                           (uint64_t)(pages % (1u << 23)) * PAGE)) == 0);
	must(pwrite(fd, head, sizeof(*head), 0) == (ssize_t)sizeof(*head));
	must(fcntl(fd, F_ADD_SEALS, seals) == 0);
	return fd;
}

START_TEST(pack_heads_of_absurd_values)
{
	static struct caught m, bad;
	struct cow__pack_head head;
	struct tap t;

	tap_make(&t, true);
	send_a(&t, COW_SHARE_CLONE, &m);
	must(pread(m.fds[2], &head, sizeof(head), 0) == (ssize_t)sizeof(head));
	for (int i = 0; i < 14; i++) {
		struct cow__pack_head h = head;
		int seals = SEALS_SIZE, fd;

		h.id.a++; /* one that this process does not know */
		switch (i) {
		case 0: h.magic++; break;
		case 1: h.version++; break;
		case 2: h.page_bytes *= 2; break;
		case 3: h.pages = 0; break;
		case 4: h.pages = 1; break;
		case 5: h.pages -= 1; break;
		case 6: h.pages *= 2; break;
		case 7: h.pages = 0xffffffff; break;
		case 8: h.pages = 0x80000000; break;
		case 9: h.alias = 2; break;
		case 10: h.group.b++; break;
		case 11: h.id = head.id; break;
		case 12: seals = F_SEAL_GROW; break;
		default: seals = SEALS_SIZE | F_SEAL_WRITE; break;
		}
		fd = forged_pack(&h, seals);
		bad = m;
		bad.fds[2] = fd;
		play(&t, &bad);
		close(fd);
		t.v.fds = footprint_now().fds;
		/* The id of one that is mapped, in another file, too. */
		refused(&t.v, -EBADMSG);
	}
	forget(&m);
	tap_free(&t);
}
END_TEST

/* A checked head is not read again, so a change of it has no effect. */
START_TEST(pack_whose_head_changes_after_it_was_seen)
{
	static struct caught m, n;
	struct cow__pack_head *head;
	struct cow_parcel p, q;
	struct tap t;

	tap_make(&t, true);
	send_a(&t, COW_SHARE_CLONE, &m);
	play(&t, &m);
	ck_assert_int_eq(take(&t.v, &p, 1), 1);
	head = mmap(NULL, cow__head_bytes(), PROT_READ | PROT_WRITE, MAP_SHARED,
	            m.fds[2], 0);
	must(head != MAP_FAILED);
	head->magic = 0;
	head->version = head->page_bytes = 77;
	head->pages = 0xffffffff;
	head->alias = 1;
	head->id.a = head->group.b = 5;
	ck_pattern(data(p.storage), BYTES, 1);
	fill(mut(p.storage), BYTES, 2);
	send_a(&t, COW_SHARE_CLONE, &n);
	play(&t, &n);
	ck_assert_int_eq(take(&t.v, &q, 1), 1);
	ck_pattern(data(q.storage), BYTES, 1);
	ck_pattern(data(p.storage), BYTES, 2);
	cow_storage_unref(p.storage);
	cow_storage_unref(q.storage);
	munmap(head, cow__head_bytes());
	forget(&m);
	forget(&n);
	tap_free(&t);
}
END_TEST

/* A member fills rows, epochs and generations with random bytes. Then bytes may be wrong and
 * pages may be kept for ever. But no member reads or writes outside of the pack, or waits. */
START_TEST(member_that_writes_rubbish)
{
	static struct caught m;
	struct prng prng = prng_make((uint64_t)_i + 1);
	struct tap t;
	size_t bytes;
	uint64_t *at;

	tap_make(&t, true);
	send_a(&t, COW_SHARE_CLONE, &m);
	bytes = cow__head_bytes() + cow__generations_bytes(1 << 22) + 64 * PAGE;
	at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, m.fds[2], 0);
	must(at != MAP_FAILED);
	for (int round = 0; round < 20; round++) {
		struct cow_storage *s = NULL, *clone;
		struct cow_parcel p;

		for (size_t i = 0; i < 2000; i++)
			at[prng_below(&prng, bytes / 8)] =
			        i & 1 ? UINT64_MAX : prng_next(&prng);
		ok(cow_group_storage_new(t.group, BYTES, COW_SHARE_CLONE, &s));
		fill(mut(s), BYTES, 3);
		ck_pattern(data(s), BYTES, 3);
		clone = lazy(s);
		p = (struct cow_parcel){ .storage = s, .length = BYTES,
			                 .mode = COW_SHARE_CLONE };
		ck_assert_int_eq(cow_channel_send(t.sender, &p, 1, NULL, 0), 1);
		fill(mut(s), BYTES, 4);
		ck_pattern(data(clone), BYTES, 3);
		cow_storage_unref(s);
		cow_storage_unref(clone);
	}
	munmap(at, bytes);
	forget(&m);
	tap_free(&t);
}
END_TEST

/* ---- A full group ------------------------------------------------------------------------ */

static struct caught full;

/* Started before there was a group, so it is in none; what it gets is sent. */
static void hear(int socket)
{
	long r;

	do
		r = cow__socket_look(socket, full.bytes, sizeof(full.bytes),
		                     full.fds, RAW_FDS, &full.nfds);
	while (r == -EAGAIN);
	must(r > 0);
	full.count = (size_t)r;
}

/* Takes all free slots, by an open file description of its own. */
static void lock_slots(int door, short type)
{
	for (int i = 0; i < COW__SLOTS; i++) {
		struct flock lock = { .l_type = type, .l_whence = SEEK_SET,
			              .l_start = i, .l_len = 1 };

		(void)fcntl(door, F_OFD_SETLK, &lock);
	}
}

static void outsider(void *arg)
{
	struct cow_group *g = (void *)8;
	struct cow_parcel p;
	struct victim v;

	victim_make_with(&v, SOCK_STREAM, NULL, COW_CHANNEL_JOIN);
	hear(*(int *)arg);
	lock_slots(full.fds[0], F_WRLCK);
	fails(-EAGAIN, cow_group_join(full.fds[0], &g));
	ck_assert_ptr_eq(g, (void *)8);
	must(put(v.theirs, full.bytes, full.count, full.fds, full.nfds, 0) > 0);
	for (int i = 0; i < 3; i++)
		fails(-EUSERS, (int)take(&v, &p, 1));
	lock_slots(full.fds[0], F_UNLCK);
	ck_assert_int_eq(take(&v, &p, 1), 1);
	ck_pattern(data(p.storage), BYTES, 1);
	cow_storage_unref(p.storage);
	victim_free(&v);
}

START_TEST(group_that_is_full)
{
	static struct caught m;
	struct cow_parcel p = { .length = BYTES, .mode = COW_SHARE_CLONE };
	struct tap t;
	int fd[2];
	pid_t child;

	must(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fd) == 0);
	child = child_start(outsider, &fd[1]);
	tap_make(&t, true);
	send_a(&t, COW_SHARE_CLONE, &m);
	must(put(fd[0], m.bytes, m.count, m.fds, m.nfds, 0) == (long)m.count);
	child_finish(child);
	/* And the sender: an alias is not taken, and is when there is room. A clone goes. */
	p.storage = new_filled(BYTES, 0, 2);
	lock_slots(m.fds[0], F_WRLCK);
	ck_assert_int_eq(cow_channel_send(t.sender, &p, 1, NULL, 0), 1);
	p.mode = COW_SHARE_ALIAS;
	fails(-EUSERS, (int)cow_channel_send(t.sender, &p, 1, NULL, 0));
	ck_pattern(data(p.storage), BYTES, 2);
	lock_slots(m.fds[0], F_UNLCK);
	ck_assert_int_eq(cow_channel_send(t.sender, &p, 1, NULL, 0), 1);
	cow_storage_unref(p.storage);
	close(fd[0]);
	close(fd[1]);
	forget(&m);
	tap_free(&t);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("hostile_groups");
	TCase *tcase = add_case(suite, "hostile_groups");

	tcase_add_loop_test(tcase, message_played_again, 0, 2);
	tcase_add_loop_test(tcase, every_number_of_a_packed_item, 0, 7);
	tcase_add_loop_test(tcase, doors_that_are_none, 0, 6);
	tcase_add_test(tcase, doors_in_messages);
	tcase_add_test(tcase, group_that_was_not_asked_for);
	tcase_add_test(tcase, packs_of_another_group);
	tcase_add_test(tcase, pack_heads_of_absurd_values);
	tcase_add_test(tcase, pack_whose_head_changes_after_it_was_seen);
	tcase_add_loop_test(tcase, member_that_writes_rubbish, 0, 4);
	tcase_add_test(tcase, group_that_is_full);
	return run_suite(suite);
}
