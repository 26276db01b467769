/* SPDX-License-Identifier: MIT */
/*
 * Programs of storages against arrays of bytes
 *
 * The input is read byte by byte: what is done next, to which of a few storages, with
 * which numbers. Storages are made, cloned, written with and without notice, resized,
 * swapped, sent to ourselves in every mode, and there are forks, after which parent and
 * child go on, each for itself. The model of a storage is an array; aliases have one in
 * common. A message that was not received yet has one, too.
 *
 * What the header allows to be refused may be refused, and then nothing has changed.
 */
#include "cowshed-share.h"
#include "tests/fuzz/must.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SLOTS = 6, CHANNELS = 2, WAITING = 4, STEPS = 48, FORKS = 2, PAGE = 4096,
       SMALL = 3 * PAGE /* what is larger is compared when touched, at forks, in the end */ };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
extern const unsigned fuzz_rounds;
const unsigned fuzz_rounds = 10;

struct bytes {
	int refs;
	size_t count;
	bool alias; /* other storages have it, too, or other processes */
	unsigned char *at;
};

struct slot {
	struct cow_storage *is; /* NULL: none */
	struct bytes *bytes;
	unsigned char *exposed; /* where to write without notice */
};

/* Of a message on its way: what it will be. */
struct waiting {
	struct bytes *bytes;
	enum cow_share_mode mode;
};

struct line {
	struct cow_group *group;
	struct cow_channel *from, *to;
	struct waiting waiting[WAITING];
	int count;
};

static const uint8_t *at, *end;
static struct slot slots[SLOTS];
static struct line lines[CHANNELS]; /* without a group, and with one */
static bool child, forked; /* we are one; we have one */
static int forks;

static unsigned take(unsigned limit)
{
	return at < end ? *at++ % limit : 0;
}

/* ---- The model ---------------------------------------------------------------------- */

static struct bytes *bytes_new(size_t count)
{
	struct bytes *b = malloc(sizeof(*b));

	must(b != NULL);
	*b = (struct bytes){ .refs = 1, .count = count, .at = calloc(1, count + 1) };
	must(b->at != NULL);
	return b;
}

static struct bytes *bytes_copy(const struct bytes *from)
{
	struct bytes *b = bytes_new(from->count);

	memcpy(b->at, from->at, from->count);
	return b;
}

static struct bytes *bytes_share(struct bytes *b)
{
	b->alias = true;
	b->refs++;
	return b;
}

static void bytes_drop(struct bytes *b)
{
	if (--b->refs == 0) {
		free(b->at);
		free(b);
	}
}

static void compare(const struct slot *s)
{
	const void *data = cow_storage_data(s->is);

	must(cow_storage_bytes(s->is) == s->bytes->count);
	must(!s->exposed || data == s->exposed);
	must(!s->bytes->count || memcmp(data, s->bytes->at, s->bytes->count) == 0);
}

static void compare_all(size_t largest)
{
	for (struct slot *s = slots; s < slots + SLOTS; s++)
		if (s->is && s->bytes->count <= largest)
			compare(s);
}

static void drop(struct slot *s)
{
	if (!s->is)
		return;
	must(cow_storage_unref(s->is) == NULL);
	bytes_drop(s->bytes);
	*s = (struct slot){ .is = NULL };
}

/* Takes both over. Only an alias is ever received as a storage that another slot has, too. */
static void adopt(struct cow_storage *is, struct bytes *bytes)
{
	struct slot *s = &slots[take(SLOTS)];

	for (struct slot *same = slots; same < slots + SLOTS; same++)
		must(same->is != is || same->bytes == bytes);
	drop(s);
	*s = (struct slot){ .is = is, .bytes = bytes };
	compare(s);
}

static struct slot *pick(void)
{
	struct slot *s = &slots[take(SLOTS)];

	for (int i = 0; i < SLOTS && !s->is; i++)
		s = &slots[i];
	return s->is ? s : NULL;
}

/* ---- Storages ------------------------------------------------------------------------ */

static size_t some_size(void)
{
	static const size_t sizes[] = { 0, 1, 100, PAGE, SMALL - 7, 70000, 400000,
		                        1 << 20, (2 << 20) + PAGE, 5 << 20 };

	return sizes[take(10)] + take(3);
}

static void create(void)
{
	struct cow_storage_options o = { .size = sizeof(o), .flags = COW_STORAGE_ZERO };
	unsigned how = take(8);
	size_t count = some_size();
	struct bytes *bytes = bytes_new(count);
	struct cow_storage *is;

	o.flags |= how & 1 ? COW_STORAGE_TRANSPARENT : 0;
	o.flags |= how == 2 ? COW_STORAGE_STRICT : 0;
	if (how >= 6 && !child) {
		bytes->alias = how == 7;
		must(cow_group_storage_new(lines[1].group, count,
		                           how == 7 ? COW_SHARE_ALIAS : COW_SHARE_CLONE,
		                           &is) == 0);
	} else {
		must(cow_storage_new(count, &o, &is) == 0);
	}
	adopt(is, bytes);
}

