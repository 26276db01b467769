/* SPDX-License-Identifier: MIT */
/*
 * The objects that the broker keeps, and their holders
 *
 *   object --- holds --- holder (a connection)
 *
 * An object under a token or an ephemeral name stays as long as it has a holder. An
 * object under a lasting name has no holders, and stays until a client drops it.
 * Objects have slots, so that a list goes on at its place although objects come and
 * go meanwhile.
 *
 * The number of objects is limited, because each is a descriptor of the broker: in
 * all, for a user, and for a connection. So are holds, which cost memory. The memory
 * of objects belongs to their makers, not to the broker.
 */
#include "cli/broker.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define BUCKETS 65536u

struct broker_hold {
	struct broker_object *object;
	struct broker_holder *holder;
	struct broker_hold *next_of_object, *next_of_holder;
	/* The pointers to it in the two lists: each object of a connection that ends may
	 * have thousands of other holders. */
	struct broker_hold **back_of_object, **back;
	struct broker_hold *next; /* with the same hash */
};

static uint32_t of_client;
static struct broker_object **buckets;
static struct broker_hold **holds;
static struct broker_object **slots;
static uint32_t *free_slots, nfree, used, count;
static struct broker_hash_key key;

int broker_shelf_open(const struct broker_limits *l)
{
	uint32_t most = l->of[BROKER_OBJECT].all;

	of_client = l->objects_of_client;
	buckets = calloc(BUCKETS, sizeof(*buckets));
	holds = calloc(BUCKETS, sizeof(*holds));
	slots = calloc(most, sizeof(*slots));
	free_slots = calloc(most, sizeof(*free_slots));
	if (buckets == NULL || holds == NULL || slots == NULL ||
	    free_slots == NULL)
		return -ENOMEM;
	return broker_hash_key(&key);
}

uint32_t broker_shelf_count(void)
{
	return count;
}

/* Clients choose tokens and names. The two have different lengths, so no name hashes
 * as a token does by design. */
uint32_t broker_shelf_bucket(const struct cow_broker_item *item)
{
	uint64_t words[COW_BROKER_NAME / 8] = { 0 };
	unsigned n = COW_BROKER_NAME / 8;

	if (item->name[0] != 0) {
		/* What is behind the name's end is not part of it. */
		memcpy(words, item->name, strlen(item->name));
	} else {
		words[0] = item->token.a;
		words[1] = item->token.b;
		n = 2;
	}
	return (uint32_t)(broker_hash(&key, words, n) % BUCKETS);
}

static struct broker_object **bucket(const struct cow_broker_item *item)
{
	return &buckets[broker_shelf_bucket(item)];
}

static struct broker_object *find_object(const struct cow_broker_item *item)
{
	struct broker_object *o = *bucket(item);

	for (; o != NULL; o = o->next) {
		if (item->name[0] != 0
		            ? strcmp(o->item.name, item->name) == 0
		            : o->item.name[0] == 0 &&
		                      o->item.token.a == item->token.a &&
		                      o->item.token.b == item->token.b)
			break;
	}
	return o;
}

/* ---- Holding ------------------------------------------------------------------ */

/* The pointer to the hold, or to the end of the list that it is not in. */
static struct broker_hold **hold_of(const struct broker_holder *h,
                                    const struct broker_object *o)
{
	const uint64_t words[] = { (uintptr_t)h, (uintptr_t)o };
	struct broker_hold **p = &holds[broker_hash(&key, words, 2) % BUCKETS];

	while (*p != NULL && ((*p)->holder != h || (*p)->object != o))
		p = &(*p)->next;
	return p;
}

bool broker_shelf_holds(const struct broker_holder *h,
                        const struct broker_object *o)
{
	return *hold_of(h, o) != NULL;
}

static int hold_object(struct broker_holder *h, struct broker_object *o)
{
	struct broker_hold **p = hold_of(h, o), *k;
	int r;

	if (*p != NULL)
		return 0;
	if (h->objects >= of_client)
		return -ENOSPC;
	k = malloc(sizeof(*k));
	r = k != NULL ? broker_user_take(h->user, BROKER_HOLD) : -ENOMEM;
	if (r < 0) {
		free(k);
		return r;
	}
	*p = k;
	*k = (struct broker_hold){ o, h, o->holds, h->holds, &o->holds,
		                   &h->holds, NULL };
	if (o->holds != NULL)
		o->holds->back_of_object = &k->next_of_object;
	if (h->holds != NULL)
		h->holds->back = &k->next_of_holder;
	o->holds = h->holds = k;
	h->objects++;
	return 0;
}

static void unhold(struct broker_hold *k)
{
	*hold_of(k->holder, k->object) = k->next;
	*k->back_of_object = k->next_of_object;
	if (k->next_of_object != NULL)
		k->next_of_object->back_of_object = k->back_of_object;
	*k->back = k->next_of_holder;
	if (k->next_of_holder != NULL)
		k->next_of_holder->back = k->back;
	k->holder->objects--;
	broker_user_give(k->holder->user, BROKER_HOLD);
	free(k);
}

void broker_shelf_remove(struct broker_object *o)
{
	struct broker_object **p = bucket(&o->item);

	while (*p != o)
		p = &(*p)->next;
	*p = o->next;
	while (o->holds != NULL)
		unhold(o->holds);
	slots[o->slot] = NULL;
	free_slots[nfree++] = o->slot;
	broker_user_give(o->user, BROKER_OBJECT);
	count--;
	if (o->fd >= 0)
		close(o->fd);
	free(o);
}

