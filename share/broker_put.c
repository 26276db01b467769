/* SPDX-License-Identifier: MIT */
/*
 * A client of the broker: its requests, and the strategy by which parcels are sent
 */
#include "core/base/error.h"
#include "memfd/process.h"
#include "share/broker.h"
#include "share/broker_call.h"
#include "share/channel.h"

static uint32_t strategy = COW_STRATEGY_FD;
static struct cow_broker *strategy_broker; /* cow__share_lock */

static bool
is_ended(const struct cow_broker_item *item)
{
	for (size_t i = 0; i < COW_BROKER_NAME; i++)
		if (!item->name[i])
			return true;
	return false;
}

static int
explain(int r)
{
	switch (r) {
	case -ENOENT:
		return cow__error(r, "the broker has no storage of that name or "
		                     "token, or there is no broker");
	case -EACCES:
		return cow__error(r, "the storage belongs to another user, who "
		                     "has not permitted this");
	case -EEXIST:
		return cow__error(r, "the broker already has a storage of that "
		                     "name or token");
	case -EINVAL:
		return cow__error(r, "the name (without '/', shorter than 64 "
		                     "bytes), the mode, a permission or a flag "
		                     "is not valid");
	case -EBADF:
		return cow__error(r, "the program closed a descriptor of the "
		                     "library");
	default:
		return cow__broker_sentence(r);
	}
}

static int
put_item(struct cow_broker *b, struct cow__home *h, struct cow_broker_item *item,
         bool fresh)
{
	struct cow_broker_message m = {
		.operation = COW_BROKER_PUT,
		.offset = h ? h->offset : 0,
		.item = *item,
	};
	int r;

	cow__mutex_lock(&b->lock);
	r = h && !cow__descriptor_ok(&h->file)
	            ? -EBADF
	            : cow__broker_call(b, &m, h ? h->file.fd : -1, NULL);
	if (r == 0 && !(item->flags & COW_BROKER_ONCE)) {
		if (!fresh)
			(void)cow__put_forget(b, item); /* one entry for each name and token */
		r = cow__put_note(b, item, h);
		if (r < 0) {
			m.operation = COW_BROKER_DROP;
			m.item = *item;
			(void)cow__broker_call(b, &m, -1, NULL);
		} else {
			h = NULL;
		}
	}
	cow__mutex_unlock(&b->lock);
	if (h) {
		cow__share_enter();
		cow__home_unref(h);
		cow__share_leave();
	}
	return r;
}

COW_EXPORT int
cow_broker_put(struct cow_broker *b, struct cow_storage *s,
               struct cow_broker_item *item)
{
	struct cow__home *h = NULL;
	struct cow_broker_item i;
	bool fresh;
	int r = 0;

	if (!b || !s || !item || item->mode > COW_SHARE_SEALED ||
	    !is_ended(item))
		return cow__error(-EINVAL, "cow_broker_put: no storage, or no "
		                           "such mode or name");
	if (s->elements || s->device.type != COW_DEVICE_CPU)
		return cow__error(-EOPNOTSUPP, "cow_broker_put: the broker keeps "
		                               "only plain bytes in the CPU's "
		                               "memory");
	i = *item;
	i.bytes = s->bytes;
	i.uid = cow__process_user();
	fresh = !i.name[0] && !i.token.a && !i.token.b;
	if (fresh)
		r = cow__random(&i.token, sizeof(i.token));
	if (r < 0)
		return cow__error_from(r, "cow_broker_put");
	if (s->bytes)
		r = cow__home_for(s, i.mode == COW_SHARE_CLONE
		                             ? COW_SHARE_SEALED
		                             : (enum cow_share_mode)i.mode,
		                  NULL, &h);
	if (r < 0)
		return r;
	r = put_item(b, h, &i, fresh);
	if (r < 0)
		return explain(r);
	*item = i;
	return 0;
}

COW_EXPORT int
cow_broker_get(struct cow_broker *b, const struct cow_broker_item *item,
               struct cow_storage **ret, struct cow_broker_item *ret_item)
{
	struct cow_broker_message m = { .operation = COW_BROKER_GET };
	struct cow__descriptor d;
	int fd = -1, r;