static void clone(void)
{
	struct slot *s = pick();
	struct cow_storage *is;

	if (!s)
		return;
	must((take(3) ? cow_storage_lazy_clone : cow_storage_clone)(s->is, &is) == 0);
	adopt(is, bytes_copy(s->bytes));
}

/* A run of bytes, or one in each of many pages. */
static void put(struct slot *s, unsigned char *to, size_t from, size_t count)
{
	size_t step = take(2) ? 1 : (1 + take(4)) * PAGE - take(3), value = take(256);

	for (size_t i = from; i < from + count; i += step)
		to[i] = s->bytes->at[i] = (unsigned char)(value + i / 64);
}

static void put_all(struct slot *s, unsigned char *to, size_t from, size_t count)
{
	unsigned char value = (unsigned char)take(256);

	memset(to + from, value, count);
	memset(s->bytes->at + from, value, count);
}

static void write_to(void)
{
	struct slot *s = pick();
	size_t from, count, all = s ? s->bytes->count : 0;
	enum cow_write_hint hint;
	void *data;

	/* Neither sees what the other writes, but in an alias. */
	if (!all || ((child || forked) && s->bytes->alias))
		return;
	from = take(256) * all / 256;
	count = 1 + take(256) * (all - from - 1) / 255;
	hint = (enum cow_write_hint)take(8);
	if (s->exposed && hint > COW_WRITE_BY_COPY) {
		put(s, s->exposed, from, count);
	} else if (hint > COW_WRITE_BY_COPY) {
		must(cow_storage_data_mut(s->is, &data) == 0);
		put(s, data, from, count);
	} else {
		must(cow_storage_data_mut_range(s->is, from, count, hint, &data) == 0);
		if (hint == COW_WRITE_ALL)
			put_all(s, data, from, count);
		else
			put(s, data, from, count);
	}
	compare(s);
}

static void expose(void)
{
	struct slot *s = pick();
	void *data;

	if (!s || cow_storage_expose(s->is, &data) != 0)
		return;
	must(!s->exposed || s->exposed == data);
	s->exposed = data;
	compare(s);
}

/* New bytes are whatever they are. */
static void learn(struct slot *s, size_t count)
{
	size_t known = s->bytes->count < count ? s->bytes->count : count;

	s->bytes->at = realloc(s->bytes->at, count + 1);
	must(s->bytes->at != NULL && cow_storage_bytes(s->is) == count);
	if (count > known)
		memcpy(s->bytes->at + known,
		       (const unsigned char *)cow_storage_data(s->is) + known,
		       count - known);
	s->bytes->count = count;
	if (s->exposed)
		s->exposed = (unsigned char *)(uintptr_t)cow_storage_data(s->is);
}

static void resize(void)
{
	struct slot *s = pick();
	size_t bytes = some_size();
	int r;

	if (!s || s->bytes->alias)
		return;
	r = cow_storage_resize(s->is, bytes);
	must(r == 0 || r == -EBUSY || r == -EPERM);
	if (r == 0)
		learn(s, bytes);
	compare(s);
}

static void swap(void)
{
	struct slot *s = pick();
	size_t bytes = some_size();
	struct cow_data_ptr ptr;
	int r;

	if (!s || s->bytes->alias)
		return;
	must(cow_allocator_allocate(cow_allocator_default(), bytes, &ptr) == 0);
	if (bytes)
		memset(ptr.data, 0x17, bytes);
	r = cow_storage_swap_data_ptr(s->is, &ptr, bytes);
	must(r == 0 || r == -EBUSY);
	if (r == 0) {
		struct bytes *old = s->bytes;

		must(!old->count || memcmp(ptr.data, old->at, old->count) == 0);
		if (old->count)
			memset(ptr.data, 0xdb, old->count);
		s->bytes = bytes_new(bytes);
		memset(s->bytes->at, 0x17, bytes);
		s->exposed = NULL;
		bytes_drop(old);
	}
	cow_data_ptr_clear(&ptr);
	compare(s);
}

static void release(void)
{
	drop(&slots[take(SLOTS)]);
}

static void trim(void)
{
	must(cow_trim() >= 0);
}

static void by_address(void)
{
	struct slot *s = pick();
	struct cow_storage *is = NULL;
	size_t offset = 1;

	if (!s || !s->bytes->count ||
	    cow_storage_from_ptr(cow_storage_data(s->is), &offset, &is) != 0)
		return;
	must(offset == 0);
	cow_storage_unref(is);
	compare(s);
}

/* ---- Messages ------------------------------------------------------------------------ */

/* Its address was given away, it is a group's, its memory was swapped in. */
static bool no_alias(long r)
{
	return r == -EBUSY || r == -EXDEV || r == -EOPNOTSUPP;
}