void broker_shelf_leave(struct broker_holder *h)
{
	while (h->holds != NULL) {
		struct broker_object *o = h->holds->object;

		unhold(h->holds);
		if (o->holds == NULL)
			broker_shelf_remove(o);
	}
}

/* ---- Putting and finding --------------------------------------------------------- */

/* Is `fd` a memfd with the seals of the mode, and has it these bytes? */
static int check(const struct cow_broker_message *m, int fd, struct stat *ret)
{
	int want = F_SEAL_GROW | F_SEAL_SHRINK, seals;

	if (m->item.bytes == 0)
		return fd < 0 ? 0 : -EBADMSG;
	if (fd < 0)
		return -EBADMSG;
	if (m->item.mode != COW_SHARE_ALIAS)
		want |= F_SEAL_WRITE;
	seals = fcntl(fd, F_GET_SEALS);
	if (seals < 0 || (seals & want) != want || fstat(fd, ret) < 0 ||
	    !S_ISREG(ret->st_mode) || m->offset > (uint64_t)ret->st_size ||
	    m->item.bytes > (uint64_t)ret->st_size - m->offset)
		return -EBADMSG;
	return 0;
}

static int sound(const struct cow_broker_item *item)
{
	if (memchr(item->name, 0, sizeof(item->name)) == NULL ||
	    item->mode > COW_SHARE_SEALED ||
	    (item->permissions & ~0666u) != 0 ||
	    (item->flags & ~(COW_BROKER_EPHEMERAL | COW_BROKER_ONCE)) != 0)
		return -EINVAL;
	if (item->name[0] == 0)
		return item->token.a || item->token.b ? 0 : -EINVAL;
	for (const char *s = item->name; *s != 0; s++)
		if (*s == '/' || (unsigned char)*s < ' ' || *s == 127)
			return -EINVAL;
	return 0;
}

static bool lasts(const struct cow_broker_item *item)
{
	return item->name[0] != 0 && !(item->flags & COW_BROKER_EPHEMERAL);
}

static int put_again(struct broker_holder *h, struct broker_object *o,
                     const struct cow_broker_message *m, const struct stat *st)
{
	int r;

	if (o->item.uid != h->uid || o->item.bytes != m->item.bytes ||
	    o->item.mode != m->item.mode || o->item.flags != m->item.flags ||
	    o->offset != m->offset ||
	    (o->fd >= 0 && (o->dev != st->st_dev || o->ino != st->st_ino)))
		return -EEXIST;
	if (lasts(&o->item))
		return -EALREADY;
	r = hold_object(h, o);
	if (r == 0)
		o->item.permissions = m->item.permissions; /* as by chmod */
	return r;
}

static int add_object(struct broker_holder *h, struct broker_object *o)
{
	struct broker_object **p = bucket(&o->item);
	int r = broker_user_take(h->user, BROKER_OBJECT);

	if (r < 0)
		return r;
	if (!lasts(&o->item))
		r = hold_object(h, o);
	if (r < 0) {
		broker_user_give(h->user, BROKER_OBJECT);
		return r;
	}
	o->next = *p;
	*p = o;
	o->slot = nfree > 0 ? free_slots[--nfree] : used++;
	slots[o->slot] = o;
	count++;
	return 0;
}

int broker_shelf_put(struct broker_holder *h, const struct cow_broker_message *m,
                     int fd)
{
	struct broker_object *o;
	struct stat st = { 0 };
	int r = sound(&m->item);

	if (r == 0)
		r = check(m, fd, &st);
	if (r < 0)
		return r;
	o = find_object(&m->item);
	if (o != NULL) {
		r = put_again(h, o, m, &st);
		if (r == 0 && fd >= 0)
			close(fd);
		return r;
	}
	o = malloc(sizeof(*o));
	if (o == NULL)
		return -ENOMEM;
	*o = (struct broker_object){ .item = m->item, .offset = m->offset,
		                     .fd = fd, .dev = st.st_dev,
		                     .ino = st.st_ino, .user = h->user };
	o->item.uid = h->uid;
	r = add_object(h, o);
	if (r < 0)
		free(o);
	return r;
}

static bool allowed(const struct broker_holder *h, const struct broker_object *o)
{
	uint32_t want = o->item.mode == COW_SHARE_ALIAS ? 06 : 04;

	return h->uid == o->item.uid || h->uid == 0 ||
	       (o->item.permissions & want) == want;
}

static int look_up_object(const struct cow_broker_item *item, struct broker_object **ret)
{
	if (memchr(item->name, 0, sizeof(item->name)) == NULL)
		return -EINVAL;
	*ret = find_object(item);
	return *ret != NULL ? 0 : -ENOENT;
}

int broker_shelf_find(const struct broker_holder *h,
                      const struct cow_broker_item *item,
                      struct broker_object **ret)
{
	struct broker_object *o;
	int r = look_up_object(item, &o);

	if (r < 0)
		return r;
	if (!allowed(h, o))
		return -EACCES;
	*ret = o;
	return 0;
}

int broker_shelf_drop(struct broker_holder *h, const struct cow_broker_item *item)
{
	struct broker_object *o;
	int r = look_up_object(item, &o);

	if (r < 0)
		return r;
	if (h->uid != o->item.uid && h->uid != 0)
		return -EACCES;
	broker_shelf_remove(o);
	return 0;
}

struct broker_object *broker_shelf_next(const struct broker_holder *h,
                                        uint64_t *cursor)
{
	while (*cursor < used) {
		struct broker_object *o = slots[(*cursor)++];

		if (o != NULL && allowed(h, o))
			return o;
	}
	return NULL;
}
