/* SPDX-License-Identifier: MIT */
/*
 * What may happen to a range of memory: the table in core/memory/README.md is that of the code
 */
#include "core/memory/can.h"
#include "core/memory/segment.h"
#include "tests/support/support.h"

#include <stdio.h>
#include <string.h>

static const char *const states[COW__STATES] = {
	"bare", "cold", "warm", "shared", "frozen", "partly", "anonymous", "limbo", "inner", "lost",
};

static const char *const events[COW__EVENTS] = {
	[COW__TO_FREEZE] = "freeze",
	[COW__TO_VIEW] = "view",
	[COW__TO_THAW] = "thaw",
	[COW__TO_THAW_MANY] = "thaw with neighbours",
	[COW__TO_AHEAD] = "copy ahead of a thaw",
	[COW__TO_REWRITE] = "rewrite",
	[COW__TO_FORWARD] = "heal forward",
	[COW__TO_COPY_OVER] = "copy lazily, a block",
	[COW__TO_COPY_PART] = "copy lazily, a part of a storage",
	[COW__TO_SEAL] = "seal",
	[COW__TO_ALIAS] = "alias",
	[COW__TO_JOIN] = "join a file",
	[COW__TO_CUT] = "cut",
	[COW__TO_CLOSE_GAP] = "close the gap behind it",
	[COW__TO_EMPTY] = "empty before a free",
	[COW__TO_FILL] = "fill its page table",
};

static const char *const obstacles[COW__OBSTACLES] = {
	"noted", "overlaid", "slow", "bound", "pinned", "common", "lazy", "busy", "punching", "pieced",
	"scattered", "read", "foreign", "block", "mapping", "no block", "storage",
};

static struct cow__segment files[2] = { { .owner = false }, { .owner = true } };
static struct cow__span part;

static struct cow__tile in_state(enum cow__state state)
{
	struct cow__tile t = { .kind = COW__LIVE, .own.refs = 1, .own.segment = &files[1] };

	switch (state) {
	case COW__IS_BARE:
		return (struct cow__tile){ .kind = COW__FREE };
	case COW__IS_COLD:
		return (struct cow__tile){ .kind = COW__FREE, .map.backing = COW__SHARED };
	case COW__IS_WARM:
		return (struct cow__tile){ .kind = COW__FREE, .map.backing = COW__SHARED, .own.freed_at = 1 };
	case COW__IS_SHARED:
		t.map.backing = COW__SHARED;
		break;
	case COW__IS_FROZEN:
		t.map.backing = COW__PRIVATE;
		break;
	case COW__IS_PARTLY:
		t.map.backing = COW__PRIVATE;
		t.map.nkept = 1;
		t.map.kept = &part;
		break;
	case COW__IS_ANON:
		t.map.backing = COW__ANON;
		t.own.segment = NULL;
		break;
	case COW__IS_LIMBO:
		t.kind = COW__LIMBO;
		break;
	case COW__IS_INNER:
		t.kind = COW__INNER;
		break;
	case COW__IS_LOST:
	case COW__STATES:
		t.kind = COW__LOST;
	}
	return t;
}

/* Nothing but the obstacle is wrong with the tile. */
static void add(struct cow__tile *t, uint32_t obstacle)
{
	static struct cow__node note;

	switch ((enum cow__obstacle)obstacle) {
	case COW__IF_NOTED: t->map.attributes = &note; break;
	case COW__IF_OVERLAID: t->map.overlay = COW__OVERLAY_PARTS; break;
	case COW__IF_SLOW: t->map.slow = true; break;
	case COW__IF_BOUND: t->own.bound = true; break;
	case COW__IF_PINNED: t->own.outside = COW__OUTSIDE_DEVICE; break;
	case COW__IF_COMMON: t->own.outside = COW__OUTSIDE_PROCESSES; break;
	case COW__IF_LAZY: t->map.lazy = true; break;
	case COW__IF_BUSY: t->work = COW__WORK_PAGES; break;
	case COW__IF_PUNCHING: t->work = COW__WORK_PUNCH; break;
	case COW__IF_PIECED: t->map.npieces = 2; break;
	case COW__IF_SCATTERED: t->map.npieces = 49; break;
	case COW__IF_READ: t->own.refs = 2; break;
	case COW__IF_FOREIGN: t->own.segment = &files[0]; break;
	case COW__IF_BLOCK: t->map.use = COW__USE_BLOCK; break;
	case COW__IF_NO_BLOCK: t->map.use = COW__USE_STORAGE; break;
	case COW__IF_MAPPING: t->map.use = COW__USE_MAPPING; break;
	case COW__IF_STORAGE: t->map.allocation = (void *)&note; break;
	default: break;
	}
}

