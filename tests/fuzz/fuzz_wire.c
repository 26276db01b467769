/* SPDX-License-Identifier: MIT */
/*
 * Fuzzing: any bytes as a message
 *
 * cow__wire_check() reads nothing beyond the bytes (they end where a page of the
 * sanitizer's begins), and what it lets pass is within the bounds that the rest of
 * share/ relies on. The first byte of an input says how many descriptors came.
 */
#include "core/base/base.h"
#include "cowshed-share.h"
#include "memfd/page.h"
#include "share/wire.h"
#include "tests/fuzz/must.h"

#include <stdint.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t count);

static void
item(const struct cow__wire *w, const struct cow__wire_item *i, unsigned nfds)
{
	must(i->mode <= COW_SHARE_SEALED && i->kind < COW__WIRE_KINDS);
	must(i->bytes <= INT64_MAX && i->offset <= i->bytes &&
	     i->length <= i->bytes - i->offset);
	if (i->kind == COW__WIRE_NOTHING)
		must(i->bytes == 0);
	if (i->kind == COW__WIRE_BYTES_HERE)
		must(i->bytes > 0 && i->bytes <= COW__WIRE_INLINE);
	if (i->kind == COW__WIRE_PACKED)
		must(w->packs + i->index < w->own &&
		     i->bytes <= (uint64_t)i->pages * cow__page);
	if (i->kind == COW__WIRE_OWN)
		must(w->own + i->index < nfds &&
		     i->file_offset + i->bytes <= INT64_MAX);
	if (i->kind == COW__WIRE_DEVICE)
		must(i->file_offset == 0 &&
		     (i->bytes ? w->own + i->index < nfds && i->mode != COW_SHARE_SEALED
		               : i->index == 0));
}

/* How many of the bytes inside are the item's. Reads those of a device as receive.c
 * does. */
static size_t
taken(const struct cow__wire_item *i, const unsigned char *at, const char *end)
{
	struct cow__wire_device d;

	switch (i->kind) {
	case COW__WIRE_BYTES_HERE:
		return cow__round_up(i->bytes, 8);
	case COW__WIRE_TOKEN:
		return COW__WIRE_TOKEN_BYTES;
	case COW__WIRE_DEVICE:
		must((size_t)(end - (const char *)at) >= sizeof(d));
		memcpy(&d, at, sizeof(d));
		return sizeof(d);
	default:
		return 0;
	}
}

int
LLVMFuzzerTestOneInput(const uint8_t *input, size_t count)
{
	struct cow__wire w;
	size_t here = 0;
	unsigned nfds;
	void *bytes;

	cow__page_init();
	if (count == 0 || count > COW__WIRE_BYTES + 1)
		return 0;
	nfds = *input++;
	count--;
	bytes = malloc(count ? count : 1); /* aligned, and of exactly the size */
	must(bytes != NULL);
	memcpy(bytes, input, count);
	if (cow__wire_check(bytes, count, nfds, &w) == 0) {
		const char *end = (const char *)bytes + count;

		must(nfds <= COW__WIRE_FDS && w.head.items <= COW__WIRE_ITEMS);
		must(w.own <= nfds && w.packs <= w.own && w.slot <= w.packs);
		must(w.head.note_bytes <= COW_NOTE_MAX);
		must((const char *)w.note + w.head.note_bytes == end);
		must((const char *)(w.items + w.head.items) ==
		     (const char *)w.inline_bytes);
		must(!w.head.packs || w.head.slot < COW__SLOTS);
		for (unsigned i = 0; i < w.head.items; i++) {
			item(&w, &w.items[i], nfds);
			must(here <= w.head.inline_bytes);
			here += taken(&w.items[i], w.inline_bytes + here,
			              (const char *)w.note);
		}
		must(here == w.head.inline_bytes);
	}
	free(bytes);
	return 0;
}