static void send_one(void)
{
	struct line *l = &lines[take(CHANNELS)];
	enum cow_share_mode mode = (enum cow_share_mode)take(3);
	struct slot *s = pick();
	struct cow_parcel p = { .mode = mode };
	long r;

	if (!s || child || l->count == WAITING)
		return;
	p.storage = s->is;
	p.length = s->bytes->count;
	r = cow_channel_send(l->from, &p, 1, NULL, 0);
	must(r == 1 || (mode == COW_SHARE_ALIAS && no_alias(r)));
	if (r == 1)
		l->waiting[l->count++] = (struct waiting){
			.bytes = mode == COW_SHARE_ALIAS ? bytes_share(s->bytes)
			                                 : bytes_copy(s->bytes),
			.mode = mode,
		};
	compare(s);
}

static void receive(struct line *l)
{
	struct cow_parcel p;

	must(cow_channel_receive(l->to, &p, 1, NULL, 0, NULL) == 1 && p.offset == 0);
	must(p.mode == l->waiting[0].mode && p.length == l->waiting[0].bytes->count);
	adopt(p.storage, l->waiting[0].bytes);
	memmove(l->waiting, l->waiting + 1, (size_t)--l->count * sizeof(*l->waiting));
}

static void receive_one(void)
{
	struct line *l = &lines[take(CHANNELS)];

	if (!child && l->count > 0)
		receive(l);
}

static void by_descriptor(void)
{
	enum cow_share_mode mode = (enum cow_share_mode)take(3);
	struct slot *s = pick();
	struct cow_storage *is;
	uint64_t offset;
	int fd, r;

	if (!s || !s->bytes->count || child)
		return;
	r = cow_storage_export(s->is, mode, &fd, &offset);
	must(r == 0 || (mode == COW_SHARE_ALIAS && no_alias(r)));
	compare(s);
	if (r < 0)
		return;
	must(cow_storage_import(fd, offset, s->bytes->count, mode, &is) == 0);
	close(fd);
	adopt(is, mode == COW_SHARE_ALIAS ? bytes_share(s->bytes) : bytes_copy(s->bytes));
}

static void share_in_place(void)
{
	struct slot *s = pick();
	int r;

	if (!s || child)
		return;
	r = cow_storage_share_in_place(s->is);
	must(r == 0 || r == -EBUSY || r == -EOPNOTSUPP || r == -EMFILE || r == -EINVAL);
	if (r == 0) /* a child has it in common with us */
		s->bytes->alias = true;
	compare(s);
}

/* ---- Forks --------------------------------------------------------------------------- */

static void step(void);

static void fork_here(void)
{
	int status, steps = 1 + (int)take(8);
	const uint8_t *here = at;
	pid_t pid;

	if (child || forks++ == FORKS)
		return;
	compare_all(SIZE_MAX);
	pid = fork();
	must(pid >= 0);
	if (pid == 0) {
		child = true;
		compare_all(SIZE_MAX);
		while (steps-- > 0)
			step();
		compare_all(SIZE_MAX);
		_exit(0);
	}
	forked = true;
	if (take(2)) /* while the child is there */
		write_to();
	forked = false;
	must(TEMP_FAILURE_RETRY(waitpid(pid, &status, 0)) == pid && status == 0);
	compare_all(SIZE_MAX);
	at = here;
}

static void step(void)
{
	static void (*const all[])(void) = {
		create, clone, clone, clone, expose, resize, swap, by_address,
		release, trim, fork_here, send_one, receive_one, by_descriptor,
		share_in_place, write_to, write_to, write_to, write_to, write_to,
	};

	all[take(sizeof(all) / sizeof(all[0]))]();
}

static void open_lines(void)
{
	for (int i = 0; i < CHANNELS; i++) {
		int fd[2];

		must(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fd) == 0);
		must(i == 0 || cow_group_new(&lines[i].group) == 0);
		must(cow_channel_new(fd[0], lines[i].group, 0, &lines[i].from) == 0);
		must(cow_channel_new(fd[1], NULL, COW_CHANNEL_JOIN | COW_CHANNEL_TAKE_ALIASES,
		                     &lines[i].to) == 0);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct cow_stats before = { .size = sizeof(before) }, after = before;

	if (!lines[0].from)
		open_lines();
	at = data;
	end = data + size;
	forks = 0;
	must(cow_stats_get(&before) == 0);
	create();
	for (int i = 0; i < STEPS && at < end; i++) {
		step();
		compare_all(SMALL);
	}
	compare_all(SIZE_MAX);
	for (int i = 0; i < CHANNELS; i++)
		while (lines[i].count > 0)
			receive(&lines[i]);
	for (struct slot *s = slots; s < slots + SLOTS; s++)
		drop(s);
	must(cow_stats_get(&after) == 0);
	must(after.storages_live == before.storages_live);
	return 0;
}