/* Who has the obstacle has this one as well. 0: none. */
static uint32_t included(uint32_t obstacle)
{
	return obstacle == COW__IF_PUNCHING   ? COW__IF_BUSY
	       : obstacle == COW__IF_SCATTERED ? COW__IF_PIECED
	       : obstacle == COW__IF_MAPPING   ? COW__IF_BLOCK
	                                       : 0;
}

static bool can_in(enum cow__event event, enum cow__state state, bool block)
{
	struct cow__tile t = in_state(state);

	t.map.use = block ? COW__USE_BLOCK : COW__USE_STORAGE;
	return cow__can(&t, event);
}

static void append(char *row, const char *word, bool first)
{
	strcat(row, first ? "" : ", ");
	strcat(row, word);
}

/* The row of the event as the code has it. */
static void make_row(enum cow__event event, char *row)
{
	enum cow__state from = COW__STATES;
	bool block = true, first = true;

	strcpy(row, "| ");
	strcat(row, events[event]);
	strcat(row, " | ");
	for (int s = 0; s < COW__STATES; s++) {
		if (!can_in(event, s, true) && !can_in(event, s, false))
			continue;
		block = can_in(event, s, true);
		append(row, states[s], from == COW__STATES);
		from = s;
	}
	ck_assert_int_ne(from, COW__STATES);
	strcat(row, " | ");
	for (int o = 0; o < COW__OBSTACLES; o++) {
		struct cow__tile t = in_state(from);

		t.map.use = block ? COW__USE_BLOCK : COW__USE_STORAGE;
		add(&t, included(1u << o));
		if (!cow__can(&t, event))
			continue;
		add(&t, 1u << o);
		if (!cow__can(&t, event)) {
			append(row, obstacles[o], first);
			first = false;
		}
	}
	strcat(row, first ? "- |\n" : " |\n");
}

START_TEST(the_readme_has_the_table)
{
	static char text[1 << 16];
	char row[1024];
	FILE *file = fopen("core/memory/README.md", "r");
	size_t n;

	ck_assert_ptr_nonnull(file);
	n = fread(text, 1, sizeof(text) - 1, file);
	(void)fclose(file);
	text[n] = '\0';
	for (int e = 0; e < COW__EVENTS; e++) {
		make_row(e, row);
		ck_assert_msg(strstr(text, row), "core/memory/README.md lacks the row\n%s", row);
	}
}
END_TEST

/* A flag that nobody asks for would be no obstacle. */
START_TEST(each_obstacle_is_seen)
{
	for (int o = 0; o < COW__OBSTACLES; o++) {
		struct cow__tile t = in_state(COW__IS_SHARED);
		uint32_t before;

		t.map.use = 1u << o == COW__IF_NO_BLOCK ? COW__USE_BLOCK : COW__USE_STORAGE;
		before = cow__obstacles(&t);
		add(&t, 1u << o);
		ck_assert_uint_eq(before & 1u << o, 0);
		ck_assert_uint_ne(cow__obstacles(&t) & 1u << o, 0);
	}
}
END_TEST

START_TEST(each_state_is_told)
{
	for (int s = 0; s < COW__STATES; s++) {
		struct cow__tile t = in_state(s);

		ck_assert_int_eq(cow__state(&t), s);
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("can");
	TCase *tcase = add_case(suite, "can");

	tcase_add_test(tcase, the_readme_has_the_table);
	tcase_add_test(tcase, each_obstacle_is_seen);
	tcase_add_test(tcase, each_state_is_told);
	return run_suite(suite);
}
