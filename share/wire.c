/* SPDX-License-Identifier: MIT */
/*
 * Messages between processes: the check of what came. See the header.
 */
#include "share/wire.h"
#include "core/base/base.h"
#include "cowshed-share.h"

/* More than a process has addresses. To try such a message again would never help. */
#define BYTES_MOST ((uint64_t)1 << 47)

long
cow__wire_length(const struct cow__wire_head *h)
{
	if (h->magic != COW__WIRE_MAGIC || h->version != COW__WIRE_VERSION ||
	    h->bytes < sizeof(*h) || h->bytes > COW__WIRE_BYTES)
		return -EBADMSG;
	return h->bytes;
}

static bool
item_is_sound(const struct cow__wire_item *i, const struct cow__wire *w,
              unsigned own)
{
	if (i->mode > COW_SHARE_SEALED || i->kind >= COW__WIRE_KINDS ||
	    i->bytes > BYTES_MOST || i->offset > i->bytes ||
	    i->length > i->bytes - i->offset)
		return false;
	switch (i->kind) {
	case COW__WIRE_NOTHING:
		return i->bytes == 0;
	case COW__WIRE_BYTES_HERE:
		return i->bytes && i->bytes <= COW__WIRE_INLINE &&
		       i->mode != COW_SHARE_ALIAS;
	case COW__WIRE_PACKED:
		return i->bytes && i->index < w->head.packs && i->pages &&
		       (i->bytes - 1) / cow__page < i->pages &&
		       i->mode != COW_SHARE_SEALED;
	case COW__WIRE_TOKEN:
		return i->bytes != 0;
	case COW__WIRE_DEVICE:
		if (i->bytes == 0)
			return i->index == 0 && i->file_offset == 0;
		return i->index < own &&
		       i->mode != COW_SHARE_SEALED && i->file_offset == 0;
	default:
		return i->bytes && i->index < own &&
		       i->file_offset <= (uint64_t)INT64_MAX - i->bytes;
	}
}

int
cow__wire_check(const void *buf, size_t bytes, unsigned nfds,
                struct cow__wire *ret)
{
	struct cow__wire w;
	size_t want = sizeof(w.head), here = 0;
	unsigned special;

	if (bytes < sizeof(w.head))
		return -EBADMSG;
	memcpy(&w.head, buf, sizeof(w.head));
	if (cow__wire_length(&w.head) != (long)bytes ||
	    w.head.items > COW__WIRE_ITEMS || w.head.fds != nfds ||
	    nfds > COW__WIRE_FDS || w.head.reserved ||
	    (w.head.flags & ~(COW__WIRE_DOOR | COW__WIRE_SLOT)))
		return -EBADMSG;
	want += w.head.items * sizeof(*w.items);
	want += w.head.inline_bytes;
	want += w.head.note_bytes;
	if (w.head.inline_bytes > COW__WIRE_BYTES ||
	    w.head.note_bytes > COW_NOTE_MAX || want != bytes ||
	    w.head.inline_bytes % 8 || (!w.head.items && !w.head.note_bytes))
		return -EBADMSG;
	w.door = 0;
	w.slot = !!(w.head.flags & COW__WIRE_DOOR);
	special = w.slot + !!(w.head.flags & COW__WIRE_SLOT);
	w.packs = special;
	if (special + w.head.packs > nfds ||
	    (w.head.packs && !(w.head.flags & COW__WIRE_SLOT)) ||
	    ((w.head.flags & COW__WIRE_SLOT) && w.head.slot >= COW__SLOTS))
		return -EBADMSG;
	w.own = special + w.head.packs;
	w.items = (const void *)((const char *)buf + sizeof(w.head));
	w.inline_bytes = (const unsigned char *)(w.items + w.head.items);
	w.note = w.inline_bytes + w.head.inline_bytes;
	for (unsigned i = 0; i < w.head.items; i++) {
		if (!item_is_sound(&w.items[i], &w, nfds - w.own))
			return -EBADMSG;
		if (w.items[i].kind == COW__WIRE_BYTES_HERE)
			here += cow__round_up(w.items[i].bytes, 8);
		else if (w.items[i].kind == COW__WIRE_TOKEN)
			here += COW__WIRE_TOKEN_BYTES;
		else if (w.items[i].kind == COW__WIRE_DEVICE)
			here += sizeof(struct cow__wire_device);
	}
	if (here != w.head.inline_bytes)
		return -EBADMSG;
	*ret = w;
	return 0;
}
