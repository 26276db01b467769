/* SPDX-License-Identifier: MIT */
/*
 * What the policy does to real programs, in a second
 *
 * traces/ has the large blocks of real programs (record.c says how they were recorded). They are
 * played to the functions of core/policy, with a simple model of the memory around them: an
 * allocation takes warm memory as far as there is some, what is above the limit or older than a
 * second goes back, and a fresh block is committed ahead by the program's history. A change of a
 * constant or a decision changes the table below. Then look whether the change is what you wanted,
 * measure it on the machine (bench/), and put the new table here.
 */
#include "core/policy/constants.h"
#include "core/policy/fill.h"
#include "core/policy/warm.h"
#include "tests/support/support.h"

#include <stdio.h>
#include <string.h>

#define BLOCKS 4096
#define DECAY_MS 1000

static const char table[] =
        "trace     fresh  returned  most  committed  wasted\n" /* MiB, in all */
        "churn       345       281   345        194       0\n"
        "prefork     251       187   251        115       8\n"
        "redis         3         0     3          2       0\n"
        "sort         64         0    64          2       0\n"
        "training     56         0    56         30       0\n"
        "xz          305         0   305         19       0\n";

struct memory {
	struct cow__warm warm;
	struct cow__fill fill;
	struct {
		size_t bytes, committed;
	} blocks[BLOCKS];
	struct {
		size_t bytes;
		uint64_t ms;
	} freed[BLOCKS]; /* warm, the oldest first */
	size_t first, last;
	size_t live, live_peak, is_warm, ahead;
	size_t fresh, returned, most, committed, wasted; /* in all, in bytes */
};

static void give_back(struct memory *m, size_t bytes)
{
	m->freed[m->first].bytes -= bytes;
	m->first += m->freed[m->first].bytes == 0;
	m->is_warm -= bytes;
	m->returned += bytes;
}

static void cool(struct memory *m, uint64_t ms)
{
	size_t limit = cow__warm_limit(&m->warm, m->live, &m->live_peak, ms * 1000000);

	while (m->first < m->last && m->freed[m->first].ms + DECAY_MS <= ms)
		give_back(m, m->freed[m->first].bytes);
	while (m->is_warm > limit)
		give_back(m, cow__min(m->is_warm - limit, m->freed[m->first].bytes));
}

static void comes(struct memory *m, size_t number, size_t bytes)
{
	size_t left = bytes, n, room = COW__COMMIT_LEAST + m->live / cow__fill_share(&m->fill, bytes);

	m->blocks[number].bytes = bytes;
	m->live += bytes;
	m->live_peak = cow__max(m->live_peak, m->live);
	for (; left && m->last > m->first; left -= n) { /* what was freed last */
		n = cow__min(left, m->freed[m->last - 1].bytes);
		m->freed[m->last - 1].bytes -= n;
		m->last -= m->freed[m->last - 1].bytes == 0;
		m->is_warm -= n;
	}
	m->fresh += left;
	n = cow__min(left, room > m->ahead ? room - m->ahead : 0);
	m->blocks[number].committed = n;
	m->ahead += n;
	m->committed += n;
	m->most = cow__max(m->most, m->live + m->is_warm);
}

static void goes(struct memory *m, size_t number, size_t touched, uint64_t ms)
{
	size_t bytes = m->blocks[number].bytes, committed = m->blocks[number].committed;
	size_t wasted = committed > touched ? committed - touched : 0;

	must(m->last < BLOCKS);
	cow__fill_learn(&m->fill, bytes, committed - wasted, wasted);
	m->ahead -= committed;
	m->wasted += wasted;
	m->live -= bytes;
	m->is_warm += bytes;
	m->freed[m->last].bytes = bytes;
	m->freed[m->last++].ms = ms;
	m->most = cow__max(m->most, m->live + m->is_warm);
}

static void play(const char *name, char *ret, size_t size)
{
	static struct memory m;
	char path[256];
	unsigned long ms, number, kib;
	char what;
	FILE *f;

	memset(&m, 0, sizeof(m));
	snprintf(path, sizeof(path), "tests/core/policy/traces/%s.txt", name);
	f = fopen(path, "re");
	must(f != NULL);
	while (fscanf(f, "%lu %c %lu %lu", &ms, &what, &number, &kib) == 4) {
		must(number < BLOCKS);
		if (what == '+')
			comes(&m, number, kib * KIB);
		else if (what == '-')
			goes(&m, number, kib * KIB, ms);
		cool(&m, ms);
	}
	must(feof(f));
	fclose(f);
	snprintf(ret, size, "%-9s %5zu  %8zu  %4zu  %9zu  %6zu\n", name, m.fresh / MIB,
	         m.returned / MIB, m.most / MIB, m.committed / MIB, m.wasted / MIB);
}

START_TEST(recorded_programs)
{
	static const char *const names[] = { "churn", "prefork", "redis", "sort", "training", "xz" };
	char all[1024] = "trace     fresh  returned  most  committed  wasted\n", *end = all + strlen(all);

	for (size_t i = 0; i < COUNT(names); i++, end += strlen(end))
		play(names[i], end, sizeof(all) - (size_t)(end - all));
	ck_assert_str_eq(all, table);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("replay");
	TCase *tcase = add_case(suite, "replay");

	tcase_add_test(tcase, recorded_programs);
	return run_suite(suite);
}
