/* SPDX-License-Identifier: MIT */
/*
 * The invariants of tiles, checked: see the header.
 */
#include "core/memory/check.h"

#if COW__CHECKS
#include "core/base/base.h"
#include "core/memory/can.h"
#include "core/memory/engine.h"
#include "core/memory/segment.h"
#include "memfd/process.h"

#include <string.h>

#define OFTEN 64 /* with so many tiles each release is checked, with twice as many each second */

static const char *const names[COW__STATES] = {
	"bare", "cold", "warm", "shared", "frozen", "partly", "anonymous", "limbo", "inner", "lost",
};

static char *
append(char *to, const char *text)
{
	size_t n = strlen(text);

	memcpy(to, text, n);
	return to + n;
}

static char *
append_hex(char *to, uint64_t n)
{
	int shift = 60;

	while (shift && !(n >> shift))
		shift -= 4;
	for (; shift >= 0; shift -= 4)
		*to++ = "0123456789abcdef"[n >> shift & 15];
	return to;
}

/* By no function of libc: it may be the helper's thread. The conditions are short. */
static void
invariant_broken(const struct cow__tile *t, const char *what)
{
	char line[512], *end = append(line, "cowshed: a tile of ");

	end = append_hex(end, t->bytes);
	end = append(append(end, " bytes (hex), "), names[cow__state(t)]);
	end = append_hex(append(end, ", obstacles "), cow__obstacles(t));
	end = append_hex(append(end, ", refs "), t->own.refs);
	end = append(append(append(end, ": "), what), "\n");
	cow__process_say(line, (size_t)(end - line));
	__builtin_trap();
}

#define MUST(t, x)                                                                                 \
	do {                                                                                       \
		if (!(x))                                                                          \
			invariant_broken(t, #x);                                                   \
	} while (0)

static void
check_place(const struct cow__tile *t)
{
	MUST(t, t->bytes > 0 && t->bytes % cow__page == 0);
	MUST(t, !t->prev || cow__tile_end(t->prev) == cow__tile_start(t));
	MUST(t, !t->prev || t->prev->next == t);
	MUST(t, cow__tile_find(cow__tile_start(t)) == t);
}

static void
check_parts(const struct cow__tile *t)
{
	uintptr_t at = cow__tile_start(t);
	size_t bytes = 0;

	MUST(t, !t->map.npieces == !t->map.pieces);
	MUST(t, t->map.kept || !t->map.nkept); /* a thaw reserves them before it can fail */
	for (uint32_t i = 0; i < t->map.npieces; i++) {
		const struct cow__piece *p = &t->map.pieces[i];

		bytes += p->bytes;
		MUST(t, p->bytes && p->offset + p->bytes <= p->pages->bytes);
		MUST(t, p->pages->own.refs && p->pages->own.segment);
	}
	MUST(t, !t->map.npieces || bytes == t->bytes);
	for (uint32_t i = 0; i < t->map.nkept; i++) {
		MUST(t, at <= t->map.kept[i].start && t->map.kept[i].start < t->map.kept[i].end);
		at = t->map.kept[i].end;
	}
	MUST(t, at <= cow__tile_end(t));
}

/* Two tiles with one word would lose each other's readers. */
static void
check_word(const struct cow__tile *t)
{
	const struct cow__segment *s = t->own.word ? t->own.segment : NULL;

	if (!s || !s->owner || !s->words)
		return;
	MUST(t, t->own.word > 1 && t->own.word <= s->nwords);
	for (const struct cow__tile *o = t->next; o; o = o->next)
		MUST(t, o->own.segment != s || o->own.word != t->own.word);
}

static void
check_state(const struct cow__tile *t)
{
	switch (cow__state(t)) {
	case COW__IS_BARE:
		MUST(t, !t->own.segment);
		break;
	case COW__IS_COLD:
	case COW__IS_WARM:
		MUST(t, t->map.backing == COW__ANON || (t->own.segment && t->map.backing == COW__SHARED));
		break;
	case COW__IS_SHARED:
	case COW__IS_FROZEN:
	case COW__IS_PARTLY:
		MUST(t, t->map.npieces || t->own.segment);
		break;
	case COW__IS_ANON:
		MUST(t, t->map.backing == COW__ANON && !t->map.npieces);
		break;
	default:
		break;
	}
	if (t->kind == COW__FREE) {
		MUST(t, !t->map.npieces && !t->own.refs && !t->map.allocation && !t->work);
		MUST(t, !t->own.word && !t->own.held);
	}
	MUST(t, !t->map.nkept || t->map.backing == COW__PRIVATE);
	MUST(t, t->own.open <= t->own.refs);
}

void
cow__check(void)
{
	static unsigned tick, tiles;
	size_t frozen = 0, warm = 0;
	const struct cow__tile *t = cow__tile_first();

	if (!cow__engine.ready || !t || tick++ % (1 + tiles / OFTEN))
		return;
	for (tiles = 0; t; t = t->next) {
		tiles++;
		check_place(t);
		check_parts(t);
		check_state(t);
		check_word(t);
		frozen += t->kind == COW__LIVE && t->map.backing == COW__PRIVATE;
		warm += cow__state(t) == COW__IS_WARM ? t->bytes - t->own.hollow : 0;
	}
	t = cow__tile_first();
	MUST(t, frozen == cow__engine.frozen);
	MUST(t, warm == cow__engine.warm_bytes);
}
#endif
