/* SPDX-License-Identifier: MIT */
/*
 * The control part of a segment: see the header.
 */
#include "core/memory/control.h"
#include "core/base/base.h"
#include "core/memory/engine.h"
#include "core/memory/tile.h"
#include "memfd/map.h"

/* How many words there may be, and the bytes of the list of free ones. */
static uint32_t
words_max(const struct cow__segment *s)
{
	return s->single ? (uint32_t)(cow__page / sizeof(uint64_t))
	                 : COW__WORDS_MAX;
}

static size_t
list_bytes(const struct cow__segment *s)
{
	return cow__round_up(words_max(s) * sizeof(uint32_t), cow__page);
}

int
cow__segment_control_end(struct cow__segment *s)
{
	struct cow__tile *t = s->control_tile;
	int r = s->page ? cow__map_release(s->page, cow__page) : 0;

	if (t) {
		cow__tile_change_begin(t);
		r = cow__map_none(cow__tile_start(t), t->bytes);
		t->map.backing = r == 0 ? COW__NONE : t->map.backing;
		cow__tile_change_end(t);
		if (r == 0)
			(void)cow__tile_put(t);
	}
	if (r == 0) {
		s->control_tile = NULL;
		s->page = 0;
		s->words = NULL;
	}
	return r;
}

void
cow__segment_control_free(struct cow__segment *s)
{
	if (s->free_words)
		(void)cow__map_release((uintptr_t)s->free_words,
		                       list_bytes(s));
}

static void
use_words(struct cow__segment *s, uintptr_t words, uint32_t *list)
{
	s->free_words = list;
	s->words = (uint64_t *)words;
	s->nwords = 1; /* word 0 stands for the whole segment */
}

int
cow__segment_control(struct cow__segment *s)
{
	struct cow__tile *t;
	void *list;
	int r;

	if (s->words)
		return 0;
	r = cow__map_meta(list_bytes(s), &list);
	if (r < 0)
		return r;
	if (s->single) {
		r = cow__map_common(cow__page, &s->page);
		if (r < 0) {
			(void)cow__map_release((uintptr_t)list, list_bytes(s));
			return r;
		}
		use_words(s, s->page, list);
		return 0;
	}
	t = cow__tile_inner(COW__CONTROL_BYTES, 0, COW__HUGE);
	r = !t ? -ENOMEM
	       : cow__map_shared(cow__tile_start(t), t->bytes, &s->file,
	                         cow__engine.end - cow__engine.start, true);
	if (r < 0) {
		if (t)
			(void)cow__tile_put(t);
		(void)cow__map_release((uintptr_t)list, list_bytes(s));
		return r;
	}
	cow__tile_change_begin(t);
	t->map.backing = COW__ANON; /* merges with nothing of the segment */
	cow__tile_change_end(t);
	s->control_tile = t;
	use_words(s, cow__tile_start(t), list);
	return 0;
}

uint32_t
cow__segment_word_new(struct cow__segment *s)
{
	uint32_t word = s->free_word;

	if (!s->owner || !s->words)
		return 0;
	if (word) {
		s->free_word = s->free_words[word - 1];
	} else {
		if (s->nwords == words_max(s))
			return 0;
		word = ++s->nwords;
	}
	__atomic_store_n(&s->words[word - 1], 0, __ATOMIC_RELAXED);
	return word;
}

void
cow__segment_word_free(struct cow__segment *s, uint32_t word)
{
	s->free_words[word - 1] = s->free_word;
	s->free_word = word;
}