	if (!b || !item || !ret || !is_ended(item))
		return cow__error(-EINVAL, "cow_broker_get: no such name, or "
		                           "NULL");
	m.item = *item;
	cow__mutex_lock(&b->lock);
	r = cow__broker_call(b, &m, -1, &fd);
	cow__mutex_unlock(&b->lock);
	if (r < 0)
		return explain(r);
	if (m.item.bytes > INT64_MAX || m.item.mode > COW_SHARE_SEALED ||
	    !is_ended(&m.item) || (m.item.bytes > 0 && fd < 0))
		r = -EINVAL;
	else if (m.item.bytes == 0)
		r = cow_storage_new(0, NULL, ret);
	else
		r = cow_storage_import(fd, m.offset, m.item.bytes,
		                       (enum cow_share_mode)m.item.mode, ret);
	if (r == -EINVAL)
		r = cow__error(-EBADMSG, "the broker's answer is malformed");
	if (fd >= 0) {
		d = cow__descriptor_of(fd);
		cow__descriptor_drop(&d);
	}
	if (r == 0 && ret_item)
		*ret_item = m.item;
	return r;
}

COW_EXPORT int
cow_broker_drop(struct cow_broker *b, const struct cow_broker_item *item)
{
	struct cow_broker_message m = { .operation = COW_BROKER_DROP };
	int r;

	if (!b || !item || !is_ended(item))
		return cow__error(-EINVAL, "cow_broker_drop: no such name, or "
		                           "NULL");
	m.item = *item;
	cow__mutex_lock(&b->lock);
	r = cow__broker_call(b, &m, -1, NULL);
	/* -EACCES: another user has that name, so ours is gone. */
	if (r == 0 || r == -ENOENT || r == -EACCES)
		(void)cow__put_forget(b, item);
	cow__mutex_unlock(&b->lock);
	return r < 0 ? explain(r) : 0;
}

COW_EXPORT int
cow_broker_release(struct cow_broker *b, const struct cow_broker_item *item)
{
	bool found;

	if (!b || !item || !is_ended(item))
		return cow__error(-EINVAL, "cow_broker_release: no such name, or "
		                           "NULL");
	cow__mutex_lock(&b->lock);
	found = cow__put_forget(b, item);
	cow__mutex_unlock(&b->lock);
	return found ? 0
	             : cow__error(-ENOENT, "this process keeps no storage of "
	                                   "that name or token for the broker");
}

COW_EXPORT int
cow_broker_list(struct cow_broker *b, uint64_t *cursor,
                struct cow_broker_item *ret)
{
	struct cow_broker_message m = { .operation = COW_BROKER_LIST };
	int r;

	if (!b || !cursor || !ret)
		return cow__error(-EINVAL, "cow_broker_list: NULL");
	m.offset = *cursor;
	cow__mutex_lock(&b->lock);
	r = cow__broker_call(b, &m, -1, NULL);
	cow__mutex_unlock(&b->lock);
	if (r < 0)
		return explain(r);
	if (r > 0 && !is_ended(&m.item))
		return cow__error(-EBADMSG, "the broker's answer is malformed");
	*cursor = m.offset;
	if (r > 0)
		*ret = m.item;
	return r;
}

/* ---- Strategies --------------------------------------------------------------------- */

COW_EXPORT int
cow_strategy_set(enum cow_strategy s, struct cow_broker *b)
{
	struct cow_broker *old = NULL;
	int r = 0;

	if (s != COW_STRATEGY_FD && s != COW_STRATEGY_BROKER)
		return cow__error(-EINVAL, "cow_strategy_set: no such strategy");
	cow__share_enter();
	if (b) {
		old = strategy_broker;
		strategy_broker = cow_broker_ref(b);
	}
	if (s == COW_STRATEGY_BROKER && !strategy_broker)
		r = -EINVAL;
	else
		strategy = s;
	cow__share_leave();
	(void)cow_broker_unref(old);
	return r < 0 ? cow__error(r, "cow_strategy_set: BROKER needs a broker") : 0;
}

COW_EXPORT enum cow_strategy
cow_strategy_get(void)
{
	return (enum cow_strategy)__atomic_load_n(&strategy, __ATOMIC_RELAXED);
}

struct cow_broker *
cow__strategy_broker(void)
{
	struct cow_broker *b;

	cow__share_enter();
	b = cow_broker_ref(strategy_broker);
	cow__share_leave();
	return b;
}

enum cow_strategy
cow__strategy_of(uint32_t wanted, struct cow_broker **ret)
{
	if (wanted == COW_STRATEGY_DEFAULT)
		wanted = cow_strategy_get();
	*ret = wanted == COW_STRATEGY_BROKER ? cow__strategy_broker() : NULL;
	return (enum cow_strategy)wanted;
}
